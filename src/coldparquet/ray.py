"""Tables as Ray's Datasets: columns and filters are pushed down into the plan of the library, and each task reads a piece of it.

    rows = coldparquet.ray.read("s3://bucket/db/trades")
    rows.filter(expr=ray.data.expressions.col("price") > 3).select_columns(["ts", "price"]).take(5)

Ray pushes expressions, not functions. What of them has no translation the tasks apply, to the rows that they read.
"""

from __future__ import annotations

import pickle
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import ray.data
from ray.data import Datasource, ReadTask
from ray.data.block import BlockMetadata

from coldparquet.concurrency import background
from coldparquet.dataset import EngineTable, TableScanner
from coldparquet.opening import open_table
from coldparquet.pieces.read import read_piece_batches

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

    import pyarrow.compute as pc

    from coldparquet.options import ReadOptions, StoreOptions
    from coldparquet.pieces.read import ScanPieces

    _Plan: TypeAlias = tuple[ScanPieces, pa.Schema, pc.Expression | None]


_NO_COLUMN = "__bsp_stub"
"""Stands for no column where Ray counts: its blocks without columns have no rows. Ray has given it the name."""


def read(
    url: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    options: ReadOptions | None = None,
    store_options: StoreOptions | None = None,
    **ray_options: Any,
) -> ray.data.Dataset:
    """Return a table as a Dataset of Ray, in any order.

    Requests: those of opening the table and of planning, now, and once for each way in which Ray asks; those of the plan in its
    tasks. The Dataset stays with the states of the table that were read; a file that was replaced since is an error.

    Args:
        url: See :func:`coldparquet.open_table`, as for the next three.
        storage_options: How to reach the store. They are sent to the workers, as Ray sends everything; without, workers find
            credentials of their own.
        options: How to read.
        store_options: How to send requests.
        ray_options: Those of ``ray.data.read_datasource``, such as ``override_num_blocks``.
    """
    arguments = {"storage_options": storage_options, "options": options, "store_options": store_options}
    return ray.data.read_datasource(TableDatasource(url, arguments), **ray_options)


class TableDatasource(Datasource):  # type: ignore[misc]  # without types where Ray is not installed
    """A table as Ray plans it; made by :func:`read`."""

    def __init__(self, url: str | os.PathLike[str], arguments: Mapping[str, Any]) -> None:
        super().__init__()
        self._url = url
        self._arguments = arguments
        self._projection_map: dict[str, str] | None = None
        self._plans: dict[tuple[int, str, bytes], _Plan] = {}
        """What was planned, by parallelism, columns and filter: Ray asks twice. Shared with the copies that Ray makes."""

    def get_name(self) -> str:
        """Return what Ray shows."""
        return "Coldparquet"

    def supports_projection_pushdown(self) -> bool:
        """Tell that columns are pushed down."""
        return True

    def supports_predicate_pushdown(self) -> bool:
        """Tell that filters are pushed down."""
        return True

    def estimate_inmemory_data_size(self) -> int | None:
        """Leave it unknown: it would take a plan."""
        return None

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """Plan, and make a task of each piece. Requests: those of opening the table, and of planning, if this is asked first."""
        del data_context
        filtered = self.get_current_predicate()
        expression = None if filtered is None else filtered.to_pyarrow()
        asked = (parallelism, str(self._projection_map), pickle.dumps(expression))  # as text, Arrow shortens long lists
        if asked not in self._plans:
            self._plans[asked] = background.run(self._plan(parallelism, expression))
        pieces, schema, rest = self._plans[asked]
        access = {name: value for name, value in self._arguments.items() if name != "options"}
        nothing = BlockMetadata(num_rows=0, size_bytes=0, exec_stats=None)
        return [
            ReadTask(
                partial(_read, piece.to_bytes(), schema, rest, access),
                BlockMetadata(num_rows=None, size_bytes=piece.fetched_bytes, exec_stats=None),
                schema=schema,
                per_task_row_limit=per_task_row_limit,
            )
            for piece in pieces
        ] or [ReadTask(partial(_nothing, schema), nothing, schema=schema)]

    async def _plan(self, parallelism: int, expression: pc.Expression | None) -> _Plan:
        async with open_table(self._url, **self._arguments) as table:
            columns = table.schema.names if self._projection_map is None else list(self._projection_map)
            scanner = TableScanner(EngineTable(table), columns, expression, None)
            schema = scanner.projected_schema if columns else pa.schema([(_NO_COLUMN, pa.null())])
            return await scanner.scan.pieces(max(parallelism, 1)), schema, scanner.rest


def _read(piece: bytes, schema: pa.Schema, rest: pc.Expression | None, access: Mapping[str, Any]) -> Iterator[pa.Table]:
    """Read one piece, in a task."""
    is_empty = True
    for batch in read_piece_batches(piece, **access):
        kept = batch if rest is None else batch.filter(rest)
        is_empty = False
        yield _rows(kept, schema)
    if is_empty:
        yield schema.empty_table()


def _rows(batch: pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    if schema.names == [_NO_COLUMN]:
        return pa.table({_NO_COLUMN: pa.nulls(batch.num_rows)})
    return pa.Table.from_batches([batch]).select(schema.names)


def _nothing(schema: pa.Schema) -> list[pa.Table]:
    return [schema.empty_table()]
