"""Streams a table: new partitions, and new rows of partitions that have grown, as they are committed.

``spark.readStream.format("coldparquet").load("s3://bucket/db/trades")``. What the stream delivers:

* The rows of a partition once, when a transaction (`_txn`) first names it, in table order. Rows that later transactions
  write behind them are delivered alone. "Behind" is proven: the row groups of the earlier state must be in the new one,
  unchanged.
* No partitions in QuestDB's native format, until the database has converted them to Parquet; a published table has no
  native ones.
* A partition that was rewritten after the delivery of its rows stops the stream, with an error that names it. Reasons:
  late rows were sorted in, rows were updated, small files compacted, pieces merged. ``on_change`` changes that:
  ``ignore`` keeps what was delivered. ``reread`` delivers all of its present rows, so rows arrive again. ``append``
  trusts that the earlier rows come first.
* Dropped partitions are ignored if all of their rows were delivered. Before that they stop the stream, unless
  ``on_change`` is ``ignore`` or ``reread``. A partition that is dropped and comes back is a new one.
* A table that was emptied has dropped its partitions. One that was created anew, or restored to an earlier transaction,
  stops the stream, unless ``on_change`` is ``reread``: then all of it is delivered.
* Without a `_txn` a partition is identified by its directory name, and the size and ETag of its Parquet file. Any
  change counts as a rewrite. Each refresh then takes 1 listing for 250 partitions, or a HEAD of each file where a
  store's listings have no versions. The metadata of partitions is read when they first appear.
* Partitions that ``archived=skip`` leaves out are not delivered later.

The offset of a batch is the only state: how many rows of which version of each partition were delivered, in about 8
bytes for each (:mod:`coldparquet.follow.state`). So any driver can continue from a checkpoint. A repeated batch
delivers the same rows as long as the versions of its partitions exist: keep a replaced version for longer than a batch
takes. If it is gone, ``append`` and ``reread`` continue with the present one, and the others stop the stream for good.
Limits are those of :mod:`coldparquet.spark.options`; ``Trigger.AvailableNow`` ends with the transaction at its start.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from coldparquet.concurrency import background
from coldparquet.errors import InvalidInputError
from coldparquet.follow.follower import FollowedRows, TableFollower
from coldparquet.follow.progress import EVERYTHING
from coldparquet.follow.state import decode_state, encode_state
from coldparquet.opening import open_table
from coldparquet.spark.arrow_schema import arrow_schema_of
from coldparquet.spark.early_plan import BYTES_PER_TASK, shares_of
from coldparquet.spark.errors import told_to_spark
from coldparquet.spark.options import STREAM_OPTIONS, SourceOptions, StreamOptions
from coldparquet.spark.reader import PiecesPartition
from coldparquet.spark.tables import is_pattern
from coldparquet.spark.task import read_pieces
from coldparquet.spark.task_settings import TaskSettings
from coldparquet.spark.types import check_requested
from coldparquet.storage.urls import shown_url
from coldparquet.text import few_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from coldparquet.follow.state import TableState
    from coldparquet.table import Table


class ColdParquetStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows one table. Plans on the driver, where it exists as long as the query; tasks send only data requests.

    It is pickled for the tasks with only their settings.

    Args:
        options: Those of the source and of streams.
        schema: The columns for Spark, from those of the table.

    Raises:
        InvalidInputError: An option is wrong, or several tables are named (kind ``OneTableOnly``).
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._source = SourceOptions.parse(options, also=STREAM_OPTIONS)
        self._stream = StreamOptions.parse(options)
        self._url = _only_table(self._source.urls)
        self._schema = schema
        self._settings = TaskSettings.of(self._source, arrow_schema_of(schema)).as_dict()
        self._opened: tuple[Table, TableFollower] | None = None
        self._seen: TableState | None = None
        """The table at the last refresh."""
        self._seen_s = 0.0
        """When that refresh began."""
        self._target: TableState | None = None
        """Where a query with ``Trigger.AvailableNow`` ends."""

    def __getstate__(self) -> dict[str, Any]:
        return {"_settings": self._settings}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where a new query begins. Requests: those of opening the table."""
        with told_to_spark():
            now = background.run(self._look())
            is_at_end = self._stream.starting_from == "latest"
            return encode_state(now.with_all_delivered() if is_at_end else now.with_nothing_delivered())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit from the options; if there are several, :meth:`latestOffset` applies all of them."""
        limit = self._stream.limit
        if limit.partitions is not None:
            return ReadMaxFiles(limit.partitions)
        if limit.rows is not None:
            return ReadMaxRows(limit.rows)
        return ReadAllAvailable() if limit.compressed_bytes is None else ReadMaxBytes(limit.compressed_bytes)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the end of the next batch; ``start`` itself if there are no new rows.

        Requests: those of refreshing the table, and the metadata of partitions that have grown.
        """
        with told_to_spark():
            return background.run(self._next(start, limit))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Record the present state of the table as the end of the query. Requests: those of refreshing it."""
        with told_to_spark():
            self._target = background.run(self._look())

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Return transaction, partitions and rows of the table at the last refresh, for the progress of the query."""
        seen = self._seen
        if seen is None:
            return None
        rows = sum(partition.row_count for partition in seen.partitions)
        return {"txn": seen.txn, "partitions": len(seen.partitions), "rows": rows}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan the rows between two offsets, and cut the plan into the shares of tasks.

        Requests: the metadata of the partitions with new rows, unless it is known; none for data.
        """
        if start == end:
            return []
        with told_to_spark():
            return [PiecesPartition(share, None, None) for share in background.run(self._plan(start, end))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the share of one task. Runs on an executor. Requests: for data alone."""
        with told_to_spark():
            yield from read_pieces(PiecesPartition.pieces_of(partition), TaskSettings.from_dict(self._settings))

    def stop(self) -> None:
        """Close the table."""
        opened, self._opened = self._opened, None
        if opened is not None:
            with told_to_spark():
                background.run(opened[0].aclose())

    async def _follower(self) -> TableFollower:
        if self._opened is None:
            source = self._source
            table = await open_table(
                self._url,
                storage_options=source.credentials.storage_options(),
                options=source.read_options,
                store_options=source.store_options,
            )
            rows = FollowedRows(columns=tuple(self._schema.names), where=source.where)
            follower = TableFollower(table, rows, on_change=self._stream.on_change, options=source.read_options)
            self._opened = table, follower
            if rows.columns:
                check_requested(self._schema, table.scan(rows.columns, options=source.read_options).schema)
        return self._opened[1]

    async def _look(self) -> TableState:
        self._seen_s = time.monotonic()
        self._seen = await (await self._follower()).look()
        return self._seen

    async def _recent_look(self) -> TableState:
        if self._seen is not None and time.monotonic() < self._seen_s + self._stream.poll_s:
            return self._seen
        return await self._look()

    async def _next(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        before = decode_state(start)
        now = self._target if self._target is not None else await self._recent_look()
        step = EVERYTHING if isinstance(limit, ReadAllAvailable) else self._stream.limit
        after = await (await self._follower()).next_state(before, now, limit=step)
        return start if after is before else encode_state(after)

    async def _plan(self, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[bytes, ...]]:
        follower = await self._follower()
        most_pieces = self._source.most_pieces
        pieces = await follower.pieces(
            decode_state(start),
            decode_state(end),
            most_pieces=most_pieces,
            target_bytes=BYTES_PER_TASK if most_pieces is None else None,
        )
        shares = shares_of(pieces.pieces, most=most_pieces)
        return [tuple(piece.to_bytes() for piece in share) for share in shares]


def _only_table(urls: Sequence[str]) -> str:
    if len(urls) != 1 or is_pattern(urls[0]):
        raise InvalidInputError(
            f"a stream follows one table, and this names several ({few_names([shown_url(url) for url in urls])}); give each a"
            " stream of its own, and union them",
            kind="OneTableOnly",
        )
    return urls[0]
