"""Lakes of golden tables on a local disk and on a simulated cold store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from tests.support.questdb_tables import PARTITIONS, copy_parquet_partitions

if TYPE_CHECKING:
    from pathlib import Path

    from coldparquet.pipelines import PipelineReport


def make_lake(root: Path, *tables: str) -> Path:
    """Copy the Parquet partitions of golden tables, without sidecars, below a directory ``lake/db``."""
    database = root / "lake" / "db"
    for table in tables:
        copy_parquet_partitions(table, database)
    return root / "lake"


def partition_count(*tables: str) -> int:
    """Return how many Parquet partitions golden tables have."""
    return sum(partition.table in tables for partition in PARTITIONS)


def expected_of(table: str) -> pa.Table:
    """Return the rows that QuestDB answers for the Parquet partitions of a golden table."""
    return pa.concat_tables([partition.expected() for partition in PARTITIONS if partition.table == table])


def fates(report: PipelineReport) -> dict[str, str]:
    """Return the action by table and partition: ``{"interval_day/2024-01-01": "written"}``."""
    return {
        f"{result.table.rpartition('/')[2]}/{result.partition}".rstrip("/"): result.action for result in report.results
    }


def damage(partition: Path) -> None:
    """Let a Parquet file end as none does."""
    data = partition / "data.parquet"
    data.write_bytes(data.read_bytes()[:-4] + b"NOPE")
