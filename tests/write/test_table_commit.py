"""Commits of a new table state, all of it or nothing, for the first of two who started from the same state; and claims of versions."""

from __future__ import annotations

import asyncio
import fcntl
import os
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

import coldparquet as cp
from coldparquet.catalog.table_files import TableFiles, read_table_files
from coldparquet.errors import InvalidInputError, NotFoundError, ObjectChangedError, StorageError
from coldparquet.format.partition_records import PartitionRecords
from coldparquet.records import replace
from coldparquet.storage.base import ObjectStore, StoreWrapper
from coldparquet.storage.local import LocalStore
from coldparquet.storage.memory import MemoryStore
from coldparquet.write.files import no_server
from coldparquet.write.versions import (
    VersionRange,
    check_nothing_unfinished,
    claim_versions,
    claims,
    commit_partitions,
    release_versions,
)
from tests.support.questdb_tables import GOLDEN
from tests.support.table_copies import contents_of, copy_table
from tests.support.written_tables import in_memory

TABLES = sorted(path.name for path in GOLDEN.iterdir() if (path / "table").is_dir())


async def files_of(store: ObjectStore, path: Path | str) -> TableFiles:
    files = await read_table_files(store, str(path))
    assert files is not None
    return files


def without_first(files: TableFiles) -> PartitionRecords:
    """All partitions but the oldest one."""
    return PartitionRecords.of(files.records.record(index) for index in range(1, len(files.records)))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return copy_table("interval_month", tmp_path)


async def test_readers_see_the_new_state_once_they_refresh(table: Path) -> None:
    store = LocalStore()
    before = await files_of(store, table)
    async with cp.open_table(table) as opened:
        names = [partition.name for partition in opened.partitions]
        after = await commit_partitions(store, str(table), started_from=before, partitions=without_first(before))
        assert [partition.name for partition in opened.partitions] == names
        assert await opened.refresh()
        assert [partition.name for partition in opened.partitions] == names[1:]
        assert opened.txn == after.transaction.txn == before.transaction.txn + 1
    found = await files_of(store, table)
    assert found.transaction.truncate_version == before.transaction.truncate_version + 1
    assert found.records.timestamps.tolist() == after.records.timestamps.tolist()


async def test_a_commit_can_start_from_the_one_before_it(table: Path) -> None:
    store = LocalStore()
    state = await files_of(store, table)
    first = state.transaction.txn
    for number in range(1, 4):
        state = await commit_partitions(store, str(table), started_from=state, partitions=state.records)
        assert state.transaction.txn == first + number
    state = await commit_partitions(store, str(table), started_from=state, partitions=state.records, least_txn=100)
    assert (await files_of(store, table)).transaction.txn == state.transaction.txn == 100


LATE_US = 4_000_000_000_000_000
"""After the begin of the last partition, as every largest timestamp is."""


async def test_time_bounds_are_those_of_the_rows(table: Path) -> None:
    store = LocalStore()
    state = await files_of(store, table)
    bounds = (state.transaction.min_timestamp, state.transaction.max_timestamp)
    state = await commit_partitions(store, str(table), started_from=state, partitions=state.records)
    assert (state.transaction.min_timestamp, state.transaction.max_timestamp) == bounds
    await commit_partitions(store, str(table), started_from=state, partitions=state.records, time_bounds=(1, LATE_US))
    found = (await files_of(store, table)).transaction
    assert (found.min_timestamp, found.max_timestamp) == (1, LATE_US)


@pytest.mark.parametrize("where", ["disk", "memory"])
async def test_of_two_commits_from_one_state_the_second_changes_nothing(table: Path, where: str) -> None:
    store: ObjectStore = LocalStore() if where == "disk" else await in_memory(table)
    path = str(table) if where == "disk" else "t"
    started_from = await files_of(store, path)
    await commit_partitions(store, path, started_from=started_from, partitions=without_first(started_from))
    committed = await files_of(store, path)
    with pytest.raises(ObjectChangedError, match="somebody else has committed") as caught:
        await commit_partitions(store, path, started_from=started_from, partitions=started_from.records)
    assert caught.value.kind == "CommitConflict"
    assert caught.value.details["started_from"] == started_from.transaction.txn
    found = await files_of(store, path)
    assert found.transaction.txn == committed.transaction.txn
    assert len(found.records) == len(started_from.records) - 1


class RivalStore(StoreWrapper):
    """Lets another process commit in the last moment: after `_txn` was read and before it is replaced."""

    def __init__(self, store: ObjectStore, path: str, started_from: TableFiles) -> None:
        super().__init__(store)
        self._path = path
        self._started_from = started_from

    async def put(self, path: str, data: bytes, **options: Any) -> str | None:
        await commit_partitions(
            self._store, self._path, started_from=self._started_from, partitions=without_first(self._started_from)
        )
        return await super().put(path, data, **options)


@pytest.mark.parametrize("where", ["disk", "memory"])
async def test_a_commit_in_the_last_moment_wins(table: Path, where: str) -> None:
    store: ObjectStore = LocalStore() if where == "disk" else await in_memory(table)
    path = str(table) if where == "disk" else "t"
    started_from = await files_of(store, path)
    rival = RivalStore(store, path, started_from)
    with pytest.raises(ObjectChangedError) as caught:
        await commit_partitions(rival, path, started_from=started_from, partitions=started_from.records)
    assert caught.value.kind == "CommitConflict"
    assert len((await files_of(store, path)).records) == len(started_from.records) - 1


async def test_partitions_that_are_no_state_of_a_table_are_refused(table: Path) -> None:
    store = LocalStore()
    state = await files_of(store, table)
    records = [state.records.record(index) for index in range(len(state.records))]
    before = contents_of(table)
    for wrong in ([*records[1:], records[0]], [replace(records[0], row_count=-1), *records[1:]]):
        with pytest.raises(InvalidInputError):
            await commit_partitions(store, str(table), started_from=state, partitions=PartitionRecords.of(wrong))
    for bounds in ((LATE_US, 1), (1, 2)):  # in the wrong order; the last partition begins later
        with pytest.raises(InvalidInputError):
            await commit_partitions(store, str(table), started_from=state, partitions=state.records, time_bounds=bounds)
    assert contents_of(table) == before


async def test_a_table_that_is_gone(table: Path) -> None:
    store = LocalStore()
    state = await files_of(store, table)
    (table / "_txn").unlink()
    with pytest.raises(NotFoundError):
        await commit_partitions(store, str(table), started_from=state, partitions=state.records)
    assert not (table / "_txn").exists()


async def test_a_running_server_is_noticed(table: Path, tmp_path: Path) -> None:
    store = LocalStore()
    state = await files_of(store, table)
    lock_file = tmp_path / "tables.d.lock"
    with lock_file.open("w") as server:
        fcntl.flock(server, fcntl.LOCK_EX)  # as QuestDB does from its start to its end
        before = contents_of(table)
        with pytest.raises(InvalidInputError, match="stop the server, or work on a copy") as caught:
            await commit_partitions(store, str(table), started_from=state, partitions=state.records)
        assert caught.value.kind == "ServerRunning"
        link = tmp_path / "elsewhere" / "link"
        link.parent.mkdir()
        link.symlink_to(table)
        with pytest.raises(InvalidInputError, match="stop the server"), no_server(str(link)):
            pass
        assert contents_of(table) == before
    await commit_partitions(store, str(table), started_from=state, partitions=state.records)


def test_no_server_starts_meanwhile(tmp_path: Path) -> None:
    (tmp_path / "tables.d.lock").touch()
    descriptor = os.open(tmp_path / "tables.d.lock", os.O_RDWR)
    with no_server(str(tmp_path / "one")), no_server(str(tmp_path / "two")), pytest.raises(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(descriptor)


@pytest.mark.parametrize("name", TABLES)
async def test_servers_that_were_stopped_leave_nothing_unfinished(name: str) -> None:
    await check_nothing_unfinished(LocalStore(), str(GOLDEN / name / "table"))


async def test_a_change_that_a_server_left_half_done_is_noticed(table: Path) -> None:
    await check_nothing_unfinished(LocalStore(), str(table))
    content = bytearray((table / "_todo_").read_bytes())
    content[32] = 1
    (table / "_todo_").write_bytes(content)
    with pytest.raises(InvalidInputError, match="was killed while it changed this table") as caught:
        await check_nothing_unfinished(LocalStore(), str(table))
    assert caught.value.kind == "UnfinishedChange"
    (table / "_todo_").unlink()  # a copy does not need it
    await check_nothing_unfinished(LocalStore(), str(table))


PATH = "bucket/trades"


async def directories_in(store: MemoryStore) -> list[str]:
    return [path.rpartition("/")[2] for path in (await store.list(PATH)).directories]


class SlowListings(StoreWrapper):
    """Lets others in between every listing and what follows."""

    async def list(self, path: str, *, first_page_only: bool = False):  # type: ignore[no-untyped-def]  # noqa: ANN201
        found = await super().list(path, first_page_only=first_page_only)
        await asyncio.sleep(0)
        return found


async def test_writes_at_the_same_time_get_ranges_of_their_own() -> None:
    store = MemoryStore()
    found = await asyncio.gather(*(claim_versions(SlowListings(store), PATH, txn=None) for _ in range(4)))
    for one, other in combinations(found, 2):
        assert one.stop <= other.first or other.stop <= one.first
    assert set(claims(await store.list(PATH))) == {VersionRange(claimed.first) for claimed in found}


@pytest.mark.parametrize(("txn", "first"), [(None, 0), (0, 65_537), (41, 65_578)])
async def test_the_first_version_leaves_room_for_others(txn: int | None, first: int) -> None:
    assert (await claim_versions(MemoryStore(), PATH, txn=txn)).first == first


async def test_versions_that_are_there_are_not_used_again() -> None:
    store = MemoryStore()
    await store.put(f"{PATH}/2024-01-01.99/data.parquet", b"", overwrite=False)
    assert (await claim_versions(store, PATH, txn=None)).first == 100


async def test_only_what_belongs_to_the_range_is_removed() -> None:
    store = MemoryStore()
    claimed = await claim_versions(store, PATH, txn=7)
    inside = [f"2024-01-0{day}.{claimed.first + day}" for day in (1, 2, 3)]
    for name in (*inside, "2024-01-01.7", "2024-01-01", f"2024-01-01.{claimed.stop}", "notes.70000"):
        await store.put(f"{PATH}/{name}/data.parquet", b"", overwrite=False)
    await release_versions(store, PATH, claimed, keep=frozenset({inside[1]}))
    assert await directories_in(store) == sorted(
        [inside[1], "2024-01-01.7", "2024-01-01", f"2024-01-01.{claimed.stop}", "notes.70000"]
    )
    assert claims(await store.list(PATH)) == ()


async def test_a_range_that_was_released_is_not_released_for_its_next_owner() -> None:
    store = MemoryStore()
    first = await claim_versions(store, PATH, txn=None)
    await release_versions(store, PATH, first)
    second = await claim_versions(store, PATH, txn=None)
    assert second.first == first.first
    await store.put(f"{PATH}/2024-01-01.{second.first}/data.parquet", b"", overwrite=False)
    await release_versions(store, PATH, first)
    assert await directories_in(store) == [f"2024-01-01.{second.first}"]
    assert len(claims(await store.list(PATH))) == 1


class AlwaysTaken(StoreWrapper):
    """Has another process claim whatever is claimed, a moment before."""

    async def put(self, path: str, data: bytes, **options: object) -> str | None:
        await self._store.put(path, b"theirs", overwrite=True)
        return await self._store.put(path, data, **options)  # type: ignore[arg-type]


async def test_who_never_gets_a_turn_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldparquet.write.versions._LONGEST_PAUSE_S", 0.0)
    with pytest.raises(StorageError, match="others keep") as busy:
        await claim_versions(AlwaysTaken(MemoryStore()), PATH, txn=None)
    assert busy.value.kind == "TableBusy"
