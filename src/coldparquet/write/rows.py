"""Rows on their way to a partition: as batches, cut into row groups, checked for their order, or sorted by time.

Rows in any order are sorted in bounded memory: sorted runs on the local disk, merged as they are read.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc

from coldparquet.decode.arrow import numbers_to_numpy, schema_without_views
from coldparquet.errors import InvalidInputError
from coldparquet.format.partition_names import partition_floor_ns, partition_stop_ns
from coldparquet.storage.local import translated_errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from coldparquet.format.partition_names import PartitionInterval


Rows: TypeAlias = pa.Table | pa.RecordBatch | pa.RecordBatchReader | Iterable[pa.RecordBatch | pa.Table]
"""Rows to write. Any object with ``__arrow_c_stream__`` becomes a reader by ``pa.RecordBatchReader.from_stream``."""


def schema_and_batches(rows: Rows) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema of the rows and their batches; for an iterable this takes the first batch from it."""
    if isinstance(rows, pa.RecordBatch):
        return rows.schema, iter((rows,))
    if isinstance(rows, pa.Table):
        return rows.schema, iter(rows.to_batches())
    if isinstance(rows, pa.RecordBatchReader):
        return rows.schema, iter(rows)
    if hasattr(rows, "__arrow_c_stream__"):
        stream: Any = rows
        reader = pa.RecordBatchReader.from_stream(stream)
        return reader.schema, iter(reader)
    if not isinstance(rows, Iterable):
        raise InvalidInputError(
            f"{type(rows).__name__} cannot be written; give an Arrow table, a record batch reader or batches"
        )
    batches = _batches(rows)
    first = next(batches, None)
    if first is None:
        raise no_rows()
    return first.schema, _same_schema(first, batches)


def no_rows() -> InvalidInputError:
    """Return the error for data without rows."""
    return InvalidInputError("there are no rows to write; a partition holds at least one", kind="NoRows")


def split_rows(
    schema: pa.Schema, batches: Iterator[pa.RecordBatch], *, row_group_rows: int | None
) -> Iterator[pa.Table]:
    """Cut a stream into row groups; memory holds the rows of one row group and one batch."""
    waiting: list[pa.RecordBatch] = []
    waiting_rows = 0
    for batch in batches:
        rest = batch
        while row_group_rows is not None and waiting_rows + rest.num_rows >= row_group_rows:
            head = rest.slice(0, row_group_rows - waiting_rows)
            yield pa.Table.from_batches([*waiting, head], schema=schema)
            rest = rest.slice(head.num_rows)
            waiting, waiting_rows = [], 0
        if rest.num_rows:
            waiting.append(rest)
            waiting_rows += rest.num_rows
    if waiting:
        yield pa.Table.from_batches(waiting, schema=schema)


def sorted_batches(schema: pa.Schema, batches: Iterator[pa.RecordBatch], *, timestamp: str) -> Iterator[pa.RecordBatch]:
    """Collect all rows and sort them by a column, keeping the order of equal ones."""
    table = pa.Table.from_batches(list(batches), schema=schema)
    try:
        order = pc.sort_indices(table.column(timestamp))  # stable, as Arrow documents
    except pa.ArrowException as error:
        raise InvalidInputError(
            f"rows cannot be sorted by column {timestamp!r}: {error}; cast it to a timestamp",
            kind="DoesNotFit",
            field=timestamp,
        ) from error
    takeable = table.cast(schema_without_views(schema))  # Polars hands views over
    yield from takeable.take(order).cast(schema).to_batches()


class TimeOrder:
    """Checks that the designated timestamp never decreases from ``least`` on, and keeps the first and the last one."""

    def __init__(self, *, least: int | None = None) -> None:
        self._rows = 0
        self._least = least
        self.first: int | None = None
        self.last: int | None = None

    @property
    def bounds(self) -> tuple[int, int] | None:
        """The first and the last timestamp; None before any was checked."""
        return None if self.first is None or self.last is None else (self.first, self.last)

    def check(self, timestamps: pa.ChunkedArray[Any]) -> None:
        """Check the timestamps of the next row group: one piece without nulls, in the unit of the column."""
        chunk: Any = timestamps.chunk(0)
        times: npt.NDArray[np.int64] = numbers_to_numpy(chunk, np.int64)
        ahead = self._least if self.last is None else self.last
        previous = np.concatenate(([times[0] if ahead is None else ahead], times[:-1]))
        backward = np.flatnonzero(times < previous)
        if len(backward):
            row = int(backward[0])
            raise self._not_sorted(row, f"its timestamp {times[row]} lies before {previous[row]}")
        self.first = int(times[0]) if self.first is None else self.first
        self.last = int(times[-1])
        self._rows += len(times)

    def check_end(self, following: tuple[int, int] | None) -> None:
        """Check that the last row is not later than the row group that follows."""
        if self.last is not None and following is not None and self.last > following[0]:
            raise self._not_sorted(-1, f"its timestamp {self.last} lies behind {following[0]} of the next row group")

    def _not_sorted(self, row: int, why: str) -> InvalidInputError:
        number = self._rows + row
        if number == 0:
            why += " of the last row before it in the partition; rows in between have to replace their row group"
        elif row >= 0:
            why += f" of row {number - 1}; sort the rows, or use the option sort"
        return InvalidInputError(f"row {number} is out of order: {why}", kind="NotSorted", row=number)


def in_time_order(row_groups: Iterable[pa.Table], order: TimeOrder, timestamp: int | None) -> Iterator[pa.Table]:
    """Check row groups as they come by the column at ``timestamp``; None checks nothing."""
    for rows in row_groups:
        if timestamp is not None:
            order.check(rows.column(timestamp))
        yield rows


def _batches(rows: Iterable[Any]) -> Iterator[pa.RecordBatch]:
    for item in rows:
        if isinstance(item, pa.RecordBatch):
            yield item
        elif isinstance(item, pa.Table):
            yield from item.to_batches() or [pa.RecordBatch.from_pylist([], schema=item.schema)]
        else:
            raise InvalidInputError(f"expected Arrow batches or tables, got {type(item).__name__}")


def _same_schema(first: pa.RecordBatch, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    for number, batch in enumerate(batches, start=1):
        if not batch.schema.equals(first.schema):
            raise InvalidInputError(
                f"batch {number} has other columns than the first one: {batch.schema}", kind="SchemaMismatch"
            )
        yield batch


def merge_sorted(streams: Sequence[Iterable[pa.RecordBatch]], *, timestamp: str) -> Iterator[pa.RecordBatch]:
    """Merge streams that are sorted by a timestamp; memory holds one batch of each.

    Rows of equal timestamps keep their order; those of an earlier stream come first.
    """
    heads = [head for head in (_Head(iter(stream), timestamp) for stream in streams) if head.advance()]
    while len(heads) > 1:
        bound = min(head.last for head in heads)
        # Take the first stream whose batch ends at the bound to that end. The streams before it end later, so they have
        # all their rows of that timestamp in memory. The streams behind it must wait with theirs.
        exhausted = next(index for index, head in enumerate(heads) if head.last == bound)
        pieces = [head.take(bound, inclusive=index <= exhausted) for index, head in enumerate(heads)]
        yield from _sorted_together([piece for piece in pieces if piece.num_rows], timestamp)
        if not heads[exhausted].advance():
            del heads[exhausted]
    for head in heads:
        yield from head.rest()


def partitions_of(
    batches: Iterable[pa.RecordBatch], *, timestamp: str, interval: PartitionInterval, is_nanosecond: bool
) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
    """Cut a sorted stream into partitions."""
    unit_ns = 1 if is_nanosecond else 1000

    def pieces() -> Iterator[tuple[int, pa.RecordBatch]]:
        for batch in batches:
            times = times_of(batch, timestamp)
            start = 0
            while start < len(times):
                first_ns = int(times[start]) * unit_ns
                stop = int(np.searchsorted(times, partition_stop_ns(first_ns, interval) // unit_ns))
                yield partition_floor_ns(first_ns, interval) // unit_ns, batch.slice(start, stop - start)
                start = stop

    for floor, group in groupby(pieces(), key=itemgetter(0)):
        yield floor, (piece for _, piece in group)


def sorted_rows(batches: Sequence[pa.RecordBatch], *, timestamp: str) -> pa.Table:
    """Return rows in ascending order of a timestamp; rows of equal timestamps keep their order."""
    table = pa.Table.from_batches(list(batches))
    times = np.concatenate([times_of(batch, timestamp) for batch in batches])
    if (times[1:] >= times[:-1]).all():
        return table
    return table.take(pc.sort_indices(table.column(timestamp)))  # stable, as Arrow documents


def times_of(batch: pa.RecordBatch, timestamp: str) -> npt.NDArray[np.int64]:
    """Return the timestamps of a batch as integers, shape ``(rows,)``."""
    times: Any = batch.column(timestamp)
    return numbers_to_numpy(times, np.int64)


def _sorted_together(pieces: list[pa.RecordBatch], timestamp: str) -> Iterator[pa.RecordBatch]:
    if len(pieces) == 1:
        yield pieces[0]
    elif pieces:
        yield from sorted_rows(pieces, timestamp=timestamp).combine_chunks().to_batches()


class _Head:
    """The rows of a stream that are fetched and not yet taken."""

    def __init__(self, batches: Iterator[pa.RecordBatch], timestamp: str) -> None:
        self._batches = batches
        self._timestamp = timestamp
        self._batch: pa.RecordBatch
        self._times: npt.NDArray[np.int64]

    @property
    def last(self) -> int:
        """Timestamp of the last row in memory."""
        return int(self._times[-1])

    def advance(self) -> bool:
        """Fetch the next batch that has rows; False if there is none."""
        for batch in self._batches:
            if batch.num_rows:
                self._batch, self._times = batch, times_of(batch, self._timestamp)
                return True
        return False

    def take(self, bound: int, *, inclusive: bool) -> pa.RecordBatch:
        """Take the rows up to a timestamp, with or without those at it."""
        count = int(np.searchsorted(self._times, bound, side="right" if inclusive else "left"))
        taken = self._batch.slice(0, count)
        self._batch, self._times = self._batch.slice(count), self._times[count:]
        return taken

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Take all remaining rows."""
        yield self._batch
        yield from self._batches


_RUN_BATCH_ROWS = 16_384
_RUN_BATCH_BYTES = 1024 * 1024
"""A merge holds a batch of each run in memory, so wide rows need short batches."""

_MOST_RUNS = 64
"""Most runs that are merged into one: each is an open file and a batch in memory."""

_CODEC: Literal["lz4"] = "lz4"


class SortedRuns:
    """Collects rows and returns them in ascending order of the timestamp; equal timestamps keep their order.

    Memory holds about ``memory_limit_bytes`` of rows, and as much again while they are sorted; more go into ``directory``
    on the local disk, which the caller removes.
    """

    def __init__(self, directory: str, *, timestamp: str, memory_limit_bytes: int) -> None:
        self._directory = directory
        self._timestamp = timestamp
        self._memory_limit_bytes = memory_limit_bytes
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._runs: list[str] = []
        self._run_count = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows, all of one schema."""
        if not batch.num_rows:
            return
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= self._memory_limit_bytes:
            self._write_run(self._take_waiting())

    def merged(self) -> Iterator[pa.RecordBatch]:
        """Return all rows in order; no rows may be added afterwards."""
        streams: list[Iterable[pa.RecordBatch]] = [read_run(path) for path in self._runs]
        if self._waiting:
            streams.append(self._take_waiting())
        return merge_sorted(streams, timestamp=self._timestamp)

    def _take_waiting(self) -> list[pa.RecordBatch]:
        table = sorted_rows(self._waiting, timestamp=self._timestamp)
        self._waiting, self._waiting_bytes = [], 0
        return table.to_batches()

    def _write_run(self, batches: Iterable[pa.RecordBatch]) -> None:
        if len(self._runs) == _MOST_RUNS:
            older = [read_run(path) for path in self._runs]
            merged = self._next_path()
            write_run(merged, merge_sorted(older, timestamp=self._timestamp))
            for path in self._runs:
                Path(path).unlink()
            self._runs = [merged]
        path = self._next_path()
        write_run(path, batches)
        self._runs.append(path)

    def _next_path(self) -> str:
        self._run_count += 1
        return f"{self._directory}/{self._run_count}.run"


class RunWriter:
    """Writes rows to a new or emptied local file, in pieces that are small enough to merge many files. Blocks."""

    def __init__(self, path: str) -> None:
        self._path = path
        with translated_errors(path, None):
            self._file = pa.OSFile(path, "wb")
        self._writer: Any = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the next rows, all of one schema."""
        with translated_errors(self._path, None):
            if self._writer is None:
                options = ipc.IpcWriteOptions(compression=_CODEC)
                self._writer = ipc.new_stream(self._file, batch.schema, options=options)
            fitting_rows = batch.num_rows * _RUN_BATCH_BYTES // max(batch.nbytes, 1)
            step = max(1, min(fitting_rows, _RUN_BATCH_ROWS))
            for start in range(0, batch.num_rows, step):
                self._writer.write_batch(batch.slice(start, step))

    def close(self) -> None:
        """End the file."""
        with translated_errors(self._path, None), self._file:
            if self._writer is not None:
                self._writer.close()


def write_run(path: str, batches: Iterable[pa.RecordBatch]) -> None:
    """Write rows to a local file; see :class:`RunWriter`."""
    run = RunWriter(path)
    try:
        for batch in batches:
            run.write(batch)
    finally:
        run.close()


def read_run(path: str) -> Iterator[pa.RecordBatch]:
    """Read the rows of a run, batch by batch; an empty file has none. Blocks."""
    with translated_errors(path, None):
        if not Path(path).stat().st_size:
            return
        with pa.OSFile(path, "rb") as file, ipc.open_stream(file) as reader:
            yield from reader
