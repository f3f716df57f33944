"""The command `bigram-subnet`: count, train, evaluate, ablate, overlap, rotate, show, convert, generate."""

from __future__ import annotations

import sys
from typing import NoReturn

import typer
from transformers.utils.logging import disable_progress_bar

from bigram_subnet import commands, train
from nips_common import cli

app = cli.make_app(
    "bigram-subnet",
    "bigram-subnet",
    "Bigram subnetworks: minimal circuits of causal language models, and tests with them.",
)
for command in (
    commands.count, commands.evaluate, commands.ablate, commands.overlap, commands.rotate, commands.show,
    commands.convert, commands.generate,
):  # fmt: skip
    app.command(command.__name__)(command)


@app.command(
    "train", context_settings={"allow_extra_args": True, "ignore_unknown_options": True}, add_help_option=False
)
def train_command(context: typer.Context) -> None:
    """Train masks (flags or a YAML file; see `bigram-subnet train --help`)."""
    train.main(context.args)


def main() -> NoReturn:
    """The console command. Exits with 130 after Ctrl-C; loading bars are for terminals only."""
    if not sys.stderr.isatty():
        disable_progress_bar()
    if sys.argv[1:2] != ["train"]:  # its flags are HfArgumentParser's
        cli.run(app)
    try:
        train.main(sys.argv[2:])
    except KeyboardInterrupt:
        print("bigram-subnet train: interrupted; add --resume to go on from the last checkpoint", file=sys.stderr)
        raise SystemExit(130) from None
    raise SystemExit(0)
