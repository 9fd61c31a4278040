"""Scans that are read piece by piece, as another process would: from bytes, knowing nothing else."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import coldparquet as cp
from coldparquet.pieces import ScanPieces
from coldparquet.storage.log import RequestRecord


async def read_pieces(pieces: ScanPieces, **how: Any) -> pa.Table:
    """Read all pieces, one after the other, and check that each keeps what it promises."""
    batches: list[pa.RecordBatch] = []
    for piece in pieces:
        found, log = await read_logged(piece.to_bytes(), **how)
        assert sum(batch.num_rows for batch in found) <= piece.rows_at_most
        assert len(log) <= piece.request_count
        assert sum(record.fetched_bytes for record in log) <= piece.fetched_bytes
        batches += found
    return pa.Table.from_batches(batches, pieces.schema)


async def read_logged(piece: bytes, **how: Any) -> tuple[list[pa.RecordBatch], tuple[RequestRecord, ...]]:
    """Read one piece; return its batches and the requests for data that it sent."""
    async with cp.pieces.read_piece(piece, **how) as stream:
        batches = [batch async for batch in stream]
        assert all(batch.schema.equals(stream.schema) for batch in batches)
        log = stream.request_log
    # On a disk, whether native rows are still those that were committed is looked up in the table's files.
    others = [record for record in log if record.role != "data"]
    assert {(record.operation, record.reason) for record in others} <= {("get", "table files")}
    return batches, tuple(record for record in log if record.role == "data")
