"""Runs: rows, resuming, kills, processes, Ray, and what is refused before or during them."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from boom_bench.baselines import Naive, SeasonalNaive
from boom_bench.config import CRPS, MAE, MASE
from boom_bench.data import Series, open_data
from boom_bench.forecasters import ModelOptions, NamedForecaster
from boom_bench.leaderboard import leaderboard, load_results
from boom_bench.metrics import evaluate
from boom_bench.run import run_benchmark
from boom_bench.running.one_task import COLUMNS
from boom_bench.tasks import Task, make_task, make_tasks, split
from nips_common.testing.interrupt import kill_and_resume

HERE = Path(__file__).parent


@pytest.fixture
def tasks(collection: list[Series]) -> list[Task]:
    """Five configurations, one of them of a flat series."""
    return list(make_tasks(collection[:2])) + list(make_tasks(collection[2:], ["short"]))


@pytest.fixture(autouse=True)
def _examples_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.setenv("PYTHONPATH", str(HERE))


def test_a_row_is_written_for_each_configuration(tasks: list[Task], tmp_path: Path) -> None:
    rows = run_benchmark(SeasonalNaive(), tasks, tmp_path / "seasonalnaive" / "all_results.csv")
    assert list(rows["dataset"]) == [task.name for task in tasks]
    assert tuple(pd.read_csv(tmp_path / "seasonalnaive" / "all_results.csv").columns) == COLUMNS
    assert rows["model"].unique().tolist() == ["seasonalnaive"]
    assert rows["num_variates"].tolist() == [2, 2, 1, 1, 1]


def test_the_metrics_of_a_row_are_those_of_evaluate(hourly: Series, tmp_path: Path) -> None:
    task = make_task(hourly, "short")
    windows, levels = list(split(hourly, task)), tuple(q / 10 for q in range(1, 10))
    forecasts = [SeasonalNaive(24)(window.input[:, -100:], 48, levels) for window in windows]
    expected = evaluate([w.label for w in windows], forecasts, [w.input for w in windows], seasonality=24)
    (row,) = run_benchmark(SeasonalNaive(), [task], tmp_path / "x" / "r.csv", context=100).to_dict("records")
    for name, value in expected.aggregated.items():
        assert row[f"eval_metrics/{name}"] == pytest.approx(value, rel=1e-12), name


def test_the_context_is_cut_to_the_newest_points(hourly: Series, tmp_path: Path) -> None:
    seen: list[np.ndarray[Any, Any]] = []

    def look(context: Any, horizon: int, levels: Any) -> Any:
        seen.append(context)
        return Naive()(context, horizon, levels)

    task = make_task(hourly, "short")
    run_benchmark(look, [task], tmp_path / "x" / "r.csv", context=30)
    for context, window in zip(seen, split(hourly, task), strict=True):
        np.testing.assert_array_equal(context, window.input[:, -30:])


def test_published_series_get_their_published_domain(boom_folder: Path, tmp_path: Path) -> None:
    from boom_bench.data import load_boomlet

    rows = run_benchmark(SeasonalNaive(), make_tasks(load_boomlet(boom_folder), ["short"]), tmp_path / "m" / "r.csv")
    assert rows["dataset"].tolist() == ["ds-1975-H/Medium/short", "ds-2187-H/Medium/short"]
    assert rows["domain"].str.len().gt(0).all()


def test_a_second_run_only_does_what_is_missing(tasks: list[Task], tmp_path: Path) -> None:
    file = tmp_path / "m" / "all_results.csv"
    whole = run_benchmark(SeasonalNaive(), tasks, tmp_path / "whole" / "all_results.csv")
    run_benchmark(SeasonalNaive(), tasks[:2], file)
    before = file.read_bytes()

    def refuse(context: Any, horizon: int, levels: Any) -> Any:
        raise AssertionError("nothing was to be done")

    assert len(run_benchmark(refuse, tasks[:2], file)) == 2
    assert file.read_bytes() == before
    rows = run_benchmark(SeasonalNaive(), tasks, file)
    pd.testing.assert_frame_equal(rows.drop(columns="model"), whole.drop(columns="model"))
    again = run_benchmark(Naive(), tasks[:1], file, resume=False)
    assert again["dataset"].tolist() == [tasks[0].name]


def test_a_line_cut_by_a_kill_is_done_again(
    tasks: list[Task], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "m" / "all_results.csv"
    whole = run_benchmark(SeasonalNaive(), tasks, file)
    content = file.read_bytes()
    for cut in (1, 30, len(content.splitlines()[-1])):
        file.write_bytes(content[:-cut])
        with caplog.at_level(logging.WARNING, "boom_bench"):
            pd.testing.assert_frame_equal(run_benchmark(SeasonalNaive(), tasks, file), whole)
        assert file.read_bytes() == content
    assert "cut off the unfinished line 6" in caplog.text


def test_a_file_of_other_settings_is_not_continued(tasks: list[Task], tmp_path: Path) -> None:
    file = tmp_path / "m" / "all_results.csv"
    run_benchmark(Naive(), tasks[:1], file)
    before = file.read_bytes()
    with pytest.raises(ValueError, match=r"begun with context=2048, this run has 512"):
        run_benchmark(Naive(), tasks, file, context=512)
    assert file.read_bytes() == before
    assert len(run_benchmark(Naive(), tasks[:2], file, context=512, resume=False)) == 2


def test_an_official_file_is_continued_in_its_own_columns(tasks: list[Task], tmp_path: Path) -> None:
    file = tmp_path / "m" / "all_results.csv"
    rows = run_benchmark(Naive(), tasks[:2], file)
    (tmp_path / "m" / "run.json").unlink()
    mixed = rows.assign(checkpoint="v1")[["checkpoint", *reversed(COLUMNS)]]
    mixed.to_csv(file, index=False)
    found = run_benchmark(Naive(), tasks, file)
    assert found["dataset"].tolist() == [task.name for task in tasks]
    assert found["checkpoint"].tolist() == ["v1", "v1", "", "", ""]


def test_two_runs_do_not_write_into_one_file(tasks: list[Task], tmp_path: Path) -> None:
    file = tmp_path / "m" / "all_results.csv"

    def start_another(context: Any, horizon: int, levels: Any) -> Any:
        run_benchmark(Naive(), tasks, file)

    with pytest.raises(ValueError, match="is being written by another run"):
        run_benchmark(start_another, tasks, file)


def test_tasks_are_read_one_at_a_time(collection: list[Series], tmp_path: Path) -> None:
    events: list[str] = []

    def stream() -> Iterator[Task]:
        for series in collection:
            events.append(f"read {series.item_id}")
            yield make_task(series, "short")

    def forecast(context: Any, horizon: int, levels: Any) -> Any:
        events.append("forecast")
        return Naive()(context, horizon, levels)

    run_benchmark(forecast, stream(), tmp_path / "m" / "r.csv")
    reads = [position for position, event in enumerate(events) if event.startswith("read")]
    assert all("forecast" in events[a:b] for a, b in pairwise(reads))


def test_samples_and_functions_run_as_well(tasks: list[Task], tmp_path: Path) -> None:
    from example_forecasters import last_value, samples

    assert run_benchmark(samples, tasks[:2], tmp_path / "s" / "r.csv")[CRPS].gt(0).all()
    plain = run_benchmark(last_value, tasks[:2], tmp_path / "l" / "r.csv")
    assert plain[MASE].tolist() == run_benchmark(Naive(), tasks[:2], tmp_path / "n" / "r.csv")[MASE].tolist()


def test_seasonal_naive_against_itself_is_one_and_a_flat_series_is_degenerate(
    tasks: list[Task], tmp_path: Path
) -> None:
    for name, forecaster in (("seasonalnaive", SeasonalNaive()), ("naive", Naive()), ("again", SeasonalNaive())):
        run_benchmark(forecaster, tasks, tmp_path / name / "all_results.csv")
    table = leaderboard(load_results(tmp_path))
    assert table.columns[0] == "MASE-4-scaled"
    assert table.columns[3] == f"{MAE}-1-unscaled"
    assert table.loc["again"].iloc[:2].tolist() == pytest.approx([1, 1], abs=1e-9)
    assert table.notna().all().all()


@pytest.mark.parametrize("gives", ["broken", "horizon", "variates"])
def test_a_forecast_that_does_not_fit_names_its_configuration_and_keeps_what_is_done(
    tasks: list[Task], tmp_path: Path, gives: str
) -> None:
    from example_forecasters import broken

    def wrong(context: Any, horizon: int, levels: Any) -> Any:
        if len(context) > 1:
            return Naive()(context, horizon, levels)
        if gives == "broken":
            return broken(context, horizon, levels)
        return np.zeros((5, 1, horizon - 1)) if gives == "horizon" else np.zeros((5, 2, horizon))

    file = tmp_path / "m" / "all_results.csv"
    with pytest.raises(ValueError) as caught:
        run_benchmark(wrong, tasks, file)
    words = {"broken": "forecast 0 holds NaN", "horizon": "(5, 1, 47)", "variates": "(5, 2, 48)"}
    assert tasks[2].name in str(caught.value)
    assert words[gives] in str(caught.value)
    assert load_results(tmp_path)["dataset"].tolist() == [task.name for task in tasks[:2]]


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"forecaster": 3}, TypeError, "int cannot be called"),
        ({"context": 0}, ValueError, "context"),
        ({"jobs": 0}, ValueError, "jobs"),
        ({"backend": "threads"}, ValueError, "processes, ray"),
        ({"gpus_per_job": -1}, ValueError, "gpus_per_job"),
        ({"quantile_levels": (0.9, 0.1)}, ValueError, "rise"),
        ({"out_csv": "results"}, ValueError, ".csv"),
        ({"tasks": []}, ValueError, "no configuration"),
        ({"forecaster": lambda *_: None, "jobs": 2}, ValueError, "cannot be sent to other processes"),
    ],
)
def test_arguments_out_of_range_are_refused_before_anything_is_written(
    change: dict[str, Any], error: type[Exception], words: str, tasks: list[Task], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    arguments: dict[str, Any] = {"forecaster": Naive(), "tasks": tasks, "out_csv": "m/all_results.csv", **change}
    with pytest.raises(error) as caught:
        run_benchmark(**arguments)
    assert words in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_a_forecaster_that_works_in_place_changes_no_series(tasks: list[Task], tmp_path: Path) -> None:
    def in_place(context: Any, horizon: int, levels: Any) -> Any:
        assert context.base is None  # nothing leads to what comes after the context
        found = SeasonalNaive(24)(context, horizon, levels)
        context[:] = 0
        return found

    before = [task.series.target.copy() for task in tasks if task.series is not None]
    rows = run_benchmark(in_place, tasks, tmp_path / "m" / "all_results.csv")
    clean = run_benchmark(SeasonalNaive(24), tasks, tmp_path / "n" / "all_results.csv")
    pd.testing.assert_frame_equal(rows.drop(columns="model"), clean.drop(columns="model"))
    for task, target in zip(tasks, before, strict=True):
        assert task.series is not None
        np.testing.assert_array_equal(task.series.target, target)


def test_infinite_forecasts_are_told_with_their_configuration(
    hourly: Series, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def far(context: Any, horizon: int, levels: Any) -> Any:
        found = Naive()(context, horizon, levels)
        found["quantiles"][:, :, 0] = np.inf
        return found

    with caplog.at_level(logging.WARNING, "boom_bench"):
        rows = run_benchmark(far, [make_task(hourly, "short")], tmp_path / "m" / "all_results.csv")
    assert np.isinf(rows[[MAE, CRPS]]).all(axis=None)
    assert np.isfinite(rows[MASE]).all()
    assert f"{hourly.item_id}/Medium/short: infinite forecasts" in caplog.text


@pytest.mark.parametrize("values", [np.full((5, 2, 48), "1"), np.full((5, 2, 48), 1j), [[[None] * 48] * 2] * 5])
def test_forecasts_that_are_no_numbers_name_their_configuration(values: Any, hourly: Series, tmp_path: Path) -> None:
    task = make_task(hourly, "short")
    for forecast in (values, {"quantiles": values}):
        with pytest.raises(ValueError, match=f"^{task.name}: forecast 0"):
            run_benchmark(lambda *_, found=forecast: found, [task], tmp_path / "m" / "all_results.csv")


def test_two_tasks_of_one_name_are_refused(tasks: list[Task], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"two tasks are called '{tasks[0].name}'"):
        run_benchmark(Naive(), [tasks[0], tasks[0]], tmp_path / "m" / "r.csv")


@pytest.mark.slow
def test_two_processes_give_the_same_rows(tasks: list[Task], tmp_path: Path) -> None:
    seen = tmp_path / "processes"
    seen.mkdir()
    forecaster = NamedForecaster("example_forecasters:Meeting", ModelOptions(checkpoint=str(seen)))
    rows = run_benchmark(forecaster, tasks, tmp_path / "m" / "r.csv", jobs=2)
    alone = run_benchmark(Naive(), tasks, tmp_path / "n" / "r.csv")
    same = [frame.drop(columns="model").sort_values("dataset", ignore_index=True) for frame in (rows, alone)]
    pd.testing.assert_frame_equal(*same)
    assert sorted(file.read_text() for file in seen.iterdir()) == ["0", "1"]


@pytest.mark.slow
def test_an_error_in_another_process_is_the_forecasters_own(tasks: list[Task], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="forecast 0 holds NaN"):
        run_benchmark(NamedForecaster("example_forecasters:broken"), tasks, tmp_path / "m" / "r.csv", jobs=2)


@pytest.mark.slow
def test_two_ray_workers_give_the_same_rows(tasks: list[Task], tmp_path: Path) -> None:
    pytest.importorskip("ray")
    seen = tmp_path / "workers"
    seen.mkdir()
    forecaster = NamedForecaster("example_forecasters:Meeting", ModelOptions(checkpoint=str(seen)))
    file = tmp_path / "m" / "all_results.csv"
    run_benchmark(Naive(), tasks[:1], file)
    rows = run_benchmark(forecaster, tasks, file, jobs=2, backend="ray")
    alone = run_benchmark(Naive(), tasks, tmp_path / "n" / "r.csv")
    same = [frame.drop(columns="model").sort_values("dataset", ignore_index=True) for frame in (rows, alone)]
    pd.testing.assert_frame_equal(*same)
    assert len(list(seen.iterdir())) == 2
    with pytest.raises(ValueError, match="forecast 0 holds NaN"):
        run_benchmark(
            NamedForecaster("example_forecasters:broken"), tasks, tmp_path / "b" / "r.csv", jobs=2, backend="ray"
        )


def write_table(folder: Path) -> Path:
    times = pd.date_range("2024-01-01", periods=600, freq="h")
    draw = np.random.default_rng(0)
    frames = [pd.DataFrame({"item_id": f"h{k}", "timestamp": times, "cpu": draw.normal(5, 1, 600)}) for k in range(12)]
    pd.concat(frames).to_csv(folder / "metrics.csv", index=False)
    return folder / "metrics.csv"


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_killed_run_loses_at_most_what_was_in_flight_and_never_duplicates(tmp_path: Path, jobs: int) -> None:
    data, out = write_table(tmp_path), tmp_path / "results" / "slow"
    file = out / "all_results.csv"
    command = [
        sys.executable, "-m", "boom_bench.run", "--model", "example_forecasters:slow", "--data", str(data),
        "--terms", "short", "--out", str(out), "--jobs", str(jobs),
    ]  # fmt: skip

    def rows() -> int:
        return file.read_bytes().count(b"\n") - 1 if file.exists() else 0

    reached: list[int] = []

    def when() -> bool:
        reached.append(rows())
        return reached[-1] >= 4

    _, resumed = kill_and_resume(command, when, env={"PYTHONPATH": str(HERE)}, timeout=180)
    done_again = resumed.stderr.count("boom_bench.run: h")
    assert json.loads(resumed.stdout)["configurations"] == 12
    found = load_results(tmp_path / "results")
    assert sorted(found["dataset"]) == sorted(f"h{k}/Medium/short" for k in range(12))
    assert done_again <= 12 - reached[-1]
    expected = run_benchmark(SeasonalNaive(24), make_tasks(open_data(data), ["short"]), tmp_path / "x" / "r.csv")
    both = [frame.drop(columns="model").sort_values("dataset", ignore_index=True) for frame in (found, expected)]
    pd.testing.assert_frame_equal(*both)
