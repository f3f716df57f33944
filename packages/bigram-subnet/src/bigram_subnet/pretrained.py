"""Models and tokenizers by hub id, folder or GGUF file; what cannot be loaded is told in one line that names it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING
from transformers.utils import logging as hf_logging

from nips_common.runtime import require

_LONGEST = 300  # of a library's message
_SECOND_TOKENS = 8  # that are tried when a model is asked whether it looks ahead


def load_config(name: str, revision: str | None = None) -> Any:
    """The config of a causal language model, without its weights.

    Args:
        name: hub id, local folder or `.gguf` file.
        revision: branch, tag or commit of a hub id.

    Raises:
        OSError: there is no model of that name.
        ValueError: another kind of model, a damaged file, or a revision of something local.
        FileNotFoundError: there is no such file, or nothing in the folder.
        ImportError: `gguf` is missing for a GGUF file.
    """
    if revision is not None and Path(name).exists():
        raise ValueError(f"--revision {revision} is for hub ids, but {name} is a local {_kind(name)}")
    source = _where(name)
    with _loading("model", name, revision):
        config = AutoConfig.from_pretrained(**source, revision=revision or "main")
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise ValueError(f"{name}: {config.model_type} is no causal language model")
    return config


def load_model(
    name: str, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu", revision: str | None = None
) -> PreTrainedModel:
    """A causal language model in eval mode.

    Args:
        name: hub id, local folder or `.gguf` file (de-quantised).
        dtype: of the weights.
        device: where it is put.
        revision: branch, tag or commit of a hub id.

    Raises:
        OSError, ValueError, FileNotFoundError, ImportError: as :func:`load_config`.
        ValueError: also weights that are missing or have other shapes, and a model whose predictions depend on later
            tokens.
    """
    load_config(name, revision)
    with _loading("model", name, revision):
        model: Any
        model, info = AutoModelForCausalLM.from_pretrained(
            **_where(name), dtype=dtype, revision=revision or "main", output_loading_info=True
        )
    if missing := sorted(info["missing_keys"]):
        raise ValueError(
            f"{name}: weights are missing and would be random: {len(missing)}, among them {', '.join(missing[:3])}"
        )
    placed: PreTrainedModel = model.to(device).eval()
    if _looks_ahead(placed):
        raise ValueError(
            f"{name}: {placed.config.model_type} is no causal language model: what it predicts at a position depends "
            "on later tokens"
        )
    return placed


def load_tokenizer(name: str) -> Any:
    """A tokenizer.

    Args:
        name: hub id, local folder or `.gguf` file.

    Raises:
        OSError: there is no tokenizer of that name.
        ValueError: a damaged file.
        FileNotFoundError: there is no such file, or nothing in the folder.
    """
    source = _where(name)
    with _loading("tokenizer", name):
        return AutoTokenizer.from_pretrained(**source)


def _where(name: str) -> dict[str, Any]:
    """What transformers' loaders want for a hub id, a folder or a `.gguf` file."""
    path = Path(name)
    if path.suffix == ".gguf":
        if not path.is_file():
            raise FileNotFoundError(f"{name}: no such GGUF file")
        require("gguf", "bigram-subnet[gguf]")
        return {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    if path.is_dir() and not (path / "config.json").is_file() and not list(path.glob("tokenizer*")):
        raise FileNotFoundError(f"{name}: the folder holds neither a config.json nor a tokenizer")
    return {"pretrained_model_name_or_path": name}


def _kind(name: str) -> str:
    return "folder" if Path(name).is_dir() else "file"


@contextmanager
def _loading(what: str, name: str, revision: str | None = None) -> Iterator[None]:
    """Loads without the library's hints, and without bars in a log file; what it raises becomes one line."""
    level, bars = hf_logging.get_verbosity(), hf_logging.is_progress_bar_enabled()
    hf_logging.set_verbosity_error()
    if not sys.stderr.isatty():
        hf_logging.disable_progress_bar()
    try:
        yield
    except (OSError, ValueError, KeyError, RuntimeError, TypeError, SafetensorError) as error:
        text = " ".join(str(error).split())[:_LONGEST] or type(error).__name__
        if Path(name).exists():
            raise ValueError(f"{name}: the {what} in this {_kind(name)} cannot be loaded: {text}") from error
        of = f", revision {revision}," if revision is not None else ""
        raise OSError(f"{name}: no such folder, and no {what} of that id{of} on the hub or in its cache") from error
    finally:
        hf_logging.set_verbosity(level)
        if bars:
            hf_logging.enable_progress_bar()


@torch.no_grad()
def _looks_ahead(model: PreTrainedModel) -> bool:
    """Whether the logits at the first position change with the second token, as an encoder's do."""
    vocabulary = model.get_input_embeddings().num_embeddings
    second = torch.linspace(0, vocabulary - 1, _SECOND_TOKENS).long()
    ids = torch.stack([torch.zeros_like(second), second], 1).to(model.device)
    first = model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits[:, 0].float()
    rounding = max(1e-4, 4 * torch.finfo(model.dtype).eps) * first.abs().amax()
    return bool(((first - first[:1]).abs() > rounding).any())
