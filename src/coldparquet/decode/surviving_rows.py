"""The rows that a predicate leaves, and where they were: what late materialisation goes on with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coldparquet.decode.filter import matching_rows
from coldparquet.decode.numpy_bridge import numbers_to_numpy
from coldparquet.plan.row_selection import RowSelection

if TYPE_CHECKING:
    from coldparquet.plan.bind import BoundPredicate


def surviving_rows(bound: BoundPredicate, table: pa.Table) -> tuple[pa.Table, RowSelection]:
    """Keep the rows for which a predicate is true, in their order.

    Args:
        bound: The predicate.
        table: Holds at least the predicate's fields, by name.

    Returns:
        The rows, and their positions in ``table``.
    """
    kept = matching_rows(bound, table)
    positions = numbers_to_numpy(pc.indices_nonzero(kept), np.uint64).astype(np.int64)
    rows = table if len(positions) == table.num_rows else table.filter(kept)
    return rows, RowSelection.of_ranges(positions, positions + 1)
