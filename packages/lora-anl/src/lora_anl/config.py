"""The settings of an AuroRA adapter, as a peft config (paper section 3 and appendix G)."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Literal

from peft import PeftConfig
from peft.tuners.tuners_utils import BaseTuner
from peft.utils import PeftType

from lora_anl.nonlinear import (
    Activation,
    SplineMode,
    check_choice,
    check_flag,
    check_nonlinearity,
    check_number,
    check_rank,
)
from lora_anl.spline import check_grid

ForwardMode = Literal["dynamic", "static"]
MergePolicy = Literal["error", "static"]


@dataclass
class AuroraConfig(PeftConfig):
    """Settings of an AuroRA adapter: h = W x + b + (aurora_alpha / r) B sigma(A dropout(x)).

    Settings are checked when the config is made, and again when a layer is adapted, with a ValueError that names them.

    Args:
        r: The compressed rank, at least 1. Small by design: the paper uses 2 everywhere.
        aurora_alpha: The update is scaled by ``aurora_alpha / r``.
        target_modules: Names (endings) of the layers to adapt, a regular expression, or "all-linear"; None takes the
            usual ones of a known architecture (query and value projections).
        exclude_modules: Names (endings) or a regular expression of layers to leave alone.
        aurora_dropout: Dropout on the adapter's input while training, in [0, 1).
        activation: Of the fixed part: "tanh" (the paper's), "leaky_relu" ("AuroRA-lr"), "sigmoid" ("AuroRA-sm") or
            "relu".
        use_fixed: False removes the fixed part act(H act(z)) ("w/o F").
        use_spline: False removes the spline ("w/o L").
        grid_size: The number of intervals of the spline's grid, at least 1.
        spline_order: The degree of the spline, 0 .. 5.
        grid_range: Where the grid begins and ends. Coordinates more than ``spline_order`` intervals outside get nothing
            from the spline and give it no gradient.
        spline_mode: "pooled" (the paper's printed formula) or "per_channel" (each coordinate has its own spline).
        spline_init_scale: Spline weights start uniform in plus and minus this; far larger values start far from linear.
        forward_mode: "dynamic": B sigma(A x), nonlinear in x, cannot be merged exactly. "static": B sigma(A) x with
            sigma on the columns of A (the paper's "AuroRA-S"), linear in x, merges exactly.
        merge_policy: What merging does in dynamic mode: "error" refuses; "static" adds B sigma(A), as the paper does,
            which is another function, and warns. :func:`lora_anl.measure_merge_gap` says how different.
        init_weights: True: A normal with variance 1 / in_features and B = 0, so that the model starts unchanged;
            "kaiming_uniform": A as LoRA's and B = 0; False: B random too, for tests.
        bias: Which biases train too: "none", "all" or "aurora_only" (those of the adapted layers); needs peft 0.21.
        fan_in_fan_out: Taken for the sake of configs written for LoRA; layers that store (in, out) weights,
            transformers' Conv1D, are recognised without it, and torch.nn.Linear is never taken for one.
        rank_pattern: Another ``r`` for the layers whose name matches the key.
        alpha_pattern: Another ``aurora_alpha`` for the layers whose name matches the key.
        modules_to_save: Modules that train in full and are saved with the adapter, such as a classification head.
        layers_to_transform: Indices of the only layers to adapt.
        layers_pattern: Name of the list that these indices count in, where it is not one of the usual.

    Raises:
        ValueError: A setting out of its range.
    """

    r: int = field(default=2, metadata={"help": "compressed rank, at least 1"})
    aurora_alpha: float = field(default=4, metadata={"help": "the update is scaled by aurora_alpha / r"})
    target_modules: list[str] | str | None = field(
        default=None, metadata={"help": "names or pattern of the adapted layers"}
    )
    exclude_modules: list[str] | str | None = field(
        default=None, metadata={"help": "names or pattern of layers left alone"}
    )
    aurora_dropout: float = field(default=0.0, metadata={"help": "dropout on the adapter's input, in [0, 1)"})
    activation: Activation = field(default="tanh", metadata={"help": "activation of the fixed part"})
    use_fixed: bool = field(default=True, metadata={"help": "keep the fixed part act(H act(z))"})
    use_spline: bool = field(default=True, metadata={"help": "keep the spline"})
    grid_size: int = field(default=5, metadata={"help": "intervals of the spline's grid"})
    spline_order: int = field(default=3, metadata={"help": "degree of the spline, 0 to 5"})
    grid_range: tuple[float, float] = field(default=(-1.0, 1.0), metadata={"help": "where the grid begins and ends"})
    spline_mode: SplineMode = field(default="pooled", metadata={"help": "pooled (as printed) or per_channel"})
    spline_init_scale: float = field(default=0.1, metadata={"help": "spline weights start uniform in +- this"})
    forward_mode: ForwardMode = field(default="dynamic", metadata={"help": "dynamic: B s(A x); static: B s(A) x"})
    merge_policy: MergePolicy = field(default="error", metadata={"help": "what merging does in dynamic mode"})
    init_weights: bool | Literal["kaiming_uniform"] = field(default=True, metadata={"help": "how A and B start"})
    bias: Literal["none", "all", "aurora_only"] = field(default="none", metadata={"help": "which biases train too"})
    fan_in_fan_out: bool = field(default=False, metadata={"help": "the layer stores (in, out) weights"})
    rank_pattern: dict[str, int] = field(default_factory=dict, metadata={"help": "another r by layer name"})
    alpha_pattern: dict[str, float] = field(
        default_factory=dict, metadata={"help": "another aurora_alpha by layer name"}
    )
    modules_to_save: list[str] | None = field(default=None, metadata={"help": "modules trained in full and saved"})
    layers_to_transform: list[int] | int | None = field(
        default=None, metadata={"help": "indices of the adapted layers"}
    )
    layers_pattern: list[str] | str | None = field(default=None, metadata={"help": "name of the list of layers"})

    def __post_init__(self) -> None:
        super().__post_init__()
        self.peft_type = PeftType.AURORA
        for name in ("target_modules", "exclude_modules"):
            if isinstance(getattr(self, name), list | tuple):
                setattr(self, name, set(_names(name, getattr(self, name))))
        self.rank_pattern, self.alpha_pattern = self.rank_pattern or {}, self.alpha_pattern or {}
        self.check()
        self.grid_range = (float(self.grid_range[0]), float(self.grid_range[1]))  # JSON gives a list

    def check(self) -> None:
        """Raise a ValueError that names the first setting out of its range."""
        self._check_numbers()
        check_grid(self.grid_size, self.spline_order, self.grid_range)
        check_nonlinearity(self.spline_mode, self.activation, self.use_fixed, self.use_spline, self.spline_init_scale)
        check_choice("forward_mode", self.forward_mode, ("dynamic", "static"))
        check_choice("merge_policy", self.merge_policy, ("error", "static"))
        check_choice("init_weights", self.init_weights, (True, False, "kaiming_uniform"))
        check_choice("bias", self.bias, ("none", "all", "aurora_only"))
        if self.bias != "none" and not hasattr(BaseTuner, "_get_learnable_bias_state_dict"):
            raise ValueError(
                f"bias={self.bias!r} needs peft 0.21 or later, which saves trained biases; found {version('peft')}"
            )
        check_flag("fan_in_fan_out", self.fan_in_fan_out)
        self._check_selection()

    def _check_numbers(self) -> None:
        check_rank("r", self.r)
        check_number("aurora_alpha", self.aurora_alpha, 0, open_end=True)
        if not isinstance(self.aurora_dropout, int | float) or not 0 <= self.aurora_dropout < 1:
            raise ValueError(f"aurora_dropout must be in [0, 1), got {self.aurora_dropout!r}")
        for name in ("rank_pattern", "alpha_pattern"):
            if not isinstance(getattr(self, name), dict):
                raise ValueError(f"{name} must be a dict from layer names to numbers, got {getattr(self, name)!r}")
        for key, rank in self.rank_pattern.items():
            check_rank(f"rank_pattern[{key!r}]", rank)
        for key, alpha in self.alpha_pattern.items():
            check_number(f"alpha_pattern[{key!r}]", alpha, 0, open_end=True)

    def _check_selection(self) -> None:
        for name in ("target_modules", "exclude_modules", "modules_to_save", "layers_pattern"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                _names(name, value)
        layers = self.layers_to_transform
        for index in [layers] if isinstance(layers, int) else layers or []:
            if not isinstance(index, int) or isinstance(index, bool) or index < 0:
                raise ValueError(f"layers_to_transform must be indices of at least 0, got {layers!r}")
        if self.layers_pattern and self.layers_to_transform is None:
            raise ValueError(
                f"layers_pattern={self.layers_pattern!r} needs layers_to_transform, the indices it selects"
            )
        if isinstance(self.target_modules, str):
            for name in ("layers_to_transform", "layers_pattern"):
                if getattr(self, name) is not None:
                    raise ValueError(
                        f"{name} works with a list of target_modules only, got the pattern {self.target_modules!r}"
                    )


def _names(setting: str, value: object) -> list[str]:
    """The names as a list; ValueError if they are anything else."""
    given = list(value) if isinstance(value, list | tuple | set) else [None]
    names = [name for name in given if isinstance(name, str)]
    if len(names) != len(given):
        raise ValueError(f"{setting} must be names of modules, or a pattern, got {value!r}")
    return names
