"""Column chunks whose values the sidecar alone tells: NULL in every row, or one value in every row.

They are made, not fetched. Planning looks for them, and decoding asks again which of the two a chunk is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coldparquet.format.column_types import Comparison, StatisticsTrust
from coldparquet.format.sidecar_layout import (
    CHUNK_MAX_WORD,
    CHUNK_MIN_WORD,
    CHUNK_NULL_COUNT_WORD,
    CHUNK_NUM_VALUES_WORD,
    CHUNK_PACKED_WORD,
    STAT_EXACT,
    STAT_FLAGS_BYTE,
    STAT_INLINED,
    STAT_MAX_SHIFT,
    STAT_NULL_COUNT_PRESENT,
    STAT_PRESENT,
    PhysicalType,
)
from coldparquet.plan.bounds import PREFIX_BYTES, ByteSide
from coldparquet.plan.column_facts import ColumnFacts
from coldparquet.plan.statistics import BOUNDS_OF_COLUMNS

if TYPE_CHECKING:
    import numpy.typing as npt

    from coldparquet.format.row_group_table import RowGroupTable
    from coldparquet.format.sidecar_chunks import ChunkColumn
    from coldparquet.format.sidecar_header import ColumnDescriptor
    from coldparquet.plan.bounds import BoolArray, Side

_NOT_FROM_BOUNDS = frozenset({Comparison.FLOAT, Comparison.BOOLEAN, Comparison.NONE})
"""Equal bounds of these do not tell the values: of floats they leave NaN out, and 0.0 bounds -0.0 as well."""

_NUMBER_BYTES = {PhysicalType.INT32: 4, PhysicalType.INT64: 8}

_EXACT_BOUND = STAT_PRESENT | STAT_EXACT
_CONSTANT_FLAGS = STAT_NULL_COUNT_PRESENT | _EXACT_BOUND | _EXACT_BOUND << STAT_MAX_SHIFT
"""STAT_FLAGS of every chunk that is known to hold one value."""

_INLINED_FLAGS = STAT_INLINED | STAT_INLINED << STAT_MAX_SHIFT

_LENGTH_BYTES = 4
"""In the plain encoding a byte string of any length begins with its length."""


def null_chunks(table: RowGroupTable, column: int, row_groups: npt.NDArray[np.intp]) -> BoolArray:
    """Tell which chunks of a column are NULL, or what its type has instead, in every row.

    Args:
        table: The row groups.
        column: Index of the column in it.
        row_groups: Those to look at, ascending.

    Returns:
        Shape ``(row_groups,)``.
    """
    descriptor, chunks = table.column(column), table.chunks(column)
    # In a nested column a null count may count elements, so only flat columns prove that all rows are null.
    # A REQUIRED column cannot mark nulls: rows counted as such hold 0 in BYTE and its like, and unknown values else.
    if descriptor.max_rep_level or not (descriptor.max_def_level or table.column_type(column).never_null):
        return np.zeros(len(row_groups), dtype=np.bool_)
    result: BoolArray = chunks.has_null_count[row_groups] & (
        chunks.null_count[row_groups] == chunks.num_values[row_groups]
    )
    return result


def made_chunks(
    table: RowGroupTable,
    columns: tuple[int, ...],
    row_groups: npt.NDArray[np.intp],
    words: npt.NDArray[np.uint64],
    *,
    make_constant_columns: bool,
) -> BoolArray:
    """Tell which of many chunks are made: those of :func:`null_chunks` and, if asked for, of :func:`constant_chunks`.

    Args:
        table: The row groups.
        columns: Indexes of the columns in it.
        row_groups: Those to look at, ascending.
        words: The chunks as they are stored, see :meth:`coldparquet.format.sidecar_chunks.BlockTable.chunk_words`.
        make_constant_columns: Whether those of one value are made.

    Returns:
        Shape ``(row_groups, columns)``.
    """
    stat_flags = words[..., CHUNK_PACKED_WORD] >> np.uint64(8 * STAT_FLAGS_BYTE)
    null_counts = words[..., CHUNK_NULL_COUNT_WORD]
    may_be_null = (stat_flags & np.uint64(STAT_NULL_COUNT_PRESENT)) != 0
    may_be_null &= null_counts == words[..., CHUNK_NUM_VALUES_WORD]
    is_made = np.zeros(may_be_null.shape, dtype=np.bool_)
    for position in may_be_null.any(axis=0).nonzero()[0].tolist():
        is_made[:, position] = null_chunks(table, columns[position], row_groups)
    if make_constant_columns:
        may_be_constant = ((stat_flags & np.uint64(_CONSTANT_FLAGS)) == _CONSTANT_FLAGS) & (null_counts == 0)
        is_out_of_line = (stat_flags & np.uint64(_INLINED_FLAGS)) != _INLINED_FLAGS
        may_be_constant &= is_out_of_line | (words[..., CHUNK_MIN_WORD] == words[..., CHUNK_MAX_WORD])
        for position in may_be_constant.any(axis=0).nonzero()[0].tolist():
            is_made[:, position] |= constant_chunks(table, columns[position], row_groups)
    return is_made


def constant_chunks(table: RowGroupTable, column: int, row_groups: npt.NDArray[np.intp]) -> BoolArray:
    """Tell which chunks of a column hold one value in every row, so that :func:`constant_bytes` are this value.

    Bounds between which all values lie and that are equal leave room for one value only, in whatever order. Byte strings
    of variable length are the exception: writers cut long bounds without always saying so.

    Args:
        table: The row groups.
        column: Index of the column in it.
        row_groups: Those to look at, ascending.

    Returns:
        Shape ``(row_groups,)``.
    """
    return _CONSTANT_CHUNKS.of(table, column)[row_groups]


def _constant_chunks_of_column(table: RowGroupTable, column: int) -> BoolArray:
    nowhere = np.zeros(table.row_group_count, dtype=np.bool_)
    descriptor, chunks = table.column(column), table.chunks(column)
    if descriptor.max_rep_level or descriptor.max_def_level > 1 or not _may_be_equal(chunks, descriptor):
        return nowhere
    # Bounds of a designated timestamp may be just its first and last value, whether or not the rows are in order.
    if column == table.designated_timestamp:
        return nowhere
    column_type = table.column_type(column)
    if column_type.comparison in _NOT_FROM_BOUNDS or column_type.statistics is StatisticsTrust.NEVER:
        return nowhere
    bounds = BOUNDS_OF_COLUMNS.of(table, column)
    if bounds.lower is None or bounds.upper is None:
        return nowhere
    no_null = chunks.has_null_count & (chunks.null_count == 0) & (chunks.num_values == table.row_counts)
    exact = bounds.lower.known & bounds.upper.known & chunks.min.exact & chunks.max.exact
    is_constant: BoolArray = no_null & exact
    candidates = np.flatnonzero(is_constant)
    is_variable = descriptor.physical_type is PhysicalType.BYTE_ARRAY
    is_constant[is_constant] = _are_equal(bounds.lower, bounds.upper, candidates, is_variable=is_variable)
    return is_constant


_CONSTANT_CHUNKS = ColumnFacts(_constant_chunks_of_column)


def constant_bytes(table: RowGroupTable, column: int, row_group: int) -> bytes:
    """Return the value of a chunk that :func:`constant_chunks` has found, in Parquet's plain encoding.

    Args:
        table: The row groups.
        column: Index of the column in it.
        row_group: The row group of the chunk.
    """
    lower, descriptor = table.chunks(column).min, table.column(column)
    if descriptor.physical_type is PhysicalType.BYTE_ARRAY:
        value = lower.bytes_at(row_group) or b""
        return len(value).to_bytes(_LENGTH_BYTES, "little") + value
    width = _NUMBER_BYTES.get(descriptor.physical_type, descriptor.fixed_byte_length)
    if lower.inlined[row_group]:
        # Values of one width are read at this width, whatever the stored size says.
        return int(lower.raw[row_group]).to_bytes(PREFIX_BYTES, "little")[:width]
    return lower.bytes_at(row_group) or b""


def _may_be_equal(chunks: ChunkColumn, descriptor: ColumnDescriptor) -> bool:
    """Tell quickly whether a column has any bounds that can be equal; most columns have none."""
    is_long = descriptor.physical_type is PhysicalType.FIXED_LEN_BYTE_ARRAY and (
        descriptor.fixed_byte_length > PREFIX_BYTES
    )
    return is_long or bool((chunks.min.raw == chunks.max.raw).any())


def _are_equal(lower: Side, upper: Side, candidates: npt.NDArray[np.intp], *, is_variable: bool) -> BoolArray:
    if not (isinstance(lower, ByteSide) and isinstance(upper, ByteSide)):
        if isinstance(lower, ByteSide) or isinstance(upper, ByteSide):
            return np.zeros(len(candidates), dtype=np.bool_)
        numbers_equal: BoolArray = lower.numbers[candidates] == upper.numbers[candidates]
        return numbers_equal
    lengths = lower.lengths[candidates]
    equal: BoolArray = (lower.prefixes[candidates] == upper.prefixes[candidates]) & (
        lengths == upper.lengths[candidates]
    )
    longer = lengths > PREFIX_BYTES
    if is_variable:
        return equal & ~longer
    for position in np.flatnonzero(equal & longer).tolist():
        row_group = int(candidates[position])
        equal[position] = lower.bytes_at(row_group) == upper.bytes_at(row_group)
    return equal
