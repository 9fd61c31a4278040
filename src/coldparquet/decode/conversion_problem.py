"""The error for values that were written before the type of their column was changed, and cannot be converted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coldparquet.errors import UnsupportedError

if TYPE_CHECKING:
    from coldparquet.decode.chunk_label import ChunkLabel

_SHOWN_CHARACTERS = 60


def not_convertible(label: ChunkLabel, table_type: str, value: object, why: str) -> UnsupportedError:
    """Return the error for a value that does not become one of the table's type.

    Args:
        label: Where the value was stored.
        table_type: Name of the type that its column has now.
        value: The first such value.
        why: What stands in the way, as a clause.
    """
    shown = repr(value)
    shown = shown if len(shown) <= _SHOWN_CHARACTERS else f"{shown[:_SHOWN_CHARACTERS]}..."
    return UnsupportedError(
        f"{label}: the type of the column was changed to {table_type} since, and {shown} cannot be converted: {why};"
        " leave the column out, read the partition by itself, or rewrite it with QuestDB (ALTER TABLE ... CONVERT"
        " PARTITION TO NATIVE, then TO PARQUET)",
        kind="ChangedColumnType",
        path=label.path,
        row_group=label.row_group,
        columns=label.columns,
        table_type=table_type,
    )
