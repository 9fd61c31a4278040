"""Reads the newest row of each key, or a table's last, newest or oldest rows: from one end until they are certain.

First it reads only keys and timestamp, starting with the newest row groups. Then it reads all columns of the row groups
that hold a row of the result.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from coldparquet.decode.arrow import PLAIN_TEXT, arrow_type, numbers_to_numpy, rows_without_columns, to_arrow_value
from coldparquet.format.types import distinct_values
from coldparquet.plan.answers import holds_only, key_domain
from coldparquet.plan.bind import BoundField
from coldparquet.plan.bounds import SortedValues
from coldparquet.plan.statistics import SidecarStatistics
from coldparquet.records import replace
from coldparquet.scan.answers import column_facts
from coldparquet.scan.planner import plan_question
from coldparquet.scan.requests import cut_read, with_reads
from coldparquet.scan.waves import (
    RankBounds,
    RankedRows,
    Search,
    flipped,
    plain_values,
    plan_from_one_end,
    read_each,
    read_in_waves,
    reads_of_partitions,
    time_ranks,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Executor

    from coldparquet.plan.bounds import BoolArray, IntArray
    from coldparquet.plan.columns import TableColumn
    from coldparquet.plan.literals import DomainValue
    from coldparquet.plan.model import Read
    from coldparquet.scan.model import PlannedScan, Question


class _Source(NamedTuple):
    """Where rows were read from."""

    data_path: str
    row_group: int


async def read_latest_rows(
    question: Question,
    executor: Executor,
    schema: pa.Schema,
    *,
    keys: Sequence[TableColumn],
    timestamp: TableColumn,
) -> pa.Table:
    """Read the newest row of each key among those that satisfy the predicate, in timestamp order.

    Among rows of a key with the same timestamp the last one in table order wins.

    Requests: the metadata of the newest partition, then of twice as many and so on. Data: keys, timestamp and predicate
    columns of 1, 2, 4 ... row groups at a time, newest first. Row groups that provably hold neither an unseen key nor a
    newer row of a seen key are skipped. Then, if the result has other columns, one round trip for all columns of the
    row groups that hold a row of the result.
    """
    found_by = tuple(dict.fromkeys((*keys, timestamp)))
    newest = _NewestOfEach(question, keys)
    await _search(replace(question, output_columns=found_by), executor, newest, timestamp=timestamp)
    if newest.rows is not None and not set(question.output_columns) <= set(found_by):
        winners = {newest.sources[place] for place in distinct_values(newest.rows.places).tolist()}
        everything = replace(question, output_columns=tuple(dict.fromkeys((*question.output_columns, *found_by))))
        newest = await _read_again(everything, executor, winners, keys, timestamp)
    return await asyncio.get_running_loop().run_in_executor(executor, newest.in_order, schema)


async def _read_again(
    question: Question,
    executor: Executor,
    winners: set[_Source],
    keys: Sequence[TableColumn],
    timestamp: TableColumn,
) -> _NewestOfEach:
    """Read the row groups that hold the newest row of a key again, with more columns; the same rows win."""
    paths = {source.data_path for source in winners}
    partitions = tuple(
        partition
        for partition in question.snapshot.partitions
        if (partition.directory_path if partition.format == "native" else partition.data_path) in paths
    )
    snapshot = replace(question.snapshot, partitions=partitions)
    planned = await plan_question(replace(question, snapshot=snapshot), executor)
    winning_reads = [
        read
        for read, source in zip(planned.plan.row_groups, _sources_of_reads(planned), strict=True)
        if source in winners
    ]
    newest = _NewestOfEach(question, keys)

    def take(position: int, rows: pa.Table) -> None:
        newest.add(RankedRows.of_read(rows, position, timestamp=timestamp))

    await read_each(with_reads(planned, winning_reads), executor, take)
    return newest


def _sources_of_reads(planned: PlannedScan) -> list[_Source]:
    paths = [partition.data_path for partition in planned.plan.partitions]
    return [_Source(paths[read.partition_index], read.row_group) for read in planned.plan.row_groups]


async def _search(
    question: Question, executor: Executor, kept: _Kept, *, timestamp: TableColumn | None, ascending: bool = False
) -> None:
    """Read from one end of the table until no other row can be kept: by time, or with all ranks equal; ties go by place."""
    reads_before = 0
    steps = plan_from_one_end(question, executor, newest_first=not ascending, by_time=timestamp is not None)
    async with aclosing(steps):
        async for planned in steps:
            step = _Step(planned, kept, timestamp=timestamp, ascending=ascending, reads_before=reads_before)
            await asyncio.get_running_loop().run_in_executor(executor, step.prepare)
            await read_in_waves(planned, executor, step)
            reads_before += len(planned.plan.row_groups)
            if kept.is_complete:
                break


class _Kept:
    """The rows of the answer among all that were read so far."""

    def __init__(self) -> None:
        self._found: list[RankedRows] = []

    @property
    def is_complete(self) -> bool:
        """Whether no row of another step can be kept."""
        raise NotImplementedError

    def add(self, rows: RankedRows) -> None:
        """Take more rows; drop some that need not be kept."""
        raise NotImplementedError

    def begin(self, step: _Step) -> None:
        """Take what is known of a step before anything of it is read."""

    def is_needed(self, step: _Step, reads: IntArray) -> BoolArray:
        """Tell which reads of a step may hold a row to be kept."""
        raise NotImplementedError


class _Step(Search):
    """Some partitions, whose rows are all worse than those of earlier steps; the greatest ranks and places are the best."""

    def __init__(
        self,
        planned: PlannedScan,
        kept: _Kept,
        *,
        timestamp: TableColumn | None,
        ascending: bool,
        reads_before: int,
    ) -> None:
        self.planned = planned
        self.timestamp = timestamp
        self.ascending = ascending
        self._kept = kept
        self._reads_before = reads_before

    def prepare(self) -> None:
        """Rank the reads. Runs in a thread: there may be thousands."""
        reads, ascending = self.planned.plan.row_groups, self.ascending
        self.row_counts = np.fromiter((read.row_count for read in reads), np.int64, len(reads))
        self.is_certain = np.fromiter((read.all_rows_match for read in reads), np.bool_, len(reads))
        self.ranks = (
            RankBounds.all_equal(len(reads))
            if self.timestamp is None
            else time_ranks(self.planned, self.timestamp, ascending=ascending)
        )
        first = self._reads_before if ascending else -self._reads_before - len(reads)
        self.places = flipped(np.arange(first, first + len(reads)), ascending=ascending)
        self.order = np.lexsort((self.places, self.ranks.greatest))[::-1]
        self._most_rows = self.row_counts
        self._kept.begin(self)

    def keep_at_most(self, row_counts: IntArray) -> None:
        """Read no more rows than these of each read, from the better end of the table."""
        self._most_rows = row_counts

    def is_needed(self, reads: IntArray) -> BoolArray:
        return self._kept.is_needed(self, reads)

    def take(self, read: int, rows: pa.Table) -> None:
        place = int(self.places[read])
        self._kept.add(RankedRows.of_read(rows, place, timestamp=self.timestamp, ascending=self.ascending))

    def cut(self, read: int, planned: Read) -> Read:
        count = int(self._most_rows[read])
        if count >= planned.row_count:
            return planned
        coalescing = self.planned.question.coalescing_of(planned.data.path)
        return cut_read(planned, count, from_end=not self.ascending, coalescing=coalescing)


class _NewestOfEach(_Kept):
    """The newest row of each key. With one key column, metadata can prove that there are no others."""

    def __init__(self, question: Question, keys: Sequence[TableColumn]) -> None:
        super().__init__()
        key = keys[0]
        self._keys = [key.name for key in keys]
        self._use_statistics = question.options.statistics
        self._field = BoundField(name=key.name, index=key.index, type=key.readable_type)
        self._domain = key_domain(self._field, question.predicate, symbol_count=_symbol_count(question, key))
        self.sources: dict[int, _Source] = {}
        """Where the rows of each place come from."""

    @property
    def rows(self) -> RankedRows | None:
        """One row per key; None before the first row."""
        self._join()
        return self._found[0] if self._found else None

    @property
    def is_complete(self) -> bool:
        column = self._seen_keys()
        return column is not None and self._has_all_values(column) and self._has_null(column)

    def begin(self, step: _Step) -> None:
        self.sources |= dict(zip(step.places.tolist(), _sources_of_reads(step.planned), strict=True))

    def add(self, rows: RankedRows) -> None:
        if len(rows.ranks):
            self._found.append(rows.best_of_each(self._keys))
        # Joining only when the number of rows has doubled bounds the work: the number of rows times its logarithm.
        if sum(len(part.ranks) for part in self._found[1:]) > len(self._found[0].ranks if self._found else ()):
            self._join()

    def is_needed(self, step: _Step, reads: IntArray) -> BoolArray:
        """Tell which reads may hold an unseen key, or a row newer than the oldest newest row of a seen key."""
        rows = self.rows
        if rows is None:
            return np.ones(len(reads), dtype=np.bool_)
        oldest = rows.from_worst_to_best[0]
        rank, place = rows.ranks[oldest], rows.places[oldest]
        greatest, places = step.ranks.greatest[reads], step.places[reads]
        may_be_newer = (greatest > rank) | ((greatest == rank) & (places > place))
        needed: BoolArray = may_be_newer | self._may_hold_others(step.planned)[reads]
        return needed

    def in_order(self, schema: pa.Schema) -> pa.Table:
        """Return the rows in timestamp order; rows of equal timestamps in table order."""
        rows = self.rows
        if rows is None:
            return schema.empty_table()
        return rows.at(rows.from_worst_to_best).table.select(schema.names).cast(schema)

    def _join(self) -> None:
        if len(self._found) > 1:
            self._found = [RankedRows.joined(self._found).best_of_each(self._keys)]

    def _may_hold_others(self, planned: PlannedScan) -> BoolArray:
        """Tell which reads of a plan may hold an unseen key."""
        reads = planned.plan.row_groups
        column = self._seen_keys()
        if column is None:
            return np.ones(len(reads), dtype=np.bool_)
        has_all_values, has_null = self._has_all_values(column), self._has_null(column)
        result = np.full(len(reads), not (has_all_values and has_null), dtype=np.bool_)
        seen = _sorted_values(column)
        for index, here, row_groups in reads_of_partitions(planned):
            known = planned.known[index]
            if known.metadata is None or not self._use_statistics:
                continue
            bounds = SidecarStatistics(known.metadata.sidecar, known.places).bounds(self._field)
            if bounds is not None:
                only_seen = (
                    has_all_values | ~bounds.may_hold_values | (False if seen is None else holds_only(bounds, seen))
                )
                others = ~only_seen | (bounds.may_hold_nulls & (not has_null))
                result[here] = others[row_groups]
        return result

    def _seen_keys(self) -> Any:
        """Return the distinct seen keys; None if they prove nothing."""
        rows = self.rows
        if rows is None or len(self._keys) > 1:
            return None
        return plain_values(rows.table.column(self._field.name)).combine_chunks()

    def _has_all_values(self, column: Any) -> bool:
        return self._domain.has_all_values(len(column) - column.null_count)

    def _has_null(self, column: Any) -> bool:
        return column.null_count > 0 or not self._domain.may_be_null


def _symbol_count(question: Question, key: TableColumn) -> int | None:
    """Return how many symbols a column has in the whole table; None if unknown.

    Text that later became a symbol is in no dictionary if its partition was already in Parquet.
    """
    files = question.snapshot.files
    if files is None or key.superseded_ids:
        return None
    [described] = [column for column in files.metadata.columns if column.writer_index == key.id]
    return None if described.symbol_index is None else int(files.transaction.symbol_counts[described.symbol_index])


def _sorted_values(column: Any) -> SortedValues | None:
    """Return keys in the representation of bounds. None for types whose bounds prove nothing, or without any value."""
    values = column.drop_null()
    if pa.types.is_string(values.type):
        values = values.cast(pa.binary())
    found: list[DomainValue]
    if pa.types.is_binary(values.type) or pa.types.is_fixed_size_binary(values.type):
        found = values.to_pylist()
    elif pa.types.is_integer(values.type) and not pa.types.is_uint64(values.type):
        found = numbers_to_numpy(values.cast(pa.int64()), np.int64).tolist()
    else:
        return None
    return SortedValues.of(tuple(sorted(found))) if found else None


async def read_last_rows(question: Question, executor: Executor, count: int, schema: pa.Schema) -> pa.Table:
    """Read the last rows, in table order, that satisfy the predicate.

    Requests: the metadata of the last partition; then of twice as many, as long as they may be needed. Data: if
    metadata proves that every row matches, one round trip for the last row groups with enough rows. Otherwise 1, 2, 4
    ... row groups at a time from the end.
    """
    best = _BestRows(count)
    await _search(replace(question, last_rows=count), executor, best, timestamp=None)
    return await asyncio.get_running_loop().run_in_executor(executor, best.in_order, schema)


async def read_top_rows(  # noqa: PLR0913 - one question
    question: Question,
    executor: Executor,
    count: int,
    schema: pa.Schema,
    *,
    timestamp: TableColumn,
    ascending: bool,
) -> pa.Table:
    """Read the rows with the largest timestamps, largest first, or with the smallest ones, smallest first.

    Among rows of the same timestamp the last ones in table order win and come first; with ``ascending``, the first
    ones.

    Requests: as :func:`read_last_rows`, with the row groups in the order of their largest (smallest) timestamps.
    """
    best = _BestRows(count)
    found_by = replace(question, output_columns=tuple(dict.fromkeys((*question.output_columns, timestamp))))
    await _search(found_by, executor, best, timestamp=timestamp, ascending=ascending)
    return await asyncio.get_running_loop().run_in_executor(executor, best.best_first, schema)


async def find_time(question: Question, executor: Executor, timestamp: TableColumn, *, ascending: bool) -> Any:
    """Find the largest timestamp of the rows that satisfy the predicate, or the smallest one.

    Requests: the metadata of the last partition; then of twice as many, until a row is found. Data only if metadata
    leaves open whether there is a larger timestamp: timestamp and predicate columns of 1, 2, 4 ... row groups at a
    time. A native partition needs one value if the predicate is only about time.
    """
    best = _BestRows(1, knows_times=True)
    question = replace(question, output_columns=(timestamp,), expects_data=False)
    await _search(question, executor, best, timestamp=timestamp, ascending=ascending)
    type_: Any = arrow_type(timestamp.readable_type, text=PLAIN_TEXT)
    schema = pa.schema([pa.field(timestamp.name, type_)])
    found = best.in_order(schema).column(0)
    return found[0] if len(found) else pa.nulls(1, type_)[0]


class _BestRows(_Kept):
    """The best rows, so many; with ``knows_times`` only their times, which metadata may know."""

    def __init__(self, count: int, *, knows_times: bool = False) -> None:
        super().__init__()
        self._count = count
        self._knows_times = knows_times

    @property
    def is_complete(self) -> bool:
        return self._row_count >= self._count

    @property
    def _row_count(self) -> int:
        """Number of kept rows; it may exceed the wanted number."""
        return sum(len(rows.ranks) for rows in self._found)

    def add(self, rows: RankedRows) -> None:
        self._found.append(rows.best(self._count))
        if self._row_count > 2 * self._count:
            self._found = [RankedRows.joined(self._found).best(self._count)]

    def begin(self, step: _Step) -> None:
        step.keep_at_most(self._rows_that_may_matter(step))
        if self._knows_times and step.timestamp is not None:
            self._take_known_times(step, step.timestamp)

    def is_needed(self, step: _Step, reads: IntArray) -> BoolArray:
        """Tell which reads may hold a row better than the last wanted one among found and certain rows."""
        certain = reads[step.is_certain[reads]]
        rows = np.concatenate([*(np.ones_like(found.ranks) for found in self._found), step.row_counts[certain]])
        ranks = np.concatenate([*(found.ranks for found in self._found), step.ranks.least[certain]])
        places = np.concatenate([*(found.places for found in self._found), step.places[certain]])
        from_the_best = np.lexsort((places, ranks))[::-1]
        rows_up_to = np.cumsum(rows[from_the_best])
        if not len(rows) or rows_up_to[-1] < self._count:
            return np.ones(len(reads), dtype=np.bool_)
        last = from_the_best[np.searchsorted(rows_up_to, self._count)]
        greatest = step.ranks.greatest[reads]
        needed: BoolArray = (greatest > ranks[last]) | (greatest == ranks[last]) & (step.places[reads] >= places[last])
        return needed

    def in_order(self, schema: pa.Schema) -> pa.Table:
        """Return the best rows, the best one last."""
        return self._chosen(schema, slice(-self._count, None))

    def best_first(self, schema: pa.Schema) -> pa.Table:
        """Return the best rows, the best one first."""
        return self._chosen(schema, slice(-1, -self._count - 1, -1))

    def _chosen(self, schema: pa.Schema, chosen: slice) -> pa.Table:
        if not self._found:
            return schema.empty_table()
        rows = RankedRows.joined(self._found)
        positions = rows.from_worst_to_best[chosen]
        if not schema.names:  # Arrow's joins and takes return no rows for tables without columns
            return rows_without_columns(len(positions))
        return rows.at(positions).table.select(schema.names).cast(schema)

    def _rows_that_may_matter(self, step: _Step) -> IntArray:
        """Count the rows of each read that may matter, if they are known to be its last (or first) ones.

        That holds if all its rows match and have equal ranks, so that only table order counts.
        """
        least, greatest = step.ranks.least, step.ranks.greatest
        from_the_best = np.lexsort((step.places, least))[::-1]
        certain_rows = np.where(step.is_certain, step.row_counts, 0)[from_the_best]
        better_rows = np.empty_like(certain_rows)
        better_rows[from_the_best] = np.cumsum(certain_rows) - certain_rows
        missing_rows = np.clip(self._count - self._row_count - better_rows, 1, step.row_counts)
        may_be_cut = step.is_certain & (least == greatest)
        return np.where(may_be_cut, missing_rows, step.row_counts)

    def _take_known_times(self, step: _Step, timestamp: TableColumn) -> None:
        is_known = np.zeros(len(step.order), dtype=np.bool_)
        for facts in column_facts(step.planned, timestamp):
            side = facts.exact.least if step.ascending else facts.exact.greatest
            is_known[facts.reads] = facts.is_whole & side.is_known[facts.row_groups]
        known_from_the_best = step.order[is_known[step.order]]
        if len(known_from_the_best):
            best = int(known_from_the_best[0])
            time = int(flipped(step.ranks.greatest[[best]], ascending=step.ascending)[0])
            type_ = arrow_type(timestamp.readable_type, text=PLAIN_TEXT)
            table = pa.table([to_arrow_value(time, type_, path=None, column=timestamp.name)], names=[timestamp.name])
            place = int(step.places[best])
            self.add(RankedRows.of_read(table, place, timestamp=timestamp, ascending=step.ascending))
        step.order = step.order[~is_known[step.order]]
