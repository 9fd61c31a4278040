"""A table that we have written is opened, read, written to and altered by a real QuestDB, and goes on being ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import coldparquet as cp
from coldparquet.write import WriteOptions, write_table
from tests.support.live_servers import live_questdb
from tests.support.written_tables import DAY_US, START_US, in_order, read_table, same_rows, ticks

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.slow]

LATE = "insert into trades values ('2024-01-02T12:00:00Z', 'late', 0.5, -1), ('2024-02-01T00:00:00Z', 'later', 1.5, -2)"


@pytest.mark.usefixtures("questdb")  # which skips, or fails, where there is none
async def test_a_table_made_here_is_a_table_of_questdb(tmp_path: Path) -> None:
    table = tmp_path / "db" / "trades"
    first, second = ticks(1_000), ticks(500, seed=1, days=4)
    await write_table(table, first, timestamp="ts", options=WriteOptions(row_group_rows=200))
    await write_table(table, second, mode="append", options=WriteOptions(row_group_rows=200))
    expected = in_order([first, second])
    with live_questdb(tmp_path) as server:
        assert same_rows(server.rows("trades"), expected)
        assert [partition["isParquet"] for partition in server.partitions("trades")] == [True] * 4
        server.run(
            LATE, "alter table trades add column venue symbol", "insert into trades values (now(), 'x', 1.0, -3, 'okx')"
        )
        # 9.3.4 does not answer for a column that a Parquet partition lacks, even one of its own.
        answer = server.rows("trades", columns="ts, side, price, number")
    assert answer.num_rows == expected.num_rows + 3
    found = await read_table(table)
    assert same_rows(found.drop_columns(["venue"]), answer)
    assert found.column("venue").to_pylist()[-2:] == [None, "okx"]
    async with cp.open_table(table) as opened:
        assert [partition.format for partition in opened.partitions][:4] == ["parquet"] * 4
    day = ticks(20, seed=3, days=1)
    await write_table(table, day.append_column("venue", pa.array(["okx"] * 20)), mode="overwrite")
    stays = answer.filter(
        pc.greater_equal(answer.column("ts"), pa.scalar(START_US + DAY_US, pa.timestamp("us", "UTC")))
    )
    assert same_rows((await read_table(table)).drop_columns(["venue"]), in_order([day, stays.cast(day.schema)]))
