"""Plans a scan on the driver: opens the tables, checks the schema, accepts filters, and cuts the plan into tasks."""

from __future__ import annotations

import json
import time
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql.types import LongType, StructField, StructType

from coldparquet.concurrency import gather_or_cancel
from coldparquet.errors import ColdParquetError, InvalidInputError, NotFoundError, UnsupportedError
from coldparquet.expressions.where import parse_predicate
from coldparquet.plan.cost import dollars_of, metadata_dollars, prices_of, reads_by_class
from coldparquet.plan.predicate import And, Predicate
from coldparquet.spark.early_plan import BYTES_PER_TASK, EarlyPlan, PlannedShares, cost_in_ui, growing_shares, shares_of
from coldparquet.spark.filters import ColumnMeanings
from coldparquet.spark.tables import matching_tables, opened_tables, remember_load
from coldparquet.spark.types import check_requested, spark_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import Filter

    from coldparquet.plan.model import ReadPlan
    from coldparquet.spark.options import SourceOptions
    from coldparquet.spark.pushed import PushedFilter
    from coldparquet.table import Table
    from coldparquet.table_scan import Scan


_MOST_STRETCHES = 512
"""Stretches of time whose rows the schema of a table tells; Spark keeps the schema, and logs it."""

_MOST_PARTITIONS_PLANNED_EARLY = 16
"""Larger tables are not planned early: a lookup of the columns alone must not wait for the metadata of their
partitions."""

_MOST_PARTITIONS_ASKED_EARLY = 512
"""The limit where the option ``where`` announces a query: the plan is needed, and reads fewer partitions."""

_MOST_BYTES_PLANNED_EARLY = 512 * 1024
"""An early plan travels through Java twice, and stays in memory as long as the DataFrame."""


class ScanOfTables:
    """One scan of one or several tables with the same columns; without ``tables`` they are opened when needed."""

    def __init__(self, options: SourceOptions, requested: StructType, tables: tuple[Table, ...] = ()) -> None:
        self._options = options
        self._requested = requested
        self._tables = tables
        self._taken: list[Predicate] = []
        self._left: list[Filter | PushedFilter] = []

    async def take_filters(self, filters: Sequence[Filter]) -> list[Filter]:
        """Accept the filters that are exact, and return the others."""
        tables = await self._opened()
        meanings = ColumnMeanings.of(self._scan(tables[0], ()).schema, self._requested)
        left = []
        for spark_filter in filters:
            predicate = meanings.predicate(spark_filter)
            if predicate is not None and all(self._takes(table, predicate) for table in tables):
                self._taken.append(predicate)
            else:
                self._left.append(spark_filter)
                left.append(spark_filter)
        return left

    async def plan(self, *, most_tasks: int | None = None) -> PlannedShares:
        """Plan, and cut the plan into the shares of tasks. No data request."""
        tables = await self._taking_pushed()
        limit = None if self._options.pushed is None else self._options.pushed.limit
        asked = self._options.most_pieces
        most = None if limit is not None else asked or most_tasks
        target_bytes = BYTES_PER_TASK if asked is None else None
        planned = await gather_or_cancel(
            [
                self._scan(table, self._taken, limit=limit).pieces(
                    None if most is None else max(1, most // len(tables)),
                    target_bytes=target_bytes if limit is None else 1,
                    exceeds_limit=True,
                )
                for table in tables
            ]
        )
        pieces = [piece for of_table in planned for piece in of_table]
        shares = shares_of(pieces, most=most, together=len(tables) > 1) if limit is None else growing_shares(pieces)
        plans = [pieces.plan for pieces in planned]
        return PlannedShares.of(shares, self._explanation(plans, len(shares)), _cost(plans))

    async def scans_of(self, columns: Sequence[str]) -> list[Scan]:
        """Return a scan of these columns for each table, with the filters of Spark. Requests: those of opening them."""
        return [self._scan(table, self._taken, columns=columns) for table in await self._taking_pushed()]

    def told_filters(self) -> list[str]:
        """Say which filters were taken over from Spark, and which were not."""
        taken = [f"filter, taken over from Spark: {predicate}" for predicate in self._taken]
        return taken + [f"filter, left to Spark: {spark_filter}" for spark_filter in self._left]

    async def _taking_pushed(self) -> tuple[Table, ...]:
        """Open the tables and take the filters of coldparquet's jar, once."""
        tables = await self._opened()
        pushed = self._options.pushed
        if pushed is None or self._taken or self._left:
            return tables
        seen = self._scan(tables[0], (), columns=pushed.filter_columns).schema
        meanings = ColumnMeanings.of(seen, spark_schema(seen, nanoseconds=self._options.nanoseconds))
        for spark_filter in pushed.filters:
            predicate = spark_filter.predicate(meanings)
            if predicate is not None and all(self._takes(table, predicate) for table in tables):
                self._taken.append(predicate)
            else:
                spark_filter.refuse()
                self._left.append(spark_filter)
        return tables

    def _takes(self, table: Table, predicate: Predicate) -> bool:
        try:
            self._scan(table, [predicate])
        except (InvalidInputError, UnsupportedError):
            return False
        return True

    @cached_property
    def _where(self) -> Predicate | None:
        """The condition of the options, with the same ``now()`` for all tables."""
        return parse_predicate(self._options.where)

    async def _opened(self) -> tuple[Table, ...]:
        if not self._tables:
            self._tables = await opened_tables(self._options)
            for table in self._tables:
                if self._requested.fields:
                    check_requested(self._requested, self._scan(table, ()).schema)
        return self._tables

    def _scan(
        self,
        table: Table,
        taken: Sequence[Predicate],
        *,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> Scan:
        parts = (*taken, *([] if self._where is None else [self._where]))
        return table.scan(
            self._requested.names if columns is None else columns,
            parts[0] if len(parts) == 1 else And(parts) if parts else None,
            limit=limit,
            options=self._options.read_options,
        )

    def _explanation(self, plans: Sequence[ReadPlan], task_count: int) -> str:
        lines = [f"{task_count} {'task' if task_count == 1 else 'tasks'}"]
        if self._options.where is not None:
            lines.append(f"where, by option: {self._options.where}")
        lines += self.told_filters()
        return "\n\n".join(["\n".join(lines), *(plan.explain() for plan in plans)])


def _cost(plans: Sequence[ReadPlan]) -> dict[str, int]:
    """Return what plans have cost and will cost."""
    dollars = []
    for plan in plans:
        prices = prices_of(plan.options)
        dollars += [dollars_of(reads_by_class(plan), prices), metadata_dollars(plan, prices)]
    is_priced = not any(part.unpriced_classes for part in dollars)
    return cost_in_ui(
        planning_requests=sum(len(plan.metadata_requests) for plan in plans),
        requests=sum(plan.request_count for plan in plans),
        fetched_bytes=sum(plan.bytes_fetched for plan in plans),
        dollars=sum(part.amount for part in dollars) if is_priced else None,
    )


async def schema_and_plan(options: SourceOptions) -> tuple[StructType, EarlyPlan | None]:
    """Open the tables; return the columns of a scan with these options and, for a small scan, its plan.

    Requests: those of opening the tables, and of the plan if there is one.
    """
    if options.pushed is not None and options.pushed.asks == "tables":
        return await _tables_below(options), None
    tables = await opened_tables(options)
    schema = schema_of(tables, options)
    if options.pushed is not None:  # each of its scans asks for other rows
        return _described(schema, tables, options), None
    return schema, await _plan_early(options, schema, tables)


async def _tables_below(options: SourceOptions) -> StructType:
    """Return the paths of the tables below a directory as names of columns, for the catalog of coldparquet's jar."""
    [root] = options.urls
    try:
        found = await matching_tables(root, options.credentials.storage_options(), options.store_options)
    except NotFoundError as error:
        if error.kind not in {NotFoundError.default_kind, "NoTables"}:
            raise
        found = []
    names = [url.removeprefix(root.rstrip("/")).strip("/") for url in found]
    return StructType([StructField(name, LongType()) for name in names if name])


def _described(schema: StructType, tables: Sequence[Table], options: SourceOptions) -> StructType:
    """Tell coldparquet's jar how columns compare, which is the designated timestamp, and when there are how many rows. No request."""
    scan = tables[0].scan(schema.names, options=options.read_options)
    meanings = ColumnMeanings.of(scan.schema, schema)
    for field, column in zip(schema, scan.question.output_columns, strict=True):
        field.metadata = {"coldparquet.meaning": meanings.by_name[field.name].value}
        if column.index == scan.question.snapshot.designated_timestamp:
            field.metadata["coldparquet.timestamp"] = "true"
    if len(schema):
        schema[0].metadata["coldparquet.load"] = remember_load()
        stretches = _rows_in_time(tables)
        if stretches is not None:
            schema[0].metadata["coldparquet.rows"] = json.dumps(stretches)
    return schema


def _rows_in_time(tables: Sequence[Table]) -> list[tuple[int | None, int | None, int]] | None:
    """Count rows in stretches of time: first and last microsecond, None for any; None if the rows of a partition are unknown.

    At most :data:`_MOST_STRETCHES` for each table. By ``_txn`` or the catalogue, so a stale entry may miscount.
    """
    found: list[tuple[int | None, int | None, int]] = []
    for table in tables:
        catalogue = table.scan().question.snapshot.catalogue
        partitions = table.partitions
        rows = [one.rows if one.rows is not None else catalogue.rows_at_hand(one.location) for one in partitions]
        size = -(-len(rows) // _MOST_STRETCHES) or 1
        for start in range(0, len(rows), size):
            times = [one.time_range_ns for one in partitions[start : start + size]]
            counts = [count for count in rows[start : start + size] if count is not None]
            if len(counts) < len(times):
                return None
            known = [time for time in times if time is not None]
            if len(known) < len(times):
                found.append((None, None, sum(counts)))
            else:
                first, stop = min(time[0] for time in known), max(time[1] for time in known)
                found.append((first // 1000, (stop - 1) // 1000, sum(counts)))
    return found


async def _plan_early(options: SourceOptions, schema: StructType, tables: tuple[Table, ...]) -> EarlyPlan | None:
    """Plan a scan before the query, if that is cheap and harmless."""
    most_partitions = _MOST_PARTITIONS_PLANNED_EARLY if options.where is None else _MOST_PARTITIONS_ASKED_EARLY
    is_small = sum(len(table.partitions) for table in tables) <= most_partitions
    if not is_small or options.push_filters or options.read_options.archived == "restore":
        return None
    try:
        shares = await ScanOfTables(options, schema, tables).plan()
    except ColdParquetError:
        return None  # a lookup of columns does not need it; a query plans again, and raises the error
    if sum(len(piece) for share in shares.shares for piece in share) > _MOST_BYTES_PLANNED_EARLY:
        return None
    return EarlyPlan(schema=schema.json(), shares=shares, made_s=time.time())


def schema_of(tables: Sequence[Table], options: SourceOptions) -> StructType:
    """Return the columns of a scan with these options, as Spark sees them. No request."""
    scans = [table.scan(options.columns, options.where, options=options.read_options) for table in tables]
    for table, scan in zip(tables, scans, strict=True):
        _check_same(scan.schema, scans[0].schema, table, tables[0])
    return spark_schema(scans[0].schema, nanoseconds=options.nanoseconds)


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
