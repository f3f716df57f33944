"""GFM-RAG: a graph foundation model for retrieval augmented generation (arXiv 2502.01113)."""

from importlib.metadata import version

from gfm_rag.config import GFMConfig
from gfm_rag.gnn_retriever import GNNRetriever
from gfm_rag.kg_completion import remove_easy_edges, sample_negatives, strict_candidates, to_tail_mode
from gfm_rag.losses import AdversarialBCELoss, ListwiseCELoss
from gfm_rag.paths import Path, PathStep
from gfm_rag.query_gnn import QueryGNN
from gfm_rag.ranking import inverse_frequency, rank_documents
from gfm_rag.ranks import filtered_ranks, hits_at_k, mrr, target_ranks

__all__ = [
    "AdversarialBCELoss",
    "GFMConfig",
    "GNNRetriever",
    "ListwiseCELoss",
    "Path",
    "PathStep",
    "QueryGNN",
    "filtered_ranks",
    "hits_at_k",
    "inverse_frequency",
    "mrr",
    "rank_documents",
    "remove_easy_edges",
    "sample_negatives",
    "strict_candidates",
    "target_ranks",
    "to_tail_mode",
]

__version__ = version("gfm-rag")
