"""The pages of one column chunk: where each begins, and what its header says.

A chunk is a sequence of pages, each a Thrift header followed by its body. Only symbol columns are taken apart this far;
everything else goes to pyarrow as a whole chunk.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from thrift.protocol.TCompactProtocol import TCompactProtocolAcceleratedFactory
from thrift.transport.TTransport import TMemoryBuffer

from coldparquet.format.parquet_thrift import PageHeader

MAX_PAGES = 10_000
"""Chunks of more pages are not taken apart."""


class PageType(IntEnum):
    """What a page holds."""

    DATA = 0
    DICTIONARY = 2
    DATA_V2 = 3


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
