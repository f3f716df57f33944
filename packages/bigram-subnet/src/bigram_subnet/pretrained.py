"""Models and tokenizers by hub id, folder or GGUF file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from nips_common.runtime import require


def where(name: str) -> dict[str, Any]:
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
        OSError: transformers finds no model of that name.
        FileNotFoundError: there is no such file or folder.
        ImportError: `gguf` is missing for a GGUF file.
    """
    model: Any = AutoModelForCausalLM.from_pretrained(**where(name), dtype=dtype, revision=revision or "main")
    placed: PreTrainedModel = model.to(device)
    return placed.eval()


def load_tokenizer(name: str) -> Any:
    """A tokenizer.

    Args:
        name: hub id, local folder or `.gguf` file.

    Raises:
        OSError: transformers finds no tokenizer of that name.
        FileNotFoundError: there is no such file or folder.
    """
    return AutoTokenizer.from_pretrained(**where(name))
