"""The commands of the command line, in the order of the help, and those that show what the library can do."""
# ruff: noqa: PLC0415 - each command imports what it needs, so that --help and --version answer at once

from __future__ import annotations

from functools import partial
from inspect import cleandoc
from textwrap import dedent, indent
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from coldparquet import __version__
from coldparquet.cli import question_commands, verbs
from coldparquet.cli.failures import EXIT_CODES_TEXT, reported_failures, reported_usage
from coldparquet.cli.flags import Json  # noqa: TC001 - typer reads annotations

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from click.shell_completion import CompletionItem


class _Help:
    """What the help of all commands and of their groups has in common."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Hide the types of flags, and of arguments, whose names say more; complete values that the help lists."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_flag", False):
                param.metavar = ""
            elif param.param_type_name == "argument":
                param.display_type_rich = _no_type
            elif "|" in (param.metavar or ""):
                param.shell_complete = partial(_beginning_so, param.metavar.split("|"))
        return params

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print it; ``--help | head`` may have seen enough before the end."""
        try:
            super().format_help(ctx, formatter)  # type: ignore[misc]
        except SystemExit:  # of the console of rich
            raise typer.Exit(0) from None


def _no_type(ctx: Any) -> None:
    """Show no type."""


def _beginning_so(values: Sequence[str], _ctx: Any, incomplete: str) -> list[CompletionItem]:
    """Return the values that a shell may put in the place of what was typed."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(value) for value in values if value.startswith(incomplete)]


class _Commands(_Help, TyperGroup):
    """All commands; wrong usage of any of them passes through here."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[_AS_JSON] = "--json" in args
        with reported_usage(as_json=ctx.meta[_AS_JSON]):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with reported_usage(as_json=ctx.meta[_AS_JSON]):
            return super().invoke(ctx)


_AS_JSON = "coldparquet.as_json"
_SETTINGS = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    cls=_Commands,
    help="Read a few columns of a short time range from Parquet on S3 with a dozen requests.",
    epilog=f"URL is a local path, s3://bucket/path or anything else that fsspec knows.\n\n{EXIT_CODES_TEXT}",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings=_SETTINGS,
)


_ADVICE_ON_WORDS_LEFT_OVER = {
    ("--where", "-w"): "; put a condition in double quotes: --where \"device = 'a'\"",
    ("--columns", "-c"): "; separate columns by commas: --columns time,device",
}
"""For the flags whose value the shell splits into several words, unless it is written like this."""


class _Command(_Help, TyperCommand):
    """A command that says how to write what the shell took apart."""

    allow_extra_args = True  # so that they are refused here

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Write ``LAKE...`` for what typer writes as ``{LAKE...}...``."""
        pieces: list[str] = super().collect_usage_pieces(ctx)
        return [piece.lstrip("{").replace("}...", "").rstrip("}") for piece in pieces]

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
        typer.echo(f"coldparquet {__version__}")
        raise typer.Exit


@app.callback()
def coldparquet(
    _version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version."),
    ] = False,
) -> None:
    """Read a few columns of a short time range from Parquet on S3 with a dozen requests."""


def demo(
    days: Annotated[int, typer.Option(min=1, max=366, metavar="DAYS", help="Days of trades to make.")] = 365,
    as_json: Json = False,
) -> None:
    """See it work on a year of trades, side by side with pyarrow.

    Examples:
        coldparquet demo
        coldparquet demo --days 30
    """
    with reported_failures(as_json=as_json):
        from coldparquet_testing.demo import run_demo

        run_demo(days=days, as_json=as_json)


def bench(
    workloads: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WORKLOAD",
            help="day, year, needle, scan, wide, faults, prices, row-groups, late: all of these if none is given; engines, hive, index,"
            " planning, spark: only if asked for.",
        ),
    ] = None,
    *,
    question: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT", help="Only questions whose name begins with this, such as 'W2:'; may be repeated."
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, metavar="N", help="Fresh processes per reader.")] = 3,
    small: Annotated[
        bool, typer.Option("--small", help="Less data: done in seconds, but the results are not representative.")
    ] = False,
    data: Annotated[
        str | None, typer.Option(metavar="DIRECTORY", help="Keep the data there, up to 3 GB, for the next run.")
    ] = None,
    before: Annotated[
        str | None,
        typer.Option(
            metavar="DIRECTORY",
            help="Also measure the checkout of this library in that directory, but not in Spark, nor index.",
        ),
    ] = None,
    pictures: Annotated[str | None, typer.Option(metavar="DIRECTORY", help="Draw the results there, as SVG.")] = None,
    output: Annotated[str | None, typer.Option("--output", "-o", metavar="FILE", help="Results as JSON.")] = None,
    redraw: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="Measure nothing: draw the --pictures of results that --output wrote."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure this library and every other reader that is installed, in turn, on a simulated cold store.

    Examples:
        coldparquet bench day needle --small
        coldparquet bench --question W2: --output results.json
        coldparquet bench --question W2: --before ../before
    """
    with reported_failures(as_json=as_json):
        from coldparquet_bench.command import bench_and_report, redraw_pictures

        if redraw:
            redraw_pictures(redraw, question or (), pictures)
            return
        bench_and_report(
            workloads,
            questions=question or (),
            rounds=rounds,
            is_small=small,
            data_directory=data,
            before_directory=before,
            pictures_directory=pictures,
            output=output,
            as_json=as_json,
        )


def _add(commands: typer.Typer, command: Callable[..., None], *, group: str | None = None) -> None:
    """Add a command, with its docstring as help: a paragraph is one line, which the terminal breaks; examples come last."""
    text, _, examples = cleandoc(command.__doc__ or "").partition("Examples:\n")
    paragraphs = (" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n"))
    commands.command(
        command.__name__.removesuffix("_lakes"),
        cls=_Command,
        help="\n\n".join(paragraphs),
        epilog=f"Examples:\n\n{indent(dedent(examples), '    ')}" if examples else None,
        rich_help_panel=group,
    )(command)


_GROUPS: dict[str, tuple[Callable[..., None], ...]] = {
    "Read": (question_commands.scan, question_commands.count),
    "Look": (question_commands.explain, question_commands.inspect, verbs.verify),
    "Prepare": (verbs.index, verbs.pack, verbs.migrate, verbs.compact),
    "Move": (verbs.publish, verbs.convert, verbs.tier, question_commands.restore),
    "Try": (demo, bench),
}
"""The commands as the help shows them."""

for group, commands_of_group in _GROUPS.items():
    for command in commands_of_group:
        _add(app, command, group=group)

pipeline = typer.Typer(
    help="The former name of index, verify and the others over whole lakes; the same commands.",
    epilog="Running one again does only what is left. Exits with 1 if anything failed.",
    no_args_is_help=True,
    context_settings=_SETTINGS,
)
"""Below spark-submit: ``spark-submit .../pyspark_coldparquet/submit.py index s3://bucket/db``."""

for command in (
    verbs.index,
    verbs.verify,
    verbs.migrate,
    verbs.pack,
    verbs.compact,
    verbs.publish_lakes,
    verbs.tier,
    verbs.convert,
):
    _add(pipeline, command)
app.add_typer(pipeline, name="pipeline", hidden=True)
