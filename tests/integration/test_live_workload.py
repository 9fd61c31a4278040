"""Random statements against a running QuestDB, and readers beside a writer that does not wait for them."""

from __future__ import annotations

import asyncio
import random
import threading
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pytest

import coldparquet as cp
from coldparquet.errors import NotFoundError, ObjectChangedError
from tests.support.live_questdb import DAILY, LiveTable
from tests.support.questdb_tables import assert_same_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from coldparquet import Table

pytestmark = [pytest.mark.integration, pytest.mark.slow]

STEPS = 20
HELD_TABLES = 3
BATCHES = 60
BATCH_ROWS = 40
BATCHES_PER_READ = 10
READ_TIMEOUT_S = 10
HOUR_US = 3_600_000_000
WORKLOAD_TIMEOUT_S = 120


class Workload:
    """A table that changes at random. Every late row has a time of its own, so that the order of rows is certain."""

    def __init__(self, table: LiveTable, seed: int) -> None:
        self.table = table
        self.random = random.Random(seed)
        self.statements = 0
        self.days = 1
        table.run(DAILY.create())
        self.append()

    def step(self) -> None:
        """Change the table in one way."""
        changes = [self.append, self.append, self.insert_late, self.insert_late, self.insert_late]
        changes += [self.convert, self.convert_back, self.drop_one]
        self.random.choice(changes)()

    def append(self) -> None:
        self._insert(self.days, rows=self.random.randint(50, 900))

    def insert_late(self) -> None:
        self._insert(self.random.randint(1, self.days), rows=self.random.choice([1, 20, 150]))

    def convert(self) -> None:
        if "n" in self.table.formats:
            self.table.convert(*self._some("n"))

    def convert_back(self) -> None:
        if "P" in self.table.formats:
            self.table.convert_back(*self._some("P"))

    def drop_one(self) -> None:
        if len(self.table.partitions) > 1:
            self.table.run(f"ALTER TABLE {{t}} DROP PARTITION LIST '{self.random.choice(self.table.partitions)}'")

    def _some(self, kind: str) -> list[str]:
        """Choose partitions of one format."""
        partitions = zip(self.table.partitions, self.table.formats, strict=True)
        names = [name for name, its_kind in partitions if its_kind == kind]
        return self.random.sample(names, self.random.randint(1, len(names)))

    def _insert(self, day: int, *, rows: int) -> None:
        self.statements += 1
        second = self.random.randrange(86_400)
        start = f"{self._day(day)}T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}.{self.statements:06}Z"
        self.table.run(DAILY.insert(start, rows, seed=self.statements))
        self.days = max(self.days, int(self.table.partitions[-1].rpartition("-")[2]))

    def _day(self, day: int) -> str:
        return f"2024-03-{day:02}"


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 12))])
async def test_every_state_reads_as_questdb_answers(live_table: LiveTable, seed: int) -> None:
    workload = Workload(live_table, seed)
    held: list[tuple[Table, pa.Table]] = []
    async with AsyncExitStack() as stack:
        table = await stack.enter_async_context(cp.open_table(live_table.directory))
        for _ in range(STEPS):
            workload.step()
            expected = live_table.expected()
            await table.refresh()
            assert_same_rows(await table.scan().to_arrow(), expected)
            for older, rows in held:
                await assert_unchanged_or_gone(older, rows)
            held.append((await stack.enter_async_context(cp.open_table(live_table.directory)), expected))
            del held[:-HELD_TABLES]


async def assert_unchanged_or_gone(table: Table, expected: pa.Table) -> None:
    """An open table returns the rows that it had, unless QuestDB has removed the files that held them."""
    try:
        rows = await table.scan().to_arrow()
    except (NotFoundError, ObjectChangedError):
        return
    assert_same_rows(rows, expected)


async def test_readers_see_whole_transactions_in_order(live_table: LiveTable) -> None:
    live_table.run(DAILY.create(columns="number LONG"), DAILY.insert("2024-03-01", 600, seed=1, values="0"))
    live_table.convert("2024-03-01")
    assert live_table.formats == "Pn"

    reads = threading.Semaphore(0)

    def write() -> None:
        for batch in range(1, BATCHES + 1):
            if batch % BATCHES_PER_READ == 0:  # else a quick server may be done before the reader has looked twice
                reads.acquire(timeout=READ_TIMEOUT_S)
            start = f"2024-03-01T00:00:00.{batch:06}Z"
            live_table.send(DAILY.insert(start, BATCH_ROWS, seed=batch, values=str(batch), step=HOUR_US))

    seen, latest = 0, 0
    writer = asyncio.create_task(asyncio.to_thread(write))
    async with asyncio.timeout(WORKLOAD_TIMEOUT_S), cp.open_table(live_table.directory) as table:
        while not writer.done() or latest < BATCHES:
            await table.refresh()
            try:
                batches = (await table.scan(["number"]).to_arrow()).column("number")
            except (NotFoundError, ObjectChangedError):
                continue  # QuestDB moved a partition to a new directory and has removed the old one already
            counts = {entry["values"].as_py(): entry["counts"].as_py() for entry in pc.value_counts(batches)}
            assert counts.pop(0) == 600
            assert sorted(counts) == list(range(1, len(counts) + 1))
            assert set(counts.values()) <= {BATCH_ROWS}
            assert len(counts) >= latest
            seen, latest = seen + 1, len(counts)
            reads.release()
    await writer
    assert seen > 1
