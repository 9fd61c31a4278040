"""Column chunks of one value, which their statistics tell: a page of one row is made up and decoded like any other."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from coldparquet.decode.one_column_file import one_column_file
from coldparquet.decode.parquet_reader import read_columns
from coldparquet.decode.virtual_file import column_leaf
from coldparquet.format.page_headers import PageType
from coldparquet.format.page_thrift import DataPageHeader, PageHeader
from coldparquet.format.sidecar_layout import Codec, Encoding, Repetition
from coldparquet.plan.made_chunks import constant_bytes

if TYPE_CHECKING:
    import pyarrow as pa

    from coldparquet.decode.chunk_label import ChunkLabel
    from coldparquet.format.sidecar import Sidecar


def constant_value(sidecar: Sidecar, column: int, row_group: int, label: ChunkLabel) -> pa.ChunkedArray[Any]:
    """Decode the value of a chunk of which ``plan.made_chunks.constant_chunks`` says that it holds one only.

    Args:
        sidecar: The partition's sidecar.
        column: Index of the column in it.
        row_group: The row group of the chunk.
        label: The chunk, for error messages.

    Returns:
        One value, of the type that pyarrow gives the column.

    Raises:
        FormatError: The bound is not a value of the column's type.
    """
    value = constant_bytes(sidecar, column, row_group)
    header = PageHeader(
        type=PageType.DATA,
        uncompressed_page_size=len(value),
        compressed_page_size=len(value),
        data_page_header=DataPageHeader(
            num_values=1,
            encoding=Encoding.PLAIN,
            definition_level_encoding=Encoding.RLE,
            repetition_level_encoding=Encoding.RLE,
        ),
    )
    # A required column has no levels in front of its values.
    leaf = replace(column_leaf(sidecar, column), repetition=Repetition.REQUIRED, max_def_level=0)
    file = one_column_file([header.encode(), value], leaf, value_count=1, codec=Codec.UNCOMPRESSED)
    [values] = read_columns(file, {leaf.name: label}, check_page_checksums=False)
    return values
