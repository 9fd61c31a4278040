"""A local file that grows while it is read: what the answer tells of, it also holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from coldparquet.ranges import ByteRange, SuffixRange
from coldparquet.storage import local
from coldparquet.storage.checked import CheckedStore
from coldparquet.storage.local import LocalStore
from coldparquet.storage.requests import RangeRequest

if TYPE_CHECKING:
    from pathlib import Path

OLD, ADDED = b"old size" * 4, b"appended"
NOW = b"new size" + OLD[8:] + ADDED


@pytest.fixture
def growing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that gets longer after its size was looked at and before its bytes are read; only once."""
    path = tmp_path / "_pm"
    path.write_bytes(OLD)
    read_fully = local._read_fully

    def append_and_read(descriptor: int, asked: ByteRange) -> bytes:
        with path.open("r+b") as file:
            if len(path.read_bytes()) == len(OLD):
                file.seek(0, 2)
                file.write(ADDED)
                file.seek(0)
                file.write(b"new size")  # last, as the committed size of a sidecar
        return read_fully(descriptor, asked)

    monkeypatch.setattr(local, "_read_fully", append_and_read)
    return path


def request(path: Path, wanted: ByteRange | SuffixRange) -> RangeRequest:
    return RangeRequest(path=str(path), byte_range=wanted, reason="sidecar", may_be_short=True, may_grow=True)


async def test_the_bytes_that_the_header_tells_of_are_there(growing: Path) -> None:
    answer = await CheckedStore(LocalStore()).get(request(growing, ByteRange(0, 1000)))
    assert answer.data == NOW
    assert answer.object_size_bytes == len(OLD + ADDED)


@pytest.mark.parametrize(
    "wanted", [ByteRange(0, 8), ByteRange(4, len(OLD)), ByteRange(4, len(OLD) + 3), SuffixRange(8)]
)
async def test_no_other_bytes_than_those_asked_for(growing: Path, wanted: ByteRange | SuffixRange) -> None:
    answer = await LocalStore().get(request(growing, wanted))
    if isinstance(wanted, SuffixRange):
        assert answer.start == len(OLD) - 8
        assert answer.data == OLD[-8:]
    else:
        assert answer.data == NOW[wanted.start : wanted.stop]
