"""What all commands share when they print: consoles, JSON lines, small tables, numbers for people."""

from __future__ import annotations

import json
import logging
import sys
import textwrap
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from coldparquet.plan.finding import with_remedy
from coldparquet.visible_text import visible, visible_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from rich.console import ConsoleOptions, RenderableType

Thing = TypeVar("Thing")

_MOST_LISTED = 20
"""Lines of one kind that a command prints before it says how many more there are."""
_PLAIN_WIDTH = 100
"""Columns of text that goes into a file or a pipe."""
_HANGING_INDENT = " " * 14
"""Where the facts of a plan begin, behind their labels."""


_FLAGS_FOR_PYTHON = {
    " or Scan.restore(); ReadOptions(archived='skip') leaves": "; --archived skip leaves",
    "give ReadOptions.prices a table that has one (PriceTable.read), or leave max_usd out": (
        "give --prices a table that has one, or leave --max-usd out"
    ),
    "in a cheaper tier (RestoreTerms.tier)": "in a cheaper tier (--tier)",
    "give key and secret or a profile in storage_options": "give key and secret or a profile with --storage-option",
    "pass anon=True": "use --anon",
}
"""Advice of the library to people who write Python, and what it is for those at the command line."""
_READ_FLAGS_FOR_PYTHON = {
    "ReadOptions(sidecars=False)": "--no-sidecars",
    "ReadOptions(unread='skip')": "--unread skip",
    "ReadOptions(columns_from='all')": "--columns-from all",
}
"""The same, for flags that only ``scan``, ``count`` and ``explain`` have."""
has_read_flags: ContextVar[bool] = ContextVar("has_read_flags", default=False)
"""Whether the command that runs has them."""


def in_flags(message: str) -> str:
    """Say advice to people who write Python in the flags of the command that runs, or of ``scan`` where it lacks them."""
    for python, flags in _FLAGS_FOR_PYTHON.items():
        message = message.replace(python, flags)
    for python, flag in _READ_FLAGS_FOR_PYTHON.items():
        message = message.replace(python, flag if has_read_flags.get() else f"'coldparquet scan {flag}'")
    return message


class _VisibleConsole(Console):
    """A console that shows control characters of what it prints on a terminal as pictures; colours are its own."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        segments = super().render(renderable, options)
        if not self.is_terminal:
            return segments
        return (part if part.control else Segment(visible_lines(part.text), part.style) for part in segments)


def output_console() -> Console:
    """Return the console of standard output. Text is printed as it is: names may hold brackets and colons."""
    width = None if sys.stdout.isatty() else _PLAIN_WIDTH
    return _VisibleConsole(file=sys.stdout, width=width, markup=False, highlight=False, emoji=False)


@cache
def error_console() -> Console:
    """Return the console of standard error, which progress bars and warnings share."""
    return _VisibleConsole(stderr=True, markup=False, highlight=False, emoji=False)


def print_json(value: Mapping[str, Any]) -> None:
    """Print one value as one line of JSON."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")


def facts_table() -> Table:
    """Return an empty table of labels and values, without lines."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    return table


def print_plan(text: str) -> None:
    """Print a plan's explanation; on a terminal that is narrower, lines are broken between words."""
    text = in_flags(text)
    if sys.stdout.isatty():
        text = wrap_long_lines(text, output_console().width)
    sys.stdout.write(text + "\n")


def wrap_long_lines(text: str, width: int) -> str:
    """Break the lines that are too long between words, and let what follows begin where the facts of a plan do."""
    lines = (
        [line]
        if len(line) <= width
        else textwrap.wrap(
            line, width, subsequent_indent=_HANGING_INDENT, break_long_words=False, break_on_hyphens=False
        )
        for line in text.split("\n")
    )
    return "\n".join(part for parts in lines for part in parts)


def action_word(action: str) -> str:
    """Say what was done to a partition as people understand it without context; most actions say it themselves."""
    return "unchanged" if action == "kept" else action


def print_listed(
    console: Console, table_of: Callable[[Sequence[Thing]], Table], things: Sequence[Thing], *, noun: str = ""
) -> None:
    """Print a table of the first things, how many more of them there are, and an empty line; nothing if there are none.

    Args:
        console: Where to.
        table_of: Makes a table of some of them.
        things: All of them.
        noun: What they are, where the table does not tell.
    """
    if not things:
        return
    console.print(table_of(things[:_MOST_LISTED]))
    if len(things) > _MOST_LISTED:
        more = f"{len(things) - _MOST_LISTED:,} more {noun}".rstrip()
        console.print(Text(f"... and {more}; --json shows all", style="dim"))
    console.print()


def print_findings(console: Console, findings: Sequence[Mapping[str, Any]]) -> None:
    """Print findings, as dictionaries, that are not about one partition, each with what to do about it."""
    for finding in findings:
        severity, remedy = finding["severity"], finding["remedy"]
        style = "bold red" if severity == "error" else "yellow"
        text = in_flags(with_remedy(finding["message"], remedy))
        console.print(Text(f"{severity}: ", style=style) + Text(visible(text)))


@contextmanager
def warnings_printed() -> Iterator[None]:
    """Print on standard error what the library warns of meanwhile."""
    logger, handler = logging.getLogger("coldparquet"), _Warnings(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _Warnings(logging.Handler):
    """Prints log messages, above the progress bars if there are any."""

    def emit(self, record: logging.LogRecord) -> None:
        console = error_console()
        console.print(f"{record.levelname.lower()}:", style="bold yellow", end=" ")
        console.print(visible(in_flags(record.getMessage())), soft_wrap=True)


def progress_bar() -> Progress:
    """Return progress bars on standard error, which show nothing unless that is a terminal.

    Each task is added with a ``unit``: ``progress.add_task("reading", total=9, unit="MB")``.
    """
    console = error_console()
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
        redirect_stdout=False,  # rich would print colours and links of others as its own
        redirect_stderr=False,
    )
