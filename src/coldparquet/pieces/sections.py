"""Byte strings and arrays of numbers, one behind the other: what a piece is made of, before it is compressed."""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.errors import FormatError
from coldparquet.format.byte_planes import WORD_BYTES, from_byte_planes, to_byte_planes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.plan.bounds import IntArray

_LENGTH = struct.Struct("<Q")


class SectionWriter:
    """Collects sections; each is its length as a little-endian u64, and its bytes."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def add_bytes(self, data: bytes) -> None:
        """Add a byte string."""
        self._parts += (_LENGTH.pack(len(data)), data)

    def add_numbers(self, numbers: IntArray | Sequence[int]) -> None:
        """Add an array of signed 64-bit numbers.

        What is written are the byte planes of the differences of neighbours, modulo 2**64: offsets in a file become mostly
        zeros.
        """
        array = np.asarray(numbers, dtype=np.int64)
        self.add_bytes(to_byte_planes(np.diff(array, prepend=0)))

    def finish(self) -> bytes:
        """Return all sections."""
        return b"".join(self._parts)


class SectionReader:
    """Hands out sections in the order in which they were added.

    Args:
        data: What :meth:`SectionWriter.finish` returned.
    """

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self._position = 0

    def bytes(self) -> memoryview:
        """Return the next byte string.

        Raises:
            FormatError: There is none, or it is cut off.
        """
        start = self._position + _LENGTH.size
        if start > len(self._data):
            raise self._damaged("another section is missing")
        stop = start + _LENGTH.unpack_from(self._data, self._position)[0]
        if stop > len(self._data):
            raise self._damaged(f"a section ends at byte {stop:,} of {len(self._data):,}")
        self._position = stop
        return self._data[start:stop]

    def numbers(self) -> IntArray:
        """Return the next array.

        Raises:
            FormatError: There is none, or it is no array of numbers.
        """
        section = self.bytes()
        count, rest_bytes = divmod(len(section), WORD_BYTES)
        if rest_bytes:
            raise self._damaged("a section of numbers has a length that is no multiple of 8")
        return np.cumsum(from_byte_planes(section, (count,)))

    def lists(self) -> list[IntArray]:
        """Return the next lists, of which the lengths and then the numbers were added. Raises what :meth:`numbers` raises."""
        counts = self.numbers()
        return split(self.numbers(), counts)

    def finish(self) -> None:
        """Make sure that nothing is left.

        Raises:
            FormatError: There is.
        """
        if self._position != len(self._data):
            raise self._damaged("there are more sections than expected")

    def _damaged(self, problem: str) -> FormatError:
        return damaged_piece(problem, offset=self._position)


def split(numbers: IntArray, counts: IntArray) -> list[IntArray]:
    """Cut an array into lists of these lengths.

    Raises:
        FormatError: They are not as long as the array.
    """
    stops = np.cumsum(counts)
    if counts.min(initial=0) < 0 or (stops[-1] if len(stops) else 0) != len(numbers):
        raise damaged_piece(f"the lengths of its lists do not add up to {len(numbers):,} numbers")
    return [numbers[start:stop] for start, stop in pairwise([0, *stops.tolist()])]


def damaged_piece(problem: str, *, offset: int | None = None, kind: str = "InvalidValue") -> FormatError:
    """Make the error for bytes that are no piece, or not any more."""
    return FormatError(
        f"these bytes are no piece of a scan: {problem}; take them from ScanPiece.to_bytes() again, and hand them over unchanged",
        kind=kind,
        offset=offset,
        field="piece",
    )
