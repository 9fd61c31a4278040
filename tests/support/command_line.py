"""The type of the fixture with which tests run the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

_FRAME = dict.fromkeys(map(ord, "│╭╮╰╯─"), " ")


def plain(text: str) -> str:
    """Take the frame of a usage error away, and put what it says on one line."""
    return " ".join(text.translate(_FRAME).split())


class CommandResult(Protocol):
    """How a command ended, and what it printed."""

    exit_code: int
    stdout: str
    stderr: str


class Run(Protocol):
    """Runs one command."""

    def __call__(self, *arguments: str | int | Path) -> CommandResult: ...
