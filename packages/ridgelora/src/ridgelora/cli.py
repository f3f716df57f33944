"""The command `ridgelora`; its subcommands are in `commands.py` and need the extra `train`."""

from __future__ import annotations

from typing import NoReturn

from nips_common import cli
from nips_common.runtime import require


def main() -> NoReturn:
    """The console command."""
    with cli.user_errors("ridgelora"):
        require("nips_finetune", "ridgelora[train]")
        from ridgelora.commands import app
    cli.run(app)
