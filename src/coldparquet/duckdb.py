"""Tables in DuckDB's SQL: columns and filters are pushed down into the plan of the library.

    con = duckdb.connect()
    coldparquet.duckdb.register(con, "trades", "s3://bucket/db/trades")
    con.sql("SELECT max(price) FROM trades WHERE ts >= '2024-03-01' AND symbol = 'BTC'")

DuckDB 1 pushes comparisons of one column with literals, IN, and prefixes. IS NULL, booleans, decimals, OR over several columns
and LIMIT it applies itself, and it reads the first column to count rows. ``EXPLAIN`` shows what is pushed as filters of an
ARROW_SCAN. Our errors arrive as DuckDB's, with our text in theirs.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, Protocol

from coldparquet.concurrency import background
from coldparquet.dataset import EngineTable, TableDataset
from coldparquet.expressions.predicate import DUCKDB
from coldparquet.opening import open_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from duckdb import DuckDBPyConnection

    from coldparquet.options import ReadOptions, StoreOptions


class _HasDataset(Protocol):
    def to_pyarrow_dataset(
        self, *, nan: Literal["ieee", "largest"], wide_decimals: Literal["decimal", "text"]
    ) -> TableDataset: ...


def register(  # noqa: PLR0913 - the last three are those of open_table
    connection: DuckDBPyConnection,
    name: str,
    table: _HasDataset | str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    options: ReadOptions | None = None,
    store_options: StoreOptions | None = None,
) -> None:
    """Give a table a name in DuckDB's SQL.

    Requests: those of opening the table, if a URL is given; for every query those of a scan, few at first, because
    DuckDB may stop early. The name stands for the state of the table that was opened.

    Args:
        connection: DuckDB's.
        name: The name in SQL.
        table: A table opened by :mod:`coldparquet.sync`, which must stay open, or where one lies. See
            :func:`coldparquet.open_table` for this and the following.
        storage_options: How to reach the store.
        options: How to read.
        store_options: How to send requests.
    """
    if isinstance(table, str | os.PathLike):
        opening = open_table(table, storage_options=storage_options, options=options, store_options=store_options)

        async def opened() -> Any:
            return await opening

        dataset = TableDataset(EngineTable(background.run(opened()), DUCKDB, wide_decimals_as_text=True))
    else:
        dataset = table.to_pyarrow_dataset(nan="largest", wide_decimals="text")
    connection.register(name, dataset)
