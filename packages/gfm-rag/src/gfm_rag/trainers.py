"""The two stages as transformers Trainers: loops, checkpoints, precision and processes are theirs, batches are ours.

Every batch holds rows of one graph; under torchrun each process takes batches of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerCallback, TrainingArguments

from gfm_rag.all_negatives import all_negatives
from gfm_rag.completion import completion_ranks
from gfm_rag.gnn_retriever import GNNRetriever
from gfm_rag.kg_completion import sample_negatives
from gfm_rag.losses import AdversarialBCELoss, ListwiseCELoss
from gfm_rag.query_gnn import QueryGNN
from gfm_rag.ranking import rank_documents
from gfm_rag.ranks import hits_at_k, mrr, target_ranks
from gfm_rag.training_data import GraphBatch, GraphBatches, GraphPool, QuestionGraph, TripleGraph


class _Reshuffle(TrainerCallback):
    """Shuffles graphs and rows when an epoch begins; a resumed run gets the order of its epoch back."""

    def __init__(self, batches: GraphBatches) -> None:
        self.batches = batches

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Called by the Trainer."""
        self.batches.set_epoch(round(state.epoch or 0))


def _only(batches: Sequence[GraphBatch]) -> dict[str, GraphBatch]:
    return {"batch": batches[0]}


class _Network(nn.Module):
    """Hides the network's `config` from the Trainer, which would write fields of language models into it."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.network(*args, **kwargs)


class GraphTrainer(Trainer):
    """A Trainer whose batches are rows of one graph. Subclasses say how a batch is scored and how a model is judged.

    Args:
        model: the network.
        args: transformers' arguments; `per_device_train_batch_size` counts questions or triples.
        graphs: to train on.
        eval_graphs: to validate on; None = no validation.
    """

    def __init__(
        self, model: nn.Module, args: TrainingArguments, graphs: GraphPool, eval_graphs: GraphPool | None
    ) -> None:
        self.network, self.graphs, self.eval_graphs = model, graphs, eval_graphs
        batches = GraphBatches(graphs.sizes, args.per_device_train_batch_size, args.seed)
        super().__init__(
            model=_Network(model),
            args=args,
            train_dataset=batches,
            eval_dataset=None if eval_graphs is None else GraphBatches(eval_graphs.sizes, 1, 0),
            callbacks=[_Reshuffle(batches)],
        )

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Batches one by one, in the order of the epoch."""
        loader: DataLoader[Any] = DataLoader(self.train_dataset, batch_size=1, collate_fn=_only)
        return self.accelerator.prepare(loader)  # type: ignore[no-any-return]

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Validates on all graphs; the mean over graphs is logged and chooses the best checkpoint."""
        if self.eval_graphs is None:
            raise ValueError("there is no graph to validate on")
        pool = self.eval_graphs.to(self.args.device)
        model = self.network.eval()
        found = [self.judge(model, pool.get(number)) for number in range(len(pool.sizes))]
        metrics = {f"{metric_key_prefix}_{key}": sum(row[key] for row in found) / len(found) for key in found[0]}
        self.log(metrics)
        control: Any = self.control  # type: ignore[has-type]
        self.control = self.callback_handler.on_evaluate(self.args, self.state, control, metrics)
        return metrics

    def judge(self, model: Any, graph: Any) -> dict[str, float]:
        """Metrics of a model on one graph."""
        raise NotImplementedError

    def prediction_step(self, *_: Any, **__: Any) -> Any:
        """Not used: validation goes through `judge`."""
        raise NotImplementedError("validate with evaluate()")


class PretrainTrainer(GraphTrainer):
    """Stage 1: completing the triples of knowledge graphs (section 3.6 of the method's notes).

    Args:
        model: the network.
        args: transformers' arguments.
        graphs: of `TripleGraph`.
        eval_graphs: of `TripleGraph`.
        num_negatives: K corrupted triples for each true one; None = all that are false, without sampling.
        temperature: of the adversarial weights of negatives.
        strict: sampled negatives are never known triples.
        remove_one_hop: take all edges between the pairs of a batch out of the graph.
    """

    def __init__(
        self,
        model: QueryGNN,
        args: TrainingArguments,
        graphs: GraphPool,
        eval_graphs: GraphPool | None = None,
        *,
        num_negatives: int | None = 128,
        temperature: float = 1.0,
        strict: bool = True,
        remove_one_hop: bool = False,
    ) -> None:
        if num_negatives is not None and num_negatives < 1:
            raise ValueError(f"num_negatives must be at least 1, or None for all, got {num_negatives}")
        super().__init__(model, args, graphs, eval_graphs)
        self.num_negatives, self.strict, self.remove_one_hop = num_negatives, strict, remove_one_hop
        self.loss = AdversarialBCELoss(temperature)

    def compute_loss(self, model: Any, inputs: dict[str, GraphBatch], return_outputs: bool = False, **_: Any) -> Any:
        """The loss of one batch."""
        asked = inputs["batch"]
        data: TripleGraph = self.graphs.to(self.args.device).get(asked.graph)
        triples = data.triples[asked.rows.to(data.triples.device)]
        known = data.known if data.known is not None else data.graph
        if self.num_negatives is None:
            batch, targets, counted = all_negatives(known, triples)
        else:
            generator = torch.Generator().manual_seed(asked.seed)
            batch = sample_negatives(known, triples, self.num_negatives, self.strict, generator)
            targets, counted = torch.zeros(batch.shape[:2], device=batch.device), None
            targets[:, 0] = 1
        logits = model(data.graph, batch, remove_one_hop=self.remove_one_hop)
        loss = self.loss(logits, targets) if counted is None else self._ragged_loss(logits, targets, counted)
        return (loss, logits) if return_outputs else loss

    def _ragged_loss(self, logits: Tensor, targets: Tensor, counted: Tensor) -> Tensor:
        """The mean of the rows' losses, each over what counts in it: rows have different numbers of negatives."""
        rows = zip(logits, targets, counted, strict=True)
        return torch.stack([self.loss(row[kept][None], target[kept][None]) for row, target, kept in rows]).mean()

    def judge(self, model: Any, graph: TripleGraph) -> dict[str, float]:
        """Filtered mean rank, mean reciprocal rank and hits over both directions."""
        ranks = torch.cat(completion_ranks(model, graph, self.args.per_device_eval_batch_size))
        hits = {f"hits@{k}": hits_at_k(ranks, k) for k in (1, 3, 10)}
        return {"mr": float(ranks.float().mean()), "mrr": mrr(ranks), **hits}


class FinetuneTrainer(GraphTrainer):
    """Stage 2: finding the entities of supporting documents (Eq. 13): alpha * BCE + (1 - alpha) * ranking loss.

    Args:
        model: the network.
        args: transformers' arguments.
        graphs: of `QuestionGraph`.
        eval_graphs: of `QuestionGraph`.
        alpha: weight of the binary cross-entropy.
        temperature: of its adversarial weights.
        document_loss: weight of the same losses on the scores of documents, logits @ M; 0 in the paper.
    """

    def __init__(
        self,
        model: GNNRetriever,
        args: TrainingArguments,
        graphs: GraphPool,
        eval_graphs: GraphPool | None = None,
        *,
        alpha: float = 0.3,
        temperature: float = 0.2,
        document_loss: float = 0.0,
    ) -> None:
        if not 0 <= alpha <= 1:
            raise ValueError(f"alpha must be between 0 and 1, got {alpha!r}")
        super().__init__(model, args, graphs, eval_graphs)
        self.alpha, self.document_loss = alpha, document_loss
        self.classification, self.ranking = AdversarialBCELoss(temperature), ListwiseCELoss()

    def _loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        first, second = self.classification(logits, targets), self.ranking(logits, targets)
        return self.alpha * first + (1 - self.alpha) * second  # type: ignore[no-any-return]

    def compute_loss(self, model: Any, inputs: dict[str, GraphBatch], return_outputs: bool = False, **_: Any) -> Any:
        """The loss of one batch."""
        asked = inputs["batch"]
        data: QuestionGraph = self.graphs.to(self.args.device).get(asked.graph)
        logits = _logits(model, data, asked.rows)
        loss = self._loss(logits, data.target_mask[asked.rows].to(logits.device))
        if self.document_loss:
            documents = torch.sparse.mm(data.entity_to_document.t(), logits.float().t()).t()
            loss = loss + self.document_loss * self._loss(documents, data.document_mask[asked.rows].to(logits.device))
        return (loss, logits) if return_outputs else loss

    @torch.no_grad()
    def judge(self, model: Any, graph: QuestionGraph) -> dict[str, float]:
        """Filtered mean reciprocal rank and hits of supporting documents and of entities."""
        found: dict[str, list[Tensor]] = {"document": [], "entity": []}
        for rows in torch.arange(len(graph)).split(self.args.per_device_eval_batch_size):
            logits = _logits(model, graph, rows).float()
            documents = rank_documents(logits, graph.entity_to_document)
            found["document"] += target_ranks(documents.cpu(), graph.document_mask[rows])
            found["entity"] += target_ranks(logits.cpu(), graph.target_mask[rows])
        metrics: dict[str, float] = {}
        for name, ranks in found.items():
            metrics |= {f"{name}_mrr": mrr(ranks), f"{name}_hits@5": hits_at_k(ranks, 5)}
        return metrics


def _logits(model: Any, data: QuestionGraph, rows: Tensor) -> Tensor:
    device = data.graph.edge_index.device
    return model(  # type: ignore[no-any-return]
        data.graph,
        data.question_embeddings[rows].to(device),
        data.start_mask[rows].to(device),
        data.entity_weight(),
    )
