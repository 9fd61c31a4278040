"""Whether the pages of a column hold the rows that the plan expects: a page index may be wrong about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coldparquet.format.page_headers import count_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from coldparquet.decode.chunk_label import ChunkLabel
    from coldparquet.plan.row_selection import RowSelection

_WRONG_INDEX = "the page index is wrong, or the file is damaged: read with ReadOptions(page_index='never')"


def check_flat_pages(pieces: Sequence[bytes], rows: RowSelection, label: ChunkLabel) -> None:
    """Check by their headers that the pages of a column without lists hold the rows that they should.

    Args:
        pieces: The fetched pages, in file order.
        rows: The rows that the plan expects in them.
        label: The chunk, for error messages.

    Raises:
        FormatError: They do not.
    """
    counts = np.array([parsed_value_count(piece, label) for piece in pieces], dtype=np.int64)
    check_rows_of_pieces(counts, rows, label)


def parsed_value_count(piece: bytes, label: ChunkLabel) -> int:
    """Return how many values, nulls included, the pages of a piece say they hold.

    Raises:
        FormatError: The piece is not a sequence of whole pages.
    """
    value_count = count_values(piece)
    if value_count is None:
        raise label.damaged(f"the fetched bytes are not a sequence of pages; {_WRONG_INDEX}", field="page_index")
    return value_count


def check_rows_of_pieces(piece_rows: npt.NDArray[np.int64], rows: RowSelection, label: ChunkLabel) -> None:
    """Check that every range of rows ends where a piece does, so that no row is taken for another one.

    Args:
        piece_rows: Number of rows in each piece, in file order; 0 if it is just a dictionary page.
        rows: The rows that they should hold together.
        label: The chunk, for error messages.

    Raises:
        FormatError: They hold other rows.
    """
    found, expected = np.cumsum(piece_rows).tolist(), np.cumsum(rows.stops - rows.starts).tolist()
    total = found[-1] if found else 0
    if total != rows.row_count or not set(expected).issubset(found):
        raise label.damaged(
            f"the fetched pages hold {total} rows, expected {rows.row_count} in {len(rows.starts)} ranges; {_WRONG_INDEX}",
            field="row_count",
        )
