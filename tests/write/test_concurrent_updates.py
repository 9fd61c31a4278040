"""A writer updates a partition in place while readers scan: every scan is one committed state, none fails."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import coldparquet as cp
from coldparquet.errors import ObjectChangedError
from coldparquet.write import WriteOptions, WrittenPartition, append_rows, replace_row_groups, write_partition
from tests.support.power_cut import UnflushedFiles
from tests.support.table_files import make_meta, make_txn
from tests.support.written_tables import SECOND_US

GROUP_ROWS = 10
GROUPS = 4
OPTIONS = WriteOptions(row_group_rows=GROUP_ROWS)
APPEND_EVERY = 20
APPENDED_ROWS = 3


FILES = UnflushedFiles()


def rows(first: int, versions: list[int]) -> pa.Table:
    numbers = np.arange(first, first + len(versions))
    return pa.table(
        {
            "ts": pa.array(numbers * SECOND_US, pa.timestamp("us", "UTC")),
            "number": pa.array(numbers),
            "version": pa.array(versions, pa.int64()),
        }
    )


class Table:
    """One partition whose rows all say in which update they were written."""

    def __init__(self, path: Path, *, has_transaction: bool) -> None:
        self.path = path
        self.partition = path / "1970-01-01.1"
        self.has_transaction = has_transaction
        self.versions = [0] * (GROUPS * GROUP_ROWS)
        self.states: set[tuple[int, ...]] = {tuple(self.versions)}

    async def create(self) -> None:
        written = await write_partition(self.partition, rows(0, self.versions), timestamp="ts", options=OPTIONS)
        if self.has_transaction:
            (self.path / "_meta").write_bytes(make_meta([("ts", 8, {}), ("number", 6, {}), ("version", 6, {})]))
            self._commit(1, written.parquet_size_bytes)

    async def update(self, number: int) -> None:
        """Append some rows, or write a row group anew."""
        arguments: dict[str, Any] = {"options": OPTIONS, "files": FILES}
        updated: WrittenPartition
        if number % APPEND_EVERY == 0:
            new = [number] * APPENDED_ROWS
            self._announce([*self.versions, *new])
            updated = await append_rows(self.partition, rows(len(self.versions) - len(new), new), **arguments)
        else:
            group = number % GROUPS
            changed = slice(group * GROUP_ROWS, (group + 1) * GROUP_ROWS)
            self._announce([*self.versions[: changed.start], *([number] * GROUP_ROWS), *self.versions[changed.stop :]])
            new_group = {group: rows(changed.start, [number] * GROUP_ROWS)}
            updated = await replace_row_groups(self.partition, new_group, **arguments)
        if self.has_transaction:
            self._commit(number + 1, updated.parquet_size_bytes)

    def _announce(self, versions: list[int]) -> None:
        """From now on readers may see this state."""
        self.versions = versions
        self.states.add(tuple(versions))

    def _commit(self, txn: int, parquet_size_bytes: int) -> None:
        is_parquet = 1 << 61
        bounds = (0, (len(self.versions) - 1) * SECOND_US)
        content = make_txn(
            version=txn,
            rows=(len(self.versions), 0),
            bounds=bounds,
            structure=(9, 0),
            partitions=[(0, is_parquet, 1, parquet_size_bytes)],
        )
        (self.path / "_txn.new").write_bytes(content)
        (self.path / "_txn.new").replace(self.path / "_txn")

    async def scan(self) -> int:
        """Read everything, and return the newest update in it."""
        while True:
            try:
                async with cp.open_table(self.path) as table:
                    found = await table.scan().to_arrow()
                break
            except ObjectChangedError:  # "plan the read again": only with a _txn is it known that files may grow
                assert not self.has_transaction
        versions: list[Any] = found.column("version").to_pylist()
        assert found.column("number").to_pylist() == list(range(len(versions)))
        assert tuple(versions) in self.states
        return int(max(versions))


async def _read_while(table: Table, writer: asyncio.Task[None]) -> list[int]:
    seen = []
    while not writer.done():
        seen.append(await table.scan())
    return seen


async def _run(table: Table, update_count: int) -> None:
    await table.create()

    async def write() -> None:
        for number in range(1, update_count + 1):
            await table.update(number)

    writer = asyncio.create_task(write())
    readers = await asyncio.gather(*(_read_while(table, writer) for _ in range(2)))
    await writer
    for seen in readers:
        assert seen == sorted(seen)  # no reader goes back in time
        assert len(set(seen)) > 3  # they did read in between
    assert await table.scan() == update_count


@pytest.mark.parametrize("has_transaction", [True, False], ids=["with _txn", "without"])
async def test_every_scan_is_one_committed_state(has_transaction: bool, tmp_path: Path) -> None:
    await _run(Table(tmp_path, has_transaction=has_transaction), 100)


@pytest.mark.soak
@pytest.mark.parametrize("has_transaction", [True, False], ids=["with _txn", "without"])
async def test_a_thousand_updates(has_transaction: bool, tmp_path: Path) -> None:
    await _run(Table(tmp_path, has_transaction=has_transaction), 1_000)
