"""From a question to documents: the graph retriever and the baselines."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gfm_rag import (
    BM25Retriever,
    DenseRetriever,
    EmbeddingLinker,
    GFMConfig,
    GFMRetriever,
    GNNRetriever,
    HashingEncoder,
    KGIndex,
    NgramLinker,
    PageRankRetriever,
    inverse_frequency,
    rank_documents,
)
from gfm_rag.entity_matcher import EntityMatcher
from gfm_rag.linkers import _largest
from gfm_rag.questions import link_names

TRIPLES = [
    ("ada lovelace", "worked with", "charles babbage"),
    ("charles babbage", "designed", "analytical engine"),
    ("analytical engine", "built in", "london"),
    ("thames", "flows through", "london"),
]
ENTITIES = {
    "Ada": ["ada lovelace", "charles babbage"],
    "Babbage": ["charles babbage", "analytical engine"],
    "Engine": ["analytical engine", "london"],
    "Thames": ["thames", "london"],
    "Nothing": [],
}
TEXTS = {
    "Ada": "Ada Lovelace worked with Charles Babbage.",
    "Babbage": "Charles Babbage designed the Analytical Engine.",
    "Engine": "The Analytical Engine was built in London.",
    "Thames": "The river flows through London.",
    "Nothing": "Some other words.",
}


def make(**options: Any) -> GFMRetriever:
    index = KGIndex.from_triples(TRIPLES, ENTITIES, TEXTS)
    torch.manual_seed(0)
    model, encoder = GNNRetriever(GFMConfig(8, (8, 8), 16)), HashingEncoder(16)
    return GFMRetriever(index, model, encoder, NgramLinker(), EntityMatcher(index.entities), **options)


def test_documents_are_ranked_by_the_scores_of_their_entities() -> None:
    retriever = make(top_k_entities=2)
    question = "Who worked with Charles Babbage in London?"
    assert retriever.question_entities(question) == ["charles babbage", "london"]
    mask = torch.zeros(1, 5)
    mask[0, [1, 3]] = 1
    weight = inverse_frequency(retriever.index.entity_to_document)
    graph, encoder = retriever.index.graph(HashingEncoder(16)), HashingEncoder(16)
    logits = retriever.model(graph, encoder.encode([question]), mask, weight)
    expected = rank_documents(logits, retriever.index.entity_to_document, "idf_topk", 2)[0]
    found = retriever.retrieve(question, top_k=5)
    order = sorted(range(5), key=lambda i: (-float(expected[i]), i))
    assert [document.title for document in found] == [retriever.index.documents[i] for i in order]
    assert [document.score for document in found] == pytest.approx([float(expected[i]) for i in order])
    assert found[0].norm_score == 1.0
    assert found[-1].norm_score == 0.0
    assert found[0].content == TEXTS[found[0].title]
    assert len(retriever.retrieve(question, top_k=2)) == 2


def test_a_question_that_names_nothing_starts_from_its_nearest_entity() -> None:
    retriever = make()
    assert retriever.question_entities("analytic engines") == ["analytical engine"]


def test_equal_scores_are_in_the_order_of_the_documents_and_have_norm_score_0() -> None:
    retriever = make(ranker="topk", top_k_entities=100)
    retriever.entity_to_document = torch.ones(5, 5)
    found = retriever.retrieve("london")
    assert [document.title for document in found] == list(TEXTS)
    assert {document.norm_score for document in found} == {0.0}


def test_a_changed_index_is_taken_up_by_a_refresh(tmp_path: Path) -> None:
    retriever = make()
    retriever.index.save(tmp_path / "index")
    retriever.index.remove_documents(["Thames"])
    retriever.refresh()
    assert "Thames" not in [document.title for document in retriever.retrieve("london")]
    again = KGIndex.load(tmp_path / "index")
    other = GFMRetriever(again, retriever.model, HashingEncoder(16), NgramLinker(), EntityMatcher(again.entities))
    assert torch.equal(other.entity_scores("london"), make().entity_scores("london"))


def test_paths_are_told_in_the_words_of_the_graph() -> None:
    retriever = make()
    paths = retriever.explain("Where is Ada Lovelace?", "analytical engine")
    assert paths
    for path in paths:
        for head, relation, tail, _ in retriever.path_triples(path):
            assert (head, relation, tail) in TRIPLES
    nodes = [step.source for step in paths[0].steps] + [paths[0].steps[-1].target]
    assert retriever.index.entities[nodes[0]] == "ada lovelace"
    assert retriever.index.entities[nodes[-1]] == "analytical engine"


def test_what_does_not_fit_is_refused() -> None:
    index = KGIndex.from_triples(TRIPLES, ENTITIES)
    model = GNNRetriever(GFMConfig(8, (8,), 16))
    with pytest.raises(ValueError, match=r"gives 12 dimensions.*text_dim=16"):
        GFMRetriever(index, model, HashingEncoder(12), NgramLinker(), lambda _: [])
    with pytest.raises(ValueError, match="no entities"):
        GFMRetriever(KGIndex.from_triples([], {}), model, HashingEncoder(16), NgramLinker(), lambda _: [])
    with pytest.raises(ValueError, match="idf_topk, got 'x'"):
        make(ranker="x")
    retriever = make()
    for question, top_k, words in (("", 5, "non-empty string, got ''"), ("x", 0, "at least 1 document, got 0")):
        with pytest.raises(ValueError, match=words):
            retriever.retrieve(question, top_k)
    with pytest.raises(ValueError, match="'paris' is not in the graph"):
        retriever.explain("x", "paris")

    class Stranger(NgramLinker):
        def __call__(self, queries: Any, top_k: int = 1) -> Any:
            return {query: [{"entity": "paris", "score": 1.0, "norm_score": 1.0}] for query in queries}

    retriever.linker = Stranger()
    with pytest.raises(ValueError, match="start entity 'paris' is not in the graph"):
        retriever.retrieve("london")


def test_bm25_ranks_by_rare_shared_words() -> None:
    index = KGIndex.from_triples(TRIPLES, ENTITIES, TEXTS)
    found = BM25Retriever(index).retrieve("Which river flows?", top_k=5)
    assert [document.title for document in found[:1]] == ["Thames"]
    assert found[0].norm_score == 1.0
    # one document of two, counted by hand: idf ln(1 + 1.5 / 1.5), tf 1 * 2.5 / (1 + 1.5) for equal lengths
    two = KGIndex.from_triples([], {"a": [], "b": []}, {"a": "red fox", "b": "blue fox"})
    assert BM25Retriever(two).scores("red").tolist() == pytest.approx([0.6931471805599453, 0.0])


def test_dense_retrieval_ranks_by_cosine() -> None:
    index, encoder = KGIndex.from_triples(TRIPLES, ENTITIES, TEXTS), HashingEncoder(64)
    passages = [f"{title}\n{text}" for title, text in TEXTS.items()]
    expected = encoder.encode(passages) @ encoder.encode(["Analytical Engine"])[0]
    torch.testing.assert_close(DenseRetriever(index, encoder).scores("Analytical Engine"), expected)


def test_page_rank_is_the_stationary_walk_from_the_question() -> None:
    index = KGIndex.from_triples(TRIPLES, ENTITIES, TEXTS)
    retriever = PageRankRetriever(index, NgramLinker(), EntityMatcher(index.entities), iterations=200)
    rank = retriever.entity_scores("Ada Lovelace")
    assert float(rank.sum()) == pytest.approx(1)
    # a chain ada - babbage - engine - london - thames: solve rank = 0.5 e + 0.5 P rank
    walk = torch.zeros(5, 5, dtype=torch.float64)
    for a, b in ((0, 1), (1, 2), (2, 3), (3, 4)):
        walk[a, b] = walk[b, a] = 1
    walk /= walk.sum(0)
    start = torch.tensor([0.5, 0, 0, 0, 0], dtype=torch.float64)
    torch.testing.assert_close(rank, torch.linalg.solve(torch.eye(5, dtype=torch.float64) - 0.5 * walk, start))
    assert retriever.retrieve("Ada Lovelace")[0].title == "Ada"


@pytest.mark.parametrize("linker", [NgramLinker(), EmbeddingLinker(HashingEncoder(64))], ids=["trigrams", "embeddings"])
def test_linkers_put_the_name_itself_first_and_scale_by_its_score(linker: Any) -> None:
    names = ["analytical engine", "analytical engines", "london", "thames"]
    linker.index(names)
    found = linker(["analytical engine", "londons", "analytical engine"], top_k=2)
    assert [n["entity"] for n in found["analytical engine"]] == ["analytical engine", "analytical engines"]
    assert found["analytical engine"][0]["norm_score"] == 1.0
    assert found["londons"][0]["entity"] == "london"
    best, second = found["analytical engine"]
    assert second["norm_score"] == pytest.approx(second["score"] / best["score"])
    assert len(linker(["london"], top_k=10)["london"]) == 4


def test_linkers_want_entities_and_at_least_one_neighbour() -> None:
    for linker in (NgramLinker(), EmbeddingLinker(HashingEncoder(8))):
        with pytest.raises(ValueError, match="call index"):
            linker(["x"])
        linker.index(["a"])
        with pytest.raises(ValueError, match="at least 1 neighbour, got 0"):
            linker(["x"], top_k=0)


def test_names_are_found_whatever_their_case_and_the_longest_wins() -> None:
    matcher = EntityMatcher(["engine", "analytical engine", "in", "日本"], shortest=2)
    assert matcher("Was the ANALYTICAL Engine in 日本 or an engine?") == ["analytical engine", "in", "日本", "engine"]
    assert EntityMatcher(["in"])("in") == []


def test_a_changed_index_is_never_read_with_the_old_graph() -> None:
    retriever, baselines = make(), [BM25Retriever, lambda index: DenseRetriever(index, HashingEncoder(8))]
    index = retriever.index
    stale = [make_baseline(index) for make_baseline in baselines]
    stale.append(PageRankRetriever(index, NgramLinker(), EntityMatcher(index.entities)))
    extractor = lambda passage: {"passage": passage, "extracted_triples": [["london", "has", "tower"]]}
    # as many entities and documents as before, but others
    index.remove_documents(["Ada", "Nothing"])
    index.add_documents({"Tower": "London has a tower.", "More": "London has a tower, too."}, extractor)
    fresh = GFMRetriever(index, retriever.model, HashingEncoder(16), NgramLinker(), EntityMatcher(index.entities))
    expected = fresh.retrieve("tower of london")
    assert retriever.retrieve("tower of london") == expected
    for old in stale:
        with pytest.raises(ValueError, match=r"the index has changed since this \w+Retriever was made: make it anew"):
            old.retrieve("london")


def test_names_of_given_entities_stay_as_they_are_written() -> None:
    index = KGIndex.from_triples([("A_B", "r", "a b"), ("a b", "r", "Ünï")], {"T": ["A_B"]})
    assert link_names(["A_B", "Ünï", "Über!", "?"], index) == ["A_B", "Ünï", "über"]
    for names in ("A_B", None, [1]):
        with pytest.raises(TypeError, match="ner must give a list of the names in a question"):
            link_names(names, index)  # type: ignore[arg-type]


def test_weights_that_diverged_are_told() -> None:
    retriever = make()
    with torch.no_grad():
        retriever.model.entity_model.mlp[0].weight.fill_(float("nan"))
    with pytest.raises(ValueError, match="the network gives NaN or infinity"):
        retriever.retrieve("london")


def test_baselines_of_an_empty_index_find_nothing() -> None:
    index = KGIndex.from_triples([], {})
    for baseline in (
        BM25Retriever(index),
        DenseRetriever(index, HashingEncoder(4)),
        PageRankRetriever(index, NgramLinker(), lambda _: []),
        PageRankRetriever(index, EmbeddingLinker(HashingEncoder(4)), lambda _: []),
    ):
        assert baseline.retrieve("anything") == []


def test_bm25_adds_the_weights_of_all_words() -> None:
    texts = {"a": "red red fox", "b": "blue fox", "c": "owl"}
    index = KGIndex.from_triples([], dict.fromkeys(texts, ()), texts)
    lengths, mean = {"a": 4, "b": 3, "c": 2}, 3.0

    def weight(times: int, title: str, frequency: int) -> float:
        idf = math.log(1 + (3 - frequency + 0.5) / (frequency + 0.5))
        return idf * times * 2.5 / (times + 1.5 * (0.25 + 0.75 * lengths[title] / mean))

    expected = [weight(2, "a", 1) + weight(1, "a", 2), weight(1, "b", 2), 0.0]
    assert BM25Retriever(index).scores("Red, fox?").tolist() == pytest.approx(expected)


@pytest.mark.parametrize("damping", [0.5, 0.85])
def test_page_rank_of_nodes_without_edges_returns_to_the_start(damping: float) -> None:
    # x has no edge; y has only an edge to itself, and y and z two parallel ones
    triples = [("yyy", "r", "yyy"), ("yyy", "r", "zzz"), ("yyy", "s", "zzz"), ("zzz", "r", "yyy")]
    index = KGIndex.from_triples(triples, {"X": ["xxx", "yyy"], "Z": ["zzz"]})
    both = PageRankRetriever(index, NgramLinker(), lambda text: text.split(), damping, iterations=300)
    walk = torch.tensor([[0.5, 1, 0], [0.5, 0, 0], [0, 0, 0]], dtype=torch.float64)  # y, z, x
    start = torch.tensor([0.5, 0, 0.5], dtype=torch.float64)
    walk[:, 2] = start  # a walk that cannot go on begins anew
    expected = torch.linalg.solve(torch.eye(3, dtype=torch.float64) - damping * walk, (1 - damping) * start)
    torch.testing.assert_close(both.entity_scores("xxx yyy"), expected)
    for options, words in (
        ({"iterations": 0}, "iterations must be"),
        ({"ranker": "x"}, "got 'x'"),
        ({"damping": 1}, "got 1"),
    ):
        with pytest.raises(ValueError, match=words):
            PageRankRetriever(index, NgramLinker(), lambda _: [], **options)  # type: ignore[arg-type]


@given(st.integers(0, 300), st.integers(1, 13))
def test_neighbours_are_those_of_a_stable_sort(seed: int, top: int) -> None:
    scores = torch.randint(6, (3, 12), generator=torch.Generator().manual_seed(seed)).float()
    kept, columns = _largest(scores, min(top, 12))
    expected = scores.argsort(dim=1, descending=True, stable=True)[:, :top]
    assert torch.equal(columns, expected)
    assert torch.equal(kept, scores.gather(1, expected))
