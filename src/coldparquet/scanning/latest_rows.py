"""The newest row of each key: QuestDB's ``LATEST ON timestamp PARTITION BY keys``.

First only the keys and the timestamp are read, from the newest row groups on; then all columns of the row groups that
hold a row of the result.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from coldparquet.decode.numpy_bridge import numbers_to_numpy
from coldparquet.format.distinct_values import distinct_values
from coldparquet.plan.bind import BoundField
from coldparquet.plan.bounds import SortedValues
from coldparquet.plan.key_proofs import holds_only, key_domain
from coldparquet.plan.statistics import SidecarStatistics
from coldparquet.scanning.partition_windows import plan_from_one_end
from coldparquet.scanning.planned_partition import PlannedParquet
from coldparquet.scanning.ranked_rows import RankedRows, plain_values
from coldparquet.scanning.read_waves import read_each, read_in_waves
from coldparquet.scanning.request_planner import with_reads
from coldparquet.scanning.scan_planner import plan_question
from coldparquet.scanning.time_ranks import ranks_of_rows, reads_of_partitions, table_places, time_ranks

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Executor

    from coldparquet.plan.bounds import BoolArray, IntArray
    from coldparquet.plan.literals import DomainValue
    from coldparquet.plan.projection import TableColumn
    from coldparquet.scanning.question import Question
    from coldparquet.scanning.scan_planner import PlannedScan


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
    """Read the newest row of each key among those that satisfy the predicate, in the order of their timestamps.

    Among rows of a key with the same timestamp the last one in table order is taken.

    Requests: the metadata of the newest partition, then of twice as many and so on. Data: keys, timestamp and predicate
    columns of 1, 2, 4 ... row groups at a time from the newest on, but for those that provably hold neither a key that was
    not seen yet nor a newer row of one that was. Then, in one round trip, all columns of the row groups that hold a row of
    the result, if it has others.

    Args:
        question: What is asked; without a limit.
        executor: Plans and decodes.
        schema: Of the result.
        keys: At least one column.
        timestamp: The designated timestamp.
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
    """Read the row groups that hold the newest row of a key, with more columns; the same rows win again."""
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
    """The newest row of each key among all rows that were read so far.

    Args:
        keys: The key columns.
        timestamp: The designated timestamp.
    """

    def __init__(self, keys: Sequence[TableColumn], timestamp: TableColumn) -> None:
        self._keys = [key.name for key in keys]
        self._timestamp = timestamp
        self._found: list[RankedRows] = []

    def add(self, place: int, rows: pa.Table) -> None:
        """Take the rows of one read; a greater place is preferred among equal timestamps."""
        if rows.num_rows:
            ranked = RankedRows(
                table=rows,
                ranks=ranks_of_rows(rows, self._timestamp, ascending=False),
                places=np.full(rows.num_rows, place, dtype=np.int64),
                numbers=np.arange(rows.num_rows),
            )
            self._found.append(ranked.best_of_each(self._keys))
        # Joining when as many came as there are bounds the work by the number of rows that come, times its logarithm.
        if sum(len(part.ranks) for part in self._found[1:]) > len(self._found[0].ranks if self._found else ()):
            self._join()

    @property
    def rows(self) -> RankedRows | None:
        """One row per key; None before there is any."""
        self._join()
        return self._found[0] if self._found else None

    def in_order(self, schema: pa.Schema) -> pa.Table:
        """Return the rows in the order of their timestamps and, for equal ones, of the table."""
        rows = self.rows
        if rows is None:
            return schema.empty_table()
        return rows.at(rows.from_worst_to_best).table.select(schema.names).cast(schema)

    def _join(self) -> None:
        if len(self._found) > 1:
            self._found = [RankedRows.joined(self._found).best_of_each(self._keys)]


class _KeyProofs:
    """Tells where no other keys can be than those that were seen; of several key columns nothing is proved.

    Args:
        question: What is asked.
        keys: The key columns.
        newest: The keys that were seen.
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
        """Tell which reads of a plan may hold a key that was not seen yet."""
        reads = planned.plan.row_groups
        column = self._seen_keys()
        if column is None:
            return np.ones(len(reads), dtype=np.bool_)
        has_all_values, has_null = self._has_all_values(column), self._has_null(column)
        result = np.full(len(reads), not (has_all_values and has_null), dtype=np.bool_)
        seen = _sorted_values(column)
        for index, here, row_groups in reads_of_partitions(planned):
            partition = planned.partitions[index]
            if not isinstance(partition, PlannedParquet) or not self._use_statistics:
                continue
            bounds = SidecarStatistics(partition.sidecar, partition.places).bounds(self._field)
            if bounds is not None:
                only_seen = (
                    has_all_values | ~bounds.may_hold_values | (False if seen is None else holds_only(bounds, seen))
                )
                others = ~only_seen | (bounds.may_hold_nulls & (not has_null))
                result[here] = others[row_groups]
        return result

    def _seen_keys(self) -> Any:
        """Return the keys that were seen, each once; None where they prove nothing."""
        rows = self._newest.rows
        if rows is None or not self._has_one_column:
            return None
        return plain_values(rows.table.column(self._field.name)).combine_chunks()

    def _has_all_values(self, column: Any) -> bool:
        return self._domain.has_all_values(len(column) - column.null_count)

    def _has_null(self, column: Any) -> bool:
        return column.null_count > 0 or not self._domain.may_be_null


class _Step:
    """Some partitions, whose rows are older than those of the steps before.

    Args:
        planned: The partitions.
        newest: Gets their rows.
        proofs: Tells which keys they can hold.
        timestamp: The designated timestamp.
        reads_before: Reads of the steps before.
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
        """Rank the reads, which may be thousands: in a thread."""
        planned = self._planned
        self._greatest = time_ranks(planned, self._timestamp, ascending=False).greatest
        self._places = table_places(len(planned.plan.row_groups), self._reads_before, ascending=False)
        self.order: IntArray = np.lexsort((self._places, self._greatest))[::-1]

    def is_needed(self, reads: IntArray) -> BoolArray:
        """Tell which reads may hold a new key, or a newer row than the oldest one that a key has so far."""
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
        """Say for the place of each read where it reads."""
        return dict(zip(self._places.tolist(), _sources_of_reads(self._planned), strict=True))


def _symbol_count(question: Question, key: TableColumn) -> int | None:
    """Return how many symbols a column has in the whole table; None where that is not known.

    Text that became a symbol later is in no dictionary where its partition was in Parquet already.
    """
    files = question.snapshot.files
    if files is None or key.superseded_ids:
        return None
    [described] = [column for column in files.metadata.columns if column.writer_index == key.id]
    return None if described.symbol_index is None else int(files.transaction.symbol_counts[described.symbol_index])


def _sorted_values(column: Any) -> SortedValues | None:
    """Return keys in the terms of bounds; None for types whose bounds prove nothing, or without any value."""
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
