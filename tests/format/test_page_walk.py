"""Walking page headers: the same pages as the page index names, without it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from coldparquet.errors import InternalError
from coldparquet.format import page_headers
from coldparquet.format.page_headers import MAX_PAGES, ChunkWalk, check_walked_pages
from coldparquet.format.pages import PartitionPages, join_pages
from coldparquet.format.parquet_thrift import DataPageHeader, DictionaryPageHeader, PageHeader
from coldparquet.ranges import ByteRange
from tests.support.paged_files import (
    PagedFile,
    assert_same_pages,
    paged_file,
    pages_by_chunk,
    rows_of_all_kinds,
    with_indexes,
    written,
)

LISTS = rows_of_all_kinds(1).schema.get_field_index("values")
COLUMN_COUNT = len(rows_of_all_kinds(1).schema)


def known(pages: PartitionPages | None) -> PartitionPages:
    assert pages is not None
    return pages


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("use_dictionary", [True, False])
def test_headers_and_index_describe_the_same_pages(version: str, use_dictionary: bool) -> None:
    """With a page index pyarrow leaves statistics out of the headers, and without it puts them there."""
    options: dict[str, Any] = {"data_page_version": version, "use_dictionary": use_dictionary}
    with_index, without = paged_file(**options), PagedFile.of(written(**options))
    indexed, walked = pages_by_chunk(with_index.indexed().pages), pages_by_chunk(without.walked().pages)
    if version == "1.0":
        indexed = {chunk: pages for chunk, pages in indexed.items() if chunk % COLUMN_COUNT != LISTS}
    assert walked.keys() == indexed.keys()
    for chunk, pages in indexed.items():
        # Headers with statistics are longer, so all that lies behind them has moved.
        moved = [
            replace(page, start=other.start, stop=other.stop) for page, other in zip(pages, walked[chunk], strict=True)
        ]
        assert walked[chunk] == moved
    bare = pages_by_chunk(with_index.walked().pages)
    for chunk, pages in indexed.items():
        assert [(page.first_row, page.start, page.stop) for page in bare[chunk]] == [
            (page.first_row, page.start, page.stop) for page in pages
        ]


def test_pages_of_lists_are_unknown_in_version_1() -> None:
    found = PagedFile.of(written(data_page_version="1.0")).walked()
    assert all(chunk % COLUMN_COUNT != LISTS for chunk in pages_by_chunk(found.pages))
    [note] = found.notes
    assert note.startswith("the page headers of column 'values' of row group 0 and 2 more column chunks left aside: ")
    assert note.endswith("do not say which rows they hold")


@pytest.mark.parametrize("window_bytes", [1, 30, 400, 2_500])
def test_windows_show_the_same_as_the_whole_chunk(monkeypatch: pytest.MonkeyPatch, window_bytes: int) -> None:
    """A header that a window cuts off begins the next one; a window without a whole header is damage."""
    file = PagedFile.of(written())
    whole = file.walked()
    monkeypatch.setattr(page_headers, "WINDOW_BYTES", window_bytes)
    found = file.walked()
    if window_bytes >= 400:
        assert_same_pages(found.pages, whole.pages)
        assert found.notes == whole.notes
    else:
        assert any("cannot be followed" in note for note in found.notes)
        assert pages_by_chunk(found.pages).items() <= pages_by_chunk(whole.pages).items()


def test_a_walk_reads_just_the_headers_where_pages_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_headers, "WINDOW_BYTES", 200)
    data = written(use_dictionary=False, data_page_size=16_384, compression="none")
    file = PagedFile.of(data)
    places = file.places
    walk = ChunkWalk(ByteRange(int(places.starts[0]), int(places.stops[0])), is_flat=True)
    read_bytes = 0
    while (wanted := walk.wanted) is not None:
        walk.receive(data[wanted.start : wanted.stop])
        read_bytes += wanted.length_bytes
    assert len(walk.pages) == 2
    assert read_bytes == 400


def test_damage_makes_the_chunk_unknown_and_no_other() -> None:
    file = PagedFile.of(written())
    expected = pages_by_chunk(file.walked().pages)
    chunk = 1
    for position in range(expected[chunk][0].start, expected[chunk][0].start + 20):
        damaged = bytearray(file.data)
        damaged[position] ^= 0xFF
        found = pages_by_chunk(replace(file, data=bytes(damaged)).walked().pages)
        assert {other: pages for other, pages in found.items() if other != chunk} == {
            other: pages for other, pages in expected.items() if other != chunk
        }
        for page in found.get(chunk, []):
            assert page.start in {original.start for original in expected[chunk]}
            assert page.first_row in {original.first_row for original in expected[chunk]}


def chunk_of(*headers: PageHeader) -> bytes:
    return b"".join(header.encode() + bytes(header.compressed_page_size or 0) for header in headers)


def data_page(rows: int | None, *, body_bytes: int = 3) -> PageHeader:
    return PageHeader(
        type=0,
        uncompressed_page_size=3,
        compressed_page_size=body_bytes,
        data_page_header=DataPageHeader(rows, 0, 3, 3),
    )


DICTIONARY = PageHeader(
    type=2, uncompressed_page_size=3, compressed_page_size=3, dictionary_page_header=DictionaryPageHeader(1, 0)
)


@pytest.mark.parametrize(
    ("chunk", "problem"),
    [
        (chunk_of(data_page(5), DICTIONARY), "its page headers do not say which rows they hold"),
        (chunk_of(DICTIONARY, DICTIONARY), "its page headers do not say which rows they hold"),
        (chunk_of(DICTIONARY, data_page(None)), "its page headers do not say which rows they hold"),
        (chunk_of(PageHeader(type=1, compressed_page_size=2)), "its page headers do not say which rows they hold"),
        (chunk_of(PageHeader(type=3, compressed_page_size=2)), "its page headers do not say which rows they hold"),
        (chunk_of(data_page(5)) + b"\0", "its page headers do not say which rows they hold"),
        (chunk_of(data_page(5)) + b"\xff", "its page headers cannot be followed to the end of the chunk"),
        (chunk_of(data_page(5))[:-1], "its page headers cannot be followed to the end of the chunk"),
        (chunk_of(*[data_page(1, body_bytes=0)] * (MAX_PAGES + 1)), f"it has more than {MAX_PAGES:,} pages"),
        (b"", "its page headers cannot be followed to the end of the chunk"),
    ],
)
def test_what_is_no_chunk_has_a_reason(chunk: bytes, problem: str) -> None:
    walk = ChunkWalk(ByteRange(4, 4 + len(chunk)), is_flat=True)
    while walk.wanted is not None:
        walk.receive(chunk[walk.wanted.start - 4 : walk.wanted.stop - 4])
    assert walk.problem == problem
    assert walk.pages == ()


def test_rows_that_do_not_add_up_are_left_aside() -> None:
    table = pa.table({"x": pa.array(range(100), pa.int64())})
    file = PagedFile.of(written(table, use_dictionary=False, compression="none"))
    place = file.places
    start, stop = int(place.starts[0]), int(place.stops[0])
    for rows, is_sound in ((50, True), (49, False), (51, False), (-50, False), (0, False)):
        first = data_page(rows, body_bytes=10)
        rest = stop - start - len(first.encode()) - 10
        second = data_page(50, body_bytes=rest - len(data_page(50, body_bytes=rest).encode()))
        walk = ChunkWalk(ByteRange(start, stop), is_flat=True)
        walk.receive(chunk_of(first, second))
        found = check_walked_pages({0: walk}, place)
        assert (found.pages is not None) == is_sound
        assert bool(found.notes) == (not is_sound)


def test_the_walk_takes_just_what_it_asked_for() -> None:
    walk = ChunkWalk(ByteRange(4, 40), is_flat=True)
    with pytest.raises(InternalError):
        walk.receive(bytes(35))


def test_chunks_unknown_to_one_description_come_from_the_other() -> None:
    """Row groups that QuestDB merged have no index, those beside them have one."""
    file = paged_file()
    without_second = with_indexes(
        file,
        lambda chunk, located, bounded: (
            (b"", b"") if chunk // COLUMN_COUNT == 1 else (located.encode(), bounded.encode())
        ),
    )
    indexed, walked = known(without_second.indexed().pages), known(without_second.walked().pages)
    joined = pages_by_chunk(join_pages(indexed, walked))
    expected = pages_by_chunk(indexed) | {
        chunk: pages for chunk, pages in pages_by_chunk(walked).items() if chunk // COLUMN_COUNT == 1
    }
    assert joined == dict(sorted(expected.items()))
    assert_same_pages(join_pages(indexed, indexed), indexed)
