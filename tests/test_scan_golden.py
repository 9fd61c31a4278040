"""Oracle: every Parquet partition, every table and each earlier moment of it reads as QuestDB itself answered."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import coldparquet as cp
from coldparquet.maintenance.index import index_table
from coldparquet.storage.memory import MemoryStore
from tests.support.questdb_tables import GOLDEN, PARTITIONS, GoldenPartition, assert_same_rows, expected_rows
from tests.support.request_logs import assert_plan_was_followed
from tests.support.table_copies import copy_table

# --- Oracle: every Parquet partition of every genuine QuestDB table reads as QuestDB itself answered ------------------


@pytest.fixture
async def partition_url(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    partition: GoldenPartition = request.param
    copied = partition.copied_to(tmp_path)
    report = await index_table(str(copied), pages=False, pack=False)
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


# --- Oracle: every genuine QuestDB table, and each of its earlier moments, reads as QuestDB itself answered -----------


@dataclass(frozen=True, slots=True)
class Moment:
    """A table at the end of its making, or an earlier snapshot of it over files that have grown since."""

    table: str
    snapshot: str | None

    def __str__(self) -> str:
        return self.table if self.snapshot is None else f"{self.table}@{self.snapshot}"

    @property
    def expected_directory(self) -> Path:
        expected = GOLDEN / self.table / "expected"
        return expected if self.snapshot is None else expected / "snapshots" / self.snapshot

    def rows(self) -> pa.Table:
        return expected_rows(self.table, self.snapshot)

    def partitions(self) -> list[dict[str, Any]]:
        listed = json.loads((self.expected_directory / "partitions.json").read_text())
        return [partition for partition in listed if partition["attached"]]

    def copied_to(self, directory: Path) -> Path:
        return copy_table(self.table, directory, snapshot=self.snapshot)


def _moments() -> list[Moment]:
    moments = []
    for table in sorted(path for path in GOLDEN.iterdir() if path.is_dir()):
        moments.append(Moment(table.name, None))
        snapshots = table / "expected" / "snapshots"
        if snapshots.is_dir():
            moments += [Moment(table.name, path.name) for path in sorted(snapshots.iterdir())]
    return moments


MOMENTS = [pytest.param(moment, id=str(moment)) for moment in _moments()]


@pytest.mark.parametrize("moment", MOMENTS)
async def test_the_whole_table_equals_questdb(moment: Moment, tmp_path: Path) -> None:
    path = moment.copied_to(tmp_path)
    async with cp.open_table(path) as table:
        plan = await table.scan().plan()
        before = len(table.request_log)
        assert_same_rows(await table.scan().to_arrow(), moment.rows())
        assert_plan_was_followed(plan, table.request_log[before:])
        assert await table.scan().count() == moment.rows().num_rows


@pytest.mark.parametrize("moment", MOMENTS)
async def test_sidecars_change_nothing(moment: Moment, tmp_path: Path) -> None:
    path = moment.copied_to(tmp_path)
    report = await index_table(path, pages=False, pack=False)
    assert report.count("failed") == 0
    async with cp.open_table(path) as table:
        plan = await table.scan().plan()
        assert {partition.metadata_source for partition in plan.partitions} <= {"sidecar", "native"}
        assert_same_rows(await table.scan().to_arrow(), moment.rows())


@pytest.mark.parametrize("moment", MOMENTS)
async def test_an_object_store_gives_the_same_rows(moment: Moment, tmp_path: Path) -> None:
    path, store = moment.copied_to(tmp_path), MemoryStore()
    for file in path.rglob("*"):
        if file.is_file():
            await store.put(f"bucket/{file.relative_to(path)}", file.read_bytes(), overwrite=False)
    async with cp.open_table("bucket", store=store) as table:
        assert_same_rows(await table.scan().to_arrow(), moment.rows())


@pytest.mark.parametrize("moment", MOMENTS)
async def test_partitions_equal_those_that_questdb_lists(moment: Moment, tmp_path: Path) -> None:
    async with cp.open_table(moment.copied_to(tmp_path)) as table:
        listed = moment.partitions()
        # The server leaves the version out of its names.
        assert [partition.name.partition(".")[0] for partition in table.partitions] == [
            partition["name"] for partition in listed
        ]
        assert [partition.rows for partition in table.partitions] == [partition["numRows"] for partition in listed]
        assert [partition.format == "parquet" for partition in table.partitions] == [
            partition["isParquet"] for partition in listed
        ]
        sizes = [partition.parquet_size_bytes or -1 for partition in table.partitions]
        assert sizes == [partition["parquetFileSize"] for partition in listed]


@pytest.mark.parametrize("moment", MOMENTS)
async def test_random_questions_of_tables_equal_questdb(moment: Moment, tmp_path: Path) -> None:
    rows = moment.rows()
    random = np.random.default_rng(rows.num_rows)
    ts = rows.column("ts").cast(pa.int64()).to_numpy()
    async with cp.open_table(moment.copied_to(tmp_path)) as table:
        for _ in range(8):
            columns = list(random.choice(rows.schema.names, size=random.integers(1, 4), replace=False))
            begin, end = sorted(random.choice(ts, size=2).tolist())
            scan = table.scan(columns, (cp.col("ts") >= begin) & (cp.col("ts") < end))
            is_wanted = pa.array((ts >= begin) & (ts < end))
            expected = rows.filter(is_wanted).select(columns)
            assert_same_rows(await scan.to_arrow(), expected)
            assert await scan.count() == expected.num_rows
            limit = int(random.integers(0, rows.num_rows + 1))
            assert_same_rows(await table.scan(columns, limit=limit).to_arrow(), rows.select(columns).slice(0, limit))
