"""What sidecars with the same columns have in common: nearly all partitions of a table describe them in the same bytes."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coldparquet.format.column_types import ColumnType
    from coldparquet.format.sidecar_header import ColumnDescriptor

_MOST_SCHEMAS = 64


class ColumnSchema:
    """What was parsed so far of the columns of all sidecars with one description of them; compared by identity.

    Filled by :class:`coldparquet.format.row_group_table.RowGroupTable`, and by
    :func:`coldparquet.format.columns_ahead.parse_columns_ahead` before the checksum is known; also from several threads: they
    find the same. Only what is right is kept, so that errors name the sidecar in which they are met.

    Attributes:
        descriptors: Column descriptors by index.
        types: Types by index.
    """

    def __init__(self) -> None:
        self.descriptors: dict[int, ColumnDescriptor] = {}
        self.types: dict[int, ColumnType] = {}


@lru_cache(maxsize=_MOST_SCHEMAS)
def shared_schema(description: bytes, annotations: bytes) -> ColumnSchema:  # noqa: ARG001 - together they are the key
    """Return the schema of all sidecars that describe their columns in these bytes.

    Args:
        description: The beginning of each of them but for the committed size: flags, counts, descriptors, sorting columns and
            names.
        annotations: What the SCRATCHPAD says about the types of foreign columns; empty for QuestDB's files.
    """
    return ColumnSchema()
