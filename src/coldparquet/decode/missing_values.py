"""Values that no file holds: of columns that were added later, and of tables without columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

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
    blocks, rest = divmod(row_count, _BLOCK_ROWS)
    return pa.chunked_array([block] * blocks + [block.slice(0, rest)], type=type_)


def zero(type_: pa.DataType) -> Any:
    """Return what a type without null has in its place: false or 0."""
    return pa.scalar(0, pa.uint8()).cast(type_)


def rows_without_columns(row_count: int) -> pa.Table:
    """Make a table that has rows and no columns, which cannot be told its number of rows otherwise."""
    return pa.table({"": pa.nulls(row_count)}).select([])
