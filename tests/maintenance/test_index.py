"""Writing missing sidecars: what is written, what is kept, and that a failure leaves nothing half done."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import coldparquet as cp
from coldparquet.errors import AccessError, ColdParquetError, InvalidInputError, NotFoundError, StorageError
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.maintenance.index import index_table
from coldparquet.maintenance.migrate import migrate_table
from coldparquet.maintenance.sidecars import IndexedPartition
from coldparquet.options import ReadOptions
from coldparquet.storage.limit import LimitedStore
from coldparquet.storage.local import LocalStore
from coldparquet.storage.log import TraceStore
from coldparquet.storage.memory import MemoryStore
from coldparquet.storage.requests import FetchedRange, RangeRequest
from tests.support.archive_store import ArchiveStore
from tests.support.questdb_tables import GOLDEN, PARTITIONS, as_questdb_shows, copy_parquet_partitions, plain
from tests.support.table_copies import contents_of, copy_table

TABLES = sorted({partition.table for partition in PARTITIONS})


@pytest.mark.parametrize("name", TABLES)
async def test_the_indexed_table_answers_as_questdb(tmp_path: Path, name: str) -> None:
    table = copy_parquet_partitions(name, tmp_path)
    before = contents_of(table)
    report = await index_table(table, pages=False, pack=False)
    assert [Path(done.path).parent.name for done in report.partitions] == sorted(path.name for path in table.iterdir())
    assert {done.action for done in report.partitions} == {"written"}
    after = contents_of(table)
    assert {key: after[key] for key in before} == before
    written = {f"{Path(done.path).parent.name}/_pm": done.sidecar_bytes for done in report.partitions}
    assert {key: len(after[key][0]) for key in after.keys() - before.keys()} == written

    async with cp.open_table(table) as opened:
        scan = opened.scan()
        plan = await scan.plan()
        assert {partition.metadata_source for partition in plan.partitions} == {"sidecar"}
        rows = await scan.to_arrow()
    expected = pa.concat_tables([partition.expected() for partition in PARTITIONS if partition.table == name])
    newest = plain(expected).select(rows.schema.names)
    assert plain(as_questdb_shows(rows)).equals(newest)


async def test_force_writes_anew(tmp_path: Path) -> None:
    table = copy_parquet_partitions("interval_day", tmp_path)
    await index_table(table, pages=False, pack=False)
    sidecar = next(table.glob("*/_pm"))
    good = sidecar.read_bytes()
    sidecar.write_bytes(b"garbage")
    report = await index_table(table, force=True, pages=False, pack=False)
    assert {done.action for done in report.partitions} == {"written"}
    assert sidecar.read_bytes() == good


async def test_one_bad_partition_does_not_stop_the_others(tmp_path: Path) -> None:
    table = copy_parquet_partitions("interval_day", tmp_path)
    first, second, third, fourth = sorted(table.iterdir())
    (first / "data.parquet").write_bytes(b"PAR1 this is no Parquet file")
    (second / "_pm").write_bytes(b"garbage")
    (third / "data.parquet").unlink()
    report = await index_table(table, pages=False, pack=False)
    assert [done.action for done in report.partitions] == ["failed", "failed", "skipped", "written"]
    bad_data, bad_sidecar, native, _ = (done.reason or "" for done in report.partitions)
    assert bad_data.startswith("data.parquet: ")
    assert bad_sidecar.startswith("_pm: ")
    assert bad_sidecar.endswith("use --force to write it anew")
    assert native == "there is no data.parquet"
    assert not (first / "_pm").exists()
    assert (second / "_pm").read_bytes() == b"garbage"
    assert (fourth / "_pm").exists()
    assert report.count("failed") == 2


async def test_a_stale_sidecar_is_renewed_and_reported(tmp_path: Path) -> None:
    table = copy_parquet_partitions("interval_day", tmp_path)
    await index_table(table, pages=False, pack=False)
    partition = min(table.iterdir())
    rows = pq.read_table(partition / "data.parquet")
    pq.write_table(rows.slice(0, 1), partition / "data.parquet")
    os.utime(partition / "data.parquet", (1, 1))
    sidecar = (partition / "_pm").read_bytes()
    size = (partition / "data.parquet").stat().st_size
    planned, *_ = (await index_table(table, dry_run=True, pages=False, pack=False)).partitions
    assert (planned.action, planned.is_stale) == ("would write", True)
    assert (partition / "_pm").read_bytes() == sidecar
    stale, *others = (await index_table(table, pages=False, pack=False)).partitions
    assert (stale.action, stale.is_stale) == ("written", True)
    assert f"but data.parquet has {size:,}" in (stale.reason or "")
    assert {(done.action, done.is_stale) for done in others} == {("kept", False)}
    assert parse_sidecar((partition / "_pm").read_bytes()).parquet_size_bytes == size
    async with cp.open_table(partition) as opened:
        assert await opened.scan().count() == 1


async def test_a_sidecar_that_is_older_than_its_file_is_renewed_with_its_pages(tmp_path: Path) -> None:
    (tmp_path / "2024-03-01").mkdir()
    data = tmp_path / "2024-03-01" / "data.parquet"

    def write(first: int) -> None:
        rows = pa.table({"x": pa.array(range(first, first + 1_000), pa.int64())})
        pq.write_table(rows, data, compression="none", use_dictionary=False, write_page_index=True)

    write(0)
    await index_table(tmp_path, pages=True, pack=False)
    size = data.stat().st_size
    write(500)
    assert data.stat().st_size == size
    for name in ("_pm", "_pages"):
        os.utime(data.with_name(name), (1, 1))
    (done,) = (await index_table(tmp_path, pages=False, pack=False)).partitions
    assert (done.action, done.is_stale, done.reason) == ("written", True, "stale: data.parquet was written after it")
    assert done.pages is not None
    assert done.pages.action == "written"
    (again,) = (await index_table(tmp_path, pages=True, pack=False)).partitions
    assert (again.action, again.is_stale, again.reason) == ("kept", False, None)
    assert again.pages is not None
    assert again.pages.action == "kept"
    async with cp.open_table(tmp_path, options=ReadOptions(page_index="always")) as table:
        scan = table.scan(["x"], "x >= 1400")
        assert (await scan.plan()).partitions[0].metadata_source == "sidecar"
        assert (await scan.to_arrow()).num_rows == 100


async def test_a_stale_sidecar_that_cannot_be_renewed_is_a_failure(tmp_path: Path) -> None:
    table = copy_parquet_partitions("interval_day", tmp_path)
    await index_table(table, pages=False, pack=False)
    data = min(table.glob("*/data.parquet"))
    data.write_bytes(data.read_bytes()[:-8] + b"no more a file")
    failed, *others = (await index_table(table, pages=False, pack=False)).partitions
    assert failed.action == "failed"
    assert {done.action for done in others} == {"kept"}


async def test_a_sidecar_of_an_update_that_was_cut_off_stays(tmp_path: Path) -> None:
    table = copy_parquet_partitions("interval_day", tmp_path)
    await index_table(table, pages=False, pack=False)
    data = min(table.glob("*/data.parquet"))
    with data.open("ab") as file:
        file.write(b"half of a row group")
    before = contents_of(table)
    kept, *_ = (await index_table(table, pages=False, pack=False)).partitions
    assert (kept.action, kept.is_stale) == ("kept", False)
    assert kept.reason == (
        "data.parquet goes on for 19 bytes behind what it describes: an update is under way, or was cut off"
    )
    assert contents_of(table) == before


async def test_a_sidecar_without_parquet_file_is_a_failure(tmp_path: Path) -> None:
    table = copy_parquet_partitions("interval_day", tmp_path)
    await index_table(table, pages=False, pack=False)
    min(table.glob("*/data.parquet")).unlink()
    for force in (False, True):
        orphan, *_ = (await index_table(table, force=force, pages=False, pack=False)).partitions
        assert orphan.action == "failed"
        assert "there is a sidecar, but no data.parquet beside it" in (orphan.reason or "")


@pytest.mark.parametrize("form", ["", "data.parquet"])
async def test_one_partition(tmp_path: Path, form: str) -> None:
    partition = min(copy_parquet_partitions("interval_day", tmp_path).iterdir())
    report = await index_table(partition / form, pages=False, pack=False)
    assert [(done.path, done.action) for done in report.partitions] == [(f"{partition}/_pm", "written")]
    assert (partition / "_pm").exists()


async def test_native_partitions_are_skipped() -> None:
    report = await index_table(GOLDEN / "interval_day" / "table", dry_run=True, pages=False, pack=False)
    assert [done.action for done in report.partitions] == ["would write"] * 4 + ["skipped"]


async def test_what_cannot_be_indexed(tmp_path: Path) -> None:
    other = tmp_path / "other.parquet"
    pq.write_table(pa.table({"n": [1]}), other)
    with pytest.raises(InvalidInputError, match=r"data\.parquet"):
        await index_table(other, pages=False, pack=False)
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFoundError, match="no partitions"):
        await index_table(tmp_path / "empty", pages=False, pack=False)
    with pytest.raises(NotFoundError):
        await index_table(tmp_path / "nothing", pages=False, pack=False)


async def test_requests_per_partition(tmp_path: Path) -> None:
    table = copy_parquet_partitions("interval_day", tmp_path)
    trace = TraceStore(LocalStore())
    await index_table(str(table), store=trace, pages=False, pack=False)
    of_first = [record for record in trace.records if min(table.iterdir()).name in record.path]
    assert [(record.operation, record.status) for record in of_first] == [
        ("get", "NotFound"),
        ("get", "ok"),
        ("put", "ok"),
    ]
    assert sum(record.operation == "list" for record in trace.records) == 1
    trace.clear()
    await index_table(str(table), store=trace, pages=False, pack=False)
    of_first = [record for record in trace.records if min(table.iterdir()).name in record.path]
    assert [(record.operation, record.path.rpartition("/")[2]) for record in of_first] == [
        ("get", "_pm"),
        ("info", "data.parquet"),
    ]


class RefusingStore(LimitedStore):
    """Reads from the disk, and fails every write."""

    def __init__(self, error: Exception) -> None:
        super().__init__(LocalStore(), max_concurrency=8)
        self._error = error

    async def put(self, path: str, data: bytes, **options: Any) -> None:  # noqa: ARG002 - the protocol's
        raise self._error


@pytest.mark.parametrize(
    "error",
    [StorageError("the disk is full"), StorageError("no room", path="t/_pm"), AccessError("writing is not permitted")],
    ids=["full", "file", "forbidden"],
)
@pytest.mark.parametrize("write", [index_table, migrate_table])
async def test_a_refused_write_leaves_no_sidecar(tmp_path: Path, error: ColdParquetError, write: Any) -> None:
    table = copy_table("interval_day", tmp_path)
    before = contents_of(table)
    report = await write(str(table), store=RefusingStore(error))
    *refused, native = [(done.action, done.reason) for done in report.partitions]
    file_name = "data.parquet" if error.path is None else "_pm"
    assert (set(refused), native[0]) == ({("failed", f"{file_name}: {error.message}")}, "skipped")
    assert contents_of(table) == before


@pytest.mark.parametrize("step", ["fsync", "link", "replace"])
@pytest.mark.parametrize("force", [False, True])
async def test_a_write_that_fails_halfway_leaves_no_sidecar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, force: bool
) -> None:
    table = copy_parquet_partitions("interval_day", tmp_path)
    before = contents_of(table)

    def fail(*_arguments: object, **_options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    report = await index_table(table, force=force, pages=False, pack=False)
    monkeypatch.undo()
    needed = step == "fsync" or (step == "replace") == force
    assert {done.action for done in report.partitions} == {"failed" if needed else "written"}
    if needed:
        assert contents_of(table) == before


async def test_cancelling_leaves_whole_sidecars_or_none(tmp_path: Path) -> None:
    table = copy_parquet_partitions("row_groups", tmp_path)
    reference = copy_parquet_partitions("row_groups", tmp_path / "reference")
    await index_table(reference, pages=False, pack=False)
    for delay_ms in range(0, 40, 4):
        indexing = asyncio.create_task(index_table(table, force=True, pages=False, pack=False))
        await asyncio.sleep(delay_ms / 1000)
        indexing.cancel()
        await asyncio.gather(indexing, return_exceptions=True)
        assert {path.name for path in table.rglob("*") if path.is_file()} <= {"data.parquet", "_pm"}
        for path in table.glob("*/_pm"):
            assert path.read_bytes() == (reference / path.relative_to(table)).read_bytes()


class RacingStore(MemoryStore):
    """Another process writes the sidecar while its footer is being read."""

    async def get(self, request: RangeRequest) -> FetchedRange:
        fetched = await super().get(request)
        if request.path.endswith("data.parquet"):
            await super().put(request.path.replace("data.parquet", "_pm"), b"theirs", overwrite=True)
        return fetched


async def test_a_sidecar_that_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    data = next(copy_parquet_partitions("interval_day", tmp_path).glob("*/data.parquet")).read_bytes()
    store = RacingStore({"bucket/t/2024-02-27.4/data.parquet": data})
    (done,) = (await index_table("bucket/t", store=store, pages=False, pack=False)).partitions
    assert (done.action, done.reason) == ("kept", "somebody else wrote it in the meantime")


async def test_progress_and_bounded_concurrency(tmp_path: Path) -> None:
    table = copy_parquet_partitions("interval_hour", tmp_path)
    seen: list[tuple[IndexedPartition, int]] = []
    report = await index_table(
        table,
        options=ReadOptions(max_concurrency=1),
        on_progress=lambda done, total: seen.append((done, total)),
        pages=False,
        pack=False,
    )
    assert [done for done, _ in seen] == list(report.partitions)
    assert {total for _, total in seen} == {len(report.partitions)}


async def test_files_without_a_designated_timestamp_are_noted(tmp_path: Path) -> None:
    partition = tmp_path / "2024-03-01"
    partition.mkdir()
    pq.write_table(pa.table({"x": [1]}), partition / "data.parquet")
    report = await index_table(tmp_path, pages=False, pack=False)
    assert [entry.has_timestamp for entry in report.partitions] == [False]
    assert "1 of 1 new sidecar names no designated timestamp" in report.notes[-1]


async def test_an_archived_file_that_was_moved_after_its_sidecar_keeps_it(tmp_path: Path) -> None:
    """Moving an object to another class gives it a new time; it cannot be compared before it is restored."""
    data = next(copy_parquet_partitions("interval_day", tmp_path).glob("*/data.parquet")).read_bytes()
    path = "bucket/t/2024-02-27.4/data.parquet"
    store = ArchiveStore()
    await store.put(path, data, overwrite=True)
    await index_table("bucket/t", store=store, pages=False, pack=False)
    await store.put(path, data, overwrite=True)
    store.archive(path)
    (done,) = (await index_table("bucket/t", store=store, pages=False, pack=False)).partitions
    assert (done.action, done.is_stale) == ("kept", False)
    assert done.reason == "data.parquet was written or moved after it, and is archived"
    await store.put(path, data + b"?", overwrite=True)
    store.archive(path)
    (done,) = (await index_table("bucket/t", store=store, pages=False, pack=False)).partitions
    assert done.action == "failed"


async def test_pages_of_an_archived_file_are_left_for_later(tmp_path: Path) -> None:
    data = next(copy_parquet_partitions("interval_day", tmp_path).glob("*/data.parquet")).read_bytes()
    path = "bucket/t/2024-02-27.4/data.parquet"
    store = ArchiveStore()
    await store.put(path, data, overwrite=True)
    await index_table("bucket/t", store=store, pages=False, pack=False)
    store.archive(path)
    (done,) = (await index_table("bucket/t", store=store, pages=True, pack=False)).partitions
    assert (done.action, done.pages and done.pages.action) == ("kept", "skipped")
