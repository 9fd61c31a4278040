"""The rows that a read asks for, out of the rows that its pages hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    import numpy.typing as npt

    from coldparquet.plan.row_selection import RowSelection

_LEAST_ROWS_PER_SLICE = 4096
"""Slices cost nothing but make one chunk each, which everything that comes later handles one by one."""

_LARGEST_SHARE_LEFT_OUT = 0.5
"""A slice keeps all rows of its array in memory, so it must want most of them."""


class SelectedRows:
    """Some of the rows of arrays that are all equally long.

    Args:
        positions: Which rows; None for all of them.
        held_rows: Length of the arrays.
    """

    def __init__(self, positions: RowSelection | None, *, held_rows: int) -> None:
        self._positions = positions
        self._takes_all = positions is None or positions.row_count == held_rows
        self._mask: pa.Array[Any] | None = None
        if positions is not None and not self._takes_all and not _slices_pay(positions, held_rows):
            self._mask = _mask(positions, held_rows)

    def of(self, array: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any]:
        """Return the selected rows of one array: slices of it where they are few and long, otherwise a copy."""
        positions = self._positions
        if positions is None or self._takes_all:
            return array
        if self._mask is not None:
            kept: Any = array.filter(self._mask).combine_chunks()
            return kept if isinstance(kept, pa.ChunkedArray) else pa.chunked_array([kept], type=array.type)
        ranges = zip(positions.starts.tolist(), (positions.stops - positions.starts).tolist(), strict=True)
        slices = [chunk for start, length in ranges for chunk in array.slice(start, length).chunks]
        return pa.chunked_array(slices, type=array.type)


def rows_within(selection: RowSelection | None, fetched: RowSelection | None) -> RowSelection | None:
    """Say where selected rows are among those that were fetched, counted one after the other.

    Args:
        selection: Rows of the row group; None for all.
        fetched: Rows of the row group, those selected among them; None for all.

    Returns:
        None for all of those fetched.

    Raises:
        InternalError: A row is selected that was not fetched.
    """
    return selection if selection is None or fetched is None else fetched.positions_of(selection)


def _slices_pay(positions: RowSelection, held_rows: int) -> bool:
    kept_rows = positions.row_count
    return (
        kept_rows >= held_rows * (1 - _LARGEST_SHARE_LEFT_OUT)
        and kept_rows >= _LEAST_ROWS_PER_SLICE * len(positions.starts)
    )


def _mask(positions: RowSelection, row_count: int) -> pa.Array[Any]:
    edges = np.zeros(row_count + 1, dtype=np.int8)
    edges[positions.starts] += 1
    edges[positions.stops] -= 1
    bits: npt.NDArray[np.uint8] = np.packbits(np.cumsum(edges[:-1], dtype=np.int8).astype(bool), bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), row_count, [None, pa.py_buffer(bits.tobytes())])
