"""Aggregation: the degenerate part, invalid values, the geometric mean, ranks, breakdowns, intervals, formats."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boom_bench.config import CRPS, MAE, MASE
from boom_bench.data import SeriesProperties, official_results, published_models
from boom_bench.leaderboard import (
    bootstrap_ci,
    breakdown,
    format_table,
    leaderboard,
    rank,
    scale_by_baseline,
    shifted_gmean,
    skill_score,
    split_degenerate,
    to_csv,
    to_markdown,
    win_rate,
)
from boom_bench.leaderboard.ranks import ranks

Make = Callable[..., pd.DataFrame]
NAN, INF = math.nan, math.inf


@pytest.fixture(scope="module")
def published() -> pd.DataFrame:
    return official_results()


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30))
@settings(deadline=None)
def test_the_shifted_geometric_mean_is_at_most_the_arithmetic_one(values: list[float]) -> None:
    assert shifted_gmean(values) <= np.mean(values) * (1 + 1e-9) + 1e-12


def test_the_shifted_geometric_mean_of_ones_is_one_and_zeros_are_allowed() -> None:
    assert shifted_gmean([1.0] * 7) == pytest.approx(1, abs=1e-9)
    assert shifted_gmean([0.0, 0.0]) == pytest.approx(0, abs=1e-12)
    assert shifted_gmean([-1e-5, 1.0]) == pytest.approx(-1e-5)
    assert math.isnan(shifted_gmean([NAN, 1.0]))
    for bad, words in (([-2e-5], "at least -1e-05, got -2e-05"), ([], "no value")):
        with pytest.raises(ValueError, match=words):
            shifted_gmean(bad)


def test_the_baseline_is_one_on_every_scaled_metric(published: pd.DataFrame) -> None:
    main, _ = split_degenerate(published)
    own = scale_by_baseline(main).query("model == 'seasonalnaive'")
    assert (own[[MASE, CRPS]] == 1).all().all()
    assert leaderboard(published).loc["seasonalnaive"].iloc[:2].tolist() == pytest.approx([1, 1], abs=1e-9)


def test_a_zero_of_the_baseline_takes_the_whole_series_out(make_results: Make) -> None:
    names = ["a/Short/short", "a/Short/long", "b/Short/short", "ds-1040-5T/Short/short", "c/Short/short"]
    results = make_results(
        {"seasonalnaive": [(0, 1, 1), (1, 1, 1), (1, 1, 1), (1, 1, 1), (NAN, 1, 1)], "x": [(1, 1, 1)] * 5}, names
    )
    main, flat = split_degenerate(results)
    assert sorted(flat["dataset"].unique()) == ["a/Short/long", "a/Short/short", "ds-1040-5T/Short/short"]
    assert len(main) + len(flat) == len(results)
    _, flat = split_degenerate(results, low_variance=["b"], nan_is_degenerate=True)
    assert sorted({name.split("/")[0] for name in flat["dataset"]}) == ["a", "b", "c"]
    assert len(split_degenerate(results, baseline="x", low_variance=())[1]) == 0


def test_own_data_with_a_flat_series_has_no_nan_in_its_table(make_results: Make) -> None:
    rows = [(1.0, 0.5, 2.0), (NAN, 0.0, 0.0)]
    table = leaderboard(make_results({"seasonalnaive": rows, "mine": [(0.5, 0.25, 1.0), (NAN, 0.1, 0.3)]}))
    assert list(table.columns) == [
        "MASE-1-scaled", "CRPS-1-scaled", "Rank-1-scaled", f"{MAE}-1-unscaled", "CRPS-1-unscaled", "Rank-1-unscaled",
    ]  # fmt: skip
    assert table.loc["mine"].iloc[:3].tolist() == pytest.approx([0.5, 0.5, 1.0])
    assert table.notna().all().all()
    assert table.loc["mine"].iloc[3:].tolist() == pytest.approx([0.3, 0.1, 2.0])
    assert table.attrs["imputed"] == {"seasonalnaive": 0, "mine": 0}


def test_invalid_values_follow_the_chosen_policy_and_are_counted(make_results: Make) -> None:
    results = make_results(
        {"seasonalnaive": [(1, 1, 1)] * 4, "x": [(2, INF, 1), (NAN, 3, 1), (4, 5, 1), (6, 1, 1)], "y": [(9, 8, 7)] * 4}
    )

    def scaled(invalid: str) -> pd.DataFrame:
        return scale_by_baseline(results, invalid=invalid)  # type: ignore[arg-type]

    mean = scaled("column_mean").query("model == 'x'")
    assert (mean[MASE].tolist(), mean[CRPS].tolist()) == ([2, 4, 4, 6], [3, 3, 5, 1])
    worst = scaled("worst").query("model == 'x'")
    assert (worst[MASE].tolist(), worst[CRPS].tolist()) == ([2, 9, 4, 6], [8, 3, 5, 1])
    dropped = scaled("drop")
    assert sorted(dropped["dataset"].unique()) == ["s2/Short/short", "s3/Short/short"]
    for invalid in ("column_mean", "worst", "drop"):
        assert scaled(invalid).attrs["imputed"] == {"seasonalnaive": 0, "x": 2, "y": 0}
        assert leaderboard(results, invalid=invalid).attrs["imputed"]["x"] == 2
    assert leaderboard(results, invalid="drop").columns[0] == "MASE-2-scaled"


def test_the_worst_policy_leaves_out_what_no_model_has(make_results: Make) -> None:
    results = make_results({"seasonalnaive": [(1, INF, 1), (1, 1, 1)], "x": [(2, NAN, 1), (2, 2, 1)]})
    assert leaderboard(results, invalid="worst").columns[0] == "MASE-1-scaled"


@given(
    values=st.lists(st.lists(st.integers(0, 3), min_size=4, max_size=4), min_size=2, max_size=6),
    tie=st.sampled_from(["average", "first", "min"]),
)
@settings(max_examples=60, deadline=None)
def test_ranks_are_those_of_pandas_and_sum_up(values: list[list[int]], tie: str) -> None:
    matrix = np.array(values, dtype=float)
    found = ranks(matrix, tie)  # type: ignore[arg-type]
    np.testing.assert_array_equal(found, pd.DataFrame(matrix).rank(method=tie))
    n = len(matrix)
    assert (found.sum(0) == n * (n + 1) / 2).all() or tie == "min"


def test_average_ranks_do_not_depend_on_any_order_and_first_follows_the_given_one(make_results: Make) -> None:
    rows = {"b": [(1, 2, 1), (1, 2, 1)], "a": [(1, 2, 1), (1, 1, 1)], "c": [(1, 3, 1), (1, 3, 1)]}
    results = make_results(rows)
    assert rank(results).to_dict() == {"b": 1.75, "a": 1.25, "c": 3.0}
    assert rank(results, tie="first").to_dict() == {"b": 1.5, "a": 1.5, "c": 3.0}
    assert rank(results, tie="first", order=["a", "b", "c"]).to_dict() == {"b": 2.0, "a": 1.0, "c": 3.0}
    shuffled = results.sample(frac=1, random_state=0)
    assert rank(shuffled).to_dict() == rank(results).to_dict()
    with pytest.raises(ValueError, match="order must name every model once"):
        rank(results, tie="first", order=["a", "b"])


def test_shuffled_rows_give_the_same_table(published: pd.DataFrame) -> None:
    few = published[published["model"].isin(["toto", "seasonalnaive", "autoets"])]
    pd.testing.assert_frame_equal(leaderboard(few.sample(frac=1, random_state=0)), leaderboard(few), rtol=1e-12)


def test_a_model_of_ones_own_is_ranked_among_the_published_ones(published: pd.DataFrame) -> None:
    twin = published[published["model"] == "toto"].assign(model="mine")
    table = leaderboard(pd.concat([published, twin], ignore_index=True))
    assert len(table) == 24
    assert table.loc["mine"].tolist() == table.loc["toto"].tolist()
    assert list(table.index[4:6]) == ["toto", "mine"]


def test_numbers_print_with_three_decimals_and_in_short_form_from_100_on() -> None:
    table = pd.DataFrame({"a": [0.12345, 99.9994, 100.0, 12345.6]}, index=pd.Index(list("wxyz"), name="model"))
    assert format_table(table)["a"].tolist() == ["0.123", "99.999", "1.0e+02", "1.2e+04"]


def test_csv_is_unrounded_and_markdown_is_formatted(tmp_path: Path, published: pd.DataFrame) -> None:
    table = leaderboard(published)
    text = to_csv(table, tmp_path / "table.csv")
    back = pd.read_csv(tmp_path / "table.csv", index_col="model")
    pd.testing.assert_frame_equal(back, table, check_exact=False, rtol=1e-15)
    assert text == (tmp_path / "table.csv").read_text()
    lines = to_markdown(table).splitlines()
    assert len(lines) == 25
    assert lines[2].startswith("| toto_2.0_2.5b | 0.581 | 0.349 |")


def test_the_published_table_prints_to_the_last_digit(published: pd.DataFrame) -> None:
    table = format_table(leaderboard(published, tie="first", order=published_models()))
    # arXiv 2505.14766's leaderboard at the commit the results are of
    printed = {
        "timesfm_2_5_200m": ("0.632", "0.382"),
        "time_moe_50M": ("0.806", "0.649"),
        "visionts": ("0.988", "0.673"),
    }
    assert {model: tuple(table.loc[model].iloc[:2]) for model in printed} == printed


def test_breakdowns_count_a_configuration_in_each_of_its_domains(make_results: Make) -> None:
    names = ["a/Short/short", "b/Medium/short"]
    results = make_results({"seasonalnaive": [(1, 1, 1), (1, 1, 1)], "x": [(2, 3, 1), (8, 3, 1)]}, names)
    properties: dict[str, Any] = {
        "a": SeriesProperties(["Database", "Security"], "Short", 1, "short", "gauge"),
        "b": {"domain": "Database", "frequency": "Medium", "num_variates": 1, "term": "short", "type": "rate"},
    }
    found = breakdown(results, by=("domain", "type", "frequency", "full_benchmark"), properties=properties)
    domain = found["domain"]["MASE"].loc["x"].to_dict()
    assert domain == pytest.approx({"Database": 4, "Security": 2}, rel=1e-4)
    assert found["type"]["MASE"].loc["x"].to_dict() == pytest.approx({"gauge": 2, "rate": 8}, rel=1e-4)
    assert found["frequency"]["CRPS"].loc["x"].to_dict() == pytest.approx({"Medium": 3, "Short": 3})
    assert list(found["full_benchmark"].columns) == [("MASE", "full_benchmark"), ("CRPS", "full_benchmark")]
    with pytest.raises(ValueError, match="no properties of the series 'a': a breakdown by type needs them"):
        breakdown(results, by=("type",))


def test_intervals_hold_the_mean_shrink_with_data_and_follow_the_seed(published: pd.DataFrame) -> None:
    main, _ = split_degenerate(published)
    scaled = scale_by_baseline(main[main["model"].isin(["toto", "seasonalnaive"])])
    whole = bootstrap_ci(scaled, n_resamples=200)
    mean = shifted_gmean(scaled.loc[scaled["model"] == "toto", MASE])
    assert whole.loc["toto", "low"] < mean < whole.loc["toto", "high"]
    assert whole.loc["seasonalnaive"].tolist() == pytest.approx([1, 1], abs=1e-9)
    few = scaled[scaled["dataset"].isin(scaled["dataset"].unique()[:200])]
    small = bootstrap_ci(few, n_resamples=200)
    assert small.loc["toto", "high"] - small.loc["toto", "low"] > 2 * (
        whole.loc["toto", "high"] - whole.loc["toto", "low"]
    )
    pd.testing.assert_frame_equal(whole, bootstrap_ci(scaled, n_resamples=200))
    assert bootstrap_ci(published, n_resamples=5).notna().all().all()  # invalid values are replaced here too
    with pytest.raises(ValueError, match="leaves a model without a value"):
        bootstrap_ci(scaled.assign(**{MASE: NAN}))
    with pytest.raises(ValueError, match="level must be between 0 and 1"):
        bootstrap_ci(scaled, level=95)


def test_win_rate_and_skill_score(make_results: Make) -> None:
    scaled = make_results({"seasonalnaive": [(1, 1, 1)] * 2, "x": [(1, 0.5, 1), (1, 1, 1)], "y": [(1, 2, 1)] * 2})
    assert win_rate(scaled).to_dict() == pytest.approx({"seasonalnaive": 0.625, "x": 0.875, "y": 0.0})
    assert skill_score(scaled).to_dict() == pytest.approx(
        {"seasonalnaive": 0, "x": 1 - math.sqrt(0.5), "y": -1}, abs=1e-4
    )
    with pytest.raises(ValueError, match="scale_by_baseline first"):
        skill_score(scaled.assign(**{CRPS: 2.0}))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda r: r.iloc[:-1], ["'y' has no result for 1 of 2", "'s1/Short/short'"]),
        (lambda r: pd.concat([r, r.iloc[-1:]]), ["'y' has more than one result", "'s1/Short/short'"]),
        (lambda r: r[r.model != "seasonalnaive"], ["'seasonalnaive'", "there are x, y"]),
        (
            lambda r: r[~((r.model == "seasonalnaive") & (r.dataset == "s1/Short/short"))],
            ["'seasonalnaive' has no result"],
        ),
        (lambda r: r.drop(columns=CRPS), ["lack the column", CRPS]),
        (lambda r: r.iloc[:0], ["no result"]),
        (lambda r: r.assign(**{MASE: "many"}), ["must hold numbers"]),
    ],
)
def test_results_that_cannot_be_compared_are_refused(
    spoil: Callable[[pd.DataFrame], pd.DataFrame], words: list[str], make_results: Make
) -> None:
    results = make_results({"seasonalnaive": [(1, 1, 1)] * 2, "x": [(1, 1, 1)] * 2, "y": [(1, 1, 1)] * 2})
    with pytest.raises(ValueError) as caught:
        leaderboard(spoil(results))
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tie": "last"}, "average, first, min"),
        ({"invalid": "zero"}, "column_mean, worst, drop"),
        ({"boomlet": True}, "BOOMLET"),
    ],
)
def test_unknown_policies_name_the_known_ones(options: dict[str, object], words: str, make_results: Make) -> None:
    with pytest.raises(ValueError, match=words):
        leaderboard(make_results({"seasonalnaive": [(1, 1, 1)]}), **options)  # type: ignore[arg-type]


def test_series_that_are_all_zero_leave_no_nan_in_the_table(make_results: Make) -> None:
    zero = [(1.0, 0.5, 2.0), (NAN, NAN, 0.0), (NAN, INF, 0.0)]
    table = leaderboard(make_results({"seasonalnaive": zero, "mine": zero}))
    assert list(table.columns) == ["MASE-1-scaled", "CRPS-1-scaled", "Rank-1-scaled", f"{MAE}-2-unscaled"]
    assert table.notna().all().all()
    assert format_table(table).loc["mine"].tolist() == ["1.000", "1.000", "1.500", "0.000"]
    alone = leaderboard(make_results({"seasonalnaive": zero[1:], "mine": zero[1:]}))
    assert alone.to_dict() == {f"{MAE}-2-unscaled": {"seasonalnaive": 0.0, "mine": 0.0}}
