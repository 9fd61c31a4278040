"""Symbol chunks: a dictionary page and pages of indices -> dictionary arrays, without looking at each row's string.

pyarrow can read dictionaries as such (``read_dictionary``), but it drops repeated entries without renumbering the
indices, and then returns other symbols than were written. QuestDB's dictionaries do repeat: entry ``k`` is the table's
symbol ``k``, or an empty string where the chunk does not use it. So a chunk is decoded as two virtual files: its
dictionary page as a page of plain strings, and its index pages as integers whose dictionary is 0, 1, 2 and so on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coldparquet.decode.arrow_schema import SYMBOL_TYPE
from coldparquet.decode.numpy_bridge import numbers_to_arrow, numbers_to_numpy
from coldparquet.decode.parquet_reader import check_values, read_columns
from coldparquet.decode.virtual_file import CODECS, one_column_file
from coldparquet.format.logical_types import LogicalKind, LogicalType
from coldparquet.format.page_headers import Page, PageType, parse_pages
from coldparquet.format.parquet_schema import LeafSpec
from coldparquet.format.parquet_thrift import DataPageHeader, DictionaryPageHeader, PageHeader
from coldparquet.format.sidecar_layout import Encoding, PhysicalType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.decode.chunk_label import ChunkLabel

_SEPARABLE_CODECS = frozenset({"uncompressed", "snappy", "gzip", "brotli", "zstd", "lz4_raw"})
"""Codecs in which Arrow compresses bytes just as a page holds them; the old LZ4 has a frame of its own."""

_INDEX_ENCODINGS = frozenset({Encoding.RLE_DICTIONARY, Encoding.PLAIN_DICTIONARY})
_ENTRY_ENCODINGS = frozenset({Encoding.PLAIN, Encoding.PLAIN_DICTIONARY})
_SMALLEST_ENTRY_BYTES = 4
"""A plain string begins with its length."""


def decode_symbols(
    chunk: bytes, *, codec: int, row_count: int, max_def_level: int, label: ChunkLabel
) -> pa.ChunkedArray[Any] | None:
    """Decode the chunk of a symbol column by its parts.

    Args:
        chunk: All bytes of the chunk.
        codec: Its Parquet compression codec.
        row_count: Number of rows that it should hold.
        max_def_level: 1 if rows can be null, else 0.
        label: The chunk, for error messages.

    Returns:
        Dictionary arrays of strings with int32 indices, whose dictionary holds just the values that occur. None if the
        chunk is not one dictionary page, with entries, followed by pages of indices: decode it as any other then.

    Raises:
        FormatError: A page does not decode.
    """
    pages = parse_pages(chunk)
    if pages is None or CODECS[codec] not in _SEPARABLE_CODECS or not _is_separable(pages):
        return None
    entries = _read_entries(chunk, pages[0], codec, label)
    index_pages = _counting_dictionary_page(len(entries), codec) + chunk[pages[0].stop :]
    leaf = LeafSpec(name="indices", physical_type=PhysicalType.INT32, max_def_level=max_def_level)
    index_file = one_column_file(index_pages, leaf, value_count=row_count, codec=codec)
    [indices] = read_columns(index_file, {0: label})
    arrays: list[Any] = [pa.DictionaryArray.from_arrays(positions, entries) for positions in indices.chunks]
    lengths: Any = pc.binary_length(entries)  # type: ignore[call-overload]
    if not numbers_to_numpy(lengths, np.int32).all():  # unused symbols are empty strings
        arrays = [_with_used_values(array) for array in arrays]
    return pa.chunked_array(arrays, type=SYMBOL_TYPE)


def _is_separable(pages: Sequence[Page]) -> bool:
    dictionary = pages[0].header.dictionary_page_header if pages else None
    if dictionary is None or pages[0].header.type != PageType.DICTIONARY:
        return False
    entry_count, page_bytes = dictionary.num_values or 0, pages[0].header.uncompressed_page_size or 0
    return (
        dictionary.encoding in _ENTRY_ENCODINGS
        and 0 < entry_count <= page_bytes // _SMALLEST_ENTRY_BYTES
        and all(_holds_indices(page.header) for page in pages[1:])
    )


def _holds_indices(header: PageHeader) -> bool:
    match header.type:
        case PageType.DATA:
            data_page = header.data_page_header
            return data_page is not None and data_page.encoding in _INDEX_ENCODINGS
        case PageType.DATA_V2:
            data_page_v2 = header.data_page_header_v2
            return data_page_v2 is not None and data_page_v2.encoding in _INDEX_ENCODINGS
        case _:
            return False


def _read_entries(chunk: bytes, page: Page, codec: int, label: ChunkLabel) -> pa.Array[Any]:
    """Decode a dictionary page as a data page: without levels, which a required column has none of, they are alike."""
    dictionary = page.header.dictionary_page_header
    entry_count = (dictionary.num_values or 0) if dictionary is not None else 0
    header = PageHeader(
        type=PageType.DATA,
        uncompressed_page_size=page.header.uncompressed_page_size,
        compressed_page_size=page.header.compressed_page_size,
        crc=page.header.crc,
        data_page_header=DataPageHeader(
            num_values=entry_count,
            encoding=Encoding.PLAIN,
            definition_level_encoding=Encoding.RLE,
            repetition_level_encoding=Encoding.RLE,
        ),
    )
    leaf = LeafSpec(
        name="entries",
        physical_type=PhysicalType.BYTE_ARRAY,
        max_def_level=0,
        logical=LogicalType(kind=LogicalKind.STRING),
    )
    data_page = header.encode() + chunk[page.body_start : page.stop]
    [entries] = read_columns(one_column_file(data_page, leaf, value_count=entry_count, codec=codec), {0: label})
    check_values(entries, label)
    if len(entries) != entry_count:
        raise label.damaged(f"its dictionary has {len(entries)} entries, expected {entry_count}", field="dictionary")
    return entries.combine_chunks()


def _counting_dictionary_page(entry_count: int, codec: int) -> bytes:
    """Return a dictionary page of integers in which every entry is its own index."""
    body = np.arange(entry_count, dtype="<i4").tobytes()
    name: Any = CODECS[codec]  # the stubs list Arrow's names
    compressed = pa.compress(body, name, asbytes=True) if codec else body
    header = PageHeader(
        type=PageType.DICTIONARY,
        uncompressed_page_size=len(body),
        compressed_page_size=len(compressed),
        dictionary_page_header=DictionaryPageHeader(num_values=entry_count, encoding=Encoding.PLAIN),
    )
    return header.encode() + compressed


def _with_used_values(array: pa.DictionaryArray[Any, Any]) -> pa.DictionaryArray[Any, Any]:
    """Drop the entries that no row has: empty strings in the place of symbols that occur elsewhere in the table."""
    is_used = np.zeros(len(array.dictionary), dtype=bool)
    is_used[numbers_to_numpy(array.indices.drop_null(), np.int32)] = True
    if is_used.all():
        return array
    renumbered = np.cumsum(is_used, dtype=np.int32) - np.int32(1)
    kept = numbers_to_arrow(np.flatnonzero(is_used).astype(np.int32), pa.int32())
    return pa.DictionaryArray.from_arrays(
        numbers_to_arrow(renumbered, pa.int32()).take(array.indices), array.dictionary.take(kept)
    )
