"""GFM-RAG: a graph foundation model for retrieval augmented generation (arXiv 2502.01113)."""

from importlib.metadata import version

from gfm_rag.answers import evaluate_answers, exact_match, f1_score, recall_at_k
from gfm_rag.baselines import BM25Retriever, DenseRetriever, PageRankRetriever
from gfm_rag.config import GFMConfig
from gfm_rag.encoders.hashing import HashingEncoder
from gfm_rag.encoders.sentence import SentenceEncoder
from gfm_rag.extractors import OpenAICompatibleExtractor, RuleExtractor, SpacyExtractor
from gfm_rag.gnn_retriever import GNNRetriever
from gfm_rag.ircot import ChatPrompt, IRCoTResult, ircot
from gfm_rag.json_replies import extract_json
from gfm_rag.kg_completion import remove_easy_edges, sample_negatives, strict_candidates, to_tail_mode
from gfm_rag.kg_files import read_kg
from gfm_rag.kg_index import KGIndex
from gfm_rag.linkers import EmbeddingLinker, NgramLinker
from gfm_rag.losses import AdversarialBCELoss, ListwiseCELoss
from gfm_rag.paths import Path, PathStep
from gfm_rag.phrases import normalize_phrase
from gfm_rag.query_gnn import QueryGNN
from gfm_rag.questions import prepare_questions
from gfm_rag.ranking import inverse_frequency, rank_documents
from gfm_rag.ranks import filtered_ranks, hits_at_k, mrr, target_ranks
from gfm_rag.retrieved import RetrievedDocument
from gfm_rag.retriever import GFMRetriever
from gfm_rag.stages import finetune, pretrain

__all__ = [
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

__version__ = version("gfm-rag")
