"""Plans one Parquet partition after all evidence: which of its rows and pages are read."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.plan.model import PartitionRead, RowGroupsDropped, StoredData, Technique
from coldparquet.plan.pages import prune_pages
from coldparquet.plan.reads import first_rows, read_pages, split_into_runs, without_filter
from coldparquet.plan.selection import RowSelection
from coldparquet.plan.statistics import SidecarStatistics
from coldparquet.scan.draft import SHARE_OF_MEMORY
from coldparquet.scan.model import MatchEstimate, PartitionPlan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.format.sidecar import Sidecar
    from coldparquet.plan.blooms import BloomProbes
    from coldparquet.plan.choices import Choice
    from coldparquet.plan.model import Read
    from coldparquet.plan.pages import PagesSelected
    from coldparquet.plan.prune import PruneReport
    from coldparquet.scan.draft import ParquetDraft
    from coldparquet.scan.evidence import Evidence
    from coldparquet.scan.pruning import Verdicts


def within_window(
    reads: tuple[Read, ...],
    window: tuple[int, int],
    sidecar: Sidecar,
    *,
    least_saving_bytes: int,
) -> tuple[Read, ...]:
    """Cut the reads of a partition to some of its rows."""
    first_row, stop_row = window
    begins = np.cumsum(sidecar.row_counts) - sidecar.row_counts
    cut = []
    for read in reads:
        begin = int(begins[read.row_group])
        start, stop = max(first_row - begin, 0), min(stop_row - begin, read.row_group_rows)
        if start < stop:
            selection = RowSelection.of_range(start, stop)
            cut.append(read_pages(read, selection, least_saving_bytes=least_saving_bytes))
    return tuple(cut)


def plan_parquet(
    draft: ParquetDraft, evidence: Evidence, verdicts: Verdicts, *, rows_left: int | None
) -> PartitionPlan:
    """Decide what to read of a partition, given the fetched evidence. No request; no column is deferred yet."""
    question, sidecar = draft.question, draft.sidecar
    techniques: list[Technique] = []
    pruned, by_blooms = draft.pruning.pruned, draft.probes is not None and evidence.blooms is not None
    data = StoredData(
        decoder="parquet",
        path=draft.partition.data_path,
        columns=draft.pruning.stored_columns,
        places=draft.places,
        size_bytes=sidecar.parquet_size_bytes,
        etag=evidence.pages_etag,
        may_grow=draft.partition.may_grow,
        created_by=sidecar.created_by,
        is_writer_known=sidecar.is_writer_known,
        pages=evidence.pages,
    )
    left = pruned.reads_of(
        draft.row_groups, data, partition_index=draft.index, survives=verdicts.survives if by_blooms else None
    )
    if draft.probes is not None and evidence.blooms is not None and not draft.probes.is_empty:
        techniques.append(_bloom_technique(draft, draft.probes, left))
    reads, dropped = left, _dropped(pruned.report, verdicts.report if by_blooms else pruned.report, draft.row_groups)
    if question.row_windows is not None:
        window = question.row_windows[draft.partition.data_path]
        reads = within_window(reads, window, draft.sidecar, least_saving_bytes=_least_saving_bytes(draft))
        dropped["row window"] = len(left) - len(reads)
    selected: PagesSelected | None = None
    if draft.page_index is not None:
        selected = _select_pages(draft, evidence, left)
        if selected is not None:
            cut = _cut_to_pages(draft, evidence, reads, selected)
            dropped["page index"] = len(reads) - len(cut)
            reads = cut
    kept = _within_limit(draft, evidence, reads, rows_left)
    dropped["limit"] = len(reads) - len(kept)
    reads = _in_runs(draft, evidence, kept)
    if draft.page_index is not None and left:
        techniques.append(_page_technique(draft.page_index, evidence, selected, kept))
    made = set(reads[0].made_columns).intersection(*{read.made_columns for read in reads}) if reads else set[int]()
    return PartitionPlan(
        read=PartitionRead(
            name=draft.partition.name,
            data_path=draft.partition.data_path,
            parquet_size_bytes=sidecar.parquet_size_bytes,
            metadata_source=draft.metadata.source,
            row_groups_total=sidecar.row_group_count,
            row_groups_read=len(kept),
            rows_total=draft.pruning.stack.total_rows[draft.position],
            rows_read=sum(read.row_count for read in reads),
            dropped=_described(tuple(dropped.items())),
            made_columns=(*draft.pruning.absent_columns, *(sidecar.column(column).name for column in sorted(made))),
            techniques=tuple(techniques),
            notes=(*draft.metadata.notes, *evidence.notes),
        ),
        row_groups=reads,
        known=draft.known,
        estimate=_estimate(draft, evidence, verdicts, reads),
    )


def _dropped(by_statistics: PruneReport | None, with_blooms: PruneReport | None, row_groups: slice) -> Counter[str]:
    """Count dropped row groups by condition. Those that only a bloom filter drops get a name of their own."""
    dropped: Counter[str] = Counter()
    if by_statistics is None or with_blooms is None:
        return dropped
    counts = by_statistics.of(row_groups).dropped
    counts_with_blooms = counts if with_blooms is by_statistics else with_blooms.of(row_groups).dropped
    for before, after in zip(counts, counts_with_blooms, strict=True):
        dropped[before.condition] += before.row_groups
        if after.row_groups > before.row_groups:
            dropped[f"the bloom filter for {before.condition}"] += after.row_groups - before.row_groups
    return dropped


@lru_cache(maxsize=1024)
def _described(dropped: tuple[tuple[str, int], ...]) -> tuple[RowGroupsDropped, ...]:
    """Return which condition dropped how many row groups; many partitions share the result."""
    return tuple(RowGroupsDropped(reason=reason, row_groups=count) for reason, count in dropped)


def _select_pages(draft: ParquetDraft, evidence: Evidence, reads: tuple[Read, ...]) -> PagesSelected | None:
    question, pages = draft.question, evidence.pages
    undecided = [read.row_group for read in reads if not read.all_rows_match]
    if pages is None or question.predicate is None or not undecided:
        return None
    places = draft.pruning.tested
    return prune_pages(
        question.predicate,
        sidecar=draft.sidecar,
        places=places,
        pages=pages,
        row_groups=np.array(undecided, dtype=np.int64),
        by_row_group=SidecarStatistics(draft.sidecar, places, blooms=evidence.blooms),
    )


def _cut_to_pages(
    draft: ParquetDraft, evidence: Evidence, reads: tuple[Read, ...], selected: PagesSelected
) -> tuple[Read, ...]:
    """Drop the pages without a matching row from each read, and the filter if every remaining row matches."""
    places = [draft.places[column.index] for column in draft.question.output_columns]
    output_places = {place for place in places if place is not None}
    least_saving_bytes = _least_saving_bytes(draft)
    position = {row_group: index for index, row_group in enumerate(selected.row_groups.tolist())}
    cut = []
    for read in reads:
        index = position.get(read.row_group)
        if index is None or read.all_rows_match:
            cut.append(read)
            continue
        selection = selected.selections[index]
        if read.selection is not None:
            selection = selection.intersect(read.selection)
        if selection.row_count == 0:
            continue
        some = read
        if selected.all_rows_match[index]:
            some = without_filter(some, output_places)
        cut.append(read_pages(some, selection, least_saving_bytes=least_saving_bytes))
    if reads and not cut and evidence.pages_etag is not None:
        # Without a fetch nothing would detect a `_pages` that describes another version of the file. So one page is
        # fetched: its answer tells the version.
        cut.append(first_rows(reads[0], 1, least_saving_bytes=1))
    return tuple(cut)


def _within_limit(
    draft: ParquetDraft, evidence: Evidence, reads: tuple[Read, ...], rows_left: int | None
) -> tuple[Read, ...]:
    """Drop the rows behind those that certainly satisfy the remaining limit."""
    if rows_left is None:
        return reads
    kept = []
    for read in reads:
        if rows_left <= 0:
            break
        is_enough = read.all_rows_match and read.row_count > rows_left and evidence.pages is not None
        kept.append(first_rows(read, rows_left, least_saving_bytes=_least_saving_bytes(draft)) if is_enough else read)
        rows_left -= read.row_count if read.all_rows_match else 0
    return tuple(kept)


def _in_runs(draft: ParquetDraft, evidence: Evidence, reads: tuple[Read, ...]) -> tuple[Read, ...]:
    """Cut row groups that exceed the memory limit into runs of pages."""
    if evidence.pages is None:
        return reads
    max_bytes = draft.question.options.memory_limit_bytes // SHARE_OF_MEMORY
    return tuple(run for read in reads for run in split_into_runs(read, max_bytes=max_bytes))


def _estimate(
    draft: ParquetDraft, evidence: Evidence, verdicts: Verdicts, reads: tuple[Read, ...]
) -> MatchEstimate | None:
    """Estimate the fraction of the rows read that match."""
    sidecar = draft.sidecar
    if draft.question.predicate is None or all(read.all_rows_match for read in reads):
        return None
    numbers = np.array([read.row_group for read in reads], dtype=np.int64)
    group_rows = np.array([read.row_group_rows for read in reads], dtype=np.int64)
    page_counts = np.ones(len(reads), dtype=np.int64)
    if evidence.pages is not None:
        pages_of_chunk = np.diff(evidence.pages.first_page).reshape(sidecar.row_group_count, sidecar.column_count)
        page_counts = np.maximum(pages_of_chunk.max(axis=1, initial=1)[numbers], 1)
    matching_rows = verdicts.matching_fraction[draft.row_groups.start + numbers] * group_rows
    return MatchEstimate(matching_rows=matching_rows, page_rows=-(-group_rows // page_counts))


def _least_saving_bytes(draft: ParquetDraft) -> int:
    """Return how many bytes skipping pages must save: reading over less than a gap costs nothing."""
    if draft.question.options.page_index == "always":
        return 1
    return max(draft.question.coalescing_of(draft.partition.data_path).gap_bytes, 1)


def _bloom_technique(draft: ParquetDraft, probes: BloomProbes, left: Sequence[Read]) -> Technique:
    """Count the row groups that were probed, and those that the answers excluded."""
    before = draft.row_groups_left
    asked = int(np.count_nonzero(probes.row_groups[before]))
    ruled_out = len(before) - len(left)
    return Technique(name="bloom filter", is_used=True, unit="row groups", affected=ruled_out, considered=asked)


def _page_technique(
    choice: Choice, evidence: Evidence, selected: PagesSelected | None, kept: tuple[Read, ...]
) -> Technique:
    """Count the rows that pages exclude: by the predicate, or because they are behind the limit."""
    if not choice.pays:
        return Technique(name="page index", is_used=False, unit="rows", reason=choice.reason, details=choice.details)
    if evidence.pages is None:
        return Technique(name="page index", is_used=False, unit="rows", reason="none was found")
    if selected is None:
        rows, rows_left = sum(read.row_group_rows for read in kept), sum(read.row_count for read in kept)
    else:
        rows, rows_left = selected.report.rows, selected.report.rows_left
    return Technique(
        name="page index",
        is_used=True,
        unit="rows",
        affected=rows - rows_left,
        considered=rows,
        reason=choice.reason,
        details=choice.details,
    )
