"""Bloom filters in the catalogue: the same rows from few requests, however many partitions are asked."""

from __future__ import annotations

import asyncio
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

import coldparquet as cp
from coldparquet.catalog.packed import CATALOGUE_FILE, STRIPES_REASON
from coldparquet.format.catalogue_file import parse_catalogue_index
from coldparquet.maintenance.index import index_table
from coldparquet.maintenance.pack import pack_table, renew_catalogue
from coldparquet.options import ReadOptions, StoreOptions
from coldparquet.ranges import SuffixRange
from coldparquet.storage.requests import RangeRequest
from coldparquet.write.options import WriteOptions
from coldparquet.write.partition import write_partition
from tests.support.small_tables import TABLE, QuotingStore, StoreWithClasses, objects_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coldparquet.storage.log import RequestRecord
    from coldparquet.storage.requests import FetchedRange, ObjectInfo

DAYS, ROWS, ROW_GROUP_ROWS = 16, 2_000, 500
NEEDLE_DAY, NEEDLE = 5, 314_159_265_358_979_323
NOWHERE = NEEDLE + 1
WITHOUT = StoreOptions(use_catalogue=False)


def _rows(day: int, *, has_needle: bool | None = None) -> pa.Table:
    random = np.random.default_rng(day)
    ids = random.integers(1 << 20, 1 << 60, ROWS)
    if has_needle if has_needle is not None else day == NEEDLE_DAY:
        ids[ROWS // 2] = NEEDLE
    begin_us = (19_783 + day) * 86_400_000_000
    return pa.table(
        {
            "ts": pa.array(begin_us + np.arange(ROWS) * 1_000_000, pa.timestamp("us", "UTC")),
            "id": pa.array(ids),
            "price": pa.array(random.normal(100, 1, ROWS)),
        }
    )


@cache
def _objects() -> dict[str, bytes]:
    async def write(directory: Path) -> None:
        options = WriteOptions(row_group_rows=ROW_GROUP_ROWS, bloom_columns=("id",))
        for day in range(DAYS):
            await write_partition(directory / name_of(day), _rows(day), timestamp="ts", options=options)
        # Filters of this size would go into the sidecars, and with these into the catalogue: say where they are.
        await index_table(directory, force=True, inline_bloom_bytes=0)

    with TemporaryDirectory() as directory:
        asyncio.run(write(Path(directory)))
        return objects_of(Path(directory))


@pytest.fixture(scope="module", autouse=True)
def _written() -> None:
    _objects()


def name_of(day: int) -> str:
    return str(np.datetime64("2024-03-01") + day)


async def written_anew(store: QuotingStore, days: Iterable[int], directory: Path) -> None:
    """Replace partitions by others that all hold the needle."""
    options = WriteOptions(row_group_rows=ROW_GROUP_ROWS, bloom_columns=("id",))
    for day in days:
        await write_partition(directory / name_of(day), _rows(day, has_needle=True), timestamp="ts", options=options)
    for path, data in objects_of(directory).items():
        await store.put(path, data, overwrite=True)


def stripe_requests(log: tuple[RequestRecord, ...]) -> int:
    return sum(record.reason == STRIPES_REASON for record in log)


class ListingAfterStripes(StoreWithClasses):
    """Answers the listing of versions only once stripes were fetched."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        super().__init__(objects)
        self.waits = False
        self._stripes = asyncio.Event()

    async def get(self, request: RangeRequest) -> FetchedRange:
        answer = await super().get(request)
        if request.reason == STRIPES_REASON:
            self._stripes.set()
        return answer

    async def list_between(self, path: str, *, start: str, stop: str) -> tuple[ObjectInfo, ...]:
        if self.waits:
            async with asyncio.timeout(60):
                await self._stripes.wait()
        return await super().list_between(path, start=start, stop=stop)


async def packed(store: QuotingStore | None = None, *, bloom_limit_bytes: int = 1 << 20) -> QuotingStore:
    store = store or StoreWithClasses(dict(_objects()))
    report = await pack_table(TABLE, store=store, bloom_limit_bytes=bloom_limit_bytes)
    assert report.packed_count == DAYS
    return store


def data_requests(log: tuple[RequestRecord, ...]) -> dict[str, int]:
    """How many GETs went to which partition's Parquet file."""
    counts: dict[str, int] = {}
    for record in log:
        if record.operation == "get" and record.path.endswith(".parquet"):
            day = record.path.split("/")[-2]
            counts[day] = counts.get(day, 0) + 1
    return counts


async def found(
    store: QuotingStore, where: str, *, store_options: StoreOptions | None = None
) -> tuple[int, tuple[RequestRecord, ...], str]:
    async with cp.open_table(TABLE, store=store, store_options=store_options) as table:
        scan = table.scan(["ts", "price"], where)
        rows = await scan.to_arrow()
        return rows.num_rows, table.request_log, (await scan.plan()).explain()


async def test_one_stripe_tells_for_all_partitions() -> None:
    store = await packed()
    rows, log, _ = await found(store, f"id = {NEEDLE}")
    assert rows == 1
    assert sum(record.reason == "bloom filters in the catalogue" for record in log) == 1
    asked = data_requests(log)
    assert "2024-03-06" in asked
    assert len(asked) <= 3, "a false alarm or two are usual"
    own_rows, own_log, _ = await found(store, f"id = {NEEDLE}", store_options=WITHOUT)
    assert own_rows == 1
    assert len(data_requests(own_log)) == DAYS, "each partition's own filters were asked"
    assert len(log) < len(own_log) / 2


async def test_what_is_nowhere_takes_no_data_request() -> None:
    _, log, explained = await found(await packed(), f"id = {NOWHERE}")
    assert not data_requests(log)
    assert "bloom filter" in explained


async def test_lists_of_values_find_what_the_rows_hold() -> None:
    store = await packed()
    wanted = [NEEDLE, *_rows(0)["id"].to_pylist()[:3], *_rows(9)["id"].to_pylist()[-2:], NOWHERE]
    where = f"id in ({', '.join(map(str, wanted))})"
    rows, log, _ = await found(store, where)
    assert rows == len(wanted) - 1
    assert (await found(store, where, store_options=WITHOUT))[0] == rows
    assert {"2024-03-01", "2024-03-06", "2024-03-10"} <= set(data_requests(log))


async def test_a_repeated_question_takes_no_request() -> None:
    store = await packed()
    async with cp.open_table(TABLE, store=store) as table:
        assert (await table.scan(["ts"], f"id = {NEEDLE}").to_arrow()).num_rows == 1
        before = len(table.request_log)
        assert (await table.scan(["ts"], f"id = {NEEDLE}").to_arrow()).num_rows == 1
        assert len(table.request_log) == before


async def test_a_newest_partition_of_unknown_version_is_asked_itself() -> None:
    packed_store = await packed()
    whole = await packed_store.get(
        RangeRequest(path=f"{TABLE}/{CATALOGUE_FILE}", byte_range=SuffixRange(1 << 30), reason="")
    )
    store = QuotingStore({**_objects(), f"{TABLE}/{CATALOGUE_FILE}": whole.data})
    _, log, _ = await found(store, f"id = {NOWHERE}")
    assert set(data_requests(log)) == {"2024-03-16"}, "nobody looked at the object whose sidecar was read by itself"


async def test_more_filters_than_allowed_are_left_out() -> None:
    store = QuotingStore(dict(_objects()))
    report = await pack_table(TABLE, store=store, bloom_limit_bytes=1_000)
    assert report.bloom_bytes == 0
    assert report.left_out_bloom_bytes > 1_000
    rows, log, _ = await found(store, f"id = {NEEDLE}")
    assert rows == 1
    assert len(data_requests(log)) == DAYS


async def test_renewing_keeps_filters_and_a_catalogue_without_any_gets_none() -> None:
    for limit_bytes, has_blooms in ((1 << 20, True), (0, False)):
        store = await packed(bloom_limit_bytes=limit_bytes)
        report = await renew_catalogue(store, TABLE, ReadOptions(), changed=["2024-03-02"], make=False)
        assert report is not None
        assert report.action == "unchanged"
        assert (report.bloom_bytes > 0) == has_blooms


async def test_a_replaced_partition_is_asked_itself() -> None:
    store = await packed()
    path = f"{TABLE}/2024-03-06/data.parquet"
    await store.put(path, _objects()[path], overwrite=True)
    rows, log, _ = await found(store, f"id = {NEEDLE}")
    assert rows == 1
    assert "2024-03-06" in data_requests(log)


async def test_stripes_do_not_wait_for_the_listing_that_tells_which_entries_count(tmp_path: Path) -> None:
    store = ListingAfterStripes(dict(_objects()))
    await packed(store)
    store.waits = True
    rows, log, _ = await found(store, f"id = {NEEDLE}")
    assert rows == 1
    assert stripe_requests(log) == 1
    await written_anew(store, [1, 9], tmp_path)
    rows, log, _ = await found(store, f"id = {NEEDLE}")
    assert rows == 3, "filters of entries that do not count are not believed"
    assert stripe_requests(log) == 1


async def test_stripes_that_came_are_used_for_however_few_entries_count(tmp_path: Path) -> None:
    store = await packed()
    anew = set(range(DAYS - 1)) - {7}
    await written_anew(store, anew, tmp_path)
    rows, log, _ = await found(store, f"id = {NEEDLE}")
    assert rows == len(anew)
    assert stripe_requests(log) == 1
    assert set(data_requests(log)) == set(map(name_of, anew))


async def test_no_stripe_is_fetched_of_a_table_that_was_written_anew(tmp_path: Path) -> None:
    store = await packed()
    await written_anew(store, range(DAYS), tmp_path)
    rows, log, _ = await found(store, f"id = {NEEDLE}")
    assert rows == DAYS
    assert stripe_requests(log) == 0


@pytest.mark.parametrize("where", ["id = 5", "price > 0", f"id != {NEEDLE}", "id = 5 or price > 0"])
async def test_no_stripe_is_fetched_for_what_filters_are_not_asked(where: str) -> None:
    _, log, _ = await found(await packed(), where)
    assert stripe_requests(log) == 0


async def test_a_damaged_stripe_is_not_believed() -> None:
    store = await packed()
    path = f"{TABLE}/{CATALOGUE_FILE}"
    whole = await store.get(RangeRequest(path=path, byte_range=SuffixRange(1 << 30), reason="test"))
    data = bytearray(whole.data)
    stripes = parse_catalogue_index(bytes(data), path=None).stripes_range
    data[stripes.start : stripes.stop] = bytes(stripes.length_bytes)
    await store.put(path, bytes(data), overwrite=True)
    rows, log, explained = await found(store, f"id = {NEEDLE}")
    assert rows == 1
    assert len(data_requests(log)) == DAYS
    assert "the bloom filters in the catalogue are not used" in explained


async def test_one_partition_asks_its_own_filters() -> None:
    store = await packed()
    _, log, _ = await found(store, f"id = {NEEDLE} and ts >= '2024-03-06' and ts < '2024-03-07'")
    assert not any(record.reason == "bloom filters in the catalogue" for record in log)


async def test_filters_in_the_sidecars_are_not_packed_twice() -> None:
    store = QuotingStore(dict(_objects()))
    await index_table(TABLE, store=store, force=True)
    report = await pack_table(TABLE, store=store)
    assert (report.bloom_bytes, report.left_out_bloom_bytes) == (0, 0)
    rows, log, _ = await found(store, f"id = {NEEDLE}")
    assert rows == 1
    assert len(data_requests(log)) <= 3
