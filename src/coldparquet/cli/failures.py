"""How a command ends when something goes wrong: a message and an exit code, never a traceback."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from coldparquet.cli.output import error_console, print_json, warnings_printed
from coldparquet.errors import ColdParquetError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterator

FAILED = 1
INTERRUPTED = 130
"""What shells use for a command that was ended by Ctrl-C: 128 + SIGINT."""

_FLAGS_FOR_PYTHON = {
    " or Scan.restore(); ReadOptions(archived='skip') leaves": "; --archived skip leaves",
    "give ReadOptions.prices a table that has one (PriceTable.read), or leave max_usd out": (
        "give --prices a table that has one, or leave --max-usd out"
    ),
    "ReadOptions(sidecars=False) reads without it": "--no-sidecars reads without it",
    "in a cheaper tier (RestoreTerms.tier)": "in a cheaper tier (--tier)",
    "give key and secret or a profile in storage_options": "give key and secret or a profile with --storage-option",
    "pass anon=True": "use --anon",
    "ReadOptions(unread='skip')": "--unread skip",
    "ReadOptions(columns_from='all')": "--columns-from all",
}
"""Advice of the library to people who write Python, and what it is for those at the command line."""


@contextmanager
def reported_failures(*, as_json: bool) -> Iterator[None]:
    """Run the body of a command; turn what it raises into a message and an exit code.

    Raises:
        typer.Exit: The body failed, was interrupted, or whoever read its output stopped reading.
    """
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


def report(error: ColdParquetError, *, as_json: bool) -> None:
    """Print one error: as a JSON line on standard output, or in red on standard error."""
    if as_json:
        facts = error.as_dict()
        print_json({"error": {**facts, "message": _in_flags(facts["message"])}})
        return
    console = error_console()
    console.print("error:", style="bold red", end=" ")
    console.print(_in_flags(str(error)), style="red", soft_wrap=True)


def _in_flags(message: str) -> str:
    for python, flags in _FLAGS_FOR_PYTHON.items():
        message = message.replace(python, flags)
    return message
