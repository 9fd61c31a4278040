"""What commands print and write: consoles, JSON lines, tables of facts, files in place."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import textwrap
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from coldparquet.catalog.findings import with_remedy
from coldparquet.cli.advice import in_flags
from coldparquet.errors import NotFoundError
from coldparquet.progress import VisibleConsole
from coldparquet.text import shortened, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from rich.console import Console, ConsoleOptions, JustifyMethod

    from coldparquet.plan.model import ReadPlan


Thing = TypeVar("Thing")

_MOST_LISTED = 20
"""Lines of one kind that a command prints before it says how many more there are."""
_PLAIN_WIDTH = 100
"""Columns of text that goes into a file or a pipe."""
_HANGING_INDENT = 14
"""Where the facts of a plan begin, behind their labels."""


def output_console() -> Console:
    """Return the console of standard output. Text is printed as it is: names may hold brackets and colons."""
    width = None if sys.stdout.isatty() else _PLAIN_WIDTH
    return VisibleConsole(file=sys.stdout, width=width, markup=False, highlight=False, emoji=False)


def print_json(value: Mapping[str, Any]) -> None:
    """Print one value as one line of JSON."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")


class Name:
    """A name in a table: a terminal without room for all of it shows both ends."""

    def __init__(self, text: str) -> None:
        self.text = visible(text)

    def __rich_measure__(self, _console: Console, _options: ConsoleOptions) -> Measurement:
        return Measurement(min(len(self.text), _LEAST_OF_A_NAME), len(self.text))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[Text]:
        yield Text(shortened(self.text, options.max_width) if console.is_terminal else self.text)


_LEAST_OF_A_NAME = 16


def print_sentence(console: Console, text: Text) -> None:
    """Print a line that a terminal breaks between words, and nothing else breaks."""
    console.print(text, soft_wrap=not console.is_terminal)


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


def plan_text(plan: ReadPlan, width: int | None) -> str:
    """Explain a plan; in ``width`` columns, if that is given."""
    text = in_flags(plan.explain(width=width))
    return text if width is None else wrap_long_lines(text, width)


def wrap_long_lines(text: str, width: int) -> str:
    """Break the lines that are too long between words, and let what follows begin where the facts of a plan do."""
    lines = (
        [line]
        if len(line) <= width
        else textwrap.wrap(
            line,
            width,
            subsequent_indent=" " * (len(line) - len(line.lstrip()) or _HANGING_INDENT),
            break_long_words=False,
            break_on_hyphens=False,
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
