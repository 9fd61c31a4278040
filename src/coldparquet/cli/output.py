"""What commands print and how they end: consoles, JSON lines, tables of facts, files in place, failures and exit codes."""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
import textwrap
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from coldparquet.catalog.findings import with_remedy
from coldparquet.errors import ColdParquetError, NotFoundError, UnsupportedError
from coldparquet.text import visible, visible_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from rich.console import ConsoleOptions, JustifyMethod, RenderableType


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
    "ReadOptions(format='delta')": "--format delta",
    "ReadOptions(format='iceberg')": "--format iceberg",
    "ReadOptions(timestamp='...')": "--timestamp COLUMN",
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


def lines_table(
    *headers: str, right: Collection[str] = (), no_wrap: Collection[str] = (), width: int | None = None, indent: int = 0
) -> Table:
    """Return an empty table with a line for each thing; numbers are put to the right, and long texts are broken."""
    has_headers = any(header.strip() for header in headers) or not headers
    padding = (0, 0, 0, indent) if indent else (0, 2, 0, 0)
    table = Table(box=None, show_header=has_headers, header_style="bold", padding=padding, width=width)
    for header in headers:
        justify: JustifyMethod = "right" if header in right else "left"
        table.add_column(header, justify=justify, no_wrap=header in no_wrap, overflow="fold")
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
    """Print a table of the first things, how many more of them there are, and an empty line; nothing if there are none."""
    if not things:
        return
    console.print(table_of(things[:_MOST_LISTED]))
    print_more(console, len(things) - _MOST_LISTED, noun=noun)
    console.print()


def print_more(console: Console, count: int, *, noun: str = "", indent: int = 0) -> None:
    """Say how many more things there are than were listed; nothing if there are none."""
    if count > 0:
        more = f"{count:,} more {noun}".rstrip()
        console.print(Text(f"{' ' * indent}... and {more}; --json shows all", style="dim"))


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


FAILED = 1
INTERRUPTED = 130
"""What shells use for a command that was ended by Ctrl-C: 128 + SIGINT."""


@contextmanager
def reported_failures(*, as_json: bool, reads: bool = False) -> Iterator[None]:
    """Run the body of a command; turn what it raises into a message and an exit code."""
    token = has_read_flags.set(reads)
    try:
        with warnings_printed():
            yield
        sys.stdout.flush()
    except ColdParquetError as error:
        report(error, as_json=as_json)
        raise typer.Exit(FAILED) from None
    except BrokenPipeError:
        # ``| head`` has seen enough. The interpreter flushes once more at its end and must find an open file then.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None
    except OSError as error:
        # Not from a store, whose errors are ours: the disk that the output goes to.
        report(
            ColdParquetError(error.strerror or str(error), kind="OutputFailed", path=error.filename), as_json=as_json
        )
        raise typer.Exit(FAILED) from None
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("coldparquet"):
            raise
        extras = "cli,spark" if error.name.partition(".")[0] == "pyspark" else "cli,s3"
        missing = f"this command needs the package {error.name}: pip install 'coldparquet[{extras}]'"
        report(UnsupportedError(missing, kind="MissingPackage"), as_json=as_json)
        raise typer.Exit(FAILED) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    finally:
        has_read_flags.reset(token)


def report(error: ColdParquetError, *, as_json: bool) -> None:
    """Print one error: as a JSON line on standard output, or in red on standard error."""
    if as_json:
        facts = error.as_dict()
        print_json({"error": {**facts, "message": in_flags(facts["message"])}})
        return
    console = error_console()
    console.print("error:", style="bold red", end=" ")
    console.print(in_flags(str(error)), style="red", soft_wrap=True)


@contextmanager
def file_in_place(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file beside ``path``; it becomes ``path`` when the block ends well and vanishes when not."""
    if not path.parent.is_dir():
        raise NotFoundError("the directory for the output does not exist; make it first", path=str(path.parent))
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            # Temporary files are private; the finished one gets what a plain open would have given it.
            os.fchmod(file.fileno(), 0o666 & ~_umask())
            yield file
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
