"""The Trainer of the training script: nips-finetune's, with the squashing loss and a learning rate of the ridge."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from nips_finetune import FinetuneTrainer
from ridgelora.layer import named_ridge_layers
from ridgelora.param_groups import ridge_parameters
from ridgelora.trainer import RidgeSquashingMixin


class RidgeFinetuneTrainer(RidgeSquashingMixin, FinetuneTrainer):
    """Takes ``beta_rs``, ``rs_every``, ``rs_modules`` and ``ridge_learning_rate`` from its ``args``.

    Args:
        model: The model with its adapter.
        args: A :class:`ridgelora.arguments.RidgeTrainingArguments`.
        kwargs: The Trainer's.

    Raises:
        ValueError: ``beta_rs`` for an adapter without a matrix M, which a parallel one is.
    """

    def __init__(self, model: nn.Module, args: Any, **kwargs: Any) -> None:
        if args.beta_rs:
            for name, layer in named_ridge_layers(model).items():
                if "parallel" in layer.connection.values():
                    raise ValueError(
                        f"--beta_rs {args.beta_rs} is for --connection series; the adapter of {name} is parallel, so "
                        "the ridge-squashing loss has no transform to measure"
                    )
        squash = {"beta_rs": args.beta_rs, "rs_every": args.rs_every, "rs_max_modules": args.rs_modules}
        super().__init__(model=model, args=args, **squash, **kwargs)

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """The Trainer's, with sigma and lambda in a group of their own if they have a learning rate of their own."""
        optimizer = super().create_optimizer(*(() if model is None else (model,)))
        rate = self.args.ridge_learning_rate
        if rate is not None:
            ridge = ridge_parameters(self.model if model is None else model)
            for group in list(optimizer.param_groups):
                own = [parameter for parameter in group["params"] if id(parameter) in ridge]
                if own:
                    group["params"] = [parameter for parameter in group["params"] if id(parameter) not in ridge]
                    optimizer.add_param_group({**group, "params": own, "lr": rate})
        return optimizer
