"""Planning one partition in Parquet: what statistics leave, what a closer look would add, and the reads that remain."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.errors import FormatError
from coldparquet.format.page_index import page_index_range
from coldparquet.format.sidecar_layout import PARQUET_TAIL_BYTES
from coldparquet.plan.bloom_probes import plan_bloom_probes
from coldparquet.plan.decoded_size import decoded_row_bytes
from coldparquet.plan.page_pruning import prune_pages
from coldparquet.plan.page_reads import first_rows, read_pages, without_filter
from coldparquet.plan.page_runs import split_into_runs
from coldparquet.plan.partition_plan import plan_row_groups
from coldparquet.plan.projection import match_columns
from coldparquet.plan.read_plan import PartitionRead, RowGroupsDropped, Technique
from coldparquet.plan.reading_choices import Choice, page_index_pays
from coldparquet.plan.selectivity import clustered_fields, count_values, estimate_selectivity
from coldparquet.plan.stated_times import misplaced_times
from coldparquet.plan.statistics import SidecarStatistics
from coldparquet.scanning.partition_plan import MatchEstimate, PartitionPlan
from coldparquet.scanning.planned_partition import PlannedParquet

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from coldparquet.catalog.partition import Partition, PartitionMetadata
    from coldparquet.format.partition_pages import PartitionPages
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.options import ReadOptions
    from coldparquet.plan.bloom_probes import BloomAnswers, BloomProbes
    from coldparquet.plan.page_pruning import PagesSelected
    from coldparquet.plan.partition_plan import PartitionRowGroups
    from coldparquet.plan.read_plan import MetadataRequest, RowGroupRead
    from coldparquet.scanning.question import Question

_SHARE_OF_MEMORY = 8
"""One read takes at most this part of the memory limit: decoding takes twice what it yields, and while the rows of one
read are consumed, a second is decoded and a third fetched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetDraft:
    """What the sidecar alone says about a question to one partition."""

    question: Question
    partition: Partition
    metadata: PartitionMetadata
    index: int
    """Position of the partition in the plan."""
    places: Mapping[int, int | None]
    """By index in the table: where each needed column is in the sidecar, None where it is not."""
    row_groups: PartitionRowGroups
    probes: BloomProbes | None
    """What bloom filters would have to be asked; None where there is nothing to ask."""
    page_index: Choice | None
    """Whether to fetch the page index; None where nothing could be left out by it."""

    @property
    def sidecar(self) -> Sidecar:
        """The sidecar of the partition."""
        return self.metadata.sidecar


@dataclass(frozen=True, slots=True, kw_only=True)
class CloserLook:
    """What was fetched beyond the sidecar, to read less of the data."""

    blooms: BloomAnswers | None = None
    pages: PartitionPages | None = None
    notes: tuple[str, ...] = ()
    requests: tuple[MetadataRequest, ...] = ()


def draft_parquet(
    question: Question, partition: Partition, metadata: PartitionMetadata, *, index: int, rows_wanted: int | None
) -> ParquetDraft:
    """Prune the row groups of a partition by its sidecar, and decide what else is worth a look. No request is sent.

    Args:
        question: What is asked.
        partition: The partition.
        metadata: What is known of it.
        index: Its position in the plan.
        rows_wanted: How many rows of it are wanted at most, where every row counts; None for all that match.

    Raises:
        FormatError: The sidecar is damaged, or the question is about times and the partition's rows are of other times
            than its directory stands for (kind ``TimeRangeMismatch``).
        UnsupportedError: It holds a column with a type that does not become the table's.
    """
    sidecar = metadata.sidecar
    places = match_columns(question.needed_columns, sidecar)
    _check_times(question, partition, sidecar, places)
    row_groups = _row_groups(question, sidecar, places, index=index, blooms=None)
    predicate_places = _predicate_places(question, places)
    draft = ParquetDraft(
        question=question,
        partition=partition,
        metadata=metadata,
        index=index,
        places=places,
        row_groups=row_groups,
        probes=_bloom_probes(question, sidecar, predicate_places, row_groups),
        page_index=None,
    )
    return replace(draft, page_index=_page_index_choice(draft, predicate_places, rows_wanted))


def plan_parquet(draft: ParquetDraft, look: CloserLook, *, rows_left: int | None) -> PartitionPlan:
    """Decide what to read of a partition, with what a closer look has brought. No request is sent; nothing is deferred yet.

    Args:
        draft: What its sidecar left.
        look: What was fetched to read less.
        rows_left: How many rows are still wanted of this and later partitions; None for all.

    Raises:
        FormatError: See :func:`draft_parquet`.
    """
    question, sidecar = draft.question, draft.sidecar
    row_groups = draft.row_groups
    techniques: list[Technique] = []
    if draft.probes is not None and look.blooms is not None:
        row_groups = _row_groups(question, sidecar, draft.places, index=draft.index, blooms=look.blooms)
        techniques.append(_bloom_technique(draft, row_groups))
    reads = row_groups.reads
    dropped = _dropped(draft.row_groups, row_groups)
    if draft.page_index is not None:
        selected = _select_pages(draft, look, row_groups)
        if selected is not None:
            reads = _cut_to_pages(draft, look, reads, selected)
            dropped["page index"] = len(selected.emptied)
        techniques.append(_page_technique(draft.page_index, look, selected))
    kept = _within_limit(draft, look, reads, rows_left)
    dropped["limit"] = len(reads) - len(kept)
    reads = _in_runs(draft, look, kept)
    absent = tuple(column.name for column in question.output_columns if draft.places[column.index] is None)
    made = set.intersection(*(set(read.made_columns) for read in reads)) if reads else set()
    return PartitionPlan(
        read=PartitionRead(
            name=draft.partition.name,
            data_path=draft.partition.data_path,
            parquet_size_bytes=sidecar.parquet_size_bytes,
            metadata_source=draft.metadata.source,
            row_groups_total=sidecar.row_group_count,
            row_groups_read=len(kept),
            rows_total=sidecar.total_rows,
            rows_read=sum(read.row_count for read in reads),
            dropped=tuple(RowGroupsDropped(reason=reason, row_groups=count) for reason, count in dropped.items()),
            made_columns=(*absent, *(sidecar.column(column).name for column in sorted(made))),
            techniques=tuple(techniques),
            notes=(*draft.metadata.notes, *look.notes),
        ),
        row_groups=reads,
        planned=PlannedParquet(
            sidecar=sidecar,
            data_path=draft.partition.data_path,
            may_grow=draft.partition.may_grow,
            places=draft.places,
            pages=look.pages,
            known_symbols=question.symbols.strings,
        ),
        estimate=_estimate(draft, look, reads),
    )


def _row_groups(
    question: Question,
    sidecar: Sidecar,
    places: Mapping[int, int | None],
    *,
    index: int,
    blooms: BloomAnswers | None,
) -> PartitionRowGroups:
    output_places = [place for column in question.output_columns if (place := places[column.index]) is not None]
    return plan_row_groups(
        sidecar,
        partition_index=index,
        output_columns=output_places,
        predicate=question.predicate,
        predicate_columns=_predicate_places(question, places),
        blooms=blooms,
        use_statistics=question.options.statistics,
        make_constant_columns=question.options.make_constant_columns,
    )


def _predicate_places(question: Question, places: Mapping[int, int | None]) -> dict[int, int | None]:
    return {column.index: places[column.index] for column in question.predicate_columns}


def _bloom_probes(
    question: Question, sidecar: Sidecar, places: Mapping[int, int | None], row_groups: PartitionRowGroups
) -> BloomProbes | None:
    """Say which bloom filters to ask; None where none is there, or where the data itself is smaller than the filters."""
    options, reads = question.options, row_groups.reads
    if question.predicate is None or not options.bloom_filters or not options.statistics:
        return None
    undecided = np.zeros(sidecar.row_group_count, dtype=bool)
    undecided[[read.row_group for read in reads if not read.all_rows_match]] = True
    probes = plan_bloom_probes(
        question.predicate,
        SidecarStatistics(sidecar, places),
        sidecar=sidecar,
        columns=places,
        row_groups=undecided,
    )
    wanted = probes.wanted()
    filter_bytes = 0 if wanted is None else int((wanted.stops - wanted.starts).sum())
    data_bytes = sum(read.bytes_wanted for read in reads if probes.row_groups[read.row_group])
    return None if probes.is_empty or filter_bytes > data_bytes else probes


def _page_index_choice(
    draft: ParquetDraft, predicate_places: Mapping[int, int | None], rows_wanted: int | None
) -> Choice | None:
    """Decide whether the pages are worth a look; None where every page would be read anyway."""
    question, sidecar, reads = draft.question, draft.sidecar, draft.row_groups.reads
    options, page_files = question.options, question.snapshot.page_files
    if options.page_index == "never" or not any(read.columns for read in reads):
        return None
    if max(_memory_bytes(sidecar, read, options) for read in reads) > options.memory_limit_bytes // _SHARE_OF_MEMORY:
        return Choice(pays=True, reason="row groups are too large for the memory limit, and are read in runs of pages")
    by_rows = question.predicate is None and rows_wanted is not None
    looked_at = [read for read in reads if by_rows or not read.all_rows_match]
    if not any(read.columns for read in looked_at) or not (by_rows or options.statistics):
        return None
    if page_files.is_at_hand(draft.partition.location):
        return Choice(pays=True, reason="the pages came with the sidecar")
    if options.page_index == "auto" and page_files.has_small_pages is False:
        return Choice(pays=False, reason="chunks of this table have one page each, as far as they were looked at")
    index_bytes = page_index_range(sidecar).length_bytes - sidecar.footer.parquet_footer_length
    return page_index_pays(
        index_bytes=max(0, index_bytes - PARQUET_TAIL_BYTES),
        chunk_count=sidecar.row_group_count * sidecar.column_count,
        row_group_bytes=np.array([read.bytes_wanted for read in looked_at], dtype=np.int64),
        surviving_fraction=_surviving_fractions(question, sidecar, predicate_places, looked_at, rows_wanted),
        extra_round_trip=draft.probes is None,
        when=options.page_index,
        goal=options.goal,
        speed=question.speed,
    )


def _surviving_fractions(
    question: Question,
    sidecar: Sidecar,
    places: Mapping[int, int | None],
    reads: Sequence[RowGroupRead],
    rows_wanted: int | None,
) -> npt.NDArray[np.float64]:
    """Estimate which part of the rows of each read will be left by what pages can tell."""
    if question.predicate is None:
        row_counts = np.array([read.row_count for read in reads], dtype=np.int64)
        before = np.cumsum(row_counts) - row_counts
        left: npt.NDArray[np.float64] = np.clip((rows_wanted or 0) - before, 0, row_counts) / np.maximum(row_counts, 1)
        return left
    statistics = SidecarStatistics(sidecar, places)
    estimated = estimate_selectivity(
        question.predicate,
        statistics,
        count_values(sidecar, places),
        sidecar.row_counts,
        fields=clustered_fields(question.predicate, statistics, sidecar, places),
    )
    return estimated[[read.row_group for read in reads]]


def _memory_bytes(sidecar: Sidecar, read: RowGroupRead, options: ReadOptions) -> float:
    """Estimate what a read takes while it is decoded."""
    row_bytes = decoded_row_bytes(sidecar, read.columns, read.row_group, options).sum()
    return read.bytes_wanted + read.row_count * float(row_bytes)


def _dropped(by_statistics: PartitionRowGroups, with_blooms: PartitionRowGroups) -> Counter[str]:
    """Count row groups by the condition that drops them, those that only a bloom filter drops under a name of their own."""
    if by_statistics.report is None or with_blooms.report is None:
        return Counter()
    dropped: Counter[str] = Counter()
    for before, after in zip(by_statistics.report.dropped, with_blooms.report.dropped, strict=True):
        dropped[before.condition] += before.row_groups
        dropped[f"the bloom filter for {before.condition}"] += after.row_groups - before.row_groups
    return dropped


def _select_pages(draft: ParquetDraft, look: CloserLook, row_groups: PartitionRowGroups) -> PagesSelected | None:
    question, pages = draft.question, look.pages
    undecided = [read.row_group for read in row_groups.reads if not read.all_rows_match]
    if pages is None or question.predicate is None or not undecided:
        return None
    places = _predicate_places(question, draft.places)
    return prune_pages(
        question.predicate,
        sidecar=draft.sidecar,
        places=places,
        pages=pages,
        row_groups=np.array(undecided, dtype=np.int64),
        by_row_group=SidecarStatistics(draft.sidecar, places, blooms=look.blooms),
    )


def _cut_to_pages(
    draft: ParquetDraft, look: CloserLook, reads: tuple[RowGroupRead, ...], selected: PagesSelected
) -> tuple[RowGroupRead, ...]:
    """Leave out of each read the pages without a matching row, and the filter where every row that is left matches."""
    places = [draft.places[column.index] for column in draft.question.output_columns]
    output_places = {place for place in places if place is not None}
    least_saving_bytes = _least_saving_bytes(draft.question)
    position = {row_group: index for index, row_group in enumerate(selected.row_groups.tolist())}
    cut = []
    for read in reads:
        index = position.get(read.row_group)
        if index is None or read.all_rows_match:
            cut.append(read)
            continue
        selection = selected.selections[index]
        if selection.row_count == 0:
            continue
        some = read
        if selected.all_rows_match[index]:
            some = without_filter(some, output_places)
        cut.append(read_pages(some, selection, pages=look.pages, least_saving_bytes=least_saving_bytes))
    return tuple(cut)


def _within_limit(
    draft: ParquetDraft, look: CloserLook, reads: tuple[RowGroupRead, ...], rows_left: int | None
) -> tuple[RowGroupRead, ...]:
    """Leave out the rows behind those that certainly are as many as are still wanted."""
    if rows_left is None:
        return reads
    kept = []
    for read in reads:
        if rows_left <= 0:
            break
        is_enough = read.all_rows_match and read.row_count > rows_left and look.pages is not None
        kept.append(
            first_rows(read, rows_left, pages=look.pages, least_saving_bytes=_least_saving_bytes(draft.question))
            if is_enough
            else read
        )
        rows_left -= read.row_count if read.all_rows_match else 0
    return tuple(kept)


def _in_runs(draft: ParquetDraft, look: CloserLook, reads: tuple[RowGroupRead, ...]) -> tuple[RowGroupRead, ...]:
    """Cut row groups that are too large for the memory limit into runs of pages."""
    if look.pages is None:
        return reads
    max_bytes = draft.question.options.memory_limit_bytes // _SHARE_OF_MEMORY
    return tuple(
        run
        for read in reads
        for run in split_into_runs(
            read,
            pages=look.pages,
            row_bytes=decoded_row_bytes(draft.sidecar, read.columns, read.row_group, draft.question.options),
            max_bytes=max_bytes,
        )
    )


def _estimate(draft: ParquetDraft, look: CloserLook, reads: tuple[RowGroupRead, ...]) -> MatchEstimate | None:
    """Estimate which part of the rows that are read will match."""
    question, sidecar = draft.question, draft.sidecar
    if question.predicate is None or all(read.all_rows_match for read in reads):
        return None
    places = _predicate_places(question, draft.places)
    statistics = SidecarStatistics(sidecar, places, blooms=look.blooms)
    numbers = np.array([read.row_group for read in reads], dtype=np.int64)
    group_rows = sidecar.row_counts[numbers]
    selectivity = estimate_selectivity(
        question.predicate, statistics, count_values(sidecar, places), sidecar.row_counts
    )
    page_counts = np.ones(len(reads), dtype=np.int64)
    if look.pages is not None:
        pages_of_chunk = np.diff(look.pages.first_page).reshape(sidecar.row_group_count, sidecar.column_count)
        page_counts = np.maximum(pages_of_chunk.max(axis=1, initial=1)[numbers], 1)
    return MatchEstimate(matching_rows=selectivity[numbers] * group_rows, page_rows=-(-group_rows // page_counts))


def _least_saving_bytes(question: Question) -> int:
    """Return how many bytes leaving out pages must save: reading over less than a gap costs nothing."""
    return 1 if question.options.page_index == "always" else max(question.options.coalescing.gap_bytes, 1)


def _bloom_technique(draft: ParquetDraft, left: PartitionRowGroups) -> Technique:
    asked = len(draft.row_groups.reads)
    ruled_out = asked - len(left.reads)
    return Technique(
        name="bloom filters",
        is_used=True,
        text=f"ruled out {ruled_out:,} of {asked:,} row groups that minima and maxima left",
    )


def _page_technique(choice: Choice, look: CloserLook, selected: PagesSelected | None) -> Technique:
    if not choice.pays:
        return Technique(name="page index", is_used=False, text=choice.reason)
    if look.pages is None:
        return Technique(name="page index", is_used=False, text="none was found")
    if selected is None:
        return Technique(name="page index", is_used=True, text="only the pages of the rows wanted")
    report = selected.report
    text = f"{report.rows_left:,} of {report.rows:,} rows left, {report.pages_left:,} of {report.pages:,} pages"
    return Technique(name="page index", is_used=True, text=text)


def _check_times(question: Question, partition: Partition, sidecar: Sidecar, places: Mapping[int, int | None]) -> None:
    """Refuse a partition that is not where its rows belong, if partitions were left out by the times of directories."""
    timestamp = question.snapshot.designated_timestamp
    if all(column.index != timestamp for column in question.predicate_columns):
        return
    refuse_misplaced_times(partition, sidecar, None if timestamp is None else places[timestamp])


def refuse_misplaced_times(partition: Partition, sidecar: Sidecar, timestamp: int | None) -> None:
    """Refuse a partition whose rows are known to be of other times than its directory stands for.

    Args:
        partition: The partition.
        sidecar: What is known of it.
        timestamp: Index of the designated timestamp in the sidecar; None where it has none.

    Raises:
        FormatError: They are (kind ``TimeRangeMismatch``).
    """
    promised = partition.time_range_ns
    found = None if timestamp is None or promised is None else misplaced_times(sidecar, timestamp, promised)
    if found is not None:
        raise FormatError(
            f"its rows are of {found}, outside of the times that the directory's name and the table's _txn give it, so that"
            " questions about times would miss rows; 'coldparquet verify' lists all such partitions: give them the names"
            " of their times, or copy the table again",
            kind="TimeRangeMismatch",
            path=partition.directory_path,
            field="timestamp",
        )
