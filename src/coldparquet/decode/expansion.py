"""Limits what pages decompress and decode to: few bytes may expand to very many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from coldparquet.decode.arrow import compute
from coldparquet.decode.dictionaries import SEPARABLE_CODECS, count_rows, page_encoding
from coldparquet.decode.parquet_reader import read_columns
from coldparquet.decode.virtual_file import CODECS, one_column_file
from coldparquet.errors import BudgetExceededError, FormatError, UnsupportedError
from coldparquet.format.page_headers import PageType
from coldparquet.format.parquet_schema import LeafSpec
from coldparquet.format.parquet_thrift import DataPageHeader, PageHeader
from coldparquet.format.sidecar_layout import Encoding, PhysicalType
from coldparquet.options import MIB

if TYPE_CHECKING:
    from coldparquet.decode.parquet_reader import ChunkLabel
    from coldparquet.format.page_headers import FetchedPages, Page

_LARGEST_USUAL_RATIO = 256
"""Ordinary pages decompress to 2 to 100 times their bytes."""

_LARGEST_RATIO = 1 << 15
"""Largest expansion of all codecs: zstd, whose smallest block of 4 bytes represents 128 KiB."""

_WIDEST_NUMBER_BYTES = 32
"""A decimal of 256 bits."""

_NEVER_REFUSED_BYTES = 64 * MIB
"""Always decompressed, whatever the memory limit."""


def may_decompress_to(length_bytes: int, most_bytes: int) -> bool:
    """Tell whether pages of this length may decompress to this many bytes in any codec."""
    return length_bytes * _LARGEST_RATIO > most_bytes


def is_boundless(codec: int) -> bool:
    """Tell whether a codec may expand more than ordinary pages do: snappy at most 21 times, LZ4 255 times."""
    return CODECS[codec] in {"gzip", "brotli", "zstd"}


def check_decompressed_size(pages: FetchedPages, most_bytes: int, label: ChunkLabel, *, row_count: int) -> None:
    """Refuse a chunk that would decompress to more than the memory limit and far more than ordinary ones."""
    size_bytes = sum(max(page.header.uncompressed_page_size or 0, 0) for page in pages.headers or [])
    claim = "pages of {:,} bytes say that they decompress to {:,}"
    _check_chunk_size(claim, pages, size_bytes, most_bytes, label, row_count=row_count)


def check_decoded_size(
    pages: FetchedPages, size_bytes: int, most_bytes: int, label: ChunkLabel, *, row_count: int
) -> None:
    """Refuse a chunk whose values take more than the memory limit and far more than those of ordinary ones."""
    claim = "the values of pages of {:,} bytes take {:,}"
    _check_chunk_size(claim, pages, size_bytes, most_bytes, label, row_count=row_count)


def _check_chunk_size(  # noqa: PLR0913 - the claim, and all it is about
    claim: str, pages: FetchedPages, size_bytes: int, most_bytes: int, label: ChunkLabel, *, row_count: int
) -> None:
    length_bytes = len(pages.content)
    check_size(
        size_bytes,
        most_bytes,
        label,
        usual_bytes=max(_LARGEST_USUAL_RATIO * length_bytes, _WIDEST_NUMBER_BYTES * row_count),
        claim=claim.format(length_bytes, size_bytes),
    )


def check_expanded_size(encoded_bytes: int, size_bytes: int, most_bytes: int) -> None:
    """Refuse plain strings of a row group whose text is only small while dictionary-encoded."""
    check_size(
        size_bytes,
        most_bytes,
        None,
        usual_bytes=_LARGEST_USUAL_RATIO * encoded_bytes,
        claim=f"the text of a row group takes {size_bytes:,} bytes as plain strings",
    )


def check_size(size_bytes: int, most_bytes: int, label: ChunkLabel | None, *, usual_bytes: int, claim: str) -> None:
    """Refuse a size above the memory limit and above the usual."""
    if size_bytes <= max(most_bytes, _NEVER_REFUSED_BYTES, usual_bytes):
        return
    raise BudgetExceededError(
        f"{'' if label is None else f'{label}: '}{claim}, more than memory_limit_bytes"
        f" ({most_bytes:,}); if that is right, read with ReadOptions(memory_limit_bytes={size_bytes}), or leave the column"
        " out with columns=[...]",
        kind="MemoryLimit",
        path=None if label is None else label.path,
        row_group=None if label is None else label.row_group,
        columns=() if label is None else label.columns,
        decompressed_bytes=size_bytes,
    )


def delta_text_bytes(pages: FetchedPages, *, codec: int, leaf: LeafSpec, label: ChunkLabel, enough_bytes: int) -> int:
    """Return the size of delta-encoded byte strings, each of which repeats a prefix of the previous one."""
    found = [page for page in pages.headers or [] if page_encoding(page) == Encoding.DELTA_BYTE_ARRAY]
    # No string is longer than all bytes of its page.
    if sum(count_rows([page]) * (page.header.uncompressed_page_size or 0) for page in found) <= enough_bytes:
        return 0
    try:
        size_bytes = sum(_delta_page_bytes(pages.content, page, codec, leaf, label) for page in found)
    except (pa.ArrowException, OSError, FormatError, UnsupportedError, IndexError):
        return 0
    return size_bytes if size_bytes > enough_bytes else 0


def _delta_page_bytes(pages: memoryview, page: Page, codec: int, leaf: LeafSpec, label: ChunkLabel) -> int:
    """Sum the prefix lengths, which come first in the page as numbers, and the bytes of the page itself."""
    values = _values_of(pages, page, codec, leaf)
    # The sizes of a block and its parts come first, then the count of the numbers, in seven bits per byte.
    position = 0
    for _ in range(2):
        while values[position] & 0x80:
            position += 1
        position += 1
    count = shift = 0
    while True:
        count |= (values[position] & 0x7F) << shift
        shift += 7
        position += 1
        if not values[position - 1] & 0x80:
            break
    count = min(count, count_rows([page]))
    header = PageHeader(
        type=PageType.DATA,
        uncompressed_page_size=len(values),
        compressed_page_size=len(values),
        data_page_header=DataPageHeader(
            num_values=count,
            encoding=Encoding.DELTA_BINARY_PACKED,
            definition_level_encoding=Encoding.RLE,
            repetition_level_encoding=Encoding.RLE,
        ),
    )
    lengths = LeafSpec(name="lengths", physical_type=PhysicalType.INT32, max_def_level=0)
    file = one_column_file([header.encode(), values], lengths, value_count=count, codec=0)
    [decoded] = read_columns(file, {lengths.name: label}, check_page_checksums=False)
    return (compute.sum(decoded).as_py() or 0) + len(values)


def _values_of(pages: memoryview, page: Page, codec: int, leaf: LeafSpec) -> memoryview:
    """Return the values of a data page, decompressed and without their levels."""
    body, size_bytes = pages[page.body_start : page.stop], page.header.uncompressed_page_size or 0
    v2 = page.header.data_page_header_v2
    if page.header.type == PageType.DATA_V2 and v2 is not None:
        level_bytes = (v2.definition_levels_byte_length or 0) + (v2.repetition_levels_byte_length or 0)
        body, size_bytes = body[level_bytes:], size_bytes - level_bytes
        return body if v2.is_compressed is False else _decompressed(body, size_bytes, codec)
    values = _decompressed(body, size_bytes, codec)
    for _ in range((leaf.max_rep_level > 0) + (leaf.max_def_level > 0)):
        values = values[4 + int.from_bytes(values[:4], "little") :]
    return values


def _decompressed(body: memoryview, size_bytes: int, codec: int) -> memoryview:
    name: Any = CODECS[codec]  # the stubs list Arrow's names
    if name not in SEPARABLE_CODECS:
        raise UnsupportedError(f"pages in {name} cannot be decompressed by themselves")
    return body if codec == 0 else memoryview(pa.decompress(body, size_bytes, codec=name, asbytes=True))
