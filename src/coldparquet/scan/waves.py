"""Reads what an answer needs, the best reads first, until it is decided; and from one end of a table, a few partitions at a time.

A :class:`Search` says which reads are promising, and which are still needed; ``coldparquet.scan.answers`` has those for
values, ``coldparquet.scan.newest`` those for rows. Ranks decide the order in which reads may hold the newest, or the oldest, rows. A rank grows with the timestamp if newer
rows are wanted, and falls with it if older ones are. So the rows with the greatest ranks are wanted in both cases.
"""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from msgspec import Struct

from coldparquet.decode.arrow import mask_to_numpy, numbers_to_arrow, numbers_to_numpy
from coldparquet.plan.bind import BoundField
from coldparquet.plan.bounds import NumericSide
from coldparquet.plan.predicate import NANOSECONDS_PER_UNIT
from coldparquet.plan.prune import stated_time_range_ns
from coldparquet.plan.statistics import SidecarStatistics
from coldparquet.records import replace
from coldparquet.scan.admission import admit
from coldparquet.scan.draft import refuse_misplaced_times
from coldparquet.scan.partition_pruning import prune_partitions
from coldparquet.scan.planner import plan_question
from coldparquet.scan.requests import with_reads
from coldparquet.scan.stream import BatchStream

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
    from concurrent.futures import Executor

    from coldparquet.catalog.partition import Partition
    from coldparquet.plan.bounds import BoolArray, IntArray, Side
    from coldparquet.plan.columns import TableColumn
    from coldparquet.plan.model import Read
    from coldparquet.scan.model import PlannedScan, Question


async def plan_from_one_end(
    question: Question, executor: Executor, *, newest_first: bool, by_time: bool
) -> AsyncGenerator[PlannedScan, None]:
    """Plan 1 partition, then 2 more, 4 more and so on, as long as the caller asks for more; it closes the generator.

    Requests: for each step those of :func:`coldparquet.scan.planner.plan_question` for its partitions.
    """
    kept, _ = prune_partitions(question)
    step = 1 if not by_time or _follow_each_other(kept) else len(kept)
    done = 0
    while done < len(kept):
        start, stop = done, min(done + step, len(kept))
        if newest_first:
            start, stop = len(kept) - stop, len(kept) - start
        partitions = tuple(kept[start:stop])
        snapshot = replace(question.snapshot, partitions=partitions)
        planned = await plan_question(replace(question, snapshot=snapshot), executor)
        if by_time:
            await asyncio.get_running_loop().run_in_executor(executor, _check_times, planned)
        yield planned
        done, step = done + stop - start, 2 * step


def _follow_each_other(partitions: Sequence[Partition]) -> bool:
    """Tell whether each partition provably holds later times than the one before."""
    ranges = [partition.time_range_ns for partition in partitions]
    known = [time_range for time_range in ranges if time_range is not None]
    return len(known) == len(ranges) and all(before[1] <= after[0] for before, after in pairwise(known))


def _check_times(planned: PlannedScan) -> None:
    timestamp = planned.question.snapshot.designated_timestamp
    for known in planned.known:
        if known.metadata is not None and timestamp is not None:
            sidecar, place = known.metadata.sidecar, known.places[timestamp]
            if place is not None:
                stated = stated_time_range_ns(sidecar, place)
                refuse_misplaced_times(known.partition, stated)


class RankedRows(Struct, frozen=True, kw_only=True, eq=False):
    """Rows of one read or of many. The arrays have shape ``(rows,)``; in each the greatest value is the best."""

    table: pa.Table
    ranks: IntArray
    places: IntArray
    """Place of the read of each row: decides between rows of equal rank."""
    numbers: IntArray
    """Position of the row in its read: decides between rows of one read with equal rank."""

    @classmethod
    def of_read(
        cls, rows: pa.Table, place: int, *, timestamp: TableColumn | None, ascending: bool = False
    ) -> RankedRows:
        """Rank the rows of one read by their time, or all alike without ``timestamp``."""
        count = rows.num_rows
        ranks = np.zeros(count, dtype=np.int64)
        if timestamp is not None:
            times: Any = rows.column(timestamp.name).cast(pa.int64()).combine_chunks()
            known = times.fill_null(0) if times.null_count else times
            ranks = flipped(numbers_to_numpy(known, np.int64), ascending=ascending)
            if times.null_count:
                ranks = np.where(mask_to_numpy(times.is_null()), _LEAST, ranks)
        numbers = flipped(np.arange(count), ascending=ascending)
        return cls(table=rows, ranks=ranks, places=np.full(count, place, dtype=np.int64), numbers=numbers)

    @classmethod
    def joined(cls, parts: Sequence[RankedRows]) -> RankedRows:
        """Join rows of at least one part; each dictionary column gets a single dictionary."""
        return cls(
            table=pa.concat_tables([part.table for part in parts]).unify_dictionaries(),
            ranks=np.concatenate([part.ranks for part in parts]),
            places=np.concatenate([part.places for part in parts]),
            numbers=np.concatenate([part.numbers for part in parts]),
        )

    @property
    def from_worst_to_best(self) -> IntArray:
        """Positions of the rows, worst row first."""
        order: IntArray = np.lexsort((self.numbers, self.places, self.ranks))
        return order

    def at(self, positions: IntArray) -> RankedRows:
        """Return the rows at these positions, in their order."""
        if np.array_equal(positions, np.arange(len(self.ranks))):
            return self
        return RankedRows(
            table=self.table.take(numbers_to_arrow(positions, pa.int64())),
            ranks=self.ranks[positions],
            places=self.places[positions],
            numbers=self.numbers[positions],
        )

    def best(self, count: int) -> RankedRows:
        """Return the best ``count`` rows, in their present order."""
        if len(self.ranks) <= count:
            return self
        return self.at(np.sort(self.from_worst_to_best[-count:]))

    def best_of_each(self, keys: Sequence[str]) -> RankedRows:
        """Return the best row of each combination of values of the columns ``keys``; NULL is a value like others."""
        order = self.from_worst_to_best
        goodness = np.empty_like(order)
        goodness[order] = np.arange(len(order))
        names = [f"key {number}" for number in range(len(keys))]
        columns: list[Any] = [plain_values(self.table.column(key)) for key in keys]
        grouped = pa.table([*columns, numbers_to_arrow(goodness, pa.int64())], names=[*names, "goodness"])
        found: Any = grouped.group_by(names, use_threads=False).aggregate([("goodness", "max")])
        best = numbers_to_numpy(found.column("goodness_max").combine_chunks(), np.int64)
        return self.at(np.sort(order[best]))


def plain_values(column: Any) -> Any:
    """Return a column with its values in place of dictionary indices."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


async def read_each(planned: PlannedScan, executor: Executor, take: Callable[[int, pa.Table], None]) -> None:
    """Execute a plan and pass on the rows of each of its reads, one after the other."""
    if not planned.plan.row_groups:
        return

    loop = asyncio.get_running_loop()
    store = planned.question.snapshot.store
    async with BatchStream(partial(admit, planned), store=store, executor=executor, by_row_group=True) as stream:
        for position in range(len(planned.plan.row_groups)):
            rows = await stream.next_row_group()
            if rows is None:
                break
            await loop.run_in_executor(executor, take, position, rows)


class Search:
    """What an answer needs of the reads of one plan."""

    order: IntArray
    """The reads, the most promising first."""
    first_wave_reads = 1
    wants_certain_rows = True
    """Whether reads whose rows all match are read at once, as far as they come first."""

    def is_needed(self, reads: IntArray) -> BoolArray:
        """Tell which reads may still change the answer. Runs in a thread."""
        raise NotImplementedError

    def take(self, read: int, rows: pa.Table) -> None:
        """Take the rows of a read. Runs in a thread."""
        raise NotImplementedError

    def cut(self, read: int, planned: Read) -> Read:  # noqa: ARG002
        """Leave out rows of a read that cannot matter."""
        return planned


async def read_in_waves(planned: PlannedScan, executor: Executor, search: Search) -> None:
    """Execute the reads of a plan, the most promising first, as long as some of the others are needed.

    The result of one wave decides what the next one needs, so waves are sequential. They have 1 read, 2, 4, 8 and so
    on: that at most doubles what is read, in few round trips.
    """
    reads = planned.plan.row_groups
    every_row_matches = np.fromiter((read.all_rows_match for read in reads), np.bool_, len(reads))
    loop = asyncio.get_running_loop()
    waiting, wave_reads = search.order, search.first_wave_reads
    while len(waiting):
        waiting = waiting[await loop.run_in_executor(executor, search.is_needed, waiting)]
        undecided = np.flatnonzero(~every_row_matches[waiting])
        certain_reads = int(undecided[0]) if len(undecided) else len(waiting)
        size = max(wave_reads, certain_reads) if search.wants_certain_rows else wave_reads
        if len(waiting):
            wave = np.sort(waiting[:size]).tolist()
            of_wave = with_reads(planned, [search.cut(read, reads[read]) for read in wave])
            await read_each(of_wave, executor, partial(_take_from_wave, search, wave))
        waiting, wave_reads = waiting[size:], 2 * wave_reads


def _take_from_wave(search: Search, wave: list[int], position: int, rows: pa.Table) -> None:
    search.take(wave[position], rows)


_LEAST, _GREATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


class RankBounds(Struct, frozen=True, kw_only=True, eq=False):
    """Bounds of the ranks of each read's rows; both arrays have shape ``(reads,)``."""

    least: IntArray
    greatest: IntArray

    @classmethod
    def all_equal(cls, read_count: int) -> RankBounds:
        """Give all rows the same rank: then only table order counts."""
        zeros = np.zeros(read_count, dtype=np.int64)
        return cls(least=zeros, greatest=zeros)


def flipped(values: IntArray, *, ascending: bool) -> IntArray:
    """Reverse the order of integers if ``ascending``; unlike a change of sign this never overflows."""
    return ~values if ascending else values


def time_ranks(planned: PlannedScan, timestamp: TableColumn, *, ascending: bool) -> RankBounds:
    """Bound the ranks of each read's rows by what is known of their timestamps.

    The slices of a native partition follow each other in time, but their bounds are unknown. So all slices get a single
    rank: the worst one that a row of the partition can have. A slice then ranks behind every row of the partition that
    is read before it, and before all rows of worse partitions.
    """
    read_count = len(planned.plan.row_groups)
    least = np.full(read_count, _LEAST, dtype=np.int64)
    greatest = np.full(read_count, _GREATEST, dtype=np.int64)
    may_be_null = np.zeros(read_count, dtype=np.bool_)
    for index, here, row_groups in reads_of_partitions(planned):
        known = planned.known[index]
        if known.metadata is None:
            start, stop = _native_times(known.partition, timestamp)
            least[here] = greatest[here] = stop - 1 if ascending else start
        elif planned.question.options.statistics:
            field = BoundField(name=timestamp.name, index=timestamp.index, type=timestamp.readable_type)
            bounds = SidecarStatistics(known.metadata.sidecar, known.places).bounds(field)
            least[here] = _numbers(None if bounds is None else bounds.lower, row_groups, unknown=_LEAST)
            greatest[here] = _numbers(None if bounds is None else bounds.upper, row_groups, unknown=_GREATEST)
            may_be_null[here] = True if bounds is None else bounds.may_hold_nulls[row_groups]
    if ascending:
        least, greatest = flipped(greatest, ascending=True), flipped(least, ascending=True)
    least[may_be_null] = _LEAST
    return RankBounds(least=least, greatest=greatest)


def reads_of_partitions(planned: PlannedScan) -> Iterator[tuple[int, slice, IntArray]]:
    """Yield for each partition of a plan its index, the position of its reads among all reads, and their row groups."""
    reads = planned.plan.row_groups
    partition_of_read = np.fromiter((read.partition_index for read in reads), np.int64, len(reads))
    row_groups = np.fromiter((read.row_group for read in reads), np.int64, len(reads))
    edges = np.searchsorted(partition_of_read, np.arange(len(planned.known) + 1)).tolist()
    for index, (start, stop) in enumerate(pairwise(edges)):
        yield index, slice(start, stop), row_groups[start:stop]


def _native_times(partition: Partition, timestamp: TableColumn) -> tuple[int, int]:
    """Return the time range of a native partition, in the unit of the timestamp."""
    if partition.time_range_ns is None:
        return 0, 1  # an unpartitioned table: there is no other partition to rank against
    unit_ns = NANOSECONDS_PER_UNIT[timestamp.readable_type.arrow.unit or "ns"]
    start, stop = (max(_LEAST + 1, min(bound // unit_ns, _GREATEST)) for bound in partition.time_range_ns)
    return int(start), int(stop)


def _numbers(side: Side | None, row_groups: IntArray, *, unknown: int) -> IntArray:
    if not isinstance(side, NumericSide):
        return np.full(len(row_groups), unknown, dtype=np.int64)
    return np.where(side.known[row_groups], side.numbers[row_groups], unknown).astype(np.int64)
