"""The rows that a read asks for, out of the rows that its pages hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from coldparquet.decode.numpy_bridge import mask_to_arrow
from coldparquet.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.plan.row_selection import RowSelection

_LEAST_ROWS_PER_SLICE = 4096
"""Slices cost nothing but make one chunk each, which everything that comes later handles one by one."""

_LARGEST_SHARE_LEFT_OUT = 0.5
"""A slice keeps all rows of its array in memory, so it must want most of them."""


def select_rows(
    arrays: Sequence[pa.ChunkedArray[Any]], positions: RowSelection | None, *, held_rows: int
) -> list[pa.ChunkedArray[Any]]:
    """Select rows of arrays that are all equally long: as slices where they are few and long, otherwise as copies.

    Args:
        arrays: The arrays.
        positions: Which rows; None for all of them.
        held_rows: Length of the arrays.

    Returns:
        One array for each; the array itself if all of its rows are selected.
    """
    if positions is None or positions.row_count == held_rows or not arrays:
        return list(arrays)
    if _slices_pay(positions, held_rows):
        return [_slices(array, positions) for array in arrays]
    held = pa.Table.from_arrays(list(arrays), names=list(map(str, range(len(arrays)))))
    copies: list[Any] = held.filter(_mask(positions, held_rows)).combine_chunks().columns
    return copies


def rows_within(selection: RowSelection | None, fetched: RowSelection | None) -> RowSelection | None:
    """Say where selected rows are among those that were fetched, counted one after the other.

    Args:
        selection: Rows of the row group; None for all.
        fetched: Rows of the row group, those selected among them; None for all.

    Returns:
        None for all of a whole row group.

    Raises:
        InternalError: A row is selected that was not fetched.
    """
    if fetched is None:
        return selection
    if selection is None:
        raise InternalError("all rows of a row group are selected, but only some were fetched")
    return fetched.positions_of(selection)


def _slices_pay(positions: RowSelection, held_rows: int) -> bool:
    kept_rows = positions.row_count
    are_long = kept_rows >= _LEAST_ROWS_PER_SLICE * len(positions.starts)
    return are_long and kept_rows >= held_rows * (1 - _LARGEST_SHARE_LEFT_OUT)


def _slices(array: pa.ChunkedArray[Any], positions: RowSelection) -> pa.ChunkedArray[Any]:
    ranges = zip(positions.starts.tolist(), (positions.stops - positions.starts).tolist(), strict=True)
    slices: list[Any] = [chunk for start, length in ranges for chunk in array.slice(start, length).chunks]
    return pa.chunked_array(slices, type=array.type)


def _mask(positions: RowSelection, row_count: int) -> pa.BooleanArray:
    edges = np.zeros(row_count + 1, dtype=np.int8)
    edges[positions.starts] += 1
    edges[positions.stops] -= 1
    return mask_to_arrow(np.cumsum(edges[:-1], dtype=np.int8).astype(bool))
