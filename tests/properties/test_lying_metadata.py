"""Metadata that lies about the shape of a file: it is left aside with a note, or the read is refused; never wrong rows.

Bounds that lie cannot be noticed without decoding, and neither can counts of NULLs that add up.
"""

from __future__ import annotations

import functools
import random
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import coldparquet as cp
from coldparquet.errors import FormatError
from coldparquet.format.parquet_thrift import ColumnChunk
from coldparquet.maintenance.index import index_table
from coldparquet.ranges import ByteRange
from coldparquet.storage.memory import MemoryStore
from coldparquet.storage.requests import RangeRequest
from tests.support.parquet_footers import ChunkIndexes, parquet_bytes, with_changed_chunks, with_changed_indexes
from tests.support.random_tables import assert_identical
from tests.support.row_outcomes import matching_rows

ROWS, ROW_GROUP_ROWS, PAGE_ROWS = 900, 300, 25
DATA, PAGES = "t/data.parquet", "t/_pages"
BY_PAGES = cp.ReadOptions(page_index="always")
QUESTIONS: tuple[Any, ...] = (
    cp.col("ascending").between(120, 190),
    cp.col("text") == "t0512",
    cp.col("nullable") < 40,
    cp.col("list").is_null() & (cp.col("ascending") > 700),
    (cp.col("ascending") < 9) | (cp.col("text") > "t0890"),
)


@functools.cache
def rows() -> pa.Table:
    numbers = np.arange(ROWS)
    return pa.table(
        {
            "ascending": pa.array(numbers, pa.int64()),
            "text": pa.array([f"t{number:04}" for number in numbers]),
            "nullable": pa.array([None if number % 7 == 0 else number // 3 for number in numbers.tolist()], pa.int32()),
            "list": pa.array([None if number % 5 == 0 else [1.0] * (number % 4) for number in numbers.tolist()]),
            "needle": pa.array(np.random.default_rng(1).integers(0, 1 << 62, ROWS)),
        }
    )


@functools.cache
def honest_file() -> bytes:
    return _written(
        max_rows_per_page=PAGE_ROWS,
        write_batch_size=PAGE_ROWS,
        use_dictionary=["nullable"],
        bloom_filter_options={"needle": {"ndv": ROW_GROUP_ROWS, "fpp": 0.01}},
    )


def other_version() -> bytes:
    return _written(data_page_size=100)


def _written(**settings: Any) -> bytes:
    return parquet_bytes(rows(), row_group_size=ROW_GROUP_ROWS, write_page_index=True, **settings)


async def store_of(file: bytes, *, pages: bool = False) -> MemoryStore:
    store = MemoryStore({DATA: file})
    await index_table("t", store=store, pages=pages, pack=False)
    return store


@functools.cache
def wanted(where: Any) -> pa.Table:
    found = matching_rows(where, {name: rows()[name].to_pylist() for name in rows().schema.names}, ROWS)
    return rows().take(pa.array(found, pa.int64()))


async def assert_no_row_is_lost(store: MemoryStore, *, may_refuse: bool = False) -> set[str]:
    """Ask every question of a fresh table; return the notes of all plans."""
    notes: set[str] = set()
    for where in QUESTIONS:
        async with cp.open_partition("t", store=store, options=BY_PAGES) as table:
            scan = table.scan(where=where)
            notes |= _notes((await scan.plan()).explain())
            try:
                found = await scan.to_arrow()
            except FormatError:
                assert may_refuse
            else:
                assert_identical(found, wanted(where))
    return notes


def _notes(explained: str) -> set[str]:
    return {
        line.strip() for line in explained.splitlines() if "left aside" in line or "_pages" in line or "bloom" in line
    }


# --- Page indexes -----------------------------------------------------------------------------------------------------


def change_offset(page: int, change: int) -> Callable[[ChunkIndexes], None]:
    def lie(indexes: ChunkIndexes) -> None:
        indexes.offsets.page_locations[page].offset += change

    return lie


def change_size(page: int, change: int) -> Callable[[ChunkIndexes], None]:
    def lie(indexes: ChunkIndexes) -> None:
        indexes.offsets.page_locations[page].compressed_page_size += change

    return lie


def set_first_row(page: int, row: int) -> Callable[[ChunkIndexes], None]:
    def lie(indexes: ChunkIndexes) -> None:
        indexes.offsets.page_locations[page].first_row_index = row

    return lie


def drop_page(page: int) -> Callable[[ChunkIndexes], None]:
    def lie(indexes: ChunkIndexes) -> None:
        del indexes.offsets.page_locations[page]

    return lie


def repeat_page(page: int) -> Callable[[ChunkIndexes], None]:
    def lie(indexes: ChunkIndexes) -> None:
        indexes.offsets.page_locations.insert(page, indexes.offsets.page_locations[page])

    return lie


def reverse_pages(indexes: ChunkIndexes) -> None:
    indexes.offsets.page_locations.reverse()


def no_pages(indexes: ChunkIndexes) -> None:
    indexes.offsets.page_locations.clear()


def more_bounds(indexes: ChunkIndexes) -> None:
    indexes.bounds.min_values.append(b"")


def fewer_null_pages(indexes: ChunkIndexes) -> None:
    del indexes.bounds.null_pages[-1]


def change_null_count(change: int) -> Callable[[ChunkIndexes], None]:
    def lie(indexes: ChunkIndexes) -> None:
        if indexes.bounds.null_counts is not None:
            indexes.bounds.null_counts[3] += change

    return lie


IMPOSSIBLE: dict[str, Callable[[ChunkIndexes], None]] = {
    "pages overlap": change_offset(2, -5),
    "a gap between pages": change_offset(2, 5),
    "a page before the chunk": change_offset(0, -200),
    "a page at a negative offset": change_offset(0, -(1 << 40)),
    "a page behind the file": change_offset(-1, 1 << 40),
    "a page longer than the chunk": change_size(-1, 100_000),
    "a page of no bytes": change_size(3, -(1 << 20)),
    "a page that is too short": change_size(3, -1),
    "rows do not ascend": set_first_row(3, 10),
    "a page of no rows": set_first_row(3, 2 * PAGE_ROWS),
    "rows behind the row group": set_first_row(-1, ROW_GROUP_ROWS),
    "negative rows": set_first_row(2, -1),
    "rows do not begin at 0": set_first_row(0, 1),
    "a page is missing": drop_page(4),
    "the first page is missing": drop_page(0),
    "the last page is missing": drop_page(-1),
    "a page twice": repeat_page(4),
    "pages in reverse": reverse_pages,
    "no pages": no_pages,
    "more bounds than pages": more_bounds,
    "fewer null flags than pages": fewer_null_pages,
    "more NULLs than rows": change_null_count(1_000),
    "fewer NULLs than none": change_null_count(-1_000),
    "NULLs do not add up": change_null_count(1),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
async def test_an_impossible_page_index_is_left_aside(name: str) -> None:
    store = await store_of(with_changed_indexes(honest_file(), IMPOSSIBLE[name]))
    notes = await assert_no_row_is_lost(store)
    assert any("page index" in note and "left aside" in note for note in notes), notes


async def test_a_page_index_is_checked_where_there_is_no_sidecar() -> None:
    store = MemoryStore({DATA: with_changed_indexes(honest_file(), IMPOSSIBLE["pages overlap"])})
    notes = await assert_no_row_is_lost(store)
    assert any("page index" in note and "left aside" in note for note in notes), notes


async def test_an_honest_page_index_is_used_without_a_word() -> None:
    store = await store_of(with_changed_indexes(honest_file(), lambda _indexes: None))
    assert not await assert_no_row_is_lost(store)
    async with cp.open_partition("t", store=store) as table:
        by_pages = await table.scan(where=QUESTIONS[0], options=BY_PAGES).plan()
        by_chunks = await table.scan(where=QUESTIONS[0], options=cp.ReadOptions(page_index="never")).plan()
    assert by_pages.bytes_wanted < by_chunks.bytes_wanted / 2


@pytest.mark.parametrize("seed", range(10))
async def test_a_page_index_that_is_wrong_within_reason_never_gives_wrong_rows(seed: int) -> None:
    """Boundaries between pages are moved, consistently: what the pages themselves say tells."""
    drawn = random.Random(seed)

    def lie(indexes: ChunkIndexes) -> None:
        pages = indexes.offsets.page_locations
        page = drawn.randrange(1, len(pages))
        if drawn.random() < 0.5:
            pages[page].first_row_index += drawn.choice((-1, 1, 7, -12))
        else:
            bytes_moved = drawn.choice((-3, -1, 1, 4))
            pages[page].offset += bytes_moved
            pages[page].compressed_page_size -= bytes_moved
            pages[page - 1].compressed_page_size += bytes_moved

    await assert_no_row_is_lost(await store_of(with_changed_indexes(honest_file(), lie)), may_refuse=True)


@pytest.mark.parametrize("kind", ["offset_index", "column_index"])
@pytest.mark.parametrize(("offset", "length"), [(4, 50), (0, 10), (1 << 40, 40), (-9, 40), (None, 1 << 30), (None, 3)])
async def test_an_index_that_lies_elsewhere_is_left_aside(kind: str, offset: int | None, length: int) -> None:
    def lie(chunk: ColumnChunk) -> None:
        setattr(chunk, f"{kind}_length", length)
        if offset is not None:
            setattr(chunk, f"{kind}_offset", offset)

    notes = await assert_no_row_is_lost(await store_of(with_changed_chunks(honest_file(), lie)))
    assert any("page index" in note and "left aside" in note for note in notes), notes


# --- Our own page files -----------------------------------------------------------------------------------------------


async def page_file_of(file: bytes) -> bytes:
    store = await store_of(file, pages=True)
    found = await store.get(
        RangeRequest(path=PAGES, byte_range=ByteRange(0, 1 << 20), reason="test", may_be_short=True)
    )
    return bytes(found.data)


async def test_a_page_file_of_another_version_is_not_used() -> None:
    store = await store_of(honest_file(), pages=True)
    await store.put(PAGES, await page_file_of(other_version()), overwrite=True)
    notes = await assert_no_row_is_lost(store)
    assert any("made for" in note for note in notes), notes


async def test_a_page_file_stays_behind_when_its_partition_is_replaced() -> None:
    store = await store_of(other_version(), pages=True)
    await store.put(DATA, honest_file(), overwrite=True)
    await store.delete(["t/_pm"])
    await index_table("t", store=store, pages=False, pack=False)
    notes = await assert_no_row_is_lost(store)
    assert any("made for" in note for note in notes), notes
    await index_table("t", store=store, force=True, pages=False, pack=False)  # writes the pages anew as well
    assert not await assert_no_row_is_lost(store)


@pytest.mark.parametrize("seed", range(10))
async def test_a_damaged_page_file_is_not_used(seed: int) -> None:
    drawn = random.Random(seed)
    content = bytearray(await page_file_of(honest_file()))
    content[drawn.randrange(len(content))] ^= 1 << drawn.randrange(8)
    store = await store_of(honest_file())
    await store.put(PAGES, bytes(content), overwrite=True)
    notes = await assert_no_row_is_lost(store)
    assert any("_pages" in note for note in notes), notes


@pytest.mark.parametrize("kept", [0, 1, 7, 67, 68, -1])
async def test_a_page_file_that_was_cut_off_is_not_used(kept: int) -> None:
    content = await page_file_of(honest_file())
    store = await store_of(honest_file())
    await store.put(PAGES, content[:kept], overwrite=True)
    notes = await assert_no_row_is_lost(store)
    assert any("_pages" in note for note in notes), notes


@pytest.mark.parametrize("seed", range(10))
async def test_a_page_file_that_lies_under_a_right_checksum_never_gives_wrong_rows(seed: int) -> None:
    drawn = random.Random(seed)
    content = bytearray(await page_file_of(honest_file()))
    content[drawn.randrange(16, 68)] = drawn.randrange(256)
    content[12:16] = zlib.crc32(content[16:]).to_bytes(4, "little")
    store = await store_of(honest_file())
    await store.put(PAGES, bytes(content), overwrite=True)
    await assert_no_row_is_lost(store)


# --- Bloom filters ----------------------------------------------------------------------------------------------------

NEEDLE_ROWS = (0, 299, 300, 555, 899)


@pytest.mark.parametrize(
    ("offset", "length"),
    [
        *((None, length) for length in (None, 0, 1, 31, 33, 47, 1 << 20, (1 << 31) - 1)),
        *((offset, length) for offset in (1, 4, 1000, 1 << 40, -5) for length in (None, 47, 64)),
    ],
)
async def test_an_impossible_bloom_filter_loses_no_row(offset: int | None, length: int | None) -> None:
    def lie(chunk: ColumnChunk) -> None:
        if chunk.meta_data is not None and chunk.meta_data.bloom_filter_offset is not None:
            chunk.meta_data.bloom_filter_length = length
            chunk.meta_data.bloom_filter_offset = offset or chunk.meta_data.bloom_filter_offset

    file = with_changed_chunks(honest_file(), lie)
    for store in (MemoryStore({DATA: file}), await store_of(file)):
        async with cp.open_partition("t", store=store) as table:
            for row in NEEDLE_ROWS:
                needle = rows()["needle"][row].as_py()
                found = await table.scan(where=cp.col("needle") == needle).to_arrow()
                assert_identical(found, rows().slice(row, 1))
            assert await table.scan(where=cp.col("needle").is_in([1, 2])).count() == 0
