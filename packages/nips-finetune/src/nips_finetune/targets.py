"""The modules that an adapter names: each name must be that of a module, not only one of them."""

from __future__ import annotations

from collections.abc import Iterable

from peft import PeftConfig, PeftModel, get_peft_model
from torch import nn


def adapted_model(model: nn.Module, config: PeftConfig, source: str) -> PeftModel:
    """The model with a new adapter.

    Args:
        model: The base model.
        config: The adapter.
        source: Where the model comes from, for messages.

    Raises:
        ValueError: A name in ``target_modules``, ``exclude_modules`` or ``modules_to_save`` that no module ends in; no
            layer that the method can adapt, or none known for this kind of model. The message has the endings.
    """
    check_names(model, config, source)
    targets = getattr(config, "target_modules", None)
    try:
        adapted: PeftModel = get_peft_model(model, config)
    except (ValueError, TypeError) as error:
        linear = _endings(name for name, module in model.named_modules() if isinstance(module, nn.Linear))
        raise ValueError(
            f"cannot adapt {source} with target_modules {targets}: {error}; its linear layers end in {linear}"
        ) from error
    saved = getattr(config, "modules_to_save", None)
    if saved is not None:  # peft adds the usual names of heads to those of this one
        config.modules_to_save = list(dict.fromkeys(saved))
    return adapted


def check_names(model: nn.Module, config: PeftConfig, source: str) -> None:
    """ValueError for a name that no module of the model ends in; a pattern or ``all-linear`` is peft's to check."""
    modules = dict(model.named_modules())
    linear = [name for name, module in modules.items() if isinstance(module, nn.Linear)]
    for field in ("target_modules", "exclude_modules", "modules_to_save"):
        wanted = getattr(config, field, None)
        if wanted is None or isinstance(wanted, str):
            continue
        for name in wanted:
            if not any(f".{module}".endswith(f".{name}") for module in modules):
                layers = field == "target_modules"
                raise ValueError(
                    f"cannot adapt {source} with {field} {sorted(wanted)}: no module ends in {name!r}; its "
                    f"{'linear layers' if layers else 'modules'} end in {_endings(linear if layers else modules)}"
                )


def _endings(names: Iterable[str]) -> str:
    found = dict.fromkeys(name.rpartition(".")[2] for name in names)
    return ", ".join(ending for ending in found if ending and not ending.isdecimal())
