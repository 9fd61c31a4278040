"""What the driver answers itself: columns for coldparquet's jar, and aggregates, which one task hands to Spark."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from coldparquet.concurrency import background
from coldparquet.decode.arrow import compute
from coldparquet.spark.arrow_schema import arrow_schema_of
from coldparquet.spark.conversion import to_spark
from coldparquet.spark.early_plan import cost_in_ui
from coldparquet.spark.errors import told_to_spark
from coldparquet.spark.garbage import spare_garbage_collection
from coldparquet.spark.planning import ScanOfTables
from coldparquet.text import human_bytes, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coldparquet.spark.options import SourceOptions
    from coldparquet.spark.pushed import Aggregate
    from coldparquet.spark.source import DefaultSource
    from coldparquet.table_scan import Scan


class SchemaPartition(InputPartition):
    """Columns, as :meth:`StructType.json` writes them."""

    def __init__(self, schema: str) -> None:
        self.schema = schema


class SchemaReader(DataSourceReader):
    """Looks up columns where scans are planned, so that these find the tables open. Its partition is for the jar, no task."""

    def __init__(self, source: DefaultSource) -> None:
        self._source = source

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def partitions(self) -> Sequence[InputPartition]:
        """Look up the columns. Requests: those of opening the tables."""
        schema = self._source.schema()
        spare_garbage_collection("columns")
        return [SchemaPartition(schema.json())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Refuse: there are no rows."""
        raise TypeError(f"{partition!r} holds no rows")


class AnswerPartition(InputPartition):
    """The answer itself, one row, as Arrow's stream."""

    def __init__(self, row: bytes, explanation: bytes, cost: dict[str, int]) -> None:
        self.row = row
        self.explanation = explanation
        self.cost = cost


class AnswersReader(DataSourceReader):
    """Answers aggregates without groups, whose filters are none but those of the designated timestamp."""

    def __init__(self, options: SourceOptions, schema: StructType, aggregates: Sequence[Aggregate]) -> None:
        self._options = options
        self._schema = schema
        self._aggregates = aggregates

    def __getstate__(self) -> dict[str, Any]:
        return {}  # the task has the answer

    def partitions(self) -> Sequence[InputPartition]:
        """Find the answer, on the driver.

        Requests: those of :meth:`coldparquet.table_scan.Scan.count`, ``null_count`` and ``min_max``.
        """
        with told_to_spark():
            return [background.run(self._answered())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Hand over the row. No request."""
        if not isinstance(partition, AnswerPartition):
            raise TypeError(f"{partition!r} holds no answer")
        yield from pa.ipc.open_stream(partition.row)

    async def _answered(self) -> AnswerPartition:
        asked = ScanOfTables(self._options, StructType())  # the answer's columns are none of the table
        columns = list(dict.fromkeys(one.column for one in self._aggregates if one.column is not None))
        scans = await asked.scans_of(columns)
        answers = [await _answer(one, scans) for one in self._aggregates]
        fields = [
            pa.field("count", pa.int64()) if one.function == "count" else scans[0].schema.field(one.column or "")
            for one in self._aggregates
        ]
        arrays = [pa.repeat(answer, 1).cast(field.type) for answer, field in zip(answers, fields, strict=True)]
        batch = to_spark(pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields)), arrow_schema_of(self._schema))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        text = [f"answered on the driver: {', '.join(map(str, self._aggregates))}", *asked.told_filters()]
        for scan in scans:
            stats = scan.stats
            text.append(f"{scan}: {plural(stats.request_count, 'request')}, {human_bytes(stats.fetched_bytes)}")
        return AnswerPartition(sink.getvalue().to_pybytes(), zlib.compress("\n".join(text).encode()), _cost(scans))


def _cost(scans: Sequence[Scan]) -> dict[str, int]:
    """Return what was asked of the store: nothing is left for tasks."""
    stats = [scan.stats for scan in scans]
    dollars = [one.dollars for one in stats if one.dollars is not None]
    return cost_in_ui(
        planning_requests=sum(one.request_count for one in stats),
        requests=0,
        fetched_bytes=0,
        dollars=sum(dollars) if len(dollars) == len(stats) else None,
    )


async def _answer(aggregate: Aggregate, scans: Sequence[Scan]) -> Any:
    """Answer one aggregate over all tables: a number, or a scalar of Arrow."""
    column = aggregate.column
    if aggregate.function == "count":
        rows = sum([await scan.count() for scan in scans])
        return rows if column is None else rows - sum([await scan.null_count(column) for scan in scans])
    found: list[Any] = [(await scan.min_max(column or ""))[aggregate.function] for scan in scans]
    return compute.min_max(pa.concat_arrays([pa.repeat(value, 1) for value in found]))[aggregate.function]
