"""Packs a table of a benchmark as it will be read: through a store, by whose ETags readers check the catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coldparquet.errors import InternalError
from coldparquet.maintenance.pack import pack_table
from coldparquet_testing.simulator import ColdStoreProcess

if TYPE_CHECKING:
    from pathlib import Path


async def pack_through_store(bucket: Path, table: str, **how: Any) -> None:
    """Write the catalogue of a table that lies in the directory of a bucket; all of its partitions have to fit in.

    The simulated store makes ETags of what stays when the directory is renamed, but not when it is copied.
    """
    with ColdStoreProcess(bucket.parent) as server:
        report = await pack_table(f"s3://{bucket.name}/{table}", storage_options=server.storage_options, **how)
    if report.packed_count != len(report.partitions):
        raise InternalError(f"{table}: only {report.packed_count} of {len(report.partitions)} partitions were packed")
