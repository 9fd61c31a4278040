"""How much memory the rows of a column take once they are decoded. Estimates: nothing in the metadata says it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coldparquet.errors import UnsupportedError
from coldparquet.plan.column_facts import ColumnFacts

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from coldparquet.format.column_types import ColumnType
    from coldparquet.format.row_group_table import RowGroupTable
    from coldparquet.options import ReadOptions
    from coldparquet.plan.bounds import IntArray

_VALUE_BYTES = {
    "bool": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8,
    "float32": 4, "float64": 8, "timestamp": 8, "date32": 4, "time32": 4, "time64": 8, "decimal128": 16,
    "decimal256": 32,
}  # fmt: skip
"""Bytes of one value by the name of its Arrow type."""

_KEY_BYTES = 4
"""A key of a dictionary, or the offset of a text or list."""

_EXPANSION = 3
"""Text and arrays take about so many times the bytes of their compressed pages."""


def decoded_row_bytes(
    table: RowGroupTable, columns: Sequence[int], row_groups: IntArray, options: ReadOptions
) -> npt.NDArray[np.float64]:
    """Estimate the memory that one decoded row takes in each column.

    Args:
        table: The row groups of a sidecar, or of several.
        columns: Indexes in the table.
        row_groups: Those asked for; only the length of text and arrays differs between them.
        options: Whether text comes dictionary-encoded.

    Returns:
        Bytes, shape ``(row_groups, columns)``.
    """
    row_bytes = np.empty((len(row_groups), len(columns)), np.float64)
    for position, column in enumerate(columns):
        row_bytes[:, position] = _row_bytes(table, column, row_groups, options)
    return row_bytes


def _row_bytes(
    table: RowGroupTable, column: int, row_groups: IntArray, options: ReadOptions
) -> float | npt.NDArray[np.float64]:
    try:
        column_type = table.column_type(column)
    except UnsupportedError:
        return _EXPANSION * _compressed_row_bytes(table, column, row_groups)
    name = column_type.arrow.name
    if name in _VALUE_BYTES:
        return _VALUE_BYTES[name]
    if name == "fixed_size_binary":
        return column_type.arrow.width
    compressed_bytes = _compressed_row_bytes(table, column, row_groups)
    if _stays_dictionary(column_type, options):
        return _KEY_BYTES + compressed_bytes
    # A dictionary hides how long texts are; bounds tell.
    bound_bytes = _LONGEST_BOUNDS.of(table, column)[row_groups]
    return _KEY_BYTES + np.maximum(_EXPANSION * compressed_bytes, bound_bytes)


def _longest_bounds(table: RowGroupTable, column: int) -> npt.NDArray[np.int64]:
    """Return the length of the longer bound of each chunk in bytes, shape ``(row_groups,)``; less than 1 without bounds."""
    chunks = table.chunks(column)
    longest: npt.NDArray[np.int64] = np.maximum(chunks.min.prefix_words()[1], chunks.max.prefix_words()[1])
    return longest


_LONGEST_BOUNDS = ColumnFacts(_longest_bounds)


def _compressed_row_bytes(table: RowGroupTable, column: int, row_groups: IntArray) -> npt.NDArray[np.float64]:
    compressed_bytes: npt.NDArray[np.float64] = table.chunks(column).total_compressed_bytes[row_groups] / np.maximum(
        table.row_counts[row_groups], 1
    )
    return compressed_bytes


def _stays_dictionary(column_type: ColumnType, options: ReadOptions) -> bool:
    wanted = options.symbols if column_type.arrow.name == "dictionary" else options.strings
    return column_type.arrow.name in ("dictionary", "string") and wanted != "string"
