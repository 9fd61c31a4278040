"""Points at which a process can die, which of them are tried, and file operations that end like a power cut."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

import pytest

from coldparquet.write.files import LocalFiles

# --- Which of the points at which a process can die are tried: a few of each change in every run, all of them in a
# soak


Point = TypeVar("Point")

FEW = 8

few_or_all_points = pytest.mark.parametrize(
    "most_points", [FEW, pytest.param(None, marks=pytest.mark.soak)], ids=["few points", "all points"]
)
"""For tests that hand ``most_points`` to `tried`."""


def tried(points: Sequence[Point], most_points: int | None) -> list[Point]:
    """Return that many of the points at equal distances, the first and the last among them; all if None."""
    if most_points is None or most_points >= len(points):
        return list(points)
    return [points[number * (len(points) - 1) // (most_points - 1)] for number in range(most_points)]


# --- Local file operations that end like a power cut: at one of them, and with or without what was not flushed --------


Moment = Literal["before", "torn", "after"]
"""Whether the operation is not begun, half done or done when the power goes; only writes can be half done."""

Loss = Literal["nothing", "what was not flushed", "what was not flushed but the newest write"]
"""What is gone after the cut: a disk may write what it was given in any order, or not at all, until it is flushed."""

_ATOMIC_BYTES = 8


class UnflushedFiles(LocalFiles):
    """Readers on the same machine see what was written; flushing thousands of times only takes long."""

    def flush(self, path: str) -> None:
        pass

    def flush_directory(self, path: str) -> None:
        pass


class PowerCut(BaseException):
    """Nothing may catch it: after a power cut, nothing is there to clean up."""


@dataclass(slots=True)
class _Change:
    """Something that is not on the disk for certain yet."""

    flushed_with: str
    """File or directory that has to be flushed."""
    undo: Callable[[], object]
    is_write: bool


@dataclass(slots=True)
class FailingFiles(LocalFiles):
    """The real file operations up to the ``cut_at``-th one; none after it."""

    cut_at: int | None = None
    moment: Moment = "before"
    loss: Loss = "nothing"
    operations: list[str] = field(default_factory=list)
    """Names of the operations so far."""
    _unflushed: list[_Change] = field(default_factory=list)
    _files: LocalFiles = field(default_factory=LocalFiles)
    _is_dead: bool = False

    def make_directory(self, path: str) -> None:
        is_new = not Path(path).exists()
        self._do("make_directory", lambda: self._files.make_directory(path))
        if is_new:
            self._may_lose(str(Path(path).parent), lambda: shutil.rmtree(path))

    def create(self, path: str) -> None:
        self._do("create", lambda: self._files.create(path))
        self._may_lose(str(Path(path).parent), Path(path).unlink)

    def write_at(self, path: str, offset: int, data: bytes) -> None:
        before = Path(path).read_bytes()[offset : offset + len(data)]
        # Whole sectors are written or not, and nothing of 8 aligned bytes lies in two of them.
        half = data[: len(data) // 2] if len(data) > _ATOMIC_BYTES else b""
        self._may_lose(path, lambda: _restore(path, offset, before, offset + len(data)), is_write=True)
        self._do(
            "write_at",
            lambda: self._files.write_at(path, offset, data),
            half=lambda: self._files.write_at(path, offset, half),
        )

    def truncate(self, path: str, size_bytes: int) -> None:
        self._do("truncate", lambda: self._files.truncate(path, size_bytes))

    def flush(self, path: str) -> None:
        self._do("flush", lambda: self._is_safe(path))

    def flush_directory(self, path: str) -> None:
        self._do("flush_directory", lambda: self._is_safe(path))

    def rename(self, old: str, new: str) -> None:
        self._may_lose(str(Path(new).parent), lambda: Path(new).rename(old) if Path(new).exists() else None)
        self._do("rename", lambda: self._files.rename(old, new))

    def unlink(self, path: str) -> None:
        self._do("unlink", lambda: self._files.unlink(path))

    def remove_directory(self, path: str) -> None:
        self._do("remove_directory", lambda: self._files.remove_directory(path))

    def _do(self, name: str, operation: Callable[[], None], *, half: Callable[[], None] | None = None) -> None:
        if self._is_dead:
            raise PowerCut
        number = len(self.operations)
        self.operations.append(name)
        if number != self.cut_at:
            operation()
            return
        if self.moment == "after":
            operation()
        elif self.moment == "torn" and half is not None:
            half()
        self._is_dead = True
        if self.loss == "nothing":
            raise PowerCut
        if self.loss != "what was not flushed" and self._unflushed and self._unflushed[-1].is_write:
            self._unflushed.pop()
        for change in reversed(self._unflushed):
            change.undo()
        raise PowerCut

    def _may_lose(self, flushed_with: str, undo: Callable[[], object], *, is_write: bool = False) -> None:
        if not self._is_dead:
            self._unflushed.append(_Change(flushed_with, undo, is_write))

    def _is_safe(self, path: str) -> None:
        self._unflushed = [change for change in self._unflushed if change.flushed_with != path]


assert {name for name in vars(LocalFiles) if name[0] != "_"} <= set(vars(FailingFiles)), "an operation is never cut"


def _restore(path: str, offset: int, before: bytes, stop: int) -> None:
    """Put back what a write replaced; where it made the file longer, cut that off, or leave zeros before later bytes."""
    content = bytearray(Path(path).read_bytes())
    is_tail = len(content) <= stop
    content[offset:stop] = before if is_tail else before.ljust(stop - offset, b"\0")
    Path(path).write_bytes(content)
