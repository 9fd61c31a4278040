"""Does what a Spark data source cannot do: read only the requested columns, answer from metadata, and show the plan."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkAttributeError
from pyspark.sql import functions

from coldparquet.concurrency import background, gather_or_cancel
from coldparquet.errors import InvalidInputError, UnsupportedError
from coldparquet.spark.answers import AnswerPartition
from coldparquet.spark.arrow_schema import arrow_schema_of
from coldparquet.spark.early_plan import explanation_text
from coldparquet.spark.errors import told_to_spark
from coldparquet.spark.options import SourceOptions
from coldparquet.spark.planning import ScanOfTables, schema_of
from coldparquet.spark.reader import PiecesPartition
from coldparquet.spark.tables import opened_tables
from coldparquet.spark.task import map_in_arrow, read_pieces
from coldparquet.spark.task_settings import TaskSettings
from coldparquet.table_scan import python_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from coldparquet.spark.early_plan import PlannedShares
    from coldparquet.table_scan import Scan


_SCAN = "DataSourceV2ScanRelation"
_TABLES = frozenset({"PythonTable", "ColdTable"})
"""Classes of our tables, without coldparquet's jar and with it."""


def explain(df: DataFrame) -> str:
    """Explain the requests that a DataFrame will cost, for each ``spark.read.format("coldparquet")`` in it.

    The explanation is of the plan that Spark holds for the DataFrame, with the filters that Spark pushed. Making that
    plan costs what planning the first action costs, which then does not plan again.

    DataFrames of :func:`coldparquet.spark.read`, and those of Spark Connect, hold no such plan; use
    :func:`coldparquet.spark.explain_read` instead.

    Args:
        df: Of a classic session. Scans in a cached DataFrame or in a subquery are not found.

    Raises:
        UnsupportedError: The session is one of Spark Connect, whose plans stay on the server (kind ``ConnectSession``).
        InvalidInputError: The DataFrame does not read from the data source (kind ``NoColdParquetScan``).
    """
    execution = getattr(df, "_jdf", None)
    if execution is None:
        raise UnsupportedError(
            "a Spark Connect client does not hold the plan of a DataFrame; ask for the same columns and rows with"
            " coldparquet.spark.explain_read(spark, url, columns=..., where=...)",
            kind="ConnectSession",
        )
    texts = [text for scan in _scans(execution.queryExecution().optimizedPlan()) if (text := _text(scan)) is not None]
    if not texts:
        raise InvalidInputError(
            'nothing in this DataFrame is read with spark.read.format("coldparquet"); if it is one of'
            " coldparquet.spark.read(), which Spark holds no plan of, give the same arguments to"
            " coldparquet.spark.explain_read(spark, url, columns=..., where=...)",
            kind="NoColdParquetScan",
        )
    return "\n\n".join(texts)


def _scans(plan: Any) -> Iterator[Any]:
    leaves = plan.collectLeaves()
    for position in range(leaves.size()):
        leaf = leaves.apply(position)
        if leaf.getClass().getSimpleName() == _SCAN and leaf.relation().table().getClass().getSimpleName() in _TABLES:
            yield leaf.scan()


def _text(scan: Any) -> str | None:
    """Return the explanation that travels in the first partition; None for other data sources."""
    partitions = scan.toBatch().planInputPartitions()
    first = pickle.loads(bytes(partitions[0].pickedPartition())) if len(partitions) else None  # noqa: S301 - from our own driver
    if not isinstance(first, PiecesPartition | AnswerPartition) or first.explanation is None:
        return None
    return explanation_text(first.explanation)


def read(
    spark: SparkSession,
    url: str | Sequence[str],
    *,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> DataFrame:
    """Read tables as a DataFrame, planned immediately: the fastest way.

    The rows come through ``mapInArrow`` over pieces of the plan, which is a quarter to a half faster than a data
    source. The batches and their path to Java are the same. But there are fewer tasks, because the number of cores is
    known here; every task costs 25-30 ms and starts without prefetched data. Also, planning runs here, not in processes
    that Spark starts.

    Filters and columns are those of the arguments; Spark itself applies later selections. Each action reads the state
    of the tables that was planned, and fails if it is gone. Call the function again for a newer state.

    Requests: on the driver those of planning; in the tasks for data alone.

    Args:
        spark: The session, classic or Connect. With Connect the client plans, so it must reach the store.
        url: As the argument of ``load``.
        columns: Names; None for all. Others are not fetched.
        where: SQL text in the library's own dialect.
        storage_options: Credentials, endpoint and so on; they travel to the executors. Without, every process finds its
            own.
        **options: Those of :mod:`coldparquet.spark.options`.

    Raises:
        ColdParquetError: The errors of opening and planning, in their own classes.
    """
    asked = _options(url, where, storage_options, options, columns=columns)
    schema, planned = _planned(spark, asked)
    settings = TaskSettings.of(asked, arrow_schema_of(schema)).as_dict()
    numbers = spark.range(0, len(planned.shares), 1, len(planned.shares))
    return map_in_arrow(numbers, _task(planned.shares, settings), schema)


def explain_read(
    spark: SparkSession,
    url: str | Sequence[str],
    *,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> str:
    """Explain the requests that :func:`read` with the same arguments will cost, also through Spark Connect.

    Requests: those of planning. Arguments: those of :func:`read`.
    """
    _, planned = _planned(spark, _options(url, where, storage_options, options, columns=columns))
    return explanation_text(planned.explanation)


def count(
    spark: SparkSession,  # noqa: ARG001 - the same signature for all of these
    url: str | Sequence[str],
    where: str | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> int:
    """Count rows on the driver, without a Spark job.

    Requests: metadata alone where it suffices; see :meth:`coldparquet.table_scan.Scan.count`. Arguments: those of
    :func:`read`.
    """
    asked = _options(url, where, storage_options, options)
    return sum(_answers(asked, lambda scan: scan.count()))


def min_max(
    spark: SparkSession,  # noqa: ARG001 - the same signature for all of these
    url: str | Sequence[str],
    column: str,
    where: str | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> tuple[Any, Any]:
    """Find the smallest and the largest value of a column on the driver, without a Spark job.

    Requests: metadata alone where it is exact; see :meth:`coldparquet.table_scan.Scan.min_max`. Arguments: those of :func:`read`.

    Returns:
        Both as Python objects, None where there is no value.

    Raises:
        UnsupportedError: Python has no such object (kind ``NoPythonValue``).
    """
    asked = _options(url, where, storage_options, options)
    found = _answers(asked, lambda scan: scan.min_max(column))
    least = [python_value(pair["min"], column) for pair in found]
    greatest = [python_value(pair["max"], column) for pair in found]
    return (
        min((value for value in least if value is not None), default=None),
        max((value for value in greatest if value is not None), default=None),
    )


def _planned(spark: SparkSession, asked: SourceOptions) -> tuple[StructType, PlannedShares]:
    """Open the tables and plan, with a suitable number of tasks."""
    most = asked.most_pieces or core_count(spark) * TASKS_PER_CORE
    tables = background.run(opened_tables(asked))
    schema = schema_of(tables, asked)
    return schema, background.run(ScanOfTables(asked, schema, tables).plan(most_tasks=most))


def _options(
    url: str | Sequence[str],
    where: str | None,
    storage_options: Mapping[str, Any] | None,
    options: Mapping[str, Any],
    *,
    columns: Sequence[str] | None = None,
) -> SourceOptions:
    given: dict[str, Any] = {
        "path": url if isinstance(url, str) else None,
        "paths": None if isinstance(url, str) else json.dumps(list(url)),
        "where": where,
        "columns": None if columns is None else json.dumps(list(columns)),
        "secret_options": None if storage_options is None else json.dumps(dict(storage_options)),
        **options,
    }
    return SourceOptions.parse({name: _option_text(value) for name, value in given.items() if value is not None})


def _option_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _answers(options: SourceOptions, ask: Callable[[Scan], Any]) -> list[Any]:
    """Run a question on each of the tables."""

    async def answers() -> list[Any]:
        tables = await opened_tables(options)
        scans = [table.scan([], options.where, options=options.read_options) for table in tables]
        return await gather_or_cancel([ask(scan) for scan in scans])

    return background.run(answers())


def _task(
    shares: Sequence[tuple[bytes, ...]], settings: Mapping[str, Any]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that Spark calls with the numbers of a task's shares.

    It carries all pieces, once to each executor where they are long. Those of 100,000 row groups are 6.5 MB, which a
    task decodes in 2 ms. As rows of a DataFrame they would cost a shuffle.
    """

    def read_shares(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:

        with told_to_spark():
            for batch in batches:
                numbers: list[Any] = batch.column(0).to_pylist()
                for number in numbers:
                    yield from read_pieces(shares[number], TaskSettings.from_dict(settings))

    return read_shares


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
