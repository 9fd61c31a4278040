"""A table whose first write was killed: what it left goes when the table is written after all, if it is old enough."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

import coldparquet as cp
from coldparquet.errors import NotFoundError, ObjectChangedError
from coldparquet.write import write_table
from coldparquet.write.begin import begin_write
from coldparquet.write.stage import stage_rows
from coldparquet.write.table import commit_write
from tests.support.written_tables import in_order, read_table, same_rows, ticks

if TYPE_CHECKING:
    from pathlib import Path

    from coldparquet.write.begin import TableWrite
    from coldparquet.write.stage import StagedPart

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
