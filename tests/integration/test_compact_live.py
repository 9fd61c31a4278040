"""A real QuestDB goes on with a table that was compacted while it was stopped, and keeps us away while it runs."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

import coldparquet as cp
from coldparquet.errors import InvalidInputError
from coldparquet.write import WriteOptions
from coldparquet.write.compact import CompactionOptions, compact_table
from tests.support.live_questdb import SHAPES, LiveTable
from tests.support.live_servers import live_questdb
from tests.support.questdb_tables import assert_same_rows

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

pytestmark = pytest.mark.integration

SHAPE = SHAPES["day_without_wal"]
"""A server finds tables without write-ahead log by their directories when it starts."""
LATE = SHAPE.insert("2024-03-02T20:00:00.000001Z", 10, seed=61)


@pytest.fixture
def table(live_table: LiveTable) -> LiveTable:
    """Three days in Parquet, one of them with row groups that were replaced in place."""
    live_table.run(SHAPE.create(), SHAPE.insert("2024-03-01", 1000, seed=43))
    live_table.convert("2024-03-01", "2024-03-02", "2024-03-03")
    live_table.run(SHAPE.insert("2024-03-02T10:00:00.000003Z", 50, seed=47))
    return live_table


async def test_a_running_server_keeps_us_away(table: LiveTable) -> None:
    with pytest.raises(InvalidInputError, match="stop the server") as caught:
        await compact_table(table.directory)
    assert caught.value.kind == "ServerRunning"


@pytest.mark.slow
@pytest.mark.parametrize("row_group_rows", [pytest.param(100_000, marks=pytest.mark.soak), 70])
async def test_the_server_goes_on_with_what_we_wrote(table: LiveTable, row_group_rows: int, tmp_path: Path) -> None:
    ours = tmp_path / "db" / table.name
    shutil.copytree(table.directory, ours)
    options = CompactionOptions(write=WriteOptions(row_group_rows=row_group_rows, page_rows=30), purge_after_s=0)
    report = await compact_table(ours, force=True, purge=True, options=options)
    assert report.count("compacted") == 3
    with live_questdb(tmp_path) as server:
        assert_same_rows(server.rows(table.name), table.expected())
        late = LATE.replace("{t}", table.name)
        server.run(late)
        table.run(LATE)
        assert_same_rows(server.rows(table.name), table.expected())
        async with cp.open_table(server.directory(table.name)) as opened:
            assert_same_rows(await opened.scan().to_arrow(), table.expected())
    again = await compact_table(ours, force=True)
    assert again.count("failed") == 0
    assert_same_rows(await rows_of(ours), table.expected())


async def rows_of(table: Path) -> pa.Table:
    async with cp.open_table(table) as opened:
        return await opened.scan().to_arrow()
