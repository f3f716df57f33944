"""The settings of a RidgeLoRA adapter, as a peft config (paper section 3)."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Literal, get_args

from peft import PeftConfig
from peft.tuners.tuners_utils import BaseTuner
from peft.utils import PeftType

from ridgelora.initialisation import Init, check_choice, check_number, check_rank

Connection = Literal["series", "parallel"]


@dataclass
class RidgeLoraConfig(PeftConfig):
    """Settings of a RidgeLoRA adapter: h = W (lambda sigma x + s B A dropout(x)) + b with s = ridgelora_alpha / r.

    Settings are checked when the config is made, and again when a layer is adapted, with a ValueError that names them.

    Args:
        r: The rank of B A, at least 1 and at most the width of the layer's input. The paper uses 8 and 64.
        ridgelora_alpha: The scale of B A. At the start B is divided by it, so it changes how fast B A moves only.
        target_modules: Names (endings) of the layers to adapt, a regular expression, or "all-linear"; None takes the
            usual ones of a known architecture (query and value projections). The paper adapts all linear layers.
        exclude_modules: Names (endings) or a regular expression of layers to leave alone.
        ridgelora_dropout: Dropout in front of A while training, in [0, 1); the ridge passes all of x on.
        init_weights: How A starts; see :func:`ridgelora.ridge_init`. "exact" (default), "diagonal" and
            "gaussian_calibrated" leave the model unchanged at first; "gaussian" (the published start),
            "kaiming_normal", "kaiming_uniform", "xavier_normal" and "xavier_uniform" do not.
        noise_mean: The first r entries of sigma start at sigmoid(n), n normal with this mean.
        noise_std: And with this standard deviation, at least 0.
        use_rslora: s = ridgelora_alpha / sqrt(r), which keeps the size of B A's steps at large ranks.
        connection: "series": as above, in front of W. "parallel": h = W x + b + s B A x + lambda sigma x, the ridge
            beside W as a rectangular diagonal; it starts with B = 0 and sigma = 0 whatever ``init_weights`` says.
        bias: Which biases train too: "none", "all" or "ridgelora_only" (those of the adapted layers); needs peft 0.21.
        fan_in_fan_out: Set for layers that store (in, out) weights; transformers' Conv1D is recognised without it.
        rank_pattern: Another ``r`` for the layers whose name matches the key.
        alpha_pattern: Another ``ridgelora_alpha`` for the layers whose name matches the key.
        modules_to_save: Modules that train in full and are saved with the adapter, such as a classification head.
        layers_to_transform: Indices of the only layers to adapt.
        layers_pattern: Name of the list that these indices count in, where it is not one of the usual.

    Raises:
        ValueError: A setting out of its range.
    """

    r: int = field(default=8, metadata={"help": "rank, at least 1"})
    ridgelora_alpha: float = field(default=16, metadata={"help": "B A is scaled by ridgelora_alpha / r"})
    target_modules: list[str] | str | None = field(
        default=None, metadata={"help": "names or pattern of the adapted layers"}
    )
    exclude_modules: list[str] | str | None = field(
        default=None, metadata={"help": "names or pattern of layers left alone"}
    )
    ridgelora_dropout: float = field(default=0.0, metadata={"help": "dropout in front of A, in [0, 1)"})
    init_weights: Init = field(default="exact", metadata={"help": "how A starts"})
    noise_mean: float = field(default=2.0, metadata={"help": "mean of the noise in the ridge's start"})
    noise_std: float = field(default=1.0, metadata={"help": "standard deviation of that noise"})
    use_rslora: bool = field(default=False, metadata={"help": "scale by ridgelora_alpha / sqrt(r)"})
    connection: Connection = field(default="series", metadata={"help": "series (in front of W) or parallel"})
    bias: Literal["none", "all", "ridgelora_only"] = field(default="none", metadata={"help": "which biases train too"})
    fan_in_fan_out: bool = field(default=False, metadata={"help": "the layer stores (in, out) weights"})
    rank_pattern: dict[str, int] = field(default_factory=dict, metadata={"help": "another r by layer name"})
    alpha_pattern: dict[str, float] = field(
        default_factory=dict, metadata={"help": "another ridgelora_alpha by layer name"}
    )
    modules_to_save: list[str] | None = field(default=None, metadata={"help": "modules trained in full and saved"})
    layers_to_transform: list[int] | int | None = field(
        default=None, metadata={"help": "indices of the adapted layers"}
    )
    layers_pattern: list[str] | str | None = field(default=None, metadata={"help": "name of the list of layers"})

    def __post_init__(self) -> None:
        super().__post_init__()
        self.peft_type = PeftType.RIDGELORA
        for name in ("target_modules", "exclude_modules"):
            if isinstance(getattr(self, name), list | tuple):
                setattr(self, name, set(_names(name, getattr(self, name))))
        self.rank_pattern, self.alpha_pattern = self.rank_pattern or {}, self.alpha_pattern or {}
        self.check()

    def check(self) -> None:
        """Raise a ValueError that names the first setting out of its range."""
        self._check_numbers()
        check_choice("init_weights", self.init_weights, get_args(Init))
        check_choice("connection", self.connection, get_args(Connection))
        check_choice("bias", self.bias, ("none", "all", "ridgelora_only"))
        for name in ("use_rslora", "fan_in_fan_out"):
            check_choice(name, getattr(self, name), (True, False))
        if self.bias != "none" and not hasattr(BaseTuner, "_get_learnable_bias_state_dict"):
            raise ValueError(
                f"bias={self.bias!r} needs peft 0.21 or later, which saves trained biases; found {version('peft')}"
            )
        self._check_selection()

    def _check_numbers(self) -> None:
        check_rank("r", self.r)
        check_number("ridgelora_alpha", self.ridgelora_alpha, 0, open_end=True)
        if not isinstance(self.ridgelora_dropout, int | float) or not 0 <= self.ridgelora_dropout < 1:
            raise ValueError(f"ridgelora_dropout must lie in [0, 1), got {self.ridgelora_dropout!r}")
        check_number("noise_mean", self.noise_mean, float("-inf"))
        check_number("noise_std", self.noise_std, 0)
        for name in ("rank_pattern", "alpha_pattern"):
            if not isinstance(getattr(self, name), dict):
                raise ValueError(f"{name} must be a dict from layer names to numbers, got {getattr(self, name)!r}")
        for key, rank in self.rank_pattern.items():
            check_rank(f"rank_pattern[{key!r}]", rank)
        for key, alpha in self.alpha_pattern.items():
            check_number(f"alpha_pattern[{key!r}]", alpha, 0, open_end=True)

    def _check_selection(self) -> None:
        for name in ("target_modules", "exclude_modules", "modules_to_save", "layers_pattern"):
            if getattr(self, name) is not None and not isinstance(getattr(self, name), str):
                _names(name, getattr(self, name))
        layers = self.layers_to_transform
        for index in [] if layers is None else layers if isinstance(layers, list | tuple | set) else [layers]:
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
    names = [name for name in value if isinstance(name, str)] if isinstance(value, list | tuple | set) else []
    if not isinstance(value, list | tuple | set) or len(names) != len(value):
        raise ValueError(f"{setting} must be names of modules, or a pattern, got {value!r}")
    return names
