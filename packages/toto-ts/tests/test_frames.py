"""Data frames in and out: ids, clocks, known futures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from nips_common.testing.bad_input import BadInput, bad_inputs
from toto_ts import TotoForecaster

pd = pytest.importorskip("pandas")


@pytest.fixture(scope="module")
def forecaster(make_model: Any) -> TotoForecaster:
    return TotoForecaster(make_model(labels=True))


def item(name: str, steps: int, start: str = "2024-01-01", freq: str = "h", seed: int = 0) -> Any:
    """One series: two targets and a temperature."""
    generator = np.random.default_rng(seed)
    frame = {"item_id": name, "timestamp": pd.date_range(start, periods=steps, freq=freq)}
    for level, column in ((10, "cpu"), (100, "latency"), (20, "temperature")):
        frame[column] = level + generator.normal(size=steps)
    return pd.DataFrame(frame)


TARGETS = ["cpu", "latency"]
LEVELS = (0.1, 0.5, 0.9)


def test_a_frame_of_several_ids_has_the_documented_form(forecaster: TotoForecaster) -> None:
    df = pd.concat([item("b", 40), item("a", 21, start="2024-05-01")])
    result = forecaster.forecast_df(df, 10, target_columns=TARGETS, num_samples=8, seed=0)
    assert list(result.columns) == ["item_id", "timestamp", "target_name", "mean", "0.1", "0.5", "0.9"]
    assert len(result) == 2 * 2 * 10
    assert list(result["item_id"].unique()) == ["b", "a"]
    assert list(result["target_name"][:20:10]) == TARGETS
    first = result[(result["item_id"] == "a") & (result["target_name"] == "cpu")]
    assert list(first["timestamp"]) == list(pd.date_range("2024-05-01 21:00", periods=10, freq="h"))
    assert bool((result["0.1"] <= result["0.5"]).all() and (result["0.5"] <= result["0.9"]).all())


def test_each_id_has_the_forecast_of_its_arrays(forecaster: TotoForecaster) -> None:
    frames = [item("a", 40, seed=1), item("b", 21, seed=2), item("c", 38, seed=3)]
    result = forecaster.forecast_df(pd.concat(frames), 10, target_columns=TARGETS, num_samples=None)
    for frame in frames:
        expected = forecaster.forecast(frame[TARGETS].to_numpy().T, 10, num_samples=None).mean[0]
        own = result[result["item_id"] == frame["item_id"].iloc[0]]
        np.testing.assert_allclose(own["mean"].to_numpy().reshape(2, 10), expected.numpy(), rtol=1e-5)
    assert list(result.columns) == ["item_id", "timestamp", "target_name", "mean"]


def test_samples_of_a_frame_are_those_of_its_array(forecaster: TotoForecaster) -> None:
    frame = item("a", 40)
    result = forecaster.forecast_df(frame, 12, target_columns=TARGETS, num_samples=16, seed=4)
    forecast = forecaster.forecast(frame[TARGETS].to_numpy().T, 12, num_samples=16, seed=4)
    np.testing.assert_allclose(result["0.9"].to_numpy().reshape(2, 12), forecast.quantile(0.9)[0].numpy(), rtol=1e-6)


def test_point_mode_gives_exact_quantiles_up_to_one_patch(forecaster: TotoForecaster) -> None:
    frame = item("a", 40)
    result = forecaster.forecast_df(frame, 8, target_columns=TARGETS, num_samples=None)
    exact = forecaster.forecast(frame[TARGETS].to_numpy().T, 8, num_samples=None, quantile_levels=LEVELS)
    np.testing.assert_allclose(result["0.1"].to_numpy().reshape(2, 8), exact.quantile(0.1)[0].numpy())


def test_a_wide_frame_of_one_series_needs_no_id(forecaster: TotoForecaster) -> None:
    wide = item("a", 40).drop(columns="item_id")
    result = forecaster.forecast_df(wide, 5, None, target_columns=TARGETS, num_samples=8, seed=0)
    long = forecaster.forecast_df(item("a", 40), 5, target_columns=TARGETS, num_samples=8, seed=0)
    pd.testing.assert_frame_equal(result, long.drop(columns="item_id"))


def test_columns_can_have_other_names(forecaster: TotoForecaster) -> None:
    renamed = item("a", 40).rename(columns={"item_id": "host", "timestamp": "when"})
    result = forecaster.forecast_df(renamed, 5, "host", "when", ["cpu"], num_samples=4, seed=0, quantile_levels=[0.25])
    assert list(result.columns) == ["host", "when", "target_name", "mean", "0.25"]


@pytest.mark.parametrize(
    ("start", "freq", "expected"),
    [
        ("2024-01-01", "5min", ["2024-01-01 03:20", "2024-01-01 03:25"]),
        ("2024-01-01", "D", ["2024-02-10", "2024-02-11"]),
        ("2024-01-31", "ME", ["2027-05-31", "2027-06-30"]),
        ("2024-01-01", "B", ["2024-02-26", "2024-02-27"]),
    ],
)
def test_the_clock_goes_on_by_its_frequency(
    forecaster: TotoForecaster, start: str, freq: str, expected: list[str]
) -> None:
    result = forecaster.forecast_df(item("a", 40, start, freq), 2, target_columns=["cpu"], num_samples=None)
    assert list(result["timestamp"]) == [pd.Timestamp(stamp) for stamp in expected]


def test_a_clock_with_a_time_zone_goes_on_over_the_change_to_summer_time(forecaster: TotoForecaster) -> None:
    frame = item("a", 40)
    frame["timestamp"] = pd.date_range("2024-03-30 00:00", periods=40, freq="h", tz="Europe/Berlin")
    result = forecaster.forecast_df(frame, 3, target_columns=["cpu"], num_samples=None)
    assert result["timestamp"].dt.tz is not None
    assert list(result["timestamp"].diff().dropna()) == [pd.Timedelta("1h")] * 2


@pytest.mark.parametrize("make", [lambda t: t.astype(str), lambda t: t.dt.to_period("h")])
def test_text_and_periods_are_clocks_too(forecaster: TotoForecaster, make: Any) -> None:
    frame = item("a", 40)
    frame["timestamp"] = make(frame["timestamp"])
    stamps = forecaster.forecast_df(frame, 2, target_columns=["cpu"], num_samples=None)["timestamp"]
    assert [str(stamp)[:16] for stamp in stamps] == ["2024-01-02 16:00", "2024-01-02 17:00"]


def test_missing_values_of_any_kind_are_missing(forecaster: TotoForecaster) -> None:
    frame = item("a", 40)
    frame.loc[5:8, "cpu"] = np.nan
    nullable = frame.astype({"cpu": "Float64"})
    assert nullable["cpu"].isna().sum() == 4
    one, two = (
        forecaster.forecast_df(f, 5, target_columns=TARGETS, num_samples=None)["mean"] for f in (frame, nullable)
    )
    pd.testing.assert_series_equal(one, two)


def known(frame: Any, horizon: int, column: str = "temperature", freq: str = "h") -> Any:
    """What is known of the future of one item."""
    stamps = pd.date_range(frame["timestamp"].iloc[-1], periods=horizon + 1, freq=freq)[1:]
    return pd.DataFrame(
        {"item_id": frame["item_id"].iloc[0], "timestamp": stamps, column: np.linspace(15, 25, horizon)}
    )


def test_known_futures_are_looked_up_by_id_and_stamp_and_shifted(forecaster: TotoForecaster) -> None:
    frames = [item("a", 40, seed=1), item("b", 40, start="2024-03-01", seed=2)]
    future = pd.concat([known(frame, 12) for frame in frames]).sample(frac=1, random_state=0)
    future = future.sort_values("timestamp")
    result = forecaster.forecast_df(
        pd.concat(frames),
        10,
        target_columns=TARGETS,
        exogenous_columns=["temperature"],
        future_df=future,
        num_samples=None,
    )
    assert set(result["target_name"]) == set(TARGETS)
    expected = forecaster.forecast(
        np.stack([frame[[*TARGETS, "temperature"]].to_numpy().T for frame in frames]),
        10,
        num_samples=None,
        future_exogenous=np.tile(np.linspace(15, 25, 12)[:10], (2, 1, 1)),
        shift_exogenous=True,
    )
    np.testing.assert_allclose(result["mean"].to_numpy().reshape(2, 2, 10), expected.mean[:, :2].numpy(), rtol=1e-6)


def call(change: Any = lambda frame: frame, **options: Any) -> Any:
    """A wrong call of forecast_df on a changed frame."""
    options = {"horizon": 5, "target_columns": ["cpu"], "num_samples": None} | options
    return lambda forecaster: forecaster.forecast_df(change(item("web-1", 20)), **options)


def with_stamps(change: Any) -> Any:
    def changed(frame: Any) -> Any:
        stamps = frame["timestamp"].tolist()
        change(stamps)
        return frame.assign(timestamp=stamps)

    return changed


def swap(stamps: list[Any]) -> None:
    stamps[3], stamps[4] = stamps[4], stamps[3]


def repeat(stamps: list[Any]) -> None:
    stamps[4] = stamps[3]


def nudge(stamps: list[Any]) -> None:
    stamps[7] += pd.Timedelta("10min")


def blank(stamps: list[Any]) -> None:
    stamps[2] = pd.NaT


FUTURE: dict[str, Any] = {"exogenous_columns": ["temperature"]}


@bad_inputs(
    [
        BadInput(
            "day or month first",
            call(lambda f: f.assign(timestamp=[f"{i + 1:02}/01/2024" for i in range(20)])),
            ("'web-1'", "ISO 8601", "01/01/2024"),
        ),
        BadInput("out of order", call(with_stamps(swap)), ("'web-1'", "not in order", "row 4", "sort")),
        BadInput("repeated", call(with_stamps(repeat)), ("'web-1'", "repeat", "2024-01-01 03:00:00", "rows 3 and 4")),
        BadInput("irregular", call(with_stamps(nudge)), ("not regular", "row 7 is 2024-01-01 07:10:00", "07:00:00")),
        BadInput("gap", call(lambda f: f.drop(index=6)), ("2024-01-01 06:00:00 should follow", "asfreq")),
        BadInput("no stamp", call(with_stamps(blank)), ("'web-1'", "1 rows without a timestamp")),
        BadInput(
            "seconds", call(lambda f: f.assign(timestamp=range(20))), ("numbers (int64)", "to_datetime(..., unit='s')")
        ),
        BadInput(
            "not a date", call(lambda f: f.assign(timestamp="soon")), ("'web-1'", "cannot be read as datetimes", "soon")
        ),
        BadInput(
            "out of the calendar", call(lambda f: f.assign(timestamp=["9999-12-31"] * 20)), ("'web-1'", "9999-12-31")
        ),
        BadInput(
            "an id column of a result's name",
            call(lambda f: f.rename(columns={"item_id": "mean"}), id_column="mean"),
            ("two columns of the name 'mean'", "rename"),
        ),
        BadInput(
            "a clock of a result's name",
            call(lambda f: f.rename(columns={"timestamp": "0.5"}), timestamp_column="0.5"),
            ("two columns of the name '0.5'", "rename"),
        ),
        BadInput("one row", call(lambda f: f.head(1)), ("one row", "give freq")),
        BadInput("no row", call(lambda f: f.head(0)), ("at least one row",)),
        BadInput("another frequency", call(freq="2h"), ("2024-01-01 02:00:00 should follow", "row 1")),
        BadInput("no frequency", call(freq="often"), ("freq must be a pandas frequency", "'often'")),
        BadInput("column", call(target_columns=["gpu"]), ("lacks the columns ['gpu']", "'latency'")),
        BadInput("text column", call(lambda f: f.assign(cpu="high")), ("'cpu'", "must hold numbers", "object")),
        BadInput("flag column", call(lambda f: f.assign(cpu=True)), ("'cpu'", "must hold numbers", "bool")),
        BadInput("no id", call(lambda f: f.assign(item_id=None)), ("'item_id'", "without an id")),
        BadInput("no target", call(target_columns=[]), ("target_columns", "at least one")),
        BadInput("two roles", call(target_columns=["cpu", "cpu"]), ("one role", "cpu twice")),
        BadInput("horizon", call(horizon=0), ("horizon", "at least 1", "0")),
        BadInput("level", call(quantile_levels=[1.0]), ("quantile level", "1.0")),
        BadInput("far future", call(horizon=10**9), ("leave the dates that pandas can hold", "horizon=1000000000")),
        BadInput("list", lambda forecaster: forecaster.forecast_df([1.0], 5), ("DataFrame", "list")),
        BadInput("no future", call(**FUTURE), ("future_df and exogenous_columns belong together",)),
        BadInput("future alone", call(future_df=known(item("web-1", 20), 5)), ("belong together",)),
        BadInput(
            "future too short",
            call(**FUTURE, future_df=known(item("web-1", 20), 3)),
            ("lacks 2 of 5 stamps of item 'web-1'", "2024-01-01 23:00:00"),
        ),
        BadInput(
            "future of another id",
            call(**FUTURE, future_df=known(item("web-2", 20), 5)),
            ("lacks 5 of 5 stamps of item 'web-1'",),
        ),
        BadInput(
            "future unknown",
            call(**FUTURE, future_df=known(item("web-1", 20), 5).assign(temperature=np.nan)),
            ("NaN in column 'temperature' at 2024-01-01 20:00:00",),
        ),
        BadInput(
            "future column",
            call(**FUTURE, future_df=known(item("web-1", 20), 5, column="wind")),
            ("future_df lacks the columns ['temperature']",),
        ),
    ]
)
def test_what_cannot_be_forecast_is_explained_in_one_line(case: BadInput, forecaster: TotoForecaster) -> None:
    case.check(forecaster)


def test_a_column_of_zeros_only_is_forecast(forecaster: TotoForecaster) -> None:
    frame = item("a", 40).assign(errors=0)
    result = forecaster.forecast_df(frame, 5, target_columns=["cpu", "errors"], num_samples=8, seed=0)
    assert bool(np.isfinite(result.select_dtypes("number")).all(axis=None))


def test_a_forecast_can_be_a_frame_without_any_names(forecaster: TotoForecaster) -> None:
    forecast = forecaster.forecast(torch.randn(2, 3, 40), 4, num_samples=8, seed=0)
    frame = forecast.to_df()
    assert list(frame.columns) == ["item_id", "timestamp", "target_name", "mean", "0.1", "0.5", "0.9"]
    assert frame["timestamp"].tolist()[:5] == [1, 2, 3, 4, 1]
    assert len(frame) == 2 * 3 * 4
    with pytest.raises(ValueError, match="2 entries, 3 variates and 4 steps"):
        forecast.to_df(item_ids=["a"])
