"""How a command ends when something goes wrong: a message and an exit code, never a traceback."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from coldparquet.cli.output import error_console, has_read_flags, in_flags, print_json, warnings_printed
from coldparquet.errors import ColdParquetError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterator

FAILED = 1
INTERRUPTED = 130
"""What shells use for a command that was ended by Ctrl-C: 128 + SIGINT."""


@contextmanager
def reported_failures(*, as_json: bool, reads: bool = False) -> Iterator[None]:
    """Run the body of a command; turn what it raises into a message and an exit code.

    Args:
        as_json: Print the error as JSON.
        reads: Whether the command has the flags of ``scan``, which advice then names.

    Raises:
        typer.Exit: The body failed, was interrupted, or whoever read its output stopped reading.
    """
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
