"""What someone does wrong who has only read the README: each mistake gives one clear error, or works after all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from gfm_rag import (
    GFMConfig,
    GFMRetriever,
    GNNRetriever,
    HashingEncoder,
    KGIndex,
    NgramLinker,
    RuleExtractor,
    SentenceEncoder,
)
from gfm_rag.encoders import EncoderRecord, open_encoder
from gfm_rag.encoders.named import chosen_source
from gfm_rag.path_figure import draw_paths

DOCUMENTS = {
    "Ada": "Ada Lovelace worked with Charles Babbage.",
    "Babbage": "Charles Babbage designed the Analytical Engine.",
}
QUESTION = "What did the colleague of Ada Lovelace design?"


def make(ner: Any = None, encoder: Any = None, dtype: torch.dtype = torch.float32) -> GFMRetriever:
    extractor = RuleExtractor()
    torch.manual_seed(0)
    model = GNNRetriever(GFMConfig(8, (8, 8), 16)).to(dtype)
    index = KGIndex.from_documents(DOCUMENTS, extractor)
    return GFMRetriever(index, model, encoder or HashingEncoder(16), NgramLinker(), ner or extractor.names)


@pytest.mark.parametrize("ner", [RuleExtractor(), lambda question: "ada lovelace", lambda question: [1815]])
def test_what_gives_no_list_of_names_is_no_ner(ner: Any) -> None:
    with pytest.raises(TypeError, match="ner must give a list of the names in a question, got"):
        make(ner).retrieve(QUESTION)


def test_a_function_is_no_encoder() -> None:
    with pytest.raises(TypeError, match=r"an encoder has `dim` and `encode\(texts\)`, got function"):
        make(encoder=lambda texts: torch.zeros(len(texts), 16))


@pytest.mark.parametrize(
    "change",
    [
        lambda index: index.add_documents({"Rome": "Ada Lovelace visited Rome."}, RuleExtractor()),
        lambda index: index.remove_documents(["Babbage"]),
        # as many entities and documents as before
        lambda index: index.add_documents({"Again": "Charles Babbage admired Ada Lovelace."}, RuleExtractor()),
    ],
)
def test_a_changed_index_is_taken_up(change: Callable[[KGIndex], None]) -> None:
    retriever = make()
    change(retriever.index)
    found = retriever.retrieve(QUESTION, top_k=10)
    assert {document.title for document in found} == set(retriever.index.documents)


def test_adding_what_is_there_needs_no_refresh() -> None:
    retriever = make()
    retriever.index.add_documents(DOCUMENTS, RuleExtractor())
    assert len(retriever.retrieve(QUESTION)) == 2


def test_a_target_may_be_written_as_in_the_text() -> None:
    retriever = make()
    assert retriever.explain(QUESTION, "Analytical  Engine!") == retriever.explain(QUESTION, "analytical engine")


def test_an_unknown_target_names_what_is_written_nearly_so() -> None:
    with pytest.raises(ValueError, match=r"'Charles Babage' is not in the graph; near it are 'charles babbage'$"):
        make().explain(QUESTION, "Charles Babage")
    with pytest.raises(ValueError, match=r"entity 'Quetzalcoatl' is not in the graph$"):
        make().explain(QUESTION, "Quetzalcoatl")


def test_a_model_in_bfloat16_retrieves_and_explains() -> None:
    half, full = make(dtype=torch.bfloat16), make()
    scores = half.entity_scores(QUESTION)
    assert scores.dtype == torch.float32
    torch.testing.assert_close(scores, full.entity_scores(QUESTION), atol=0.05, rtol=0.05)
    assert len(half.retrieve(QUESTION)) == 2
    assert [path.steps for path in half.explain(QUESTION, "charles babbage")] == [
        path.steps for path in full.explain(QUESTION, "charles babbage")
    ]


def test_a_failed_document_of_an_index_is_tried_again() -> None:
    asked: list[str] = []
    working: set[str] = {"Ada"}

    def extract(passage: str) -> dict[str, Any]:
        title = passage.split("\n")[0]
        asked.append(title)
        return dict(RuleExtractor()(passage)) if title in working else {"passage": passage, "error": "no reply"}

    index = KGIndex.from_documents(DOCUMENTS, extract)
    assert index.report()["failed_documents"] == ["Babbage"]
    index.add_documents(DOCUMENTS, extract)  # fails again: reported, not raised
    assert index.report()["failed_documents"] == ["Babbage"]
    working.add("Babbage")
    index.add_documents(DOCUMENTS, extract)
    assert asked == ["Ada", "Babbage", "Babbage", "Babbage"]
    assert index.report()["failed_documents"] == []
    assert index.triples == KGIndex.from_documents(DOCUMENTS, RuleExtractor()).triples


@pytest.mark.parametrize("documents", ["text", ["text"], [("title", "text")]])
def test_documents_are_a_mapping(documents: Any) -> None:
    with pytest.raises(TypeError, match=r"documents must be a mapping of title to text, got (str|list)"):
        KGIndex.from_documents(documents, RuleExtractor())


def test_texts_are_no_lists_of_entities() -> None:
    with pytest.raises(ValueError, match="entities of document 'Ada' must be a list of strings, got 'Ada Lovelace"):
        KGIndex.from_triples([("a", "b", "c")], DOCUMENTS)


def test_texts_of_other_documents_are_refused() -> None:
    with pytest.raises(ValueError, match="none of the 2 texts has the title of a document; first: 'Ada'"):
        KGIndex.from_triples([("a", "b", "c")], {"ada.txt": ["a"]}, DOCUMENTS)


def test_a_language_model_is_a_function_that_replies_with_text() -> None:
    with pytest.raises(TypeError, match="llm must be a function of messages to a reply, got str"):
        make().ircot(QUESTION, "my-model")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="llm must give a string, got NoneType in step 1"):
        make().ircot(QUESTION, lambda messages: None)  # type: ignore[arg-type, return-value]


def _save_encoder(folder: Path) -> None:
    """A tiny BERT as sentence-transformers saves it: mean of the tokens, unit norm, at most 4 tokens."""
    transformers = pytest.importorskip("transformers")
    folder.mkdir(parents=True)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "located", "in", "wrote"]
    (folder / "vocab.txt").write_text("\n".join(words))
    transformers.BertTokenizer(str(folder / "vocab.txt"), model_max_length=16).save_pretrained(folder)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    transformers.BertModel(transformers.BertConfig(vocab_size=len(words), **sizes)).save_pretrained(folder)
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 4}))
    (folder / "modules.json").write_text(json.dumps([{"type": "sentence_transformers.models.Normalize"}]))


def test_a_hub_id_is_the_same_encoder_as_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Normalisation and length are said by files beside the weights, which a hub id has too."""
    constants = pytest.importorskip("huggingface_hub.constants")
    repository = tmp_path / "models--someone--tiny"
    snapshot = repository / "snapshots" / ("0" * 40)
    _save_encoder(snapshot)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    texts = ["located in", "wrote in located in"]
    vectors = SentenceEncoder("someone/tiny").encode(texts)
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(2))
    torch.testing.assert_close(vectors, SentenceEncoder(snapshot).encode(texts))


def test_an_encoder_that_the_hub_does_not_give_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    pytest.importorskip("transformers")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(FileNotFoundError, match="someone/absent is no folder, and the hub did not give it"):
        SentenceEncoder("someone/absent")


def test_half_a_document_is_asked_for() -> None:
    for question in (lambda: make().retrieve(QUESTION, top_k=2.5), lambda: make().ircot(QUESTION, print, top_k=2.5)):  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"top_k must be a whole number of documents, got 2\.5"):
            question()


def test_a_batch_of_graphs_is_refused() -> None:
    from torch_geometric.data import Batch

    retriever = make()
    batch = Batch.from_data_list([retriever.graph, retriever.graph])
    with pytest.raises(ValueError, match="one graph at a time, got a batch of 2"):
        retriever.model(batch, torch.zeros(1, 16), torch.zeros(1, int(batch.num_nodes)))


def test_another_encoder_of_the_same_size_is_refused(tmp_path: Path) -> None:
    class Other(HashingEncoder):
        def __init__(self) -> None:
            super().__init__(16)
            self.name, self.source = "other-16", "my/other"

    retriever = make()
    retriever.model.record_encoder(Other())
    retriever.model.save_pretrained(tmp_path)
    model = GNNRetriever.from_pretrained(tmp_path)
    assert model.encoder == retriever.model.encoder == ("other-16", "my/other")
    GFMRetriever(retriever.index, model, Other(), NgramLinker(), retriever.ner)
    with pytest.raises(
        ValueError, match=r"trained with the encoder my/other \(other-16\), got hashing-16 \(hashing-16\)"
    ):
        GFMRetriever(retriever.index, model, HashingEncoder(16), NgramLinker(), retriever.ner)
    with pytest.raises(ValueError, match="gives 8 dimensions, but the model was made for text_dim=16"):
        model.record_encoder(HashingEncoder(8))
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "encoder": "other-16"}))
    with pytest.raises(ValueError, match=r"config\.json: encoder must hold the texts name and source, got 'other-16'"):
        GNNRetriever.from_pretrained(tmp_path)


def test_minilm_comes_from_the_hub_where_the_asset_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    repository = tmp_path / "models--sentence-transformers--all-MiniLM-L6-v2"
    _save_encoder(repository / "snapshots" / ("0" * 40))
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("NIPS_ASSETS", str(tmp_path / "none"))
    capfd.readouterr()
    encoder = open_encoder("minilm")
    assert "Loading weights" not in capfd.readouterr().err
    assert isinstance(encoder, SentenceEncoder)
    assert (encoder.dim, encoder.source, encoder.path) == (8, "minilm", "sentence-transformers/all-MiniLM-L6-v2")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "none"))
    with pytest.raises(
        FileNotFoundError, match=r"all-MiniLM-L6-v2 is no folder, and the hub .*; in the source tree: asset"
    ):
        open_encoder("minilm")


def test_an_encoder_in_a_folder_is_found_again_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _save_encoder(tmp_path / "my" / "encoder")  # elsewhere "my/encoder" would be a hub id
    monkeypatch.chdir(tmp_path)
    record = EncoderRecord.of(SentenceEncoder("my/encoder"))
    assert record is not None
    assert record.source == str(tmp_path / "my" / "encoder")
    monkeypatch.chdir("/")
    assert chosen_source(None, "model", record) == record.source
    (tmp_path / "my").rename(tmp_path / "moved")
    with pytest.raises(FileNotFoundError, match="which does not exist here: name it with --encoder"):
        chosen_source(None, "model", record)
    assert chosen_source(str(tmp_path / "moved" / "encoder"), "model", record).endswith("moved/encoder")


@pytest.mark.parametrize("name", ["q.xyz", "q", "no-folder/q.png", ""])
def test_a_figure_that_cannot_be_written_is_told_first(name: str, tmp_path: Path) -> None:
    with pytest.raises((ValueError, FileNotFoundError), match=r"a figure must be a|does not exist"):
        draw_paths(tmp_path / name, [(1.0, [("a", "r", "b", False)])], "title")
    with pytest.raises(ValueError, match="there is no path to draw"):
        draw_paths(tmp_path / "q.png", [], "title")
    assert not any(tmp_path.iterdir())
