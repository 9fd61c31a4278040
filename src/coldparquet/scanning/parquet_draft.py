"""What the sidecar of a partition alone says about a question, and what else would be worth a look."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.errors import FormatError
from coldparquet.format.page_index import page_index_range
from coldparquet.format.sidecar_layout import PARQUET_TAIL_BYTES
from coldparquet.plan.bloom_probes import plan_bloom_probes
from coldparquet.plan.decoded_size import decoded_row_bytes
from coldparquet.plan.partition_plan import PartitionRowGroups, plan_row_groups
from coldparquet.plan.prune import prune
from coldparquet.plan.reading_choices import Choice, page_index_pays
from coldparquet.plan.selectivity import clustered_fields, count_values, estimate_selectivity
from coldparquet.plan.stated_times import misplaced_times
from coldparquet.plan.statistics import SidecarStatistics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from coldparquet.catalog.partition import Partition, PartitionMetadata
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.options import ReadOptions
    from coldparquet.plan.bloom_probes import BloomAnswers, BloomProbes
    from coldparquet.plan.projection import ColumnMatcher
    from coldparquet.plan.read_plan import RowGroupRead
    from coldparquet.scanning.question import Question

SHARE_OF_MEMORY = 16
"""One read takes at most this part of the memory limit: decoding takes twice what it yields, and while the rows of one
read are consumed, another is decoded and others are fetched."""

_WORTH_A_PAGES_FILE_BYTES = 1024 * 1024
"""A ``_pages`` has a few dozen kilobytes; against more data than this its round trip is hardly noticed."""


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

    @property
    def wants_pages(self) -> bool:
        """Whether the page index is to be fetched."""
        return self.page_index is not None and self.page_index.pays

    @property
    def wants_closer_look(self) -> bool:
        """Whether anything is worth a look that may have to be fetched."""
        return self.probes is not None or self.wants_pages


def draft_parquet(  # noqa: PLR0913 - what can be told is told by name
    question: Question,
    partition: Partition,
    metadata: PartitionMetadata,
    *,
    matcher: ColumnMatcher,
    index: int,
    rows_wanted: int | None,
) -> ParquetDraft:
    """Prune the row groups of a partition by its sidecar, and decide what else is worth a look. No request is sent.

    Args:
        question: What is asked.
        partition: The partition.
        metadata: What is known of it.
        matcher: Finds the columns that the question needs.
        index: Its position in the plan.
        rows_wanted: How many rows of it are wanted at most, where every row counts; None for all that match.

    Raises:
        FormatError: The sidecar is damaged, or the question is about times and the partition's rows are of other times
            than its directory stands for (kind ``TimeRangeMismatch``).
        UnsupportedError: It holds a column with a type that does not become the table's.
    """
    sidecar = metadata.sidecar
    places = matcher.places(sidecar)
    tested = predicate_places(question, places)
    _check_times(question, partition, sidecar, tested)
    row_groups = _pruned_row_groups(question, sidecar, places, tested, index=index)
    draft = ParquetDraft(
        question=question,
        partition=partition,
        metadata=metadata,
        index=index,
        places=places,
        row_groups=row_groups,
        probes=_bloom_probes(question, sidecar, tested, row_groups),
        page_index=None,
    )
    return replace(draft, page_index=_page_index_choice(draft, tested, rows_wanted))


def _pruned_row_groups(
    question: Question,
    sidecar: Sidecar,
    places: Mapping[int, int | None],
    tested: Mapping[int, int | None],
    *,
    index: int,
) -> PartitionRowGroups:
    """Prune the row groups of a partition, as the options say, by what is known of it."""
    output_places = [place for column in question.output_columns if (place := places[column.index]) is not None]
    return plan_row_groups(
        sidecar,
        partition_index=index,
        output_columns=output_places,
        predicate=question.predicate,
        predicate_columns=tested,
        use_statistics=question.options.statistics,
        make_constant_columns=question.options.make_constant_columns,
    )


def without_denied(draft: ParquetDraft, blooms: BloomAnswers) -> PartitionRowGroups:
    """Leave out the row groups of which bloom filters say that no row matches."""
    predicate = draft.question.predicate
    if predicate is None:
        return draft.row_groups
    statistics = SidecarStatistics(draft.sidecar, predicate_places(draft.question, draft.places), blooms=blooms)
    verdict, report = prune(predicate, statistics, draft.sidecar.row_group_count)
    reads = tuple(read for read in draft.row_groups.reads if verdict.survives[read.row_group])
    return PartitionRowGroups(reads=reads, report=report)


def predicate_places(question: Question, places: Mapping[int, int | None]) -> dict[int, int | None]:
    """Return the places of the predicate's columns alone."""
    return {column.index: places[column.index] for column in question.predicate_columns}


def _bloom_probes(
    question: Question, sidecar: Sidecar, places: Mapping[int, int | None], row_groups: PartitionRowGroups
) -> BloomProbes | None:
    """Say which bloom filters to ask; None where they are not to be asked, or the data itself is smaller than they are."""
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
    if probes.is_empty:
        return None
    wanted = probes.wanted()
    filter_bytes = 0 if wanted is None else int((wanted.stops - wanted.starts).sum())
    is_asked = probes.row_groups
    data_bytes = sum(read.bytes_wanted for read in reads if is_asked[read.row_group])
    return None if filter_bytes > data_bytes else probes


def _page_index_choice(draft: ParquetDraft, places: Mapping[int, int | None], rows_wanted: int | None) -> Choice | None:
    """Decide whether the pages are worth a look; None where every page would be read anyway."""
    question, sidecar, reads = draft.question, draft.sidecar, draft.row_groups.reads
    options = question.options
    if options.page_index == "never" or not any(read.columns for read in reads):
        return None
    if _largest_memory_bytes(sidecar, reads, options) > options.memory_limit_bytes // SHARE_OF_MEMORY:
        return Choice(pays=True, reason="row groups are too large for the memory limit, and are read in runs of pages")
    by_rows = rows_wanted is not None and all(read.all_rows_match for read in reads)
    looked_at = [read for read in reads if by_rows or not read.all_rows_match]
    if not any(read.columns for read in looked_at) or not (by_rows or options.statistics):
        return None
    read_bytes = np.array([read.bytes_wanted for read in looked_at], dtype=np.int64)
    known = _choice_by_table(draft, int(read_bytes.sum()))
    if known is not None:
        return known
    index_bytes = page_index_range(sidecar).length_bytes - sidecar.footer.parquet_footer_length
    return page_index_pays(
        index_bytes=max(0, index_bytes - PARQUET_TAIL_BYTES),
        chunk_count=sidecar.row_group_count * sidecar.column_count,
        row_group_bytes=read_bytes,
        surviving_fraction=_surviving_fractions(question, sidecar, places, looked_at, rows_wanted),
        extra_round_trip=draft.probes is None or draft.probes.wanted() is None,
        when=options.page_index,
        goal=options.goal,
        request_bytes=max(question.coalescing_of(draft.partition.data_path).gap_bytes, 1),
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


def _surviving_fractions(
    question: Question,
    sidecar: Sidecar,
    places: Mapping[int, int | None],
    reads: Sequence[RowGroupRead],
    rows_wanted: int | None,
) -> npt.NDArray[np.float64]:
    """Estimate which part of the rows of each read will be left by what pages can tell."""
    if question.predicate is None or (rows_wanted is not None and all(read.all_rows_match for read in reads)):
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


def _largest_memory_bytes(sidecar: Sidecar, reads: Sequence[RowGroupRead], options: ReadOptions) -> float:
    """Estimate what the largest of some reads takes while it is decoded."""
    largest = 0.0
    # Nearly always all of them are of the same columns.
    for columns in {read.columns for read in reads}:
        alike = [read for read in reads if read.columns == columns]
        row_bytes = decoded_row_bytes(sidecar, columns, [read.row_group for read in alike], options).sum(axis=1)
        fetched_bytes = np.array([read.bytes_wanted for read in alike])
        row_counts = np.array([read.row_count for read in alike])
        largest = max(largest, float((fetched_bytes + row_counts * row_bytes).max()))
    return largest


def _check_times(question: Question, partition: Partition, sidecar: Sidecar, tested: Mapping[int, int | None]) -> None:
    """Refuse a partition that is not where its rows belong, if partitions were left out by the times of directories."""
    timestamp = question.snapshot.designated_timestamp
    if timestamp is not None and timestamp in tested:
        refuse_misplaced_times(partition, sidecar, tested[timestamp])


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
