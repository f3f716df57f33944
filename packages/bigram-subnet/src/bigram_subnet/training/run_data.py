"""What a training run reads before its first step, and whether it fits the model."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from bigram_subnet.ablation import check_ids
from bigram_subnet.evaluation import check_held_out
from bigram_subnet.inputs import check_same_vocabulary, read_sequences, tokenizer_for
from bigram_subnet.ngrams import BigramCounts
from bigram_subnet.targets import NgramTarget
from bigram_subnet.training.arguments import TrainArguments
from bigram_subnet.training.rows import rows_digest
from bigram_subnet.training.subnetwork import check_target

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class RunData:
    """The data of a run.

    Args:
        data: (sequences, length) token ids to train on.
        held_out: (sequences, length) token ids to evaluate on, if there are any.
        counts: of the corpus, if they are needed.
        tokenizer: of raw text, if there is any.
    """

    data: Tensor
    held_out: Tensor | None
    counts: BigramCounts | None
    tokenizer: Any

    def contents(self) -> dict[str, str]:
        """What tells the data from another run's, whatever its files are called."""
        found = {"training data": rows_digest(self.data)}
        if self.held_out is not None:
            found["held-out data"] = rows_digest(self.held_out)
        if self.counts is not None:
            surprisal = self.counts.token_surprisal(self.data[:64])
            digest = hashlib.sha256(surprisal.numpy().tobytes()).hexdigest()
            found["counts"] = f"{self.counts.tokens} tokens, SHA-256 {digest} of surprisals"
        return found

    def needed_counts(self) -> BigramCounts:
        """The counts.

        Raises:
            ValueError: there are none.
        """
        if self.counts is None:
            raise ValueError("--counts is needed, a file that `bigram-subnet count` writes")
        return self.counts

    def check(self, arguments: TrainArguments, model: PreTrainedModel) -> None:
        """ValueError unless the model, which may be on the meta device, can be trained and evaluated on the data."""
        if self.counts is not None:
            check_same_vocabulary(self.counts, self.tokenizer, model, str(arguments.counts))
        check_ids(model, self.data)
        if arguments.target == "ngram":
            check_target(model, NgramTarget(self.needed_counts()), self.data)
        if self.held_out is not None:
            check_held_out(model, self.needed_counts(), self.held_out)


def read_run_data(arguments: TrainArguments) -> RunData:
    """Reads counts and sequences.

    Raises:
        ValueError: damaged files, or fewer sequences than a micro-batch has.
        OSError: a file or tokenizer that cannot be found.
    """
    counts = BigramCounts.load(arguments.counts) if arguments.counts else None
    tokenizer = tokenizer_for(_paths(arguments.text or arguments.eval_text), arguments.tokenizer, arguments.model)
    length = arguments.sequence_length
    tokens, text = _paths(arguments.tokens), _paths(arguments.text)
    data = read_sequences(tokens, text, tokenizer, length, arguments.limit)
    if len(data) < arguments.batch_size:
        raise ValueError(
            f"--batch_size {arguments.batch_size} needs as many training sequences at least, got {len(data)} from "
            f"{', '.join(arguments.tokens or arguments.text)}"
        )
    held_out = None
    if arguments.evaluates:
        tokens, text = _paths(arguments.eval_tokens), _paths(arguments.eval_text)
        held_out = read_sequences(tokens, text, tokenizer, length, arguments.eval_limit)
    return RunData(data, held_out, counts, tokenizer)


def _paths(names: Sequence[str]) -> list[Path]:
    return [Path(name) for name in names]
