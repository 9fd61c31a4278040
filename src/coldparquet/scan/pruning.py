"""Prunes by the sidecars of partitions: all partitions that describe their columns alike are pruned together.

A table of ten years has thousands of partitions with few row groups. An array operation takes as long for one row group
as for a thousand. So sidecars are stacked and pruned at once; a decision about one partition only reads its part of the
result.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.errors import FormatError, InternalError, UnsupportedError
from coldparquet.format.page_index import page_index_starts
from coldparquet.format.sidecar import SidecarStack, stack_alike
from coldparquet.plan.blooms import BloomProbes, find_lookups
from coldparquet.plan.columns import ColumnMatcher
from coldparquet.plan.prune import prune, stated_times_ns
from coldparquet.plan.row_groups import prune_row_groups, stored_columns
from coldparquet.plan.selectivity import clustered_fields, count_values, estimate_selectivity
from coldparquet.plan.statistics import BloomAnswers, SidecarStatistics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from coldparquet.format.sidecar import Sidecar
    from coldparquet.plan.blooms import BloomLookups
    from coldparquet.plan.bounds import BoolArray, IntArray
    from coldparquet.plan.model import StoredColumn
    from coldparquet.plan.prune import PruneReport, StatedTimes
    from coldparquet.plan.selectivity import FloatArray, ValueCounts
    from coldparquet.plan.statistics import LookupKey
    from coldparquet.scan.model import Question


class SidecarPruning:
    """What stacked sidecars say about a question. No request.

    Args:
        question: The question.
        stack: The sidecars.
        places: By index in the table: the index of each needed column in the sidecars, None if absent.

    Raises:
        FormatError: A sidecar is damaged. The error names it if the stack has only one.

    Attributes:
        question: As above.
        stack: As above.
        places: As above.
        tested: The places of the predicate's columns only.
        pruned: The row groups that statistics leave.
    """

    def __init__(self, question: Question, stack: SidecarStack, places: Mapping[int, int | None]) -> None:
        self.question = question
        self.stack = stack
        self.places = places
        self.tested = {column.index: places[column.index] for column in question.predicate_columns}
        self.pruned = prune_row_groups(
            stack,
            output_columns=[place for column in question.output_columns if (place := places[column.index]) is not None],
            predicate=question.predicate,
            predicate_columns=self.tested,
            options=question.options,
        )
        self.statistics = SidecarStatistics(stack, self.tested)
        self._probes: dict[int, BloomProbes | None] = {}

    def row_groups_of(self, position: int) -> slice:
        """Return which row groups of the stack belong to one sidecar."""
        return self.stack.row_groups_of(position)

    def left_of(self, position: int) -> slice:
        """Return which of the remaining row groups belong to one sidecar."""
        return slice(self._left_borders[position], self._left_borders[position + 1])

    def bloom_probes(self, position: int) -> BloomProbes | None:
        """Return the bloom filters of one sidecar to probe, always as the same object.

        None if no filter is to be probed, or the data itself is smaller than the filters.
        """
        if position not in self._probes:
            self._probes[position] = self._new_probes(position)
        return self._probes[position]

    def _new_probes(self, position: int) -> BloomProbes | None:
        left = self.left_of(position)
        if left.start == left.stop or self.bloom_lookups is None:
            return None
        row_groups = self.row_groups_of(position)
        lookups = self.bloom_lookups.of(row_groups)
        if not lookups.probes:
            return None
        probes = BloomProbes(self.stack.sidecars[position], lookups)
        data_bytes = int(self.fetched_bytes[row_groups][probes.row_groups].sum())
        return None if self._filter_bytes[row_groups].sum() > data_bytes else probes

    @cached_property
    def stored_columns(self) -> dict[int, StoredColumn]:
        """The needed columns that the sidecars have, by their index there."""
        return stored_columns(self.stack, (place for place in self.places.values() if place is not None))

    @cached_property
    def absent_columns(self) -> tuple[str, ...]:
        """The names of the result's columns that the sidecars lack."""
        return tuple(column.name for column in self.question.output_columns if self.places[column.index] is None)

    @cached_property
    def fetched_bytes_of(self) -> list[int]:
        """Bytes to fetch of each sidecar's Parquet file."""
        return self._summed(self.pruned.fetched_bytes)

    @cached_property
    def undecided_bytes_of(self) -> list[int]:
        """Like :attr:`fetched_bytes_of`, only of row groups in which some rows may not match."""
        return self._summed(np.where(self.pruned.all_rows_match, 0, self.pruned.fetched_bytes))

    @cached_property
    def undecided_count_of(self) -> list[int]:
        """Number of each sidecar's remaining row groups in which some rows may not match."""
        return self._summed((~self.pruned.all_rows_match).astype(np.int64))

    def check_counts(self) -> None:
        """Check all numbers that estimates may need later."""
        _ = self.value_counts
        for column in self.pruned.columns:
            _ = self.stack.chunks(column).total_compressed_bytes

    @cached_property
    def largest_memory_bytes(self) -> list[float]:
        """Approximate memory for decoding the largest read of each sidecar; 0 without reads."""
        largest = np.zeros(len(self.stack.sidecars))
        np.maximum.at(largest, self._position_of_left, self.pruned.fetched_bytes + self.pruned.decoded_bytes)
        return largest.tolist()

    @cached_property
    def bloom_lookups(self) -> BloomLookups | None:
        """The lookups in bloom filters that are worth it; None if filters are not to be probed."""
        predicate, options, pruned = self.question.predicate, self.question.options, self.pruned
        if predicate is None or not options.bloom_filters or not options.statistics:
            return None
        undecided = np.zeros(self.stack.row_group_count, np.bool_)
        undecided[pruned.row_groups[~pruned.all_rows_match]] = True
        return find_lookups(predicate, self.statistics, table=self.stack, columns=self.tested, row_groups=undecided)

    @cached_property
    def _filter_bytes(self) -> IntArray:
        """Bytes of bloom filters to fetch for each row group of the stack, shape ``(row_groups,)``."""
        count, lookups = self.stack.row_group_count, self.bloom_lookups
        return np.zeros(count, np.int64) if lookups is None else lookups.wanted_bytes(count)

    @cached_property
    def fetched_bytes(self) -> IntArray:
        """Bytes to fetch of each row group of the stack, shape ``(row_groups,)``; 0 if it is pruned."""
        result = np.zeros(self.stack.row_group_count, np.int64)
        result[self.pruned.row_groups] = self.pruned.fetched_bytes
        return result

    @cached_property
    def clustered_fraction(self) -> FloatArray:
        """Estimated fraction of the rows of each row group that pages leave, shape ``(row_groups,)``."""
        predicate, stack, borders = self.question.predicate, self.stack, self.stack.borders
        if predicate is None:
            return np.ones(stack.row_group_count)
        return estimate_selectivity(
            predicate,
            self.statistics,
            self.value_counts,
            stack.row_counts,
            borders=borders,
            fields=clustered_fields(predicate, self.statistics, stack, self.tested, borders=borders),
        )

    @cached_property
    def value_counts(self) -> dict[int, ValueCounts]:
        """Approximate number of values of the predicate's columns, by index in the table."""
        return count_values(self.stack, self.tested)

    @cached_property
    def page_index_starts(self) -> list[int]:
        """Lowest possible offset of the page index in each sidecar's Parquet file."""
        starts: list[int] = page_index_starts(self.stack, self.stack.borders).tolist()
        return starts

    @cached_property
    def stated_times(self) -> list[StatedTimes | None]:
        """The times that each sidecar's statistics state, if the question is about times; None if they state none."""
        timestamp = self.question.snapshot.designated_timestamp
        place = None if timestamp is None else self.tested.get(timestamp)
        if place is None:
            return [None] * len(self.stack.sidecars)
        return stated_times_ns(self.stack, place, self.stack.borders)

    @cached_property
    def _position_of_left(self) -> npt.NDArray[np.intp]:
        """The sidecar of each remaining row group, shape ``(left,)``."""
        return np.repeat(np.arange(len(self.stack.sidecars)), np.diff(self._left_borders))

    @cached_property
    def _left_borders(self) -> list[int]:
        """Index of each sidecar's first remaining row group, followed by the number of all."""
        borders: list[int] = self.pruned.row_groups.searchsorted(self.stack.borders).tolist()
        return borders

    def _summed(self, of_left: IntArray) -> list[int]:
        """Sum a number of each remaining row group by sidecar."""
        sums: list[int] = np.diff(np.concatenate([[0], np.cumsum(of_left)])[self._left_borders]).tolist()
        return sums


class Verdicts:
    """What sidecars and bloom filters together say about a question.

    Args:
        pruning: What the sidecars alone say.
        blooms: The answers of bloom filters, by the position of the sidecar in the stack.
    """

    def __init__(self, pruning: SidecarPruning, blooms: Mapping[int, BloomAnswers]) -> None:
        self._pruning = pruning
        self._statistics = pruning.statistics
        if blooms:
            self._statistics = SidecarStatistics(pruning.stack, pruning.tested, blooms=_stacked(pruning.stack, blooms))

    @cached_property
    def survives(self) -> BoolArray:
        """Whether a row group may hold a matching row, shape ``(row_groups,)``."""
        return self._pruned[0]

    @property
    def report(self) -> PruneReport:
        """The conditions that dropped row groups."""
        return self._pruned[1]

    @cached_property
    def matching_fraction(self) -> FloatArray:
        """Estimated fraction of the rows of each row group that match, shape ``(row_groups,)``."""
        pruning = self._pruning
        if pruning.question.predicate is None:
            return np.ones(pruning.stack.row_group_count)
        return estimate_selectivity(
            pruning.question.predicate,
            self._statistics,
            pruning.value_counts,
            pruning.stack.row_counts,
        )

    @cached_property
    def _pruned(self) -> tuple[BoolArray, PruneReport]:
        predicate = self._pruning.question.predicate
        if predicate is None:
            raise InternalError("without a predicate there is nothing to prune by")
        verdict, report = prune(predicate, self._statistics, self._pruning.stack.row_group_count)
        return verdict.survives, report


class SidecarPrunings:
    """Prunes sidecars on first use: all that can be stacked together at once.

    Args:
        question: The question.
        sidecars: Of the partitions that may be asked for.
    """

    def __init__(self, question: Question, sidecars: Sequence[Sidecar]) -> None:
        self._question = question
        self._matcher = ColumnMatcher(question.needed_columns)
        self._sidecars = sidecars
        self._members = stack_alike(sidecars)
        self._prunings: dict[int, SidecarPruning] = {}
        self._place_of = {
            index: (number, position)
            for number, members in enumerate(self._members)
            for position, index in enumerate(members)
        }

    def at(self, index: int) -> tuple[SidecarPruning, int]:
        """Return the pruning of one sidecar's stack, and its position there."""
        number, position = self._place_of[index]
        pruning = self._prunings.get(number)
        if pruning is None:
            members = self._members[number]
            try:
                pruning = self._prune(members)
            except (FormatError, UnsupportedError):
                if len(members) == 1:
                    raise
                # One by one, so that the error names its sidecar, and occurs only if that sidecar is asked for.
                self._separate(members)
                return self.at(index)
            self._prunings[number] = pruning
        return pruning, position

    def _prune(self, members: Sequence[int]) -> SidecarPruning:
        sidecars = [self._sidecars[index] for index in members]
        pruning = SidecarPruning(self._question, SidecarStack(sidecars), self._matcher.places(sidecars[0]))
        if len(members) > 1:
            pruning.check_counts()
        return pruning

    def _separate(self, members: Sequence[int]) -> None:
        for index in members:
            self._place_of[index] = (len(self._members), 0)
            self._members.append([index])


def _stacked(stack: SidecarStack, blooms: Mapping[int, BloomAnswers]) -> BloomAnswers:
    """Join the answers about several sidecars. Where a filter was not probed, any value may be present."""
    found: dict[LookupKey, BoolArray] = {}
    for position, answers in blooms.items():
        for key, may_hold in answers.found.items():
            of_stack = found.setdefault(key, np.ones(stack.row_group_count, np.bool_))
            of_stack[stack.row_groups_of(position)] = may_hold
    return BloomAnswers(found, ())
