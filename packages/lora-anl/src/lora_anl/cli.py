"""The command `lora-anl`; its subcommands are in `commands.py` and need the extra `train`."""

from __future__ import annotations

from typing import NoReturn

from nips_common import cli
from nips_common.runtime import require


def main() -> NoReturn:
    """The console command."""
    with cli.user_errors("lora-anl"):
        require("nips_finetune", "lora-anl[train]")
        from lora_anl.commands import app
    cli.run(app)
