"""The command line: its commands in the order of the help. What a command does is in the module that it imports."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from coldparquet.cli import pipeline_commands, publishing_commands, question_commands, showing_commands, upkeep_commands

app = typer.Typer(
    help="Selective questions over cold Parquet partitions, with the fewest requests, bytes and dollars.",
    epilog="URLs are local paths, s3://bucket/path or anything else that fsspec knows.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"coldparquet {version('coldparquet')}")
        raise typer.Exit


@app.callback()
def coldparquet(
    _version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version."),
    ] = False,
) -> None:
    """Selective questions over cold Parquet partitions, with the fewest requests, bytes and dollars."""


for command in (
    question_commands.inspect,
    question_commands.explain,
    question_commands.scan,
    question_commands.count,
    upkeep_commands.index,
    upkeep_commands.migrate,
    upkeep_commands.compact,
    upkeep_commands.pack,
    upkeep_commands.verify,
    upkeep_commands.restore,
    publishing_commands.publish,
    showing_commands.demo,
    showing_commands.bench,
):
    app.command()(command)
app.add_typer(pipeline_commands.pipeline, name="pipeline")
