"""Both stages of training as functions."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gfm_rag.gnn_retriever import GNNRetriever
from gfm_rag.graph_data import without_import_notices
from gfm_rag.query_gnn import QueryGNN
from gfm_rag.training_data import GraphPool, QuestionGraph, TripleGraph
from gfm_rag.training_folder import checkpoints
from nips_common.runtime import require

if TYPE_CHECKING:
    from transformers import TrainingArguments


def pretrain(
    model: QueryGNN,
    graphs: GraphPool | Sequence[TripleGraph],
    args: TrainingArguments,
    eval_graphs: GraphPool | Sequence[TripleGraph] | None = None,
    *,
    resume: bool = False,
    **options: Any,
) -> dict[str, float]:
    """Stage 1, in place: the network learns to complete triples.

    Args:
        model: the network.
        graphs: to train on.
        args: transformers' arguments; `per_device_train_batch_size` counts triples.
        eval_graphs: to validate on; None = no validation.
        resume: go on from the newest checkpoint of `args.output_dir`.
        options: num_negatives (128; None = all that are false), temperature (1.0), strict (True),
            remove_one_hop (False).

    Returns:
        eval_mr, eval_mrr, eval_hits@1, eval_hits@3, eval_hits@10 of the validation, or nothing.

    Raises:
        ImportError: transformers or accelerate is missing; names the extra.
        ValueError: nothing to go on from with `resume`.
    """
    return _train("PretrainTrainer", model, graphs, args, eval_graphs, resume, options)


def finetune(
    model: GNNRetriever,
    graphs: GraphPool | Sequence[QuestionGraph],
    args: TrainingArguments,
    eval_graphs: GraphPool | Sequence[QuestionGraph] | None = None,
    *,
    resume: bool = False,
    **options: Any,
) -> dict[str, float]:
    """Stage 2, in place: the network learns to find the entities of supporting documents (Eq. 13).

    Args:
        model: the network; `retriever_from` makes one of a pre-trained network.
        graphs: to train on.
        args: transformers' arguments; `per_device_train_batch_size` counts questions.
        eval_graphs: to validate on; None = no validation.
        resume: go on from the newest checkpoint of `args.output_dir`.
        options: alpha (0.3), temperature (0.2), document_loss (0.0).

    Returns:
        eval_document_mrr, eval_document_hits@5, eval_entity_mrr, eval_entity_hits@5 of the validation, or nothing.

    Raises:
        ImportError: transformers or accelerate is missing; names the extra.
        ValueError: nothing to go on from with `resume`.
    """
    return _train("FinetuneTrainer", model, graphs, args, eval_graphs, resume, options)


def _train(
    trainer_name: str, model: Any, graphs: Any, args: Any, eval_graphs: Any, resume: bool, options: dict[str, Any]
) -> dict[str, float]:
    for library in ("transformers", "accelerate"):
        require(library, "gfm-rag[train]")
    with without_import_notices():
        from gfm_rag import trainers

    if resume and not checkpoints(Path(args.output_dir)):  # the Trainer would make the folder before it finds out
        raise ValueError(f"there is no checkpoint to go on from in {args.output_dir}")
    trainer = getattr(trainers, trainer_name)(model, args, _pool(graphs), _pool(eval_graphs), **options)
    with _without_notice_of_times():
        trainer.train(resume_from_checkpoint=True if resume else None)
    model.eval()
    metrics: dict[str, float] = {} if eval_graphs is None else trainer.evaluate()
    return metrics


@contextmanager
def _without_notice_of_times() -> Iterator[None]:
    """Hides the Trainer's notice that two checkpoints are less than a second apart, as those of small runs are."""
    log = logging.getLogger("transformers.trainer_utils")

    def tells(record: logging.LogRecord) -> bool:
        return "mtime may not be reliable" not in record.getMessage()

    log.addFilter(tells)
    try:
        yield
    finally:
        log.removeFilter(tells)


def _pool(graphs: Any) -> GraphPool | None:
    return graphs if graphs is None or isinstance(graphs, GraphPool) else GraphPool(graphs)
