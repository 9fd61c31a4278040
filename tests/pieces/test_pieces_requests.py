"""The exact requests of pieces: nothing but GETs for data, each bound to the version that the driver has seen."""

from __future__ import annotations

from pathlib import Path

import pytest

import coldparquet as cp
from coldparquet.pieces import read as open_stores
from coldparquet.storage.base import StoreWrapper
from coldparquet.storage.open import open_store
from coldparquet.storage.requests import FetchedRange, ObjectInfo, RangeRequest
from coldparquet_testing.simulator import ColdStoreServer
from tests.support.random_tables import assert_identical
from tests.support.read_pieces import read_logged, read_pieces
from tests.support.request_logs import data_requests
from tests.support.small_tables import DAYS, ROW_GROUPS_OF_DAY, data_path, day_file, store_of_days

LATE = cp.ReadOptions(late_materialisation="always", page_index="always", bloom_filters=False, coalesce_gap_bytes=0)


class WatchedStore(StoreWrapper):
    """Remembers every call of a store."""

    gets: list[RangeRequest]
    looks: list[str]

    async def get(self, request: RangeRequest) -> FetchedRange:
        self.gets.append(request)
        return await super().get(request)

    async def info(self, path: str) -> ObjectInfo:
        self.looks.append(path)
        return await super().info(path)


async def watched_store() -> WatchedStore:
    store = WatchedStore(await store_of_days())
    store.gets, store.looks = [], []
    return store


async def test_uncut_partitions_are_requested_as_the_plan_says() -> None:
    store = await watched_store()
    async with cp.open_table("db/trades", store=store) as table:
        pieces = await table.scan(["ts", "price"]).pieces(DAYS)
    sent = [await read_logged(piece.to_bytes(), store=store) for piece in pieces]
    assert [data_requests(log) for _, log in sent] == [
        [(request.path, request.byte_range) for request in pieces.plan.requests_of(index)] for index in range(DAYS)
    ]
    assert [piece.request_count for piece in pieces] == [len(log) for _, log in sent]
    assert [piece.fetched_bytes for piece in pieces] == [sum(record.fetched_bytes for record in log) for _, log in sent]
    assert [piece.row_group_count for piece in pieces] == [ROW_GROUPS_OF_DAY] * DAYS


async def test_reasons_name_row_groups_as_the_file_numbers_them() -> None:
    store = await store_of_days()
    async with cp.open_table("db/trades", store=store) as table:
        pieces = await table.scan(["price"]).pieces(2 * DAYS)
    reasons = [record.reason for piece in pieces for record in (await read_logged(piece.to_bytes(), store=store))[1]]
    assert reasons == ["row groups 0-3: price", "row groups 4-7: price"] * DAYS
    assert "row groups 4-7: price" in pieces.pieces[1].explain()


async def test_every_get_is_bound_to_the_version_that_the_driver_has_seen() -> None:
    store = await watched_store()
    async with cp.open_table("db/trades", store=store) as table:
        pieces = await table.scan(["price"]).pieces(2 * DAYS)
    # This store has no classes, so that no HEADs are sent, but for objects that several pieces read.
    assert store.looks == [data_path(day) for day in range(DAYS)]
    etags = {data_path(day): (await store.info(data_path(day))).etag for day in range(DAYS)}
    store.gets.clear()
    for piece in pieces:
        await read_logged(piece.to_bytes(), store=store)
    assert {(request.path, request.if_match) for request in store.gets} == set(etags.items())
    assert {request.object_bytes for request in store.gets} == {len(day_file(day)) for day in range(DAYS)}


async def test_late_reading_stays_within_what_the_piece_announced() -> None:
    store = await store_of_days()
    where = "key in (77, 4711, 9000) and price > -10"
    async with cp.open_table("db/trades", store=store, options=LATE) as table:
        scan = table.scan(["payload", "list", "symbol"], where)
        pieces = await scan.pieces(4)
        assert any(request.stage == 2 for piece in pieces for request in piece.plan().requests)
        expected = await scan.to_arrow()
    assert expected.num_rows == 3
    assert_identical(await read_pieces(pieces, store=store), expected)
    fetched_bytes = 0
    for piece in pieces:
        _, log = await read_logged(piece.to_bytes(), store=store)
        second = [record for record in log if "matching row" in record.reason]
        # Pages travelled along: of the deferred columns a page or two are fetched, not a chunk.
        fetched_bytes += sum(record.fetched_bytes for record in second)
    reads = pieces.plan.row_groups
    whole = sum(read.deferred.bytes_wanted for read in reads if read.deferred is not None)
    assert 0 < fetched_bytes < whole / 20


async def test_what_metadata_proves_is_counted_without_a_request() -> None:
    store = await store_of_days()
    async with cp.open_table("db/trades", store=store) as table:
        pieces = await table.scan([], "ts < '2024-03-03' and always < 100").pieces(2)
    assert len(pieces.schema) == 0
    found = [await read_logged(piece.to_bytes(), store=store) for piece in pieces]
    assert sum(batch.num_rows for batches, _ in found for batch in batches) == 8_000
    assert [log for _, log in found] == [(), ()]


async def test_made_columns_need_no_request() -> None:
    store = await store_of_days()
    async with cp.open_table("db/trades", store=store) as table:
        scan = table.scan(["nothing", "always"])
        pieces = await scan.pieces(5)
        assert [piece.request_count for piece in pieces] == [0] * len(pieces)
        assert_identical(await read_pieces(pieces, store=store), await scan.to_arrow())


async def test_executors_send_gets_alone_to_s3(tmp_path: Path) -> None:
    for day in range(DAYS):
        file = tmp_path / "bucket" / data_path(day)
        file.parent.mkdir(parents=True)
        file.write_bytes(day_file(day))
    with ColdStoreServer(tmp_path) as server:
        url, options = "s3://bucket/db/trades", server.storage_options
        async with cp.open_table(url, storage_options=options) as table:
            pieces = await table.scan(["price"], "key < 6000").pieces(4)
        server.reset()
        rows = await read_pieces(pieces, storage_options=options)
        assert rows.num_rows == 6000
        assert {served.method for served in server.requests} == {"GET"}
        assert {served.path.rpartition("/")[2] for served in server.requests} == {"data.parquet"}
        assert {served.status for served in server.requests} == {206}
        assert len(server.requests) == sum(piece.request_count for piece in pieces)


def test_blocking_reads_share_a_store_until_it_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trades"
    for day in range(DAYS):
        (path / f"2024-03-0{day + 1}").mkdir(parents=True)
        (path / f"2024-03-0{day + 1}" / "data.parquet").write_bytes(day_file(day))
    with cp.sync.open_table(path) as table:
        pieces = table.scan(["key"]).pieces(3)
    opened: list[str] = []

    def counting(url: str, **options: object) -> object:
        opened.append(url)
        return open_store(url, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(open_stores, "open_store", counting)
    cp.pieces.close_stores()
    for piece in pieces:
        assert sum(batch.num_rows for batch in cp.pieces.read_piece_batches(piece)) == 4_000
    assert opened == [str(path)]
    half_way = cp.pieces.read_piece_batches(pieces.pieces[0], batch_rows=10)
    assert next(half_way).num_rows == 10
    del half_way
    cp.pieces.close_stores()
    cp.pieces.close_stores()
    assert open_stores.open_stores.is_empty
