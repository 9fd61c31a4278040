"""The entry point of the command ``coldparquet``."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType


def main() -> None:
    """Run the command line and exit: 0 done, 1 the command failed, 2 wrong usage, 130 interrupted."""
    # Being asked to end is the same as Ctrl-C: temporary files are removed on the way out.
    signal.signal(signal.SIGTERM, _interrupt)
    for stream in (sys.stdout, sys.stderr):
        # Names in files are any Unicode; a terminal that cannot show a character gets a question mark, not an error.
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        from coldparquet.cli.commands import app  # noqa: PLC0415 - a missing package is explained below
    except ImportError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit(f"error: the command line needs the package {error.name}: pip install 'coldparquet[cli]'")
    except KeyboardInterrupt:
        sys.exit(130)
    app()


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    signal.raise_signal(signal.SIGINT)
