"""The pages of a text chunk by what they hold: a dictionary, indices into it, and strings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from coldparquet.decode.virtual_file import CODECS
from coldparquet.format.page_headers import Page, PageType, parse_pages
from coldparquet.format.sidecar_layout import Encoding

if TYPE_CHECKING:
    from collections.abc import Sequence


SEPARABLE_CODECS = frozenset({"uncompressed", "snappy", "gzip", "brotli", "zstd", "lz4_raw"})
"""Codecs in which Arrow compresses bytes just as a page holds them; the old LZ4 has a frame of its own."""

_INDEX_ENCODINGS = frozenset({Encoding.RLE_DICTIONARY, Encoding.PLAIN_DICTIONARY})
_ENTRY_ENCODINGS = frozenset({Encoding.PLAIN, Encoding.PLAIN_DICTIONARY})
_SMALLEST_ENTRY_BYTES = 4
"""A plain string begins with its length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DictionaryParts:
    """The pages of a flat text chunk by what they hold, in this order."""

    dictionary: Page | None
    """None if there are no pages of indices."""
    index_pages: Sequence[Page]
    text_pages: Sequence[Page]

    @property
    def row_count(self) -> int:
        """Number of rows in the data pages, as their headers say."""
        return count_rows(self.index_pages) + count_rows(self.text_pages)


def take_apart(pages: bytes, codec: int) -> DictionaryParts | None:
    """Find out what the pages of a chunk hold.

    Args:
        pages: Pages with their headers: the dictionary page, if there is one, and any number of the chunk's data pages.
        codec: Parquet compression codec of the chunk.

    Returns:
        None where they are not a dictionary page, pages of indices and pages of strings, in this order.
    """
    found = parse_pages(pages)
    if not found:
        return None
    dictionary = found[0] if found[0].header.type == PageType.DICTIONARY else None
    data_pages = found if dictionary is None else found[1:]
    encodings = [page_encoding(page) for page in data_pages]
    if not encodings or None in encodings:
        return None
    index_count = sum(encoding in _INDEX_ENCODINGS for encoding in encodings)
    if any(encoding in _INDEX_ENCODINGS for encoding in encodings[index_count:]):
        return None
    if index_count and (dictionary is None or not _is_readable(dictionary, codec)):
        return None
    return DictionaryParts(
        dictionary=dictionary if index_count else None,
        index_pages=data_pages[:index_count],
        text_pages=data_pages[index_count:],
    )


def page_encoding(page: Page) -> int | None:
    """Return how the values of a data page are encoded; None if it is no data page."""
    header = page.header
    data_page = header.data_page_header_v2 if header.type == PageType.DATA_V2 else header.data_page_header
    is_data = header.type in {PageType.DATA, PageType.DATA_V2} and data_page is not None
    return data_page.encoding if is_data and data_page is not None and (data_page.num_values or 0) >= 0 else None


def count_rows(pages: Sequence[Page]) -> int:
    """Return the number of rows in data pages, as their headers say."""
    headers = (page.header.data_page_header_v2 or page.header.data_page_header for page in pages)
    return sum((header.num_values or 0) for header in headers if header is not None)


def count_entries(page: Page) -> int:
    """Return the number of entries in a dictionary page, as its header says."""
    dictionary = page.header.dictionary_page_header
    return (dictionary.num_values or 0) if dictionary is not None else 0


def _is_readable(page: Page, codec: int) -> bool:
    dictionary, page_bytes = page.header.dictionary_page_header, page.header.uncompressed_page_size or 0
    return (
        dictionary is not None
        and CODECS[codec] in SEPARABLE_CODECS
        and dictionary.encoding in _ENTRY_ENCODINGS
        and 0 < count_entries(page) <= page_bytes // _SMALLEST_ENTRY_BYTES
    )
