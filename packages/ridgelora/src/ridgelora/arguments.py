"""RidgeLoRA's settings as flags, and the method as the training script of nips-finetune takes it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from nips_finetune import AdapterArguments, AdapterMethod, FinetuneArguments, Task
from ridgelora.config import Connection, RidgeLoraConfig
from ridgelora.finetune_trainer import RidgeFinetuneTrainer
from ridgelora.initialisation import Init, check_number, check_rank

_PATTERNS = ("rank_pattern", "alpha_pattern")


@dataclass
class RidgeLoraArguments(AdapterArguments):
    """The adapter; :class:`ridgelora.RidgeLoraConfig` explains the settings."""

    r: int = field(default=8, metadata={"help": "rank"})
    ridgelora_alpha: float = field(default=16.0, metadata={"help": "B A is scaled by ridgelora_alpha / r"})
    ridgelora_dropout: float = field(default=0.0, metadata={"help": "dropout in front of A"})
    init_weights: Init = field(
        default="exact",
        metadata={"help": "how A starts; gaussian is the published start, which changes the model at once"},
    )
    noise_mean: float = field(default=2.0, metadata={"help": "mean of the noise in the ridge's start"})
    noise_std: float = field(default=1.0, metadata={"help": "standard deviation of that noise"})
    use_rslora: bool = field(default=False, metadata={"help": "scale by ridgelora_alpha / sqrt(r)"})
    connection: Connection = field(default="series", metadata={"help": "the ridge in front of the weight or beside it"})
    bias: Literal["none", "all", "ridgelora_only"] = field(
        default="none", metadata={"help": "which biases train too; needs peft 0.21"}
    )
    fan_in_fan_out: bool = field(
        default=False, metadata={"help": "layers store (in, out) weights; GPT-2's are recognised without it"}
    )
    rank_pattern: str | None = field(
        default=None, metadata={"help": 'another r by the name of the layer, as JSON: {"down_proj": 16}'}
    )
    alpha_pattern: str | None = field(
        default=None, metadata={"help": "another ridgelora_alpha by the name of the layer, as JSON"}
    )
    layers_pattern: list[str] | None = field(
        default=None, metadata={"help": "names of the list that layers_to_transform counts in"}
    )

    def make_config(self, task: Task, head: Sequence[str] = ()) -> RidgeLoraConfig:
        """The config for a task whose head has these modules; ValueError for a setting out of range."""
        patterns = {name: _read_pattern(name, getattr(self, name)) for name in _PATTERNS}
        return RidgeLoraConfig(**(self.settings(task, head) | patterns))

    def card_note(self) -> str:
        """How the adapter merges, and what its start does to the model."""
        note = "The update is linear in its input and merges exactly into the base weights: `ridgelora merge`."
        if self.connection == "series" and self.init_weights not in ("exact", "diagonal", "gaussian_calibrated"):
            note += f'\nWith `init_weights="{self.init_weights}"` the model was not the base model at the first step.'
        return note


def _read_pattern(name: str, text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        pattern = json.loads(text)
    except ValueError:
        pattern = None
    if not isinstance(pattern, dict):
        raise ValueError(f'--{name} must be JSON with numbers by names of layers, as {{"down_proj": 16}}; got {text!r}')
    return pattern


@dataclass
class RidgeTrainingArguments(FinetuneArguments):
    """Those of every method, with the ridge-squashing loss and a learning rate of the ridge."""

    beta_rs: float = field(
        default=0.0,
        metadata={"help": "weight of the ridge-squashing loss; -0.5 is the paper's, which rewards large updates"},
    )
    rs_every: int = field(default=1, metadata={"help": "add that loss in every n-th step only"})
    rs_modules: int | None = field(
        default=None, metadata={"help": "draw so many adapted layers a step for that loss (default: all)"}
    )
    ridge_learning_rate: float | None = field(
        default=None, metadata={"help": "learning rate of sigma and lambda (default: learning_rate)"}
    )

    def __post_init__(self) -> None:
        check_number("--beta_rs", self.beta_rs, float("-inf"))
        check_rank("--rs_every", self.rs_every)
        if self.rs_modules is not None:
            check_rank("--rs_modules", self.rs_modules)
        if self.ridge_learning_rate is not None:
            check_number("--ridge_learning_rate", self.ridge_learning_rate, 0, open_end=True)
        super().__post_init__()


METHOD = AdapterMethod(
    name="ridgelora",
    title="RidgeLoRA",
    import_name="ridgelora",
    citation="matrix ridge enhanced low-rank adaptation, OpenReview 0RF80tUWuv",
    config_type=RidgeLoraConfig,
    adapter_arguments=RidgeLoraArguments,
    training_arguments=RidgeTrainingArguments,
    trainer=RidgeFinetuneTrainer,
)
