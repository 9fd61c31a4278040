"""Answers selective questions over cold Parquet partitions with the fewest requests, bytes and dollars.

    import coldparquet as cp

    async with cp.open_table("s3://bucket/db/trades") as table:
        scan = table.scan(columns=["ts", "price"], where="ts >= '2024-03-01' and symbol = 'BTC'")
        print((await scan.plan()).explain())
        prices = await scan.to_arrow()

``cp.sync.open_table`` is the same without ``await``.
"""

from coldparquet import errors, pieces, sync
from coldparquet.errors import ColdParquetError
from coldparquet.format.sidecar import Sidecar, parse_sidecar
from coldparquet.options import ReadOptions, RestoreTerms, StoreOptions
from coldparquet.plan.predicate import Predicate, col
from coldparquet.plan.read_plan import ReadPlan
from coldparquet.restoring.restore_ticket import RestoreTicket
from coldparquet.scan import Scan
from coldparquet.table import Table, open_partition, open_table

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
    "col",
    "errors",
    "open_partition",
    "open_table",
    "parse_sidecar",
    "pieces",
    "sync",
]
