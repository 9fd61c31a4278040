"""Plans a scan on the driver: opens the tables, checks the schema, accepts filters, and cuts the plan into tasks."""

from __future__ import annotations

import atexit
import json
import math
import os
import time
import zlib
from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from pyspark.errors import PySparkAttributeError
from pyspark.sql import functions
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from coldparquet.concurrency import background, gather_or_cancel
from coldparquet.errors import ColdParquetError, InternalError, InvalidInputError, UnsupportedError
from coldparquet.opening import open_table
from coldparquet.options import ReadOptions
from coldparquet.plan.predicate import And, Predicate
from coldparquet.plan.where import parse_predicate
from coldparquet.spark.errors import told_to_spark
from coldparquet.spark.filters import ColumnMeanings
from coldparquet.spark.task import TaskSettings
from coldparquet.spark.types import check_requested, spark_schema
from coldparquet.storage.open import opened_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import Filter

    from coldparquet.options import StoreOptions
    from coldparquet.pieces import ScanPiece, ScanPieces
    from coldparquet.spark.options import SourceOptions
    from coldparquet.table import Table
    from coldparquet.table_scan import Scan


TASKS_PER_CORE = 3
"""Enough that idle cores get another task, and few enough for the cost of each."""

_NUMBERS = 1 << 16
"""Spark cuts this many into one partition per core."""


def core_count(spark: SparkSession) -> int:
    """Return the number of tasks that Spark makes by default: one per core, unless configured otherwise.

    Through Spark Connect, which has no API for it, this takes a Spark job of its own.
    """
    try:
        return int(spark.sparkContext.defaultParallelism)
    except PySparkAttributeError:  # of Connect
        places = spark.range(_NUMBERS).select(functions.spark_partition_id().alias("place"))
        last = places.agg(functions.max("place")).first()
        return 1 + (last[0] if last is not None else 0)


_EARLY_PLAN_LASTS_S = 60
"""A DataFrame that one script loads and queries is planned once; a query after this time gets the table's newer
state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedShares:
    """A plan, cut into the shares of tasks."""

    shares: tuple[tuple[bytes, ...], ...]
    """The pieces of each task; at least one task, to carry the explanation."""
    explanation: bytes
    """Text, compressed; see :func:`explanation_text`."""

    @classmethod
    def of(cls, shares: Sequence[tuple[bytes, ...]], explanation: str) -> Self:
        """Combine the pieces of each task with the plan's explanation."""
        return cls(shares=tuple(shares) or ((),), explanation=zlib.compress(explanation.encode()))


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyPlan:
    """A plan made with the column lookup: Spark looks up columns in one process, and plans in another."""

    schema: str
    """The columns, as :meth:`StructType.json` writes them."""
    shares: PlannedShares
    made_s: float
    """Unix time."""

    def shares_for(self, schema: StructType) -> PlannedShares | None:
        """Return the plan if it has these columns and is still new, else None."""
        is_new = abs(time.time() - self.made_s) <= _EARLY_PLAN_LASTS_S
        return self.shares if is_new and self.schema == schema.json() else None


def explanation_text(explanation: bytes) -> str:
    """Return the text of :attr:`PlannedShares.explanation`."""
    return zlib.decompress(explanation).decode()


_PATTERN_CHARACTERS = frozenset("*?[")
_WEB_SCHEMES = ("http", "https")


async def expand_urls(
    urls: Sequence[str], *, storage_options: Mapping[str, Any], store_options: StoreOptions
) -> tuple[str, ...]:
    """Replace patterns by the matching tables, in alphabetical order; other URLs stay unchanged.

    Requests: 1 listing for each directory that a pattern matches.
    """
    found: list[str] = []
    for url in urls:
        found += await _matching(url, storage_options, store_options) if is_pattern(url) else [url]
    return tuple({url.rstrip("/"): url for url in found}.values())  # each once, otherwise its rows would be read twice


def is_pattern(url: str) -> bool:
    """Tell whether a URL is a pattern of tables."""
    scheme, _, path = url.rpartition("://")
    # A question mark on the web begins a query string, and on S3 ``?versionId=`` the version of one object.
    return scheme not in _WEB_SCHEMES and "?versionId=" not in path and bool(_PATTERN_CHARACTERS & set(path))


async def _matching(url: str, storage_options: Mapping[str, Any], store_options: StoreOptions) -> list[str]:
    from coldparquet.pipelines.lakes import find_tables  # noqa: PLC0415 - as the next
    from coldparquet.pipelines.model import Lake  # noqa: PLC0415 - only patterns need the pipelines

    lake = Lake.parse(url)
    async with opened_store(
        lake.url,
        storage_options=storage_options,
        store_options=store_options,
        store=None,
        max_concurrency=ReadOptions().max_concurrency,
    ) as opened:
        tables = await find_tables(opened.stack.store, opened.path, lake.pattern)
    return [f"{lake.url.rstrip('/')}/{table}" if table else lake.url for table in tables]


BYTES_PER_TASK = 128 * 1024 * 1024
"""Compressed and decoded bytes per task, if the number of tasks is not given. They take 0.4 s or more; a Python task
always costs 25-30 ms. Spark's own tasks read 128 MB of compressed bytes alone."""

_UNBOUNDED_TASKS = 128
"""Number of tasks of that size that is always allowed. Beyond it each task gets more work. A data source is planned in
a process to which Spark (4.1 to 4.3 at least) passes neither its settings nor the number of cores, so 3 tasks per core
is no option."""


def default_task_count(worthwhile: int) -> int:
    """Return the number of tasks, from the number that would be worth their cost, where the number of cores is unknown.

    The square root lets both the tasks and their size grow. 400 GB of compressed and decoded bytes become 617 tasks of
    about 2 seconds. Those are 3 for each of 200 cores, and cost 1.5 % more on two of them.
    """
    if worthwhile <= _UNBOUNDED_TASKS:
        return worthwhile
    return math.isqrt(_UNBOUNDED_TASKS * worthwhile)


def shares_of(pieces: Sequence[ScanPiece], *, most: int | None, together: bool = False) -> list[list[ScanPiece]]:
    """Distribute pieces over tasks."""
    weights = [max(piece.fetched_bytes, 1) for piece in pieces]
    # Decoded bytes are about three times the fetched ones.
    worthwhile = max(1, -(-sum(weights) * 4 // BYTES_PER_TASK)) if together else len(pieces)
    count = default_task_count(worthwhile) if most is None else min(most, worthwhile)
    if count >= len(pieces):
        return [[piece] for piece in pieces]
    even_share = sum(weights) / count
    shares: list[list[ScanPiece]] = []
    weight_before = 0
    for piece, weight in zip(pieces, weights, strict=True):
        if not shares or weight_before >= len(shares) * even_share:
            shares.append([])
        shares[-1].append(piece)
        weight_before += weight
    return shares


_MOST_OPEN_TABLES = 8

_MOST_PARTITIONS_PLANNED_EARLY = 16
"""Larger tables are not planned early: a lookup of the columns alone must not wait for the metadata of their
partitions."""

_MOST_PARTITIONS_ASKED_EARLY = 512
"""The limit where the option ``where`` announces a query: the plan is needed, and reads fewer partitions."""

_MOST_BYTES_PLANNED_EARLY = 512 * 1024
"""An early plan travels through Java twice, and stays in memory as long as the DataFrame."""


class ScanOfTables:
    """One scan of one or several tables with the same columns.

    Args:
        options: The options of the source.
        requested: The columns, as Spark sees them.
        tables: Tables just opened for their columns; without any they are opened when they are needed.
    """

    def __init__(self, options: SourceOptions, requested: StructType, tables: tuple[Table, ...] = ()) -> None:
        self._options = options
        self._requested = requested
        self._tables = tables
        self._taken: list[Predicate] = []
        self._left: list[Filter] = []

    async def take_filters(self, filters: Sequence[Filter]) -> list[Filter]:
        """Accept the filters that are exact, and return the others."""
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
        """Plan, and cut the plan into the shares of tasks. No data request."""
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
    """Open the tables; return the columns of a scan with these options and, for a small scan, its plan.

    Requests: those of opening the tables, and of the plan if there is one.
    """
    tables = await opened_tables(options)
    schema = schema_of(tables, options)
    return schema, await _plan_early(options, schema, tables)


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
    """Return the name of one column, for scans that only count rows."""
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
"""Open tables of earlier scans in this process, the last used at the end: their connections and credentials are
reused."""


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
    """Refresh a table that no other caller holds; close it if that fails, or is cancelled."""
    try:
        await table.refresh()
    except BaseException:
        await table.aclose()
        raise


@atexit.register
def close_tables() -> None:
    """Close the tables that this process keeps open, as at its end; the next scan opens its tables again."""
    mine = [key for key in _open_tables if key[-1] == os.getpid()]
    if mine:
        background.run(_close([_open_tables.pop(key) for key in mine]))


async def _close(tables: Sequence[Table]) -> None:
    for table in tables:
        await table.aclose()


class PiecesPartition(InputPartition):
    """The share of one task.

    Attributes:
        pieces: What ``ScanPiece.to_bytes`` made.
        explanation: The explanation of the whole plan, compressed, in the first partition of a scan; None in the
            others.
    """

    def __init__(self, pieces: tuple[bytes, ...], explanation: bytes | None) -> None:
        self.pieces = pieces
        self.explanation = explanation

    @staticmethod
    def pieces_of(partition: InputPartition) -> tuple[bytes, ...]:
        """Return the pieces of a partition that Spark passes to a task."""
        if not isinstance(partition, PiecesPartition):
            raise InternalError(
                f"Spark hands the task a {type(partition).__name__} that this source did not plan, {partition!r}; its rows would be"
                " missing, so the query ends here: please report it with the driver's log",
                kind="ForeignPartition",
            )
        return partition.pieces

    def __repr__(self) -> str:
        return f"<PiecesPartition: {len(self.pieces)} pieces of {sum(map(len, self.pieces)):,} bytes>"


class TableReader(DataSourceReader):
    """Reads tables. Where Spark pushes filters, :class:`FilteringReader` does.

    It is pickled once for all tasks, and then holds only the settings of a task.

    Args:
        options: The options of the source.
        schema: The columns for Spark, from those of the tables.
        planned: The plan, if there is one already.
    """

    def __init__(self, options: SourceOptions, schema: StructType, planned: PlannedShares | None = None) -> None:
        from coldparquet.spark.arrow_schema import arrow_schema_of  # noqa: PLC0415 - tasks do not need it

        self._options = options
        self._schema = schema
        self._planned = planned
        self._settings = TaskSettings.of(options, arrow_schema_of(schema)).as_dict()

    def __getstate__(self) -> dict[str, Any]:
        return {"_settings": self._settings}

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the scan and cut it into the shares of tasks. Runs on the driver.

        Requests: those of opening the tables and of ``Scan.plan``; none for data, and none at all with a plan from before.
        """
        with told_to_spark():
            planned = self._planned or background.run(self._scan.plan())
        return [
            PiecesPartition(pieces, planned.explanation if number == 0 else None)
            for number, pieces in enumerate(planned.shares)
        ]

    @cached_property
    def _scan(self) -> ScanOfTables:
        from coldparquet.spark.planning import ScanOfTables  # noqa: PLC0415 - tasks do not plan

        return ScanOfTables(self._options, self._schema)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the share of one task. Runs on an executor. Requests: for data alone."""
        from coldparquet.spark.task import read_pieces  # noqa: PLC0415 - planning does not read

        with told_to_spark():
            yield from read_pieces(PiecesPartition.pieces_of(partition), TaskSettings.from_dict(self._settings))


class FilteringReader(TableReader):
    """Accepts the filters with the same meaning in the library as in Spark."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Accept exact filters; return the others, which Spark then applies itself."""
        with told_to_spark():
            return background.run(self._scan.take_filters(filters))
