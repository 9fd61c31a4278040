"""One writer commits updates, and compacts now and then, while readers scan: every scan is one committed state."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import coldparquet as cp
from coldparquet.catalog.table_files import TableFiles, read_table_files
from coldparquet.errors import ObjectChangedError
from coldparquet.format.partition_records import PartitionRecords
from coldparquet.records import replace
from coldparquet.storage.local import LocalStore
from coldparquet.write import WriteOptions, WrittenPartition, append_rows, replace_row_groups, write_partition
from coldparquet.write.compact import CompactionOptions, compact_table
from coldparquet.write.files import LocalFiles
from coldparquet.write.versions import commit_partitions
from tests.support.power_cut import UnflushedFiles
from tests.support.table_files import make_meta, make_txn
from tests.support.written_tables import SECOND_US, directories

GROUP_ROWS = 20
GROUPS = 3
APPENDED_ROWS = 2
APPEND_EVERY = 10
COMPACT_EVERY = 25
READERS = 2
PAUSE_S = 0.02
"""Readers of the same process hold the writer up; a pause after each scan lets it go on."""
DAY_US = 86_400 * SECOND_US
OPTIONS = WriteOptions(row_group_rows=GROUP_ROWS)
IS_PARQUET = 1 << 61


FILES = UnflushedFiles()


def rows(day: int, first: int, values: list[int]) -> pa.Table:
    times = day * DAY_US + np.arange(first, first + len(values)) * SECOND_US
    return pa.table({"ts": pa.array(times, pa.timestamp("us", "UTC")), "value": pa.array(values, pa.int64())})


@dataclass(frozen=True, slots=True)
class Seen:
    """What tells the committed states apart: no two updates write the same values."""

    row_count: int
    total: int


@dataclass(slots=True)
class Writer:
    """Updates the last partition in place, and commits each update; writes both partitions anew now and then."""

    path: Path
    values: list[int] = field(default_factory=lambda: [1] * (GROUPS * GROUP_ROWS))
    states: dict[int, Seen] = field(default_factory=dict)
    """What each transaction holds."""
    compactions: int = 0

    async def create(self) -> None:
        self.path.mkdir()
        sizes = []
        for day in (0, 1):
            directory = self.path / f"1970-01-0{day + 1}.1"
            written = await write_partition(directory, rows(day, 0, self.values), timestamp="ts", options=OPTIONS)
            sizes.append(written.parquet_size_bytes)
        (self.path / "_meta").write_bytes(make_meta([("ts", 8, {}), ("value", 6, {})]))
        count = len(self.values)
        content = make_txn(
            version=2,
            rows=(count, count),
            bounds=(0, DAY_US + (count - 1) * SECOND_US),
            structure=(9, 0),
            partitions=[(0, IS_PARQUET | count, 1, sizes[0]), (DAY_US, IS_PARQUET | count, 1, sizes[1])],
        )
        (self.path / "_txn").write_bytes(content)
        self._note(2)

    async def run(self, update_count: int) -> None:
        state = await self._read()
        for number in range(2, update_count + 2):
            if number % COMPACT_EVERY == 0:
                state = await self._compact(number)
            state = await self._update(state, number)

    async def _update(self, state: TableFiles, number: int) -> TableFiles:
        record = state.records.record(1)
        directory = self.path / f"1970-01-02.{record.name_txn}"
        arguments: dict[str, Any] = {
            "options": OPTIONS,
            "files": FILES,
            "committed_parquet_bytes": record.parquet_size,
        }
        value = number * 1_000_003
        updated: WrittenPartition
        if number % APPEND_EVERY == 0:
            new = [value] * APPENDED_ROWS
            updated = await append_rows(directory, rows(1, len(self.values), new), **arguments)
            self.values += new
        else:
            group = number % GROUPS
            start = group * GROUP_ROWS
            updated = await replace_row_groups(directory, {group: rows(1, start, [value] * GROUP_ROWS)}, **arguments)
            self.values[start : start + GROUP_ROWS] = [value] * GROUP_ROWS
        changed = replace(record, row_count=updated.row_count, parquet_size=updated.parquet_size_bytes)
        state = await commit_partitions(
            LocalStore(),
            str(self.path),
            started_from=state,
            partitions=PartitionRecords.of([state.records.record(0), changed]),
            time_bounds=(0, DAY_US + (len(self.values) - 1) * SECOND_US),
        )
        self._note(state.transaction.txn)
        return state

    async def _compact(self, number: int) -> TableFiles:
        options = CompactionOptions(write=OPTIONS)
        day = "1970-01-02" if number % (2 * COMPACT_EVERY) else "1970-01-01"
        report = await compact_table(self.path, partitions=[day], force=True, options=options, files=FILES)
        assert report.count("compacted") == 1
        self.compactions += 1
        state = await self._read()
        self._note(state.transaction.txn)
        return state

    async def _read(self) -> TableFiles:
        state = await read_table_files(LocalStore(), str(self.path))
        assert state is not None
        return state

    def _note(self, txn: int) -> None:
        count = GROUPS * GROUP_ROWS + len(self.values)
        self.states[txn] = Seen(count, GROUPS * GROUP_ROWS + sum(self.values))


async def read_while(path: Path, is_done: asyncio.Event, *, reopens: bool) -> list[tuple[int, Seen]]:
    """Scan again and again, and note what was seen in which transaction."""
    seen = []
    table = await cp.open_table(path)
    try:
        while not is_done.is_set():
            found = await table.scan().to_arrow()
            assert table.txn is not None
            seen.append((table.txn, Seen(found.num_rows, pc.sum(found.column("value")).as_py())))
            # What the statistics say belongs to the same state as the rows.
            largest = pc.max(found.column("value")).as_py()
            assert await table.scan(where=cp.col("value") == largest).count() in {
                GROUP_ROWS,
                APPENDED_ROWS,
                found.num_rows,
            }
            if reopens:
                await table.aclose()
                table = await cp.open_table(path)
            else:
                await table.refresh()
            await asyncio.sleep(PAUSE_S)
    finally:
        await table.aclose()
    return seen


async def run(path: Path, update_count: int) -> None:
    writer, is_done = Writer(path / "t"), asyncio.Event()
    await writer.create()

    async def write() -> None:
        try:
            # A thread and an event loop of its own, as another process would have.
            await asyncio.to_thread(asyncio.run, writer.run(update_count))
        finally:
            is_done.set()

    *read, _ = await asyncio.gather(
        *(read_while(writer.path, is_done, reopens=index % 2 == 0) for index in range(READERS)), write()
    )
    assert len(writer.states) == update_count + writer.compactions + 1
    assert writer.compactions == (update_count + 1) // COMPACT_EVERY
    for seen in read:
        assert seen is not None
        for txn, state in seen:
            assert writer.states[txn] == state, txn
        txns = [txn for txn, _ in seen]
        assert txns == sorted(txns)  # no reader goes back in time
        assert len(set(txns)) > 3  # they did read in between
    final = await compact_table(writer.path, purge=True, options=CompactionOptions(write=OPTIONS, purge_after_s=0))
    assert final.count("failed") == 0
    assert len(directories(writer.path)) == 2


@pytest.mark.slow
async def test_every_scan_is_the_state_of_its_transaction(tmp_path: Path) -> None:
    await run(tmp_path, 100)


@pytest.mark.soak
async def test_a_thousand_updates_and_forty_compactions(tmp_path: Path) -> None:
    await run(tmp_path, 1_000)


async def test_a_partition_that_is_updated_while_it_is_compacted_stays_as_it_was_updated(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "t")
    await writer.create()
    before = set(directories(writer.path))

    class UpdatedMeanwhile(LocalFiles):
        """Lets the writer in when the new version is complete, but not committed."""

        def rename(self, old: str, new: str) -> None:
            super().rename(old, new)
            asyncio.run(writer.run(3))

    report = await compact_table(writer.path, partitions=["1970-01-02"], force=True, files=UpdatedMeanwhile())
    [done] = report.partitions
    assert done.action == "failed"
    assert "was changed while it was written anew; compact it again" in str(done.reason)
    assert set(directories(writer.path)) == before
    async with cp.open_table(writer.path) as table:
        found = await table.scan().to_arrow()
    assert Seen(found.num_rows, pc.sum(found.column("value")).as_py()) == writer.states[5]


async def test_commits_to_other_partitions_do_not_disturb(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "t")
    await writer.create()

    class UpdatedMeanwhile(LocalFiles):
        def rename(self, old: str, new: str) -> None:
            super().rename(old, new)
            asyncio.run(writer.run(3))

    report = await compact_table(writer.path, partitions=["1970-01-01"], force=True, files=UpdatedMeanwhile())
    assert (report.count("compacted"), report.txn) == (1, 6)
    async with cp.open_table(writer.path) as table:
        assert [partition.name for partition in table.partitions] == ["1970-01-01.2", "1970-01-02.1"]
        found = await table.scan().to_arrow()
    assert Seen(found.num_rows, pc.sum(found.column("value")).as_py()) == writer.states[5]


async def test_two_writers_of_one_partition_lose_nothing(tmp_path: Path) -> None:
    """Each starts again when the other one was faster; both get all their rows in."""
    writer = Writer(tmp_path / "t")
    await writer.create()
    conflicts: list[str] = []

    async def append_ten(value: int) -> None:
        for _ in range(10):
            while True:
                state = await writer._read()
                record = state.records.record(0)
                new = replace(record, row_count=record.row_count, squash_count=(record.squash_count + value) % 1000)
                try:
                    await commit_partitions(
                        LocalStore(),
                        str(writer.path),
                        started_from=state,
                        partitions=PartitionRecords.of([new, state.records.record(1)]),
                    )
                    break
                except ObjectChangedError as error:
                    conflicts.append(error.kind)

    await asyncio.gather(append_ten(1), append_ten(20))
    state = await writer._read()
    assert state.records.record(0).squash_count == 210
    assert state.transaction.txn == 22
    assert set(conflicts) == {"CommitConflict"}
