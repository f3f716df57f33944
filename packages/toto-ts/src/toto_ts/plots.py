"""Pictures: a forecast with its bands, and the loss of a run; without pyplot, so that no window system is touched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nips_common.artifacts import atomic_file
from nips_common.runtime import require


@contextmanager
def figure(path: Path, height: float, rows: int = 1) -> Iterator[Any]:
    """Axes, one above the other, of a PNG file that replaces `path` when the block ends.

    Raises:
        ImportError: matplotlib is not installed.
    """
    require("matplotlib", "toto-ts[train]")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    picture = Figure(figsize=(9, height), layout="constrained")
    FigureCanvasAgg(picture)
    axes = picture.subplots(rows, 1, squeeze=False)[:, 0]
    for one in axes:
        one.grid(alpha=0.3)
    yield axes
    with atomic_file(path) as temporary:
        picture.savefig(temporary, format="png", dpi=120)


def plot_loss(history: Sequence[Mapping[str, Any]], path: Path, title: str) -> None:
    """Draw training and validation losses of a log.

    Args:
        history: entries with "step" and "loss" or "eval_loss".
        path: PNG file.
        title: above the plot.
    """
    with figure(path, 4.5) as (axes,):
        for key, label, style in (("loss", "training", "-"), ("eval_loss", "validation", "o--")):
            points = [(entry["step"], entry[key]) for entry in history if key in entry]
            if points:
                axes.plot(*zip(*points, strict=True), style, label=f"{label}, lowest {min(y for _, y in points):.4g}")
        axes.set(xlabel="step", ylabel="loss", title=title)
        if axes.has_data():
            axes.legend()


def plot_forecast(past: Mapping[str, tuple[Any, Any]], forecast: Any, levels: Sequence[float], path: Path) -> None:
    """Draw each target's past, its median or mean, and a band between the outermost levels and each pair inside.

    Args:
        past: by target, its last stamps and values.
        forecast: rows of `forecast_df` of one id, with the stamps in the column "timestamp".
        levels: quantiles that the rows have.
        path: PNG file.
    """
    ordered = sorted(levels)
    with figure(path, 2.4 * len(past), len(past)) as axes:
        for one, (name, (stamps, values)) in zip(axes, past.items(), strict=True):
            rows = forecast[forecast["target_name"] == name]
            middle = f"{0.5:g}" if 0.5 in ordered else "mean"
            one.plot(stamps, values, color="black", linewidth=1)
            one.plot(rows["timestamp"], rows[middle], color="tab:blue", label=middle)
            for low, high in zip(ordered[: len(ordered) // 2], reversed(ordered), strict=False):
                one.fill_between(
                    rows["timestamp"],
                    rows[f"{low:g}"],
                    rows[f"{high:g}"],
                    color="tab:blue",
                    alpha=0.25,
                    label=f"{low:g} to {high:g}",
                )
            one.set_ylabel(name)
            one.legend(loc="upper left", fontsize="small")
