"""The pages of one column chunk: where each begins, and what its header says.

A chunk is a sequence of pages, each a Thrift header followed by its body. Only symbol columns are taken apart this far;
everything else goes to pyarrow as a whole chunk. Field numbers are those of parquet.thrift.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

from thrift.protocol.TCompactProtocol import TCompactProtocolAcceleratedFactory
from thrift.Thrift import TType
from thrift.transport.TTransport import TMemoryBuffer

from coldparquet.format.parquet_thrift import Structure, ThriftSpec

MAX_PAGES = 10_000
"""Chunks of more pages are not taken apart."""


class PageType(IntEnum):
    """What a page holds."""

    DATA = 0
    DICTIONARY = 2
    DATA_V2 = 3


class PageEncoding(IntEnum):
    """How values are laid out in a page, as far as dictionaries are concerned."""

    PLAIN = 0
    PLAIN_DICTIONARY = 2
    """In a dictionary page: plain values; in a data page: indices. Older name of what RLE_DICTIONARY means."""
    RLE = 3
    RLE_DICTIONARY = 8


@dataclass(slots=True)
class DataPageHeader(Structure):
    """DataPageHeader, without its statistics."""

    num_values: int | None = None
    encoding: int | None = None
    definition_level_encoding: int | None = None
    repetition_level_encoding: int | None = None
    thrift_spec: ClassVar[ThriftSpec] = (
        None,
        (1, TType.I32, "num_values", None, None),
        (2, TType.I32, "encoding", None, None),
        (3, TType.I32, "definition_level_encoding", None, None),
        (4, TType.I32, "repetition_level_encoding", None, None),
    )


@dataclass(slots=True)
class DictionaryPageHeader(Structure):
    """DictionaryPageHeader."""

    num_values: int | None = None
    encoding: int | None = None
    thrift_spec: ClassVar[ThriftSpec] = (
        None,
        (1, TType.I32, "num_values", None, None),
        (2, TType.I32, "encoding", None, None),
    )


@dataclass(slots=True)
class DataPageHeaderV2(Structure):
    """DataPageHeaderV2, as far as needed to know what the page is."""

    num_values: int | None = None
    encoding: int | None = None
    thrift_spec: ClassVar[ThriftSpec] = (
        None,
        (1, TType.I32, "num_values", None, None),
        None,
        None,
        (4, TType.I32, "encoding", None, None),
    )


@dataclass(slots=True)
class PageHeader(Structure):
    """PageHeader: sizes of the body, and the header of the page's own type."""

    type: int | None = None
    uncompressed_page_size: int | None = None
    compressed_page_size: int | None = None
    crc: int | None = None
    data_page_header: DataPageHeader | None = None
    dictionary_page_header: DictionaryPageHeader | None = None
    data_page_header_v2: DataPageHeaderV2 | None = None
    thrift_spec: ClassVar[ThriftSpec] = (
        None,
        (1, TType.I32, "type", None, None),
        (2, TType.I32, "uncompressed_page_size", None, None),
        (3, TType.I32, "compressed_page_size", None, None),
        (4, TType.I32, "crc", None, None),
        (5, TType.STRUCT, "data_page_header", [DataPageHeader, DataPageHeader.thrift_spec], None),
        None,
        (7, TType.STRUCT, "dictionary_page_header", [DictionaryPageHeader, DictionaryPageHeader.thrift_spec], None),
        (8, TType.STRUCT, "data_page_header_v2", [DataPageHeaderV2, DataPageHeaderV2.thrift_spec], None),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page of a chunk."""

    header: PageHeader
    start: int
    """Where its header begins in the chunk."""
    body_start: int
    stop: int
    """Where its body ends, and the next page begins."""


def parse_pages(chunk: bytes) -> list[Page] | None:
    """Find the pages of a chunk.

    Args:
        chunk: All bytes of a column chunk.

    Returns:
        The pages in order, or None if the bytes are not exactly a sequence of at most ``MAX_PAGES`` pages: whoever
        decodes the chunk as a whole can say what is wrong with it.
    """
    transport = TMemoryBuffer(chunk)
    # Every character and list element takes at least one byte, so the chunk bounds both.
    protocol = TCompactProtocolAcceleratedFactory(
        string_length_limit=len(chunk), container_length_limit=len(chunk)
    ).getProtocol(transport)
    pages: list[Page] = []
    position = 0
    while position < len(chunk):
        header = PageHeader()
        transport.cstringio_buf.seek(position)
        try:
            header.read(protocol)
        except Exception:  # noqa: BLE001 - bad bytes raise a dozen unrelated classes, from EOFError to AssertionError
            return None
        body_start = transport.cstringio_buf.tell()
        stop = body_start + (header.compressed_page_size or 0)
        if not body_start <= stop <= len(chunk) or len(pages) == MAX_PAGES:
            return None
        pages.append(Page(header=header, start=position, body_start=body_start, stop=stop))
        position = stop
    return pages
