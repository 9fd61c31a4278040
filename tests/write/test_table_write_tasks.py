"""A write in many tasks: attempts that fail or come twice change nothing, and of two writes one gets through; and what a dead one leaves."""

from __future__ import annotations

import os
import pickle
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import coldparquet as cp
from coldparquet.errors import InternalError, InvalidInputError, NotFoundError, ObjectChangedError
from coldparquet.storage.checked import read_whole
from coldparquet.storage.memory import MemoryStore
from coldparquet.write import StagedPart, WriteOptions, abort_write, join_parts, stage_rows, write_table
from coldparquet.write.begin import TableWrite, WriteMode, begin_write
from coldparquet.write.compact import CompactionOptions, compact_table
from coldparquet.write.table import commit_write
from tests.support.written_tables import in_order, names_in, overwritten, read_table, same_rows, ticks

URL = "bucket/trades"
OPTIONS = WriteOptions(row_group_rows=150, column_codecs={"price": "snappy"})


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


async def begin(store: MemoryStore, mode: WriteMode = "append") -> TableWrite:
    write = await begin_write(URL, ticks(1).schema, timestamp="ts", mode=mode, options=OPTIONS, store=store)
    assert write is not None
    sent: TableWrite = pickle.loads(pickle.dumps(write))  # noqa: S301 - as an engine sends it to its tasks
    return sent


async def stage(
    store: MemoryStore, write: TableWrite, rows: pa.Table, attempt: int, *, clustered: bool = False
) -> tuple[StagedPart, ...]:
    parts = await stage_rows(write, rows, attempt=attempt, clustered=clustered, store=store)
    returned: tuple[StagedPart, ...] = pickle.loads(pickle.dumps(parts))  # noqa: S301 - as above
    return returned


async def names(store: MemoryStore) -> list[str]:
    """Return what lies in the table's directory: names of objects and directories."""
    try:
        listing = await store.list(URL)
    except NotFoundError:
        return []
    found = (path.rpartition("/")[2] for path in (*listing.directories, *(info.path for info in listing.objects)))
    return sorted("_meta.v" if name.startswith("_meta.v") else name for name in found)


TABLE_FILES = ["_cv", "_meta", "_meta.v", "_name", "_todo_", "_txn"]


async def test_parts_of_several_tasks_become_one_partition(store: MemoryStore) -> None:
    tables = [ticks(400, seed=seed, distinct=24) for seed in range(4)]
    write = await begin(store)
    parts = [await stage(store, write, rows, attempt) for attempt, rows in enumerate(tables)]
    written = await commit_write(write, [part for found in parts for part in found], store=store)
    assert (written.is_new, written.new_rows, len(written.partitions)) == (True, 1600, 3)
    assert same_rows(await read_table(URL, store=store), in_order(tables))
    assert await names(store) == ["2024-01-01.1", "2024-01-02.1", "2024-01-03.1", *TABLE_FILES]


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize("clustered", [True, False])
async def test_tasks_write_to_a_table_that_exists(store: MemoryStore, mode: Any, clustered: bool) -> None:
    before = ticks(500, days=4, distinct=24)
    await write_table(URL, before, timestamp="ts", options=OPTIONS, store=store)
    days = [ticks(60, seed=1 + day, days=1, first_day=2 + day, distinct=24) for day in range(3)]
    write = await begin(store, mode)
    parts = [await stage(store, write, rows, attempt, clustered=clustered) for attempt, rows in enumerate(days)]
    if not clustered:
        days.append(ticks(90, seed=9, days=2, first_day=3, distinct=24))
        parts.append(await stage(store, write, days[-1], 3))
    await commit_write(write, [part for found in parts for part in found], store=store)
    added = in_order(days)
    expected = in_order([before, added]) if mode == "append" else overwritten(before, added)
    assert same_rows(await read_table(URL, store=store), expected)


async def test_partitions_may_be_joined_by_tasks(store: MemoryStore) -> None:
    tables = [ticks(100, seed=seed, distinct=10) for seed in range(3)]
    write = await begin(store)
    staged = [part for attempt, rows in enumerate(tables) for part in await stage(store, write, rows, attempt)]
    joined: list[StagedPart] = []
    for attempt, timestamp in enumerate(sorted({part.timestamp for part in staged})):
        of_day = [part for part in staged if part.timestamp == timestamp]
        joined += await join_parts(write, of_day, attempt=attempt, store=store)
    assert [part.is_whole for part in joined] == [True] * 3
    await commit_write(write, joined, store=store)
    assert same_rows(await read_table(URL, store=store), in_order(tables))


async def test_what_lost_attempts_have_written_is_removed_and_never_read(store: MemoryStore) -> None:
    rows = ticks(200)
    write = await begin(store)
    await stage(store, write, rows, attempt=0)  # a speculative copy that came second
    await stage(store, write, rows.slice(0, 50), attempt=1)  # one that was killed later
    parts = await stage(store, write, rows, attempt=2)
    await commit_write(write, parts, store=store)
    assert same_rows(await read_table(URL, store=store), in_order([rows]))
    assert await names(store) == ["2024-01-01.4", "2024-01-02.4", "2024-01-03.4", *TABLE_FILES]


async def test_a_table_that_is_not_committed_is_not_seen_and_nothing_is_left_of_it(store: MemoryStore) -> None:
    write = await begin(store)
    await stage(store, write, ticks(100), attempt=0)
    with pytest.raises(NotFoundError, match="being written for the first time") as unseen:
        await read_table(URL, store=store)
    assert unseen.value.kind == "NotWrittenYet"
    await abort_write(write, store=store)
    await abort_write(write, store=store)  # engines may call it once more
    assert await names(store) == []


async def test_an_aborted_write_leaves_the_table_as_it_was(store: MemoryStore) -> None:
    before = ticks(300)
    await write_table(URL, before, timestamp="ts", store=store)
    files = await names(store)
    for mode in ("append", "overwrite"):
        write = await begin(store, mode)
        await stage(store, write, ticks(100, seed=1), attempt=0, clustered=True)
        assert same_rows(await read_table(URL, store=store), in_order([before]))
        await abort_write(write, store=store)
        assert await names(store) == files


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("first", [0, 1])
async def test_of_two_writes_the_second_commit_fails_and_leaves_nothing(
    store: MemoryStore, is_new: bool, first: int
) -> None:
    tables = [ticks(120, seed=1), ticks(120, seed=2, days=5)]
    before = [] if is_new else [ticks(50)]
    if before:
        await write_table(URL, before[0], timestamp="ts", store=store)
    writes = [await begin(store) for _ in tables]
    staged = [
        await stage(store, write, rows, attempt=7, clustered=True) for write, rows in zip(writes, tables, strict=True)
    ]
    second = 1 - first
    await commit_write(writes[first], staged[first], store=store)
    with pytest.raises(ObjectChangedError, match="somebody else") as conflict:
        await commit_write(writes[second], staged[second], store=store)
    assert conflict.value.kind == "CommitConflict"
    await abort_write(writes[second], store=store)
    assert same_rows(await read_table(URL, store=store), in_order([*before, tables[first]]))
    await write_table(URL, tables[second], mode="append", store=store)
    assert same_rows(await read_table(URL, store=store), in_order([*before, tables[first], tables[second]]))
    assert [name for name in await names(store) if name.startswith("_writing")] == []


async def test_a_write_notices_early_that_its_table_has_changed(store: MemoryStore) -> None:
    await write_table(URL, ticks(50), timestamp="ts", store=store)
    write = await begin(store)
    await write_table(URL, ticks(50, seed=1), mode="append", store=store)
    with pytest.raises(ObjectChangedError, match="since the write began"):
        await stage(store, write, ticks(50, seed=2), attempt=0, clustered=True)


async def test_a_new_table_keeps_its_own_description_when_two_are_made(store: MemoryStore) -> None:
    """The loser has replaced `_meta` before it finds `_txn` there."""
    writes = [await begin(store) for _ in range(2)]
    other = ticks(30).rename_columns(["ts", "a", "b", "c"])
    rival = await begin_write(URL, other.schema, timestamp="ts", store=store)
    assert rival is not None
    parts = await stage_rows(rival, other, attempt=0, clustered=True, store=store)
    await commit_write(writes[0], await stage(store, writes[0], ticks(30), attempt=0, clustered=True), store=store)
    with pytest.raises(ObjectChangedError):
        await commit_write(rival, parts, store=store)
    await abort_write(rival, store=store)
    await abort_write(writes[1], store=store)
    assert same_rows(await read_table(URL, store=store), in_order([ticks(30)]))
    found = (await read_whole(store, f"{URL}/_meta")).data
    assert found == writes[0].metadata


async def test_tasks_that_wrongly_claim_to_have_all_rows_are_noticed(store: MemoryStore) -> None:
    write = await begin(store)
    parts = [
        *await stage(store, write, ticks(9), 0, clustered=True),
        *await stage(store, write, ticks(9), 1, clustered=True),
    ]
    with pytest.raises(InternalError, match="several tasks"):
        await commit_write(write, parts, store=store)
    await abort_write(write, store=store)
    assert await names(store) == []


async def test_an_unknown_argument_is_refused_by_every_step(store: MemoryStore) -> None:
    write = await begin(store)
    typo: dict[str, Any] = {"storage_option": {}}
    parts = await stage(store, write, ticks(9), 0)
    for step in (
        begin_write(URL, ticks(1).schema, timestamp="ts", **typo),
        stage_rows(write, ticks(9), attempt=1, clustered=True, **typo),
        join_parts(write, parts, attempt=1, **typo),
        abort_write(write, **typo),
    ):
        with pytest.raises(TypeError, match="storage_option'"):
            await step


async def test_rows_of_other_columns_are_refused_in_the_task(store: MemoryStore) -> None:
    write = await begin(store)
    with pytest.raises(InvalidInputError, match="lack side"):
        await stage(store, write, ticks(9).drop_columns(["side"]), 0)


@pytest.mark.parametrize("is_old", [True, False])
async def test_a_purge_removes_what_dead_writes_have_left_and_spares_the_living(tmp_path: Path, is_old: bool) -> None:
    table = str(tmp_path / "trades")
    await write_table(table, ticks(60), timestamp="ts")
    write = await begin_write(table, ticks(1).schema, mode="append")
    assert write is not None
    parts = await stage_rows(write, ticks(60, seed=1, days=5), attempt=0, clustered=True)
    before = set(names_in(tmp_path / "trades"))
    options = CompactionOptions(purge_after_s=0 if is_old else 3600)
    report = await compact_table(table, purge=True, options=options)
    gone = before - set(names_in(tmp_path / "trades"))
    if is_old:
        staged = {write.shape().directory_name(part.timestamp, part.version) for part in parts}
        assert gone == {write.versions.claim_name, *staged}
        assert set(report.purged) == staged
        with pytest.raises(ObjectChangedError, match="taken for dead") as given_up:
            await commit_write(write, parts)
        assert given_up.value.kind == "WriteGivenUp"
        await abort_write(write)
        expected = in_order([ticks(60)])
    else:
        assert gone == set()
        await commit_write(write, parts)
        expected = in_order([ticks(60), ticks(60, seed=1, days=5)])
    assert same_rows(await read_table(table), expected)


DAY_S = 24 * 3600


async def killed_write(table: Path, *, began_s_ago: float) -> tuple[TableWrite, tuple[StagedPart, ...]]:
    """Write rows of a new table, and never commit them."""
    rows = ticks(30, seed=1, days=2)
    write = await begin_write(table, rows.schema, timestamp="ts")
    assert write is not None
    parts = await stage_rows(write, rows, attempt=0, clustered=True)
    then_s = time.time() - began_s_ago
    os.utime(table / write.versions.claim_name, (then_s, then_s))
    return write, parts


async def test_the_next_write_removes_what_a_dead_one_has_left(tmp_path: Path) -> None:
    table, rows = tmp_path / "t", ticks(20, days=1)
    write, parts = await killed_write(table, began_s_ago=2 * DAY_S)
    with pytest.raises(NotFoundError):
        await read_table(table)
    await write_table(table, rows, timestamp="ts")
    assert same_rows(await read_table(table), in_order([rows]))
    async with cp.open_table(table) as opened:
        live = [partition.name for partition in opened.partitions]
    assert sorted(path.name for path in table.iterdir() if path.is_dir()) == live
    assert not list(table.glob("_writing.*"))
    # Should it come back to life, it finds that it was given up.
    with pytest.raises(ObjectChangedError):
        await commit_write(write, parts)
    assert same_rows(await read_table(table), in_order([rows]))


async def test_a_young_write_may_be_alive(tmp_path: Path) -> None:
    table = tmp_path / "t"
    write, parts = await killed_write(table, began_s_ago=DAY_S / 2)
    other = await begin_write(table, ticks(1).schema, timestamp="ts")
    assert other is not None
    assert (table / write.versions.claim_name).exists()
    written = await commit_write(write, parts)
    assert written.new_rows == 30
