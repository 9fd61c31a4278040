"""The commands of the command line, in the order of the help."""

from __future__ import annotations

from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from coldparquet.cli import question_commands, showing_commands, verbs
from coldparquet.text import visible_lines

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def _visible_refusals() -> Iterator[None]:
    """Let what is said of wrong usage, which repeats the words of the caller, steer no terminal."""
    try:
        yield
    except Exception as error:
        message = getattr(error, "message", None)
        if hasattr(error, "format_message") and isinstance(message, str):  # one of click, or of typer's own copy of it
            error.message = visible_lines(message)  # type: ignore[attr-defined]
        raise


class _Commands(TyperGroup):
    """All commands; wrong usage of any of them passes through here."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with _visible_refusals():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with _visible_refusals():
            return super().invoke(ctx)


app = typer.Typer(
    cls=_Commands,
    help="Selective questions over cold Parquet partitions, with the fewest requests, bytes and dollars.",
    epilog="URLs are local paths, s3://bucket/path or anything else that fsspec knows.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


_ADVICE_ON_WORDS_LEFT_OVER = {
    ("--where", "-w"): "; put a condition in double quotes: --where \"device = 'a'\"",
    ("--columns", "-c"): "; separate columns by commas: --columns time,device",
}
"""For the flags whose value the shell splits into several words, unless it is written like this."""


class _Command(TyperCommand):
    """A command that says how to write what the shell took apart."""

    allow_extra_args = True  # so that they are refused here

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = tuple(args)  # parsing may use up the list
        left_over: list[str] = super().parse_args(ctx, args)
        if left_over:
            advice = (
                text
                for flags, text in _ADVICE_ON_WORDS_LEFT_OVER.items()
                if any(word.startswith(flags) for word in words)
            )
            ctx.fail(f"Got unexpected extra argument(s) ({' '.join(left_over)}){next(advice, '')}")
        return left_over


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
    verbs.index,
    verbs.migrate,
    verbs.compact,
    verbs.pack,
    verbs.verify,
    question_commands.restore,
    verbs.publish,
    verbs.tier,
    verbs.convert,
    showing_commands.demo,
    showing_commands.bench,
):
    app.command(cls=_Command)(command)
app.add_typer(verbs.pipeline, name="pipeline")
