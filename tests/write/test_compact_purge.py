"""What compaction removes, and what it never touches."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from pathlib import Path

import pytest

from coldparquet.catalog.table_files import read_table_files
from coldparquet.errors import UnsupportedError
from coldparquet.format.partition_records import PartitionRecords
from coldparquet.records import replace
from coldparquet.storage.base import StoreWrapper
from coldparquet.storage.local import LocalStore
from coldparquet.storage.requests import Listing
from coldparquet.write.compact import CompactionOptions, compact_table
from coldparquet.write.files import exclusive_lock
from coldparquet.write.versions import commit_partitions
from tests.support.questdb_tables import assert_same_rows, expected_rows
from tests.support.table_copies import contents_of, copy_table
from tests.support.written_tables import directories, in_memory, partition_names, scan_rows

LIVE = ["2023-11.6", "2023-12.7", "2024-01.8", "2024-02.9", "2024-03.10"]
OLD = ["2023-11.4", "2023-12.1", "2024-01.2", "2024-02.3", "2024-03.5"]
DAY_S = 86_400


@pytest.fixture
async def table(tmp_path: Path) -> Path:
    """A table of which every partition was compacted two days ago."""
    copied = copy_table("interval_month", tmp_path)
    await compact_table(copied, force=True)
    make_old(copied)
    return copied


def make_old(directory: Path, *, age_s: float = 2 * DAY_S) -> None:
    then = time.time() - age_s
    for path in [directory, *directory.rglob("*")]:
        if not path.is_symlink():
            os.utime(path, (then, then))


async def purged(table: Path, *, dry_run: bool = False) -> list[str]:
    return list((await compact_table(table, purge=True, dry_run=dry_run)).purged)


async def test_replaced_versions_go_after_a_day(table: Path) -> None:
    before = contents_of(table)
    assert await purged(table, dry_run=True) == sorted(OLD)
    assert contents_of(table) == before
    assert await purged(table) == sorted(OLD)
    assert directories(table) == LIVE
    assert await purged(table) == []
    assert_same_rows(await scan_rows(table), expected_rows("interval_month"))


async def test_nothing_goes_without_being_asked(table: Path) -> None:
    await compact_table(table)
    assert directories(table) == sorted([*LIVE, *OLD])


async def test_a_version_stays_while_it_may_be_read(table: Path) -> None:
    now = time.time()
    os.utime(table / "2023-11.4" / "data.parquet", (now, now))  # the old version was written to just now
    os.utime(table / "2023-12.7" / "_pm", (now, now))  # the new version was made just now
    assert await purged(table) == ["2024-01.2", "2024-02.3", "2024-03.5"]
    report = await compact_table(table, purge=True, options=CompactionOptions(purge_after_s=0))
    assert list(report.purged) == ["2023-11.4", "2023-12.1"]


async def test_versions_that_a_killed_run_left_go_as_well(table: Path) -> None:
    shutil.copytree(table / "2024-03.10", table / "2024-03.11")
    shutil.copytree(table / "2024-03.10", table / ".2024-03.12.coldparquet")
    (table / "2024-03.13").mkdir()
    (table / "2024-03.10" / ".coldparquet-0123.tmp").write_bytes(b"part of an upload")
    make_old(table)
    assert sorted(await purged(table)) == sorted([*OLD, "2024-03.11", ".2024-03.12.coldparquet", "2024-03.13"])
    assert directories(table) == LIVE
    assert not any(".tmp" in name for name in contents_of(table))


async def test_directories_at_work_stay(table: Path) -> None:
    staging = table / ".2024-03.12.coldparquet"
    staging.mkdir()
    make_old(table)
    with exclusive_lock(str(staging)):
        assert await purged(table) == sorted(OLD)
    assert staging.exists()
    assert await purged(table) == [staging.name]


@pytest.mark.parametrize(
    "name",
    [
        "2024-03.detached",
        "2024-03.5.detached",
        "2024-03.attachable",
        "2031-01.4",
        ".2031-01.4.coldparquet",
        "2024-03-01.4",
        "2024-03.05",
        "backup",
        "txn_seq",
        ".hidden",
    ],
)
async def test_what_is_no_version_of_a_partition_of_the_table_stays(table: Path, name: str) -> None:
    shutil.copytree(table / "2024-03.5", table / name)
    make_old(table)
    kept = contents_of(table / name)
    assert await purged(table) == sorted(OLD)
    assert contents_of(table / name) == kept


async def test_versions_of_a_partition_that_was_dropped_stay(table: Path) -> None:
    store = LocalStore()
    files = await read_table_files(store, str(table))
    assert files is not None
    records = PartitionRecords.of(files.records.record(index) for index in range(1, len(files.records)))
    await commit_partitions(store, str(table), started_from=files, partitions=records)
    make_old(table)
    assert await purged(table) == sorted(OLD)[1:]
    assert {"2023-11.4", "2023-11.6"} <= set(directories(table))


async def test_directories_with_something_else_in_them_stay(table: Path, tmp_path: Path) -> None:
    (table / "2024-03.5" / "notes").mkdir()
    elsewhere = tmp_path / "elsewhere"
    shutil.move(table / "2024-02.3", elsewhere)
    (table / "2024-02.3").symlink_to(elsewhere)
    make_old(table)
    report = await compact_table(table, purge=True, storage_options={"follow_links": True})
    assert list(report.purged) == ["2023-11.4", "2023-12.1", "2024-01.2"]
    assert (table / "2024-03.5" / "data.parquet").exists()
    assert (elsewhere / "data.parquet").exists()


class TimelessStore(StoreWrapper):
    async def list(self, path: str, *, first_page_only: bool = False) -> Listing:
        listing = await super().list(path, first_page_only=first_page_only)
        return replace(listing, objects=tuple(replace(info, modified_s=None) for info in listing.objects))


async def test_on_an_object_store(tmp_path: Path) -> None:
    store = await in_memory(copy_table("interval_month", tmp_path))
    assert (await compact_table("t", store=store, force=True, purge=True)).purged == ()
    timeless = TimelessStore(store)
    with pytest.raises(UnsupportedError, match="does not tell when objects were written") as caught:
        await compact_table("t", store=timeless, purge=True)
    assert caught.value.kind == "NoTimes"
    await asyncio.sleep(0.01)
    options = CompactionOptions(purge_after_s=0)
    assert (await compact_table("t", store=store, purge=True, options=options)).purged == tuple(sorted(OLD))
    assert [path.rpartition("/")[2] for path in (await store.list("t")).directories] == LIVE
    assert await partition_names("t", store=store) == LIVE
