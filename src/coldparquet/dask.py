"""Tables as Dask's DataFrames: one partition of the frame for each piece of a plan.

    frame = coldparquet.dask.from_table("s3://bucket/db/trades", columns=["symbol", "price"], where=col("ts") >= "2024-03-01")
    frame.groupby("symbol").price.mean().compute()

The plan is made here, once, and workers send requests for data alone. What Dask selects and filters afterwards comes too late to
save requests: say it here. Columns have the types of pyarrow (``pandas.ArrowDtype``), so that NULL is no NaN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dask.dataframe as dd
import pandas as pd
import pyarrow as pa

from coldparquet.concurrency import background
from coldparquet.decode.arrow import schema_without_views
from coldparquet.opening import open_table
from coldparquet.pieces.read import read_piece_batches

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping

    from coldparquet.expressions.where import Where
    from coldparquet.options import ReadOptions, StoreOptions
    from coldparquet.pieces.read import ScanPieces


def from_table(  # noqa: PLR0913 - those of open_table and of a scan
    url: str | os.PathLike[str],
    columns: Iterable[str] | None = None,
    where: Where = None,
    *,
    most_pieces: int | None = None,
    target_bytes: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
    options: ReadOptions | None = None,
    store_options: StoreOptions | None = None,
) -> dd.DataFrame:
    """Return rows of a table as a DataFrame of Dask, in the order of the table, without known divisions.

    Requests: those of opening the table and of planning, now; those of the plan for every ``compute()``. The frame stays with the
    state of the table that was read; a file that was replaced since is an error.

    Args:
        url: See :func:`coldparquet.open_table`, as for the last three.
        columns: Which columns to read; None for all.
        where: Which rows to read; see :meth:`coldparquet.table.Table.scan`.
        most_pieces: Most partitions of the frame; see :meth:`coldparquet.table_scan.Scan.pieces`, as for the next.
        target_bytes: Approximate size of each, in memory.
        storage_options: How to reach the store. They are sent to the workers, as Dask sends everything; without, workers find
            credentials of their own.
        options: How to read.
        store_options: How to send requests.
    """

    async def plan() -> ScanPieces:
        opening = open_table(url, storage_options=storage_options, options=options, store_options=store_options)
        async with opening as table:
            return await table.scan(columns, where).pieces(most_pieces, target_bytes=target_bytes)

    found = background.run(plan())
    schema = pa.schema([field.with_type(_plain(field.type)) for field in schema_without_views(found.schema)])
    empty = _to_pandas(schema.empty_table())
    if not found.pieces:
        return dd.from_pandas(empty, npartitions=1)
    return dd.from_map(
        _read,
        [piece.to_bytes() for piece in found.pieces],
        schema=schema,
        storage_options=storage_options,
        store_options=store_options,
        meta=empty,
        label="coldparquet",
    )


def _plain(type_: Any) -> Any:
    """Return the type of a column in pandas: each piece would have categories of its own."""
    return type_.value_type if pa.types.is_dictionary(type_) else type_


def _read(
    piece: bytes,
    schema: pa.Schema,
    storage_options: Mapping[str, Any] | None,
    store_options: StoreOptions | None,
) -> pd.DataFrame:
    """Read one piece, on a worker."""
    batches = read_piece_batches(piece, storage_options=storage_options, store_options=store_options)
    found = list(batches)
    if not schema.names:  # rows without columns
        return pd.DataFrame(index=pd.RangeIndex(sum(batch.num_rows for batch in found)))
    return _to_pandas(pa.Table.from_batches([batch.cast(schema) for batch in found], schema=schema))


def _to_pandas(table: pa.Table) -> pd.DataFrame:
    frame: pd.DataFrame = table.to_pandas(types_mapper=pd.ArrowDtype)
    return frame
