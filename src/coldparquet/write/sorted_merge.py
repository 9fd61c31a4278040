"""Sorted streams of rows -> one sorted stream, cut where partitions begin."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coldparquet.decode.numpy_bridge import numbers_to_numpy
from coldparquet.format.partition_intervals import partition_floor_ns, partition_stop_ns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

    from coldparquet.format.partition_intervals import PartitionInterval


def merge_sorted(streams: Sequence[Iterable[pa.RecordBatch]], *, timestamp: str) -> Iterator[pa.RecordBatch]:
    """Merge streams that are sorted by a timestamp; in memory is one batch of each.

    Rows of one timestamp keep their order, those of an earlier stream before those of a later one.

    Args:
        streams: All of one schema, each in ascending order of the timestamp, which is never null.
        timestamp: Name of the column.
    """
    heads = [head for head in (_Head(iter(stream), timestamp) for stream in streams) if head.advance()]
    while len(heads) > 1:
        bound = min(head.last for head in heads)
        # The first stream whose batch ends at the bound is taken to its end. Those before it end later, and so have all
        # their rows of that timestamp at hand; those behind it have to wait with theirs.
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
    """Cut a sorted stream into partitions.

    Args:
        batches: In ascending order of the timestamp.
        timestamp: Name of the column.
        interval: How the table is partitioned.
        is_nanosecond: Whether the timestamp counts nanoseconds, not microseconds.

    Yields:
        When each partition begins, in the unit of the timestamp, and its rows, which have to be taken before the next
        partition is.
    """
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

    for floor, group in groupby(pieces(), key=_floor_of):
        yield floor, (piece for _, piece in group)


def sorted_rows(batches: Sequence[pa.RecordBatch], *, timestamp: str) -> pa.Table:
    """Return rows in ascending order of a timestamp, those of one timestamp in the order in which they came."""
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


def _floor_of(piece: tuple[int, pa.RecordBatch]) -> int:
    return piece[0]


class _Head:
    """The rows of a stream that have been fetched and not been taken yet."""

    def __init__(self, batches: Iterator[pa.RecordBatch], timestamp: str) -> None:
        self._batches = batches
        self._timestamp = timestamp
        self._batch: pa.RecordBatch
        self._times: npt.NDArray[np.int64]

    @property
    def last(self) -> int:
        """Timestamp of the last row at hand."""
        return int(self._times[-1])

    def advance(self) -> bool:
        """Fetch the next batch that has rows; False if there is none."""
        for batch in self._batches:
            if batch.num_rows:
                self._batch, self._times = batch, times_of(batch, self._timestamp)
                return True
        return False

    def take(self, bound: int, *, inclusive: bool) -> pa.RecordBatch:
        """Take the rows up to a timestamp, with or without those that have it."""
        count = int(np.searchsorted(self._times, bound, side="right" if inclusive else "left"))
        taken = self._batch.slice(0, count)
        self._batch, self._times = self._batch.slice(count), self._times[count:]
        return taken

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Take everything that is left."""
        yield self._batch
        yield from self._batches
