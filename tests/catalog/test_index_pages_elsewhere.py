"""Page indexes in the index of a lake: a needle reads pages of a file, and no file is asked where its pages lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import coldparquet as cp
from coldparquet.catalog import packed
from coldparquet.format.page_index import encode_pages_file
from coldparquet.format.pages import ChunkPlaces, PartitionPages
from coldparquet.maintenance import pack, packed_entries
from coldparquet.maintenance.index import index_table
from coldparquet.maintenance.pack import pack_table
from coldparquet.maintenance.verify import verify_table
from coldparquet.records import replace
from coldparquet.storage.requests import FetchedRange, RangeRequest
from tests.support.parquet_footers import parquet_bytes
from tests.support.small_tables import QuotingStore

DAYS, ROWS = 12, 40_000
INDEX = "mine/indexes/lake"


def name_of(day: int) -> str:
    return f"date=2024-03-{day + 1:02}/part-0.parquet"


def rows_of(day: int) -> pa.Table:
    """A day of rows, whose statistics say nothing of the seconds, for all of it is one row group."""
    random = np.random.default_rng(day)
    seconds = np.arange(ROWS) * (86_400 / ROWS) + day * 86_400 + 1_709_251_200
    return pa.table(
        {
            "ts": pa.array((seconds * 1_000_000).astype(np.int64), pa.timestamp("us", "UTC")),
            "id": pa.array(np.arange(ROWS) + day * ROWS),
            "price": pa.array(random.random(ROWS)),
        }
    )


def file_of(day: int, **written: Any) -> bytes:
    of_pages = {"write_page_index": True, "data_page_size": 8192, "use_dictionary": False, **written}
    return parquet_bytes(rows_of(day), row_group_size=ROWS, compression="none", **of_pages)


class TheirStore(QuotingStore):
    """Remembers what was asked of Parquet files."""

    def __init__(self, **written: Any) -> None:
        super().__init__({f"lake/{name_of(day)}": file_of(day, **written) for day in range(DAYS)})
        self.got: list[str] = []

    async def get(self, request: RangeRequest) -> FetchedRange:
        if request.path.endswith(".parquet"):
            self.got.append(request.path.removeprefix("lake/"))
        return await super().get(request)


SECONDS = "ts >= '2024-03-05T10:00:00' and ts < '2024-03-05T10:00:30'"


async def ask(
    store: QuotingStore, where: str, *, index: str | None = INDEX, **options: Any
) -> tuple[pa.Table, list[str], int]:
    """The rows, the requests behind those that open the lake, and the bytes of Parquet files."""
    async with cp.open_table("lake", store=store, options=cp.ReadOptions(index=index, **options)) as table:
        rows = await table.scan(["ts", "id", "price"], where).to_arrow()
        log = [one for one in table.request_log if one.operation == "get"]
    asked = [one.path.removeprefix("lake/") for one in log]
    return rows, sorted(asked), sum(one.fetched_bytes for one in log if one.path.endswith(".parquet"))


def pages_of(report: Any) -> tuple[str, int, int]:
    return report.catalogue.action, report.catalogue.pages_bytes, report.catalogue.left_out_pages_bytes


async def test_thirty_seconds_and_a_needle_read_pages_and_ask_no_file_where_they_lie() -> None:
    store = TheirStore()
    report = await index_table("lake", store=store, index=INDEX, pages=True, pack=False)
    action, pages_bytes, _ = pages_of(report)
    assert action == "written"
    assert 0 < pages_bytes < 100_000
    assert len(store.got) == DAYS, "the page index came with the footer"
    row_group_bytes = len(file_of(4))
    for where, days in ((SECONDS, [4]), ("id = 250000", [6]), ("id in (90000, 250000, 410000)", [2, 6, 10])):
        expected, _, _ = await ask(store, where, index=None)
        rows, asked, fetched_bytes = await ask(store, where)
        assert rows.sort_by("id").equals(expected.sort_by("id"))
        assert rows.num_rows > 0
        assert set(asked) == {f"{INDEX}/_catalogue", *map(name_of, days)}
        assert asked.count(f"{INDEX}/_catalogue") == 1
        assert fetched_bytes < 0.2 * row_group_bytes * len(days)


@pytest.mark.parametrize("goal", ["fast", "few-bytes"])
async def test_of_a_long_index_the_pages_of_all_files_that_are_asked_take_one_request(
    monkeypatch: pytest.MonkeyPatch, goal: Any
) -> None:
    monkeypatch.setattr(packed, "_FIRST_REQUEST_BYTES", 1024)
    monkeypatch.setattr("coldparquet.scan.draft._WORTH_A_PAGES_FILE_BYTES", 100_000)
    store = TheirStore()
    await index_table("lake", store=store, index=INDEX, pages=True, pack=False)
    where = "id in (90000, 250000, 410000)"
    expected, _, _ = await ask(store, where, index=None)
    rows, asked, fetched_bytes = await ask(store, where, goal=goal)
    assert rows.equals(expected)
    # The index of the catalogue, its sidecars, and the pages.
    assert asked.count(f"{INDEX}/_catalogue") == 3
    assert fetched_bytes < 0.2 * len(file_of(4)) * 3


async def test_only_new_files_are_read_and_pages_are_kept_where_none_are_asked_for() -> None:
    store = TheirStore()
    without = await index_table("lake", store=store, index=INDEX, pages=False, pack=False)
    assert pages_of(without) == ("written", 0, 0)
    store.got.clear()
    first = await index_table("lake", store=store, index=INDEX, pages=True, pack=False)
    assert first.catalogue is not None
    assert store.got == [name_of(day) for day in range(DAYS)]
    store.got.clear()
    for pages in (True, False):
        assert pages_of(await index_table("lake", store=store, index=INDEX, pages=pages, pack=False)) == (
            "unchanged",
            first.catalogue.pages_bytes,
            0,
        )
    assert store.got == []
    await store.put(f"lake/{name_of(4)}", file_of(11), overwrite=True)
    expected, _, _ = await ask(store, SECONDS, index=None)
    rows, _, _ = await ask(store, SECONDS)
    assert rows.equals(expected)
    assert rows.num_rows == 0
    store.got.clear()
    await index_table("lake", store=store, index=INDEX, pages=True, pack=False)
    assert store.got == [name_of(4)]
    verified = await verify_table("lake", store=store, index=INDEX)
    assert not [finding for one in verified.partitions for finding in one.findings if finding.severity != "advice"]


async def test_files_without_a_page_index_or_of_one_page_a_chunk_have_none_and_are_not_asked() -> None:
    for written in ({"write_page_index": False}, {"data_page_size": 10_000_000, "max_rows_per_page": ROWS}):
        store = TheirStore(**written)
        assert pages_of(await index_table("lake", store=store, index=INDEX, pages=True, pack=False)) == (
            "written",
            0,
            0,
        )
        store.got.clear()
        await index_table("lake", store=store, index=INDEX, pages=True, pack=False)
        assert store.got == []
        expected, _, _ = await ask(store, SECONDS, index=None)
        rows, asked, _ = await ask(store, SECONDS)
        assert rows.equals(expected)
        assert sorted(set(asked)) == sorted(asked)


@pytest.mark.parametrize("has_own", [False, True])
async def test_tables_of_directories_have_their_pages_there_as_well(*, has_own: bool) -> None:
    table = "bucket/days"
    store = QuotingStore({f"{table}/2024-03-{day + 1:02}/data.parquet": file_of(day) for day in range(DAYS)})
    if has_own:
        await index_table(table, store=store, pages=True, pack=False)
    for verb in (index_table, pack_table):
        how: dict[str, Any] = {"pages": True} if verb is index_table else {}
        report: Any = await verb(table, store=store, index=INDEX, **how)
        packed_report = report.catalogue if verb is index_table else report
        assert packed_report.pages_bytes > 0
    async with cp.open_table(table, store=store, options=cp.ReadOptions(index=INDEX)) as opened:
        rows = await opened.scan(["ts", "id"], SECONDS).to_arrow()
        log = [one for one in opened.request_log if one.operation == "get"]
    async with cp.open_table(table, store=store) as opened:
        assert rows.equals(await opened.scan(["ts", "id"], SECONDS).to_arrow())
    assert rows.num_rows == 14
    of_data = [one for one in log if one.path.endswith("data.parquet")]
    assert {one.path for one in of_data} == {f"{table}/2024-03-05/data.parquet"}
    assert sum(one.fetched_bytes for one in of_data) < 0.2 * len(file_of(4))
    assert [one.path for one in log if one not in of_data] == [f"{INDEX}/_catalogue"]


async def test_too_many_pages_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "LIMIT_OF_PAGES_BYTES", 1000)
    store = TheirStore()
    action, pages_bytes, left_out_bytes = pages_of(
        await index_table("lake", store=store, index=INDEX, pages=True, pack=False)
    )
    assert (action, pages_bytes) == ("written", 0)
    assert left_out_bytes > 1000
    expected, _, _ = await ask(store, SECONDS, index=None)
    assert (await ask(store, SECONDS))[0].equals(expected)
    store.got.clear()
    again = await index_table("lake", store=store, index=INDEX, pages=True, pack=False)
    assert pages_of(again) == ("unchanged", 0, left_out_bytes)
    assert store.got == []
    monkeypatch.undo()
    anew = await index_table("lake", store=store, index=INDEX, pages=True, force=True, pack=False)
    assert pages_of(anew) == ("written", left_out_bytes, 0)


async def test_the_pages_of_one_file_that_has_too_many_are_left_out_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_entries, "LARGEST_PACKED_PAGES_BYTES", 1000)
    store = TheirStore(data_page_size=10_000_000, max_rows_per_page=ROWS // 2)
    await store.put(f"lake/{name_of(4)}", file_of(4), overwrite=True)
    for action in ("written", "unchanged"):
        store.got.clear()
        reported, pages_bytes, left_out_bytes = pages_of(
            await index_table("lake", store=store, index=INDEX, pages=True, pack=False)
        )
        assert reported == action
        assert min(pages_bytes, left_out_bytes) > 1000
    assert store.got == []
    expected, _, _ = await ask(store, SECONDS, index=None)
    assert (await ask(store, SECONDS))[0].equals(expected)


async def test_a_partition_that_came_after_the_index_is_read_by_the_pages_beside_it() -> None:
    table = "bucket/days"
    objects = {f"{table}/2024-03-{day + 1:02}/data.parquet": file_of(day) for day in range(DAYS)}
    newest = f"{table}/2024-03-{DAYS:02}"
    data = objects.pop(f"{newest}/data.parquet")
    store = QuotingStore(objects)
    await index_table(table, store=store, pages=True, pack=False)
    await index_table(table, store=store, index=INDEX, pages=True, pack=False)
    await store.put(f"{newest}/data.parquet", data, overwrite=False)
    await index_table(newest, store=store, pages=True, pack=False)
    where = f"id = {(DAYS - 1) * ROWS + 7}"
    async with cp.open_table(table, store=store, options=cp.ReadOptions(index=INDEX)) as opened:
        rows = await opened.scan(["id"], where).to_arrow()
        log = [one for one in opened.request_log if one.operation == "get" and one.path.startswith(newest)]
    assert rows.num_rows == 1
    assert f"{newest}/_pages" in {one.path for one in log}
    assert sum(one.fetched_bytes for one in log if one.path.endswith(".parquet")) < 0.2 * len(data)


async def test_damaged_pages_are_not_used_and_change_no_row() -> None:
    store = TheirStore()
    report = await index_table("lake", store=store, index=INDEX, pages=True, pack=False)
    _, pages_bytes, _ = pages_of(report)
    data = bytearray(store._objects[f"{INDEX}/_catalogue"].data)
    data[-pages_bytes:] = bytes(byte ^ 0x55 for byte in data[-pages_bytes:])
    await store.put(f"{INDEX}/_catalogue", bytes(data), overwrite=True)
    expected, _, _ = await ask(store, SECONDS, index=None)
    rows, _, _ = await ask(store, SECONDS)
    assert rows.equals(expected)
    async with cp.open_table("lake", store=store, options=cp.ReadOptions(index=INDEX)) as table:
        explained = " ".join((await table.scan(where=SECONDS).plan()).explain().split())
    assert "_pages is not used: " in explained
    verified = await verify_table("lake", store=store, index=INDEX)
    kinds = {one.name: [finding.kind for finding in one.findings] for one in verified.partitions}
    assert kinds == {name_of(day): ["CatalogueNotUsed"] for day in range(DAYS)}


async def test_verify_deep_finds_bounds_of_pages_that_lose_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def with_wrong_maxima(pages: PartitionPages, places: ChunkPlaces, **of_file: Any) -> bytes:
        return encode_pages_file(replace(pages, upper=pages.lower), places, **of_file)

    monkeypatch.setattr(packed_entries, "encode_pages_file", with_wrong_maxima)
    store = TheirStore()
    await index_table("lake", store=store, index=INDEX, pages=True, pack=False)
    where = "id = 250000"
    expected, _, _ = await ask(store, where, index=None)
    assert expected.num_rows == 1
    rows, _, _ = await ask(store, where)
    assert rows.num_rows == 0, "the wrong bound loses the row"
    assert not [one for one in (await verify_table("lake", store=store, index=INDEX)).partitions if one.findings]
    for partition in (await verify_table("lake", store=store, index=INDEX, deep=True)).partitions:
        assert {(one.kind, one.severity, one.column) for one in partition.findings} == {
            ("CatalogueDiffers", "error", column) for column in ("ts", "id", "price")
        }
        assert all("--index mine/indexes/lake' writes the index anew" in str(one.remedy) for one in partition.findings)
