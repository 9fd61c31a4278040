"""Migrating tables from before sidecars: one for every committed Parquet file, and nothing else is touched."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import coldparquet as cp
from coldparquet.errors import FormatError, NotFoundError
from coldparquet.format.partition_records import PartitionRecord
from coldparquet.format.sidecar import Sidecar, parse_sidecar
from coldparquet.format.sidecar_writer import encode_sidecar
from coldparquet.maintenance.index import IndexReport, index_table
from coldparquet.maintenance.migrate import migrate_table
from coldparquet.maintenance.sidecars import IndexedPartition
from coldparquet.records import replace
from coldparquet.storage.local import LocalStore
from coldparquet.storage.log import TraceStore
from coldparquet.storage.memory import MemoryStore
from tests.support.questdb_tables import PARTITIONS, assert_same_rows, expected_rows
from tests.support.table_copies import change_record, contents_of, copy_table, sidecar_content, write_sidecar

TABLES = sorted({partition.table for partition in PARTITIONS})


@pytest.fixture
def days(tmp_path: Path) -> Path:
    """A QuestDB table of four Parquet partitions and a native one, without sidecars."""
    return copy_table("interval_day", tmp_path)


def first(table: Path) -> Path:
    return min(table.glob("*/data.parquet")).parent


def first_sidecar(table: Path) -> Sidecar:
    return parse_sidecar((first(table) / "_pm").read_bytes())


def actions(report: IndexReport) -> list[str]:
    return [partition.action for partition in report.partitions]


@pytest.mark.parametrize("name", TABLES)
async def test_every_table_of_questdb(tmp_path: Path, name: str) -> None:
    table = copy_table(name, tmp_path)
    before = contents_of(table)
    report = await migrate_table(table)
    after = contents_of(table)
    assert {path: after[path] for path in before} == before
    parquet = [partition.directory.name for partition in PARTITIONS if partition.table == name]
    assert sorted(after.keys() - before.keys()) == sorted(f"{directory}/_pm" for directory in parquet)
    assert report.count("written") == len(parquet)
    assert set(actions(report)) <= {"written", "skipped"}
    for directory in parquet:
        assert after[f"{directory}/_pm"][0] == encode_sidecar(sidecar_content(table / directory))


@pytest.mark.parametrize("snapshot", ["0_converted", "1_one_late_row", "2_burst"])
async def test_the_committed_size_counts_and_not_the_length_of_the_file(tmp_path: Path, snapshot: str) -> None:
    table = copy_table("o3_in_place", tmp_path, snapshot=snapshot)
    assert (await migrate_table(table)).count("written") == 2
    async with cp.open_table(table) as opened:
        sizes = [partition.parquet_size_bytes for partition in opened.partitions if partition.format == "parquet"]
        plan = await opened.scan().plan()
        rows = await opened.scan().to_arrow()
    assert first_sidecar(table).parquet_size_bytes == sizes[0]
    assert "sidecar" in {partition.metadata_source for partition in plan.partitions}
    assert_same_rows(rows, expected_rows("o3_in_place", snapshot))


async def test_force_writes_all_of_them_anew(days: Path) -> None:
    content = sidecar_content(first(days))
    write_sidecar(first(days), seq_txn=99)
    assert actions(await migrate_table(days))[0] == "kept"
    assert actions(await migrate_table(days, force=True)) == ["written"] * 4 + ["skipped"]
    assert (first(days) / "_pm").read_bytes() == encode_sidecar(content)


@pytest.mark.parametrize("renew", [index_table, migrate_table])
@pytest.mark.parametrize("kind", ["damaged", "of another size", "of other rows"])
async def test_a_sidecar_that_is_of_no_use_is_replaced(
    days: Path, kind: str, renew: Callable[[Path], Awaitable[IndexReport]]
) -> None:
    content = sidecar_content(first(days))
    if kind == "damaged":
        (first(days) / "_pm").write_bytes(b"garbage")
    elif kind == "of another size":
        write_sidecar(first(days), parquet_footer_offset=content.parquet_footer_offset - 1)
    else:
        write_sidecar(first(days), row_groups=[replace(group, row_count=1) for group in content.row_groups])
    if kind == "damaged":
        # Indexing leaves alone what a newer version may have written, and says so.
        assert actions(await index_table(days, pages=False, pack=False))[0] == "failed"
        renew = migrate_table
    report = await renew(days)
    assert actions(report)[0] == "written"
    assert report.partitions[0].is_stale == (kind != "damaged")
    assert (first(days) / "_pm").read_bytes() == encode_sidecar(content)


@pytest.mark.parametrize("size", [0, 100, 4193])
async def test_a_file_that_is_empty_or_too_short(days: Path, size: int) -> None:
    os.truncate(first(days) / "data.parquet", size)
    report = await migrate_table(days)
    assert actions(report) == ["failed", "written", "written", "written", "skipped"]
    assert report.partitions[0].reason == (
        f"data.parquet: it has {size:,} bytes, but the table's _txn commits 4,194 of it: the file was cut off, or its"
        " copy is not complete"
    )
    assert not (first(days) / "_pm").exists()


async def test_a_partition_that_is_not_there(days: Path) -> None:
    (first(days) / "data.parquet").unlink()
    failed, *_ = (await migrate_table(days)).partitions
    assert failed.action == "failed"
    assert "_txn names this partition, but it is not there" in (failed.reason or "")


RECORDS: dict[str, tuple[dict[str, Any], str, str]] = {
    "remote": ({"has_remote_copy": True}, "skipped", "its data is a remote copy, and has its sidecar there"),
    "remote and generated": ({"has_remote_copy": True, "is_parquet_generated": True}, "written", ""),
    "delta": ({"unknown_flags": 1 << 61}, "skipped", "_txn marks its file as only a part of the partition"),
    "native": ({"is_parquet": False, "parquet_size": -1}, "skipped", "in QuestDB's native format"),
    "no size stated": ({"parquet_size": -1}, "written", ""),
}


@pytest.mark.parametrize("kind", RECORDS)
async def test_what_the_record_says(days: Path, kind: str) -> None:
    changes, action, reason = RECORDS[kind]
    change_record(days, lambda record: replace(record, **changes))
    done = (await migrate_table(days)).partitions[0]
    assert (done.action, done.reason or "") == (action, reason)


async def test_without_a_stated_size_the_rows_must_agree(days: Path) -> None:
    def change(record: PartitionRecord) -> PartitionRecord:
        return replace(record, parquet_size=-1, row_count=47)

    change_record(days, change)
    failed = (await migrate_table(days)).partitions[0]
    assert failed.action == "failed"
    assert "the Parquet footer counts 48 rows, the table's _txn 47" in (failed.reason or "")


async def test_what_is_no_table_is_skipped_with_a_note(days: Path) -> None:
    (days / "_meta").unlink()
    report = await migrate_table(days)
    assert report.partitions == ()
    assert report.notes[0].startswith("skipped: there is a _txn, but no _meta")
    (days / "_txn").unlink()
    report = await migrate_table(days)
    assert report.partitions == ()
    assert report.notes[0].startswith("skipped: there is no _txn here")
    assert "'coldparquet index'" in report.notes[0]


async def test_a_table_without_partitions(tmp_path: Path) -> None:
    report = await migrate_table(copy_table("none", tmp_path))
    assert (report.partitions, report.notes) == (
        (),
        ("nothing to do: a table that is not partitioned has no Parquet partitions",),
    )


async def test_what_cannot_be_migrated(days: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        await migrate_table(tmp_path / "nothing")
    (days / "_txn").write_bytes(b"short")
    with pytest.raises(FormatError):
        await migrate_table(days)


async def test_requests(days: Path) -> None:
    trace = TraceStore(LocalStore())
    done: list[IndexedPartition] = []
    report = await migrate_table(str(days), store=trace, on_progress=lambda partition, _total: done.append(partition))
    assert sorted(done, key=lambda partition: partition.path) == list(report.partitions)
    of_first = [record for record in trace.records if first(days).name in record.path]
    assert [(record.operation, record.status) for record in of_first] == [
        ("get", "NotFound"),
        ("get", "ok"),
        ("put", "ok"),
    ]
    trace.clear()
    await migrate_table(str(days), store=trace)
    of_first = [record for record in trace.records if first(days).name in record.path]
    assert [record.operation for record in of_first] == ["get"]


async def test_in_an_object_store(days: Path) -> None:
    objects = {f"bucket/{path}": content for path, (content, _) in contents_of(days).items()}
    store = MemoryStore(objects)
    assert actions(await migrate_table("bucket", store=store)) == ["written"] * 4 + ["skipped"]
    async with cp.open_table("bucket", store=store) as table:
        rows = await table.scan().to_arrow()
    assert_same_rows(rows, expected_rows("interval_day"))
