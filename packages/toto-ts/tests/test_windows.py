"""How series are cut for training: the split by time, windows, batches."""

from __future__ import annotations

import numpy as np
import torch

from nips_common.testing.bad_input import BadInput, bad_inputs
from toto_ts.windows import (
    TrainingWindows,
    ValidationWindows,
    collate,
    read_series,
    split_series,
    window,
)

PATCH = 8


def ramp(variates: int, steps: int) -> np.ndarray:
    """Each value says where it stands: 1000 times the variate plus the step."""
    return 1000.0 * np.arange(variates)[:, None] + np.arange(steps)


def test_the_end_of_a_series_is_for_testing_and_the_patch_before_it_for_validation() -> None:
    split = split_series(read_series([ramp(2, 101)]), PATCH, 10, 3, 0.1)
    assert split.train_lengths == [101 - 11 - 8]
    assert split.context_length == 24
    (validation,) = [ValidationWindows(split, PATCH)[0]]
    assert validation.series[0].tolist() == list(range(82 - 24, 90))


def test_short_series_are_dropped_and_the_context_is_clipped_to_the_shortest_left() -> None:
    lengths = [200, 60, 40, 30]
    split = split_series(read_series([ramp(1, n) for n in lengths]), PATCH, 5, 8, 0.1)
    # 40 steps: 4 for testing are fewer than the horizon; 60: 6 and 8 leave 46, five patches
    assert [entry.length for entry in split.series] == [200, 60]
    assert split.dropped == 2
    assert split.context_length == (46 // 8 - 1) * PATCH


def test_windows_stay_in_the_training_part_and_cover_it() -> None:
    split = split_series(read_series([ramp(1, 80), ramp(1, 200)]), PATCH, 0, 2, 0.1)
    windows = TrainingWindows(split, PATCH, windows_per_series=50, count=400, seed=1)
    firsts: dict[int, list[int]] = {80: [], 200: []}
    for i in range(400):
        values = windows[i].series[0]
        assert values.tolist() == list(range(int(values[0]), int(values[0]) + 24))
    for i in range(400):
        epoch, place = divmod(i, 100)
        which = int(np.random.default_rng([1, 0, epoch]).permutation(100)[place]) % 2
        firsts[[80, 200][which]].append(int(windows[i].series[0, 0]))
    assert len(firsts[80]) == len(firsts[200]) == 200
    assert (min(firsts[80]), max(firsts[80])) == (0, 80 - 8 - 8 - 24)
    assert min(firsts[200]) < 10
    assert 140 < max(firsts[200]) <= 200 - 20 - 8 - 24


def test_a_window_depends_on_seed_and_index_alone() -> None:
    split = split_series(read_series([ramp(1, 200)]), PATCH, 0, 2, 0.1)
    one, two, other = (TrainingWindows(split, PATCH, 10, count, seed) for count, seed in ((50, 3), (90, 3), (50, 4)))
    assert all(torch.equal(one[i].series, two[i].series) for i in reversed(range(50)))
    assert any(not torch.equal(one[i].series, other[i].series) for i in range(50))


def test_exogenous_values_are_one_patch_early_and_end_unknown() -> None:
    (entry,) = read_series([{"target": ramp(2, 40), "exogenous": ramp(1, 40) + 5000}])
    w = window(entry, 3, 16, PATCH)
    assert w.num_exogenous_variables == 1
    assert w.series[0].tolist() == list(range(3, 27))
    assert w.series[2].tolist() == [*range(5011, 5027), *[0] * 8]
    assert w.padding_mask[2].tolist() == [True] * 16 + [False] * 8
    assert w.series[0, w.target_slice].tolist() == list(range(11, 27))


def test_a_batch_of_unequal_width_gets_masked_variates_of_their_own_groups() -> None:
    entries = read_series([{"target": ramp(n, 40), "exogenous": ramp(1, 40)} for n in (1, 3)])
    batch = collate([window(entry, 0, 16, PATCH) for entry in entries])
    assert batch["series"].shape == (2, 4, 24)
    assert batch["num_exogenous"] == 1
    assert batch["id_mask"][0, :, 0].tolist() == [-1, -2, 0, 0]
    assert not batch["padding_mask"][0, :2].any()
    counts = (batch["labels"] != -100).sum(-1)
    assert counts.tolist() == [[0, 0, 16, 0], [16, 16, 16, 0]]


def test_missing_targets_do_not_count() -> None:
    series = ramp(1, 40)
    series[0, 12] = np.nan
    batch = collate([window(read_series([series])[0], 0, 16, PATCH)])
    assert (batch["labels"] != -100)[0, 0].tolist() == [i != 4 for i in range(16)]


@bad_inputs(
    [
        BadInput("one array", lambda: read_series(ramp(1, 9)), ("a list of series", "ndarray", "into a list")),
        BadInput("nothing", lambda: read_series([]), ("no series",)),
        BadInput("no target", lambda: read_series([{"values": ramp(1, 9)}]), ("series 0", "'values'")),
        BadInput("cube", lambda: read_series([np.zeros((1, 2, 3))]), ("series 0", "(1, 2, 3)")),
        BadInput("infinite", lambda: read_series([ramp(1, 9), np.full((1, 9), np.inf)]), ("series 1", "infinity")),
        BadInput("missing only", lambda: read_series([np.full((1, 9), np.nan)] * 2), ("none of the 2 series", "NaN")),
        BadInput(
            "uneven exogenous",
            lambda: read_series([{"target": ramp(1, 9), "exogenous": ramp(1, 8)}]),
            ("series 0", "9 steps", "8"),
        ),
        BadInput(
            "exogenous of one only",
            lambda: read_series([{"target": ramp(1, 9), "exogenous": ramp(1, 9)}, ramp(1, 9)]),
            ("same number of exogenous", "[0, 1]"),
        ),
        BadInput(
            "too short",
            lambda: split_series(read_series([ramp(1, 30), ramp(1, 25)]), PATCH, 0, 8, 0.1),
            ("no series is long enough", "30 steps", "24 must remain"),
        ),
    ]
)
def test_series_that_do_not_fit_are_named(case: BadInput) -> None:
    case.check()
