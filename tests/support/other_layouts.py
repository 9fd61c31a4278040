"""Directories of files that are no part of a table of ours, on a disk and in memory."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from coldparquet.storage.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

DAY = "2023-01-01/data.parquet"
LOGS = {
    "delta": "_delta_log/00000000000000000000.json",
    "iceberg": "metadata/v1.metadata.json",
    "hudi": ".hoodie/hoodie.properties",
}


def _parquet(rows: int = 10) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"x": list(range(rows))}), sink)
    return sink.getvalue()


def _content(name: str) -> bytes:
    return _parquet() if name.endswith(".parquet") else b"{}"


def write(root: Path, names: Iterable[str]) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(_content(name))
    return root


def objects(names: Iterable[str]) -> dict[str, bytes]:
    return {f"t/{name}": _content(name) for name in names}


def memory(names: Iterable[str]) -> MemoryStore:
    return MemoryStore(objects(names))
