"""What is read of each partition by its sidecar alone, and which evidence about it is worth its requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from msgspec import Struct

from coldparquet.errors import FormatError, InternalError
from coldparquet.format.page_index import page_index_range
from coldparquet.format.sidecar_layout import PARQUET_TAIL_BYTES
from coldparquet.plan.choices import Choice, page_index_pays
from coldparquet.plan.prune import misplaced_times
from coldparquet.records import replace
from coldparquet.text import human_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coldparquet.catalog.partition import Partition, PartitionMetadata
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.plan.blooms import BloomProbes
    from coldparquet.plan.bounds import IntArray
    from coldparquet.plan.prune import StatedTimes
    from coldparquet.plan.selectivity import FloatArray
    from coldparquet.scan.model import KnownPartition, Question
    from coldparquet.scan.pruning import SidecarPruning


Draft: TypeAlias = "ParquetDraft | KnownPartition"
"""A native partition is already planned, and needs no draft."""

SHARE_OF_MEMORY = 16
"""Largest part of the memory limit for one read. Decoding takes twice its result; and while the rows of one read are
consumed, another is decoded and others are fetched."""


_WORTH_A_PAGES_FILE_BYTES = 1024 * 1024
"""A ``_pages`` has a few dozen kilobytes. Beside more data than this, its round trip hardly matters."""


class ParquetDraft(Struct, frozen=True, kw_only=True):
    """What the sidecar alone says about a question to one partition."""

    pruning: SidecarPruning
    """The pruning of the stack with this sidecar."""
    position: int
    """Position of this sidecar in the stack."""
    known: KnownPartition
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
    def partition(self) -> Partition:
        """The partition."""
        return self.known.partition

    @property
    def metadata(self) -> PartitionMetadata:
        """Its metadata."""
        if self.known.metadata is None:
            raise InternalError("a native partition is drafted as a Parquet one")
        return self.known.metadata

    @property
    def places(self) -> Mapping[int, int | None]:
        """By index in the table: the index of each needed column in the sidecar, None if absent."""
        return self.known.places

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


def draft_parquet(
    pruning: SidecarPruning, position: int, known: KnownPartition, *, index: int, rows_wanted: int | None
) -> ParquetDraft:
    """Say what the sidecar leaves of a partition, and decide which evidence is worth its requests. No request."""
    # Partitions were pruned by the times of their directories, so their rows must have these times.
    refuse_misplaced_times(known.partition, pruning.stated_times[position])
    left = pruning.left_of(position)
    draft = ParquetDraft(
        pruning=pruning,
        position=position,
        known=replace(known, places=pruning.places),
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
        extra_round_trip=draft.probes is None or draft.probes.are_at_hand,
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
    packed_bytes = page_files.packed_bytes(draft.partition.location)
    if packed_bytes == 0 and options.page_index == "auto":
        return Choice(pays=False, reason="the index says that its chunks have one page each, or no page index")
    if (
        (page_files.table_has_files or packed_bytes)
        and read_bytes >= _WORTH_A_PAGES_FILE_BYTES
        and options.goal != "few-requests"
    ):
        return Choice(
            pays=True, reason="what says where pages lie, in `_pages` or the index, is small against the data"
        )
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
