"""Fine-tuning on questions over some branches of WordNet, and retrieval from a branch that training never saw."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from gfm_rag import stages
from gfm_rag.answers import recall_at_k
from gfm_rag.baselines import BM25Retriever, DenseRetriever, PageRankRetriever
from gfm_rag.config import GFMConfig
from gfm_rag.encoders import Encoder
from gfm_rag.entity_matcher import EntityMatcher
from gfm_rag.experiment.quiet_training import train_quietly
from gfm_rag.experiment.wordnet import below, index_of, read_nouns, two_hop_questions
from gfm_rag.gnn_retriever import GNNRetriever
from gfm_rag.kg_index import KGIndex
from gfm_rag.linkers import NgramLinker
from gfm_rag.questions import prepare_questions
from gfm_rag.ranking import Ranker, rank_documents
from gfm_rag.retrieved import Retriever
from gfm_rag.training_data import QuestionGraph
from nips_common.runtime import seed_everything

TRAINING_BRANCHES = (("structure",), ("plant",))
TEST_BRANCH = ("body part",)
HIDDEN, LAYERS = 64, 3
BATCH_SIZE, LEARNING_RATE = 8, 2e-3


@dataclasses.dataclass(frozen=True)
class Branch:
    """An index over a branch, and questions about it.

    Args:
        index: of the glosses.
        questions: with question and supporting entities.
        tensors: of both.
    """

    index: KGIndex
    questions: list[dict[str, Any]]
    tensors: QuestionGraph


def make_branch(asset: Path, roots: tuple[str, ...], size: int, per_template: int, encoder: Encoder) -> Branch:
    """The first `size` synsets below the roots."""
    index, _ = index_of(below(read_nouns(asset / "dict" / "data.noun"), roots, size))
    items = two_hop_questions(index, per_template)
    questions = prepare_questions(index, items, EntityMatcher(index.entities), NgramLinker())
    questions = [row for row in questions if row["question_entities"]]
    return Branch(index, questions, QuestionGraph.from_index(index, questions, encoder))


def finetune(branches: list[Branch], text_dim: int, epochs: int, seed: int) -> GNNRetriever:
    """Stage 2 from random weights through the Trainer."""
    seed_everything(seed)
    model = GNNRetriever(GFMConfig(HIDDEN, (HIDDEN,) * LAYERS, text_dim))
    train_quietly(
        lambda args: stages.finetune(model, [branch.tensors for branch in branches], args),
        batch_size=BATCH_SIZE, learning_rate=LEARNING_RATE, seed=seed, num_train_epochs=epochs,
    )  # fmt: skip
    return model.eval()


@torch.no_grad()
def graph_recall(model: GNNRetriever, branch: Branch, rankers: tuple[Ranker, ...]) -> dict[str, dict[int, float]]:
    """Mean recall@2 and @5, in %, of the supporting documents, for each ranker."""
    data, titles = branch.tensors, branch.index.documents
    logits = torch.cat(
        [
            model(data.graph, data.question_embeddings[rows], data.start_mask[rows].float(), data.entity_weight())
            for rows in torch.arange(len(data)).split(16)
        ]
    )
    found: dict[str, dict[int, float]] = {}
    for ranker in rankers:
        order = rank_documents(logits, data.entity_to_document, ranker).argsort(dim=1, descending=True, stable=True)
        found[ranker] = _recall([[titles[i] for i in row[:5].tolist()] for row in order], branch)
    return found


def _recall(retrieved: list[list[str]], branch: Branch) -> dict[int, float]:
    pairs = list(zip(retrieved, branch.questions, strict=True))
    return {k: 100 * fmean(recall_at_k(titles, row["supporting_facts"], k) for titles, row in pairs) for k in (2, 5)}


def baseline_recall(branch: Branch, encoder: Encoder) -> dict[str, dict[int, float]]:
    """The same for BM25, dense retrieval and personalised PageRank."""
    index = branch.index
    retrievers: dict[str, Retriever] = {
        "BM25": BM25Retriever(index),
        "dense": DenseRetriever(index, encoder),
        "personalised PageRank": PageRankRetriever(index, NgramLinker(), EntityMatcher(index.entities)),
    }
    return {
        name: _recall(
            [[found.title for found in retriever.retrieve(row["question"], 5)] for row in branch.questions], branch
        )
        for name, retriever in retrievers.items()
    }
