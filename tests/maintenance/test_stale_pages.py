"""A `_pages` that outlives its Parquet file: renewed with the sidecar, and never the reason why rows are missing."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import coldparquet as cp
from coldparquet.errors import ObjectChangedError, StorageError
from coldparquet.maintenance.index import index_table
from coldparquet.maintenance.migrate import migrate_table
from coldparquet.storage.local import LocalStore
from coldparquet.storage.memory import MemoryStore
from tests.support.paged_files import PagedFile, written
from tests.support.small_tables import QuotingStore
from tests.support.table_copies import copy_table

DIRECTORY = "t/2024-03-01"
WHERE = "a < 50"


def version(values: np.ndarray) -> bytes:
    """A file of small pages without compression, so that the same values in another order are as long."""
    rows = pa.table({"ts": pa.array(np.arange(len(values)), pa.timestamp("us")), "a": values})
    return written(rows, row_group_size=len(values), use_dictionary=False, compression="none", write_page_index=True)


FIRST = version(np.arange(2_000))
SECOND = version(np.arange(2_000)[::-1])


async def found_rows(url: str, store: MemoryStore | None = None, **options: object) -> int:
    read = cp.ReadOptions(**{"page_index": "always", **options})  # type: ignore[arg-type]
    async with cp.open_table(url, store=store, options=read) as table:
        return (await table.scan(["a"], WHERE).to_arrow()).num_rows


def partition_of(tmp_path: Path, data: bytes) -> Path:
    partition = tmp_path / DIRECTORY
    partition.mkdir(parents=True)
    (partition / "data.parquet").write_bytes(data)
    return partition


async def store_with_stale_pages() -> QuotingStore:
    store = QuotingStore({f"{DIRECTORY}/data.parquet": FIRST})
    await index_table(DIRECTORY, store=store, pages=True, pack=False)
    await store.put(f"{DIRECTORY}/data.parquet", SECOND, overwrite=True)
    return store


def test_nothing_in_the_sidecars_tells_the_versions_apart() -> None:
    assert len(FIRST) == len(SECOND)
    assert PagedFile.of(FIRST).places.fingerprint == PagedFile.of(SECOND).places.fingerprint


async def test_writing_sidecars_anew_renews_pages(tmp_path: Path) -> None:
    partition = partition_of(tmp_path, FIRST)
    await index_table(partition, pages=True, pack=False)
    before = (partition / "_pages").read_bytes()
    (partition / "data.parquet").write_bytes(SECOND)
    planned = await index_table(partition, force=True, dry_run=True, pages=False, pack=False)
    assert planned.count_pages("would write") == 1
    assert (partition / "_pages").read_bytes() == before
    done = await index_table(partition, force=True, pages=False, pack=False)
    assert done.count_pages("written") == 1
    assert (partition / "_pages").read_bytes() != before
    assert await found_rows(str(partition)) == 50


async def test_where_there_are_none_none_are_written(tmp_path: Path) -> None:
    partition = partition_of(tmp_path, FIRST)
    [done] = (await index_table(partition, force=True, pages=False, pack=False)).partitions
    assert done.pages is None
    assert not (partition / "_pages").exists()


async def test_migration_renews_pages_too(tmp_path: Path) -> None:
    table = copy_table("interval_day", tmp_path)
    await index_table(table, pages=True, pack=False)
    kept, *others = sorted(table.glob("*/_pages"))
    good = kept.read_bytes()
    kept.write_bytes(others[0].read_bytes())
    others[0].unlink()
    report = await migrate_table(table, force=True)
    assert report.count_pages("written") == 3
    assert kept.read_bytes() == good
    assert not others[0].exists()
    assert (await migrate_table(table)).count_pages("written") == 0


async def test_pages_that_cannot_be_replaced_are_removed(tmp_path: Path) -> None:
    partition = partition_of(tmp_path, FIRST)
    await index_table(partition, pages=True, pack=False)
    (partition / "data.parquet").write_bytes(written(pa.table({"values": pa.array([[1.0, 2.0]] * 100)})))
    planned = (await index_table(partition, force=True, dry_run=True, pages=False, pack=False)).partitions[0]
    assert planned.pages is not None
    assert (partition / "_pages").exists()
    done = (await index_table(partition, force=True, pages=False, pack=False)).partitions[0]
    assert done.pages is not None
    assert done.pages.action == "skipped"
    assert "the old _pages was removed" in (done.pages.reason or "")
    assert not (partition / "_pages").exists()


class FullDisk(LocalStore):
    """Takes no ``_pages``."""

    async def put(self, path: str, data: bytes, **options: object) -> str | None:
        if path.endswith("_pages"):
            raise StorageError("the disk is full", path=path)
        return await super().put(path, data, **options)  # type: ignore[arg-type]


async def test_pages_that_fail_to_be_replaced_are_removed(tmp_path: Path) -> None:
    partition = partition_of(tmp_path, FIRST)
    await index_table(partition, pages=True, pack=False)
    (partition / "data.parquet").write_bytes(SECOND)
    [done] = (await index_table(str(partition), force=True, store=FullDisk(), pages=False, pack=False)).partitions
    assert done.pages is not None
    assert (done.pages.action, done.pages.reason) == (
        "failed",
        "_pages: the disk is full; the old _pages was removed",
    )
    assert await found_rows(str(partition)) == 50


async def test_a_newer_file_on_a_disk_is_described_anew(tmp_path: Path) -> None:
    partition = partition_of(tmp_path, FIRST)
    await index_table(partition, pages=True, pack=False)
    (partition / "data.parquet").write_bytes(SECOND)
    after = (partition / "_pages").stat().st_mtime + 5
    os.utime(partition / "data.parquet", (after, after))
    assert (await index_table(partition, pages=True, pack=False)).count_pages("written") == 1
    assert await found_rows(str(partition)) == 50


async def test_another_version_of_an_object_is_described_anew() -> None:
    store = await store_with_stale_pages()
    assert (await index_table(DIRECTORY, store=store, pages=True, pack=False)).count_pages("written") == 1
    assert (await index_table(DIRECTORY, store=store, pages=True, pack=False)).count_pages("kept") == 1
    assert await found_rows(DIRECTORY, store) == 50


@pytest.mark.parametrize("has_sidecar", [True, False])
async def test_a_scan_notices_that_the_pages_are_of_another_version(*, has_sidecar: bool) -> None:
    """Also where the new version was seen before: without a sidecar, when its footer is read."""
    store = await store_with_stale_pages()
    if not has_sidecar:
        await store.delete([f"{DIRECTORY}/_pm"])
    with pytest.raises(ObjectChangedError, match=r"index --force.*page_index='never'") as caught:
        await found_rows(DIRECTORY, store)
    assert (caught.value.kind, caught.value.path) == ("StalePages", f"{DIRECTORY}/data.parquet")
    assert await found_rows(DIRECTORY, store, page_index="never") == 50
    await index_table(DIRECTORY, store=store, pages=True, force=True, pack=False)
    assert await found_rows(DIRECTORY, store) == 50


async def test_pages_that_leave_no_row_are_checked_by_one_small_request() -> None:
    store = QuotingStore({f"{DIRECTORY}/data.parquet": FIRST})
    await index_table(DIRECTORY, store=store, pages=True, pack=False)
    async with cp.open_table(DIRECTORY, store=store) as table:
        plan = await table.scan(["a"], "a < 50 and a > 60 and ts >= 0").plan()
        assert plan.request_count <= 1
    await store.put(f"{DIRECTORY}/data.parquet", version(np.roll(np.arange(2_000), 7)), overwrite=True)
    async with cp.open_table(DIRECTORY, store=store, options=cp.ReadOptions(page_index="always")) as table:
        for value in (0, 1_000, 1_999):
            with pytest.raises(ObjectChangedError):
                await table.scan(["a"], f"a = {value} and ts = {value}").count()
