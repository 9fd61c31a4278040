"""Jobs in which Spark starts a second copy of a task that hangs, as ``spark.speculation`` has it do."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext

import coldparquet.spark as cold
from tests.support.answers import DAY_US, FIRST_DAY_US

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

TASKS, ROWS = 4, 400
SETTINGS = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.efficiency.enabled": "false",
}
_LONGEST_HANG_S = 240
"""By then the copy has won, and Spark has ended the task that hangs."""


def write_and_read_with_copies(spark: SparkSession, url: str, markers: str) -> dict[str, Any]:
    """Write a table, and read it by the data source, each with one task whose first attempt hangs behind its first batch.

    Returns:
        The numbers of the rows that were read, and for both jobs the attempts of the task that hung.
    """
    micros = f"{FIRST_DAY_US} + (id % {TASKS}) * {DAY_US} + id"
    numbers = spark.range(0, ROWS, 1, TASKS).selectExpr(f"timestamp_micros({micros}) as ts", "id as number")
    slow_write = numbers.mapInArrow(_hanging_once(Path(markers, "write")), numbers.schema)
    slow_write.write.format("coldparquet").option("timestamp", "ts").mode("append").save(url)
    source = spark.read.format("coldparquet").options(pieces=str(TASKS), batch_rows="10").load(url)
    slow_read = source.mapInArrow(_hanging_once(Path(markers, "read")), source.schema)
    return {
        "numbers": sorted(row.number for row in slow_read.collect()),
        "counted": cold.count(spark, url),
        "attempts": {name: len(list(Path(markers, name).iterdir())) for name in ("write", "read")},
    }


def _hanging_once(marks: Path) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a step that passes batches on; the first attempt of the first task hangs between two of them."""
    marks.mkdir(parents=True)

    def pass_on(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task: Any = TaskContext.get()
        hangs = task.partitionId() == 0 and task.attemptNumber() == 0
        if task.partitionId() == 0:
            Path(marks, str(task.taskAttemptId())).touch()
        for batch in batches:
            half = batch.num_rows // 2
            yield batch[:half]
            if hangs:
                time.sleep(_LONGEST_HANG_S)
            yield batch[half:]

    return pass_on
