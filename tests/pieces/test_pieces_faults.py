"""What may happen between the driver and an executor: objects that are replaced or vanish, and tables that go on."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import coldparquet as cp
from coldparquet.format.txn import encode_txn, parse_txn
from coldparquet.maintenance.index import index_table
from coldparquet.records import replace
from coldparquet.storage.memory import MemoryStore
from coldparquet.storage.requests import RangeRequest
from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreServer
from coldparquet_testing.stores import Failure, FaultStore
from tests.support.questdb_tables import GOLDEN, assert_same_rows, expected_rows
from tests.support.random_tables import assert_identical
from tests.support.read_pieces import read_logged, read_pieces
from tests.support.small_tables import DAYS, data_path, day_file, store_of_days
from tests.support.table_copies import change_type, copy_table


async def pieces_of_price(store: MemoryStore) -> cp.pieces.ScanPieces:
    async with cp.open_table("db/trades", store=store) as table:
        return await table.scan(["price"]).pieces(2 * DAYS)


async def test_an_object_that_was_replaced_is_noticed() -> None:
    store = await store_of_days()
    pieces = await pieces_of_price(store)
    await store.put(data_path(1), day_file(1), overwrite=True)  # the same bytes, and yet another version
    for piece, is_changed in zip(pieces, [False, False, True, True, False, False], strict=True):
        if not is_changed:
            await read_logged(piece.to_bytes(), store=store)
            continue
        with pytest.raises(cp.errors.ObjectChangedError, match="plan the read again") as caught:
            await read_logged(piece.to_bytes(), store=store)
        assert caught.value.path == data_path(1)


async def test_an_object_that_was_cut_off_is_noticed() -> None:
    store = await store_of_days()
    async with cp.open_table("db/trades", store=store) as table:
        pieces = await table.scan(["price"]).pieces(1)
    await store.put(data_path(2), day_file(2)[:-9], overwrite=True)
    with pytest.raises(cp.errors.ObjectChangedError, match="at least"):
        await read_pieces(pieces, store=store)


async def test_a_partition_that_vanished_is_named() -> None:
    store = await store_of_days()
    pieces = await pieces_of_price(store)
    await store.delete([data_path(0)])
    with pytest.raises(cp.errors.NotFoundError, match="it was deleted or replaced") as caught:
        await read_pieces(pieces, store=store)
    assert (caught.value.kind, caught.value.path) == ("PartitionMissing", data_path(0))


async def test_local_files_that_several_pieces_read_are_bound_to_one_version(tmp_path: Path) -> None:
    directory = tmp_path / "trades" / "2024-03-01"
    directory.mkdir(parents=True)
    (directory / "data.parquet").write_bytes(day_file(0))
    async with cp.open_table(tmp_path / "trades") as table:
        pieces = await table.scan(["price"]).pieces(2)
    await read_logged(pieces.pieces[0].to_bytes())
    (directory / "data.parquet").unlink()
    (directory / "data.parquet").write_bytes(day_file(0) + b"more")
    with pytest.raises(cp.errors.ObjectChangedError):
        await read_logged(pieces.pieces[1].to_bytes())


async def test_a_failed_request_fails_the_piece_and_a_retry_gives_the_same_rows() -> None:
    store = await store_of_days()
    [piece, *_] = await pieces_of_price(store)
    expected, _ = await read_logged(piece.to_bytes(), store=store)

    def fail_once(number: int, _: RangeRequest) -> Failure | None:
        refused = cp.errors.AccessError("these credentials may not read it")
        return Failure(refused) if number == 0 else None

    faulty = FaultStore(store, fail_once)
    with pytest.raises(cp.errors.AccessError, match="may not read it"):
        await read_logged(piece.to_bytes(), store=faulty)
    found, _ = await read_logged(piece.to_bytes(), store=faulty)
    assert_identical(pa.Table.from_batches(found), pa.Table.from_batches(expected))


async def test_leaving_half_way_leaves_nothing_behind() -> None:
    store = await store_of_days()
    async with cp.open_table("db/trades", store=store) as table:
        pieces = await table.scan().pieces(1)
    async with cp.pieces.read_piece(pieces.pieces[0], store=store, batch_rows=100) as batches:
        assert (await anext(aiter(batches))).num_rows == 100
    with pytest.raises(cp.errors.InvalidInputError, match="not open"):
        await batches.next_batch()
    with pytest.raises(cp.errors.InvalidInputError, match="the piece is not open"):
        _ = cp.pieces.read_piece(pieces.pieces[0], store=store).plan


async def test_options_of_an_executor_that_are_none() -> None:
    [piece, *_] = await pieces_of_price(await store_of_days())
    with pytest.raises(cp.errors.InvalidInputError, match="batch_rows is 0"):
        cp.pieces.read_piece(piece, batch_rows=0)
    with pytest.raises(cp.errors.InvalidInputError, match="must be StoreOptions"):
        cp.pieces.read_piece_batches(piece, store_options={"max_attempts": 3})  # type: ignore[arg-type]


async def test_budgets_refuse_on_the_driver() -> None:
    store = await store_of_days()
    async with cp.open_table("db/trades", store=store, options=cp.ReadOptions(max_requests=1)) as table:
        with pytest.raises(cp.errors.BudgetExceededError):
            await table.scan().pieces()


async def test_archived_data_is_refused_on_the_driver(tmp_path: Path) -> None:
    table = tmp_path / "bucket" / "db" / "trades" / "2024-03-01"
    table.mkdir(parents=True)
    (table / "data.parquet").write_bytes(day_file(0))
    await index_table(table.parent, pages=False, pack=False)
    with ColdStoreServer(tmp_path, ColdStoreOptions(storage_classes={"*/data.parquet": "GLACIER"})) as server:
        async with cp.open_table("s3://bucket/db/trades", storage_options=server.storage_options) as opened:
            with pytest.raises(cp.errors.ArchivedObjectError):
                await opened.scan().pieces()


async def test_converted_types_travel(tmp_path: Path) -> None:
    table = copy_table("interval_month", tmp_path)
    change_type(table, "price", "FLOAT")
    change_type(table, "id", "VARCHAR")
    async with cp.open_table(table) as opened:
        scan = opened.scan(where="id > '15'")
        assert_identical(await read_pieces(await scan.pieces(4)), await scan.to_arrow())


async def test_a_native_partition_that_the_database_cut_short_is_noticed(tmp_path: Path) -> None:
    name = "o3_in_place"
    snapshot = min(path.name for path in (GOLDEN / name / "expected" / "snapshots").iterdir())
    copied = copy_table(name, tmp_path, snapshot=snapshot)
    async with cp.open_table(copied) as table:
        assert any(partition.format == "native" for partition in table.partitions)
        pieces = await table.scan().pieces(3)
    assert_same_rows(await read_pieces(pieces), expected_rows(name, snapshot))
    transaction = (copied / "_txn").read_bytes()
    (copied / "_txn").unlink()  # the table was dropped
    with pytest.raises(cp.errors.ObjectChangedError, match="the database has changed this partition"):
        await read_pieces(pieces)
    parsed = parse_txn(transaction, path=None)
    (copied / "_txn").write_bytes(encode_txn(replace(parsed, txn=parsed.txn + 1)))  # it goes on
    assert_same_rows(await read_pieces(pieces), expected_rows(name, snapshot))
    (copied / "_txn").write_bytes(encode_txn(replace(parsed, txn=parsed.txn - 1)))  # put back from an older copy
    with pytest.raises(cp.errors.ObjectChangedError, match="the database has changed this partition"):
        await read_pieces(pieces)
