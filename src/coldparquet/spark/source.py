"""Defines Spark's data source ``coldparquet``: reading, writing and streams."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import CaseInsensitiveDict, DataSource, DataSourceStreamReader, InputPartition

from coldparquet.concurrency import background
from coldparquet.errors import UnsupportedError
from coldparquet.spark.errors import told_to_spark
from coldparquet.spark.options import STREAM_OPTIONS, SourceOptions, StreamOptions, pushed_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceReader, DataSourceWriter
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from coldparquet.spark.early_plan import EarlyPlan


class RefusedStream(DataSourceStreamReader):
    """Raises an error on Spark's first call, where a stream is impossible.

    An error of ``streamReader`` itself would be lost: Spark (4.1 to 4.3 at least) then raises an UnboundLocalError of
    its own.
    """

    def __init__(self, error: Exception) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Refuse to begin."""
        raise self._error

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Refuse to go on."""
        raise self._error

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802 - Spark's
        """Refuse to go on."""
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:  # noqa: ARG002 - Spark's
        """Refuse to repeat a batch."""
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - Spark's
        """Refuse to read."""
        raise self._error


_PUSHING_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"
"""The module that Spark runs to plan a scan where filters are pushed."""


class DefaultSource(DataSource):
    """Tables of cold partitions. Found by Spark through the package ``pyspark_coldparquet``.

    ``spark.read.format("coldparquet").load("s3://bucket/db/trades")``; options are those of :mod:`coldparquet.spark.options`.

    * With coldparquet's jar on the driver (:func:`coldparquet.spark.jar`) every scan reads the columns and rows that its
      query needs, in the state of the table at that time. All that follows is about sessions without it.
    * Rows: select them with the option ``where``. Spark still applies its own filters to the result.
    * Columns: Spark never tells a Python data source which ones it needs. Name them with the option ``columns`` or with
      ``.schema(...)``; otherwise all are fetched.
    * State: a loaded DataFrame is planned once, for its first query, and always reads that state of the tables. Load it
      again for a newer one. For tables with few partitions ``load`` plans, too: a query within a minute reads the state
      of the load.

    Filters of Spark are accepted only with the option ``push_filters`` and where
    ``spark.sql.python.filterPushdown.enabled`` is ``true``. Both are off by default because Spark (4.1 to 4.3 at least)
    remembers the filters of a loaded DataFrame's last query and drops them from the plans of its others:
    ``df.where(a).union(df.where(b))`` returns the rows of ``b`` twice, and ``df.count()`` after ``df.where(a).count()``
    counts those of ``a``. So load a DataFrame for every query that you filter::

        spark.read.format("coldparquet").option("push_filters", True).load(url).where("price > 3")
    """

    _early_plan: EarlyPlan | None = None
    """Made with the column lookup. Spark sends the source, with its content, to the process that plans."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format``."""
        return "coldparquet"

    def schema(self) -> StructType:
        """Return the columns. Requests: those of opening the tables and, if small, of planning, on the driver."""
        from coldparquet.spark.planning import schema_and_plan  # noqa: PLC0415 - Spark imports this module in other processes, too

        with told_to_spark():
            options = SourceOptions.parse(self.options, also=STREAM_OPTIONS)
            StreamOptions.parse(self.options)  # so that `load` refuses wrong options, and not `start`
            schema, self._early_plan = background.run(schema_and_plan(options))
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query."""
        from coldparquet.spark.reader import FilteringReader, TableReader  # noqa: PLC0415 - only reading needs it

        # Spark sends the source along with every task, which needs only its own share of the plan.
        early, self._early_plan = self._early_plan, None
        with told_to_spark():
            pushed = pushed_of(self.options)
            if pushed is not None and pushed.asks != "rows":
                from coldparquet.spark.answers import SchemaReader  # noqa: PLC0415 - tasks do not need it

                return SchemaReader(self)
            options = SourceOptions.parse(self.options)
            if pushed is not None and pushed.aggregates is not None:
                from coldparquet.spark.answers import AnswersReader  # noqa: PLC0415 - few queries

                return AnswersReader(options, schema, pushed.aggregates)
            if options.push_filters and _pushes_filters():
                return FilteringReader(options, schema)
            return TableReader(options, schema, None if early is None else early.shares_for(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of a stream."""
        try:
            with told_to_spark():
                return _stream_reader(self.options, schema)
        except Exception as error:  # noqa: BLE001 - Spark would lose it, whatever its class
            return RefusedStream(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch query."""
        from coldparquet.spark.writer import ColdParquetWriter  # noqa: PLC0415 - only writing needs it

        with told_to_spark():
            return ColdParquetWriter(self.options, schema, overwrite)


def made_by_jar(options: str) -> DefaultSource:
    """Return the source with options in JSON. The pickle that coldparquet's jar sends to the process that plans is this call."""
    return DefaultSource(CaseInsensitiveDict(json.loads(options)))


def _stream_reader(options: Mapping[str, str], schema: StructType) -> DataSourceStreamReader:
    try:
        from coldparquet.spark.stream import ColdParquetStreamReader  # noqa: PLC0415 - only streams need it
    except ModuleNotFoundError as error:
        if error.name != "pyspark.sql.streaming.datasource":
            raise
        raise UnsupportedError(
            "this PySpark has no limits for streams of Python sources, as 4.1 has none; streams need a later one, such as 4.3",
            kind="OldSpark",
        ) from None
    return ColdParquetStreamReader(options, schema)


def _pushes_filters() -> bool:
    """Tell whether this process asks readers for ``pushFilters``.

    Spark refuses a reader with this method while pushing is off, and does not tell the source the setting. But the two
    ways of planning use different workers: each is forked from a daemon that has imported its planning module, or
    started as it.
    """
    main = getattr(sys.modules["__main__"], "__spec__", None)
    return _PUSHING_WORKER in sys.modules or getattr(main, "name", None) == _PUSHING_WORKER
