"""``python -m boom_bench``: the command `boom-bench`."""

from boom_bench.cli import main

main()
