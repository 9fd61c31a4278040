"""Columns of nested lists of which just some pages were fetched.

Page headers say how many elements a page holds, but not always how many rows. So runs of pages are decoded one by one:
each must hold exactly the rows that the plan expects of it, or else rows of different columns would be mixed up. pyarrow
refuses a run that begins in the middle of a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from coldparquet.decode.one_column_file import one_column_file
from coldparquet.decode.page_rows import check_rows_of_pieces, parsed_value_count
from coldparquet.decode.parquet_reader import read_columns
from coldparquet.format.page_headers import PageType, first_page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.decode.chunk_label import ChunkLabel
    from coldparquet.format.parquet_schema import LeafSpec
    from coldparquet.plan.row_selection import RowSelection


def decode_list_pages(  # noqa: PLR0913 - the pages of one column, and how to decode them
    pieces: Sequence[bytes],
    leaf: LeafSpec,
    *,
    codec: int,
    created_by: str | None,
    rows: RowSelection,
    label: ChunkLabel,
    check_page_checksums: bool,
) -> pa.ChunkedArray[Any]:
    """Decode the fetched pages of a column of lists.

    Args:
        pieces: The pages, in file order; the first piece begins with the dictionary page if there is one.
        leaf: The column.
        codec: Parquet compression codec of the pages.
        created_by: Who wrote them.
        rows: The rows that the pages should hold.
        label: The chunk, for error messages.
        check_page_checksums: Whether the CRC-32 of each page that has one is compared.

    Returns:
        ``rows.row_count`` lists, or nulls.

    Raises:
        FormatError: The pages do not decode, hold other rows, or begin in the middle of one.
    """
    dictionary = _dictionary_page(pieces[0]) if pieces else b""
    chunks: list[Any] = []
    row_counts = []
    for index, piece in enumerate(pieces):
        pages = [piece] if index == 0 else [dictionary, piece]
        value_count = parsed_value_count(piece, label)
        # Nothing but a dictionary page: pyarrow makes an array without rows of the right type.
        file = one_column_file(pages, leaf, value_count=value_count, codec=codec, created_by=created_by)
        [decoded] = read_columns(file, {leaf.name: label}, check_page_checksums=check_page_checksums)
        chunks += decoded.chunks
        row_counts.append(len(decoded))
    check_rows_of_pieces(np.array(row_counts, dtype=np.int64), rows, label)
    return pa.chunked_array(chunks)


def _dictionary_page(piece: bytes) -> bytes:
    page = first_page(piece)
    return piece[: page.stop] if page is not None and page.header.type == PageType.DICTIONARY else b""
