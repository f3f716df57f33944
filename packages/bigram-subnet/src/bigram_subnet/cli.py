"""The command `bigram-subnet`: count, train, evaluate, ablate, overlap, rotate, show, convert, generate."""

from __future__ import annotations

import logging
from typing import NoReturn

import typer

from bigram_subnet import commands
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
    from bigram_subnet.training.parsing import parse  # whose parser is transformers'

    arguments = parse(context.args)
    from bigram_subnet import train  # with torch: behind help and mistakes in flags

    train.run(arguments)


def main() -> NoReturn:
    """The console command. Exits with 2 after a user's mistake and with 130 after Ctrl-C."""
    # torchao, which transformers imports where it is installed, is told there that its enums need no registration
    logging.getLogger("torch.utils._pytree").setLevel(logging.ERROR)
    cli.run(app)
