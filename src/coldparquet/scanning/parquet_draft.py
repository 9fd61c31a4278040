"""What the sidecar of a partition alone says about a question, and what else would be worth a look."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.errors import FormatError
from coldparquet.format.page_index import page_index_range
from coldparquet.format.sidecar_layout import PARQUET_TAIL_BYTES
from coldparquet.plan.reading_choices import Choice, page_index_pays
from coldparquet.plan.stated_times import misplaced_times
from coldparquet.plan.wording import human_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coldparquet.catalog.partition import Partition, PartitionMetadata
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.plan.bloom_probes import BloomProbes
    from coldparquet.plan.bounds import IntArray
    from coldparquet.plan.selectivity import FloatArray
    from coldparquet.plan.stated_times import StatedTimes
    from coldparquet.scanning.first_look import FirstLook
    from coldparquet.scanning.question import Question

SHARE_OF_MEMORY = 16
"""One read takes at most this part of the memory limit: decoding takes twice what it yields, and while the rows of one
read are consumed, another is decoded and others are fetched."""

_WORTH_A_PAGES_FILE_BYTES = 1024 * 1024
"""A ``_pages`` has a few dozen kilobytes; against more data than this its round trip is hardly noticed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetDraft:
    """What the sidecar alone says about a question to one partition."""

    look: FirstLook
    """What was found about this sidecar and those like it."""
    position: int
    """Position of this sidecar among them."""
    partition: Partition
    metadata: PartitionMetadata
    index: int
    """Position of the partition in the plan."""
    left: slice
    """Which of the row groups that statistics leave of all these sidecars are its own."""
    probes: BloomProbes | None
    """What bloom filters would have to be asked; None where there is nothing to ask."""
    page_index: Choice | None
    """Whether to fetch the page index; None where nothing could be left out by it."""

    @property
    def question(self) -> Question:
        """What is asked."""
        return self.look.question

    @property
    def places(self) -> Mapping[int, int | None]:
        """By index in the table: where each needed column is in the sidecar, None where it is not."""
        return self.look.places

    @property
    def sidecar(self) -> Sidecar:
        """The sidecar of the partition."""
        return self.metadata.sidecar

    @property
    def row_groups(self) -> slice:
        """Where its row groups are among those of the stack."""
        return self.look.row_groups_of(self.position)

    @property
    def row_groups_left(self) -> IntArray:
        """Its row groups that statistics leave, ascending, shape ``(left,)``."""
        row_groups: IntArray = self.look.pruned.row_groups[self.left] - self.row_groups.start
        return row_groups

    @property
    def is_read(self) -> bool:
        """Whether statistics leave any row group."""
        return bool(self.left.start < self.left.stop)

    @property
    def certain_rows(self) -> int:
        """Rows in those row groups of which every row matches."""
        pruned = self.look.pruned
        return int(pruned.row_counts[self.left][pruned.all_rows_match[self.left]].sum())

    @property
    def wants_pages(self) -> bool:
        """Whether the page index is to be fetched."""
        return self.page_index is not None and self.page_index.pays

    @property
    def wants_closer_look(self) -> bool:
        """Whether anything is worth a look that may have to be fetched."""
        return self.probes is not None or self.wants_pages


def draft_parquet(  # noqa: PLR0913 - what can be told is told by name
    look: FirstLook,
    position: int,
    partition: Partition,
    metadata: PartitionMetadata,
    *,
    index: int,
    rows_wanted: int | None,
) -> ParquetDraft:
    """Say what is read of a partition by its sidecar, and decide what else is worth a look. No request is sent.

    Args:
        look: What was found about its sidecar and those like it.
        position: Position of its sidecar among them.
        partition: The partition.
        metadata: What is known of it.
        index: Its position in the plan.
        rows_wanted: How many rows of it are wanted at most, where every row counts; None for all that match.

    Raises:
        FormatError: The sidecar is damaged, or the question is about times and the partition's rows are of other times
            than its directory stands for (kind ``TimeRangeMismatch``).
    """
    # Partitions were left out by the times of their directories, so their rows have to be where they belong.
    refuse_misplaced_times(partition, look.stated_times[position])
    left = look.left_of(position)
    draft = ParquetDraft(
        look=look,
        position=position,
        partition=partition,
        metadata=metadata,
        index=index,
        left=left,
        probes=look.bloom_probes(position),
        page_index=None,
    )
    choice = _page_index_choice(draft, rows_wanted)
    return draft if choice is None else replace(draft, page_index=choice)


def _page_index_choice(draft: ParquetDraft, rows_wanted: int | None) -> Choice | None:
    """Decide whether the pages are worth a look; None where every page would be read anyway."""
    question, sidecar, look, left = draft.question, draft.sidecar, draft.look, draft.left
    options, pruned, position = question.options, look.pruned, draft.position
    if options.page_index == "never" or look.fetched_bytes_of[position] == 0:
        return None
    if look.largest_memory_bytes[position] > options.memory_limit_bytes // SHARE_OF_MEMORY:
        return Choice(pays=True, reason="row groups are too large for the memory limit, and are read in runs of pages")
    by_rows = rows_wanted is not None and look.undecided_count_of[position] == 0
    all_bytes = (look.fetched_bytes_of if by_rows else look.undecided_bytes_of)[position]
    if all_bytes == 0 or not (by_rows or options.statistics):
        return None
    request_bytes = max(question.coalescing_of(draft.partition.data_path).gap_bytes, 1)
    known = _choice_by_table(draft, all_bytes)
    if known is not None:
        return known
    if options.page_index == "auto" and all_bytes <= request_bytes:
        # However small the index is, and whatever it tells: there is no need to find out where it lies.
        return Choice(
            pays=False, reason="it would save too little", details=f"{human_bytes(all_bytes)} are read in all"
        )
    row_groups = pruned.row_groups[left]
    if not by_rows:
        row_groups = row_groups[~pruned.all_rows_match[left]]
    index_range = page_index_range(sidecar, start=look.page_index_starts[position])
    index_bytes = index_range.length_bytes - sidecar.footer.parquet_footer_length
    return page_index_pays(
        index_bytes=max(0, index_bytes - PARQUET_TAIL_BYTES),
        chunk_count=sidecar.row_group_count * sidecar.column_count,
        row_group_bytes=look.fetched_bytes[row_groups],
        surviving_fraction=(
            _fractions_within(pruned.row_counts[left], rows_wanted or 0)
            if by_rows
            else look.clustered_fraction[row_groups]
        ),
        extra_round_trip=draft.probes is None or draft.probes.wanted() is None,
        when=options.page_index,
        goal=options.goal,
        request_bytes=request_bytes,
        speed=question.speed,
    )


def _choice_by_table(draft: ParquetDraft, read_bytes: int) -> Choice | None:
    """Decide by what is known of the table's pages; None where that does not decide."""
    options, page_files = draft.question.options, draft.question.snapshot.page_files
    if page_files.is_at_hand(draft.partition.location):
        return Choice(pays=True, reason="the pages came with the sidecar")
    if page_files.table_has_files and read_bytes >= _WORTH_A_PAGES_FILE_BYTES and options.goal != "few-requests":
        return Choice(pays=True, reason="the `_pages` beside a partition is small against the data")
    if options.page_index == "auto" and page_files.has_small_pages is False:
        return Choice(pays=False, reason="chunks of this table have one page each, as far as they were looked at")
    return None


def _fractions_within(row_counts: IntArray, rows_wanted: int) -> FloatArray:
    """Return which part of the rows of each row group is among the first rows of all of them."""
    before = np.cumsum(row_counts) - row_counts
    fractions: FloatArray = np.clip(rows_wanted - before, 0, row_counts) / np.maximum(row_counts, 1)
    return fractions


def refuse_misplaced_times(partition: Partition, stated: StatedTimes | None) -> None:
    """Refuse a partition whose rows are known to be of other times than its directory stands for.

    Args:
        partition: The partition.
        stated: What its statistics say; None where they say nothing.

    Raises:
        FormatError: They are (kind ``TimeRangeMismatch``).
    """
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
