"""The second step of planning: say what is read of partitions by their sidecars alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from coldparquet.plan.projection import ColumnMatcher
from coldparquet.plan.reading_choices import Choice
from coldparquet.scanning.archived_partitions import archived_object, skipped
from coldparquet.scanning.first_look import FirstLooks
from coldparquet.scanning.native_partition import NativePlan
from coldparquet.scanning.parquet_draft import ParquetDraft, draft_parquet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.catalog.partition import Partition
    from coldparquet.plan.read_plan import PlannedRead, SkippedPartition
    from coldparquet.scanning.known_partition import KnownPartition
    from coldparquet.scanning.metadata_reading import FoundPartitions
    from coldparquet.scanning.question import Question

Draft: TypeAlias = "ParquetDraft | KnownPartition"
"""A native partition has been looked into already, and needs no draft."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafts:
    """What is left of partitions after their metadata."""

    drafts: tuple[Draft, ...]
    skipped: tuple[SkippedPartition, ...]
    """Partitions that are left out because they are archived."""
    beyond_limit: tuple[Partition, ...]
    """Partitions that nobody has to look at, because those before them certainly have enough rows."""


def draft_partitions(question: Question, found: FoundPartitions, kept: Sequence[Partition]) -> Drafts:
    """Prune the row groups of every partition by its metadata; native ones have been looked into already.

    Archived partitions that have row groups left are left out here, if the options say so; for others only what lies
    outside of the archived object is worth a closer look.

    Args:
        question: What is asked.
        found: What their metadata has brought.
        kept: The partitions, in table order.

    Raises:
        FormatError: See :func:`coldparquet.scanning.parquet_draft.draft_parquet`.
    """
    drafts: list[Draft] = []
    left_out = list(found.skipped)
    rows_left = question.limit
    in_parquet = [known.known.sidecar for known in found.known if not isinstance(known.known, NativePlan)]
    looks, sidecar_count = found.first_looks, 0
    if looks is None or not looks.are_about(question, in_parquet):
        looks = FirstLooks(question, ColumnMatcher(question.needed_columns), in_parquet)
    considered = {partition.name for partition in found.skipped}
    for known in found.known:
        if rows_left is not None and rows_left <= 0:
            break
        considered.add(known.partition.name)
        if isinstance(known.known, NativePlan):
            drafts.append(_renumbered(known, len(drafts)))
            rows_left = rows_after(rows_left, known.known.reads)
            continue
        look, position = looks.at(sidecar_count)
        sidecar_count += 1
        draft = draft_parquet(
            look,
            position,
            known.partition,
            known.known,
            index=len(drafts),
            rows_wanted=question.last_rows if rows_left is None else rows_left,
        )
        archived = archived_object(question, known.partition.name, known.partition.data_path)
        if archived is not None and draft.is_read and question.options.archived == "skip":
            left_out.append(skipped(archived))
            continue
        drafts.append(draft if archived is None else _without_the_object(draft))
        rows_left = None if rows_left is None else rows_left - draft.certain_rows
    beyond_limit = tuple(partition for partition in kept if partition.name not in considered)
    return Drafts(drafts=tuple(drafts), skipped=tuple(left_out), beyond_limit=beyond_limit)


def rows_after(rows_left: int | None, reads: Sequence[PlannedRead]) -> int | None:
    """Return how many rows are still wanted behind some reads; None for all."""
    return None if rows_left is None else rows_left - sum(read.row_count for read in reads if read.all_rows_match)


def _without_the_object(draft: ParquetDraft) -> ParquetDraft:
    """Keep of what is worth a closer look only what does not lie in the archived object itself."""
    probes, page_index = draft.probes, draft.page_index
    if probes is not None and probes.wanted() is not None:
        probes = None
    if page_index is not None and not draft.question.snapshot.page_files.is_at_hand(draft.partition.location):
        page_index = Choice(pays=False, reason="it lies in an archived object")
    return replace(draft, probes=probes, page_index=page_index)


def _renumbered(known: KnownPartition, index: int) -> KnownPartition:
    """Move the reads of a native partition to the place that it has behind those left out."""
    native = known.known
    if not isinstance(native, NativePlan) or all(read.partition_index == index for read in native.reads):
        return known
    reads = tuple(replace(read, partition_index=index) for read in native.reads)
    return replace(known, known=replace(native, reads=reads))
