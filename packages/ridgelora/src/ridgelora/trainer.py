"""transformers' Trainer with the ridge-squashing loss and without weight decay on the ridge (paper eq. 5)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import Trainer

from ridgelora.initialisation import check_number, check_rank
from ridgelora.param_groups import ridge_parameters
from ridgelora.squashing import ridge_squashing_loss


class RidgeSquashingMixin:
    """Goes in front of a Trainer: ``class RidgeSFTTrainer(RidgeSquashingMixin, SFTTrainer)``.

    While training, ``compute_loss`` is the trainer's own plus ``beta_rs`` times :func:`ridge_squashing_loss`;
    evaluation reports the trainer's own. The loss is logged as ``ridge_squashing_loss``. Where the trainer decays
    weights, it leaves sigma and lambda out.

    Args:
        args: The trainer's.
        beta_rs: The weight, 0: none. The paper's best is -0.5; see :mod:`ridgelora.squashing` on negative ones.
        rs_every: Add the loss in every n-th optimiser step only, from the first on, with the same weight.
        rs_max_modules: Draw so many of the adapted matrices a step in place of taking all.
        kwargs: The trainer's.

    Raises:
        ValueError: A number out of its range.
    """

    def __init__(
        self, *args: Any, beta_rs: float = 0.0, rs_every: int = 1, rs_max_modules: int | None = None, **kwargs: Any
    ) -> None:
        check_number("beta_rs", beta_rs, float("-inf"))
        check_rank("rs_every", rs_every)
        if rs_max_modules is not None:
            check_rank("rs_max_modules", rs_max_modules)
        self.beta_rs, self.rs_every, self.rs_max_modules = beta_rs, rs_every, rs_max_modules
        self._rs_losses: list[Tensor] = []
        self._predicting = False
        super().__init__(*args, **kwargs)

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, **kwargs: Any
    ) -> Any:
        """Return the trainer's loss plus beta_rs times the ridge-squashing loss (paper eq. 5); see the class."""
        result = super().compute_loss(model, inputs, return_outputs=return_outputs, **kwargs)  # type: ignore[misc]
        if self._predicting or not self.beta_rs or self.state.global_step % self.rs_every:  # type: ignore[attr-defined]
            return result
        loss, *outputs = result if return_outputs else (result,)
        squashing = ridge_squashing_loss(model, max_modules=self.rs_max_modules)
        self._rs_losses.append(squashing.detach())
        loss = loss + (self.beta_rs * self._share_of_step(kwargs) * squashing).to(loss.device, loss.dtype)
        return (loss, *outputs) if return_outputs else loss

    def _share_of_step(self, kwargs: dict[str, Any]) -> float:
        """What to weigh a batch's term by, so that a step's batches add up to one term.

        The trainer divides a loss by their number, but not one that was averaged over the tokens of all batches.
        """
        scaled = getattr(self, "loss_is_scaled_for_ga", None)
        if scaled is None:
            by_tokens = self.model_accepts_loss_kwargs and kwargs.get("num_items_in_batch") is not None  # type: ignore[attr-defined]
            scaled = by_tokens or self.compute_loss_func is not None  # type: ignore[attr-defined]
        return 1 / getattr(self, "current_gradient_accumulation_steps", 1) if scaled else 1.0

    def prediction_step(self, *args: Any, **kwargs: Any) -> Any:
        """As the trainer's, without the ridge-squashing loss."""
        self._predicting = True
        try:
            return super().prediction_step(*args, **kwargs)  # type: ignore[misc]
        finally:
            self._predicting = False

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """As the trainer's, with the mean ridge-squashing loss since the last time."""
        if self._rs_losses and "loss" in logs:
            logs["ridge_squashing_loss"] = float(torch.stack(self._rs_losses).mean())
            self._rs_losses.clear()
        super().log(logs, *args, **kwargs)  # type: ignore[misc]

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """The trainer's, without sigma and lambda, which decay would pull to 0 and with them what the layer passes."""
        ridge = ridge_parameters(model)
        kept = {name for name, parameter in model.named_parameters() if id(parameter) not in ridge}
        return [name for name in super().get_decay_parameter_names(model) if name in kept]  # type: ignore[misc]


class RidgeSquashingTrainer(RidgeSquashingMixin, Trainer):
    """transformers' Trainer with the ridge-squashing loss; see :class:`RidgeSquashingMixin`."""
