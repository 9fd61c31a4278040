"""How much memory the rows of a column take once they are decoded. Estimates: nothing in the metadata says it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coldparquet.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from coldparquet.format.column_types import ColumnType
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.options import ReadOptions

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
    sidecar: Sidecar, columns: Sequence[int], row_group: int, options: ReadOptions
) -> npt.NDArray[np.float64]:
    """Estimate the memory that one decoded row takes in each column.

    Args:
        sidecar: What is known about the partition.
        columns: Indexes in the sidecar.
        row_group: The row group; only the length of text and arrays differs between row groups.
        options: Whether text comes dictionary-encoded.

    Returns:
        Bytes, shape ``(columns,)``.
    """
    return np.array([_row_bytes(sidecar, column, row_group, options) for column in columns], dtype=np.float64)


def _row_bytes(sidecar: Sidecar, column: int, row_group: int, options: ReadOptions) -> float:
    chunks = sidecar.chunks(column)
    rows = max(int(sidecar.row_counts[row_group]), 1)
    compressed_bytes = int(chunks.total_compressed_bytes[row_group]) / rows
    try:
        column_type = sidecar.column_type(column)
    except UnsupportedError:
        return _EXPANSION * compressed_bytes
    name = column_type.arrow.name
    if name in _VALUE_BYTES:
        return _VALUE_BYTES[name]
    if name == "fixed_size_binary":
        return column_type.arrow.width
    if _stays_dictionary(column_type, options):
        return _KEY_BYTES + compressed_bytes
    # A dictionary hides how long texts are; bounds tell.
    bounds = (side.bytes_at(row_group) for side in (chunks.min, chunks.max))
    bound_bytes = max((len(bound) for bound in bounds if bound is not None), default=0)
    return _KEY_BYTES + max(_EXPANSION * compressed_bytes, bound_bytes)


def _stays_dictionary(column_type: ColumnType, options: ReadOptions) -> bool:
    wanted = options.symbols if column_type.arrow.name == "dictionary" else options.strings
    return column_type.arrow.name in ("dictionary", "string") and wanted != "string"
