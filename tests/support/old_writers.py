"""Files as old writers made them: bytes of pyarrow's files, changed as those writers got them wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from coldparquet.format.page_headers import PageType, parse_pages
from coldparquet.format.parquet_footer import WRITER_CODE
from coldparquet.format.parquet_thrift import PageHeader
from coldparquet.format.sidecar_writer import encode_sidecar
from tests.support.parquet_fragments import parsed_footer
from tests.support.table_copies import sidecar_content
from tests.support.tampered_parquet import with_changed_footer

if TYPE_CHECKING:
    from pathlib import Path

    from coldparquet.format.page_headers import Page
    from coldparquet.format.parquet_thrift import ColumnMetaData, FileMetaData

ARROW_BEFORE_3 = "parquet-cpp version 1.5.1-SNAPSHOT"
PARQUET_MR_BEFORE_1_2_9 = "parquet-mr version 1.2.8 (build 23bf51c)"
_TRUE, _FALSE = 0x11, 0x12
"""Header of a boolean field whose number is one more than that of the field before it; the value is part of it."""


def created_by(file: bytes, writer: str | None) -> bytes:
    """Return the file with another writer in its footer, and nothing else changed."""

    def name(footer: FileMetaData) -> None:
        footer.created_by = writer

    return with_changed_footer(file, name)


def marked_as_not_compressed(file: bytes) -> bytes:
    """Mark all data pages, of version 2 and compressed, as not compressed, as Arrow before 3.0 did."""
    changed = bytearray(file)
    for start, pages in _chunks(file):
        for page in pages:
            if not _is_dictionary(page):
                place = start + page.start + _place_of_mark(file[start + page.start : start + page.body_start])
                changed[place] = _FALSE
    return created_by(bytes(changed), ARROW_BEFORE_3)


def without_dictionary_headers(file: bytes, writer: str = PARQUET_MR_BEFORE_1_2_9) -> bytes:
    """Leave the headers of dictionary pages out of the lengths of chunks, as parquet-mr before 1.2.9 did."""
    header_bytes = {start: pages[0].body_start for start, pages in _chunks(file) if _is_dictionary(pages[0])}
    assert header_bytes, "no chunk has a dictionary"

    def shorten(footer: FileMetaData) -> None:
        for row_group in footer.row_groups:
            for chunk in row_group.columns:
                metadata = chunk.meta_data
                assert metadata is not None
                metadata.total_compressed_size -= header_bytes.get(_start(metadata), 0)

    return created_by(with_changed_footer(file, shorten), writer)


def write_sidecar_without_writer(partition: Path) -> None:
    """Write the sidecar that versions wrote which did not note the writer of the file."""
    content = sidecar_content(partition)
    notes = [entry for entry in content.scratchpad if entry.code != WRITER_CODE]
    (partition / "_pm").write_bytes(encode_sidecar(replace(content, scratchpad=notes)))


def _chunks(file: bytes) -> list[tuple[int, list[Page]]]:
    chunks = [chunk for row_group in parsed_footer(file).row_groups for chunk in row_group.chunks]
    found = []
    for chunk in chunks:
        pages = parse_pages(file[_start(chunk) : _start(chunk) + chunk.total_compressed_size])
        assert pages
        found.append((_start(chunk), pages))
    return found


def _start(chunk: ColumnMetaData) -> int:
    return chunk.dictionary_page_offset or chunk.data_page_offset


def _is_dictionary(page: Page) -> bool:
    return page.header.type == PageType.DICTIONARY


def _place_of_mark(header: bytes) -> int:
    """Find the byte of a page header that says whether the page is compressed: with it, nothing else changes."""
    expected = PageHeader.decode(header, path=None, offset=0)
    assert expected.data_page_header_v2 is not None
    expected.data_page_header_v2.is_compressed = False
    for place, byte in enumerate(header):
        if byte == _TRUE:
            changed = header[:place] + bytes([_FALSE]) + header[place + 1 :]
            if PageHeader.decode(changed, path=None, offset=0) == expected:
                return place
    pytest.fail("a page is not of version 2, or not compressed, as it would have been then")
