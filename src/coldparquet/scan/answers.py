"""Answers minimum, maximum and null counts: from metadata where that is exact, else from the rows that decide.

Metadata answers a row group if all its rows satisfy the predicate and its statistics are exact values of the column
(``plan/answers.py``). Of the other row groups, only those that may change the answer are read.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
from msgspec import Struct

from coldparquet.decode.arrow import PLAIN_TEXT, arrow_type, compute, to_arrow_value, to_domain_value
from coldparquet.errors import UnsupportedError
from coldparquet.format.types import ValueOrder, distinct_values
from coldparquet.plan.answers import exact_bounds
from coldparquet.plan.bind import BoundField
from coldparquet.plan.bounds import NumericSide
from coldparquet.records import replace
from coldparquet.scan.planner import plan_question
from coldparquet.scan.requests import with_reads
from coldparquet.scan.waves import Search, plain_values, read_each, read_in_waves, reads_of_partitions

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Executor

    import numpy.typing as npt

    from coldparquet.plan.answers import ExactBounds
    from coldparquet.plan.bounds import BoolArray, IntArray
    from coldparquet.plan.columns import TableColumn
    from coldparquet.plan.literals import DomainValue
    from coldparquet.scan.model import PlannedScan, Question


class PartitionFacts(Struct, frozen=True, kw_only=True, eq=False):
    """What is known about a column in one partition."""

    path: str
    """The Parquet file, for error messages."""
    reads: slice
    """Where the partition's reads are among the reads of the plan."""
    row_groups: IntArray
    """Row group of each of these reads, shape ``(reads,)``."""
    is_whole: BoolArray
    """Whether the reads of its row group together cover all its rows, and all these rows satisfy the predicate."""
    exact: ExactBounds
    """What statistics say about its row groups."""


def column_facts(planned: PlannedScan, column: TableColumn) -> list[PartitionFacts]:
    """Collect the known facts. Native partitions have none; nor have partitions with untrusted statistics."""
    if not planned.question.options.statistics:
        return []
    field = BoundField(name=column.name, index=column.index, type=column.readable_type)
    reads = planned.plan.row_groups
    matching_rows = np.fromiter((read.row_count if read.all_rows_match else 0 for read in reads), np.int64, len(reads))
    facts = []
    for index, here, row_groups in reads_of_partitions(planned):
        known = planned.known[index]
        if known.metadata is not None:
            row_counts = known.metadata.sidecar.row_counts
            matching = np.bincount(row_groups, weights=matching_rows[here], minlength=len(row_counts))
            facts.append(
                PartitionFacts(
                    path=planned.plan.partitions[index].data_path,
                    reads=here,
                    row_groups=row_groups,
                    is_whole=(matching == row_counts)[row_groups],
                    exact=exact_bounds(known.metadata.sidecar, known.places[column.index], field),
                )
            )
    return facts


Extreme: TypeAlias = Literal["min", "max"]


async def count_rows(question: Question, executor: Executor) -> int:
    """Count the rows.

    Requests: metadata. Data only where metadata does not decide whether all rows match, and then only the predicate's
    columns. With a limit, counting stops once that many rows are certain: metadata that proves them needs no data.
    Otherwise row groups are read in table order, in growing steps. Without a predicate, the metadata of the first
    partitions suffices.
    """
    limit = question.limit
    if limit == 0:
        return 0
    planned = await plan_question(replace(question, output_columns=(), expects_data=False), executor)
    certain = sum(read.row_count for read in planned.plan.row_groups if read.all_rows_match)
    if limit is not None and certain >= limit:
        return limit
    undecided = [read for read in planned.plan.row_groups if not read.all_rows_match]
    still_wanted = None if limit is None else limit - certain
    planned = replace(planned, question=replace(planned.question, limit=still_wanted))
    found: list[int] = []
    await read_each(with_reads(planned, undecided), executor, lambda _, rows: found.append(rows.num_rows))
    return certain + sum(found)


async def has_rows(question: Question, executor: Executor) -> bool:
    """Tell whether there is any row.

    Requests: those of :func:`count_rows` with a limit of one row.
    """
    return question.limit != 0 and await count_rows(replace(question, limit=1), executor) > 0


async def count_nulls(question: Question, executor: Executor, column: TableColumn) -> int:
    """Count the rows in which a column is NULL.

    Requests: metadata. Data only of row groups that may hold a NULL, and where the null count, or whether all rows
    match, is unknown. There the column and the predicate's columns are read. With a limit, all rows are read.
    """
    if column.readable_type.never_null:
        return 0
    known = await _know_column(question, executor, column, is_read=question.predicate is not None)
    nulls, needed = _known_nulls(known)
    if needed.any() and question.predicate is None:
        known = await _know_column(question, executor, column, is_read=True)
        nulls, needed = _known_nulls(known)
    found: list[int] = []
    await read_each(
        known.plan_of(np.flatnonzero(needed)),
        executor,
        lambda _, rows: found.append(rows.column(column.name).null_count),
    )
    return nulls + sum(found)


def _known_nulls(known: _KnownColumn) -> tuple[int, BoolArray]:
    """Sum the null counts that metadata proves; tell which other reads may hold nulls."""
    needed = np.ones(len(known.planned.plan.row_groups), dtype=np.bool_)
    nulls = 0
    for facts in known.facts:
        counts = facts.exact.null_counts
        is_counted = facts.is_whole & (counts[facts.row_groups] >= 0)
        needed[facts.reads] = ~is_counted & (counts[facts.row_groups] != 0)
        nulls += int(counts[distinct_values(facts.row_groups[is_counted])].sum())  # several reads may share a row group
    return nulls, needed


async def find_extremes(
    question: Question, executor: Executor, column: TableColumn, wanted: Sequence[Extreme]
) -> list[Any]:
    """Find the minimum or the maximum of a column, or both. NaN counts only if there is no other value.

    Requests: metadata. Data only of row groups that metadata does not answer and whose bounds allow a better value than
    the best known one. There the column and the predicate's columns are read, of 1, 2, 4 ... row groups at a time, the
    most promising first. With a limit, all rows are read.
    """
    if not column.readable_type.is_compared or column.readable_type.comparison is ValueOrder.BYTES_EQUALITY:
        raise UnsupportedError(
            f"column {column.name!r} is {column.readable_type.name}, whose values have no order",
            kind="UnsupportedComparison",
            column=column.name,
            type=column.readable_type.name,
        )
    in_thread = asyncio.get_running_loop().run_in_executor
    known = await _know_column(question, executor, column, is_read=question.predicate is not None)
    extremes = await in_thread(executor, _Extremes, known, column, wanted)
    if extremes.are_undecided and question.predicate is None:
        known = await _know_column(question, executor, column, is_read=True)
        extremes = await in_thread(executor, _Extremes, known, column, wanted)
    if question.limit is None:
        await read_in_waves(known.planned, executor, extremes)
    else:
        await read_each(with_reads(known.planned, known.planned.plan.row_groups), executor, extremes.take)
    return extremes.values()


class _KnownColumn(Struct, frozen=True, kw_only=True):
    """The plan that reads one column, and the facts that make reads unnecessary."""

    planned: PlannedScan
    facts: list[PartitionFacts]
    """Empty with a limit: only reading the rows shows which of them the limit leaves out."""

    def plan_of(self, reads: IntArray) -> PlannedScan:
        """Return the plan of some of the reads."""
        return with_reads(self.planned, [self.planned.plan.row_groups[read] for read in reads.tolist()])


async def _know_column(question: Question, executor: Executor, column: TableColumn, *, is_read: bool) -> _KnownColumn:
    """Plan to read one column."""
    options = question.options if is_read else replace(question.options, page_index="never")
    wanted = replace(question, output_columns=(column,), options=options, expects_data=False)
    planned = await plan_question(wanted, executor)
    if question.limit is not None:
        return _KnownColumn(planned=planned, facts=[])
    facts = await asyncio.get_running_loop().run_in_executor(executor, column_facts, planned, column)
    return _KnownColumn(planned=planned, facts=facts)


class _Extremes(Search):
    """The minimum and the maximum of a column, as far as they are known."""

    wants_certain_rows = False

    def __init__(self, known: _KnownColumn, column: TableColumn, wanted: Sequence[Extreme]) -> None:
        self._column = column
        self._searches = [_ExtremeSearch(extreme, known, column) for extreme in wanted]
        promises = [search.promises() for search in self._searches]
        # A read ranks by the better of its two promises.
        places = np.min([np.argsort(np.argsort(-promise, kind="stable")) for promise in promises], axis=0)
        self.order = np.argsort(places, kind="stable")
        is_unknown = np.all([np.isinf(promise) for promise in promises], axis=0)
        # Reads that no other read can make unnecessary come at once.
        self.first_wave_reads = max(1, int((is_unknown & self._may_change()).sum()))

    @property
    def are_undecided(self) -> bool:
        """Whether any read is still needed."""
        return bool(self._may_change().any())

    def is_needed(self, reads: IntArray) -> BoolArray:
        return self._may_change()[reads]

    def take(self, read: int, rows: pa.Table) -> None:  # noqa: ARG002
        values = plain_values(rows.column(self._column.name))
        for search in self._searches:
            search.take(values)

    def values(self) -> list[Any]:
        """Return the wanted values."""
        return [search.value for search in self._searches]

    def _may_change(self) -> BoolArray:
        result: BoolArray = np.any([search.may_change() for search in self._searches], axis=0)
        return result


class _ExtremeSearch:
    """The search for one of the two extremes of a column."""

    def __init__(self, extreme: Extreme, known: _KnownColumn, column: TableColumn) -> None:
        self._extreme = extreme
        type_: Any = arrow_type(column.readable_type, text=PLAIN_TEXT)
        self.value: Any = pa.nulls(1, type_)[0]
        self._facts = [
            (facts, facts.exact.least if extreme == "min" else facts.exact.greatest) for facts in known.facts
        ]
        self._is_known = np.zeros(len(known.planned.plan.row_groups), dtype=np.bool_)
        found: list[tuple[DomainValue, str]] = []
        for facts, side in self._facts:
            is_known = facts.is_whole & side.is_known[facts.row_groups]
            self._is_known[facts.reads] = is_known
            marked = np.zeros(len(side.is_known), dtype=np.bool_)
            marked[facts.row_groups[is_known]] = True
            best = side.best(marked)
            if best is not None:
                found.append((best, facts.path))
        if found:
            best, path = min(found) if extreme == "min" else max(found)
            self.take(to_arrow_value(best, type_, path=path, column=column.name))

    def take(self, values: Any) -> None:
        """Take values; one may be better than the best known one."""
        best = compute.min_max(values)[self._extreme]
        if best.is_valid and self.value.is_valid:
            best = compute.min_max(pa.concat_arrays([pa.repeat(best, 1), pa.repeat(self.value, 1)]))[self._extreme]
        if best.is_valid:
            self.value = best

    def may_change(self) -> BoolArray:
        """Tell which reads may hold a value better than the best known one, shape ``(reads,)``."""
        best = to_domain_value(self.value)
        result = ~self._is_known
        # Any number is better than NaN, but all comparisons with NaN are false.
        is_nan = isinstance(best, float) and math.isnan(best)
        if best is not None and not is_nan:
            for facts, side in self._facts:
                result[facts.reads] &= side.may_beat(best)[facts.row_groups]
        return result

    def promises(self) -> npt.NDArray[np.float64]:
        """Return how good the values of each read may be: its bound, or infinity without one. Greater is better."""
        result = np.full(len(self._is_known), np.inf)
        for facts, exact in self._facts:
            if exact.side is not None:
                side = exact.side
                numbers = side.numbers if isinstance(side, NumericSide) else side.prefixes
                about = np.where(side.known, (1.0 if exact.largest else -1.0) * numbers.astype(np.float64), np.inf)
                result[facts.reads] = about[facts.row_groups]
        return result
