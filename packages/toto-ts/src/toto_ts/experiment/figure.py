"""One picture of the experiment: a window's past, what came, and the deciles that were forecast."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from toto_ts.experiment.flights import HORIZON, METRICS, Array, Flights
from toto_ts.experiment.scores import LEVELS
from toto_ts.plots import figure

PAST = 96


def draw(path: Path, flights: Flights, quantiles: Array, window: int = 7) -> Path:
    """Draw the three metrics of the first airport in one window.

    Args:
        path: PNG file.
        flights: the data.
        quantiles: `(windows, series, 48, 9)`.
        window: which.
    """
    truth, context = flights.truth()[window], flights.contexts(PAST)[window]
    past, ahead = np.arange(-PAST, 0), np.arange(HORIZON)
    with figure(path, 7.5, len(METRICS)) as axes:
        for series, one in enumerate(axes):
            one.plot(past, context[series], color="black", linewidth=1)
            one.plot(ahead, truth[series], color="black", linewidth=1, linestyle=":", label="what came")
            one.plot(ahead, quantiles[window, series, :, LEVELS.index(0.5)], color="tab:blue", label="median")
            for low in range(len(LEVELS) // 2):
                band = quantiles[window, series, :, low], quantiles[window, series, :, len(LEVELS) - 1 - low]
                one.fill_between(ahead, *band, color="tab:blue", alpha=0.15, label="deciles" if low == 0 else None)
            one.set_ylabel(flights.names[series])
        axes[0].legend(loc="upper left", fontsize="small")
        axes[-1].set_xlabel(f"hours from {flights.start} + {flights.origins[window]} h")
    return path
