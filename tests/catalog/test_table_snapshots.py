"""Which state of a table is read: one transaction, whatever else lies in the directory and whatever is written later."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import coldparquet as cp
from coldparquet.catalog import table_files
from coldparquet.errors import NotFoundError, ObjectChangedError, StorageError
from coldparquet.format.partition_records import PartitionRecord
from coldparquet.format.table_metadata import encode_table_metadata, parse_table_metadata
from coldparquet.format.txn import TableTransaction, encode_txn, parse_txn
from coldparquet.maintenance.index import index_table
from coldparquet.maintenance.pack import pack_table
from coldparquet.records import replace
from coldparquet.storage.log import round_trips
from coldparquet.storage.memory import MemoryStore
from coldparquet.storage.requests import RangeRequest
from coldparquet.write.sidecar_update import SidecarChange, plan_sidecar_update
from coldparquet_testing.demo_data import write_trades
from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreServer
from coldparquet_testing.stores import Failure, FaultStore, LatencyStore
from tests.support.questdb_tables import GOLDEN, assert_same_rows, expected_rows
from tests.support.table_copies import change_record, copy_table, records_of, rewrite_txn, with_records

Change = Callable[[PartitionRecord], PartitionRecord]


SNAPSHOTS = GOLDEN / "o3_in_place" / "expected" / "snapshots"


def set_moment(table: Path, moment: str) -> None:
    for name in ("_meta", "_cv", "_txn"):
        shutil.copyfile(SNAPSHOTS / moment / name, table / name)


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "_RETRY_DELAYS_S", (0.0, 0.001, 0.001))


async def test_an_open_table_stays_at_its_transaction_until_it_is_refreshed(tmp_path: Path) -> None:
    path = copy_table("o3_in_place", tmp_path)
    set_moment(path, "0_converted")
    async with cp.open_table(path) as table:
        old_scan, old_txn = table.scan(), table.txn
        set_moment(path, "2_burst")
        old_rows = await table.scan().to_arrow()
        assert await table.refresh()
        assert table.txn is not None
        assert old_txn is not None
        assert table.txn > old_txn
        new_rows = await table.scan().to_arrow()
        assert_same_rows(new_rows, expected_rows("o3_in_place", "2_burst"))
        assert_same_rows(old_rows, expected_rows("o3_in_place", "0_converted"))
        assert_same_rows(await old_scan.to_arrow(), expected_rows("o3_in_place", "0_converted"))
        assert not await table.refresh()


async def test_refreshing_reads_only_what_changed(tmp_path: Path) -> None:
    path = copy_table("o3_in_place", tmp_path)
    await index_table(path, pages=False, pack=False)
    set_moment(path, "0_converted")
    async with cp.open_table(path) as table:
        await table.scan().plan()
        set_moment(path, "1_one_late_row")
        before = len(table.request_log)
        await table.refresh()
        refreshed = [record.path.removeprefix(f"{path}/") for record in table.request_log[before:]]
        assert sorted(refreshed) == sorted([str(path), "_txn", "_meta", "_cv"])
        before = len(table.request_log)
        await table.scan(["price"], "ts < '2024-01-03'").plan()
        changed = {record.path.split("/")[-2] for record in table.request_log[before:]}
        assert changed == {"2024-01-01.2"}  # the only partition that the late row fell into


async def test_the_sidecar_footer_of_the_transaction_is_read_not_the_newest(tmp_path: Path) -> None:
    path = copy_table("o3_in_place", tmp_path)
    set_moment(path, "1_one_late_row")
    await index_table(path, pages=False, pack=False)  # sidecars of the committed size, although the files are longer
    async with cp.open_table(path) as table:
        plan = await table.scan().plan()
        assert [partition.metadata_source for partition in plan.partitions] == ["sidecar", "sidecar", "native"]
        sizes = [partition.parquet_size_bytes for partition in plan.partitions[:2]]
        files = [(path / name / "data.parquet").stat().st_size for name in ("2024-01-01.2", "2024-01-02.1")]
        assert all(size is not None and size <= file for size, file in zip(sizes, files, strict=True))
        assert sizes != files


async def test_a_sidecar_of_another_state_is_passed_over_and_explain_says_so(tmp_path: Path) -> None:
    path = copy_table("o3_in_place", tmp_path)
    set_moment(path, "0_converted")
    await index_table(path, pages=False, pack=False)
    set_moment(path, "2_burst")
    async with cp.open_table(path) as table:
        explained = (await table.scan().plan()).explain()
        assert "its sidecar is of another state, so the footer was read" in explained
        assert "migrate --force" in explained
        assert_same_rows(await table.scan().to_arrow(), expected_rows("o3_in_place", "2_burst"))


async def test_other_directories_are_not_read_and_explain_names_them(tmp_path: Path) -> None:
    path = copy_table("interval_day", tmp_path)
    async with cp.open_table(path) as table:
        names = [partition.name for partition in table.partitions]
    first = path / names[0]
    base_name = names[0].partition(".")[0]
    for other in (f"{base_name}.99", f"{base_name}.detached", "2031-01-01.attachable"):
        shutil.copytree(first, path / other)
    async with cp.open_table(path) as table:
        assert [partition.name for partition in table.partitions] == names
        plan = await table.scan().plan()
        explained = plan.explain()
        assert f"transaction {table.txn} of _txn" in explained
        assert f"_txn does not name them: {base_name}.99" in explained
        assert f"detached or not attached yet: {base_name}.detached, 2031-01-01.attachable" in explained
        assert plan.as_dict()["snapshot"] == plan.snapshot
        assert_same_rows(await table.scan().to_arrow(), expected_rows("interval_day"))


async def test_without_a_transaction_file_the_listing_decides_and_explain_says_so(tmp_path: Path) -> None:
    path = copy_table("interval_month", tmp_path)
    (path / "_txn").unlink()
    async with cp.open_table(path) as table:
        assert table.txn is None
        assert "directory listing, because there is no _txn" in (await table.scan().plan()).explain()
        assert_same_rows(await table.scan().to_arrow(), expected_rows("interval_month"))


async def test_a_partition_that_was_attached_again_is_no_table_of_its_own(tmp_path: Path) -> None:
    path = copy_table("interval_month", tmp_path)
    async with cp.open_table(path) as table:
        first = table.partitions[0]
        expected_count = first.rows
    directory = path / first.name
    for name in ("_txn", "_meta", "_cv"):  # such a directory keeps the files of the moment of detaching
        shutil.copyfile(path / name, directory / name)
    async with cp.open_table(directory) as table:
        assert len(table.partitions) == 1
        assert await table.scan().count() == expected_count


async def test_a_purged_partition_is_an_error_not_a_gap(tmp_path: Path) -> None:
    path = copy_table("o3_rewrite", tmp_path)
    async with cp.open_table(path) as table:
        shutil.rmtree(path / table.partitions[0].name)
        with pytest.raises(cp.errors.NotFoundError, match="refresh it") as caught:
            await table.scan().to_arrow()
        assert caught.value.kind == "PartitionMissing"


async def test_rows_that_do_not_fit_the_transaction_are_refused(tmp_path: Path) -> None:
    path = copy_table("interval_month", tmp_path)
    change_record(path, more_rows)
    async with cp.open_table(path) as table:
        with pytest.raises(cp.errors.FormatError, match="rows, the table's _txn") as caught:
            await table.scan().to_arrow()
        assert caught.value.kind == "RowCountMismatch"


def files_below(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


async def stored(path: Path) -> MemoryStore:
    store = MemoryStore()
    for name, data in files_below(path).items():
        await store.put(f"b/{name}", data, overwrite=False)
    return store


@pytest.mark.parametrize(("denied", "is_read"), [(1, True), (9, False)])
async def test_a_listed_transaction_file_is_not_taken_for_absent(tmp_path: Path, denied: int, is_read: bool) -> None:
    """Read as a mere directory of Parquet partitions, the table would lose its native ones."""
    left = [denied]

    def deny(_number: int, request: RangeRequest) -> Failure | None:
        if not request.path.endswith("/_txn") or left[0] == 0:
            return None
        left[0] -= 1
        return Failure(NotFoundError("there is no such object"))

    store = FaultStore(await stored(copy_table("o3_in_place", tmp_path)), deny)
    if is_read:
        async with cp.open_table("b", store=store) as table:
            assert table.txn is not None
    else:
        with pytest.raises(StorageError, match="lists a _txn") as caught:
            await cp.open_table("b", store=store)
        assert caught.value.kind == "ContradictoryStore"


async def test_columns_of_another_version_are_taken_from_the_copy_that_a_publisher_left(tmp_path: Path) -> None:
    path = copy_table("interval_month", tmp_path)
    store = await stored(path)
    metadata = parse_table_metadata((path / "_meta").read_bytes(), path=None)
    newer = encode_table_metadata(replace(metadata, metadata_version=metadata.metadata_version + 1))
    await store.put("b/_meta", newer, overwrite=True)  # as a publisher does before it writes the new _txn
    with pytest.raises(cp.errors.StorageError, match="kept contradicting each other") as caught:
        await cp.open_table("b", store=store)
    assert caught.value.kind == "TableBusy"
    await store.put(f"b/_meta.v{metadata.metadata_version}", (path / "_meta").read_bytes(), overwrite=False)
    async with cp.open_table("b", store=store) as table:
        assert_same_rows(await table.scan().to_arrow(), expected_rows("interval_month"))


async def test_a_table_without_its_columns_says_what_is_missing(tmp_path: Path) -> None:
    path = copy_table("interval_month", tmp_path)
    (path / "_meta").unlink()
    with pytest.raises(cp.errors.NotFoundError, match="no _meta, without which") as caught:
        await cp.open_table(path)
    assert caught.value.kind == "IncompleteTable"


async def test_another_number_of_symbol_columns_in_both_files_is_an_error(tmp_path: Path) -> None:
    path = copy_table("types_all", tmp_path)
    transaction = parse_txn((path / "_txn").read_bytes(), path=None)
    (path / "_txn").write_bytes(encode_txn(replace(transaction, symbol_counts=())))
    with pytest.raises(cp.errors.FormatError, match="_txn counts the symbols of 0 columns, _meta has 1 of") as caught:
        await cp.open_table(path)
    assert caught.value.path == f"{path}/_txn"


@pytest.mark.parametrize("name", ["_txn", "_meta", "_cv"])
async def test_a_table_file_of_absurd_size_is_not_read(tmp_path: Path, name: str) -> None:
    path = copy_table("types_all", tmp_path)
    (path / name).chmod(0o644)
    os.truncate(path / name, 1 << 40)  # sparse: takes no room on the disk
    with pytest.raises(cp.errors.FormatError, match=f"{name}: the object has .* never more than") as caught:
        await cp.open_table(path)
    assert (caught.value.kind, caught.value.path) == ("TooLarge", f"{path}/{name}")


@pytest.mark.parametrize("kept_bytes", [0, 1, 63, 64, 100, 200])
async def test_a_cut_off_transaction_file_is_an_error(tmp_path: Path, kept_bytes: int) -> None:
    path = copy_table("interval_month", tmp_path)
    (path / "_txn").write_bytes((path / "_txn").read_bytes()[:kept_bytes])
    with pytest.raises(cp.errors.FormatError) as caught:
        await cp.open_table(path)
    assert caught.value.path == f"{path}/_txn"


DAY_US = 86_400_000_000


async def table_of_many_days(path: Path, days: int) -> MemoryStore:
    """Make a table of which only the partition of the day 100 has files; a plan must look at no other."""
    transaction = parse_txn((path / "_txn").read_bytes(), path=None)
    metadata = parse_table_metadata((path / "_meta").read_bytes(), path=None)
    first = transaction.partitions.record(0)
    records = [replace(first, timestamp=first.timestamp + (day - 100) * DAY_US) for day in range(days)]
    many = with_records(
        transaction,
        records,
        min_timestamp=records[0].timestamp,
        max_timestamp=records[-1].timestamp + DAY_US - 1,
    )
    store = MemoryStore()
    await store.put("b/_txn", encode_txn(many), overwrite=False)
    await store.put("b/_meta", encode_table_metadata(metadata), overwrite=False)
    async with cp.open_table(path) as table:
        directory = path / table.partitions[0].name
    for name, data in files_below(directory).items():
        await store.put(f"b/{directory.name}/{name}", data, overwrite=False)
    return store


@pytest.mark.parametrize(
    ("wanted_us", "read"),
    [
        (DAY_US, ["_pm"]),  # all of its rows, as the times of the day prove: there is nothing for `_pages` to leave out
        (DAY_US // 2, ["_pm", "_pages"]),
    ],
)
async def test_opening_3650_days_is_one_round_trip_and_only_the_wanted_sidecar_is_read(
    tmp_path: Path, wanted_us: int, read: list[str]
) -> None:
    path = copy_table("interval_day", tmp_path)
    await index_table(path, pages=False, pack=False)
    store = await table_of_many_days(path, 3650)
    async with cp.open_table("b", store=LatencyStore(store, first_byte_s=0.02)) as table:
        assert len(table.partitions) == 3650
        opened = table.request_log
        assert sorted(record.path for record in opened) == ["b", "b/_catalogue", "b/_meta", "b/_txn"]
        found = [record for record in opened if record.status == "ok"]  # LatencyStore tells at once what is absent
        assert round_trips([(record.started_s, record.finished_s) for record in found]) == 1
        day = table.partitions[100]
        assert day.time_range_ns is not None
        begin_us = day.time_range_ns[0] // 1000
        plan = await table.scan(["price"], (cp.col("ts") >= begin_us) & (cp.col("ts") < begin_us + wanted_us)).plan()
        assert [partition.name for partition in plan.partitions] == [day.name]
        assert [record.path for record in table.request_log[len(opened) :]] == [f"b/{day.name}/{name}" for name in read]


@pytest.mark.parametrize("linked", ["partition", "data.parquet", "_txn"])
async def test_links_that_lead_out_of_the_table_are_not_followed_unless_asked(tmp_path: Path, linked: str) -> None:
    path = copy_table("interval_month", tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    async with cp.open_table(path) as table:
        first = path / table.partitions[0].name
    inside = {"partition": first, "data.parquet": first / "data.parquet", "_txn": path / "_txn"}[linked]
    inside.symlink_to(shutil.move(inside, elsewhere / inside.name))
    with pytest.raises(cp.errors.AccessError, match="a symbolic link leads out of") as caught:
        async with cp.open_table(path) as table:
            await table.scan().to_arrow()
    assert caught.value.kind == "LinkLeadsOutside"
    async with cp.open_table(path, storage_options={"follow_links": True}) as table:
        assert_same_rows(await table.scan().to_arrow(), expected_rows("interval_month"))
    (tmp_path / "link").symlink_to(path)  # the link that a person names is their own choice
    if linked == "partition":
        inside.unlink()
        shutil.move(elsewhere / inside.name, inside)
        async with cp.open_table(tmp_path / "link") as table:
            assert_same_rows(await table.scan().to_arrow(), expected_rows("interval_month"))


@pytest.mark.parametrize("index", [0, -1])
async def test_partitions_that_a_newer_questdb_marked_are_refused(tmp_path: Path, index: int) -> None:
    path = copy_table("interval_day", tmp_path)
    change_record(path, lambda record: replace(record, unknown_flags=1 << 61), index=index)
    async with cp.open_table(path) as table:
        with pytest.raises(cp.errors.UnsupportedError, match="may not be all of it") as caught:
            await table.scan().to_arrow()
        assert caught.value.kind == "UnknownPartitionFlags"


async def test_a_sidecar_that_grows_without_new_rows_changes_nothing(tmp_path: Path) -> None:
    path = copy_table("interval_month", tmp_path)
    await index_table(path, pages=False, pack=False)
    async with cp.open_table(path) as table:
        first = table.partitions[0]
        before = await first.metadata()
        file = path / first.name / "_pm"
        update = plan_sidecar_update(file.read_bytes(), before.sidecar, SidecarChange(seq_txn=41))
        file.write_bytes(update.applied_to(file.read_bytes()))
        assert_same_rows(await table.scan().to_arrow(), expected_rows("interval_month"))
        assert not await table.refresh()
        assert (await table.partitions[0].metadata()).sidecar is before.sidecar
    async with cp.open_table(path) as table:
        newest = (await table.partitions[0].metadata()).sidecar
        assert (newest.footer.seq_txn, before.sidecar.footer.seq_txn) == (41, None)
        assert newest.parquet_size_bytes == before.sidecar.parquet_size_bytes
        assert_same_rows(await table.scan().to_arrow(), expected_rows("interval_month"))


# --- Native rows that a running QuestDB may have written over since a table was opened are never returned -------------


TABLE = "interval_day"
"""Four partitions in Parquet, and a native one that was written to last."""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return copy_table(TABLE, tmp_path)


def commit(table: Path, change: Change, **fields: int) -> None:
    """Commit another transaction, which says something else of the native partition."""

    def following(transaction: TableTransaction) -> TableTransaction:
        *others, last = records_of(transaction)
        return with_records(transaction, [*others, change(last)], txn=transaction.txn + 1, **fields)

    rewrite_txn(table, following)


def nothing(record: PartitionRecord) -> PartitionRecord:
    return record


def more_rows(record: PartitionRecord) -> PartitionRecord:
    return replace(record, row_count=record.row_count + 5)


def fewer_rows(record: PartitionRecord) -> PartitionRecord:
    return replace(record, row_count=record.row_count - 1)


def joined_pieces(record: PartitionRecord) -> PartitionRecord:
    return replace(record, row_count=record.row_count + 5, squash_count=record.squash_count + 1)


def another_version(record: PartitionRecord) -> PartitionRecord:
    return replace(record, name_txn=record.name_txn + 7)


@pytest.mark.parametrize("change", [nothing, more_rows])
async def test_appended_rows_leave_the_old_ones_where_they_are(table: Path, change: Change) -> None:
    async with cp.open_table(table) as opened:
        commit(table, change)
        assert_same_rows(await opened.scan().to_arrow(), expected_rows(TABLE))


@pytest.mark.parametrize(
    ("change", "fields"),
    [(fewer_rows, {}), (joined_pieces, {}), (another_version, {}), (nothing, {"truncate_version": 99})],
)
async def test_rows_that_may_have_been_written_over_are_refused(
    table: Path, change: Change, fields: dict[str, int]
) -> None:
    async with cp.open_table(table) as opened:
        commit(table, change, **fields)
        with pytest.raises(ObjectChangedError, match="refresh the table"):
            await opened.scan().to_arrow()


@pytest.mark.parametrize("txn_step", [0, 2, -2])
async def test_rows_of_a_table_that_was_dropped_and_made_anew_are_refused(table: Path, txn_step: int) -> None:
    metadata = parse_table_metadata((table / "_meta").read_bytes(), path=None)
    transaction = parse_txn((table / "_txn").read_bytes(), path=None)
    async with cp.open_table(table) as opened:
        await opened.scan(["price"]).plan()
        first = opened.partitions[0]
        (table / "_txn").unlink()
        with pytest.raises(ObjectChangedError, match="refresh the table"):
            await opened.scan(["price"], "ts >= '2024-03-02'").to_arrow()
        (table / "_meta").write_bytes(encode_table_metadata(replace(metadata, table_id=metadata.table_id + 1)))
        (table / "new").write_bytes(encode_txn(replace(transaction, txn=transaction.txn + txn_step)))
        shutil.move(table / "new", table / "_txn")
        with pytest.raises(ObjectChangedError, match="refresh the table"):
            await opened.scan(["price"], "ts >= '2024-03-02'").to_arrow()
        assert await opened.refresh()
        assert opened.partitions[0] is not first  # what is known of it may be of other rows
        assert_same_rows(await opened.scan().to_arrow(), expected_rows(TABLE))


async def test_partitions_in_parquet_are_not_affected(table: Path) -> None:
    async with cp.open_table(table) as opened:
        commit(table, joined_pieces)
        native_day = opened.partitions[-1].name[:10]
        rows = await opened.scan(where=f"ts < '{native_day}'").to_arrow()
        assert_same_rows(rows, expected_rows(TABLE).slice(0, rows.num_rows))
        assert rows.num_rows > 0


# --- Listings that are not up to date: right rows, or an error that says what helps, and then it helps ----------------


DAYS = 14
"""So many that one listing is in place of a HEAD for each."""
URL = "s3://bucket/trades"


def replace_data(table: Path, day: int) -> str:
    """Give one day's data another ETag; return its path in the store."""
    directory = sorted(path for path in table.iterdir() if path.is_dir())[day]
    data = directory / "data.parquet"
    content = data.read_bytes()
    data.unlink()
    data.write_bytes(content)
    os.utime(data, (1, 1))
    return f"bucket/trades/{directory.name}/data.parquet"


@pytest.mark.parametrize("is_packed", [False, True])
async def test_a_refreshed_table_asks_for_what_an_old_listing_got_wrong(tmp_path: Path, *, is_packed: bool) -> None:
    table_path = tmp_path / "bucket" / "trades"
    write_trades(table_path, days=DAYS, on_day=lambda: None)
    await index_table(table_path, pages=False, pack=False)
    if is_packed:
        with ColdStoreServer(tmp_path) as server:
            await pack_table(URL, storage_options=server.storage_options)
    with ColdStoreServer(tmp_path, ColdStoreOptions(stale_listing_s=3600)) as server:
        async with cp.open_table(URL, storage_options=server.storage_options) as table:
            rows = await table.scan(["price"]).to_arrow()
        replaced = replace_data(table_path, 1)
        async with cp.open_table(URL, storage_options=server.storage_options) as table:
            with pytest.raises(ObjectChangedError, match=r"a listing that is not up to date.*refresh the table"):
                await table.scan(["price", "symbol"]).to_arrow()
            for _ in range(2):
                await table.refresh()
                server.reset()
                assert (await table.scan(["price"]).to_arrow()).equals(rows)
                heads = [request.path for request in server.requests if request.method == "HEAD"]
                assert heads == [replaced], "only the object of which the listing is wrong costs a request"
