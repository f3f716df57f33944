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
    assert printed(capsys) == {"questions": 1, "recall@1": 1.0, "recall@2": 1.0, "recall@5": 1.0, "recall@10": 1.0}


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
    QueryGNN(GFMConfig(16, (16,), 32)).save_pretrained(folder / "stage1")
    assert call("convert", folder / "stage1", folder / "retriever") == 0
    model = GNNRetriever.from_pretrained(folder / "retriever")
    assert torch.equal(model.question_mlp.weight, model.rel_mlp.weight)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ask", "index", "Who?"], "--model is needed"),
        (["ask", "index", "Who?", "--model", "model"], "gives 768 dimensions, but the model was made for text_dim=32"),
        (["ask", "index", " ", "--retriever", "bm25"], "question must be a non-empty string"),
        (["ask", "index", "x", "--retriever", "best"], "--retriever must be gfm, bm25, dense or ppr, got 'best'"),
        (["ask", "index", "x", "--retriever", "bm25", "--explain"], "--explain needs --retriever gfm"),
        (["ask", "nowhere", "x", "--retriever", "bm25"], "nowhere is no index"),
        (["index", "docs.json", "new", "--extractor", "magic"], "rule, spacy or openai, got 'magic'"),
        (["index", "docs.json", "new", "--extractor", "openai"], "needs --base-url and --llm"),
        (["index", "docs.json", "new", "--linker", "x"], "ngram or embedding, got 'x'"),
        (["index", "docs.json", "new", "--ray", " "], "local, auto or an address such as HOST:6379, got ' '"),
        (["index", "docs.json", "new", "--ray", "local", "--ray-actors", "0"], "Invalid value for '--ray-actors'"),
        (["index", "docs.json", "new", "--extractor", "spacy", "--pipeline", "xx_none", "--ray", "local"], "'xx_none'"),
        (["index", "docs.json", "new", "--normalizer", "utf"], "'utf'"),
        (["index", "docs.json", "index", "--normalizer", "ascii"], "was made with normalizer='unicode': --normalizer"),
        (["index", "docs.json", "index", "--compat", "v1"], "was made with compat=None: --compat v1 is for a new"),
        (["index", "docs.json", "index", "--similarity-threshold", "0.9"], "with similarity_threshold=0.8"),
        (["pretrain", "--output_dir", "out"], "the following arguments are required: --index"),
        (["index", "qa.json", "new"], "expected a JSON object of texts by title"),
        (
            ["explain", "index", "x", "paris", "--model", "model", "--encoder", "hashing-32"],
            "'paris' is not in the graph",
        ),
        (["pretrain", "--preset", "best"], "paper, official-config, got 'best'"),
        (["import-triples", "qa.json", "new"], "--document-entities is needed"),
        (["import-triples", ".", "new"], "expected processed/stage1 with kg.txt"),
        (["convert", "index", "out"], "index/config.json: no such file"),
    ],
)
def test_mistakes_are_one_line_and_write_nothing(
    arguments: list[str], words: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    capsys.readouterr()
    assert call(*arguments) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert words in lines[-1]
    assert lines[-1].startswith("gfm-rag: error: ")
    assert not (folder / "new").exists()
    assert not (folder / "out").exists()


def test_the_encoder_is_the_one_the_model_was_made_for(folder: Path) -> None:
    assert HashingEncoder(32).dim == GNNRetriever.from_pretrained(folder / "model").config.text_dim


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
