"""Decides what metadata proves about the values of a column: statistics of a sidecar, or the name of a directory.

A sidecar's bounds are trusted only as far as its writers deserve it. What QuestDB and other writers are known to get
wrong is dropped here, so that pruning itself needs no exceptions. If in doubt, this module says "unknown".

After a type change, statistics prove something about the converted values only in some cases. Bounds stay bounds if the
conversion keeps the order, makes no value of a null, and makes no null of a value. Such bounds may be rounded like the
values. All other statistics prove nothing: no row group is dropped, and none is taken as a whole.

Chunks and pages store their statistics in the same shape, so both share these rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeAlias, TypeVar, cast
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from coldparquet.errors import UnsupportedError
from coldparquet.format.sidecar_layout import ENCODING_RLE_DICTIONARY, PhysicalType
from coldparquet.format.types import ColumnType, StatisticsTrust, TypeTag, ValueOrder
from coldparquet.plan.bounds import PREFIX_BYTES, BoolArray, Bounds, ByteSide, IntArray, NumericSide, Side
from coldparquet.plan.predicate import NANOSECONDS_PER_UNIT
from coldparquet.plan.type_changes import Family, bounds_factor, family_of, holds_same_values, keeps_bounds, widens
from coldparquet.records import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from coldparquet.format.sidecar_chunks import RowGroupTable
    from coldparquet.format.sidecar_header import ColumnDescriptor
    from coldparquet.plan.bind import BoundField
    from coldparquet.plan.literals import DomainValue


Fact = TypeVar("Fact")


class ColumnFacts(Generic[Fact]):
    """One fact about every column of every sidecar, or stack of sidecars, in use.

    Args:
        find: Computes it; errors are not cached. Two threads may compute it at the same time, with the same result.
    """

    def __init__(self, find: Callable[[RowGroupTable, int], Fact]) -> None:
        self._find = find
        self._known: WeakKeyDictionary[RowGroupTable, dict[int, Fact]] = WeakKeyDictionary()

    def of(self, table: RowGroupTable, column: int) -> Fact:
        """Return the fact about one column."""
        of_table = self._known.get(table)
        if of_table is None:
            of_table = self._known.setdefault(table, {})
        if column not in of_table:
            of_table[column] = self._find(table, column)
        return of_table[column]


_INTEGER_BYTES = {TypeTag.BYTE: 1, TypeTag.SHORT: 2, TypeTag.INT: 4, TypeTag.LONG: 8}
_GREATEST_INT64 = (1 << 63) - 1


def bounds_after_type_change(
    bounds: Bounds, stored: ColumnType, wanted: ColumnType, *, has_nulls: bool
) -> Bounds | None:
    """Return what the bounds of stored values prove about the converted values."""
    if holds_same_values(stored, wanted) and (stored.arrow == wanted.arrow or family_of(stored) is Family.TEXT):
        return bounds
    if wanted.is_unified and widens(stored, wanted):
        return _widened(bounds, stored, wanted) if keeps_bounds(stored, wanted) else None
    match family_of(stored), family_of(wanted):
        case Family.INSTANT, Family.INSTANT:
            return _scaled(bounds, _nanoseconds(stored) // _nanoseconds(wanted))
        case Family.FLOAT, Family.FLOAT if wanted.arrow.name == "float64":
            # NaN and infinities, which QuestDB does not use, become null when FLOAT becomes DOUBLE.
            return replace(bounds, may_hold_nulls=np.ones_like(bounds.may_hold_nulls))
        case _ if not _keeps_every_integer(stored, wanted):
            return None
    if stored.never_null and not wanted.never_null and has_nulls:
        bounds = replace(bounds, may_hold_nulls=np.ones_like(bounds.may_hold_nulls))
    return _rounded(bounds, wanted) if family_of(wanted) is Family.FLOAT else bounds


def _widened(bounds: Bounds, stored: ColumnType, wanted: ColumnType) -> Bounds | None:
    factor = bounds_factor(stored, wanted)
    if factor != 1:
        return _scaled(bounds, factor)
    becomes_float = wanted.comparison is ValueOrder.FLOAT and stored.comparison is not ValueOrder.FLOAT
    return _rounded(bounds, wanted) if becomes_float else bounds


def _keeps_every_integer(stored: ColumnType, wanted: ColumnType) -> bool:
    """Tell whether whole numbers become whole numbers of the same value, or the nearest float."""
    source, target = family_of(stored), family_of(wanted)
    if source is Family.INSTANT:
        return stored.arrow.name != "date32" and (wanted.tag is TypeTag.LONG or target is Family.FLOAT)
    if source is not Family.INTEGER:
        return False
    if target is Family.INTEGER:
        return _INTEGER_BYTES[wanted.tag] > _INTEGER_BYTES[stored.tag]
    return target in (Family.INSTANT, Family.FLOAT)


def _nanoseconds(instant: ColumnType) -> int:
    return NANOSECONDS_PER_UNIT[instant.arrow.unit or "d"]


def _scaled(bounds: Bounds, factor: int) -> Bounds | None:
    """Multiply; None where a bound, and so perhaps a value, exceeds 64 bits. The factor 0 stands for a coarser unit."""
    lower, upper = bounds.lower, bounds.upper
    if factor == 0 or not (isinstance(lower, NumericSide) and isinstance(upper, NumericSide)):
        return None
    limit = _GREATEST_INT64 // factor
    fits = lower.known & upper.known & (lower.numbers >= -limit) & (upper.numbers <= limit)
    # Without room, values may wrap around to anything, even to the least number, which is null.
    return Bounds(
        lower=NumericSide(fits, np.where(fits, lower.numbers, 0) * factor),
        upper=NumericSide(fits, np.where(fits, upper.numbers, 0) * factor),
        may_hold_values=bounds.may_hold_values,
        may_hold_nulls=bounds.may_hold_nulls | ~fits & bounds.may_hold_values,
        may_hold_nan=bounds.may_hold_nan,
    )


def _rounded(bounds: Bounds, wanted: ColumnType) -> Bounds:
    """Round whole numbers to the nearest float, which keeps their order."""
    float_type = np.float32 if wanted.arrow.name == "float32" else np.float64
    return replace(bounds, lower=_nearest(bounds.lower, float_type), upper=_nearest(bounds.upper, float_type))


def _nearest(side: Side | None, float_type: type[np.float32 | np.float64]) -> Side | None:
    if not isinstance(side, NumericSide):
        return None
    return NumericSide(side.known, side.numbers.astype(float_type).astype(np.float64))


_LITTLE_ENDIAN_NUMBERS: dict[PhysicalType, npt.DTypeLike] = {
    PhysicalType.INT32: np.int32,
    PhysicalType.INT64: np.int64,
    PhysicalType.FLOAT: np.float32,
    PhysicalType.DOUBLE: np.float64,
}
"""Physical types whose bounds are read at their own width; the stored size is ignored."""

_ALL_ONES = np.uint64(0xFFFF_FFFF_FFFF_FFFF)


class StatisticsSource(Protocol):
    """Facts for pruning. Units are row groups, or partitions when directories are pruned."""

    @property
    def may_hold_rows(self) -> BoolArray:
        """False for a unit known to be empty, shape ``(units,)``."""

    def bounds(self, field: BoundField) -> Bounds | None:
        """Return the bounds of a field, or None if nothing is known."""

    def may_hold_any_of(self, field: BoundField, values: tuple[DomainValue, ...]) -> BoolArray | None:
        """Tell by bloom filters where some row may hold one of the values; None if nothing is known anywhere."""


class SidecarStatistics:
    """The statistics of every row group of one sidecar, or of a stack of them.

    Args:
        table: The row groups.
        columns: The sidecar's column for each field index of the table. None if the partition lacks the column, which
            then reads as all NULL (or as 0 or false, for types without NULL). A field outside of the mapping is
            unknown. Without a mapping, fields and columns are the same.
        blooms: The answers of probed bloom filters.
    """

    def __init__(
        self,
        table: RowGroupTable,
        columns: Mapping[int, int | None] | None = None,
        *,
        blooms: BloomAnswers | None = None,
    ) -> None:
        self._table = table
        self._blooms = blooms
        self._columns = columns
        self._bounds: dict[int, Bounds | None] = {}

    @property
    def may_hold_rows(self) -> BoolArray:
        """False for row groups of no rows."""
        return self._table.row_counts > 0

    def bounds(self, field: BoundField) -> Bounds | None:
        """Return what the sidecar proves about a field."""
        if field.index not in self._bounds:
            self._bounds[field.index] = self._find_bounds(field)
        return self._bounds[field.index]

    def may_hold_any_of(self, field: BoundField, values: tuple[DomainValue, ...]) -> BoolArray | None:
        """See :class:`StatisticsSource`: the answers of bloom filters; :meth:`bounds` covers minima and maxima."""
        return None if self._blooms is None else self._blooms.may_hold_any_of(field, values)

    def _find_bounds(self, field: BoundField) -> Bounds | None:
        columns = self._columns
        if columns is None:
            column_index: int | None = field.index
        elif field.index in columns:
            column_index = columns[field.index]
        else:
            return None
        if column_index is None:
            return _bounds_of_missing_column(field.type, self.may_hold_rows)
        descriptor = self._table.column(column_index)
        try:
            column_type = self._table.column_type(column_index)
        except UnsupportedError:
            return None
        bounds = BOUNDS_OF_COLUMNS.of(self._table, column_index)
        return bounds_after_type_change(bounds, column_type, field.type, has_nulls=descriptor.max_def_level > 0)


class NameStatistics:
    """Partitions by what the names of their directories state: times, and keys. Everything else is unknown.

    Args:
        partition_count: Number of the partitions.
        bounds: By field index: what the names state, see :func:`interval_bounds` and :func:`key_bounds`.
    """

    def __init__(self, partition_count: int, bounds: Mapping[int, Bounds]) -> None:
        self._everywhere = np.ones(partition_count, np.bool_)
        self._bounds = bounds

    @property
    def may_hold_rows(self) -> BoolArray:
        """True everywhere: names do not count rows."""
        return self._everywhere

    def bounds(self, field: BoundField) -> Bounds | None:
        """Return what the names state about a field."""
        return self._bounds.get(field.index)

    def may_hold_any_of(self, field: BoundField, values: tuple[DomainValue, ...]) -> BoolArray | None:  # noqa: ARG002
        """See :class:`StatisticsSource`: names say nothing about single values."""
        return None


def interval_bounds(*, lower: IntArray, upper: IntArray, known: BoolArray) -> Bounds:
    """Return the bounds of the designated timestamp, which is never NULL.

    Args:
        lower: First possible timestamp of each partition, in the column's own unit, shape ``(partitions,)``.
        upper: Last possible timestamp, inclusive, same shape.
        known: False for a partition without interval, same shape.
    """
    everywhere = np.ones(len(lower), np.bool_)
    return Bounds(
        lower=NumericSide(known, lower),
        upper=NumericSide(known, upper),
        may_hold_values=everywhere,
        may_hold_nulls=~everywhere,
        may_hold_nan=False,
    )


def key_bounds(values: Sequence[int | bytes | None], *, are_numbers: bool) -> Bounds:
    """Return the bounds of a column of which each partition holds one value, or NULL: a key of its path."""
    is_null = np.array([value is None for value in values], np.bool_)
    side: Side
    if are_numbers:
        side = NumericSide(~is_null, np.array([value if isinstance(value, int) else 0 for value in values], np.int64))
    else:
        texts = [value if isinstance(value, bytes) else b"" for value in values]
        prefixes = [int.from_bytes(text[:PREFIX_BYTES].ljust(PREFIX_BYTES, b"\0"), "big") for text in texts]
        lengths = np.array([len(text) for text in texts], np.int64)
        side = ByteSide(~is_null, np.array(prefixes, np.uint64), lengths, texts.__getitem__)
    return Bounds(lower=side, upper=side, may_hold_values=~is_null, may_hold_nulls=is_null, may_hold_nan=False)


def _bounds_of_column(table: RowGroupTable, column: int) -> Bounds:
    return chunk_bounds(table.chunks(column), table.row_counts, table.column(column), believed_type(table, column))


def believed_type(table: RowGroupTable, column: int) -> ColumnType:
    """Return a column's type for :func:`chunk_bounds`, which marks bounds that the writer may have got wrong."""
    column_type = table.column_type(column)
    is_stored_as_number = table.column(column).physical_type in _LITTLE_ENDIAN_NUMBERS
    # A sidecar that names its writer omits the bounds that this writer orders wrongly.
    if column_type.comparison is ValueOrder.DECIMAL and not is_stored_as_number and not table.is_writer_known:
        return replace(column_type, statistics=StatisticsTrust.NEVER)
    return column_type


BOUNDS_OF_COLUMNS = ColumnFacts(_bounds_of_column)
"""What the statistics of a column's chunks prove; cached results of :func:`chunk_bounds`."""


def chunk_bounds(
    chunks: StoredStatistics, row_counts: IntArray, descriptor: ColumnDescriptor, column_type: ColumnType
) -> Bounds:
    """Return what the stored statistics of one column prove, by chunk or by page."""
    sides = _sides(chunks, descriptor, column_type)
    # Leaf slots of nested columns are not rows, and writers disagree about which NULLs of outer levels they count.
    is_flat = descriptor.max_rep_level == 0 and descriptor.max_def_level <= 1
    nulls_known = chunks.has_null_count & (chunks.num_values == row_counts) & is_flat
    some_null = ~nulls_known | (chunks.null_count > 0)
    # A null count above the row count is wrong. Here it is neither none nor all, so it claims nothing.
    all_null = nulls_known & (chunks.null_count == row_counts)

    if column_type.never_null:
        if column_type.statistics is StatisticsTrust.ZERO_WHEN_NULL:
            sides = _include_zero(sides, where=some_null, only_zero=all_null)
        some_null, all_null = np.zeros_like(some_null), np.zeros_like(all_null)
    elif descriptor.max_def_level == 0:
        # The file cannot mark a NULL. A null count therefore counts rows that hold another value, which the bounds
        # exclude: the rows from before a column was added.
        left_out = chunks.has_null_count & (chunks.null_count > 0)
        sides = _forget(sides, where=left_out)
        some_null, all_null = left_out, np.zeros_like(all_null)
    lower, upper = sides or (None, None)
    return Bounds(
        lower=lower,
        upper=upper,
        may_hold_values=~all_null,
        may_hold_nulls=some_null,
        may_hold_nan=column_type.comparison is ValueOrder.FLOAT,
    )


def _bounds_of_missing_column(column_type: ColumnType, may_hold_rows: BoolArray) -> Bounds:
    nowhere = np.zeros_like(may_hold_rows)
    zero = NumericSide(~nowhere, np.zeros(len(may_hold_rows), np.int64)) if column_type.never_null else None
    return Bounds(
        lower=zero,
        upper=zero,
        may_hold_values=~nowhere if column_type.never_null else nowhere,
        may_hold_nulls=nowhere if column_type.never_null else ~nowhere,
        may_hold_nan=False,
    )


_Sides = tuple[Side, Side] | None


def _sides(chunks: StoredStatistics, descriptor: ColumnDescriptor, column_type: ColumnType) -> _Sides:
    """Return lower and upper bounds, known only if trusted and in order; None if there are none."""
    if column_type.statistics is StatisticsTrust.NEVER:
        return None
    lower = _side(chunks.min, descriptor, column_type)
    upper = _side(chunks.max, descriptor, column_type)
    distrusted = _reversed(lower, upper)
    if column_type.statistics is StatisticsTrust.IPV4_UNSIGNED:
        # QuestDB 9.3.4 orders the bounds of dictionary-encoded IPv4 chunks as signed numbers.
        distrusted |= chunks.encodings & np.uint8(ENCODING_RLE_DICTIONARY) != 0
    if column_type.comparison is ValueOrder.FLOAT:
        # If one bound is NaN, the writer ordered NaN like a number, so the other bound is wrong as well.
        distrusted |= _is_nan(lower) | _is_nan(upper)
    return _forget((lower, upper), where=distrusted)


def _side(raw: StoredBounds, descriptor: ColumnDescriptor, column_type: ColumnType) -> Side:
    number = _LITTLE_ENDIAN_NUMBERS.get(descriptor.physical_type)
    if number is not None:
        return _numbers(raw, np.dtype(np.uint32 if column_type.comparison is ValueOrder.UNSIGNED else number))
    prefixes, lengths = _byte_strings(raw, descriptor)
    if column_type.comparison is ValueOrder.DECIMAL:
        return _decimals(prefixes, lengths)
    known = lengths > 0
    if column_type.statistics is StatisticsTrust.BINARY_PREFIX:
        # QuestDB truncates byte strings to 9 bytes and writes nine 0xFF if there is no larger prefix: not a bound.
        # (As a lower bound it would be right, but this is too rare to treat the sides differently.)
        known &= ~((lengths == PREFIX_BYTES + 1) & (prefixes == _ALL_ONES))
    return ByteSide(known, prefixes, lengths, raw.bytes_at)


def _numbers(raw: StoredBounds, stored: np.dtype[np.generic]) -> NumericSide:
    # The first bytes of the little-endian word are the number; the stored size is ignored.
    words = raw.raw.astype("<u8", copy=False).view(stored.newbyteorder("<"))
    numbers = words[:: PREFIX_BYTES // stored.itemsize]
    if stored.kind == "f":
        return NumericSide(raw.inlined, numbers.astype(np.float64))
    return NumericSide(raw.inlined, numbers.astype(np.int64))


def _byte_strings(raw: StoredBounds, descriptor: ColumnDescriptor) -> tuple[npt.NDArray[np.uint64], IntArray]:
    """Return prefixes and lengths as ``RawBounds.prefix_words`` does, by the rules of the physical type."""
    prefixes, lengths = raw.prefix_words()
    if descriptor.physical_type is not PhysicalType.FIXED_LEN_BYTE_ARRAY:
        return prefixes, lengths
    width = descriptor.fixed_byte_length
    if 0 < width <= PREFIX_BYTES:
        unused_bits = np.uint64(8 * (PREFIX_BYTES - width))
        inline = raw.raw.byteswap() >> unused_bits << unused_bits
        prefixes = np.where(raw.inlined, inline, prefixes)
        lengths = np.where(raw.inlined, width, lengths)
    return prefixes, np.where(lengths == width, lengths, -1)


def _decimals(prefixes: npt.NDArray[np.uint64], lengths: IntArray) -> NumericSide:
    """Read big-endian two's complement of 1 to 8 bytes; longer bounds of narrow decimals do not occur in practice."""
    known = (lengths > 0) & (lengths <= PREFIX_BYTES)
    unused_bits = 8 * (PREFIX_BYTES - np.where(known, lengths, PREFIX_BYTES))
    numbers: IntArray = prefixes.view(np.int64) >> unused_bits
    return NumericSide(known, numbers)


def _reversed(lower: Side, upper: Side) -> BoolArray:
    """Find the row groups whose lower bound exceeds the upper one: damage, or a descending timestamp."""
    both = lower.known & upper.known
    if isinstance(lower, NumericSide) and isinstance(upper, NumericSide):
        return both & (lower.numbers > upper.numbers)
    if isinstance(lower, ByteSide) and isinstance(upper, ByteSide):
        same = lower.prefixes == upper.prefixes
        # With equal prefixes the longer string is greater, unless both are longer than the prefix.
        exceeds = (lower.prefixes > upper.prefixes) | (same & (lower.lengths > upper.lengths))
        ties = both & same & (np.minimum(lower.lengths, upper.lengths) > PREFIX_BYTES)
        for row_group in np.flatnonzero(ties).tolist():
            exceeds[row_group] = (lower.bytes_at(row_group) or b"") > (upper.bytes_at(row_group) or b"")
        return cast("BoolArray", both & exceeds)
    return both


def _is_nan(side: Side) -> BoolArray:
    return np.isnan(side.numbers) & side.known if isinstance(side, NumericSide) else np.zeros_like(side.known)


def _forget(sides: _Sides, *, where: BoolArray) -> _Sides:
    if sides is None:
        return None
    lower, upper = sides
    return replace(lower, known=lower.known & ~where), replace(upper, known=upper.known & ~where)


def _include_zero(sides: _Sides, *, where: BoolArray, only_zero: BoolArray) -> _Sides:
    """Widen the bounds to 0 in row groups with rows that were counted as NULL and hold 0."""
    if sides is None:
        return None
    lower, upper = sides
    if not (isinstance(lower, NumericSide) and isinstance(upper, NumericSide)):
        return None
    least = np.where(where, np.minimum(lower.numbers, 0), lower.numbers)
    greatest = np.where(where, np.maximum(upper.numbers, 0), upper.numbers)
    return (
        NumericSide(lower.known | only_zero, np.where(only_zero, 0, least)),
        NumericSide(upper.known | only_zero, np.where(only_zero, 0, greatest)),
    )


class BloomAnswers(Struct, frozen=True, eq=False):
    """The answers of bloom filters about the values of a predicate."""

    found: Mapping[LookupKey, BoolArray]
    notes: tuple[str, ...]
    """Filters that were not probed because they cannot be right, one sentence per column and reason."""

    def may_hold_any_of(self, field: BoundField, values: tuple[DomainValue, ...]) -> BoolArray | None:
        """Tell for each row group whether it may hold one of the values; None if no filter was probed for them."""
        return self.found.get((field.index, values))


LookupKey: TypeAlias = "tuple[int, tuple[DomainValue, ...]]"
"""Index of the field, and the values to find in it."""


class StoredBounds(Protocol):
    """One side's bounds as raw bytes; every array has shape ``(units,)``. For chunks, see ``RawBounds``."""

    @property
    def inlined(self) -> npt.NDArray[np.bool_]:
        """Whether ``raw`` holds the bytes of a bound."""

    @property
    def raw(self) -> npt.NDArray[np.uint64]:
        """The bytes of each bound in little-endian order, zeros behind its end."""

    def prefix_words(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
        """Return the first 8 bytes of each bound as big-endian number, and its length, -1 without a bound."""

    def bytes_at(self, unit: int, /) -> bytes | None:
        """Return the bytes of one bound."""


class StoredStatistics(Protocol):
    """The statistics of one column; every array has shape ``(units,)``. ``ChunkColumn`` holds those of chunks."""

    @property
    def min(self) -> StoredBounds:
        """Lower bounds."""

    @property
    def max(self) -> StoredBounds:
        """Upper bounds."""

    @property
    def encodings(self) -> npt.NDArray[np.uint8]:
        """Mask of ``sidecar_layout.ENCODING_*``: those of the chunk."""

    @property
    def num_values(self) -> npt.NDArray[np.int64]:
        """Number of values, nulls included."""

    @property
    def null_count(self) -> npt.NDArray[np.int64]:
        """Number of nulls; 0 if unknown."""

    @property
    def has_null_count(self) -> npt.NDArray[np.bool_]:
        """Whether the number of nulls is known."""
