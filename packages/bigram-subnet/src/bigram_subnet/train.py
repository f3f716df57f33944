"""Train masks: `bigram-subnet train`, `python -m bigram_subnet.train`, torchrun, accelerate launch.

The loop is transformers' Trainer, so that several GPUs, checkpoints and resuming are its own. The frozen weights may be
bfloat16, the scores are float32.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, TrainerCallback
from transformers.utils import logging as hf_logging

from bigram_subnet.ablation import ablation_report
from bigram_subnet.evaluation import evaluate_subnetwork
from bigram_subnet.mask import SubnetworkMask
from bigram_subnet.mask_files import MASK_FILE
from bigram_subnet.ngrams import BigramCounts
from bigram_subnet.pretrained import load_model
from bigram_subnet.surprisal import select_subnetwork
from bigram_subnet.targets import NgramTarget, SelfTarget
from bigram_subnet.training.arguments import RESULTS_FILE, TrainArguments
from bigram_subnet.training.card import write_card
from bigram_subnet.training.dry_run import plan
from bigram_subnet.training.log import TrainLog, finite_or_none
from bigram_subnet.training.parsing import COMMAND, parse
from bigram_subnet.training.run_data import RunData, read_run_data
from bigram_subnet.training.run_folder import check_contents, check_output, write_settings
from bigram_subnet.training.subnetwork import run_attempts
from bigram_subnet.training.trainer import MaskTrainer
from nips_common.artifacts import write_json
from nips_common.cli import user_errors
from nips_common.runtime import describe, resolve_device, resolve_dtype, seed_everything

log = logging.getLogger("bigram_subnet.train")  # also where this module is __main__
LOG_FILE = "train_log.json"
_RANK = int(os.environ.get("RANK", "0"))


def train(arguments: TrainArguments) -> dict[str, Any]:
    """Trains one mask a lambda and writes ``lambdaL/mask.safetensors``, its log, results and a model card.

    Args:
        arguments: the flags.

    Returns:
        What is in ``results.json``: a row a lambda and, with held-out text, the chosen lambda.

    Raises:
        ValueError: data, counts, tokenizer and model that do not fit, or an output folder in use; before any step.
        OSError: a model or file that cannot be found.
    """
    if _RANK == 0:  # the others may come after it has begun to write
        check_output(arguments)
    device = resolve_device(arguments.device)
    dtype = resolve_dtype(arguments.dtype, device)
    seed_everything(arguments.seed)
    run = read_run_data(arguments)
    model = load_model(arguments.model, dtype, device, arguments.revision)
    run.check(arguments, model)
    target: Any = SelfTarget(model) if arguments.target == "self" else NgramTarget(run.needed_counts())
    if _RANK == 0:
        contents = run.contents()
        check_contents(arguments, contents)
        write_settings(arguments, contents)
    log.info("training on %s, %d sequences of %d tokens", describe(device, dtype), *run.data.shape)
    logs = [_one(arguments, value, model, target, run) for value in arguments.l0_lambda]
    results = _results(arguments, logs)
    if _RANK == 0:
        write_json(Path(arguments.output) / RESULTS_FILE, results)
        towards = "the corpus n-gram distribution" if arguments.target == "ngram" else "its own predictions"
        write_card(Path(arguments.output), logs, towards)
    return results


def _one(
    arguments: TrainArguments,
    l0_lambda: float,
    model: PreTrainedModel,
    target: Any,
    run: RunData,
) -> TrainLog:
    """Trains, saves and evaluates the mask of one lambda; a finished one is read instead when resuming."""
    folder = arguments.folder(l0_lambda)
    if arguments.resume and (folder / LOG_FILE).is_file():
        log.info("lambda %g: finished before", l0_lambda)
        return TrainLog.load(folder / LOG_FILE)
    log.info("lambda %g", l0_lambda)
    mask, outcome = run_attempts(
        model, target, run.data, arguments.config(l0_lambda), folder / "checkpoints", arguments.resume,
        watch=lambda trainer: trainer.add_callback(_Progress(trainer, arguments.logging_steps)),
        save_strategy="steps", save_steps=arguments.save_steps, save_total_limit=2,
    )  # fmt: skip
    outcome.outpath = str(folder / MASK_FILE)
    outcome.model_dir = mask.base_model = arguments.model
    outcome.checkpoint = arguments.revision
    outcome.train_inputs = ", ".join(arguments.tokens or arguments.text)
    if _RANK == 0:
        mask.save(folder / MASK_FILE, l0_lambda=l0_lambda)  # before it is evaluated, which may fail
    if run.held_out is not None:
        _evaluate(model, mask, outcome, run.needed_counts(), run.held_out, arguments.seed)
    if _RANK == 0:
        outcome.save(folder / LOG_FILE)
    return outcome


def _evaluate(
    model: PreTrainedModel, mask: SubnetworkMask, outcome: TrainLog, counts: BigramCounts, ids: Tensor, seed: int
) -> None:
    found = evaluate_subnetwork(model, mask, counts, ids, torch.Generator().manual_seed(seed))
    for name in (
        "ngram_n",
        "ngram_correlation",
        "ngram_xent",
        "ngram_corr_dropinf",
        "distill_correlation",
        "distill_xent",
    ):
        setattr(outcome, name, found[name])
    losses = ablation_report(model, mask, ids, torch.Generator().manual_seed(seed))
    r = {name: control["ngram_corr_dropinf"] for name, control in found["controls"].items()}
    log.info(
        "r with the n-gram surprisal: subnetwork %.3f, full model %.3f, random mask %.3f, no weight %.3f",
        found["ngram_corr_dropinf"], r["full"], r["random"], r["empty"],
    )  # fmt: skip
    log.info(
        "loss in nats: full model %.3f, subnetwork %.3f, random mask %.3f, without the subnetwork %.3f, without the "
        "random mask %.3f",
        losses["full"], losses["subnetwork"], losses["random"], losses["ablated"], losses["random_ablated"],
    )  # fmt: skip


def _results(arguments: TrainArguments, logs: Sequence[TrainLog]) -> dict[str, Any]:
    rows = [
        {
            "l0_lambda": each.l0_lambda,
            "kept": each.mask_size,
            "proportion_kept": each.proportion_kept,
            "ngram_corr_dropinf": finite_or_none(each.ngram_corr_dropinf),
            "train_steps": each.train_steps,
            "stop_reason": each.stop_reason,
            "stable": each.stable,
        }
        for each in logs
    ]
    measured = {row["l0_lambda"]: row["ngram_corr_dropinf"] for row in rows if row["ngram_corr_dropinf"] is not None}
    compared = min(arguments.l0_lambda) in measured  # without an r there, there is nothing to choose by
    chosen = select_subnetwork(measured, arguments.tolerance) if compared else None
    return {"model": arguments.model, "target": arguments.target, "masks": rows, "chosen_lambda": chosen}


class _Progress(TrainerCallback):
    """A line now and then: loss, temperature, how many masks are undecided."""

    def __init__(self, trainer: MaskTrainer, every: int) -> None:
        self._trainer, self._every, self._start = trainer, every, time.monotonic()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step % self._every:
            return
        sparsifier = self._trainer.sparsifier
        counts, seconds = sparsifier.mask_counts(), time.monotonic() - self._start
        log.info(
            "step %d of at most %d: cross-entropy %.4f, beta %.2f, kept %.3f %%, undecided %.2f %%, %.0f s",
            state.global_step,
            state.max_steps,
            self._trainer.losses[-1],
            sparsifier.temperature,
            100 * counts.above / sparsifier.total,
            100 * counts.undecided / sparsifier.total,
            seconds,
        )


def run(arguments: TrainArguments) -> None:
    """Trains, or says what would be trained, and prints the results as JSON; Ctrl-C exits with 130."""
    hf_logging.set_verbosity_error()  # hints of the Trainer, which are none for the user of this command
    try:
        if arguments.dry_run:
            check_output(arguments)
            outcome = plan(arguments)
        else:
            outcome = train(arguments)
    except KeyboardInterrupt:
        print(f"{COMMAND}: interrupted; add --resume to go on from the last checkpoint", file=sys.stderr)
        raise SystemExit(130) from None
    if _RANK == 0:
        print(json.dumps(outcome, indent=2))


def main(argv: Sequence[str] | None = None) -> None:
    """Runs on ``argv`` (default: the process's); a user's mistake is one line and exits with 2."""
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("bigram_subnet").setLevel("INFO" if _RANK == 0 else "WARNING")
    with user_errors(COMMAND):
        run(parse(sys.argv[1:] if argv is None else argv))
        _leave_together()


def _leave_together() -> None:
    """Waits for the other processes: one that is gone while another still talks to it may make that one abort."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
