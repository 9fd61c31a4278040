"""The genuine QuestDB tables under tests/golden: their Parquet partitions, and the rows that QuestDB answered."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "questdb"


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenPartition:
    """One Parquet partition, and where its rows are in the answer of its table."""

    table: str
    name: str
    directory: Path
    first_row: int
    row_count: int

    def __str__(self) -> str:
        return f"{self.table}/{self.name}"

    @property
    def file(self) -> Path:
        """Its Parquet file."""
        return self.directory / "data.parquet"

    def expected(self) -> pa.Table:
        """Return the rows that QuestDB answers for the partition."""
        return expected_rows(self.table).slice(self.first_row, self.row_count)

    def copied_to(self, directory: Path) -> Path:
        """Copy the partition to a place where a sidecar may be written beside it."""
        return Path(shutil.copytree(self.directory, directory / self.directory.name))


def copy_parquet_partitions(table: str, directory: Path) -> Path:
    """Copy the Parquet partitions of a golden table, without sidecars, to where they may be changed."""
    copied = directory / table
    for partition in PARTITIONS:
        if partition.table == table:
            target = copied / partition.directory.name
            target.mkdir(parents=True)
            shutil.copyfile(partition.directory / "data.parquet", target / "data.parquet")
    return copied


@cache
def expected_rows(table: str, snapshot: str | None = None) -> pa.Table:
    """Return the rows that QuestDB answered, in the end or at an earlier moment."""
    expected = GOLDEN / table / "expected"
    if snapshot is not None:
        expected = expected / "snapshots" / snapshot
    with pa.memory_map(str(expected / "rows.arrow")) as source:
        return pa.ipc.open_file(source).read_all()


def _version(directory: Path) -> int:
    return int(directory.name.rpartition(".")[2]) if "." in directory.name else -1


def _golden_partitions(table: Path) -> list[GoldenPartition]:
    found, first_row = [], 0
    for partition in json.loads((table / "expected" / "partitions.json").read_text()):
        if not partition["attached"]:
            continue
        name, rows = partition["name"], partition["numRows"]
        if partition["isParquet"]:
            versions = [path for path in (table / "table").glob(f"{name}*") if path.name.partition(".")[0] == name]
            directory = max((path for path in versions if (path / "data.parquet").exists()), key=_version)
            found.append(
                GoldenPartition(table=table.name, name=name, directory=directory, first_row=first_row, row_count=rows)
            )
        first_row += rows
    return found


PARTITIONS = [
    partition for table in sorted(GOLDEN.iterdir()) if table.is_dir() for partition in _golden_partitions(table)
]
"""Every Parquet partition of every golden table."""


def as_questdb_shows(rows: pa.Table) -> pa.Table:
    """Turn rows that were read into what QuestDB answers: plain strings, and null for infinities and NaN."""
    columns = []
    for field, column in zip(rows.schema, rows.columns, strict=True):
        shown = column
        if pa.types.is_dictionary(field.type) or pa.types.is_string_view(field.type):
            shown = column.cast(pa.string())
        if pa.types.is_floating(field.type):
            shown = pc.if_else(pc.is_finite(column), column, pa.scalar(None, field.type))
        columns.append(shown)
    return pa.table(columns, names=rows.schema.names)


def plain(rows: pa.Table) -> pa.Table:
    """Drop field metadata and chunk boundaries, so that tables compare by value."""
    return pa.table([column.combine_chunks() for column in rows.columns], names=rows.schema.names)


def assert_same_rows(actual: pa.Table, expected: pa.Table) -> None:
    """Rows that were read are those that QuestDB answers, in the same order."""
    actual, expected = plain(as_questdb_shows(actual)), plain(expected)
    assert actual.schema.names == expected.schema.names
    for name in expected.schema.names:
        wanted = expected.column(name)
        found = actual.column(name)
        assert found.type == wanted.type, name
        if pa.types.is_list(wanted.type):
            # NaN elements differ from themselves; infinities inside arrays are values on both sides.
            assert str(found.to_pylist()).replace("None", "nan") == str(wanted.to_pylist()).replace("None", "nan"), name
        else:
            assert found.equals(wanted), name
