"""Reads the newest row of each key, or a table's last, newest or oldest rows: from one end until they are certain.

First it reads only keys and timestamp, starting with the newest row groups. Then it reads all columns of the row groups
that hold a row of the result.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from coldparquet.decode.arrow import PLAIN_TEXT, arrow_type, numbers_to_numpy, rows_without_columns, to_arrow_value
from coldparquet.format.types import distinct_values
from coldparquet.plan.answers import holds_only, key_domain
from coldparquet.plan.bind import BoundField
from coldparquet.plan.bounds import SortedValues
from coldparquet.plan.statistics import SidecarStatistics
from coldparquet.scan.answers import column_facts
from coldparquet.scan.planner import plan_question
from coldparquet.scan.requests import cut_read, with_reads
from coldparquet.scan.waves import (
    RankBounds,
    RankedRows,
    flipped,
    plain_values,
    plan_from_one_end,
    ranks_of_rows,
    read_each,
    read_in_waves,
    reads_of_partitions,
    table_places,
    time_ranks,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Executor

    from coldparquet.plan.bounds import BoolArray, IntArray
    from coldparquet.plan.columns import TableColumn
    from coldparquet.plan.literals import DomainValue
    from coldparquet.plan.model import Read
    from coldparquet.scan.model import Question
    from coldparquet.scan.requests import PlannedScan


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
    newest = _NewestOfEach(keys, timestamp)
    proofs = _KeyProofs(question, keys, newest)
    sources: dict[int, _Source] = {}
    loop = asyncio.get_running_loop()
    steps = plan_from_one_end(replace(question, output_columns=found_by), executor, newest_first=True, by_time=True)
    async with aclosing(steps):
        async for planned in steps:
            step = _Step(planned, newest, proofs, timestamp=timestamp, reads_before=len(sources))
            await loop.run_in_executor(executor, step.prepare)
            await read_in_waves(planned, executor, order=step.order, is_needed=step.is_needed, take=step.take)
            sources |= step.sources()
            if proofs.has_every_key:
                break
    if newest.rows is not None and not set(question.output_columns) <= set(found_by):
        winners = {sources[place] for place in distinct_values(newest.rows.places).tolist()}
        everything = replace(question, output_columns=tuple(dict.fromkeys((*question.output_columns, *found_by))))
        newest = await _read_again(everything, executor, winners, keys, timestamp)
    return await loop.run_in_executor(executor, newest.in_order, schema)


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
    newest = _NewestOfEach(keys, timestamp)
    await read_each(with_reads(planned, winning_reads), executor, newest.add)
    return newest


def _sources_of_reads(planned: PlannedScan) -> list[_Source]:
    paths = [partition.data_path for partition in planned.plan.partitions]
    return [_Source(paths[read.partition_index], read.row_group) for read in planned.plan.row_groups]


class _NewestOfEach:
    """The newest row of each key among all rows read so far.

    Args:
        keys: The key columns.
        timestamp: The designated timestamp.
    """

    def __init__(self, keys: Sequence[TableColumn], timestamp: TableColumn) -> None:
        self._keys = [key.name for key in keys]
        self._timestamp = timestamp
        self._found: list[RankedRows] = []

    def add(self, place: int, rows: pa.Table) -> None:
        """Take the rows of one read; among equal timestamps, the greater place wins."""
        if rows.num_rows:
            ranked = RankedRows(
                table=rows,
                ranks=ranks_of_rows(rows, self._timestamp, ascending=False),
                places=np.full(rows.num_rows, place, dtype=np.int64),
                numbers=np.arange(rows.num_rows),
            )
            self._found.append(ranked.best_of_each(self._keys))
        # Joining only when the number of rows has doubled bounds the work: the number of rows times its logarithm.
        if sum(len(part.ranks) for part in self._found[1:]) > len(self._found[0].ranks if self._found else ()):
            self._join()

    @property
    def rows(self) -> RankedRows | None:
        """One row per key; None before the first row."""
        self._join()
        return self._found[0] if self._found else None

    def in_order(self, schema: pa.Schema) -> pa.Table:
        """Return the rows in timestamp order; rows of equal timestamps in table order."""
        rows = self.rows
        if rows is None:
            return schema.empty_table()
        return rows.at(rows.from_worst_to_best).table.select(schema.names).cast(schema)

    def _join(self) -> None:
        if len(self._found) > 1:
            self._found = [RankedRows.joined(self._found).best_of_each(self._keys)]


class _KeyProofs:
    """Proves where no unseen keys can be; with several key columns it proves nothing.

    Args:
        question: The question.
        keys: The key columns.
        newest: The seen keys.
    """

    def __init__(self, question: Question, keys: Sequence[TableColumn], newest: _NewestOfEach) -> None:
        key = keys[0]
        self._newest = newest
        self._use_statistics = question.options.statistics
        self._has_one_column = len(keys) == 1
        self._field = BoundField(name=key.name, index=key.index, type=key.readable_type)
        self._domain = key_domain(self._field, question.predicate, symbol_count=_symbol_count(question, key))

    @property
    def has_every_key(self) -> bool:
        """Whether no row of the table can have another key."""
        column = self._seen_keys()
        return column is not None and self._has_all_values(column) and self._has_null(column)

    def may_hold_others(self, planned: PlannedScan) -> BoolArray:
        """Tell which reads of a plan may hold an unseen key."""
        reads = planned.plan.row_groups
        column = self._seen_keys()
        if column is None:
            return np.ones(len(reads), dtype=np.bool_)
        has_all_values, has_null = self._has_all_values(column), self._has_null(column)
        result = np.full(len(reads), not (has_all_values and has_null), dtype=np.bool_)
        seen = _sorted_values(column)
        for index, here, row_groups in reads_of_partitions(planned):
            known = planned.sidecars[index]
            if known is None or not self._use_statistics:
                continue
            bounds = SidecarStatistics(known.sidecar, known.places).bounds(self._field)
            if bounds is not None:
                only_seen = (
                    has_all_values | ~bounds.may_hold_values | (False if seen is None else holds_only(bounds, seen))
                )
                others = ~only_seen | (bounds.may_hold_nulls & (not has_null))
                result[here] = others[row_groups]
        return result

    def _seen_keys(self) -> Any:
        """Return the distinct seen keys; None if they prove nothing."""
        rows = self._newest.rows
        if rows is None or not self._has_one_column:
            return None
        return plain_values(rows.table.column(self._field.name)).combine_chunks()

    def _has_all_values(self, column: Any) -> bool:
        return self._domain.has_all_values(len(column) - column.null_count)

    def _has_null(self, column: Any) -> bool:
        return column.null_count > 0 or not self._domain.may_be_null


class _Step:
    """Some partitions, whose rows are older than those of earlier steps.

    Args:
        planned: The partitions.
        newest: Takes their rows.
        proofs: Tells which keys they can hold.
        timestamp: The designated timestamp.
        reads_before: Reads of earlier steps.
    """

    def __init__(
        self,
        planned: PlannedScan,
        newest: _NewestOfEach,
        proofs: _KeyProofs,
        *,
        timestamp: TableColumn,
        reads_before: int,
    ) -> None:
        self._planned = planned
        self._newest = newest
        self._proofs = proofs
        self._timestamp = timestamp
        self._reads_before = reads_before

    def prepare(self) -> None:
        """Rank the reads. Runs in a thread: there may be thousands."""
        planned = self._planned
        self._greatest = time_ranks(planned, self._timestamp, ascending=False).greatest
        self._places = table_places(len(planned.plan.row_groups), self._reads_before, ascending=False)
        self.order: IntArray = np.lexsort((self._places, self._greatest))[::-1]

    def is_needed(self, reads: IntArray) -> BoolArray:
        """Tell which reads may hold an unseen key, or a row newer than the oldest newest row of a seen key."""
        rows = self._newest.rows
        if rows is None:
            return np.ones(len(reads), dtype=np.bool_)
        oldest = rows.from_worst_to_best[0]
        rank, place = rows.ranks[oldest], rows.places[oldest]
        greatest, places = self._greatest[reads], self._places[reads]
        may_be_newer = (greatest > rank) | ((greatest == rank) & (places > place))
        needed: BoolArray = may_be_newer | self._proofs.may_hold_others(self._planned)[reads]
        return needed

    def take(self, read: int, rows: pa.Table) -> None:
        """Take the rows of a read."""
        self._newest.add(int(self._places[read]), rows)

    def sources(self) -> dict[int, _Source]:
        """Return the source of each read, by its place."""
        return dict(zip(self._places.tolist(), _sources_of_reads(self._planned), strict=True))


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
    await _read_best(replace(question, last_rows=count), executor, best, timestamp=None, ascending=False)
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
    await _read_best(found_by, executor, best, timestamp=timestamp, ascending=ascending)
    return await asyncio.get_running_loop().run_in_executor(executor, best.best_first, schema)


async def find_time(question: Question, executor: Executor, timestamp: TableColumn, *, ascending: bool) -> Any:
    """Find the largest timestamp of the rows that satisfy the predicate, or the smallest one.

    Requests: the metadata of the last partition; then of twice as many, until a row is found. Data only if metadata
    leaves open whether there is a larger timestamp: timestamp and predicate columns of 1, 2, 4 ... row groups at a
    time. A native partition needs one value if the predicate is only about time.
    """
    best = _BestRows(1)
    question = replace(question, output_columns=(timestamp,), expects_data=False)
    await _read_best(question, executor, best, timestamp=timestamp, ascending=ascending, knows_times=True)
    type_: Any = arrow_type(timestamp.readable_type, text=PLAIN_TEXT)
    schema = pa.schema([pa.field(timestamp.name, type_)])
    found = best.in_order(schema).column(0)
    return found[0] if len(found) else pa.nulls(1, type_)[0]


async def _read_best(  # noqa: PLR0913 - one question
    question: Question,
    executor: Executor,
    best: _BestRows,
    *,
    timestamp: TableColumn | None,
    ascending: bool,
    knows_times: bool = False,
) -> None:
    """Read the rows that rank highest by time, or with all ranks equal; ties go by place in the table."""
    reads_before = 0
    steps = plan_from_one_end(question, executor, newest_first=not ascending, by_time=timestamp is not None)
    async with aclosing(steps):
        async for planned in steps:
            step = _BestRowsStep(planned, best, timestamp=timestamp, ascending=ascending, reads_before=reads_before)
            await asyncio.get_running_loop().run_in_executor(executor, step.prepare, knows_times)
            await read_in_waves(
                planned, executor, order=step.order, is_needed=step.is_needed, take=step.take, cut=step.cut
            )
            reads_before += len(planned.plan.row_groups)
            if best.row_count >= best.count:
                break


class _BestRows:
    """The best rows read so far.

    Args:
        count: How many are wanted.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._found: list[RankedRows] = []

    @property
    def row_count(self) -> int:
        """Number of kept rows; it may exceed the wanted number."""
        return sum(len(rows.ranks) for rows in self._found)

    def add(self, rows: RankedRows) -> None:
        """Take more rows; drop some that are not among the best."""
        self._found.append(rows.best(self.count))
        if self.row_count > 2 * self.count:
            self._found = [RankedRows.joined(self._found).best(self.count)]

    def ranks_and_places(self) -> tuple[IntArray, IntArray]:
        """Return the rank and the place of each kept row."""
        nothing = np.empty(0, dtype=np.int64)
        ranks = np.concatenate([nothing, *(rows.ranks for rows in self._found)])
        return ranks, np.concatenate([nothing, *(rows.places for rows in self._found)])

    def in_order(self, schema: pa.Schema) -> pa.Table:
        """Return the best rows, the best one last."""
        return self._chosen(schema, slice(-self.count, None))

    def best_first(self, schema: pa.Schema) -> pa.Table:
        """Return the best rows, the best one first."""
        return self._chosen(schema, slice(-1, -self.count - 1, -1))

    def _chosen(self, schema: pa.Schema, chosen: slice) -> pa.Table:
        if not self._found:
            return schema.empty_table()
        rows = RankedRows.joined(self._found)
        positions = rows.from_worst_to_best[chosen]
        if not schema.names:  # Arrow's joins and takes return no rows for tables without columns
            return rows_without_columns(len(positions))
        return rows.at(positions).table.select(schema.names).cast(schema)


class _BestRowsStep:
    """Some partitions, whose rows are all worse than those of earlier steps.

    Args:
        planned: The partitions.
        best: The best rows of earlier steps; takes those of this one.
        timestamp: It ranks the rows; None if only table order counts.
        ascending: Whether small timestamps, and rows at the begin of the table, are better.
        reads_before: Reads of earlier steps.
    """

    def __init__(
        self,
        planned: PlannedScan,
        best: _BestRows,
        *,
        timestamp: TableColumn | None,
        ascending: bool,
        reads_before: int,
    ) -> None:
        self._planned = planned
        self._best = best
        self._timestamp = timestamp
        self._ascending = ascending
        self._reads_before = reads_before

    def prepare(self, knows_times: bool) -> None:
        """Rank the reads. Runs in a thread: there may be thousands."""
        planned, timestamp, ascending = self._planned, self._timestamp, self._ascending
        reads = planned.plan.row_groups
        self._row_counts = np.fromiter((read.row_count for read in reads), np.int64, len(reads))
        self._is_certain = np.fromiter((read.all_rows_match for read in reads), np.bool_, len(reads))
        self._ranks = (
            RankBounds.all_equal(len(reads))
            if timestamp is None
            else time_ranks(planned, timestamp, ascending=ascending)
        )
        self._places = table_places(len(reads), self._reads_before, ascending=ascending)
        self._most_rows = self._rows_that_may_matter()
        self.order: IntArray = np.lexsort((self._places, self._ranks.greatest))[::-1]
        if knows_times and timestamp is not None:
            self._take_known_times(timestamp)

    def is_needed(self, reads: IntArray) -> BoolArray:
        """Tell which reads may hold a row better than the last wanted one among found and certain rows."""
        certain = reads[self._is_certain[reads]]
        ranks, places = self._best.ranks_and_places()
        rows = np.concatenate([np.ones(len(ranks), dtype=np.int64), self._row_counts[certain]])
        ranks = np.concatenate([ranks, self._ranks.least[certain]])
        places = np.concatenate([places, self._places[certain]])
        from_the_best = np.lexsort((places, ranks))[::-1]
        rows_up_to = np.cumsum(rows[from_the_best])
        if not len(rows) or rows_up_to[-1] < self._best.count:
            return np.ones(len(reads), dtype=np.bool_)
        last = from_the_best[np.searchsorted(rows_up_to, self._best.count)]
        greatest = self._ranks.greatest[reads]
        needed: BoolArray = (greatest > ranks[last]) | (greatest == ranks[last]) & (self._places[reads] >= places[last])
        return needed

    def take(self, read: int, rows: pa.Table) -> None:
        """Keep the best rows of one read."""
        if self._timestamp is None:
            ranks = np.zeros(rows.num_rows, dtype=np.int64)
        else:
            ranks = ranks_of_rows(rows, self._timestamp, ascending=self._ascending)
        places = np.full(rows.num_rows, self._places[read], dtype=np.int64)
        numbers = flipped(np.arange(rows.num_rows), ascending=self._ascending)
        self._best.add(RankedRows(table=rows, ranks=ranks, places=places, numbers=numbers))

    def cut(self, read: int) -> Read:
        """Cut the rows of a read that cannot matter: those behind enough certain and better rows."""
        planned_read, count = self._planned.plan.row_groups[read], int(self._most_rows[read])
        if count >= planned_read.row_count:
            return planned_read
        data_path = planned_read.data.path
        return cut_read(
            planned_read,
            count,
            from_end=not self._ascending,
            coalescing=self._planned.question.coalescing_of(data_path),
        )

    def _rows_that_may_matter(self) -> IntArray:
        """Count the rows of each read that may matter, if they are known to be its last (or first) ones.

        That holds if all its rows match and have equal ranks, so that only table order counts.
        """
        least, greatest = self._ranks.least, self._ranks.greatest
        from_the_best = np.lexsort((self._places, least))[::-1]
        certain_rows = np.where(self._is_certain, self._row_counts, 0)[from_the_best]
        better_rows = np.empty_like(certain_rows)
        better_rows[from_the_best] = np.cumsum(certain_rows) - certain_rows
        missing_rows = np.clip(self._best.count - self._best.row_count - better_rows, 1, self._row_counts)
        may_be_cut = self._is_certain & (least == greatest)
        return np.where(may_be_cut, missing_rows, self._row_counts)

    def _take_known_times(self, timestamp: TableColumn) -> None:
        is_known = np.zeros(len(self.order), dtype=np.bool_)
        for facts in column_facts(self._planned, timestamp):
            is_exact = facts.exact.is_least_known if self._ascending else facts.exact.is_greatest_known
            is_known[facts.reads] = facts.is_whole & is_exact[facts.row_groups]
        known_from_the_best = self.order[is_known[self.order]]
        if len(known_from_the_best):
            best = known_from_the_best[:1]
            ranks = self._ranks.greatest[best]
            time = int(flipped(ranks, ascending=self._ascending)[0])
            type_ = arrow_type(timestamp.readable_type, text=PLAIN_TEXT)
            value = to_arrow_value(time, type_, path=None, column=timestamp.name)
            table = pa.table([value], names=[timestamp.name])
            numbers = np.zeros(1, dtype=np.int64)
            self._best.add(RankedRows(table=table, ranks=ranks, places=self._places[best], numbers=numbers))
        self.order = self.order[~is_known[self.order]]
