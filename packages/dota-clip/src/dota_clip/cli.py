"""The command `dota-clip`: adapt, extract, run."""

from __future__ import annotations

from typing import NoReturn

from dota_clip import adapt, extract, run
from nips_common import cli

app = cli.make_app(
    "dota-clip",
    "dota-clip",
    "Distributional test-time adaptation (DOTA) of CLIP-like classifiers to unlabelled images, without gradients.",
)
app.command("adapt")(adapt.command)
app.command("extract")(extract.command)
app.command("run")(run.command)


def main() -> NoReturn:
    """The console command."""
    cli.run(app)
