"""How a command ends: what it raises becomes a message, as text or as JSON, and an exit code."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from coldparquet.cli.advice import has_read_flags, in_flags
from coldparquet.cli.output import print_json
from coldparquet.errors import (
    AccessError,
    ArchivedObjectError,
    BudgetExceededError,
    ColdParquetError,
    FormatError,
    InvalidInputError,
    NotFoundError,
    ObjectChangedError,
    UnsupportedError,
)
from coldparquet.progress import error_console
from coldparquet.text import visible, visible_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

FAILED = 1
WRONG_USAGE = 2
INTERRUPTED = 130
"""What shells use for a command that was ended by Ctrl-C: 128 + SIGINT."""

_CODES: dict[int, tuple[str, tuple[type[ColdParquetError], ...]]] = {
    0: ("done", ()),
    FAILED: ("failed", ()),
    WRONG_USAGE: ("wrong usage", ()),
    3: ("not found", (NotFoundError,)),
    4: ("no access", (AccessError,)),
    5: ("stale or damaged data", (FormatError, ObjectChangedError)),
    6: ("over budget", (BudgetExceededError,)),
    7: ("archived", (ArchivedObjectError,)),
    INTERRUPTED: ("interrupted", ()),
}
"""Every exit code, what it means, and which errors it is for. Scripts compare them: a number keeps its meaning."""

_EXTRAS = {
    "deltalake": "delta",
    "duckdb": "bench",
    "obstore": "obstore",
    "polars": "bench",
    "pyiceberg": "iceberg",
    "pyspark": "spark",
}
"""The extra that brings a package; all others come with ``s3``."""

EXIT_CODES_TEXT = f"Exit codes: {', '.join(f'{code} {meaning}' for code, (meaning, _) in _CODES.items())}."


def exit_code_of(error: ColdParquetError) -> int:
    """Return the exit code of a command that ends with this error."""
    return next((code for code, (_, classes) in _CODES.items() if isinstance(error, classes)), FAILED)


@contextmanager
def reported_failures(*, as_json: bool, reads: bool = False) -> Iterator[None]:
    """Run the body of a command; turn what it raises into a message and an exit code."""
    token = has_read_flags.set(reads)
    try:
        with _warnings_printed():
            yield
        sys.stdout.flush()
    except ColdParquetError as error:
        report(error, as_json=as_json)
        raise typer.Exit(exit_code_of(error)) from None
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
        extras = f"cli,{_EXTRAS.get(error.name.partition('.')[0], 's3')}"
        missing = f"this command needs the package {error.name}: pip install 'coldparquet[{extras}]'"
        report(UnsupportedError(missing, kind="MissingPackage"), as_json=as_json)
        raise typer.Exit(FAILED) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    finally:
        has_read_flags.reset(token)


@contextmanager
def reported_usage(*, as_json: bool) -> Iterator[None]:
    """Let what is said of wrong usage, which repeats the words of the caller, steer no terminal; print it as JSON if asked."""
    try:
        yield
    except Exception as error:
        message = getattr(error, "message", None)
        if not hasattr(error, "format_message") or not isinstance(message, str):
            raise  # none of click, nor of typer's own copy of it
        if as_json:
            report(InvalidInputError(error.format_message(), kind="WrongUsage"), as_json=True)
            raise typer.Exit(WRONG_USAGE) from None
        error.message = visible_lines(message)  # type: ignore[attr-defined]
        raise


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
def _warnings_printed() -> Iterator[None]:
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
