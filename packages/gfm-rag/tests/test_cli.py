"""The command line from end to end, on small documents."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from gfm_rag import GFMConfig, GNNRetriever, HashingEncoder, KGIndex, QueryGNN
from gfm_rag.cli import app
from nips_common.cli import run

DOCUMENTS = {
    "Ada Lovelace": "Ada Lovelace worked with Charles Babbage. She was born in London.",
    "Charles Babbage": "Charles Babbage designed the Analytical Engine.",
    "London": "London lies on the Thames.",
}
QUESTIONS = [{"question": "Who designed the Analytical Engine?", "supporting_facts": ["Charles Babbage"]}]


def call(*args: object) -> int:
    with pytest.raises(SystemExit) as ended:
        run(app, [str(arg) for arg in args])
    code = ended.value.code
    return code if isinstance(code, int) else 0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "docs.json").write_text(json.dumps(DOCUMENTS))
    (tmp_path / "qa.json").write_text(json.dumps(QUESTIONS))
    torch.manual_seed(0)
    GNNRetriever(GFMConfig(16, (16, 16), 32)).save_pretrained(tmp_path / "model")
    assert call("index", tmp_path / "docs.json", tmp_path / "index") == 0
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def printed(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_index_writes_a_graph_and_reports_each_document(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert call("report", folder / "index") == 0
    report = printed(capsys)
    assert report["documents"] == 3
    assert report["per_document"]["Charles Babbage"]["triples"] == 1
    assert ("charles babbage", "designed the", "analytical engine") not in KGIndex.load(folder / "index").triples
    assert ("charles babbage", "designed", "analytical engine") in KGIndex.load(folder / "index").triples
    assert sorted(path.name for path in folder.iterdir()) == ["docs.json", "index", "model", "qa.json"]


def test_documents_are_added_and_removed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "more.jsonl").write_text(json.dumps({"title": "Thames", "text": "The Thames flows through Oxford."}))
    assert call("index", folder / "more.jsonl", folder / "index") == 0
    assert "Thames" in KGIndex.load(folder / "index").documents
    assert call("remove", folder / "index", "Thames") == 0
    assert KGIndex.load(folder / "index").documents == list(DOCUMENTS)
    assert call("remove", folder / "index", "Thames") == 2
    assert "no document 'Thames'" in capsys.readouterr().err


def test_ask_prints_documents_and_explains_them(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    options = ["--model", folder / "model", "--encoder", "hashing-32", "--explain", "--plot", folder / "paths.png"]
    assert call("ask", folder / "index", "Who designed the Analytical Engine?", *options) == 0
    found = printed(capsys)
    assert found["question_entities"] == ["analytical engine"]
    assert sorted(document["title"] for document in found["documents"]) == sorted(DOCUMENTS)
    assert all(" --[" in row["path"] or "]-- " in row["path"] for row in found["paths"])
    assert (folder / "paths.png").read_bytes().startswith(b"\x89PNG")
    question = "Who designed the Analytical Engine?"
    assert call("explain", folder / "index", question, "charles babbage", *options[:4]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first.split("  ")[1] == "analytical engine <--[designed]-- charles babbage"


@pytest.mark.parametrize("retriever", ["bm25", "dense", "ppr"])
def test_baselines_answer_too(folder: Path, retriever: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert call("ask", folder / "index", "Who designed the Analytical Engine?", "--retriever", retriever) == 0
    assert printed(capsys)["documents"][0]["title"] == "Charles Babbage"


def test_evaluate_prints_recall(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert call("evaluate", folder / "index", folder / "qa.json", "--retriever", "bm25") == 0
    counts = {"questions": 1, "evaluated": 1, "supporting_titles": 1, "supporting_titles_not_in_index": 0}
    assert printed(capsys) == {**counts, "recall@1": 1.0, "recall@2": 1.0, "recall@5": 1.0, "recall@10": 1.0}


def test_triples_are_imported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "kg.txt").write_text("a,r,b\nb,s\n")
    (tmp_path / "d2e.json").write_text('{"T": ["a", "b"]}')
    arguments = [
        "import-triples",
        tmp_path / "kg.txt",
        tmp_path / "index",
        "--document-entities",
        tmp_path / "d2e.json",
    ]
    assert call(*arguments) == 2
    assert "kg.txt, line 2: expected 3 fields" in capsys.readouterr().err
    assert not (tmp_path / "index").exists()
    assert call(*arguments, "--lenient") == 0
    assert KGIndex.load(tmp_path / "index").triples == [("a", "r", "b")]


def test_models_are_converted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("convert", folder / "model", folder / "official", "--official") == 0
    assert call("convert", folder / "official", folder / "ours") == 0
    first, second = (GNNRetriever.from_pretrained(folder / name).state_dict() for name in ("model", "ours"))
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert call("convert", folder / "ours", folder / "official", "--overwrite") == 0
    assert sorted(file.name for file in (folder / "official").iterdir()) == ["config.json", "model.safetensors"]
    assert call("convert", folder / "model", folder / "ours", "--official", "--overwrite") == 0
    assert sorted(file.name for file in (folder / "ours").iterdir()) == ["config.json", "model.pth"]
    QueryGNN(GFMConfig(16, (16,), 32)).save_pretrained(folder / "stage1")
    assert call("convert", folder / "stage1", folder / "retriever") == 0
    model = GNNRetriever.from_pretrained(folder / "retriever")
    assert torch.equal(model.question_mlp.weight, model.rel_mlp.weight)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ask", "index", "Who?"], "--model is needed"),
        (["ask", "index", "Who?", "--model", "model"], "--encoder is needed: the model model does not say"),
        (
            ["ask", "index", "Who?", "--model", "model", "--encoder", "hashing-8"],
            "gives 8 dimensions, but the model was made for text_dim=32",
        ),
        (["ask", "index", "x", "--retriever", "bm25", "--plot", "a.png"], "--explain and --plot need --retriever gfm"),
        (
            ["ask", "index", "x", "--model", "model", "--plot", "q.xyz"],
            "q.xyz: a figure must be a .png, .pdf, .svg file",
        ),
        (["ask", "index", "x", "--model", "model", "--plot", "new/q.png"], "new/q.png: the folder new does not exist"),
        (["ask", "index", "x", "--retriever", "bm25", "--llm", "m"], "--llm and --base-url go together"),
        (["ask", "index", "x", "--retriever", "bm25", "--steps", "3"], "--steps needs --llm"),
        (["ask", "index", "x", "--model", "index"], "index/config.json: no such file"),
        (["ask", "index", " ", "--retriever", "bm25"], "question must be a non-empty string"),
        (["ask", "index", "x", "--retriever", "best"], "--retriever must be gfm, bm25, dense or ppr, got 'best'"),
        (["ask", "index", "x", "--retriever", "bm25", "--explain"], "--explain and --plot need --retriever gfm"),
        (["ask", "nowhere", "x", "--retriever", "bm25"], "nowhere: no such index folder"),
        (["report", "docs.json"], "docs.json: a file, not an index folder"),
        (["index", "docs.json", "new", "--extractor", "magic"], "rule, spacy or openai, got 'magic'"),
        (["index", "docs.json", "new", "--extractor", "openai"], "needs --base-url and --llm"),
        (["index", "docs.json", "new", "--linker", "x"], "ngram or embedding, got 'x'"),
        (["index", "docs.json", "new", "--ray", " "], "local, auto or an address such as HOST:6379, got ' '"),
        (["index", "docs.json", "new", "--ray", "local", "--ray-actors", "0"], "Invalid value for '--ray-actors'"),
        (["index", "docs.json", "new", "--extractor", "spacy", "--pipeline", "xx_none", "--ray", "local"], "'xx_none'"),
        (["index", "docs.json", "new", "--normalizer", "utf"], "'utf'"),
        (["pretrain", "--output_dir", "out"], "the following arguments are required: --index"),
        (["index", "qa.json", "new"], "expected a JSON object of texts by title"),
        (
            ["explain", "index", "x", "paris", "--model", "model", "--encoder", "hashing-32"],
            "'paris' is not in the graph",
        ),
        (["pretrain", "--preset", "best"], "paper, official-config, got 'best'"),
        (["import-triples", "qa.json", "new"], "--document-entities is needed"),
        (["import-triples", "nokg.txt", "new"], "'nokg.txt' does not exist"),
        (["import-triples", "qa.json", "new", "--document-entities", "none.json"], "'none.json' does not exist"),
        (
            ["import-triples", "qa.json", "index"],
            "index exists and would be replaced: name another folder, or add --over",
        ),
        (["import-triples", "qa.json", "model", "--overwrite"], "model holds other files (no index.json)"),
        (["convert", "model", "index", "--overwrite"], "index holds other files (no config.json)"),
        (["convert", "model", "model"], "model exists and would be replaced"),
        (["evaluate", "index", "none.json", "--retriever", "bm25"], "'none.json' does not exist"),
        (["evaluate", "index", "docs.jsonl", "--retriever", "bm25"], "entry 1: expected a text under question, got"),
        (["index", "none.json", "new"], "'none.json' does not exist"),
        (["index", "docs.json", "docs.json"], "docs.json is a file: name a folder"),
        (["index", "docs.json", "."], ". is the working directory, one around it or a mount point"),
        (["index", "docs.json", "model"], "model holds other files and no index"),
        (
            ["index", "docs.json", "new", "--normalizer", "latin"],
            "normalizer must be one of unicode, ascii, got 'latin'",
        ),
        (
            ["index", "docs.json", "index", "--normalizer", "ascii"],
            "made with normalizer='unicode', got --normalizer ascii",
        ),
        (
            ["index", "docs.json", "index", "--compat", "v1"],
            "index was made with compat=None, got --compat v1: leave it",
        ),
        (
            ["index", "docs.json", "index", "--similarity-threshold", "0.5"],
            "similarity_threshold=0.8, got --similarity-",
        ),
        (["import-triples", ".", "new"], "expected processed/stage1 with kg.txt"),
        (["convert", "index", "out"], "index/config.json: no such file"),
    ],
)
def test_mistakes_are_one_line_and_write_nothing(
    arguments: list[str], words: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    (folder / "docs.jsonl").write_text(json.dumps({"title": "a", "text": "b"}))
    before = contents(folder)
    capsys.readouterr()
    assert call(*arguments) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert words in lines[-1]
    assert lines[-1].startswith("gfm-rag: error: ")
    assert contents(folder) == before


def test_the_encoder_is_the_one_the_model_was_made_for(folder: Path) -> None:
    assert HashingEncoder(32).dim == GNNRetriever.from_pretrained(folder / "model").config.text_dim


QUESTION = "Who designed the Analytical Engine?"


def test_an_index_is_replaced_only_when_asked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "kg.txt").write_text("a,r,b\n")
    (folder / "d2e.json").write_text('{"T": ["a", "b"]}')
    given = ["import-triples", folder / "kg.txt", folder / "index", "--document-entities", folder / "d2e.json"]
    assert call(*given) == 2
    assert KGIndex.load(folder / "index").documents == list(DOCUMENTS)
    assert call(*given, "--overwrite") == 0
    assert KGIndex.load(folder / "index").documents == ["T"]


def test_a_model_is_replaced_only_when_asked(folder: Path) -> None:
    GNNRetriever(GFMConfig(8, (8,), 32)).save_pretrained(folder / "other")
    assert call("convert", folder / "model", folder / "other") == 2
    assert GNNRetriever.from_pretrained(folder / "other").config.input_dim == 8
    assert call("convert", folder / "model", folder / "other", "--overwrite") == 0
    assert GNNRetriever.from_pretrained(folder / "other").config.input_dim == 16


def test_texts_of_documents_without_triples_are_imported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "kg.txt").write_text("a,r,b\n")
    (tmp_path / "d2e.json").write_text('{"T": ["a", "b"]}')
    (tmp_path / "docs.json").write_text('{"T": "On a and b.", "U": "On nothing."}')
    given = ["--document-entities", tmp_path / "d2e.json", "--documents", tmp_path / "docs.json"]
    assert call("import-triples", tmp_path / "kg.txt", tmp_path / "index", *given) == 0
    assert printed(capsys)["documents_without_entities"] == ["U"]
    index = KGIndex.load(tmp_path / "index")
    assert (index.documents, index.text("U")) == (["T", "U"], "On nothing.")


def test_a_folder_of_texts_is_indexed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "texts" / "people").mkdir(parents=True)
    (tmp_path / "texts" / "people" / "ada.md").write_text(DOCUMENTS["Ada Lovelace"])
    (tmp_path / "texts" / "London.txt").write_text(DOCUMENTS["London"])
    (tmp_path / "texts" / "picture.png").write_bytes(b"\x89PNG")
    assert call("index", tmp_path / "texts", tmp_path / "of-texts") == 0
    assert KGIndex.load(tmp_path / "of-texts").documents == ["London", "people/ada"]


def test_a_model_brings_its_encoder_and_refuses_another(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from gfm_rag.encoders import EncoderRecord

    model = GNNRetriever.from_pretrained(folder / "model")
    model.record_encoder(HashingEncoder(32))
    model.save_pretrained(folder / "named")
    capsys.readouterr()
    assert call("ask", folder / "index", QUESTION, "--model", folder / "named") == 0
    by_default = printed(capsys)
    assert call("ask", folder / "index", QUESTION, "--model", folder / "model", "--encoder", "hashing-32") == 0
    assert printed(capsys) == by_default
    model.encoder = EncoderRecord("bert-32-0123456789ab", "my/encoder")
    model.save_pretrained(folder / "foreign")
    assert call("ask", folder / "index", QUESTION, "--model", folder / "foreign", "--encoder", "hashing-32") == 2
    words = "trained with the encoder my/encoder (bert-32-0123456789ab), got hashing-32 (hashing-32)"
    assert words in capsys.readouterr().err


def test_what_is_explained_is_no_entity_of_the_question(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    model = GNNRetriever(GFMConfig(16, (16, 16), 32))
    model.entity_model.mlp[-1].weight.data.zero_()  # all entities score the same, the question's own comes first
    model.save_pretrained(folder / "flat")
    index = KGIndex.from_triples([("engine", "made by", "babbage")], {"E": ["engine"], "B": ["babbage"]})
    index.save(folder / "small")
    options = ["--model", folder / "flat", "--encoder", "hashing-32", "--plot", folder / "paths.svg"]
    capsys.readouterr()
    assert call("ask", folder / "small", "Who made the engine?", *options) == 0  # --plot explains, too
    found = printed(capsys)
    assert (found["question_entities"], found["best_entity"], found["explained_entity"]) == (
        ["engine"], "babbage", "babbage"
    )  # fmt: skip
    assert [row["path"] for row in found["paths"]] == ["engine --[made by]--> babbage"]
    assert "<svg" in (folder / "paths.svg").read_text()


def test_no_path_is_drawn_and_the_answer_is_not_lost(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = KGIndex.from_triples([("a", "r", "a"), ("b", "r", "c")], {"A": ["a"], "B": ["b", "c"]})
    index.save(folder / "apart")
    options = ["--model", folder / "model", "--encoder", "hashing-32"]
    capsys.readouterr()
    model = GNNRetriever.from_pretrained(folder / "model")
    assert call("explain", folder / "apart", "bbb", "a", *options) == 2
    assert f"no path of at most {len(model.config.hidden_dims)} hops leads from" in capsys.readouterr().err
    KGIndex.from_triples([("alone", "r", "alone")], {"A": ["alone"]}).save(folder / "alone")
    assert call("ask", folder / "alone", "alone", *options, "--plot", folder / "p.png") == 2
    told = capsys.readouterr()
    found = json.loads(told.out)
    assert (found["best_entity"], found["explained_entity"], found["paths"]) == (None, None, [])
    assert "p.png: there is no path to draw" in told.err
    assert not (folder / "p.png").exists()


def test_a_question_that_names_nothing_says_so_once(
    folder: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    options = ["--model", folder / "model", "--encoder", "hashing-32", "--explain"]
    capsys.readouterr()
    assert call("ask", folder / "index", QUESTION, *options) == 0
    assert printed(capsys)["linked"] == "names"
    assert call("ask", folder / "index", "zzz qqq vvv?", *options) == 0
    assert printed(capsys)["linked"] == "whole question"
    assert caplog.text.count("no entity named") == 1


def test_evaluate_tells_titles_that_the_index_lacks(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    questions = [
        {"id": 1, "question": QUESTION, "supporting_facts": ["Charles Babbage", "Lost"], "answer": "Babbage"},
        {"id": 2, "question": "Who?", "supporting_facts": [], "answer": "Ada Lovelace"},
    ]
    (folder / "more.json").write_text(json.dumps(questions))
    rows = [{"id": 2, "response": "Answer: Lovelace"}, {"question": QUESTION, "answer": "the Babbage"}]
    (folder / "predictions.json").write_text(json.dumps(rows))
    given = ["evaluate", folder / "index", folder / "more.json", "--retriever", "bm25", "--predictions"]
    capsys.readouterr()
    assert call(*given, folder / "predictions.json") == 0
    found = printed(capsys)
    assert (found["questions"], found["evaluated"]) == (2, 1)
    assert (found["supporting_titles"], found["supporting_titles_not_in_index"], found["recall@5"]) == (2, 1, 0.5)
    assert (found["em"], found["f1"]) == (0.5, pytest.approx((1 + 2 / 3) / 2))
    (folder / "predictions.json").write_text(json.dumps(rows[1:]))
    assert call(*given, folder / "predictions.json") == 2
    assert "1 questions have no prediction; the first is 'Who?'" in capsys.readouterr().err


def test_a_pre_trained_network_says_how_to_go_on(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network = QueryGNN(GFMConfig(16, (16,), 32))
    network.record_encoder(HashingEncoder(32))
    network.save_pretrained(folder / "stage1")
    assert call("ask", folder / "index", QUESTION, "--model", folder / "stage1") == 2
    assert f"`gfm-rag finetune --init {folder / 'stage1'}` trains a retriever from it" in capsys.readouterr().err
    assert call("convert", folder / "stage1", folder / "retriever") == 0
    assert call("ask", folder / "index", QUESTION, "--model", folder / "retriever") == 0  # with the encoder of stage 1


def test_without_ray_its_option_names_the_extra(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert call("index", folder / "docs.json", folder / "new", "--ray", "local") == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "gfm-rag[ray]" in line
    assert not (folder / "new").exists()


@pytest.mark.slow
def test_an_index_made_on_ray_is_the_one_made_without(folder: Path) -> None:
    ray = pytest.importorskip("ray")
    assert call("index", folder / "docs.json", folder / "spread", "--ray", "local", "--ray-actors", "2") == 0
    assert not ray.is_initialized()
    names = sorted(path.name for path in (folder / "index").iterdir())
    assert names == sorted(path.name for path in (folder / "spread").iterdir())
    assert all((folder / "index" / name).read_bytes() == (folder / "spread" / name).read_bytes() for name in names)


def test_commands_say_nothing_of_other_libraries_on_stderr() -> None:
    pytest.importorskip("accelerate")
    command = [sys.executable, "-m", "gfm_rag", "pretrain", "--help"]  # imports torch_geometric and transformers
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert "--num_negatives" in ended.stdout
    assert ended.stderr == ""


def test_only_the_known_notices_are_hidden_and_only_during_an_import() -> None:
    from gfm_rag.graph_data import without_import_notices

    log = logging.getLogger("torch.utils._pytree")
    before, level = list(warnings.filters), log.level
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with without_import_notices():
            warnings.warn("`torch.jit.script` is deprecated. Please switch.", FutureWarning, stacklevel=1)
            warnings.warn("something of our own", UserWarning, stacklevel=1)
        warnings.warn("`torch.jit.script` is deprecated. Please switch.", FutureWarning, stacklevel=1)
    assert [str(one.message)[:9] for one in seen] == ["something", "`torch.ji"]
    assert warnings.filters == before
    assert log.level == level


def test_an_interrupted_run_resumes_with_its_own_extractor_only(folder: Path) -> None:
    passage = "London\nLondon lies on the Thames."
    lines = {
        name: json.dumps({"passage": passage, "extracted_entities": [], "extracted_triples": [["london", name, "x"]]})
        for name in ("rule", "spacy-en_core_web_sm")
    }
    for name, line in lines.items():
        (folder / f"new.{name}.extractions.jsonl").write_text(line + "\n")
    assert call("index", folder / "docs.json", folder / "new") == 0
    relations = KGIndex.load(folder / "new").relations
    assert "rule" in relations
    assert "spacy-en_core_web_sm" not in relations
    assert not (folder / "new.rule.extractions.jsonl").exists()


def test_help_waits_for_no_library_that_it_does_not_need() -> None:
    names = "torch_geometric", "transformers", "matplotlib"
    code = f"import sys, gfm_rag.cli; print([name for name in {names} if name in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    assert ended.stdout == "[]\n"
