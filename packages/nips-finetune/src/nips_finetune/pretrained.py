"""Base models, tokenizers and image processors by local folder or hub id; what cannot be loaded is told in one line."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
import transformers
from safetensors import SafetensorError
from torch import nn
from transformers import AutoConfig, AutoImageProcessor, AutoTokenizer, PretrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES
from transformers.utils import logging as hf_logging

log = logging.getLogger(__name__)

_LONGEST = 300  # of a library's message


@contextmanager
def _loading(what: str, source: str) -> Iterator[None]:
    """Turn what loading raises into one line that names the source."""
    try:
        yield
    except (OSError, ValueError, KeyError, RuntimeError, TypeError, ImportError, SafetensorError) as error:
        text = " ".join(str(error).split())[:_LONGEST] or type(error).__name__
        if Path(source).exists():
            raise ValueError(f"cannot load the {what} of {source}: {text}") from error
        raise OSError(f"no {what} {source!r}: it is no local folder, and not to be had as a hub id: {text}") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """No report of a load, as `load_model` says it in one line, and no bar in a log file."""
    level = hf_logging.get_verbosity()
    hf_logging.set_verbosity_error()
    bar = hf_logging.is_progress_bar_enabled()
    if not sys.stderr.isatty():
        hf_logging.disable_progress_bar()
    try:
        yield
    finally:
        hf_logging.set_verbosity(level)
        if bar:
            hf_logging.enable_progress_bar()


def load_config(source: str) -> PretrainedConfig:
    """The config of a model: a folder, a ``config.json`` or a hub id.

    Raises:
        ValueError: A local file or folder that holds none.
        OSError: Neither local nor on the hub, or the hub cannot be reached.
    """
    if Path(source).is_dir() and not (Path(source) / "config.json").is_file():
        raise ValueError(
            f"cannot load the model of {source}: it holds no config.json"
        )  # older versions guess a default
    with _loading("model", source):
        return AutoConfig.from_pretrained(source)


def load_tokenizer(source: str) -> Any:
    """The tokenizer of a model; one without a padding token pads with its end-of-text token.

    Raises:
        ValueError, OSError: As :func:`load_config`; also a tokenizer with neither token.
    """
    with _loading("tokenizer", source):
        tokenizer = AutoTokenizer.from_pretrained(source)
    if tokenizer.pad_token is None:
        if tokenizer.eos_token is None:
            raise ValueError(f"the tokenizer of {source} has neither a padding nor an end-of-text token")
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_image_processor(source: str) -> Any:
    """The image processor of a model; errors as :func:`load_config`."""
    with _loading("image processor", source):
        return AutoImageProcessor.from_pretrained(source)


def load_model(
    auto_class: str,
    source: str,
    config: PretrainedConfig,
    dtype: torch.dtype = torch.float32,
    new_head: Literal["told", "expected", "refused"] = "told",
) -> nn.Module:
    """A pre-trained model from safetensors; a head that the checkpoint lacks, or has for other labels, is new.

    Args:
        auto_class: ``AutoModelForCausalLM`` and the like.
        source: A folder or a hub id.
        config: Its config, with the labels of the task.
        dtype: Of the weights.
        new_head: Whether a head with new weights is told in a warning, is expected as an adapter brings the trained
            one, or is refused, as it would not be trained.

    Raises:
        ValueError: A damaged or foreign checkpoint, or a new head that is refused.
        OSError: As :func:`load_config`.
    """
    with _loading("weights", source), _quiet():
        model, info = getattr(transformers, auto_class).from_pretrained(
            source,
            config=config,
            dtype=dtype,
            use_safetensors=True,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    # entries of mismatched_keys are names with their two shapes
    other_shape = {key if isinstance(key, str) else key[0] for key in info["mismatched_keys"]}
    new = sorted({*info["missing_keys"], *other_shape})
    body = [key for key in new if key.startswith(f"{model.base_model_prefix}.")]
    size = sum(name.startswith(f"{model.base_model_prefix}.") for name, _ in model.named_parameters())
    if wrong := [key for key in body if key in other_shape]:
        raise ValueError(f"the weights of {source} do not have the shapes of its config: {', '.join(wrong[:3])}")
    if size and len(body) >= size:
        raise ValueError(
            f"the weights of {source} are those of another kind of model: none fits a {type(model).__name__}"
        )
    if new and new_head == "refused":
        raise ValueError(
            f"{source} has no weights for {', '.join(new)}, which would stay random: give a model with them, or train "
            "them too by --modules_to_save"
        )
    untold = [key for key in new if new_head == "told" or key in body]
    if untold:
        log.warning("new, random weights, as %s has none that fit: %s", source, ", ".join(untold))
    loaded: nn.Module = model
    return loaded


def model_on_meta(auto_class: str, config: PretrainedConfig, dtype: torch.dtype = torch.float32) -> nn.Module:
    """The model of a config without memory for its weights, to count with.

    Raises:
        ValueError: transformers has no such model for this config.
    """
    with torch.device("meta"):
        try:
            model: nn.Module = getattr(transformers, auto_class).from_config(config, dtype=dtype)
        except ValueError as error:
            raise ValueError(f"a {config.model_type} model has no form as {auto_class}") from error
    return model


def check_generates(config: PretrainedConfig, source: str) -> None:
    """ValueError for an encoder: each of its positions sees the whole text, so it cannot learn to continue one."""
    encoder = config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES and not config.is_encoder_decoder
    if encoder and not getattr(config, "is_decoder", False):
        raise ValueError(
            f"{source} is an encoder ({config.model_type}), which cannot be trained to continue texts; "
            "to classify with it, give --task sequence_classification"
        )


def longest_text(config: PretrainedConfig, tokenizer: Any) -> int | None:
    """The longest text in tokens that a model takes, as far as its config and tokenizer say."""
    positions = getattr(config, "max_position_embeddings", None)
    if positions is not None and config.model_type in _COUNT_AFTER_PADDING:
        positions -= (config.pad_token_id or 0) + 1
    limits = [limit for limit in (positions, tokenizer.model_max_length) if limit is not None and limit < 10**9]
    return min(limits, default=None)


# RoBERTa and its descendants number positions from the padding index on.
_COUNT_AFTER_PADDING = {
    "roberta",
    "xlm-roberta",
    "xlm-roberta-xl",
    "camembert",
    "roberta-prelayernorm",
    "data2vec-text",
}
