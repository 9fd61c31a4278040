"""A publisher that is killed in any request: readers see the old table or the new one, and the next run completes it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest

from coldparquet.errors import ColdParquetError, InvalidInputError, NotFoundError, ObjectChangedError, StorageError
from coldparquet.publish import PublishOptions, publish_table
from coldparquet.storage.base import ObjectStore, StoreWrapper
from coldparquet.storage.checked import read_whole
from coldparquet.storage.log import TraceStore
from coldparquet.storage.memory import MemoryStore
from coldparquet.storage.requests import Upload, UploadedPart
from coldparquet.write import upload
from coldparquet_testing.stores import DyingStore
from tests.support.power_cut import few_or_all_points, tried
from tests.support.questdb_tables import assert_same_rows, plain
from tests.support.table_copies import (
    TABLE,
    change_columns,
    copy_table,
    expected_published_rows,
    put_in_state,
    read_rows,
)

PATH = "bucket/db/t"
When = Literal["before", "after"]


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the small files of the tests go in four parts or more."""
    monkeypatch.setattr(upload, "PART_BYTES", 16 * 1024)


async def unfinished(store: MemoryStore) -> int:
    return await store.remove_unfinished("bucket", started_before_s=float("inf"))


async def old_version(table: Path) -> MemoryStore:
    """A store in which the first state of the table is published."""
    store = MemoryStore()
    put_in_state(table, "0_converted")
    await publish_table(table, PATH, store=store)
    return store


def new_state(table: Path) -> None:
    """All partitions updated in place, symbols added, a column renamed."""
    put_in_state(table, None)
    change_columns(table)


async def call_count(table: Path, store: ObjectStore) -> int:
    living = DyingStore(store)
    await publish_table(table, PATH, store=living)
    return living.call_count


async def table_files_in(store: ObjectStore) -> dict[str, bytes]:
    """The objects beside the partitions, by path."""
    listing = await store.list(PATH)
    return {info.path: (await read_whole(store, info.path)).data for info in listing.objects}


async def rows_or_nothing(store: ObjectStore) -> pa.Table | None:
    try:
        return await read_rows(store, PATH)
    except NotFoundError:
        return None


@few_or_all_points
@pytest.mark.parametrize("when", ["before", "after"])
async def test_killed_in_any_request_of_the_first_run(tmp_path: Path, when: When, most_points: int | None) -> None:
    table = copy_table(TABLE, tmp_path)
    expected = expected_published_rows(None)
    undisturbed = MemoryStore()
    calls = await call_count(table, undisturbed)
    table_files = await table_files_in(undisturbed)
    seen = set()
    for at_call in tried(range(calls), most_points):
        store = MemoryStore()
        with pytest.raises(StorageError, match="killed"):
            await publish_table(table, PATH, store=DyingStore(store, at_call=at_call, when=when))
        found = await rows_or_nothing(store)
        assert found is None or found.num_rows == expected.num_rows
        seen.add(found is None)
        report = await publish_table(table, PATH, store=store)
        assert sum(report.count(action) for action in ("published", "converted", "found", "unchanged")) == 3
        assert_same_rows(await read_rows(store, PATH), expected)
        assert await table_files_in(store) == table_files, at_call
    assert seen == {True, False}


@few_or_all_points
@pytest.mark.parametrize("when", ["before", "after"])
async def test_killed_in_any_request_of_an_update(tmp_path: Path, when: When, most_points: int | None) -> None:
    table = copy_table(TABLE, tmp_path)
    counted = await old_version(table)
    old = await read_rows(counted, PATH)
    new_state(table)
    calls = await call_count(table, counted)
    new = await read_rows(counted, PATH)
    table_files = await table_files_in(counted)
    assert old.schema.names != new.schema.names
    assert calls > 30
    seen = set()
    for at_call in tried(range(calls), most_points):
        store = await old_version(table)
        new_state(table)
        with pytest.raises(StorageError, match="killed"):
            await publish_table(table, PATH, store=DyingStore(store, at_call=at_call, when=when))
        found = await read_rows(store, PATH)
        assert found.equals(old) or found.equals(new), at_call
        seen.add(found.num_rows)
        await publish_table(table, PATH, store=store)
        assert (await read_rows(store, PATH)).equals(new)
        assert await table_files_in(store) == table_files, at_call
        again = await publish_table(table, PATH, store=store)
        assert (again.is_committed, again.table_files) == (False, ())
    assert seen == ({old.num_rows} if when == "before" else {old.num_rows, new.num_rows})


async def test_a_killed_run_is_continued_not_repeated(tmp_path: Path) -> None:
    table = copy_table(TABLE, tmp_path)
    store = MemoryStore()
    commit_and_tidy_up = 2
    at_call = await call_count(table, MemoryStore()) - commit_and_tidy_up
    with pytest.raises(StorageError, match="killed"):
        await publish_table(table, PATH, store=DyingStore(store, at_call=at_call))
    trace = TraceStore(store)
    report = await publish_table(table, PATH, store=trace)
    written = [record.path for record in trace.records if record.status == "ok" and record.operation == "put"]
    assert (report.count("found"), report.cost.sent_bytes) == (3, 0)
    assert [path for path in written if "/2024" in path] == []
    assert written[-1] == f"{PATH}/_txn"


async def test_what_a_killed_upload_left_behind_is_removed_by_a_purge(tmp_path: Path) -> None:
    table = copy_table(TABLE, tmp_path)
    store = MemoryStore()
    trace = TraceStore(store)
    await publish_table(table, PATH, store=trace)
    at_call = [record.operation for record in trace.records].index("finish upload")
    store = MemoryStore()
    with pytest.raises(StorageError, match="killed"):
        await publish_table(table, PATH, store=DyingStore(store, at_call=at_call))
    await publish_table(table, PATH, store=store, options=PublishOptions(purge=True, purge_after_s=0))
    assert await unfinished(store) == 0
    assert await rows_or_nothing(store) is not None


class FailingStore(StoreWrapper):
    """Fails one call, as a network does; the process lives on."""

    def __init__(self, store: ObjectStore, *, part: int) -> None:
        super().__init__(store)
        self._part = part

    async def upload_part(self, upload: Upload, number: int, *, start: int, data: bytes) -> UploadedPart:
        if number == self._part:
            raise StorageError("connection reset", path=upload.path)
        return await super().upload_part(upload, number, start=start, data=data)


async def test_a_failed_upload_is_aborted_at_once(tmp_path: Path) -> None:
    store = MemoryStore()
    with pytest.raises(StorageError, match="connection reset"):
        await publish_table(copy_table(TABLE, tmp_path), PATH, store=FailingStore(store, part=3))
    assert await unfinished(store) == 0


async def test_cancelling_leaves_no_upload_and_no_task(tmp_path: Path) -> None:
    table = copy_table(TABLE, tmp_path)
    for delay_ms in range(0, 60, 4):
        store = MemoryStore()
        publishing = asyncio.create_task(publish_table(table, PATH, store=store))
        await asyncio.sleep(delay_ms / 1000)
        publishing.cancel()
        await asyncio.gather(publishing, return_exceptions=True)
        assert await unfinished(store) == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}
        found = await rows_or_nothing(store)
        assert found is None or plain(found).num_rows == expected_published_rows(None).num_rows


class InterruptedStore(StoreWrapper):
    """Lets another publisher come in between, right before the n-th write."""

    def __init__(self, store: ObjectStore, *, at_write: int, their_table: Path) -> None:
        super().__init__(store)
        self._remaining = at_write
        self._their_table = their_table

    async def put(
        self, path: str, data: bytes, *, overwrite: bool, if_match: str | None = None, storage_class: str | None = None
    ) -> str | None:
        self._remaining -= 1
        if self._remaining == -1:
            await publish_table(self._their_table, PATH, store=self._store)
        return await super().put(path, data, overwrite=overwrite, if_match=if_match, storage_class=storage_class)


async def put_count(table: Path, store: ObjectStore) -> int:
    trace = TraceStore(store)
    await publish_table(table, PATH, store=trace)
    return sum(record.operation == "put" for record in trace.records)


async def test_of_two_publishers_one_wins_and_no_versions_are_mixed(tmp_path: Path) -> None:
    slow, fast = copy_table(TABLE, tmp_path / "slow"), copy_table(TABLE, tmp_path / "fast")
    put_in_state(slow, "2_burst")
    new_state(fast)
    for at_write in range(await put_count(slow, await old_version(copy_table(TABLE, tmp_path / "counted")))):
        store = await old_version(copy_table(TABLE, tmp_path / str(at_write)))
        interrupted = InterruptedStore(store, at_write=at_write, their_table=fast)
        with pytest.raises(ObjectChangedError, match="another publisher") as caught:
            await publish_table(slow, PATH, store=interrupted)
        assert caught.value.kind == "PublisherConflict"
        found = await read_rows(store, PATH)
        assert (found.num_rows, found.schema.names[-1]) == (3044, "ts_renamed")
        with pytest.raises(InvalidInputError) as too_late:
            await publish_table(slow, PATH, store=store)
        assert too_late.value.kind == "SourceIsOlder"


async def test_publishers_of_one_state_at_once_agree(tmp_path: Path) -> None:
    table = copy_table(TABLE, tmp_path)
    store = MemoryStore()
    outcomes = await asyncio.gather(
        *(publish_table(table, PATH, store=store) for _ in range(4)), return_exceptions=True
    )
    for outcome in outcomes:
        assert not isinstance(outcome, BaseException) or (
            isinstance(outcome, ColdParquetError) and outcome.kind == "PublisherConflict"
        )
    await publish_table(table, PATH, store=store)
    assert (await read_rows(store, PATH)).num_rows == 3044
    assert (await read_whole(store, f"{PATH}/_txn")).data[:8] == (7).to_bytes(8, "little")


async def test_a_partition_purged_meanwhile_is_a_clear_error(tmp_path: Path) -> None:
    table = copy_table(TABLE, tmp_path)
    store = MemoryStore()

    async def purge() -> None:
        for file in (table / "2024-01-02.1").iterdir():
            file.unlink()

    with pytest.raises(ObjectChangedError, match="publish again") as caught:
        await publish_table(table, PATH, store=DyingPartition(store, purge))
    assert caught.value.kind == "SourceChanged"
    assert await rows_or_nothing(store) is None


class DyingPartition(StoreWrapper):
    """Lets a partition of the source vanish once some of its parts have been sent."""

    def __init__(self, store: ObjectStore, vanish: Callable[[], Awaitable[None]]) -> None:
        super().__init__(store)
        self._vanish = vanish

    async def start_upload(self, path: str, *, storage_class: str | None = None) -> Upload:
        if "2024-01-02" in path:
            await self._vanish()
        return await super().start_upload(path, storage_class=storage_class)
