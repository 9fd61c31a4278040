"""The entry point of the command line. It loads typer and rich itself, so that it can say which of them is missing."""

from __future__ import annotations

import io
import signal
import sys
from typing import TYPE_CHECKING

from coldparquet import __version__
from coldparquet.text import visible_stream

if TYPE_CHECKING:
    from types import FrameType


def main() -> None:
    """Run the command line and exit: 0 done, 1 the command failed, 2 wrong usage, 130 interrupted."""
    if sys.argv[1:] == ["--version"]:
        print(f"coldparquet {__version__}")
        return
    signal.signal(signal.SIGTERM, _interrupt)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            # Names in files are any Unicode; what a terminal cannot show becomes a question mark, not an error.
            stream.reconfigure(errors="replace")
            setattr(sys, name, visible_stream(stream))
    try:
        from coldparquet.cli.commands import app  # noqa: PLC0415 - a missing package is explained below
    except ImportError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit(f"error: the command line needs the package {error.name}: pip install 'coldparquet[cli]'")
    except KeyboardInterrupt:
        sys.exit(130)
    app()


def _interrupt(_number: int, frame: FrameType | None) -> None:
    """Take a request to end as Ctrl-C, so that temporary files are removed on the way out."""
    handle = signal.getsignal(signal.SIGINT)
    if callable(handle):
        handle(signal.SIGINT, frame)  # while an event loop runs, this is asyncio's, which cancels
    else:
        raise KeyboardInterrupt  # background jobs of scripts ignore Ctrl-C, but not this
