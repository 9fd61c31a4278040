"""The reader of the data source: plans on the driver, and hands pieces of the plan to the tasks."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from coldparquet.concurrency import background
from coldparquet.errors import InternalError
from coldparquet.spark.errors import told_to_spark
from coldparquet.spark.garbage import spare_garbage_collection
from coldparquet.spark.jvm import WORTH_A_WARNING_BYTES, warn_without_jar
from coldparquet.spark.task_settings import TaskSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from coldparquet.spark.early_plan import PlannedShares
    from coldparquet.spark.options import SourceOptions
    from coldparquet.spark.planning import ScanOfTables


class PiecesPartition(InputPartition):
    """The share of one task: pieces as ``ScanPiece.to_bytes`` makes them.

    The first one of a scan carries the explanation of the whole plan, compressed, and its cost, which coldparquet's jar reads.
    """

    def __init__(self, pieces: tuple[bytes, ...], explanation: bytes | None, cost: dict[str, int] | None) -> None:
        self.pieces = pieces
        self.explanation = explanation
        self.cost = cost

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
        spare_garbage_collection("planning")
        if not self._options.names_its_rows and planned.fetched_bytes >= WORTH_A_WARNING_BYTES:
            warn_without_jar()
        first, *others = planned.shares
        return [
            PiecesPartition(first, planned.explanation, planned.cost),
            *(PiecesPartition(pieces, None, None) for pieces in others),
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
