"""What the driver does for a scan: open the tables, check the schema, take filters over, plan, cut the plan."""

from __future__ import annotations

import atexit
import json
import os
import time
from collections import OrderedDict
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from coldparquet.concurrency import background, gather_or_cancel
from coldparquet.errors import ColdParquetError, InvalidInputError, UnsupportedError
from coldparquet.plan.predicate import And, Predicate
from coldparquet.plan.where import parse_predicate
from coldparquet.spark.early_plan import EarlyPlan, PlannedShares
from coldparquet.spark.filters import ColumnMeanings
from coldparquet.spark.table_urls import expand_urls
from coldparquet.spark.task_shares import BYTES_PER_TASK, shares_of
from coldparquet.spark.types import check_requested, spark_schema
from coldparquet.table import open_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import Filter

    from coldparquet.pieces import ScanPieces
    from coldparquet.scan import Scan
    from coldparquet.spark.options import SourceOptions
    from coldparquet.table import Table

_MOST_OPEN_TABLES = 8

_MOST_PARTITIONS_PLANNED_EARLY = 16
"""Whoever only wants to know the columns of a larger table shall not wait for the metadata of its partitions."""

_MOST_PARTITIONS_ASKED_EARLY = 512
"""The same where the option ``where`` shows that there is a question: the plan is needed, and looks at fewer of them."""

_MOST_BYTES_PLANNED_EARLY = 512 * 1024
"""An early plan travels through Java twice, and stays there as long as the DataFrame."""


class ScanOfTables:
    """One scan of one or several tables with the same columns.

    Args:
        options: What was asked for.
        requested: The columns, as Spark sees them.
        tables: Those that the columns were taken from just now; without any they are opened when they are needed.
    """

    def __init__(self, options: SourceOptions, requested: StructType, tables: tuple[Table, ...] = ()) -> None:
        self._options = options
        self._requested = requested
        self._tables = tables
        self._taken: list[Predicate] = []
        self._left: list[Filter] = []

    async def take_filters(self, filters: Sequence[Filter]) -> list[Filter]:
        """Take over those filters that are exact, and return the others."""
        tables = await self._opened()
        meanings = ColumnMeanings.of(self._scan(tables[0], ()).schema, self._requested)
        for spark_filter in filters:
            predicate = meanings.predicate(spark_filter)
            if predicate is not None and all(self._takes(table, predicate) for table in tables):
                self._taken.append(predicate)
            else:
                self._left.append(spark_filter)
        return self._left

    async def plan(self, *, most_tasks: int | None = None) -> PlannedShares:
        """Plan, and cut the plan into shares of tasks. No data request.

        Args:
            most_tasks: Largest number of them, where the options do not say; None leaves it to the size of the scan, see
                :func:`~coldparquet.spark.task_shares.default_task_count`.
        """
        tables = await self._opened()
        asked, counts_rows = self._options.most_pieces, not self._requested.fields
        most = asked or most_tasks
        planned = await gather_or_cancel(
            [
                self._scan(table, self._taken).pieces(
                    None if most is None else max(1, most // len(tables)),
                    target_bytes=BYTES_PER_TASK if asked is None else None,
                    only_row_counts=counts_rows,
                )
                for table in tables
            ]
        )
        pieces = [piece for of_table in planned for piece in of_table]
        shares = shares_of(pieces, most=most, together=len(tables) > 1)
        return PlannedShares.of(
            [tuple(piece.to_bytes() for piece in share) for share in shares], self._explanation(planned, len(shares))
        )

    def _takes(self, table: Table, predicate: Predicate) -> bool:
        try:
            self._scan(table, [predicate])
        except (InvalidInputError, UnsupportedError):
            return False
        return True

    async def _opened(self) -> tuple[Table, ...]:
        if not self._tables:
            self._tables = await opened_tables(self._options)
            for table in self._tables:
                if self._requested.fields:
                    check_requested(self._requested, self._scan(table, ()).schema)
        return self._tables

    def _scan(self, table: Table, taken: Sequence[Predicate]) -> Scan:
        asked = parse_predicate(self._options.where)
        parts = (*taken, *([] if asked is None else [asked]))
        return table.scan(
            self._requested.names or any_column(table),
            parts[0] if len(parts) == 1 else And(parts) if parts else None,
            options=self._options.read_options,
        )

    def _explanation(self, planned: Sequence[ScanPieces], task_count: int) -> str:
        lines = [f"{task_count} {'task' if task_count == 1 else 'tasks'}"]
        if self._options.where is not None:
            lines.append(f"where, by option: {self._options.where}")
        lines += [f"filter, taken over from Spark: {predicate}" for predicate in self._taken]
        lines += [f"filter, left to Spark: {spark_filter}" for spark_filter in self._left]
        return "\n\n".join(["\n".join(lines), *(pieces.plan.explain() for pieces in planned)])


async def schema_and_plan(options: SourceOptions) -> tuple[StructType, EarlyPlan | None]:
    """Open the tables, return the columns that a scan with these options has and, if it is a small one, its plan.

    Requests: those of opening the tables, and of a plan that is made.
    """
    tables = await opened_tables(options)
    schema = schema_of(tables, options)
    return schema, await _plan_early(options, schema, tables)


async def _plan_early(options: SourceOptions, schema: StructType, tables: tuple[Table, ...]) -> EarlyPlan | None:
    """Plan a scan that nobody has asked for yet, if that is cheap and can do no harm."""
    most_partitions = _MOST_PARTITIONS_PLANNED_EARLY if options.where is None else _MOST_PARTITIONS_ASKED_EARLY
    is_small = sum(len(table.partitions) for table in tables) <= most_partitions
    if not is_small or options.push_filters or options.read_options.archived == "restore":
        return None
    try:
        shares = await ScanOfTables(options, schema, tables).plan()
    except ColdParquetError:
        return None  # whoever looks at the columns alone need not know; a query plans again, and says so
    if sum(len(piece) for share in shares.shares for piece in share) > _MOST_BYTES_PLANNED_EARLY:
        return None
    return EarlyPlan(schema=schema.json(), shares=shares, made_s=time.time())


def schema_of(tables: Sequence[Table], options: SourceOptions) -> StructType:
    """Return the columns that a scan with these options has, as Spark sees them. No request.

    Raises:
        InvalidInputError: A column is unknown, the condition cannot be understood, or the tables have not the same columns
            (kind ``SchemaMismatch``).
    """
    counts_rows = options.columns == ()
    scans = [
        table.scan(any_column(table) if counts_rows else options.columns, options.where, options=options.read_options)
        for table in tables
    ]
    if counts_rows:
        return StructType([])
    for table, scan in zip(tables, scans, strict=True):
        _check_same(scan.schema, scans[0].schema, table, tables[0])
    return spark_schema(scans[0].schema, nanoseconds=options.nanoseconds)


def any_column(table: Table) -> list[str]:
    """Return the name of one column, for scans of which only the number of rows counts."""
    return table.schema.names[:1]


def _check_same(schema: pa.Schema, first: pa.Schema, table: Table, first_table: Table) -> None:
    if schema.equals(first, check_metadata=True):
        return
    raise InvalidInputError(
        f"the table has not the columns of {first_table.url}: {_columns_text(schema)} instead of {_columns_text(first)}; name"
        " those that they have in common with the option columns",
        kind="SchemaMismatch",
        path=table.url,
    )


def _columns_text(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


_open_tables: OrderedDict[tuple[str, str, str, int], Table] = OrderedDict()
"""Tables of earlier scans of this process, the one used last at the end: connections and credentials are found again."""


async def opened_tables(options: SourceOptions) -> tuple[Table, ...]:
    """Open the tables, each in its newest state. Requests: those of opening them, and the listings of patterns."""
    storage_options = options.credentials.storage_options()
    urls = await expand_urls(options.urls, storage_options=storage_options, store_options=options.store_options)
    known_by = (json.dumps(storage_options, sort_keys=True, default=repr), repr(options.store_options), os.getpid())

    async def newest(url: str) -> Table:
        table = _open_tables.pop((url, *known_by), None)
        if table is None:
            table = await open_table(
                url,
                storage_options=storage_options,
                options=options.read_options,
                store_options=options.store_options,
            )
        else:
            await _refresh_or_close(table)
        _open_tables[(url, *known_by)] = table
        return table

    tables = tuple(await gather_or_cancel([newest(url) for url in urls]))
    while len(_open_tables) > max(_MOST_OPEN_TABLES, len(tables)):
        _, oldest = _open_tables.popitem(last=False)
        await oldest.aclose()
    return tables


async def _refresh_or_close(table: Table) -> None:
    """Refresh a table that nobody else knows of: where that fails, or is cancelled, it is to be opened anew."""
    try:
        await table.refresh()
    except BaseException:
        await table.aclose()
        raise


@atexit.register
def close_tables() -> None:
    """Close the tables that this process keeps open, as is done when it ends; the next scan opens its tables again."""
    mine = [key for key in _open_tables if key[-1] == os.getpid()]
    if mine:
        background.run(_close([_open_tables.pop(key) for key in mine]))


async def _close(tables: Sequence[Table]) -> None:
    for table in tables:
        await table.aclose()
