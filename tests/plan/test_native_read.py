"""Which bytes of which column files the rows of a native partition are, and where they go."""

from __future__ import annotations

import pickle
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.errors import FormatError, InternalError
from coldparquet.format.type_codes import TypeTag
from coldparquet.format.types import canonical_type
from coldparquet.options import Coalescing
from coldparquet.plan.model import Read
from coldparquet.plan.native import NativeColumn, RowSlices, cut_native, data_edges, native_reads
from coldparquet.plan.requests import place, plan_requests
from coldparquet.ranges import ByteRange

DIRECTORY = "db/trades/2024-03-01.12"


def column(index: int, name: str, tag: int, *, top: int | None = 0, name_txn: int = -1) -> NativeColumn:
    return NativeColumn(index=index, name=name, type=canonical_type(tag), name_txn=name_txn, top=top)


PRICE = column(0, "price", TypeTag.DOUBLE)
NOTE = column(1, "note", TypeTag.VARCHAR, top=5, name_txn=3)
LABEL = column(2, "label", TypeTag.STRING)
ABSENT = column(3, "absent", TypeTag.INT, top=None)


def coalescing(gap_bytes: int, max_request_bytes: int) -> Coalescing:
    return Coalescing(gap_bytes=gap_bytes, max_request_bytes=max_request_bytes, least_part_bytes=1)


def reads_of(columns: list[NativeColumn], slices: RowSlices, **data: list[tuple[int, int]]) -> tuple[Read, ...]:
    """Plan slices; ``data`` says by column name where the data of each slice is."""
    ranges = {
        found.index: (
            np.array([start for start, _ in data[found.name]], dtype=np.int64),
            np.array([stop for _, stop in data[found.name]], dtype=np.int64),
        )
        for found in columns
        if found.name in data
    }
    return native_reads(
        slices,
        columns,
        directory_path=DIRECTORY,
        partition_index=4,
        data_ranges=ranges,
        symbols={},
        all_rows_match=True,
    )


def test_slices_of_a_partition() -> None:
    slices = RowSlices.of(range(3, 10), rows_per_slice=4)
    first, second = reads_of([PRICE, NOTE, LABEL, ABSENT], slices, note=[(0, 40), (40, 90)], label=[(7, 20), (20, 60)])
    assert [(file.column, file.role, file.path) for file in first.data.files] == [
        (0, "fixed", f"{DIRECTORY}/price.d"),
        (1, "auxiliary", f"{DIRECTORY}/note.i.3"),
        (1, "data", f"{DIRECTORY}/note.d.3"),
        (2, "auxiliary", f"{DIRECTORY}/label.i"),
        (2, "data", f"{DIRECTORY}/label.d"),
    ]
    assert second.data is first.data
    assert (first.row_group, first.first_row, first.row_count) == (0, 3, 4)
    assert (second.row_group, second.first_row, second.row_count) == (1, 7, 3)
    # Rows 3-6 of the price; rows 5 and 6 of the note, whose files begin with row 5; one more offset than labels.
    assert first.piece_starts.tolist() == [24, 0, 0, 24, 7]
    assert first.piece_stops.tolist() == [56, 32, 40, 64, 20]
    assert second.piece_starts.tolist() == [56, 32, 40, 56, 20]
    assert second.piece_stops.tolist() == [80, 80, 90, 88, 60]
    assert first.buffer_offsets.tolist() == [0, 32, 64, 104, 144]
    assert first.bytes_wanted == 157
    assert first.columns == (0, 1, 2)
    assert first.made_columns == second.made_columns == (3,)
    assert first.partition_index == 4


def test_rows_before_the_top_of_a_column_are_made() -> None:
    slices = RowSlices.of(range(8), rows_per_slice=4)
    first, second = reads_of([PRICE, NOTE], slices, note=[(0, 0), (0, 30)])
    assert (first.columns, first.made_columns) == ((0,), (1,))
    assert (second.columns, second.made_columns) == ((0, 1), ())
    assert first.bytes_wanted == 32


def test_a_slice_without_any_bytes() -> None:
    [read] = reads_of([ABSENT], RowSlices.of(range(8), rows_per_slice=8))
    assert not read.data.files
    assert not read.columns
    assert (read.bytes_wanted, read.made_columns) == (0, (3,))
    assert plan_requests([[read]], coalescing(0, 100)) == ()
    assert len(place([read], []).length_bytes) == 0


def test_no_rows_no_reads() -> None:
    assert reads_of([PRICE], RowSlices.of(range(5, 5), rows_per_slice=8)) == ()
    assert plan_requests([[]], coalescing(0, 100)) == ()
    assert len(place([], []).length_bytes) == 0


def test_reads_travel_to_other_processes() -> None:
    [read] = reads_of([PRICE], RowSlices.of(range(8), rows_per_slice=8))
    copied = pickle.loads(pickle.dumps(read))  # noqa: S301 - our own bytes
    assert (copied.data.files, copied.bytes_wanted) == (read.data.files, read.bytes_wanted)


def test_requests_say_which_rows_of_which_column_they_are_for() -> None:
    slices = RowSlices.of(range(100_000, 100_000 + 3_000), rows_per_slice=1_000)
    reads = reads_of([PRICE, LABEL], slices, label=[(0, 50), (50, 90), (90, 20_090)])
    requests = plan_requests([reads], coalescing(0, 16_000), stage=2)
    assert [(request.path.rpartition("/")[2], request.byte_range, request.reason) for request in requests] == [
        ("price.d", ByteRange(800_000, 816_000), "rows 100,000-101,999: price"),
        ("price.d", ByteRange(816_000, 824_000), "rows 102,000-102,999: price"),
        ("label.i", ByteRange(800_000, 812_004), "rows 100,000-101,999: label (offsets)"),
        ("label.i", ByteRange(812_004, 824_008), "rows 101,000-102,999: label (offsets)"),
        ("label.d", ByteRange(0, 10_090), "rows 100,000-102,999: label"),
        ("label.d", ByteRange(10_090, 20_090), "rows 102,000-102,999: label (part 2 of 2)"),
    ]
    assert {(request.partition_index, request.stage) for request in requests} == {(4, 2)}


@given(
    slices=st.builds(
        lambda first_row, row_count, rows_per_slice: RowSlices.of(
            range(first_row, first_row + row_count), rows_per_slice=rows_per_slice
        ),
        st.integers(0, 20),
        st.integers(1, 50),
        st.integers(1, 20),
    ),
    top=st.integers(0, 60),
    widths=st.lists(st.integers(0, 30), min_size=80, max_size=80),
    knobs=st.fixed_dictionaries(
        {
            "gap_bytes": st.integers(0, 50),
            "max_request_bytes": st.integers(1, 300),
            "part_bytes": st.none() | st.integers(1, 100),
        }
    ),
)
def test_every_byte_of_every_slice_is_placed_once(
    slices: RowSlices, top: int, widths: list[int], knobs: dict[str, Any]
) -> None:
    note = column(1, "note", TypeTag.VARCHAR, top=top)
    offsets = np.cumsum([0, *widths])
    stored = slices.in_files_of(note)
    edges = list(zip(offsets[stored.first_rows].tolist(), offsets[stored.stop_rows].tolist(), strict=True))
    offsets_of_label = list(zip(offsets[slices.first_rows].tolist(), offsets[slices.stop_rows].tolist(), strict=True))
    reads = reads_of([PRICE, note, LABEL, ABSENT], slices, note=edges, label=offsets_of_label)
    requests = plan_requests(
        [reads], coalescing(knobs["gap_bytes"], knobs["max_request_bytes"]), part_bytes=knobs["part_bytes"]
    )
    placements = place(reads, requests)
    assert all(request.byte_range.length_bytes <= knobs["max_request_bytes"] for request in requests)

    rng = np.random.default_rng(0)
    files = {file.path: rng.integers(0, 256, 4096, dtype=np.uint8).tobytes() for file in reads[0].data.files}
    buffers = [bytearray(read.bytes_wanted) for read in reads]
    placed = [0] * len(reads)
    for number, request in enumerate(requests):
        fetched = files[request.path][request.byte_range.start : request.byte_range.stop]
        for copy in placements.of_request(number):
            target = slice(copy.destination_offset, copy.destination_offset + copy.length_bytes)
            buffers[copy.row_group_read][target] = fetched[copy.source_offset :][: copy.length_bytes]
            placed[copy.row_group_read] += copy.length_bytes
    for read, buffer, count in zip(reads, buffers, placed, strict=True):
        assert read.piece_files is not None
        wanted = b"".join(
            files[read.data.files[file].path][start:stop]
            for file, start, stop in zip(read.piece_files, read.piece_starts, read.piece_stops, strict=True)
        )
        assert buffer == wanted
        assert count == read.bytes_wanted


def test_requests_that_leave_bytes_out_are_a_bug() -> None:
    reads = reads_of([PRICE], RowSlices.of(range(8), rows_per_slice=4))
    requests = plan_requests([reads], coalescing(0, 32))
    with pytest.raises(InternalError, match="do not cover"):
        place(reads, requests[:-1])


@pytest.mark.parametrize("from_end", [False, True])
def test_slices_of_one_width_are_cut_to_rows(from_end: bool) -> None:
    size = column(1, "size", TypeTag.INT, top=6)
    [read] = reads_of([PRICE, size, ABSENT], RowSlices.of(range(2, 10), rows_per_slice=8))
    cut = cut_native(read, 3, from_end=from_end)
    assert (cut.first_row, cut.row_count, cut.row_group) == (7 if from_end else 2, 3, 0)
    ranges = list(zip(cut.piece_starts.tolist(), cut.piece_stops.tolist(), strict=True))
    assert ranges == ([(56, 80), (4, 16)] if from_end else [(16, 40), (0, 0)])
    assert cut_native(read, 8, from_end=from_end) is read
    [text] = reads_of([PRICE, LABEL], RowSlices.of(range(8), rows_per_slice=8), label=[(0, 50)])
    assert cut_native(text, 3, from_end=from_end) is text


def test_edges_of_strings() -> None:
    slices = RowSlices.of(range(2, 7), rows_per_slice=2)
    edges = data_edges(LABEL, slices, directory_path=DIRECTORY)
    assert edges is not None
    assert edges.path == f"{DIRECTORY}/label.i"
    assert edges.wanted(gap_bytes=0) == tuple(ByteRange(8 * row, 8 * row + 8) for row in (2, 4, 6, 7))
    assert edges.wanted(gap_bytes=1000) == (ByteRange(16, 64),)
    stored = struct.pack("<8q", *(10 * row for row in range(8)))
    for gap_bytes in (0, 8, 1000):
        wanted = edges.wanted(gap_bytes=gap_bytes)
        starts, stops = edges.data_ranges([(found.start, stored[found.start : found.stop]) for found in wanted])
        assert list(zip(starts.tolist(), stops.tolist(), strict=True)) == [(20, 40), (40, 60), (60, 70)]


def test_edges_of_varchars() -> None:
    slices = RowSlices.of(range(12), rows_per_slice=4)
    edges = data_edges(NOTE, slices, directory_path=DIRECTORY)
    assert edges is not None
    # Rows 5-7 and 8-11 are entries 0-2 and 3-6; the first slice lies before the top.
    assert edges.wanted(gap_bytes=0) == tuple(ByteRange(16 * row, 16 * row + 16) for row in (0, 2, 3, 6))
    stored = b"".join(struct.pack("<I6xHI", 20 << 4, 20 * row, 0) for row in range(6)) + struct.pack(
        "<I6xHI", 4, 120, 0
    )
    starts, stops = edges.data_ranges(
        [(found.start, stored[found.start : found.stop]) for found in edges.wanted(gap_bytes=0)]
    )
    assert list(zip(starts.tolist(), stops.tolist(), strict=True)) == [(0, 0), (0, 60), (60, 120)]


def test_columns_of_one_width_and_absent_ones_have_no_edges() -> None:
    slices = RowSlices.of(range(12), rows_per_slice=4)
    assert data_edges(PRICE, slices, directory_path=DIRECTORY) is None
    assert data_edges(column(0, "gone", TypeTag.VARCHAR, top=None), slices, directory_path=DIRECTORY) is None


@pytest.mark.parametrize("offsets", [(0, 50, 20, 60), (-8, 10, 20, 30), (0, -10, 20, 30), (0, 1 << 62, 20, -(1 << 62))])
def test_edges_that_contradict_each_other_are_refused(offsets: tuple[int, ...]) -> None:
    edges = data_edges(LABEL, RowSlices.of(range(3), rows_per_slice=1), directory_path=DIRECTORY)
    assert edges is not None
    with pytest.raises(FormatError, match="column 'label': the values from row") as caught:
        edges.data_ranges([(0, struct.pack("<4q", *offsets))])
    assert caught.value.path == f"{DIRECTORY}/label.i"
    assert caught.value.details["field"] == "offset"
