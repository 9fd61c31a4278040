"""What plans say of techniques, on a table that has bloom filters and small pages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import coldparquet as cp
from coldparquet.write import WriteOptions, write_partition

if TYPE_CHECKING:
    from pathlib import Path

    from coldparquet.plan.model import ReadPlan, Technique

DAYS, ROWS = 3, 4_000
OPTIONS = WriteOptions(row_group_rows=1_000, page_rows=100, pages=True, bloom_columns=("id",))


@pytest.fixture
async def table_path(tmp_path: Path) -> Path:
    """Three days of four row groups: even numbers in no order, all different, as large everywhere."""
    ids = np.random.default_rng(5).permutation(DAYS * ROWS).reshape(DAYS, ROWS) * 2
    for number in range(DAYS):
        day = datetime(2024, 3, 1 + number, tzinfo=UTC)
        times = pa.array([day + timedelta(seconds=20 * row) for row in range(ROWS)], pa.timestamp("us", "UTC"))
        fields: list[pa.Field[Any]] = [
            pa.field("ts", times.type, nullable=False), pa.field("id", pa.int64()), pa.field("x", pa.float64())
        ]  # fmt: skip
        rows = pa.table([times, ids[number], np.arange(ROWS) / 7], schema=pa.schema(fields))
        await write_partition(tmp_path / f"{day:%Y-%m-%d}.1", rows, timestamp="ts", options=OPTIONS)
    return tmp_path


async def plan_of(path: Path, where: str, **options: object) -> ReadPlan:
    async with cp.open_table(path, options=cp.ReadOptions(**options)) as table:  # type: ignore[arg-type]
        return await table.scan(["ts", "x"], where).plan()


def named(plan: ReadPlan, name: str) -> list[Technique]:
    return [technique for read in plan.partitions for technique in read.techniques if technique.name == name]


async def test_bloom_filters_of_all_partitions(table_path: Path) -> None:
    plan = await plan_of(table_path, "id = 11999 or id = 5000")
    assert sum(technique.considered for technique in named(plan, "bloom filter")) == DAYS * 4
    ruled_out = sum(technique.affected for technique in named(plan, "bloom filter"))
    assert ruled_out == DAYS * 4 - sum(read.row_groups_read for read in plan.partitions) > 0
    assert f"bloom filter  ruled out {ruled_out} of 12 row groups in 3 partitions" in plan.explain()


async def test_what_blooms_did_not_drop_is_not_listed(table_path: Path) -> None:
    plan = await plan_of(table_path, "id = 5000 and x >= 0")
    dropped = [one for read in plan.partitions for one in read.dropped if one.reason.startswith("the bloom filter")]
    assert {one.reason for one in dropped} == {"the bloom filter for id = 5000"}
    assert all(one.row_groups for one in dropped)


async def test_pages_leave_out_rows(table_path: Path) -> None:
    plan = await plan_of(table_path, "ts < '2024-03-01T00:10:00'", page_index="always")
    [index] = named(plan, "page index")
    assert (index.affected, index.considered, index.unit) == (900, 1_000, "rows")
    assert "page index    left out 900 of 1,000 rows: " in plan.explain()


async def test_partitions_of_which_nothing_is_left_have_no_page_index(table_path: Path) -> None:
    plan = await plan_of(table_path, "id = 5000")
    for read in plan.partitions:
        assert any(technique.name == "page index" for technique in read.techniques) == (read.row_groups_read > 0)


async def test_late_reading_counts_row_groups(table_path: Path) -> None:
    plan = await plan_of(table_path, "id > 100 and id < 20000", late_materialisation="always")
    assert {(one.affected, one.considered, one.reason) for one in named(plan, "late reading")} == {(4, 4, "asked for")}
    text = "late reading fetches the condition's columns first for 12 of 12 row groups in 3 partitions: asked for"
    assert text in " ".join(plan.explain().split())
