"""``python -m toto_ts``: the command `toto-ts`."""

from toto_ts.cli import main

main()
