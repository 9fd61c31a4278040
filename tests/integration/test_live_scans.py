"""Scans of tables on the disk of a running QuestDB equal its answers to the same questions in SQL."""

from __future__ import annotations

import pytest

import coldparquet as cp
from tests.support.live_questdb import SHAPES, LiveTable, TableShape
from tests.support.questdb_tables import assert_same_rows

pytestmark = pytest.mark.integration

QUESTIONS = [
    None,
    "num > 0",
    "num >= -10 and num <= 10",
    "price > 500.5 and sym = 'alpha'",
    "sym in ('beta', '')",
    "sym is null",
    "text is not null and flag = true",
    "big < 0 or small > 30000",
    "letter = 'Q'",
    "label = 'no such label'",
    "dec > 0 and dec < 500",
]
"""Conditions that QuestDB and coldparquet understand alike; ``!=`` differs for nulls."""

TIMES = {
    "DAY": ("2024-03-01T12:00:00Z", "2024-03-03T06:30:00Z"),
    "HOUR": ("2024-03-01T00:30:00Z", "2024-03-01T02:15:00Z"),
    "MONTH": ("2024-03-20T12:00:00Z", "2024-05-02T06:30:00Z"),
}
"""A time range for each kind of partition, which starts and ends within partitions."""


@pytest.fixture(params=SHAPES)
def shape(request: pytest.FixtureRequest) -> TableShape:
    return SHAPES[request.param]


@pytest.fixture
def table(live_table: LiveTable, shape: TableShape) -> LiveTable:
    """A table of four partitions, all native."""
    live_table.run(shape.create(), shape.insert("2024-03-01T00:00:00.000001Z", 1100, seed=17))
    return live_table


async def assert_answers_equal(table: LiveTable, shape: TableShape) -> None:
    start, stop = TIMES[shape.partition_by]
    questions = [*QUESTIONS, f"ts >= '{start}' and ts < '{stop}'", f"ts < '{start}' and num is null", f"ts = '{start}'"]
    async with cp.open_table(table.directory) as opened:
        for where in questions:
            expected = table.expected(where)
            assert_same_rows(await opened.scan(where=where).to_arrow(), expected)
            assert await opened.scan(where=where).count() == expected.num_rows


async def test_native_partitions(table: LiveTable, shape: TableShape) -> None:
    await assert_answers_equal(table, shape)


async def test_parquet_partitions_and_a_native_active_one(table: LiveTable, shape: TableShape) -> None:
    table.convert(*table.partitions[:-1])
    assert table.formats == "PPPn"
    await assert_answers_equal(table, shape)


async def test_an_active_partition_in_parquet(table: LiveTable, shape: TableShape) -> None:
    table.convert(*table.partitions)
    assert table.formats == ("PPPP" if shape.has_wal else "PPPn")
    await assert_answers_equal(table, shape)


async def test_a_native_partition_between_parquet_ones(table: LiveTable, shape: TableShape) -> None:
    table.convert(*table.partitions[:-1])
    table.convert_back(table.partitions[1])
    assert table.formats == "PnPn"
    await assert_answers_equal(table, shape)
