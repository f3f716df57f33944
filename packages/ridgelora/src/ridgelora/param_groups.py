"""Parameter groups that keep weight decay away from the ridge, which it would pull to 0 instead of to the identity."""

from __future__ import annotations

from typing import Any

from torch import nn

from ridgelora.initialisation import check_number
from ridgelora.layer import named_ridge_layers


def ridge_param_groups(
    model: nn.Module, lr: float, weight_decay: float, ridge_lr: float | None = None
) -> list[dict[str, Any]]:
    """Return groups for ``torch.optim`` with every trainable parameter of the model exactly once.

    Args:
        model: A model with RidgeLoRA adapters.
        lr: The learning rate.
        weight_decay: For all but sigma and lambda, which get none: at 0 they would pass nothing on.
        ridge_lr: The learning rate of sigma and lambda; None: ``lr``.

    Returns:
        One group for sigma and lambda, one for all else; a group without parameters is left out.

    Raises:
        ValueError: A number out of its range, or no trainable parameter.
    """
    check_number("lr", lr, 0)
    check_number("weight_decay", weight_decay, 0)
    if ridge_lr is not None:
        check_number("ridge_lr", ridge_lr, 0)
    ridge = ridge_parameters(model)
    groups: tuple[list[nn.Parameter], list[nn.Parameter]] = ([], [])
    for parameter in model.parameters():
        if parameter.requires_grad:
            groups[id(parameter) not in ridge].append(parameter)
    if not any(groups):
        raise ValueError(f"the model, a {type(model).__name__}, has no trainable parameter")
    found = [
        {"params": groups[0], "lr": lr if ridge_lr is None else ridge_lr, "weight_decay": 0.0},
        {"params": groups[1], "lr": lr, "weight_decay": weight_decay},
    ]
    return [group for group in found if group["params"]]


def ridge_parameters(model: nn.Module) -> set[int]:
    """The ids of the parameters sigma and lambda of all adapters."""
    return {
        id(parameter)
        for layer in named_ridge_layers(model).values()
        for container in (layer.ridgelora_sigma, layer.ridgelora_lambda)
        for parameter in container.values()
    }
