"""The data source: ``spark.read.format("coldparquet")``, ``df.write.format("coldparquet")`` and their streams."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from coldparquet.concurrency import background
from coldparquet.spark.failures import told_to_spark
from coldparquet.spark.options import SourceOptions
from coldparquet.spark.planning import table_schema
from coldparquet.spark.reader import FilteringReader, TableReader
from coldparquet.spark.stream_options import STREAM_OPTIONS

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, DataSourceWriter
    from pyspark.sql.types import StructType

_PUSHING_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"
"""The module that Spark runs to plan a scan where filters are pushed."""


class DefaultSource(DataSource):
    """Tables of cold partitions. Found by Spark through the package ``pyspark_coldparquet``.

    ``spark.read.format("coldparquet").load("s3://bucket/db/trades")``; options are those of :mod:`coldparquet.spark.options`.

    * Rows: say what is wanted with the option ``where``. Spark keeps applying its own filters to what comes.
    * Columns: Spark never tells a Python data source which ones it needs. Say so with the option ``columns`` or with ``.schema(...)``,
      or all of them are fetched.
    * State: a loaded DataFrame is planned once, for its first query, and reads that state of the tables ever after; load it
      again for a newer one.

    Filters of Spark are taken over only with the option ``push_filters`` and where ``spark.sql.python.filterPushdown.enabled`` is
    ``true``. Both are off by default because Spark (4.1 to 4.3 at least) remembers the filters of a loaded DataFrame's last query
    and drops them from the plans of its others: ``df.where(a).union(df.where(b))`` returns the rows of ``b`` twice, and
    ``df.count()`` after ``df.where(a).count()`` counts those of ``a``. So load a DataFrame for every query that you filter::

        spark.read.format("coldparquet").option("push_filters", True).load(url).where("price > 3")
    """

    @classmethod
    def name(cls) -> str:
        """Return what ``format`` is called with."""
        return "coldparquet"

    def schema(self) -> StructType:
        """Look at the tables. Requests: those of opening them, on the driver."""
        with told_to_spark():
            return background.run(table_schema(SourceOptions.parse(self.options, also=STREAM_OPTIONS)))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query."""
        with told_to_spark():
            options = SourceOptions.parse(self.options)
        takes_filters = options.push_filters and _pushes_filters()
        return FilteringReader(options, schema) if takes_filters else TableReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of a stream."""
        from coldparquet.spark.stream_reader import ColdParquetStreamReader  # noqa: PLC0415 - only streams need it

        with told_to_spark():
            return ColdParquetStreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch query."""
        from coldparquet.spark.writer import ColdParquetWriter  # noqa: PLC0415 - only writing needs it

        with told_to_spark():
            return ColdParquetWriter(self.options, schema, overwrite)


def _pushes_filters() -> bool:
    """Tell whether this process asks readers for ``pushFilters``.

    Spark refuses a reader that has the method while pushing is switched off, and does not tell the source whether it is: each
    way of planning is a worker of its own, though, forked from a daemon that has imported it, or started as it.
    """
    main = getattr(sys.modules["__main__"], "__spec__", None)
    return _PUSHING_WORKER in sys.modules or getattr(main, "name", None) == _PUSHING_WORKER
