"""Results of many models: reading, the degenerate part, scaling, ranks, the table, breakdowns, intervals."""

from boom_bench.leaderboard.degenerate import degenerate_series, split_degenerate
from boom_bench.leaderboard.groups import breakdown
from boom_bench.leaderboard.page import to_html
from boom_bench.leaderboard.ranks import rank
from boom_bench.leaderboard.results import load_results, read_results
from boom_bench.leaderboard.scaling import scale_by_baseline, shifted_gmean
from boom_bench.leaderboard.table import format_table, leaderboard, to_csv, to_markdown
from boom_bench.leaderboard.uncertainty import bootstrap_ci, skill_score, win_rate

__all__ = [
    "bootstrap_ci",
    "breakdown",
    "degenerate_series",
    "format_table",
    "leaderboard",
    "load_results",
    "rank",
    "read_results",
    "scale_by_baseline",
    "shifted_gmean",
    "skill_score",
    "split_degenerate",
    "to_csv",
    "to_html",
    "to_markdown",
    "win_rate",
]
