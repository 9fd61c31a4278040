"""Page indexes: what they say is what the pages hold, and those that lie are left aside."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from coldparquet.errors import InternalError
from coldparquet.format import page_headers
from coldparquet.format.page_headers import MAX_PAGES, ChunkWalk, check_walked_pages
from coldparquet.format.page_index import LARGEST_INDEX_BYTES, page_index_range, parse_page_index
from coldparquet.format.pages import PartitionPages, join_pages
from coldparquet.format.parquet_thrift import (
    ColumnIndex,
    DataPageHeader,
    DictionaryPageHeader,
    OffsetIndex,
    PageHeader,
    PageLocation,
)
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.format.sidecar_layout import COLUMN_CHUNK
from coldparquet.ranges import ByteRange
from coldparquet.records import replace
from tests.support.paged_files import (
    GROUP_ROWS,
    ROWS,
    PagedFile,
    assert_same_pages,
    paged_file,
    pages_by_chunk,
    rows_of_all_kinds,
    with_indexes,
    written,
)
from tests.support.questdb_tables import PARTITIONS

COLUMNS = rows_of_all_kinds(1).schema.names
FIXED = {"ts": "<q", "price": "<d", "flag": "<?"}


def value(column: str, bound: bytes | None) -> Any:
    if bound is None:
        return None
    return struct.unpack(FIXED[column], bound)[0] if column in FIXED else bound.decode()


def plain(column: str, scalar: pa.Scalar[Any]) -> Any:
    return scalar.cast(pa.int64()).as_py() if column == "ts" else scalar.as_py()


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("use_dictionary", [True, False])
def test_each_page_holds_what_the_index_says(version: str, use_dictionary: bool) -> None:
    file = paged_file(data_page_version=version, use_dictionary=use_dictionary)
    found = file.indexed()
    assert found.notes == ()
    rows = rows_of_all_kinds()
    by_chunk = pages_by_chunk(found.pages)
    assert len(by_chunk) == 3 * len(COLUMNS)
    for chunk, pages in by_chunk.items():
        row_group, column = divmod(chunk, len(COLUMNS))
        name = COLUMNS[column]
        group_rows = min(GROUP_ROWS, ROWS - row_group * GROUP_ROWS)
        stops = [page.first_row for page in pages[1:]] + [group_rows]
        for page, stop in zip(pages, stops, strict=True):
            held = rows[name].slice(row_group * GROUP_ROWS + page.first_row, stop - page.first_row)
            if name == "values":
                assert (page.null_count, page.lower, page.upper) == (-1, None, None)
                continue
            assert page.null_count == held.null_count
            if held.null_count == len(held):
                assert (page.lower, page.upper) == (None, None)
            else:
                bounds: Any = pc.min_max(held)
                assert value(name, page.lower) == plain(name, bounds["min"])
                assert value(name, page.upper) == plain(name, bounds["max"])
    assert use_dictionary or len(by_chunk[1]) > 5


@pytest.mark.parametrize("partition", PARTITIONS, ids=str)
def test_the_index_of_questdb_agrees_with_its_page_headers(partition: Any) -> None:
    file = PagedFile.of((partition.directory / "data.parquet").read_bytes())
    indexed, walked = pages_by_chunk(file.indexed().pages), pages_by_chunk(file.walked().pages)
    assert len(walked) == file.places.chunk_count
    for chunk, pages in indexed.items():
        assert pages == walked[chunk]


def test_row_groups_without_an_index_lie_beside_those_with_one() -> None:
    file = paged_file()
    without_second = with_indexes(
        file,
        lambda chunk, located, bounded: (
            (b"", b"") if len(COLUMNS) <= chunk < 2 * len(COLUMNS) else (located.encode(), bounded.encode())
        ),
    )
    found = without_second.indexed()
    assert found.notes == ("column 'ts' of row group 1 and 5 more column chunks have no page index",)
    expected = pages_by_chunk(file.indexed().pages)
    assert pages_by_chunk(found.pages) == {
        chunk: pages for chunk, pages in expected.items() if chunk // len(COLUMNS) != 1
    }


def test_only_the_chunks_that_are_asked_for_are_parsed() -> None:
    file = paged_file()
    everything = pages_by_chunk(file.indexed().pages)
    chosen = file.indexed(row_groups=[2, 0], columns=[1])
    assert pages_by_chunk(chosen.pages) == {chunk: everything[chunk] for chunk in (1, 2 * len(COLUMNS) + 1)}
    assert file.indexed(row_groups=[]).pages is None


def test_without_a_column_index_places_and_rows_are_known() -> None:
    file = paged_file()
    located_only = with_indexes(file, lambda _chunk, located, _bounded: (located.encode(), b""))
    found = located_only.indexed()
    assert found.notes == ()
    for chunk, pages in pages_by_chunk(file.indexed().pages).items():
        assert pages_by_chunk(found.pages)[chunk] == [
            replace(page, null_count=-1, lower=None, upper=None) for page in pages
        ]


def test_null_counts_are_believed_and_null_pages_not() -> None:
    """QuestDB marks pages of arrays, which have no bounds, as null pages with one zero byte as bounds."""
    file = paged_file()

    def mark(_chunk: int, located: OffsetIndex, bounded: ColumnIndex) -> tuple[bytes, bytes]:
        fillers = [b"\0"] * len(bounded.null_pages)
        marked = ColumnIndex([True] * len(fillers), fillers, fillers, bounded.null_counts)
        return located.encode(), marked.encode()

    found = with_indexes(file, mark).indexed()
    assert found.notes == ()
    for chunk, pages in pages_by_chunk(file.indexed().pages).items():
        assert pages_by_chunk(found.pages)[chunk] == [replace(page, lower=None, upper=None) for page in pages]


def test_bounds_of_a_width_that_no_value_has_are_left_out() -> None:
    file = paged_file()

    def widen(_chunk: int, located: OffsetIndex, bounded: ColumnIndex) -> tuple[bytes, bytes]:
        bounded.min_values = [bound[:3] if len(bound) > 1 else b"" for bound in bounded.min_values]
        bounded.max_values = [bound + b"\0" for bound in bounded.max_values]
        return located.encode(), bounded.encode()

    found = with_indexes(file, widen).indexed()
    assert found.notes == ()
    is_fixed = [COLUMNS[chunk % len(COLUMNS)] in FIXED for chunk in pages_by_chunk(found.pages)]
    for fixed, (chunk, pages) in zip(is_fixed, pages_by_chunk(found.pages).items(), strict=True):
        for page, original in zip(pages, pages_by_chunk(file.indexed().pages)[chunk], strict=True):
            if fixed or original.lower is None or original.upper is None:
                assert (page.lower, page.upper) == (None, None)
            else:
                assert (page.lower, page.upper) == (original.lower[:3], original.upper + b"\0")


PRICES = 1
LIES: dict[str, Callable[[list[PageLocation], Any], object]] = {
    "overlap": lambda pages, _: setattr(pages[1], "offset", pages[1].offset - 1),
    "gap": lambda pages, _: setattr(pages[1], "offset", pages[1].offset + 1),
    "longer than the chunk": lambda pages, _: setattr(pages[-1], "compressed_page_size", 1 << 30),
    "shorter than the chunk": lambda pages, _: setattr(pages[-1], "compressed_page_size", 1),
    "of no length": lambda pages, _: setattr(pages[1], "compressed_page_size", 0),
    "of negative length": lambda pages, _: setattr(pages[1], "compressed_page_size", -5),
    "before the chunk": lambda pages, _: setattr(pages[0], "offset", 4),
    "behind the file": lambda pages, _: setattr(pages[0], "offset", 1 << 62),
    "at a negative offset": lambda pages, _: setattr(pages[0], "offset", -1),
    "in another order": lambda pages, _: pages.reverse(),
    "one twice": lambda pages, _: pages.append(pages[-1]),
    "last left out": lambda pages, _: pages.pop(),
    "none": lambda pages, _: pages.clear(),
    "rows from 1": lambda pages, _: setattr(pages[0], "first_row_index", 1),
    "rows stay": lambda pages, _: setattr(pages[2], "first_row_index", pages[1].first_row_index),
    "rows descend": lambda pages, _: setattr(pages[2], "first_row_index", 1),
    "rows beyond the row group": lambda pages, _: setattr(pages[-1], "first_row_index", GROUP_ROWS),
    "rows beyond 63 bits": lambda pages, _: setattr(pages[-1], "first_row_index", (1 << 63) - 1),
    "rows below 0": lambda pages, _: setattr(pages[1], "first_row_index", -(1 << 63)),
    "too few bounds": lambda _, index: index.min_values.pop(),
    "too many bounds": lambda _, index: index.max_values.append(b"12345678"),
    "too few null counts": lambda _, index: index.null_counts.pop(),
    "too many null pages": lambda _, index: index.null_pages.append(False),
    "more nulls": lambda _, index: index.null_counts.__setitem__(0, index.null_counts[0] + 1),
    "more nulls than rows": lambda _, index: index.null_counts.__setitem__(0, GROUP_ROWS + 1),
    "negative nulls": lambda _, index: index.null_counts.__setitem__(0, -1),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_chunk_whose_index_lies_is_left_aside_and_no_other(lie: str) -> None:
    file = paged_file(use_dictionary=False)

    def change(chunk: int, located: OffsetIndex, bounded: ColumnIndex) -> tuple[bytes, bytes]:
        if chunk == PRICES:
            LIES[lie](located.page_locations, bounded)
        return located.encode(), bounded.encode()

    expected = pages_by_chunk(file.indexed().pages)
    del expected[PRICES]
    found = with_indexes(file, change).indexed()
    assert pages_by_chunk(found.pages) == expected
    [note] = found.notes
    assert note.startswith("the page index of column 'price' of row group 0 left aside: ")


@pytest.mark.parametrize("garbage", [b"\xff" * 30, b"\x19\xfc\xff\xff\xff\xff\x0f", b"\x00", b"\x19\x1c\x16"])
def test_bytes_that_are_no_index_are_left_aside(garbage: bytes) -> None:
    file = paged_file()
    for position in (0, 1):

        def change(
            chunk: int, located: OffsetIndex, bounded: ColumnIndex, position: int = position
        ) -> tuple[bytes, bytes]:
            both = [located.encode(), bounded.encode()]
            if chunk == PRICES:
                both[position] = garbage
            return both[0], both[1]

        found = with_indexes(file, change).indexed()
        assert PRICES not in pages_by_chunk(found.pages)
        assert len(pages_by_chunk(found.pages)) == file.places.chunk_count - 1
        assert len(found.notes) == 1


@pytest.mark.parametrize(("offset", "length"), [(4, 20), (-7, 20), (1 << 62, 20), (None, 1 << 30), (None, -3)], ids=str)
def test_an_index_that_lies_elsewhere_is_left_aside(offset: int | None, length: int) -> None:
    file = paged_file()
    group = file.footer.row_groups[0]
    offsets, lengths = list(group.offset_index_offsets), list(group.offset_index_lengths)
    offsets[PRICES] = offsets[PRICES] if offset is None else offset
    lengths[PRICES] = length
    changed = replace(group, offset_index_offsets=tuple(offsets), offset_index_lengths=tuple(lengths))
    footer = replace(file.footer, row_groups=(changed, *file.footer.row_groups[1:]))
    found = replace(file, footer=footer).indexed()
    assert PRICES not in pages_by_chunk(found.pages)
    assert found.notes == (
        "the page index of column 'price' of row group 0 left aside: it does not lie right before the footer",
    )


def test_a_footer_of_another_file_is_of_no_use() -> None:
    file, other = paged_file(), paged_file(row_group_size=1_000)
    found = replace(file, footer=other.footer).indexed()
    assert found.pages is None
    assert found.notes == (
        "the page index is not used: the Parquet footer has other row groups or columns than the sidecar",
    )


def test_any_byte_of_the_indexes_may_be_wrong() -> None:
    """Whatever stands there, what comes out was checked: pages in place, rows ascending, or no pages."""
    file = paged_file(rows_of_all_kinds(600), row_group_size=600)
    place = page_index_range(file.sidecar)
    places = file.places
    tail = bytearray(file.data[place.start : place.stop])
    for position in range(0, file.footer.offset - place.start, 3):
        original = tail[position]
        for wrong in (original ^ 0xFF, original ^ 0x01):
            tail[position] = wrong
            found = parse_page_index(file.footer, bytes(tail), tail_start=place.start, places=places)
            for chunk, pages in pages_by_chunk(found.pages).items():
                assert pages[0].first_row == 0
                assert all(first.first_row < second.first_row for first, second in pairwise(pages))
                assert pages[-1].first_row < 600
                assert all(first.stop == second.start for first, second in pairwise(pages))
                assert places.starts[chunk] <= pages[0].start
                assert pages[-1].stop == places.stops[chunk]
        tail[position] = original


def test_chunks_beyond_the_file_have_no_pages() -> None:
    """A sidecar may hold any number; what it says of one chunk says nothing about the others."""
    file = paged_file()
    content = bytearray(file.sidecar.file)
    block = int(file.sidecar.footer.block_entries[0]) * 8
    for field, number in ((16, (1 << 64) - 1), (24, (1 << 64) - 1), (16, 0), (24, 1)):
        changed = bytearray(content)
        start = block + 8 + COLUMN_CHUNK.size * PRICES + field
        changed[start : start + 8] = number.to_bytes(8, "little")
        sidecar = parse_sidecar(bytes(changed), verify_checksum=False)
        found = replace(file, sidecar=sidecar).indexed()
        assert PRICES not in pages_by_chunk(found.pages)
        assert len(pages_by_chunk(found.pages)) == file.places.chunk_count - 1


def test_the_range_is_what_follows_the_last_chunk() -> None:
    file = paged_file()
    place = page_index_range(file.sidecar)
    assert place.start == file.places.stops.max()
    assert place.stop == len(file.data)
    assert place.length_bytes < LARGEST_INDEX_BYTES
    plain_file = PagedFile.of(written())
    assert page_index_range(plain_file.sidecar).start == plain_file.footer.offset
    assert plain_file.indexed().pages is None


def test_truncated_bounds_still_bound() -> None:
    """polars cuts long texts off, and adds one to the last byte of an upper bound."""
    polars = pytest.importorskip("polars")
    sink = io.BytesIO()
    rows = rows_of_all_kinds()
    polars.from_arrow(rows).write_parquet(sink, row_group_size=GROUP_ROWS, data_page_size=2_048, statistics="full")
    found = PagedFile.of(sink.getvalue()).indexed()
    assert found.notes == ()
    by_chunk = pages_by_chunk(found.pages)
    assert len(by_chunk) == 3 * len(COLUMNS)
    pages = by_chunk[2 * len(COLUMNS) + COLUMNS.index("note")]
    lengths = set()
    for page, stop in zip(pages, [*(page.first_row for page in pages[1:]), ROWS - 2 * GROUP_ROWS], strict=True):
        held: list[Any] = rows["note"].slice(2 * GROUP_ROWS + page.first_row, stop - page.first_row).to_pylist()
        assert page.lower is not None
        assert page.upper is not None
        assert page.lower.decode() <= min(held)
        assert max(held) <= page.upper.decode()
        lengths |= {len(page.lower), len(page.upper)}
    assert len(pages) > 3
    assert max(lengths) < len(rows["note"][-1].as_py())


# --- Walking page headers: the same pages as the page index names, without it -----------------------------------------


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
