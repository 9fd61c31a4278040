"""Prunes by the sidecars of partitions: all partitions that describe their columns alike are pruned together.

A table of ten years has thousands of partitions with few row groups. An array operation takes as long for one row group
as for a thousand. So sidecars are stacked and pruned at once; a decision about one partition only reads its part of the
result.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from operator import is_
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from coldparquet.errors import FormatError, InternalError, UnsupportedError
from coldparquet.format.page_index import page_index_range, page_index_starts
from coldparquet.format.sidecar import SidecarStack, stack_alike
from coldparquet.format.sidecar_layout import PARQUET_TAIL_BYTES
from coldparquet.plan.blooms import BloomProbes, find_lookups
from coldparquet.plan.choices import Choice, decoded_row_bytes, page_index_pays
from coldparquet.plan.prune import misplaced_times, prune, stated_times_ns
from coldparquet.plan.row_groups import prune_row_groups
from coldparquet.plan.selectivity import clustered_fields, count_values, estimate_selectivity
from coldparquet.plan.statistics import BloomAnswers, SidecarStatistics
from coldparquet.text import human_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from coldparquet.catalog.partition import Partition, PartitionMetadata
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.plan.blooms import BloomLookups
    from coldparquet.plan.bounds import BoolArray, IntArray
    from coldparquet.plan.columns import ColumnMatcher
    from coldparquet.plan.prune import PruneReport, StatedTimes
    from coldparquet.plan.selectivity import FloatArray, ValueCounts
    from coldparquet.plan.statistics import LookupKey
    from coldparquet.scan.model import KnownPartition, Question


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
        options = question.options
        self.pruned = prune_row_groups(
            stack,
            output_columns=[place for column in question.output_columns if (place := places[column.index]) is not None],
            predicate=question.predicate,
            predicate_columns=self.tested,
            use_statistics=options.statistics,
            make_constant_columns=options.make_constant_columns,
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
        if not lookups.lookups:
            return None
        probes = BloomProbes(self.stack.sidecars[position], lookups)
        wanted = probes.wanted()
        filter_bytes = 0 if wanted is None else int((wanted.stops - wanted.starts).sum())
        data_bytes = int(self.fetched_bytes[row_groups][probes.row_groups].sum())
        return None if filter_bytes > data_bytes else probes

    @cached_property
    def column_names(self) -> dict[int, str]:
        """The names of the needed columns that the sidecars have, by their index there."""
        return {place: self.stack.column(place).name for place in self.places.values() if place is not None}

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
        pruned, options = self.pruned, self.question.options
        row_bytes = decoded_row_bytes(self.stack, pruned.columns, pruned.row_groups, options)
        of_rows = np.where(pruned.is_fetched, row_bytes, 0).sum(axis=1) * pruned.row_counts
        largest = np.zeros(len(self.stack.sidecars))
        np.maximum.at(largest, self._position_of_left, pruned.fetched_bytes + of_rows)
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
            borders=pruning.stack.borders,
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
        matcher: Finds the columns that the question needs.
        sidecars: Of the partitions that may be asked for.
    """

    def __init__(self, question: Question, matcher: ColumnMatcher, sidecars: Sequence[Sidecar]) -> None:
        self._question = question
        self._matcher = matcher
        self._sidecars = sidecars
        self._members = stack_alike(sidecars)
        self._prunings: dict[int, SidecarPruning] = {}
        self._place_of = {
            index: (number, position)
            for number, members in enumerate(self._members)
            for position, index in enumerate(members)
        }

    def are_about(self, question: Question, sidecars: Sequence[Sidecar]) -> bool:
        """Tell whether these prunings are for exactly these sidecars and this question."""
        is_same_count = len(sidecars) == len(self._sidecars)
        return question is self._question and is_same_count and all(map(is_, sidecars, self._sidecars))

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


SHARE_OF_MEMORY = 16
"""Largest part of the memory limit for one read. Decoding takes twice its result; and while the rows of one read are
consumed, another is decoded and others are fetched."""

_WORTH_A_PAGES_FILE_BYTES = 1024 * 1024
"""A ``_pages`` has a few dozen kilobytes. Beside more data than this, its round trip hardly matters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetDraft:
    """What the sidecar alone says about a question to one partition."""

    pruning: SidecarPruning
    """The pruning of the stack with this sidecar."""
    position: int
    """Position of this sidecar in the stack."""
    partition: Partition
    metadata: PartitionMetadata
    index: int
    """Position of the partition in the plan."""
    left: slice
    """Which of the stack's remaining row groups are its own."""
    probes: BloomProbes | None
    """The bloom filters to probe; None if there are none."""
    page_index: Choice | None
    """Whether to fetch the page index; None if it could not skip anything."""

    @property
    def question(self) -> Question:
        """The question."""
        return self.pruning.question

    @property
    def places(self) -> Mapping[int, int | None]:
        """By index in the table: the index of each needed column in the sidecar, None if absent."""
        return self.pruning.places

    @property
    def sidecar(self) -> Sidecar:
        """The sidecar of the partition."""
        return self.metadata.sidecar

    @property
    def row_groups(self) -> slice:
        """Positions of its row groups in the stack."""
        return self.pruning.row_groups_of(self.position)

    @property
    def row_groups_left(self) -> IntArray:
        """Its remaining row groups, ascending, shape ``(left,)``."""
        row_groups: IntArray = self.pruning.pruned.row_groups[self.left] - self.row_groups.start
        return row_groups

    @property
    def is_read(self) -> bool:
        """Whether any row group remains."""
        return bool(self.left.start < self.left.stop)

    @property
    def certain_rows(self) -> int:
        """Number of rows in row groups of which every row matches."""
        pruned = self.pruning.pruned
        return int(pruned.row_counts[self.left][pruned.all_rows_match[self.left]].sum())

    @property
    def wants_pages(self) -> bool:
        """Whether the page index is to be fetched."""
        return self.page_index is not None and self.page_index.pays

    @property
    def wants_evidence(self) -> bool:
        """Whether fetching evidence is worth its requests."""
        return self.probes is not None or self.wants_pages


def draft_parquet(  # noqa: PLR0913 - what can be told is told by name
    pruning: SidecarPruning,
    position: int,
    partition: Partition,
    metadata: PartitionMetadata,
    *,
    index: int,
    rows_wanted: int | None,
) -> ParquetDraft:
    """Say what the sidecar leaves of a partition, and decide which evidence is worth its requests. No request."""
    # Partitions were pruned by the times of their directories, so their rows must have these times.
    refuse_misplaced_times(partition, pruning.stated_times[position])
    left = pruning.left_of(position)
    draft = ParquetDraft(
        pruning=pruning,
        position=position,
        partition=partition,
        metadata=metadata,
        index=index,
        left=left,
        probes=pruning.bloom_probes(position),
        page_index=None,
    )
    choice = _page_index_choice(draft, rows_wanted)
    return draft if choice is None else replace(draft, page_index=choice)


def _page_index_choice(draft: ParquetDraft, rows_wanted: int | None) -> Choice | None:
    """Decide whether the page index is worth its requests; None if every page would be read anyway."""
    question, sidecar, pruning, left = draft.question, draft.sidecar, draft.pruning, draft.left
    options, pruned, position = question.options, pruning.pruned, draft.position
    if options.page_index == "never" or pruning.fetched_bytes_of[position] == 0:
        return None
    if pruning.largest_memory_bytes[position] > options.memory_limit_bytes // SHARE_OF_MEMORY:
        return Choice(pays=True, reason="row groups are too large for the memory limit, and are read in runs of pages")
    by_rows = rows_wanted is not None and pruning.undecided_count_of[position] == 0
    all_bytes = (pruning.fetched_bytes_of if by_rows else pruning.undecided_bytes_of)[position]
    if all_bytes == 0 or not (by_rows or options.statistics):
        return None
    request_bytes = max(question.coalescing_of(draft.partition.data_path).gap_bytes, 1)
    known = _choice_by_table(draft, all_bytes)
    if known is not None:
        return known
    if options.page_index == "auto" and all_bytes <= request_bytes:
        # The saving is too small for an index of any size, so its place need not be computed.
        return Choice(
            pays=False, reason="it would save too little", details=f"{human_bytes(all_bytes)} are read in all"
        )
    row_groups = pruned.row_groups[left]
    if not by_rows:
        row_groups = row_groups[~pruned.all_rows_match[left]]
    index_range = page_index_range(sidecar, start=pruning.page_index_starts[position])
    index_bytes = index_range.length_bytes - sidecar.footer.parquet_footer_length
    return page_index_pays(
        index_bytes=max(0, index_bytes - PARQUET_TAIL_BYTES),
        chunk_count=sidecar.row_group_count * sidecar.column_count,
        row_group_bytes=pruning.fetched_bytes[row_groups],
        surviving_fraction=(
            _fractions_within(pruned.row_counts[left], rows_wanted or 0)
            if by_rows
            else pruning.clustered_fraction[row_groups]
        ),
        extra_round_trip=draft.probes is None or draft.probes.wanted() is None,
        when=options.page_index,
        goal=options.goal,
        request_bytes=request_bytes,
        speed=question.speed,
    )


def _choice_by_table(draft: ParquetDraft, read_bytes: int) -> Choice | None:
    """Decide by what is known of the table's pages; None if that is not enough."""
    options, page_files = draft.question.options, draft.question.snapshot.page_files
    if page_files.is_at_hand(draft.partition.location):
        return Choice(pays=True, reason="the pages came with the sidecar")
    if page_files.table_has_files and read_bytes >= _WORTH_A_PAGES_FILE_BYTES and options.goal != "few-requests":
        return Choice(pays=True, reason="the `_pages` beside a partition is small against the data")
    if options.page_index == "auto" and page_files.has_small_pages is False:
        return Choice(pays=False, reason="chunks of this table have one page each, as far as is known")
    return None


def _fractions_within(row_counts: IntArray, rows_wanted: int) -> FloatArray:
    """Return the fraction of each row group's rows that are among the first rows of all of them."""
    before = np.cumsum(row_counts) - row_counts
    fractions: FloatArray = np.clip(rows_wanted - before, 0, row_counts) / np.maximum(row_counts, 1)
    return fractions


def refuse_misplaced_times(partition: Partition, stated: StatedTimes | None) -> None:
    """Refuse a partition whose statistics state times outside of those of its directory."""
    promised = partition.time_range_ns
    found = None if promised is None else misplaced_times(stated, promised)
    if found is not None:
        raise FormatError(
            f"its rows are of {found}, outside of the times that its directory's name, and the table's _txn if there is one,"
            " give it, so that questions about times would miss rows; 'coldparquet verify' lists all such partitions: give them the names"
            " of their times, or copy the table again",
            kind="TimeRangeMismatch",
            path=partition.directory_path,
            field="timestamp",
        )


Draft: TypeAlias = "ParquetDraft | KnownPartition"
"""A native partition is already planned, and needs no draft."""
