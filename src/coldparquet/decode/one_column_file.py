"""A Parquet file of one flat column in memory, put together from pages that pyarrow is to decode by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from coldparquet.format.parquet_footer import (
    PARQUET_MAGIC,
    VirtualChunk,
    VirtualRowGroup,
    encode_footer,
    frame_footer,
)
from coldparquet.format.sidecar_layout import ENCODING_PLAIN, ENCODING_RLE_DICTIONARY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.format.parquet_schema import LeafSpec


def one_column_file(
    pages: Sequence[bytes | memoryview],
    leaf: LeafSpec,
    *,
    value_count: int,
    codec: int,
    created_by: str | None = None,
) -> pa.Buffer:
    """Make a virtual file of one flat column from the bytes of its pages.

    Args:
        pages: Runs of pages with their headers; a dictionary page may come first. They are copied once.
        leaf: The column.
        value_count: Number of rows.
        codec: Parquet compression codec of the pages.
        created_by: Who wrote the data pages, see :func:`coldparquet.format.parquet_footer.encode_footer`.
    """
    chunk = VirtualChunk(
        start=len(PARQUET_MAGIC),
        length_bytes=sum(map(len, pages)),
        value_count=value_count,
        codec=codec,
        encodings=ENCODING_PLAIN | ENCODING_RLE_DICTIONARY,
    )
    row_group = VirtualRowGroup(row_count=value_count, chunks=[chunk])
    footer = encode_footer([leaf], [row_group], created_by=created_by)
    return pa.py_buffer(b"".join((PARQUET_MAGIC, *pages, frame_footer(footer))))
