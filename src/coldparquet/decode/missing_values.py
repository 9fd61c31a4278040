"""Values that no file has to be read for: of columns that were added later, that hold one value, or of no columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from coldparquet.decode.numpy_bridge import numbers_to_arrow

_BLOCK_ROWS = 65_536
"""Values that are made repeat one block of so many rows, so that they cost next to no memory."""


def missing_values(row_count: int, type_: Any, *, never_null: bool) -> pa.ChunkedArray[Any]:
    """Make the values of rows from before a column existed.

    Args:
        row_count: How many.
        type_: Arrow type of the column.
        never_null: Whether its QuestDB type has no null; then they are false or 0.
    """
    block_rows = min(row_count, _BLOCK_ROWS)
    block: Any = pa.repeat(zero(type_), block_rows) if never_null else pa.nulls(block_rows, type_)
    return _repeated_block(block, row_count)


def repeated_value(value: pa.ChunkedArray[Any], row_count: int) -> pa.ChunkedArray[Any]:
    """Make a column that holds one value in every row.

    Args:
        value: The value, shape ``(1,)``; dictionary arrays stay such.
        row_count: How many rows.
    """
    same_place = numbers_to_arrow(np.zeros(min(row_count, _BLOCK_ROWS), dtype=np.int32), pa.int32())
    block: Any = value.chunk(0).take(same_place)
    return _repeated_block(block, row_count)


def _repeated_block(block: pa.Array[Any], row_count: int) -> pa.ChunkedArray[Any]:
    blocks, rest = divmod(row_count, _BLOCK_ROWS)
    return pa.chunked_array([block] * blocks + [block.slice(0, rest)], type=block.type)


def zero(type_: pa.DataType) -> Any:
    """Return what a type without null has in its place: false or 0."""
    return pa.scalar(0, pa.uint8()).cast(type_)


def rows_without_columns(row_count: int) -> pa.Table:
    """Make a table that has rows and no columns, which cannot be told its number of rows otherwise."""
    return pa.table({"": pa.nulls(row_count)}).select([])
