"""The flags of the training script, and what they turn into."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path

from bigram_subnet.config import SparsifyConfig

_PAPER = SparsifyConfig()
DTYPES = ("auto", "float32", "bfloat16")  # in float16 the gradients of the scores overflow

RESULTS_FILE = "results.json"


def lambda_folder(l0_lambda: float) -> str:
    """The name of the folder of one lambda's mask."""
    return f"lambda{l0_lambda:g}"


@dataclass
class TrainArguments:
    """Flags of `bigram-subnet train`; `--config FILE.yaml` holds the same names."""

    model: str = field(metadata={"help": "Model: hub id, local folder or .gguf file."})
    output: str = field(metadata={"help": "Folder for masks, logs and checkpoints."})
    revision: str | None = field(
        default=None, metadata={"help": "Revision of a hub model (not of a folder), such as step4000 of Pythia."}
    )
    tokens: list[str] = field(
        default_factory=list,
        metadata={"help": "Token files: ids on a line, all lines of one length, or .npy arrays (sequences, length)."},
    )
    text: list[str] = field(
        default_factory=list,
        metadata={"help": "Raw text files instead; need the model's tokenizer, or --tokenizer."},
    )
    tokenizer: str | None = field(default=None, metadata={"help": "Tokenizer for raw text; default: the model's."})
    sequence_length: int = field(default=128, metadata={"help": "Tokens in a sequence of raw text."})
    limit: int | None = field(default=None, metadata={"help": "Only so many training sequences."})
    target: str = field(
        default="ngram", metadata={"help": "ngram (bigram subnetworks; needs --counts) or self (optimal subnetworks)."}
    )
    counts: str | None = field(default=None, metadata={"help": "File of counts, from `bigram-subnet count`."})
    eval_tokens: list[str] = field(
        default_factory=list,
        metadata={"help": "Held-out token files, as --tokens; masks are evaluated on them, with --counts."},
    )
    eval_text: list[str] = field(default_factory=list, metadata={"help": "Held-out raw text instead."})
    eval_limit: int | None = field(default=None, metadata={"help": "Only so many held-out sequences."})
    tolerance: float = field(
        default=0.04, metadata={"help": "The sparsest mask whose r is within this of the smallest lambda's is chosen."}
    )
    l0_lambda: list[float] = field(
        default_factory=lambda: [_PAPER.l0_lambda], metadata={"help": "Weights of the mean soft mask; one mask each."}
    )
    learning_rate: float = field(default=_PAPER.learning_rate, metadata={"help": "Of AdamW on the mask scores."})
    temperature_factor: float = field(
        default=_PAPER.temperature_factor, metadata={"help": "Growth of beta per optimiser step."}
    )
    batch_size: int = field(
        default=_PAPER.batch_size, metadata={"help": "Sequences in a micro-batch, of all processes together."}
    )
    max_steps: int = field(default=_PAPER.max_steps, metadata={"help": "Most micro-batches."})
    stop_fraction: float = field(
        default=_PAPER.stop_fraction, metadata={"help": "Stop when fewer than this share are undecided; 0 never."}
    )
    weight_decay: float = field(default=_PAPER.weight_decay, metadata={"help": "Of AdamW."})
    attempts: int = field(default=_PAPER.attempts, metadata={"help": "Most runs while the loss curve is unstable."})
    grad_accumulation: int = field(
        default=_PAPER.grad_accumulation, metadata={"help": "Micro-batches per optimiser step."}
    )
    seed: int = field(default=_PAPER.seed, metadata={"help": "Order of the data."})
    device: str = field(
        default="auto", metadata={"help": "auto, cpu, cuda, cuda:N or mps; under torchrun the local rank's."}
    )
    dtype: str = field(
        default="auto",
        metadata={"help": f"Of the frozen weights: {', '.join(DTYPES)} (bfloat16 on CUDA). Scores are float32."},
    )
    save_steps: int = field(default=500, metadata={"help": "Optimiser steps between checkpoints."})
    logging_steps: int = field(default=50, metadata={"help": "Optimiser steps between log lines."})
    resume: bool = field(default=False, metadata={"help": "Go on where an interrupted run of the same output stopped."})
    dry_run: bool = field(
        default=False,
        metadata={"help": "Check everything but the weights; say parameters, steps and memory; write nothing."},
    )

    def __post_init__(self) -> None:
        if self.target not in ("ngram", "self"):
            raise ValueError(f"--target must be ngram or self, got {self.target!r}")
        if self.target == "ngram" and self.counts is None:
            raise ValueError("--target ngram needs --counts, a file that `bigram-subnet count` writes")
        if bool(self.tokens) == bool(self.text):
            raise ValueError("give either token files (--tokens) or raw text (--text)")
        if self.eval_tokens and self.eval_text:
            raise ValueError("give either --eval_tokens or --eval_text")
        if self.evaluates and self.counts is None:
            raise ValueError("evaluation (--eval_tokens, --eval_text) needs --counts")
        # compared by their folders' names, where 10 and 10.0000001 are the same
        if not self.l0_lambda or len({self.folder(value) for value in self.l0_lambda}) < len(self.l0_lambda):
            raise ValueError(f"--l0_lambda must hold different numbers, got {self.l0_lambda}")
        if self.dtype not in DTYPES:
            raise ValueError(f"--dtype must be one of {', '.join(DTYPES)}, got {self.dtype!r}")
        self._check_numbers()

    def _check_numbers(self) -> None:
        for name in ("save_steps", "logging_steps", "sequence_length", "limit", "eval_limit"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"--{name} must be at least 1, got {getattr(self, name)}")
        if self.limit is not None and self.limit < self.batch_size:
            raise ValueError(f"--limit {self.limit} is less than one micro-batch, --batch_size {self.batch_size}")
        if not self.tolerance >= 0:
            raise ValueError(f"--tolerance must be at least 0, got {self.tolerance}")
        for value in self.l0_lambda:
            self.config(value)

    @property
    def evaluates(self) -> bool:
        """Whether there is held-out text."""
        return bool(self.eval_tokens or self.eval_text)

    def config(self, l0_lambda: float) -> SparsifyConfig:
        """The hyperparameters for one lambda.

        Raises:
            ValueError: a value outside its range.
        """
        names = [each.name for each in dataclasses.fields(SparsifyConfig) if each.name != "l0_lambda"]
        return SparsifyConfig(l0_lambda=l0_lambda, **{name: getattr(self, name) for name in names})

    def folder(self, l0_lambda: float) -> Path:
        """Where the mask of one lambda lies."""
        return Path(self.output) / lambda_folder(l0_lambda)
