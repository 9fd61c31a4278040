"""Text chunks whose dictionaries pyarrow may read by itself, along with the other columns of their file.

That takes half the time of ``coldparquet.decode.dictionary_chunks``, which takes chunks apart. But where entries repeat,
pyarrow drops them without renumbering the indices. So chunks that may have an empty entry are left out: what QuestDB
repeats are empty ones. And the outcome is only taken if as many values came out as there are entries, all of them
different then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from coldparquet.decode.arrow_schema import DICTIONARY_TYPE
from coldparquet.decode.dictionary_pages import count_entries, take_apart
from coldparquet.decode.parquet_reader import check_values
from coldparquet.decode.virtual_file import CODECS

if TYPE_CHECKING:
    from coldparquet.decode.chunk_label import ChunkLabel
    from coldparquet.format.page_headers import Page

_EMPTY_ENTRY = bytes(4)
"""A plain string begins with its length. Lengths below 16 million end with a zero, but not with four."""

_LARGEST_SEARCHED_BYTES = 1 << 20
"""Dictionaries that are longer are taken apart: searching them, decompressed once more, would take too long."""


def distinct_entries(pages: bytes, codec: int, *, row_count: int) -> int | None:
    """Return how many entries the dictionary of a flat text chunk has if pyarrow may read it by itself.

    Args:
        pages: Pages with their headers: the dictionary page, and any number of the chunk's data pages.
        codec: Parquet compression codec of the chunk.
        row_count: Number of rows in the data pages.

    Returns:
        None where the chunk has other pages than a dictionary and indices, or where an entry may be empty.
    """
    parts = take_apart(pages, codec)
    if parts is None or parts.dictionary is None or parts.text_pages or parts.row_count != row_count:
        return None
    return None if _may_have_empty_entry(pages, parts.dictionary, codec) else count_entries(parts.dictionary)


def is_as_stored(array: pa.ChunkedArray[Any], entry_count: int, label: ChunkLabel) -> bool:
    """Tell whether what pyarrow has read is what was written.

    Args:
        array: What it has read.
        entry_count: Number of entries in the chunk's dictionary.
        label: The chunk, for error messages.

    Raises:
        FormatError: An index has no entry, or an entry is not UTF-8.
    """
    chunks: list[Any] = array.chunks
    if array.type != DICTIONARY_TYPE or any(len(chunk.dictionary) != entry_count for chunk in chunks):
        return False
    check_values(array, label)
    return True


def _may_have_empty_entry(pages: bytes, dictionary: Page, codec: int) -> bool:
    body = memoryview(pages)[dictionary.body_start : dictionary.stop]
    size_bytes = dictionary.header.uncompressed_page_size or 0
    if size_bytes > _LARGEST_SEARCHED_BYTES:
        return True
    name: Any = CODECS[codec]  # the stubs list Arrow's names
    try:
        entries = pa.decompress(body, decompressed_size=size_bytes, codec=name, asbytes=True) if codec else bytes(body)
    except (pa.ArrowException, OSError):
        return True  # whoever takes the chunk apart says what is wrong with it
    return _EMPTY_ENTRY in entries
