"""Tables with a catalogue: the same answers from fewer requests, and an entry only counts where all that is known agrees."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coldparquet as cp
from coldparquet.catalog import packed as catalogue_fetch
from coldparquet.catalog.packed import CATALOGUE_FILE, STRIPES_REASON
from coldparquet.errors import AccessError, ObjectChangedError, StorageError
from coldparquet.format.catalogue_file import parse_catalogue_index
from coldparquet.format.txn import encode_txn, parse_txn
from coldparquet.maintenance.index import index_table
from coldparquet.maintenance.pack import pack_table, renew_catalogue
from coldparquet.options import ReadOptions, StoreOptions
from coldparquet.ranges import ByteRange, SuffixRange
from coldparquet.records import replace
from coldparquet.storage.base import ObjectStore
from coldparquet.storage.log import RequestRecord, round_trips
from coldparquet.storage.requests import FetchedRange, ObjectInfo, RangeRequest
from coldparquet.write.options import WriteOptions
from coldparquet.write.partition import write_partition
from coldparquet_testing.stores import LatencyStore
from tests.support.questdb_tables import assert_same_rows, expected_rows, plain
from tests.support.small_tables import (
    TABLE,
    QuotingStore,
    StoreWithClasses,
    name_of,
    objects_of,
    partitions_alone,
    table_of_days,
)
from tests.support.table_copies import copy_table, records_of, with_records

WITHOUT = StoreOptions(use_catalogue=False)
KEEPS_NOTHING = StoreOptions(cache_limit_bytes=0)
"""Small catalogues come with the first request, and so would their stripes of bloom filters."""
DAYS = 30
ROWS = 48


def spent(log: tuple[RequestRecord, ...]) -> list[tuple[str, str]]:
    """The operation and the path in the table of each request, sorted."""
    return sorted((record.operation, record.path.removeprefix(TABLE).lstrip("/")) for record in log)


def trips(log: tuple[RequestRecord, ...]) -> int:
    """How many times latency was waited for."""
    return round_trips((record.started_s, record.finished_s) for record in log)


OPENING = sorted([("get", "_catalogue"), ("get", "_meta"), ("get", "_txn"), ("list", "")])


async def packed(objects: dict[str, bytes], kind: type[QuotingStore] = QuotingStore) -> QuotingStore:
    store = kind(objects)
    report = await pack_table(TABLE, store=store)
    assert report.action == "written"
    return store


async def rows_of(store: ObjectStore, *, store_options: StoreOptions | None = None) -> pa.Table:
    async with cp.open_table(TABLE, store=store, store_options=store_options) as table:
        return plain(await table.scan().to_arrow())


async def explained(store: ObjectStore) -> str:
    async with cp.open_table(TABLE, store=store) as table:
        return (await table.scan().plan()).explain()


async def test_a_year_is_planned_and_counted_with_one_get_beside_the_table_files() -> None:
    store = LatencyStore(await packed(table_of_days(365)), first_byte_s=0.02)
    async with cp.open_table(TABLE, store=store) as table:
        plan = await table.scan().plan()
        assert await table.scan().count() == 365 * ROWS
        assert await table.scan().max("price") is not None
        assert await table.scan().min("price") is not None
        await table.scan(["price"], "price > 1e9").plan()
        assert spent(table.request_log) == OPENING
        assert trips(table.request_log) == 1
    assert {partition.metadata_source for partition in plan.partitions} == {"catalogue"}
    assert sum(request.reason == "catalogue" for request in plan.metadata_requests) == 1


async def test_the_answers_are_those_of_questdb_and_of_the_sidecars(tmp_path: Path) -> None:
    path = copy_table("o3_in_place", tmp_path)
    report = await index_table(path, pack=True, pages=False)
    assert report.catalogue is not None
    assert (report.catalogue.action, report.catalogue.packed_count) == ("written", 2)
    async with cp.open_table(TABLE, store=QuotingStore(objects_of(path))) as table:
        plan = await table.scan().plan()
        assert [partition.metadata_source for partition in plan.partitions] == ["catalogue", "catalogue", "native"]
        assert_same_rows(await table.scan().to_arrow(), expected_rows("o3_in_place"))


class StoreWithoutListings(QuotingStore):
    """As those of obstore and of web servers."""

    has_version_listings = False


async def test_where_no_listing_tells_versions_a_catalogue_is_not_believed(tmp_path: Path) -> None:
    path = copy_table("interval_day", tmp_path)
    report = await index_table(path, pack=True, pages=False)
    assert report.catalogue is not None
    assert "not here" in (report.catalogue.reason or "")
    unlisted = StoreWithoutListings(objects_of(path))
    for opening in (cp.open_table(path), cp.open_table(TABLE, store=unlisted)):
        async with opening as table:
            plan = await table.scan().plan()
            assert {partition.metadata_source for partition in plan.partitions} == {"sidecar", "native"}
            assert not any("_catalogue" in record.path for record in table.request_log)


@pytest.mark.parametrize("answer", [None, "absent", "refused"])
async def test_without_a_catalogue_one_parallel_get_is_all(answer: str | None) -> None:
    class Store(QuotingStore):
        async def get(self, request: RangeRequest) -> FetchedRange:
            await asyncio.sleep(0.02)  # also before what is absent, which LatencyStore tells at once
            if answer == "refused" and request.reason == "catalogue":
                raise AccessError("no", path=request.path)
            return await super().get(request)

    options = WITHOUT if answer is None else StoreOptions()
    store = LatencyStore(Store(table_of_days(3)), first_byte_s=0.02)
    async with cp.open_table(TABLE, store=store, store_options=options) as table:
        assert spent(table.request_log) == [request for request in OPENING if answer or request[1] != "_catalogue"]
        assert trips(table.request_log) == 1
        before = len(table.request_log)
        await table.refresh()
        assert ("get", "_catalogue") not in spent(table.request_log[before:])
        assert await table.scan().count() == 3 * ROWS
        assert not [note for note in (await table.scan().plan()).notes if "_catalogue" in note]


async def test_refreshing_asks_whether_the_catalogue_is_still_the_same() -> None:
    store = await packed(table_of_days(DAYS))
    async with cp.open_table(TABLE, store=store) as table:
        await table.refresh()
        asked = [record for record in table.request_log if record.reason == "catalogue"]
        assert [record.fetched_bytes > 0 for record in asked] == [True, False]
        assert await table.scan().count() == DAYS * ROWS
        assert spent(table.request_log) == sorted(OPENING * 2)


async def test_partitions_that_are_missing_or_changed_are_read_by_themselves() -> None:
    objects = table_of_days(DAYS)
    store = await packed({path: data for path, data in objects.items() if name_of(3) not in path})
    for path, data in objects.items():
        if name_of(3) in path:
            await store.put(path, data, overwrite=False)
    transaction = parse_txn(objects[f"{TABLE}/_txn"], path=None)
    records = records_of(transaction)
    records[7] = replace(records[7], name_txn=99)
    moved = name_of(7).replace(".4", ".99")
    for file in ("_pm", "data.parquet"):
        await store.put(f"{TABLE}/{moved}/{file}", objects[f"{TABLE}/{name_of(7)}/{file}"], overwrite=False)
    await store.put(f"{TABLE}/_txn", encode_txn(with_records(transaction, records)), overwrite=True)
    async with cp.open_table(TABLE, store=store) as table:
        plan = await table.scan().plan()
        assert spent(table.request_log) == sorted([*OPENING, ("get", f"{name_of(3)}/_pm"), ("get", f"{moved}/_pm")])
        assert f"no entry of this state of 2 of {DAYS} partitions ({name_of(3)}, {moved})" in plan.explain()
        assert await table.scan().count() == DAYS * ROWS


@pytest.mark.parametrize("change", [{"parquet_size": 1}, {"row_count": 1}])
async def test_an_entry_of_another_size_or_of_other_rows_does_not_count(change: dict[str, int]) -> None:
    objects = table_of_days(DAYS)
    transaction = parse_txn(objects[f"{TABLE}/_txn"], path=None)
    records = records_of(transaction)
    ((field, difference),) = change.items()
    records[5] = replace(records[5], **{field: getattr(records[5], field) + difference})
    store = await packed(objects)
    await store.put(f"{TABLE}/_txn", encode_txn(with_records(transaction, records)), overwrite=True)
    async with cp.open_table(TABLE, store=store) as table:
        with pytest.raises(cp.ColdParquetError):  # as without a catalogue: nothing there is of this state
            await table.scan().plan()
        assert ("get", f"{name_of(5)}/_pm") in spent(table.request_log)


async def test_without_a_transaction_one_listing_tells_whether_entries_are_right() -> None:
    store = LatencyStore(await packed(partitions_alone(300)), first_byte_s=0.02)
    async with cp.open_table(TABLE, store=store) as table:
        before = len(table.request_log)
        assert await table.scan().count() == 300 * ROWS
        assert spent(table.request_log[before:]) == [("list", "")] * 2
        assert trips(table.request_log[before:]) == 1
        plan = await table.scan().plan()
        assert {partition.metadata_source for partition in plan.partitions[:-1]} == {"catalogue"}


@pytest.mark.parametrize("file", ["_pm", "data.parquet"])
async def test_without_a_transaction_replaced_objects_are_noticed(file: str) -> None:
    objects = partitions_alone(DAYS)
    store = await packed(objects)
    path = f"{TABLE}/{name_of(4)}/{file}"
    await store.put(path, objects[path], overwrite=True)
    async with cp.open_table(TABLE, store=store) as table:
        plan = await table.scan().plan()
        by_name = {partition.name: partition for partition in plan.partitions}
        assert by_name[name_of(4)].metadata_source == "sidecar"
        assert "its Parquet file or its sidecar was replaced since" in by_name[name_of(4)].notes[0]
        assert by_name[name_of(5)].metadata_source == "catalogue"


async def test_a_few_partitions_without_a_transaction_are_cheaper_by_themselves() -> None:
    store = await packed(partitions_alone(12))
    async with cp.open_table(TABLE, store=store) as table:
        plan = await table.scan().plan()
        assert {partition.metadata_source for partition in plan.partitions} == {"sidecar"}
        assert not [note for note in plan.notes if "_catalogue" in note]
        assert "list" not in [operation for operation, path in spent(table.request_log) if path]


async def replaced_by_a_copy(store: QuotingStore, day: int) -> None:
    """Replace a Parquet file by one of the same size and rows, as a program does that does not know the catalogue."""
    path = f"{TABLE}/{name_of(day)}/data.parquet"
    await store.put(path, table_of_days(1)[f"{TABLE}/{name_of(0)}/data.parquet"], overwrite=True)


async def test_another_version_of_the_data_is_an_error_that_refreshing_cures() -> None:
    store = await packed(table_of_days(DAYS))
    await replaced_by_a_copy(store, 2)
    async with cp.open_table(TABLE, store=store) as table:
        with pytest.raises(ObjectChangedError, match="coldparquet pack") as caught:
            await table.scan().to_arrow()
        assert caught.value.kind == "StaleCatalogue"
        await table.refresh()
        assert (await table.scan().to_arrow()).num_rows == DAYS * ROWS


async def test_where_data_objects_are_looked_at_stale_entries_are_passed_over() -> None:
    store = await packed(table_of_days(DAYS), StoreWithClasses)
    await replaced_by_a_copy(store, 2)
    async with cp.open_table(TABLE, store=store) as table:
        plan = await table.scan().plan()
        by_name = {partition.name: partition for partition in plan.partitions}
        assert [name for name, read in by_name.items() if read.metadata_source == "sidecar"] == [name_of(2)]
        assert "was replaced since" in by_name[name_of(2)].notes[0]
        assert (await table.scan().to_arrow()).num_rows == DAYS * ROWS


async def test_blocks_behind_the_first_request_come_in_one_round_trip(monkeypatch: pytest.MonkeyPatch) -> None:
    store = await packed(table_of_days(60))
    expected = await rows_of(store, store_options=WITHOUT)
    monkeypatch.setattr(catalogue_fetch, "_FIRST_REQUEST_BYTES", 100)
    async with cp.open_table(TABLE, store=store) as table:
        assert spent(table.request_log) == sorted([*OPENING, ("get", "_catalogue")])
        before = len(table.request_log)
        await table.scan(["price"], "ts < '2024-02-28'").plan()
        asked = table.request_log[before:]
        assert spent(asked) == [("get", "_catalogue")]
        assert plain(await table.scan().to_arrow()) == expected


async def test_a_catalogue_that_is_replaced_meanwhile_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    store = await packed(table_of_days(DAYS))
    monkeypatch.setattr(catalogue_fetch, "_FIRST_REQUEST_BYTES", 100)
    async with cp.open_table(TABLE, store=store) as table:
        await store.put(f"{TABLE}/_catalogue", b"other", overwrite=True)
        plan = await table.scan().plan()
        assert {partition.metadata_source for partition in plan.partitions} == {"sidecar"}
        assert "could not be fetched: the object was replaced" in plan.partitions[0].notes[0]
        assert await table.scan().count() == DAYS * ROWS


@given(st.data())
@settings(max_examples=20)
async def test_a_damaged_catalogue_is_ignored_with_a_note(data: st.DataObject) -> None:
    store = await packed(table_of_days(3))
    expected = await rows_of(store, store_options=WITHOUT)
    path = f"{TABLE}/_catalogue"
    file = bytearray((await store.get(whole(path))).data)
    if data.draw(st.booleans()):
        del file[data.draw(st.integers(0, len(file) - 1)) :]
    else:
        file[data.draw(st.integers(0, len(file) - 1))] ^= data.draw(st.integers(1, 255))
    await store.put(path, bytes(file), overwrite=True)
    assert await rows_of(store) == expected
    assert "_catalogue is not used: " in await explained(store)


def whole(path: str) -> RangeRequest:
    return RangeRequest(path=path, byte_range=ByteRange(0, 1 << 20), reason="test", may_be_short=True)


@given(st.lists(st.integers(0, 4), min_size=15, max_size=15), st.booleans())
@settings(max_examples=10)
async def test_whatever_happened_since_the_rows_are_those_of_the_sidecars(
    changes: list[int], has_transaction: bool
) -> None:
    """0: nothing; 1: new sidecar; 2: no sidecar; 3: new data; 4: both are new."""
    objects = (table_of_days if has_transaction else partitions_alone)(len(changes))
    store = await packed(objects, StoreWithClasses)
    for day, change in enumerate(changes):
        sidecar, data = f"{TABLE}/{name_of(day)}/_pm", f"{TABLE}/{name_of(day)}/data.parquet"
        if change == 2:
            await store.delete([sidecar])
        if change in {1, 4}:
            await store.put(sidecar, objects[sidecar], overwrite=True)
        if change in {3, 4}:
            await store.put(data, objects[data], overwrite=True)
    assert await rows_of(store) == await rows_of(store, store_options=WITHOUT)


async def test_a_store_that_fails_for_the_catalogue_alone_costs_a_note() -> None:
    class Failing(QuotingStore):
        async def get(self, request: RangeRequest) -> FetchedRange:
            if request.reason == "catalogue":
                raise StorageError("broken for good", path=request.path)
            return await super().get(request)

    store = Failing(table_of_days(3))
    text = await explained_without_retries(store)
    assert "_catalogue is not used: it could not be fetched: broken for good" in text


async def explained_without_retries(store: ObjectStore) -> str:
    async with cp.open_table(TABLE, store=store, store_options=StoreOptions(max_attempts=1)) as table:
        return (await table.scan().plan()).explain()


async def test_cancelling_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    store = await packed(table_of_days(DAYS))
    monkeypatch.setattr(catalogue_fetch, "_FIRST_REQUEST_BYTES", 100)
    slow = LatencyStore(store, first_byte_s=0.05)
    async with cp.open_table(TABLE, store=slow) as table:
        tasks = asyncio.all_tasks()
        planning = asyncio.create_task(table.scan().plan())
        await asyncio.sleep(0.02)
        planning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await planning
        assert asyncio.all_tasks() == tasks
        assert await table.scan().count() == DAYS * ROWS  # the next question begins anew


# --- Bloom filters in the catalogue: the same rows from few requests, however many partitions are asked ---------------


BLOOM_DAYS, BLOOM_ROWS, ROW_GROUP_ROWS = 16, 2_000, 500
NEEDLE_DAY, NEEDLE = 5, 314_159_265_358_979_323
NOWHERE = NEEDLE + 1


def _rows(day: int, *, has_needle: bool | None = None) -> pa.Table:
    random = np.random.default_rng(day)
    ids = random.integers(1 << 20, 1 << 60, BLOOM_ROWS)
    if has_needle if has_needle is not None else day == NEEDLE_DAY:
        ids[BLOOM_ROWS // 2] = NEEDLE
    begin_us = (19_783 + day) * 86_400_000_000
    return pa.table(
        {
            "ts": pa.array(begin_us + np.arange(BLOOM_ROWS) * 1_000_000, pa.timestamp("us", "UTC")),
            "id": pa.array(ids),
            "price": pa.array(random.normal(100, 1, BLOOM_ROWS)),
        }
    )


@cache
def _objects() -> dict[str, bytes]:
    async def write(directory: Path) -> None:
        options = WriteOptions(row_group_rows=ROW_GROUP_ROWS, bloom_columns=("id",))
        for day in range(BLOOM_DAYS):
            await write_partition(directory / day_name(day), _rows(day), timestamp="ts", options=options)
        # Filters of this size would go into the sidecars, and with these into the catalogue: say where they are.
        await index_table(directory, force=True, inline_bloom_bytes=0, pages=False, pack=False)

    with TemporaryDirectory() as directory:
        asyncio.run(write(Path(directory)))
        return objects_of(Path(directory))


@pytest.fixture(scope="module", autouse=True)
def _written() -> None:
    _objects()


def day_name(day: int) -> str:
    return str(np.datetime64("2024-03-01") + day)


async def written_anew(store: QuotingStore, days: Iterable[int], directory: Path) -> None:
    """Replace partitions by others that all hold the needle."""
    options = WriteOptions(row_group_rows=ROW_GROUP_ROWS, bloom_columns=("id",))
    for day in days:
        await write_partition(directory / day_name(day), _rows(day, has_needle=True), timestamp="ts", options=options)
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


async def packed_with_blooms(store: QuotingStore | None = None, *, bloom_limit_bytes: int = 1 << 20) -> QuotingStore:
    store = store or StoreWithClasses(dict(_objects()))
    report = await pack_table(TABLE, store=store, bloom_limit_bytes=bloom_limit_bytes)
    assert report.packed_count == BLOOM_DAYS
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
    store: QuotingStore, where: str, *, store_options: StoreOptions = KEEPS_NOTHING
) -> tuple[int, tuple[RequestRecord, ...], str]:
    async with cp.open_table(TABLE, store=store, store_options=store_options) as table:
        scan = table.scan(["ts", "price"], where)
        rows = await scan.to_arrow()
        plan, log = await scan.plan(), table.request_log
        told = sum(request.reason == STRIPES_REASON for request in plan.metadata_requests)
        assert told == stripe_requests(log), "also where a plan was dropped"
        return rows.num_rows, log, plan.explain()


async def test_one_stripe_tells_for_all_partitions() -> None:
    store = await packed_with_blooms()
    rows, log, _ = await found(store, f"id = {NEEDLE}")
    assert rows == 1
    assert sum(record.reason == "bloom filters in the catalogue" for record in log) == 1
    asked = data_requests(log)
    assert "2024-03-06" in asked
    assert len(asked) <= 3, "a false alarm or two are usual"
    own_rows, own_log, _ = await found(store, f"id = {NEEDLE}", store_options=WITHOUT)
    assert own_rows == 1
    assert len(data_requests(own_log)) == BLOOM_DAYS, "each partition's own filters were asked"
    assert len(log) < len(own_log) / 2


async def test_what_is_nowhere_takes_no_data_request() -> None:
    _, log, explained = await found(await packed_with_blooms(), f"id = {NOWHERE}")
    assert not data_requests(log)
    assert "bloom filter" in explained


async def test_lists_of_values_find_what_the_rows_hold() -> None:
    store = await packed_with_blooms()
    wanted = [NEEDLE, *_rows(0)["id"].to_pylist()[:3], *_rows(9)["id"].to_pylist()[-2:], NOWHERE]
    where = f"id in ({', '.join(map(str, wanted))})"
    rows, log, _ = await found(store, where)
    assert rows == len(wanted) - 1
    assert (await found(store, where, store_options=WITHOUT))[0] == rows
    assert {"2024-03-01", "2024-03-06", "2024-03-10"} <= set(data_requests(log))


async def test_a_repeated_question_takes_no_request() -> None:
    store = await packed_with_blooms()
    async with cp.open_table(TABLE, store=store) as table:
        assert (await table.scan(["ts"], f"id = {NEEDLE}").to_arrow()).num_rows == 1
        before = len(table.request_log)
        assert (await table.scan(["ts"], f"id = {NEEDLE}").to_arrow()).num_rows == 1
        assert len(table.request_log) == before


async def test_a_newest_partition_of_unknown_version_is_asked_itself() -> None:
    packed_store = await packed_with_blooms()
    whole = await packed_store.get(
        RangeRequest(path=f"{TABLE}/{CATALOGUE_FILE}", byte_range=SuffixRange(1 << 30), reason="")
    )
    store = QuotingStore({**_objects(), f"{TABLE}/{CATALOGUE_FILE}": whole.data})
    _, log, _ = await found(store, f"id = {NOWHERE}")
    assert set(data_requests(log)) == {"2024-03-16"}, "no HEAD went to the object whose sidecar was read by itself"


async def test_more_filters_than_allowed_are_left_out() -> None:
    store = QuotingStore(dict(_objects()))
    report = await pack_table(TABLE, store=store, bloom_limit_bytes=1_000)
    assert report.bloom_bytes == 0
    assert report.left_out_bloom_bytes > 1_000
    rows, log, _ = await found(store, f"id = {NEEDLE}")
    assert rows == 1
    assert len(data_requests(log)) == BLOOM_DAYS


async def test_renewing_keeps_filters_and_a_catalogue_without_any_gets_none() -> None:
    for limit_bytes, has_blooms in ((1 << 20, True), (0, False)):
        store = await packed_with_blooms(bloom_limit_bytes=limit_bytes)
        report = await renew_catalogue(store, TABLE, ReadOptions(), changed=["2024-03-02"], make=False)
        assert report is not None
        assert report.action == "unchanged"
        assert (report.bloom_bytes > 0) == has_blooms


async def test_a_replaced_partition_is_asked_itself() -> None:
    store = await packed_with_blooms()
    path = f"{TABLE}/2024-03-06/data.parquet"
    await store.put(path, _objects()[path], overwrite=True)
    rows, log, _ = await found(store, f"id = {NEEDLE}")
    assert rows == 1
    assert "2024-03-06" in data_requests(log)


async def test_stripes_do_not_wait_for_the_listing_that_tells_which_entries_count(tmp_path: Path) -> None:
    store = ListingAfterStripes(dict(_objects()))
    await packed_with_blooms(store)
    store.waits = True
    rows, log, _ = await found(store, f"id = {NEEDLE}")
    assert rows == 1
    assert stripe_requests(log) == 1
    await written_anew(store, [1, 9], tmp_path)
    rows, log, _ = await found(store, f"id = {NEEDLE}")
    assert rows == 3, "filters of entries that do not count are not believed"
    assert stripe_requests(log) == 1


async def test_stripes_that_came_are_used_for_however_few_entries_count(tmp_path: Path) -> None:
    store = await packed_with_blooms()
    anew = set(range(BLOOM_DAYS - 1)) - {7}
    await written_anew(store, anew, tmp_path)
    rows, log, _ = await found(store, f"id = {NEEDLE}")
    assert rows == len(anew)
    assert stripe_requests(log) == 1
    assert set(data_requests(log)) == set(map(day_name, anew))


async def test_no_stripe_is_fetched_of_a_table_that_was_written_anew(tmp_path: Path) -> None:
    store = await packed_with_blooms()
    await written_anew(store, range(BLOOM_DAYS), tmp_path)
    rows, log, _ = await found(store, f"id = {NEEDLE}")
    assert rows == BLOOM_DAYS
    assert stripe_requests(log) == 0


@pytest.mark.parametrize("where", ["id = 5", "price > 0", f"id != {NEEDLE}", "id = 5 or price > 0"])
async def test_no_stripe_is_fetched_for_what_filters_are_not_asked(where: str) -> None:
    _, log, _ = await found(await packed_with_blooms(), where)
    assert stripe_requests(log) == 0


async def test_a_damaged_stripe_is_not_believed() -> None:
    store = await packed_with_blooms()
    path = f"{TABLE}/{CATALOGUE_FILE}"
    whole = await store.get(RangeRequest(path=path, byte_range=SuffixRange(1 << 30), reason="test"))
    data = bytearray(whole.data)
    stripes = parse_catalogue_index(bytes(data), path=None).stripes_range
    data[stripes.start : stripes.stop] = bytes(stripes.length_bytes)
    await store.put(path, bytes(data), overwrite=True)
    rows, log, explained = await found(store, f"id = {NEEDLE}")
    assert rows == 1
    assert len(data_requests(log)) == BLOOM_DAYS
    assert "the bloom filters in the catalogue are not used" in explained


async def test_one_partition_asks_its_own_filters() -> None:
    store = await packed_with_blooms()
    _, log, _ = await found(store, f"id = {NEEDLE} and ts >= '2024-03-06' and ts < '2024-03-07'")
    assert not any(record.reason == "bloom filters in the catalogue" for record in log)


async def test_filters_in_the_sidecars_are_not_packed_twice() -> None:
    store = QuotingStore(dict(_objects()))
    await index_table(TABLE, store=store, force=True, pages=False, pack=False)
    report = await pack_table(TABLE, store=store)
    assert (report.bloom_bytes, report.left_out_bloom_bytes) == (0, 0)
    rows, log, _ = await found(store, f"id = {NEEDLE}")
    assert rows == 1
    assert len(data_requests(log)) <= 3
