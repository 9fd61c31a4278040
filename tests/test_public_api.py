"""The front door has just these names, and all of them are documented."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import coldparquet as cp

if TYPE_CHECKING:
    from pathlib import Path

NAMES = [
    "ColdParquetError",
    "Predicate",
    "ReadOptions",
    "ReadPlan",
    "RestoreTerms",
    "RestoreTicket",
    "Scan",
    "Sidecar",
    "StoreOptions",
    "Table",
    "col",
    "errors",
    "open_partition",
    "open_partitions",
    "open_table",
    "parse_sidecar",
    "pieces",
    "sync",
    "write_table",
]


def test_public_names() -> None:
    assert cp.__all__ == NAMES


def test_everything_public_is_documented() -> None:
    for name in NAMES:
        item = getattr(cp, name)
        assert inspect.getdoc(item), name
        if inspect.isclass(item):
            for member_name, member in inspect.getmembers(item, inspect.isfunction):
                if not member_name.startswith("_"):
                    assert inspect.getdoc(member), f"{name}.{member_name}"


def test_every_name_is_listed() -> None:
    assert set(NAMES) <= set(dir(cp))


def test_other_names_are_unknown() -> None:
    with pytest.raises(AttributeError, match="module 'coldparquet' has no attribute 'open_tabel'"):
        cp.open_tabel  # type: ignore[attr-defined]  # noqa: B018 - looking it up is the test


@pytest.mark.parametrize(
    ("module", "not_loaded"),
    [
        ("coldparquet", "numpy pyarrow fsspec asyncio"),
        ("coldparquet.pieces", "pandas pyspark aiohttp s3fs botocore sqlglot coldparquet.table coldparquet.table_scan"),
        ("pyspark_coldparquet", "pandas aiohttp s3fs botocore sqlglot coldparquet.table coldparquet.pieces"),
        ("coldparquet.spark.task", "pandas aiohttp s3fs botocore sqlglot coldparquet.table coldparquet.table_scan"),
    ],
)
def test_imports_are_light(module: str, not_loaded: str) -> None:
    """Engines import these in processes of their own, some of which do nothing else."""
    script = f"import sys, {module}; print([name for name in {not_loaded.split()!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


async def test_tables_are_written_through_the_front_door(tmp_path: Path) -> None:
    rows = pa.table({"ts": pa.array([3, 1, 2], pa.timestamp("us", "UTC")), "price": [0.3, 0.1, 0.2]})
    written = await cp.write_table(tmp_path / "a", rows, timestamp="ts")
    assert written.is_new
    assert cp.sync.write_table(tmp_path / "b", rows, timestamp="ts", mode="ignore").is_written
    for name in ("a", "b"):
        async with cp.open_table(tmp_path / name) as table:
            assert (await table.scan(["price"]).to_arrow())["price"].to_pylist() == [0.1, 0.2, 0.3]
