"""Following real tables without Spark: which rows come, after which requests, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coldparquet as cp
from coldparquet.errors import InvalidInputError, ObjectChangedError
from coldparquet.follow.follower import FollowedRows, TableFollower
from coldparquet.follow.progress import EVERYTHING, OnChange, StepLimit
from coldparquet.follow.state import decode_state, encode_state
from coldparquet.format.native import COLUMN_VERSION, ColumnVersions, encode_column_versions
from coldparquet.pieces import read_piece_batches
from coldparquet.publish import publish_table
from coldparquet.storage.base import ObjectStore
from coldparquet.storage.memory import MemoryStore
from tests.support.growing_tables import GrowingTable
from tests.support.table_copies import NATIVE_ROWS, TABLE, copy_table, expected_published_rows, put_in_state

NO_COLUMN_VERSIONS = ColumnVersions(version=0, records=np.empty(0, COLUMN_VERSION))


class Job:
    """A job that follows a table: it opens it, goes on from its checkpoint, and may be stopped at any time."""

    def __init__(
        self, url: str, *, on_change: OnChange = "error", where: str | None = None, store: ObjectStore | None = None
    ) -> None:
        self.url, self.on_change, self.where, self.store = url, on_change, where, store
        self.checkpoint: dict[str, Any] | None = None
        self.seen: Counter[int] = Counter()
        self.requests: list[str] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[TableFollower]:
        async with cp.open_table(self.url, store=self.store) as table:
            rows = FollowedRows(columns=("number",), where=self.where)
            follower = TableFollower(table, rows, on_change=self.on_change, options=cp.ReadOptions())
            if self.checkpoint is None:
                self.checkpoint = encode_state((await follower.look()).with_nothing_delivered())
            yield follower
            self.requests = [record.reason for record in table.request_log]

    async def step(self, follower: TableFollower, limit: StepLimit = EVERYTHING) -> list[int]:
        assert self.checkpoint is not None
        start = decode_state(json.loads(json.dumps(self.checkpoint)))
        end = await follower.next_state(start, await follower.look(), limit=limit)
        numbers = await self.read(follower, start, end)
        self.checkpoint = encode_state(end)
        self.seen.update(numbers)
        return numbers

    async def read(self, follower: TableFollower, start: Any, end: Any) -> list[int]:
        numbers: list[Any] = []
        for piece in await follower.pieces(start, end):
            for batch in read_piece_batches(piece.to_bytes(), store=self.store):
                numbers += batch.column(0).to_pylist()
        return numbers

    async def run_once(self, limit: StepLimit = EVERYTHING) -> list[int]:
        async with self.running() as follower:
            return await self.step(follower, limit)


async def test_new_partitions_and_new_rows_come_once(tmp_path: Path) -> None:
    table = GrowingTable(tmp_path / "table")
    job = Job(str(table.directory))
    await table.publish(1, 10)
    async with job.running() as follower:
        assert await job.step(follower) == list(range(10))
        assert await job.step(follower) == []
        await table.publish(2, 5)
        await table.append(1, 6)
        assert await job.step(follower) == [15, 16, 17, 18, 19, 20, 10, 11, 12, 13, 14]
    await table.append(2, 3)
    assert await job.run_once() == [21, 22, 23]
    assert job.seen == Counter(table.all_numbers)


async def test_limits_cut_partitions_and_row_groups(tmp_path: Path) -> None:
    table = GrowingTable(tmp_path / "table", row_group_rows=4)
    for day in (1, 2, 3):
        await table.publish(day, 10)
    job = Job(str(table.directory))
    async with job.running() as follower:
        steps = [await job.step(follower, StepLimit(rows=7)) for _ in range(5)]
    assert [len(numbers) for numbers in steps] == [7, 7, 7, 7, 2]
    assert [number for numbers in steps for number in numbers] == table.all_numbers
    by_partition = Job(str(table.directory))
    async with by_partition.running() as follower:
        assert [len(await by_partition.step(follower, StepLimit(partitions=2))) for _ in range(3)] == [20, 10, 0]


async def test_a_condition_does_not_change_which_rows_are_done(tmp_path: Path) -> None:
    table = GrowingTable(tmp_path / "table", row_group_rows=4)
    await table.publish(1, 10)
    job = Job(str(table.directory), where="number >= 3 and number != 5")
    async with job.running() as follower:
        steps = [await job.step(follower, StepLimit(rows=4)) for _ in range(4)]
    assert steps == [[3], [4, 6, 7], [8, 9], []]
    async with cp.open_table(str(table.directory)) as opened:
        rows = FollowedRows(columns=("number",), where="number > 1 or ts < now()")
        with pytest.raises(InvalidInputError, match=r"depends on now\(\).* write a fixed time"):
            TableFollower(opened, rows, on_change="error", options=cp.ReadOptions())


async def test_rewritten_partitions_stop_the_job_or_come_again(tmp_path: Path) -> None:
    table = GrowingTable(tmp_path / "table")
    await table.publish(1, 4)
    await table.publish(2, 4)
    jobs = {on_change: Job(str(table.directory), on_change=on_change) for on_change in ("error", "ignore", "reread")}
    for job in jobs.values():
        await job.run_once()
    await table.rewrite(1, more=2)
    with pytest.raises(ObjectChangedError, match=r"1970-01-02\.\d+: 6 rows, 4 before") as caught:
        await jobs["error"].run_once()
    assert caught.value.kind == "PartitionsRewritten"
    assert await jobs["ignore"].run_once() == []
    assert await jobs["reread"].run_once() == [8, 9, 0, 1, 2, 3]
    await table.append(1, 2)
    assert await jobs["ignore"].run_once() == [10, 11]
    assert await jobs["reread"].run_once() == [10, 11]


async def test_a_compacted_partition_holds_the_same_rows_for_who_trusts_that(tmp_path: Path) -> None:
    table = GrowingTable(tmp_path / "table")
    await table.publish(1, 4)
    job = Job(str(table.directory), on_change="append")
    await job.run_once()
    await table.rewrite(1)
    assert await job.run_once() == []
    await table.append(1, 3)
    assert await job.run_once() == [4, 5, 6]


async def test_dropped_partitions_are_refused_only_while_rows_are_left(tmp_path: Path) -> None:
    table = GrowingTable(tmp_path / "table")
    for day in (1, 2):
        await table.publish(day, 4)
    job = Job(str(table.directory))
    await job.run_once(StepLimit(rows=6))
    table.drop(1)
    assert await job.run_once(StepLimit(rows=1)) == [6]
    await table.publish(3, 2)
    table.drop(2)
    with pytest.raises(ObjectChangedError, match="1970-01-03") as caught:
        await job.run_once()
    assert caught.value.kind == "PartitionsDropped"
    job.on_change = "ignore"
    assert await job.run_once() == [8, 9]


async def test_a_step_is_repeated_after_a_restart_although_the_partition_has_grown(tmp_path: Path) -> None:
    table = GrowingTable(tmp_path / "table")
    await table.publish(1, 6)
    job = Job(str(table.directory))
    async with job.running() as follower:
        start = (await follower.look()).with_nothing_delivered()
        end = await follower.next_state(start, await follower.look(), limit=StepLimit(rows=5))
    await table.append(1, 3)
    async with job.running() as follower:
        assert await job.read(follower, start, end) == [0, 1, 2, 3, 4]
        job.checkpoint = encode_state(end)
        assert await job.step(follower) == [5, 6, 7, 8]


async def test_a_step_is_repeated_from_the_replaced_version_while_that_is_kept(tmp_path: Path) -> None:
    table = GrowingTable(tmp_path / "table")
    await table.publish(1, 6)
    old_directory = table.path_of(1)
    job = Job(str(table.directory))
    async with job.running() as follower:
        start = (await follower.look()).with_nothing_delivered()
        end = await follower.next_state(start, await follower.look(), limit=EVERYTHING)
    await table.rewrite(1, more=2)
    async with job.running() as follower:
        assert await job.read(follower, start, end) == [0, 1, 2, 3, 4, 5]
    shutil.rmtree(old_directory)
    for on_change in ("error", "ignore"):
        job.on_change = on_change
        async with job.running() as follower:
            with pytest.raises(ObjectChangedError, match="begin with a new checkpoint") as caught:
                await job.read(follower, start, end)
        assert caught.value.kind == "StepNotRepeatable"
    job.on_change = "append"
    async with job.running() as follower:  # the person's promise, which this table breaks
        assert await job.read(follower, start, end) == [6, 7, 0, 1, 2, 3]
    job.on_change = "reread"
    async with job.running() as follower:
        assert await job.read(follower, start, end) == [6, 7, 0, 1, 2, 3, 4, 5]
    await table.publish(2, 1)
    table.drop(1)
    async with job.running() as follower:
        assert await job.read(follower, start, end) == []
    job.on_change = "append"
    async with job.running() as follower:
        with pytest.raises(ObjectChangedError, match="begin with a new checkpoint"):
            await job.read(follower, start, end)


async def test_without_transactions_names_sizes_and_versions_decide(tmp_path: Path) -> None:
    table = GrowingTable(tmp_path / "table", has_transactions=False)
    await table.publish(1, 4)
    job = Job(str(table.directory))
    async with job.running() as follower:
        assert await job.step(follower) == [0, 1, 2, 3]
        await table.publish(2, 5)
        assert await job.step(follower, StepLimit(rows=3)) == [4, 5, 6]
    assert await job.run_once() == [7, 8]
    await table.append(2, 2)
    with pytest.raises(ObjectChangedError, match=r"1970-01-03.*: 7 rows, 5 before") as caught:
        await job.run_once()
    assert caught.value.kind == "PartitionsRewritten"
    job.on_change = "append"
    assert await job.run_once() == [9, 10]


async def test_an_object_store_without_transactions(tmp_path: Path) -> None:
    store, table = MemoryStore(), GrowingTable(tmp_path / "table", has_transactions=False)
    await table.publish(1, 4)
    await table.copy_to(store, "lake/table")
    job = Job("lake/table", store=store)
    assert await job.run_once() == [0, 1, 2, 3]
    await table.publish(2, 2)
    await table.copy_to(store, "lake/table")
    assert await job.run_once() == [4, 5]


async def test_rows_that_questdb_wrote_in_place(tmp_path: Path) -> None:
    """A genuine table: late rows went into its first partitions, whose last row groups were replaced."""
    path = copy_table(TABLE, tmp_path)
    put_in_state(path, "0_converted")
    expected = expected_published_rows("0_converted").num_rows - NATIVE_ROWS
    counts = {}
    for on_change in ("error", "reread"):
        put_in_state(path, "0_converted")
        async with cp.open_table(path) as table:
            rows = FollowedRows(columns=tuple(table.schema.names), where=None)
            follower = TableFollower(table, rows, on_change=on_change, options=cp.ReadOptions())
            nothing = (await follower.look()).with_nothing_delivered()
            first = await follower.next_state(nothing, await follower.look(), limit=EVERYTHING)
            pieces = await follower.pieces(nothing, first)
            assert sum(batch.num_rows for piece in pieces for batch in read_piece_batches(piece)) == expected
            put_in_state(path, "1_one_late_row")
            if on_change == "error":
                with pytest.raises(ObjectChangedError, match="have changed since"):
                    await follower.next_state(first, await follower.look(), limit=EVERYTHING)
                continue
            second = await follower.next_state(first, await follower.look(), limit=EVERYTHING)
            pieces = await follower.pieces(first, second)
            counts[on_change] = sum(batch.num_rows for piece in pieces for batch in read_piece_batches(piece))
    assert 0 < counts["reread"] < expected


async def test_one_partition_is_no_table_to_follow(tmp_path: Path) -> None:
    table = GrowingTable(tmp_path / "table")
    await table.publish(1, 4)
    with pytest.raises(InvalidInputError, match="give the directory of the table") as caught:
        await Job(str(table.path_of(1))).run_once()
    assert caught.value.kind == "NotATable"


async def test_a_published_partition_that_was_appended_to_has_grown(tmp_path: Path) -> None:
    """It comes in another directory, whose file begins with the earlier one."""
    table, store = GrowingTable(tmp_path / "table"), MemoryStore()
    await table.publish(1, 6)
    (table.directory / "_cv").write_bytes(encode_column_versions(NO_COLUMN_VERSIONS))
    await publish_table(table.directory, "lake/table", store=store)
    job = Job("lake/table", store=store)
    assert await job.run_once() == [0, 1, 2, 3, 4, 5]
    await table.append(1, 3)
    await publish_table(table.directory, "lake/table", store=store)
    async with cp.open_table("lake/table", store=store) as published, cp.open_table(table.directory) as source:
        assert published.partitions[0].name != source.partitions[0].name
    assert await job.run_once() == [6, 7, 8]
    await table.rewrite(1)
    await publish_table(table.directory, "lake/table", store=store)
    with pytest.raises(ObjectChangedError, match="9 rows, 9 before"):
        await job.run_once()
