"""What the commands read: token sequences, checked against counts and model, and masks."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bigram_subnet.mask import SubnetworkMask
from bigram_subnet.mask_files import MASK_FILE
from bigram_subnet.ngrams import BigramCounts
from bigram_subnet.ngrams.token_files import read_token_files, token_rows, tokenized_text
from bigram_subnet.ngrams.vocabulary import vocabulary_digest
from bigram_subnet.pretrained import load_tokenizer
from bigram_subnet.training.arguments import RESULTS_FILE, lambda_folder
from nips_common.artifacts import read_json

if TYPE_CHECKING:
    from transformers import PreTrainedModel

log = logging.getLogger(__name__)


def read_sequences(
    tokens: Sequence[Path] | None,
    text: Sequence[Path] | None,
    tokenizer: Any = None,
    sequence_length: int = 128,
    limit: int | None = None,
) -> Tensor:
    """Token ids, (sequences, length), from token files or from raw text.

    Args:
        tokens: token files.
        text: UTF-8 text files; exactly one of the two must be given.
        tokenizer: of transformers, for text.
        sequence_length: tokens in a sequence, for text.
        limit: only so many sequences.

    Raises:
        ValueError: neither or both kinds of file, text without a tokenizer, or files without a whole sequence.
        FileNotFoundError: there is no such file.
    """
    if bool(tokens) == bool(text):
        raise ValueError("give either token files (--tokens) or raw text (--text with --tokenizer)")
    if tokens:
        return torch.from_numpy(token_rows(read_token_files(tokens), limit)).long()
    if tokenizer is None:
        raise ValueError("raw text needs a tokenizer (--tokenizer)")
    return torch.from_numpy(token_rows(tokenized_text(list(text or ()), tokenizer, sequence_length), limit)).long()


def check_same_vocabulary(counts: BigramCounts, tokenizer: Any, model: PreTrainedModel, where: str) -> None:
    """Refuses counts that were made with another tokenizer than the one in use.

    Args:
        counts: the counts.
        tokenizer: of transformers, or None if ids come from token files.
        model: whose predictions are compared with the counts.
        where: the counts' file, for the message.

    Raises:
        ValueError: another number of tokens, other tokens, or more tokens than the model knows.
    """
    if tokenizer is not None and len(tokenizer) != counts.vocab_size:
        raise ValueError(f"{where}: counts of {counts.vocab_size} tokens, but the tokenizer has {len(tokenizer)}")
    if tokenizer is not None and counts.vocabulary not in (None, vocabulary_digest(tokenizer)):
        raise ValueError(
            f"{where}: counts of a tokenizer with as many tokens ({counts.vocab_size}), but with other tokens or ids"
        )
    known = model.get_input_embeddings().num_embeddings
    if counts.vocab_size > known:
        raise ValueError(f"{where}: counts of {counts.vocab_size} tokens, but the model knows {known}")


def load_mask(name: str, model: PreTrainedModel | None = None) -> SubnetworkMask:
    """A mask; of the output folder of a training run the chosen one, or its only one.

    Args:
        name: mask file, folder with one, output folder of `bigram-subnet train`, or hub id.
        model: the model it is for, if at hand; see `SubnetworkMask.load`.

    Raises:
        ValueError, OSError: as `SubnetworkMask.load`.
        FileNotFoundError: a folder whose subfolders hold several masks, none of which was chosen.
    """
    folder = Path(name)
    inside = sorted(str(each.parent) for each in folder.glob(f"*/{MASK_FILE}"))
    if not inside or (folder / MASK_FILE).is_file():
        return SubnetworkMask.load(name, model)
    chosen = None
    if (folder / RESULTS_FILE).is_file():
        chosen = read_json(folder / RESULTS_FILE).get("chosen_lambda")
    wanted = inside[0]
    if len(inside) > 1:
        wanted = str(folder / lambda_folder(chosen)) if isinstance(chosen, int | float) else ""
    if wanted not in inside:
        raise FileNotFoundError(f"{name}: the folder holds several masks; name one of {', '.join(inside)}")
    log.info("%s: the mask in %s", name, wanted)
    return SubnetworkMask.load(wanted, model)


def tokenizer_for(text: Sequence[Path] | None, name: str | None, model: str | None = None) -> Any:
    """The tokenizer of raw text: the one that is named, else the model's; None without text."""
    if name is None and (not text or model is None):
        return None
    return load_tokenizer(name or str(model))
