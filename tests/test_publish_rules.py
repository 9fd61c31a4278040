"""What may be published where, what happens to partitions that the source has dropped, and what a purge removes."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import fsspec
import pytest

from coldparquet.errors import FormatError, InvalidInputError, NotFoundError, ObjectChangedError, UnsupportedError
from coldparquet.format.partition_records import PartitionRecords
from coldparquet.format.table_metadata import parse_table_metadata
from coldparquet.format.table_metadata_writer import encode_table_metadata
from coldparquet.format.txn import parse_txn
from coldparquet.format.txn_writer import encode_txn, replace_partitions
from coldparquet.publish import PublishOptions, publish_table
from coldparquet.publish.objects import read_whole
from coldparquet.publish.published import Manifest, manifest_name, parse_manifest
from coldparquet.storage.fsspec_store import FsspecStore
from coldparquet.storage.local import LocalStore
from coldparquet.storage.memory import MemoryStore
from tests.support.published_tables import SNAPSHOTS, TABLE, expected_parquet_rows, put_in_state, read_rows
from tests.support.questdb_tables import GOLDEN, assert_same_rows
from tests.support.table_copies import copy_table

if TYPE_CHECKING:
    from pathlib import Path

PATH = "bucket/t"
PURGE_ALL = PublishOptions(purge=True, purge_after_s=0)


def drop_first_partitions(table: Path, count: int) -> None:
    """Drop partitions, as DROP PARTITION or a TTL does."""
    transaction = parse_txn((table / "_txn").read_bytes(), path=None)
    records = [transaction.partitions.record(index) for index in range(count, len(transaction.partitions))]
    following = replace_partitions(
        transaction,
        PartitionRecords.of(records),
        min_timestamp=records[0].timestamp,
        max_timestamp=transaction.max_timestamp,
    )
    (table / "_txn").write_bytes(encode_txn(following))


async def directories(store: MemoryStore) -> list[str]:
    return [path.rpartition("/")[2] for path in (await store.list(PATH)).directories]


async def test_another_table_is_not_overwritten(tmp_path: Path) -> None:
    store = MemoryStore()
    await publish_table(copy_table(TABLE, tmp_path), PATH, store=store)
    with pytest.raises(InvalidInputError, match="another table") as caught:
        await publish_table(GOLDEN / "interval_day" / "table", PATH, store=store)
    assert caught.value.kind == "OtherTable"
    other = copy_table(TABLE, tmp_path / "recreated")
    metadata = parse_table_metadata((other / "_meta").read_bytes(), path=None)
    (other / "_meta").write_bytes(encode_table_metadata(replace(metadata, table_id=metadata.table_id + 1)))
    with pytest.raises(InvalidInputError, match="another table"):
        await publish_table(other, PATH, store=store)
    assert_same_rows(await read_rows(store, PATH), expected_parquet_rows(None))


async def test_an_older_copy_is_refused(tmp_path: Path) -> None:
    table, store = copy_table(TABLE, tmp_path), MemoryStore()
    await publish_table(table, PATH, store=store)
    put_in_state(table, "0_converted")
    with pytest.raises(InvalidInputError, match="older copy") as caught:
        await publish_table(table, PATH, store=store)
    assert caught.value.kind == "SourceIsOlder"


async def test_dropped_partitions_are_kept_or_removed_as_told(tmp_path: Path) -> None:
    table, store = copy_table("interval_day", tmp_path), MemoryStore()
    first = await publish_table(table, PATH, store=store)
    everything = await read_rows(store, PATH)
    drop_first_partitions(table, 2)
    with pytest.raises(InvalidInputError, match=r"2024-02-2.*--dropped keep.*--dropped remove") as caught:
        await publish_table(table, PATH, store=store)
    assert caught.value.kind == "PartitionsDropped"

    kept = await publish_table(table, PATH, store=store, options=PublishOptions(dropped="keep"))
    assert (kept.count("kept"), kept.count("unchanged"), kept.rows) == (2, 2, first.rows)
    assert (await read_rows(store, PATH)).equals(everything)
    published = parse_txn((await read_whole(store, f"{PATH}/_txn")).data, path=None)
    times = everything.column("ts").combine_chunks()
    assert (published.min_timestamp, published.max_timestamp) == (times[0].value, times[-1].value)

    removed = await publish_table(table, PATH, store=store, options=PublishOptions(dropped="remove"))
    assert (removed.count("removed"), removed.count("unchanged")) == (2, 2)
    rows = await read_rows(store, PATH)
    assert rows.equals(everything.slice(everything.num_rows - rows.num_rows))
    assert rows.num_rows == removed.rows < first.rows


async def test_a_partition_converted_back_stays_behind(tmp_path: Path) -> None:
    table, store = copy_table("interval_day", tmp_path), MemoryStore()
    before = await publish_table(table, PATH, store=store)
    transaction = parse_txn((table / "_txn").read_bytes(), path=None)
    records = [transaction.partitions.record(index) for index in range(len(transaction.partitions))]
    records[1] = replace(records[1], is_parquet=False, parquet_size=-1)
    native = replace(transaction, txn=transaction.txn + 1, partitions=PartitionRecords.of(records))
    (table / "_txn").write_bytes(encode_txn(native))
    report = await publish_table(table, PATH, store=store)
    assert (report.count("removed"), report.count("left behind")) == (1, 2)
    assert report.rows == before.rows - records[1].row_count
    assert (await read_rows(store, PATH)).num_rows == report.rows


async def test_a_deleted_partition_is_published_once_more(tmp_path: Path) -> None:
    table, store = copy_table(TABLE, tmp_path), MemoryStore()
    await publish_table(table, PATH, store=store)
    await store.delete([f"{PATH}/2024-01-01.2/data.parquet", f"{PATH}/2024-01-01.2/_pm"])
    report = await publish_table(table, PATH, store=store)
    assert (report.count("published"), report.count("unchanged"), report.is_committed) == (1, 1, False)
    assert_same_rows(await read_rows(store, PATH), expected_parquet_rows(None))


async def test_other_contents_under_all_names_are_an_error(tmp_path: Path) -> None:
    table = copy_table(TABLE, tmp_path)
    store = MemoryStore({f"{PATH}/2024-01-01.{version}/data.parquet": b"else" for version in (2, 7)})
    with pytest.raises(InvalidInputError, match="other contents") as caught:
        await publish_table(table, PATH, store=store)
    assert caught.value.kind == "AlreadyExists"


async def test_other_contents_under_the_source_name_are_avoided(tmp_path: Path) -> None:
    table = copy_table(TABLE, tmp_path)
    store = MemoryStore({f"{PATH}/2024-01-01.2/data.parquet": b"else", f"{PATH}/2024-01-01.2/_pm": b"else"})
    report = await publish_table(table, PATH, store=store)
    assert [partition.published_name for partition in report.partitions[:2]] == ["2024-01-01.7", "2024-01-02.1"]
    again = await publish_table(table, PATH, store=store)
    assert (again.count("unchanged"), again.cost.write_count) == (2, 0)


async def test_a_table_that_was_copied_by_hand_is_taken_over(tmp_path: Path) -> None:
    table = copy_table(TABLE, tmp_path, snapshot="0_converted")
    for name, size in (("2024-01-01.2", 47313), ("2024-01-02.1", 46634)):
        os.truncate(table / name / "data.parquet", size)
    files = {f"{PATH}/{path.relative_to(table)}": path.read_bytes() for path in table.rglob("*") if path.is_file()}
    store = MemoryStore(files)
    live = copy_table(TABLE, tmp_path / "live")
    report = await publish_table(live, PATH, store=store)
    assert [partition.published_name for partition in report.partitions[:2]] == ["2024-01-01.7", "2024-01-02.7"]
    assert_same_rows(await read_rows(store, PATH), expected_parquet_rows(None))


async def test_purge_removes_only_what_was_replaced_long_enough_ago(tmp_path: Path) -> None:
    table, store = copy_table(TABLE, tmp_path, snapshot="0_converted"), MemoryStore()
    for snapshot in SNAPSHOTS[:3]:
        put_in_state(table, snapshot)
        await publish_table(table, PATH, store=store)
    all_versions = ["2024-01-01.2", "2024-01-01.4", "2024-01-02.1", "2024-01-02.5"]
    assert await directories(store) == all_versions
    report = await publish_table(table, PATH, store=store, options=PublishOptions(purge=True))
    assert (report.purged, await directories(store)) == ((), all_versions)
    planned = await publish_table(table, PATH, store=store, options=replace(PURGE_ALL, dry_run=True))
    assert await directories(store) == all_versions
    report = await publish_table(table, PATH, store=store, options=PURGE_ALL)
    assert report.purged == planned.purged
    assert [name for name in report.purged if not name.startswith("_")] == ["2024-01-01.2", "2024-01-02.1"]
    assert [name for name in report.purged if name.startswith("_published.v3-")]
    assert await directories(store) == ["2024-01-01.4", "2024-01-02.5"]
    assert_same_rows(await read_rows(store, PATH), expected_parquet_rows("2_burst"))


async def test_purge_removes_leftovers_but_nothing_that_is_not_ours(tmp_path: Path) -> None:
    table, store = copy_table(TABLE, tmp_path), MemoryStore()
    theirs = ["2024-01-01.detached", "notes", "2024-01-01T07.3"]
    for name in (*theirs, "2024-01-01.99"):
        await store.put(f"{PATH}/{name}/data.parquet", b"x", overwrite=False)
    await publish_table(table, PATH, store=store, options=PURGE_ALL)
    left = set(await directories(store))
    assert {"2024-01-01.detached", "notes", "2024-01-01.2", "2024-01-02.1"} <= left
    assert "2024-01-01.99" not in left


async def test_purge_keeps_what_a_recent_version_names(tmp_path: Path) -> None:
    table, target = copy_table(TABLE, tmp_path, snapshot="0_converted"), tmp_path / "published"
    await publish_table(table, target)
    put_in_state(table, "1_one_late_row")
    await publish_table(table, target)
    now_s = time.time()
    old = [path for path in target.rglob("*") if path.is_file() and path.name != "_txn"]
    for path in old:
        os.utime(path, (now_s - 10_000, now_s - 10_000))
    options = PublishOptions(purge=True, purge_after_s=5_000)
    assert (await publish_table(table, target, options=options)).purged == ()  # replaced just now, by _txn's time
    os.utime(target / "_txn", (now_s - 9_000, now_s - 9_000))
    report = await publish_table(table, target, options=options)
    assert "2024-01-01.2" in report.purged
    assert not (target / "2024-01-01.2").exists()
    assert_same_rows(await read_rows(LocalStore(), str(target)), expected_parquet_rows("1_one_late_row"))


async def test_local_destination(tmp_path: Path) -> None:
    table, target = copy_table(TABLE, tmp_path, snapshot="0_converted"), tmp_path / "backup" / "t"
    for snapshot in SNAPSHOTS:
        put_in_state(table, snapshot)
        report = await publish_table(table, target)
        assert report.notes == ()
        assert_same_rows(await read_rows(LocalStore(), str(target)), expected_parquet_rows(snapshot))
    assert not list(target.rglob("*.tmp"))


async def test_a_store_without_versions_is_protected_less_and_says_so(tmp_path: Path) -> None:
    table = copy_table(TABLE, tmp_path, snapshot="0_converted")
    store = FsspecStore(fsspec.filesystem("memory", skip_instance_cache=True), label="memory")
    path = f"/publish-{tmp_path.name}"
    for snapshot in SNAPSHOTS:
        put_in_state(table, snapshot)
        report = await publish_table(table, path, store=store)
        assert_same_rows(await read_rows(store, path), expected_parquet_rows(snapshot))
    assert "no versions" in report.notes[0]
    assert (await publish_table(table, path, store=store)).cost.write_count == 0
    with pytest.raises(UnsupportedError) as caught:
        await publish_table(table, path, store=store, options=PURGE_ALL)
    assert caught.value.kind == "NoTimes"


async def test_a_commit_in_between_is_noticed_without_versions_too(tmp_path: Path) -> None:
    table = copy_table(TABLE, tmp_path, snapshot="0_converted")
    path = f"/between-{tmp_path.name}"

    class Interrupted(FsspecStore):
        is_armed = False

        async def put(self, path: str, data: bytes, **options: object) -> None:
            if self.is_armed and path.endswith("_pm"):
                self.is_armed = False
                put_in_state(table, "2_burst")
                await publish_table(table, path.rsplit("/", 2)[0], store=self)
            await super().put(path, data, **options)  # type: ignore[arg-type]

    store = Interrupted(fsspec.filesystem("memory", skip_instance_cache=True), label="memory")
    await publish_table(table, path, store=store)
    put_in_state(table, "1_one_late_row")
    store.is_armed = True
    with pytest.raises(ObjectChangedError) as caught:
        await publish_table(table, path, store=store)
    assert caught.value.kind == "PublisherConflict"
    assert_same_rows(await read_rows(store, path), expected_parquet_rows("2_burst"))


async def test_readers_of_an_unfinished_first_run_are_told(tmp_path: Path) -> None:
    table, store = copy_table(TABLE, tmp_path), MemoryStore()
    await publish_table(table, PATH, store=store)
    await store.put(f"{PATH}/_publishing", b"", overwrite=False)
    await store.delete([f"{PATH}/_txn"])
    with pytest.raises(NotFoundError, match="being published") as caught:
        await read_rows(store, PATH)
    assert caught.value.kind == "NotPublishedYet"
    await publish_table(table, PATH, store=store)
    with pytest.raises(NotFoundError):
        await store.info(f"{PATH}/_publishing")
    assert_same_rows(await read_rows(store, PATH), expected_parquet_rows(None))


def test_manifest_makes_the_round_trip() -> None:
    manifest = Manifest(
        directories=frozenset({"2024-01-01", "2024-01-02.7"}),
        metadata_version=3,
        column_version=4,
        source_name_txns={"2024-01-02.7": -1},
        previous=manifest_name(6, b"txn"),
    )
    assert parse_manifest(manifest.encode(), path="x") == manifest


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b'{"format": 2}', b"null", b"\xff", b"[" * 100_000])
def test_damaged_manifests_are_format_errors(data: bytes) -> None:
    with pytest.raises(FormatError) as caught:
        parse_manifest(data, path="bucket/t/_published.v1-00000000")
    assert caught.value.path == "bucket/t/_published.v1-00000000"
