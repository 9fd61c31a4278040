"""What Spark gets in the place of a stream that there cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit


class RefusedStream(DataSourceStreamReader):
    """Says why there is no stream as soon as Spark asks it anything.

    An error of ``streamReader`` itself would be lost: Spark (4.1 to 4.3 at least) follows it with an UnboundLocalError of its own.

    Args:
        error: Why.
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
