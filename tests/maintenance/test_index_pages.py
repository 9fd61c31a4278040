"""The pages of ``index``: which files it writes, from what, and with which requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from coldparquet.errors import StorageError
from coldparquet.format import page_headers
from coldparquet.maintenance import index_pages
from coldparquet.maintenance.index import index_table
from coldparquet.ranges import ByteRange
from coldparquet.storage.local import LocalStore
from coldparquet.storage.log import TraceStore
from coldparquet.storage.memory import MemoryStore
from coldparquet.storage.requests import RangeRequest
from tests.support.paged_files import PagedFile, assert_same_pages, pages_beside, pages_by_chunk, written
from tests.support.questdb_tables import PARTITIONS, copy_parquet_partitions
from tests.support.small_tables import QuotingStore
from tests.support.table_copies import copy_table

TABLES = sorted({partition.table for partition in PARTITIONS})


def partition_of(directory: Path, data: bytes) -> Path:
    partition = directory / "t" / "2024-03-01"
    partition.mkdir(parents=True)
    (partition / "data.parquet").write_bytes(data)
    return partition


@pytest.mark.parametrize("name", TABLES)
async def test_every_page_of_questdb_is_described(tmp_path: Path, name: str) -> None:
    """Whether it has a page index or not, in all chunks or in some."""
    table = copy_parquet_partitions(name, tmp_path)
    report = await index_table(table, pages=True, pack=False)
    for done in report.partitions:
        assert done.pages is not None
        assert (done.pages.action, done.pages.reason) == ("written", None)
        assert done.pages.chunks_known == done.pages.chunk_count
        partition = Path(done.path).parent
        assert (partition / "_pages").stat().st_size == done.pages.size_bytes
        assert_same_pages(
            pages_beside(partition), PagedFile.of((partition / "data.parquet").read_bytes()).walked().pages
        )


async def test_without_the_flag_no_pages_are_written(tmp_path: Path) -> None:
    table = copy_parquet_partitions("interval_day", tmp_path)
    report = await index_table(table, pages=False, pack=False)
    assert {done.pages for done in report.partitions} == {None}
    assert not list(table.glob("*/_pages"))


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("has_index", [True, False])
async def test_files_of_arrow(tmp_path: Path, version: str, *, has_index: bool) -> None:
    data = written(data_page_version=version, write_page_index=has_index)
    partition = partition_of(tmp_path, data)
    [done] = (await index_table(partition, pages=True, pack=False)).partitions
    file = PagedFile.of(data)
    expected = (file.indexed() if has_index else file.walked()).pages
    assert_same_pages(pages_beside(partition), expected)
    assert done.pages is not None
    if has_index or version == "2.0":
        assert (done.pages.chunks_known, done.pages.reason) == (18, None)
    else:
        assert (done.pages.chunks_known, done.pages.chunk_count) == (15, 18)
        assert "do not say which rows they hold" in (done.pages.reason or "")


async def test_a_file_of_which_nothing_is_known_gets_none(tmp_path: Path) -> None:
    lists = pa.table({"values": pa.array([[1.0, 2.0]] * 100)})
    partition = partition_of(tmp_path, written(lists))
    [done] = (await index_table(partition, pages=True, pack=False)).partitions
    assert done.pages is not None
    assert (done.pages.action, done.pages.chunks_known) == ("skipped", 0)
    assert not (partition / "_pages").exists()


async def test_a_file_without_columns_gets_none_for_that_reason(tmp_path: Path) -> None:
    partition = partition_of(tmp_path, written(pa.table({})))
    [done] = (await index_table(partition, pages=True, pack=False)).partitions
    assert done.pages is not None
    assert (done.pages.action, done.pages.reason) == ("skipped", "no columns")


async def test_a_second_run_keeps_what_describes_the_file_and_replaces_what_does_not(tmp_path: Path) -> None:
    table = copy_parquet_partitions("interval_day", tmp_path)
    await index_table(table, pages=True, pack=False)
    first, second, *_ = sorted(table.glob("*/_pages"))
    good = first.read_bytes()
    times = {path: path.stat().st_mtime_ns for path in table.glob("*/_pages")}
    again = await index_table(table, pages=True, pack=False)
    assert (again.count_pages("kept"), again.count("kept")) == (4, 4)
    assert {path: path.stat().st_mtime_ns for path in table.glob("*/_pages")} == times
    first.write_bytes(good[:-1])
    second.write_bytes(good)  # of another partition
    mended = await index_table(table, pages=True, pack=False)
    assert (mended.count_pages("written"), mended.count_pages("kept")) == (2, 2)
    assert first.read_bytes() == good
    forced = await index_table(table, pages=True, force=True, pack=False)
    assert forced.count_pages("written") == 4
    assert first.read_bytes() == good


async def test_a_dry_run_writes_nothing_and_knows_the_size(tmp_path: Path) -> None:
    table = copy_parquet_partitions("interval_day", tmp_path)
    planned = await index_table(table, pages=True, dry_run=True, pack=False)
    assert planned.count_pages("would write") == 4
    assert {path.name for path in table.rglob("*") if path.is_file()} == {"data.parquet"}
    done = await index_table(table, pages=True, pack=False)
    for before, after in zip(planned.partitions, done.partitions, strict=True):
        assert before.pages is not None
        assert after.pages is not None
        assert before.pages.size_bytes == after.pages.size_bytes


async def test_partitions_of_a_transaction_are_described_at_their_committed_size(tmp_path: Path) -> None:
    """Whatever lies behind the committed bytes belongs to an update that was not finished."""
    table = copy_table("o3_in_place", tmp_path)
    expected = await index_table(table, pages=True, pack=False)
    sizes = [done.pages.size_bytes for done in expected.partitions if done.pages is not None]
    for data in table.glob("*/data.parquet"):
        with data.open("ab") as file:
            file.write(b"unfinished")
    after = await index_table(table, pages=True, force=True, pack=False)
    assert [done.pages.size_bytes for done in after.partitions if done.pages is not None] == sizes
    assert all(done.pages.chunks_known == done.pages.chunk_count for done in after.partitions if done.pages)


async def test_native_partitions_and_failures_get_none(tmp_path: Path) -> None:
    table = copy_table("interval_day", tmp_path)
    broken = min(path for path in table.iterdir() if (path / "data.parquet").exists())
    (broken / "data.parquet").write_bytes(b"PAR1")
    report = await index_table(table, pages=True, pack=False)
    by_action = {done.action: done.pages for done in report.partitions if done.action != "written"}
    assert by_action == {"failed": None, "skipped": None}


async def test_requests(tmp_path: Path) -> None:
    """With an index in the file one more request for it; without one the pages are read once, in few requests."""
    for has_index, reasons in ((True, ["page index"]), (False, ["page index", "page headers"])):
        partition = partition_of(tmp_path / str(has_index), written(write_page_index=has_index))
        trace = TraceStore(LocalStore())
        await index_table(str(partition), pages=True, store=trace, pack=False)
        tail = [
            (record.operation, record.path.rpartition("/")[2], record.reason)
            for record in trace.records
            if record.path.endswith("_pages") or record.reason in {"page index", "page headers"}
        ]
        assert tail[:-1] == [
            ("get", "_pages", "page index"),
            *(("get", "data.parquet", reason) for reason in reasons),
        ]
        assert tail[-1][:2] == ("put", "_pages")


async def test_large_chunks_are_walked_in_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than a window of a chunk is in memory, and what is skipped is not fetched."""
    rows = pa.table({"x": np.random.default_rng(1).random(40_000)})
    data = written(rows, use_dictionary=False, compression="none", row_group_size=40_000, data_page_size=65_536)
    partition = partition_of(tmp_path, data)
    monkeypatch.setattr(index_pages, "WINDOW_BYTES", 4_096)
    monkeypatch.setattr(page_headers, "WINDOW_BYTES", 4_096)
    trace = TraceStore(LocalStore())
    [done] = (await index_table(str(partition), pages=True, store=trace, pack=False)).partitions
    walked = [record for record in trace.records if record.reason == "page headers"]
    assert max(record.fetched_bytes for record in walked) <= 4_096
    assert sum(record.fetched_bytes for record in walked) < len(data) / 10
    monkeypatch.undo()
    assert len(walked) == len(PagedFile.of(data).walked().pages.starts)  # type: ignore[union-attr]
    assert_same_pages(pages_beside(partition), PagedFile.of(data).walked().pages)
    assert done.pages is not None
    assert done.pages.action == "written"


async def test_chunks_far_apart_are_read_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = written(use_dictionary=False)
    partition = partition_of(tmp_path, data)
    monkeypatch.setattr(index_pages, "WINDOW_BYTES", 30_000)
    trace = TraceStore(LocalStore())
    await index_table(str(partition), pages=True, store=trace, pack=False)
    walked = [record for record in trace.records if record.reason == "page headers"]
    assert len(walked) > 3
    assert_same_pages(pages_beside(partition), PagedFile.of(data).walked().pages)


@pytest.mark.parametrize(("store", "etag"), [(QuotingStore(), b'"1"'), (MemoryStore(), b"")])
async def test_the_version_is_noted_where_a_copy_has_the_same(store: MemoryStore, etag: bytes) -> None:
    await store.put("t/2024-03-01/data.parquet", written(), overwrite=False)
    await index_table("t/2024-03-01", pages=True, store=store, pack=False)
    answer = await MemoryStore.get(store, request_for("t/2024-03-01/_pages"))
    length = int.from_bytes(answer.data[60:64], "little")
    assert answer.data[68 : 68 + length] == etag


def request_for(path: str) -> RangeRequest:
    return RangeRequest(path=path, byte_range=ByteRange(0, 100_000), reason="test", may_be_short=True)


class RefusingPages(MemoryStore):
    """Takes no ``_pages``."""

    async def put(self, path: str, data: bytes, **options: Any) -> str:
        if path.endswith("_pages"):
            raise StorageError("the bucket is full", path=path)
        return await super().put(path, data, **options)


async def test_a_refused_write_fails_the_pages_and_not_the_sidecar() -> None:
    store = RefusingPages()
    await store.put("t/2024-03-01/data.parquet", written(), overwrite=False)
    [done] = (await index_table("t/2024-03-01", pages=True, store=store, pack=False)).partitions
    assert done.action == "written"
    assert done.pages is not None
    assert (done.pages.action, done.pages.reason) == ("failed", "_pages: the bucket is full")


async def test_damaged_pages_make_single_chunks_unknown(tmp_path: Path) -> None:
    data = bytearray(written(use_dictionary=False))
    file = PagedFile.of(bytes(data))
    data[file.places.starts[3]] ^= 0xFF
    partition = partition_of(tmp_path, bytes(data))
    [done] = (await index_table(partition, pages=True, pack=False)).partitions
    assert done.pages is not None
    assert done.pages.chunks_known == 14
    assert 3 not in pages_by_chunk(pages_beside(partition))
