"""Read a few columns of a short time range from Parquet on S3 with a dozen requests instead of hundreds.

    import coldparquet as cp

    async with cp.open_table("s3://bucket/db/trades") as table:
        scan = table.scan(columns=["ts", "price"], where="ts >= '2024-03-01' and symbol = 'BTC'")
        print((await scan.plan()).explain())
        prices = await scan.to_arrow()

``cp.sync.open_table`` is the same without ``await``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from coldparquet import dask as dask
    from coldparquet import duckdb as duckdb
    from coldparquet import errors, pieces, sync
    from coldparquet import polars as polars
    from coldparquet import ray as ray
    from coldparquet.archive.restore import RestoreTicket
    from coldparquet.catalog.caches import clear_caches
    from coldparquet.errors import ColdParquetError
    from coldparquet.format.sidecar import Sidecar, parse_sidecar
    from coldparquet.opening import open_partition, open_partitions, open_table
    from coldparquet.options import ReadOptions, RestoreTerms, StoreOptions
    from coldparquet.plan.model import ReadPlan
    from coldparquet.plan.predicate import Predicate, col
    from coldparquet.table import Table
    from coldparquet.table_scan import Scan
    from coldparquet.write.table import write_table

__all__ = [
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
    "clear_caches",
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

_SUBMODULES = frozenset({"dask", "duckdb", "errors", "pieces", "polars", "ray", "sync"})
"""``import *`` leaves out those that need a package of the caller's choice."""

_MODULES = {
    "ColdParquetError": "coldparquet.errors",
    "Predicate": "coldparquet.plan.predicate",
    "ReadOptions": "coldparquet.options",
    "ReadPlan": "coldparquet.plan.model",
    "RestoreTerms": "coldparquet.options",
    "RestoreTicket": "coldparquet.archive.restore",
    "Scan": "coldparquet.table_scan",
    "Sidecar": "coldparquet.format.sidecar",
    "StoreOptions": "coldparquet.options",
    "Table": "coldparquet.table",
    "clear_caches": "coldparquet.catalog.caches",
    "col": "coldparquet.plan.predicate",
    "open_partition": "coldparquet.opening",
    "open_partitions": "coldparquet.opening",
    "open_table": "coldparquet.opening",
    "parse_sidecar": "coldparquet.format.sidecar",
    "write_table": "coldparquet.write.table",
}
"""Where each name is defined. They are imported when they are used: every import of a module of this package runs this one
first, and the tasks of an engine, which start in processes of their own, need a small part of the library."""


if not TYPE_CHECKING:  # type checkers know which names there are

    def __getattr__(name: str) -> Any:
        if name in _SUBMODULES:
            return import_module(f"{__name__}.{name}")
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_MODULES[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SUBMODULES})
