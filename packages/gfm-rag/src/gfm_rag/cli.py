"""The command `gfm-rag`: index, import-triples, remove, report, pretrain, finetune, evaluate, ask, explain, convert."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NoReturn

import typer

from gfm_rag import index_commands, model_commands, train
from nips_common import cli

app = cli.make_app(
    "gfm-rag", "gfm-rag", "A knowledge-graph index over documents and one graph network that retrieves from it."
)
_COMMANDS: dict[str, Callable[..., None]] = {
    "index": index_commands.index_documents,
    "import-triples": index_commands.import_triples,
    "remove": index_commands.remove_documents,
    "report": index_commands.report_index,
    "ask": model_commands.ask,
    "explain": model_commands.explain_entity,
    "evaluate": model_commands.evaluate,
    "convert": model_commands.convert,
}
for name, command in _COMMANDS.items():
    app.command(name)(command)


_FREE = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


@app.command("pretrain", context_settings=_FREE)
def pretrain(context: typer.Context) -> None:
    """Stage 1: --index ... --output_dir ... (--help lists all options)."""
    train.run("pretrain", context.args)


@app.command("finetune", context_settings=_FREE)
def finetune(context: typer.Context) -> None:
    """Stage 2: --index ... --questions ... --output_dir ... (--help lists all options)."""
    train.run("finetune", context.args)


def main() -> NoReturn:
    """The console command."""
    cli.run(app, sys.argv[1:])
