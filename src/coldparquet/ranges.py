"""Defines byte ranges, which identify "these bytes of that object" in the whole library."""

from __future__ import annotations

from msgspec import Struct

from coldparquet.errors import InvalidInputError


class ByteRange(Struct, frozen=True, order=True):
    """The bytes ``[start, stop)`` of an object: half-open, never empty in a request."""

    start: int
    """First byte, counted from 0."""
    stop: int
    """One past the last byte."""

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.stop:
            raise InvalidInputError(f"byte range [{self.start}, {self.stop}) must satisfy 0 <= start <= stop")

    @property
    def length_bytes(self) -> int:
        """Number of bytes in the range."""
        return self.stop - self.start

    def __str__(self) -> str:
        return f"[{self.start}, {self.stop})"


class SuffixRange(Struct, frozen=True):
    """The last ``length_bytes`` bytes of an object whose size is not known yet."""

    length_bytes: int

    def __post_init__(self) -> None:
        if self.length_bytes <= 0:
            raise InvalidInputError(f"suffix range must ask for at least one byte, not {self.length_bytes}")

    def __str__(self) -> str:
        return f"[-{self.length_bytes}, end)"
