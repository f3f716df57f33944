"""The public names: a change here is a change for users."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path

import gfm_rag


def test_the_public_names_are_these() -> None:
    assert gfm_rag.__all__ == [
        "AdversarialBCELoss",
        "BM25Retriever",
        "ChatPrompt",
        "DenseRetriever",
        "EmbeddingLinker",
        "GFMConfig",
        "GFMRetriever",
        "GNNRetriever",
        "HashingEncoder",
        "IRCoTResult",
        "KGIndex",
        "ListwiseCELoss",
        "NgramLinker",
        "OpenAICompatibleExtractor",
        "PageRankRetriever",
        "Path",
        "PathStep",
        "QueryGNN",
        "RetrievedDocument",
        "RuleExtractor",
        "SentenceEncoder",
        "SpacyExtractor",
        "evaluate_answers",
        "exact_match",
        "extract_json",
        "f1_score",
        "filtered_ranks",
        "finetune",
        "hits_at_k",
        "inverse_frequency",
        "ircot",
        "mrr",
        "normalize_phrase",
        "prepare_questions",
        "pretrain",
        "rank_documents",
        "read_kg",
        "recall_at_k",
        "remove_easy_edges",
        "sample_negatives",
        "strict_candidates",
        "target_ranks",
        "to_tail_mode",
    ]
    assert all(hasattr(gfm_rag, name) for name in gfm_rag.__all__)


def test_the_settings_are_these_with_these_defaults() -> None:
    defaults = {field.name: field.default for field in dataclasses.fields(gfm_rag.GFMConfig)}
    assert defaults == {
        "input_dim": 512,
        "hidden_dims": (512,) * 6,
        "text_dim": 768,
        "message": "distmult",
        "aggregate": "sum",
        "short_cut": True,
        "layer_norm": True,
        "activation": "relu",
        "concat_hidden": False,
        "num_mlp_layer": 2,
    }


def test_signatures_are_these() -> None:
    def names(call: object) -> list[str]:
        return [name for name in inspect.signature(call).parameters if name != "self"]  # type: ignore[arg-type]

    graph = ["graph", "question_embeddings", "start_mask"]
    assert names(gfm_rag.GNNRetriever.forward) == [*graph, "entity_weight", "edge_chunk_size", "output_hidden_states"]
    assert names(gfm_rag.GNNRetriever.explain) == [*graph, "target", "k", "entity_weight", "compat"]
    assert names(gfm_rag.QueryGNN.forward) == ["graph", "batch", "remove_one_hop", "edge_chunk_size"]
    assert names(gfm_rag.GFMRetriever) == [
        "index", "model", "encoder", "linker", "ner", "ranker", "top_k_entities"
    ]  # fmt: skip
    assert names(gfm_rag.rank_documents) == ["entity_logits", "entity_to_document", "ranker", "top_k"]
    assert names(gfm_rag.sample_negatives) == ["graph", "triples", "num_negatives", "strict", "generator"]
    assert names(gfm_rag.ircot) == ["retriever", "question", "llm", "max_steps", "top_k", "prompt"]
    assert names(gfm_rag.KGIndex.from_documents) == [
        "documents", "extractor", "linker", "compat", "multi_relation", "normalizer", "add_title",
        "similarity_threshold", "max_sim_neighbors", "cache",
    ]  # fmt: skip
    assert gfm_rag.PathStep._fields == ("source", "relation", "target")
    assert gfm_rag.Path._fields == ("weight", "steps")
    assert gfm_rag.RetrievedDocument._fields == ("title", "content", "score", "norm_score")


def test_every_public_name_is_documented() -> None:
    for name in gfm_rag.__all__:
        assert inspect.getdoc(getattr(gfm_rag, name))


def test_the_version_is_the_newest_of_the_changelog() -> None:
    changelog = Path(__file__).parents[1].joinpath("CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\S+)", changelog, flags=re.MULTILINE)[0] == gfm_rag.__version__
