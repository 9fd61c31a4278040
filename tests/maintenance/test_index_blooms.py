"""Sidecars that are written beside files with bloom filters hold the filters, or say where they lie."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

import coldparquet as cp
from coldparquet.format.blooms import parse_bloom_header
from coldparquet.format.parquet_footer import frame_footer
from coldparquet.format.parquet_thrift import ColumnMetaData, FileMetaData
from coldparquet.format.sidecar import Sidecar, parse_sidecar
from coldparquet.maintenance.index import index_table
from coldparquet.maintenance.migrate import migrate_table
from coldparquet.options import ReadOptions
from coldparquet.ranges import SuffixRange
from coldparquet.scan.evidence import BLOOM_REASON
from coldparquet.storage.log import TraceStore
from coldparquet.storage.memory import MemoryStore
from coldparquet.storage.requests import RangeRequest
from tests.support.blooms import encoded_header, file_with_blooms, sidecar_in_memory
from tests.support.parquet_footers import footer_bytes, parquet_bytes, parsed_footer
from tests.support.questdb_tables import copy_parquet_partitions
from tests.support.table_copies import copy_table

DATA, SIDECAR = "t/2024-01-01/data.parquet", "t/2024-01-01/_pm"


def filters_in(file: bytes) -> dict[tuple[int, int], bytes]:
    """Every bitset of a file, by row group and column, found by the headers in front of them."""
    found = {}
    for row_group, structure in enumerate(parsed_footer(file).row_groups):
        for column, chunk in enumerate(structure.chunks):
            if chunk.bloom_filter_offset:
                header = parse_bloom_header(file[chunk.bloom_filter_offset :])
                assert header is not None
                start = chunk.bloom_filter_offset + header.length_bytes
                found[row_group, column] = file[start : start + header.bitset_bytes]
    return found


def filters_of(sidecar: Sidecar, file: bytes) -> dict[tuple[int, int], bytes]:
    """Every bitset that a sidecar holds or refers to."""
    found = {}
    for row_group in range(sidecar.row_group_count):
        for column in sidecar.bloom_columns:
            place = sidecar.bloom_location(row_group, column)
            if place is not None:
                source = file if sidecar.blooms_external else sidecar.file
                found[row_group, column] = bytes(source[place.start : place.stop])
    return found


def needles_file(rows: int) -> bytes:
    random = Random(9)
    columns = {name: [random.getrandbits(62) for _ in range(2 * rows)] for name in ("a", "b")}
    return file_with_blooms(pa.table(columns), row_group_rows=rows)


@pytest.mark.parametrize("inline", [True, False])
async def test_the_filters_of_a_genuine_table(tmp_path: Path, inline: bool) -> None:
    table = copy_parquet_partitions("bloom", tmp_path)
    report = await index_table(table, inline_bloom_bytes=64 * 1024 if inline else 1024, pages=False, pack=False)
    assert [(done.action, done.reason) for done in report.partitions] == [("written", None)]
    (path,) = table.glob("*/data.parquet")
    file, sidecar = path.read_bytes(), parse_sidecar((path.parent / "_pm").read_bytes())
    assert sidecar.blooms_external is not inline
    assert len(filters_in(file)) == 13 * 3
    assert filters_of(sidecar, file) == filters_in(file)
    assert sidecar.size_bytes <= 64 * 1024


async def test_migrate_carries_filters_over_too(tmp_path: Path) -> None:
    table = copy_table("bloom", tmp_path)
    await migrate_table(table)
    (path,) = table.glob("*/data.parquet")
    file = path.read_bytes()
    assert filters_of(parse_sidecar((path.parent / "_pm").read_bytes()), file) == filters_in(file)


async def indexed(file: bytes, options: ReadOptions | None = None) -> tuple[Sidecar, TraceStore, str | None]:
    """Index one file; return its sidecar, what that cost and what the report remarks."""
    objects = MemoryStore({DATA: file})
    trace = TraceStore(objects)
    (done,) = (await index_table("t", store=trace, options=options, pages=False, pack=False)).partitions
    assert done.action == "written"
    written = await objects.get(RangeRequest(path=SIDECAR, byte_range=SuffixRange(1 << 30), reason="test"))
    return parse_sidecar(written.data), trace, done.reason


def bloom_requests(trace: TraceStore) -> list[int]:
    return [record.fetched_bytes for record in trace.records if record.reason == BLOOM_REASON]


async def test_filters_move_into_sidecars_that_are_there_if_they_may_be_large() -> None:
    store = MemoryStore({"day/data.parquet": needles_file(40_000)})
    assert (await index_table("day", store=store, pages=False, pack=False)).count("written") == 1
    for inline_bloom_bytes, is_external in ((1 << 20, False), (None, True)):
        report = await index_table(
            "day", store=store, force=True, inline_bloom_bytes=inline_bloom_bytes, pages=False, pack=False
        )
        assert report.count("written") == 1
        async with cp.open_partition("day", store=store) as partition:
            sidecar = partition.partitions[0].snapshot
            assert sidecar is not None
            assert sidecar.blooms_external is is_external
            assert (sidecar.size_bytes > 4 * (1 << 16)) is not is_external


async def test_small_filters_go_into_the_sidecar_and_large_ones_stay_where_they_are() -> None:
    for rows, is_external in ((100, False), (40_000, True)):
        file = needles_file(rows)
        sidecar, trace, remark = await indexed(file)
        assert sidecar.blooms_external is is_external
        assert filters_of(sidecar, file) == filters_in(file)
        assert remark is None
        if is_external:  # just the headers are read
            assert bloom_requests(trace) == [len(encoded_header(1 << 14))] * 4
        else:  # all of them lie side by side
            assert bloom_requests(trace) == [sum(map(len, filters_in(file).values())) + 4 * len(encoded_header(128))]


async def test_lengths_that_the_footer_does_not_state_come_from_the_headers() -> None:
    for rows, is_external in ((100, False), (20_000, True)):
        file = without_lengths(needles_file(rows))
        sidecar, _, _ = await indexed(file)
        assert sidecar.blooms_external is is_external
        assert filters_of(sidecar, file) == filters_in(file)


async def test_a_table_without_filters_costs_what_it_did() -> None:
    sidecar, trace, _ = await indexed(parquet_bytes(pa.table({"x": [1, 2, 3]})))
    assert sidecar.bloom_columns == ()
    assert bloom_requests(trace) == []


@pytest.mark.parametrize("is_inlined", [True, False])
async def test_a_damaged_filter_is_left_out(is_inlined: bool) -> None:
    file = needles_file(100)
    place = sidecar_in_memory(file).bloom_location(1, 0)
    assert place is not None
    damaged = file[: place.start] + b"\xff" + file[place.start + 1 :]
    options = ReadOptions(sidecar_prefix_bytes=65_536 if is_inlined else 512)
    sidecar, _, remark = await indexed(damaged, options)
    expected = filters_in(file)
    del expected[1, 0]
    assert filters_of(sidecar, damaged) == expected
    assert remark is not None
    assert remark.startswith("bloom filters of column 'a' are of an unknown kind")
    assert remark.endswith("in 1 of 2 row groups")


@pytest.mark.parametrize(
    ("offset", "length"), [(-5, 100), (1 << 60, None), (1 << 60, 100), (100, 1 << 30), (100, 3), (100, -3), (100, 64)]
)
async def test_a_footer_that_lies_about_its_filters(offset: int, length: int | None) -> None:
    def lie(chunk: ColumnMetaData) -> None:
        chunk.bloom_filter_offset, chunk.bloom_filter_length = offset, length

    file = edited(needles_file(100), lie)
    sidecar, _, _ = await indexed(file)
    assert filters_of(sidecar, file) == {}
    assert sidecar_in_memory(file).row_group_count == 2


def without_lengths(file: bytes) -> bytes:
    """What QuestDB 9.3.4 does."""

    def forget(chunk: ColumnMetaData) -> None:
        chunk.bloom_filter_length = None

    return edited(file, forget)


def edited(file: bytes, edit: Callable[[ColumnMetaData], None]) -> bytes:
    """Change what the footer says of every chunk."""
    raw = footer_bytes(file)
    metadata = FileMetaData.decode(raw.content, path=None, offset=0)
    for row_group in metadata.row_groups:
        for chunk in row_group.columns:
            assert chunk.meta_data is not None
            edit(chunk.meta_data)
    return file[: raw.offset] + frame_footer(metadata.encode())
