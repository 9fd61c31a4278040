"""What may be published where, what happens to partitions that the source has dropped, and what a purge removes."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from pathlib import Path

import fsspec
import pytest

import coldparquet as cp
from coldparquet.catalog.discovery import PUBLISHING_FILE
from coldparquet.errors import FormatError, InvalidInputError, NotFoundError, ObjectChangedError, UnsupportedError
from coldparquet.format.partition_records import PartitionRecords
from coldparquet.format.table_metadata import encode_table_metadata, parse_table_metadata
from coldparquet.format.txn import TableTransaction, parse_txn, replace_partitions
from coldparquet.maintenance.pack import pack_table
from coldparquet.maintenance.verify import verify_table
from coldparquet.publish import PublishOptions, publish_table
from coldparquet.publish.destination import Manifest, manifest_name, parse_manifest
from coldparquet.records import replace
from coldparquet.storage.checked import read_whole
from coldparquet.storage.fsspec_store import FsspecStore
from coldparquet.storage.local import LocalStore
from coldparquet.storage.memory import MemoryStore
from tests.support.questdb_tables import GOLDEN, assert_same_rows
from tests.support.table_copies import (
    NATIVE,
    SNAPSHOTS,
    TABLE,
    change_record,
    contents_of,
    copy_table,
    expected_published_rows,
    put_in_state,
    read_rows,
    records_of,
    rewrite_txn,
)

PATH = "bucket/t"
PURGE_ALL = PublishOptions(purge=True, purge_after_s=0)


def drop_first_partitions(table: Path, count: int) -> None:
    """Drop partitions, as DROP PARTITION or a TTL does."""

    def following(transaction: TableTransaction) -> TableTransaction:
        records, last = records_of(transaction)[count:], transaction.max_timestamp
        first = records[0].timestamp
        return replace_partitions(transaction, PartitionRecords.of(records), min_timestamp=first, max_timestamp=last)

    rewrite_txn(table, following)


def truncate(table: Path) -> None:
    """Empty a table, as TRUNCATE does."""
    empty = PartitionRecords.of([])
    rewrite_txn(table, lambda txn: replace_partitions(txn, empty, min_timestamp=None, max_timestamp=None))
    for path in list(table.iterdir()):
        if path.is_dir():
            shutil.rmtree(path)


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
    assert_same_rows(await read_rows(store, PATH), expected_published_rows(None))


@pytest.mark.parametrize("options", [PublishOptions(), PublishOptions(native="leave"), PublishOptions(pack=True)])
async def test_a_truncated_table_empties_its_copy_if_that_is_said(tmp_path: Path, options: PublishOptions) -> None:
    table, store = copy_table(TABLE, tmp_path), MemoryStore()
    await publish_table(table, PATH, store=store, options=options)
    rows = await read_rows(store, PATH)
    await pack_table(PATH, store=store, parquet_metadata=True)
    truncate(table)
    with pytest.raises(
        InvalidInputError, match=r"no rows any more.*TRUNCATE.*--dropped keep.*--dropped remove"
    ) as caught:
        await publish_table(table, PATH, store=store, options=options)
    assert caught.value.kind == "PartitionsDropped"
    kept = await publish_table(table, PATH, store=store, options=replace(options, dropped="keep"))
    assert (kept.count("kept"), kept.rows) == (len(kept.partitions), rows.num_rows)
    assert (await read_rows(store, PATH)).equals(rows)

    remove = replace(options, dropped="remove")
    planned = await publish_table(table, PATH, store=store, options=replace(remove, dry_run=True))
    assert planned.count("removed") == len(planned.partitions) == kept.count("kept")
    emptied = await publish_table(table, PATH, store=store, options=remove)
    assert (emptied.is_committed, emptied.rows, emptied.count("removed")) == (True, 0, kept.count("kept"))
    with pytest.raises(NotFoundError):
        await store.info(f"{PATH}/_metadata")  # it describes rows that are gone
    async with cp.open_table(PATH, store=store) as opened:
        assert opened.partitions == ()
        assert (await opened.scan().to_arrow()).num_rows == await opened.scan().count() == 0
        assert opened.schema.names == rows.schema.names
    assert (await verify_table(PATH, store=store)).count("error") == 0
    again = await publish_table(table, PATH, store=store, options=replace(options, purge=True, purge_after_s=0))
    assert (again.is_committed, again.rows) == (False, 0)
    assert await directories(store) == []

    emptied_txn = parse_txn((table / "_txn").read_bytes(), path=None)
    filled = tmp_path / "filled"
    filled.mkdir()
    table = copy_table(TABLE, filled)
    rewrite_txn(table, lambda transaction: replace(transaction, txn=emptied_txn.txn + 1))
    await publish_table(table, PATH, store=store, options=options)
    assert (await read_rows(store, PATH)).equals(rows)


async def test_an_empty_table_that_was_never_published(tmp_path: Path) -> None:
    table, store = copy_table(TABLE, tmp_path), MemoryStore()
    truncate(table)
    with pytest.raises(InvalidInputError, match="no rows") as caught:
        await publish_table(table, PATH, store=store, options=PublishOptions(dropped="remove"))
    assert caught.value.kind == "NothingToPublish"
    with pytest.raises(NotFoundError):
        await store.list(PATH)


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
    assert (kept.count("kept"), kept.count("unchanged"), kept.count("found"), kept.rows) == (2, 2, 1, first.rows)
    assert (await read_rows(store, PATH)).equals(everything)
    published = parse_txn((await read_whole(store, f"{PATH}/_txn")).data, path=None)
    times = everything.column("ts").combine_chunks()
    assert (published.min_timestamp, published.max_timestamp) == (times[0].value, times[-1].value)

    removed = await publish_table(table, PATH, store=store, options=PublishOptions(dropped="remove"))
    assert (removed.count("removed"), removed.count("unchanged"), removed.cost.sent_bytes) == (2, 3, 0)
    rows = await read_rows(store, PATH)
    assert rows.equals(everything.slice(everything.num_rows - rows.num_rows))
    assert rows.num_rows == removed.rows < first.rows


async def test_a_partition_converted_back_stays_behind(tmp_path: Path) -> None:
    table, store = copy_table("interval_day", tmp_path), MemoryStore()
    leave = PublishOptions(native="leave")
    before = await publish_table(table, PATH, store=store, options=leave)
    change_record(table, lambda record: replace(record, is_parquet=False, parquet_size=-1), index=1)
    native = parse_txn((table / "_txn").read_bytes(), path=None).partitions.record(1)
    report = await publish_table(table, PATH, store=store, options=leave)
    assert (report.count("removed"), report.count("left behind")) == (1, 2)
    assert report.rows == before.rows - native.row_count
    assert (await read_rows(store, PATH)).num_rows == report.rows


async def test_a_deleted_partition_is_published_once_more(tmp_path: Path) -> None:
    table, store = copy_table(TABLE, tmp_path), MemoryStore()
    await publish_table(table, PATH, store=store)
    await store.delete([f"{PATH}/2024-01-01.2/data.parquet", f"{PATH}/2024-01-01.2/_pm"])
    report = await publish_table(table, PATH, store=store)
    assert (report.count("published"), report.count("unchanged"), report.is_committed) == (1, 2, False)
    assert_same_rows(await read_rows(store, PATH), expected_published_rows(None))


async def test_other_contents_under_all_names_are_an_error(tmp_path: Path) -> None:
    table = copy_table(TABLE, tmp_path)
    store = MemoryStore({f"{PATH}/2024-01-01.{version}/data.parquet": b"else" for version in (2, 7)})
    await store.put(f"{PATH}/{PUBLISHING_FILE}", b"", overwrite=False)  # an earlier run was killed
    with pytest.raises(InvalidInputError, match="other contents") as caught:
        await publish_table(table, PATH, store=store)
    assert caught.value.kind == "AlreadyExists"


async def test_other_contents_under_the_source_name_are_avoided(tmp_path: Path) -> None:
    table = copy_table(TABLE, tmp_path)
    store = MemoryStore({f"{PATH}/2024-01-01.2/data.parquet": b"else", f"{PATH}/2024-01-01.2/_pm": b"else"})
    await store.put(f"{PATH}/{PUBLISHING_FILE}", b"", overwrite=False)  # an earlier run was killed
    report = await publish_table(table, PATH, store=store)
    assert [partition.published_name for partition in report.partitions[:2]] == ["2024-01-01.7", "2024-01-02.1"]
    again = await publish_table(table, PATH, store=store)
    assert (again.count("unchanged"), again.cost.write_count) == (3, 0)


async def test_a_table_that_was_copied_by_hand_keeps_its_native_rows(tmp_path: Path) -> None:
    table = copy_table(TABLE, tmp_path, snapshot="0_converted")
    store = MemoryStore({f"{PATH}/{name}": data for name, (data, _) in contents_of(table).items()})
    with pytest.raises(InvalidInputError, match="has native partitions, so nobody has published it") as caught:
        await publish_table(copy_table(TABLE, tmp_path / "live"), PATH, store=store)
    assert caught.value.kind == "NotPublished"
    async with cp.open_table(PATH, store=store) as unchanged:
        assert await unchanged.scan().count() == sum(partition.rows or 0 for partition in unchanged.partitions)
        assert unchanged.partitions[-1].format == "native"


async def test_partitions_of_no_table_are_not_covered_up(tmp_path: Path) -> None:
    store = MemoryStore({f"{PATH}/2024-03-01/data.parquet": b"of another process"})
    with pytest.raises(InvalidInputError, match=r"belong to no published table \(2024-03-01\)") as caught:
        await publish_table(copy_table(TABLE, tmp_path), PATH, store=store)
    assert caught.value.kind == "NotPublished"
    assert await directories(store) == ["2024-03-01"]


async def test_purge_removes_only_what_was_replaced_long_enough_ago(tmp_path: Path) -> None:
    table, store = copy_table(TABLE, tmp_path, snapshot="0_converted"), MemoryStore()
    for snapshot in SNAPSHOTS[:3]:
        put_in_state(table, snapshot)
        await publish_table(table, PATH, store=store)
    all_versions = ["2024-01-01.2", "2024-01-01.4", "2024-01-02.1", "2024-01-02.5", NATIVE]
    assert await directories(store) == all_versions
    report = await publish_table(table, PATH, store=store, options=PublishOptions(purge=True))
    assert (report.purged, await directories(store)) == ((), all_versions)
    planned = await publish_table(table, PATH, store=store, options=replace(PURGE_ALL, dry_run=True))
    assert await directories(store) == all_versions
    report = await publish_table(table, PATH, store=store, options=PURGE_ALL)
    assert report.purged == planned.purged
    assert [name for name in report.purged if not name.startswith("_")] == ["2024-01-01.2", "2024-01-02.1"]
    assert [name for name in report.purged if name.startswith("_published.v3-")]
    assert await directories(store) == ["2024-01-01.4", "2024-01-02.5", NATIVE]
    assert_same_rows(await read_rows(store, PATH), expected_published_rows("2_burst"))


async def test_purge_removes_leftovers_but_nothing_that_is_not_ours(tmp_path: Path) -> None:
    table, store = copy_table(TABLE, tmp_path), MemoryStore()
    theirs = ["2024-01-01.detached", "notes", "2024-01-01T07.3"]
    await store.put(f"{PATH}/{PUBLISHING_FILE}", b"", overwrite=False)  # an earlier run was killed
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
    assert_same_rows(await read_rows(LocalStore(), str(target)), expected_published_rows("1_one_late_row"))


async def test_local_destination(tmp_path: Path) -> None:
    table, target = copy_table(TABLE, tmp_path, snapshot="0_converted"), tmp_path / "backup" / "t"
    for snapshot in SNAPSHOTS:
        put_in_state(table, snapshot)
        report = await publish_table(table, target)
        assert report.notes == ()
        assert_same_rows(await read_rows(LocalStore(), str(target)), expected_published_rows(snapshot))
    assert not list(target.rglob("*.tmp"))


@pytest.mark.parametrize("where", ["itself", "link", "inside", "around", "copy"])
async def test_a_table_of_a_database_is_not_published_over(tmp_path: Path, where: str) -> None:
    table = copy_table(TABLE, tmp_path)
    (tmp_path / "link").symlink_to(table)
    target, kind = {
        "itself": (f"file://{table}/", "SamePlace"),
        "link": (str(tmp_path / "link"), "SamePlace"),
        "inside": (str(table / "published"), "SamePlace"),
        "around": (str(tmp_path), "SamePlace"),
        "copy": (str(tmp_path / "copy"), "DatabaseDirectory"),
    }[where]
    if where == "copy":
        shutil.copytree(table, target)
    before = contents_of(tmp_path)
    with pytest.raises(InvalidInputError) as caught:
        await publish_table(table, target)
    assert caught.value.kind == kind
    assert contents_of(tmp_path) == before


async def test_a_manifest_that_never_became_a_version_is_replaced(tmp_path: Path) -> None:
    table, undisturbed, store = copy_table(TABLE, tmp_path), MemoryStore(), MemoryStore()
    await publish_table(table, PATH, store=undisturbed)
    (path,) = [info.path for info in (await undisturbed.list(PATH)).objects if "_published" in info.path]
    wanted = (await read_whole(undisturbed, path)).data
    left = replace(parse_manifest(wanted, path=path), previous=manifest_name(6, b"another one"))
    await store.put(path, left.encode(), overwrite=False)
    await publish_table(table, PATH, store=store)
    assert (await read_whole(store, path)).data == wanted


async def test_purge_ends_where_the_manifest_had_to_be_written_anew(tmp_path: Path) -> None:
    table, store = copy_table(TABLE, tmp_path), MemoryStore()
    await publish_table(table, PATH, store=store, options=PublishOptions(native="leave"))
    (path,) = [info.path for info in (await store.list(PATH)).objects if "_published" in info.path]
    await store.delete([path])
    await store.put(f"{PATH}/2024-01-01.99/data.parquet", b"x", overwrite=False)
    async with asyncio.timeout(60):
        options = PublishOptions(native="leave", purge=True)
        report = await publish_table(table, PATH, store=store, options=options)
    assert (report.table_files, report.purged) == ((path.rpartition("/")[2],), ())


async def test_purge_does_not_claim_directories_that_are_empty(tmp_path: Path) -> None:
    table, target = copy_table(TABLE, tmp_path), tmp_path / "published"
    (target / "2024-01-01.99").mkdir(parents=True)
    (target / PUBLISHING_FILE).touch()  # an earlier run was killed
    report = await publish_table(table, target, options=PURGE_ALL)
    assert report.purged == ()


async def test_a_store_without_versions_is_protected_less_and_says_so(tmp_path: Path) -> None:
    table = copy_table(TABLE, tmp_path, snapshot="0_converted")
    store = FsspecStore(fsspec.filesystem("memory", skip_instance_cache=True), label="memory")
    path = f"/publish-{tmp_path.name}"
    for snapshot in SNAPSHOTS:
        put_in_state(table, snapshot)
        report = await publish_table(table, path, store=store)
        assert_same_rows(await read_rows(store, path), expected_published_rows(snapshot))
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
    assert_same_rows(await read_rows(store, path), expected_published_rows("2_burst"))


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
    assert_same_rows(await read_rows(store, PATH), expected_published_rows(None))


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
