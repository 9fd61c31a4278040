"""Oracle: every Parquet partition of every genuine QuestDB table reads as QuestDB itself answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import coldparquet as cp
from coldparquet.maintenance.index import index_table
from tests.support.questdb_tables import PARTITIONS, GoldenPartition, assert_same_rows
from tests.support.request_logs import assert_plan_was_followed

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
async def partition_url(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    partition: GoldenPartition = request.param
    copied = partition.copied_to(tmp_path)
    report = await index_table(str(copied))
    assert [entry.action for entry in report.partitions] == ["written"]
    return copied


def _each_partition() -> list[object]:
    return [pytest.param(partition, partition, id=str(partition)) for partition in PARTITIONS]


@pytest.mark.parametrize(("partition_url", "golden"), _each_partition(), indirect=["partition_url"])
async def test_whole_partition_equals_questdb(partition_url: Path, golden: GoldenPartition) -> None:
    async with cp.open_partition(partition_url) as partition:
        plan = await partition.scan().plan()
        assert_same_rows(await partition.scan().to_arrow(), golden.expected().select(partition.schema.names))
        assert await partition.scan().count() == golden.row_count
        assert_plan_was_followed(plan, partition.request_log)


@pytest.mark.parametrize(("partition_url", "golden"), _each_partition(), indirect=["partition_url"])
async def test_random_questions_equal_questdb(partition_url: Path, golden: GoldenPartition) -> None:
    random = np.random.default_rng(golden.row_count)
    rows = golden.expected()
    async with cp.open_partition(partition_url) as partition:
        names = partition.schema.names
        for _ in range(8):
            columns = list(random.choice(names, size=random.integers(1, len(names) + 1), replace=False))
            ts = rows.column("ts").cast(pa.int64()).to_numpy()
            begin, end = sorted(random.choice(ts, size=2).tolist())
            where = (cp.col("ts") >= begin) & (cp.col("ts") < end)
            expected = rows.filter(pa.array((ts >= begin) & (ts < end)))
            scan = partition.scan(columns, where)
            plan = await scan.plan()
            before = len(partition.request_log)
            assert_same_rows(await scan.to_arrow(), expected.select(columns))
            assert_plan_was_followed(plan, partition.request_log[before:])
            assert await scan.count() == expected.num_rows


@pytest.mark.parametrize(("partition_url", "golden"), _each_partition(), indirect=["partition_url"])
async def test_every_value_is_found_again(partition_url: Path, golden: GoldenPartition) -> None:
    """Pruning never loses a row: for each column, the rows that equal one of its values are all found."""
    random = np.random.default_rng(golden.row_count + 1)
    async with cp.open_partition(partition_url) as partition:
        rows = await partition.scan().to_arrow()
        for field in rows.schema:
            column = rows.column(field.name)
            if pa.types.is_list(field.type):
                continue
            if pa.types.is_dictionary(field.type):
                column = column.cast(pa.string())
            values = column.drop_null()
            if len(values) == 0:
                assert await partition.scan([field.name], cp.col(field.name).is_not_null()).count() == 0
                continue
            value = values[int(random.integers(len(values)))]
            literal = value.value if isinstance(value, pa.TimestampScalar) else value.as_py()
            expected = np.count_nonzero(pc.equal(column, value).to_numpy().astype(bool))
            assert await partition.scan(where=cp.col(field.name) == literal).count() == expected, field.name
            assert await partition.scan(where=cp.col(field.name).is_null()).count() == column.null_count, field.name
            assert await partition.scan(where=~(cp.col(field.name) == literal)).count() == (len(values) - expected), (
                field.name
            )
