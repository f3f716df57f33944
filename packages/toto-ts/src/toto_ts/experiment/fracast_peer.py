"""The pre-trained peer: fracast (85,001 parameters, univariate), zero-shot on the same windows."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np

from toto_ts.experiment.flights import HORIZON, Array, Flights


def fracast_deciles(flights: Flights, asset: Path, context: int) -> Array:
    """`(windows, series, 48, 9)`.

    Args:
        flights: the data.
        asset: folder of the fetched asset `fracast`, which is imported from there.
        context: hours it sees.
    """
    sys.path.insert(0, str(asset))
    try:
        fracast = importlib.import_module("fracast")
    finally:
        sys.path.remove(str(asset))
    model = fracast.FracastModel.from_pretrained(weights="fp32")
    contexts = flights.contexts(context).astype(np.float32)
    return np.stack([np.asarray(model.forecast(window, horizon=HORIZON), dtype=np.float64) for window in contexts])
