"""Compares the minima and maxima of many row groups at once with literals.

A bound need not occur in the data; it only has to be at or outside of every value. Every method compares one side of
all row groups in one step. It says nothing about row groups with an unknown bound: callers combine with ``known``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from coldparquet.errors import InternalError
from coldparquet.format.types import distinct_values

if TYPE_CHECKING:
    from collections.abc import Callable

    from coldparquet.plan.literals import DomainValue

BoolArray: TypeAlias = npt.NDArray[np.bool_]
IntArray: TypeAlias = npt.NDArray[np.int64]

_LEAST_INT64 = -(1 << 63)
_GREATEST_INT64 = (1 << 63) - 1

PREFIX_BYTES = 8
"""Byte strings compare by their first 8 bytes as one big-endian number; only ties need the rest."""


class SortedValues(Struct, frozen=True, eq=False):
    """Literals in ascending order, prepared for searches with thousands of bounds."""

    values: tuple[DomainValue, ...]
    keys: npt.NDArray[Any]
    """What is searched, ascending: the numbers themselves, or ``_byte_keys`` of byte strings."""
    prefixes: npt.NDArray[np.uint64] | None = None
    """Distinct prefixes of the byte strings, ascending; None for numbers."""

    @classmethod
    def of(cls, values: tuple[DomainValue, ...]) -> SortedValues:
        """Prepare at least one value, all of one kind, distinct and in ascending order."""
        texts = [value for value in values if isinstance(value, bytes)]
        if texts:
            prefixes = np.frombuffer(b"".join(map(_prefix, texts)), dtype=">u8").astype(np.uint64)
            distinct = distinct_values(prefixes)
            return cls(values, _byte_keys(distinct, prefixes, np.array(list(map(len, texts)))), distinct)
        if isinstance(values[0], float):
            return cls(values, np.array(values, dtype=np.float64))
        # Literals of UINT64 and wide decimals may exceed 64 bits; no bound of such a column is ever trusted.
        fits = int(values[0]) >= _LEAST_INT64 and int(values[-1]) <= _GREATEST_INT64
        return cls(values, np.array(values, dtype=np.int64 if fits else np.object_))


class NumericSide(Struct, frozen=True, eq=False):
    """One side of the bounds of a column that compares as numbers."""

    known: BoolArray
    """Row groups that have this bound, shape ``(row_groups,)``."""
    numbers: npt.NDArray[np.int64] | npt.NDArray[np.float64]
    """The bounds; meaningless where unknown."""

    def above(self, value: DomainValue) -> BoolArray:
        """Tell where the bound is greater than ``value``."""
        return cast("BoolArray", np.greater(self.numbers, value))

    def at_or_above(self, value: DomainValue) -> BoolArray:
        """Tell where the bound is ``value`` or greater."""
        return cast("BoolArray", np.greater_equal(self.numbers, value))

    def ranks(self, values: SortedValues) -> tuple[IntArray, IntArray]:
        """Count, for each bound, the values below it, and the values at or below it."""
        below = np.searchsorted(values.keys, self.numbers, side="left")
        return below, np.searchsorted(values.keys, self.numbers, side="right")


class ByteSide(Struct, frozen=True, eq=False):
    """One side of the bounds of a column that compares as byte strings, unsigned."""

    known: BoolArray
    prefixes: npt.NDArray[np.uint64]
    """First 8 bytes as big-endian number; shorter bounds are padded with zeros."""
    lengths: IntArray
    """Length of the whole bound in bytes."""
    bytes_at: Callable[[int], bytes | None]
    """Reads the whole bound of one row group; only called if it is known and longer than 8 bytes."""

    def above(self, value: DomainValue) -> BoolArray:
        """Tell where the bound is greater than ``value``."""
        below, _ = self.ranks(SortedValues.of((value,)))
        return below > 0

    def at_or_above(self, value: DomainValue) -> BoolArray:
        """Tell where the bound is ``value`` or greater."""
        _, at_or_below = self.ranks(SortedValues.of((value,)))
        return at_or_below > 0

    def ranks(self, values: SortedValues) -> tuple[IntArray, IntArray]:
        """Count, for each bound, the values below it, and the values at or below it."""
        if values.prefixes is None:
            raise InternalError("byte strings cannot be compared with numbers")
        keys = _byte_keys(values.prefixes, self.prefixes, self.lengths)
        below = np.searchsorted(values.keys, keys, side="left")
        at_or_below = np.searchsorted(values.keys, keys, side="right")
        # Only bounds longer than 8 bytes that share these with a longer literal need more than that.
        ties = (below != at_or_below) & (self.lengths > PREFIX_BYTES) & self.known
        for row_group in np.flatnonzero(ties).tolist():
            start, stop = int(below[row_group]), int(at_or_below[row_group])
            bound = self.bytes_at(row_group) or b""
            below[row_group] = bisect_left(values.values, bound, start, stop)
            at_or_below[row_group] = bisect_right(values.values, bound, start, stop)
        return below, at_or_below


Side: TypeAlias = NumericSide | ByteSide


class Bounds(Struct, frozen=True, kw_only=True, eq=False):
    """What is known about one column's values in every row group; every array has shape ``(row_groups,)``."""

    lower: Side | None
    """None if unknown in every row group."""
    upper: Side | None
    may_hold_values: BoolArray
    """False if every row is known to be NULL."""
    may_hold_nulls: BoolArray
    """False if no row is NULL."""
    may_hold_nan: bool
    """True if there may be NaN: the bounds of floats exclude it."""


def _prefix(value: bytes) -> bytes:
    return value[:PREFIX_BYTES].ljust(PREFIX_BYTES, b"\0")


def _byte_keys(
    distinct: npt.NDArray[np.uint64], prefixes: npt.NDArray[np.uint64], lengths: npt.NDArray[np.int64]
) -> IntArray:
    """Number byte strings so that the numbers order them, up to ties of strings longer than 8 bytes.

    Strings with the same padded prefix differ in length, or are all longer than 8 bytes. So the place of the prefix
    among the distinct ones counts 16, and the length, capped at 9, the rest. A string with an unknown prefix gets the
    number just below those of the next larger one.
    """
    places = np.searchsorted(distinct, prefixes)
    is_found = distinct[np.minimum(places, len(distinct) - 1)] == prefixes
    return places * 16 + np.where(is_found, np.minimum(lengths, PREFIX_BYTES + 1), -1)
