"""The pages of one column chunk: where each begins, and what its header says.

A chunk is a sequence of pages, each a Thrift header followed by its body. Only symbol columns are taken apart this far;
everything else goes to pyarrow as a whole chunk.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from itertools import islice
from typing import TYPE_CHECKING

from thrift.protocol.TCompactProtocol import TCompactProtocolAcceleratedFactory
from thrift.transport.TTransport import TMemoryBuffer

from coldparquet.format.page_thrift import PageHeader

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    pages = parse_page_run(chunk, limit=len(chunk))
    stop = pages[-1].stop if pages else 0
    return pages if stop == len(chunk) and len(pages) <= MAX_PAGES else None


def parse_page_run(content: bytes, *, limit: int) -> list[Page]:
    """Find the pages that begin in some bytes of a chunk.

    Args:
        content: Bytes from the beginning of a page on; the last page need not end in them.
        limit: Where the chunk ends, counted from the first of these bytes; no page reaches beyond.

    Returns:
        The pages whose headers lie in the bytes, one behind the other, at most one more than ``MAX_PAGES``. Where the
        last one stops a header begins that is cut off or damaged, or nothing.
    """
    return list(islice(iterate_pages(content, limit), MAX_PAGES + 1))


def first_page(pages: bytes) -> Page | None:
    """Return the first page of some pages; None if they do not begin with a whole one."""
    return next(iterate_pages(pages, len(pages)), None)


def count_values(pages: bytes) -> int | None:
    """Sum up the values that data pages hold by their headers, nulls included; None if the bytes are not whole pages."""
    value_count = stop = 0
    for page in iterate_pages(pages, len(pages)):
        data_page = page.header.data_page_header or page.header.data_page_header_v2
        value_count += 0 if data_page is None else data_page.num_values or 0
        stop = page.stop
    return value_count if stop == len(pages) else None


def iterate_pages(content: bytes, limit: int) -> Iterator[Page]:
    """Yield page after page, up to the first header that is cut off or damaged, or whose page ends behind ``limit``."""
    transport = TMemoryBuffer(content)
    # Every character and list element takes at least one byte, so the content bounds both.
    protocol = TCompactProtocolAcceleratedFactory(
        string_length_limit=len(content), container_length_limit=len(content)
    ).getProtocol(transport)
    position = 0
    while position < len(content):
        header = PageHeader()
        transport.cstringio_buf.seek(position)
        try:
            header.read(protocol)
        except Exception:  # noqa: BLE001 - bad bytes raise a dozen unrelated classes, from EOFError to AssertionError
            return
        body_start = transport.cstringio_buf.tell()
        stop = body_start + (header.compressed_page_size or 0)
        if not body_start <= stop <= limit:
            return
        yield Page(header=header, start=position, body_start=body_start, stop=stop)
        position = stop
