"""Planning a question about a table: which partitions, which row groups, which requests."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.concurrency import both, gather_or_cancel
from coldparquet.plan.instant import NANOSECONDS_PER_UNIT
from coldparquet.plan.projection import columns_left_out
from coldparquet.plan.prune import prune
from coldparquet.plan.read_plan import PrunedPartition, ReadPlan
from coldparquet.plan.statistics import IntervalStatistics
from coldparquet.plan.wording import few_names
from coldparquet.scanning.archived_partitions import with_storage_class
from coldparquet.scanning.bloom_copies import BloomCopies
from coldparquet.scanning.closer_look import CloserLook, look_closer
from coldparquet.scanning.first_look import Verdicts
from coldparquet.scanning.known_symbols import look_up_symbols
from coldparquet.scanning.late_reading import read_late
from coldparquet.scanning.metadata_reading import read_metadata
from coldparquet.scanning.native_planner import plan_native
from coldparquet.scanning.parquet_draft import ParquetDraft
from coldparquet.scanning.parquet_planner import plan_parquet
from coldparquet.scanning.partition_drafts import draft_partitions, rows_after
from coldparquet.scanning.question import NO_SYMBOLS
from coldparquet.scanning.replaced_files import beliefs
from coldparquet.scanning.request_planner import PlannedRequests, part_bytes_of, plan_requests_of
from coldparquet.storage.objects import is_lasting_etag
from coldparquet.storage.wrappers.checked import stale_pages
from coldparquet.telemetry import spanned

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Executor

    import numpy.typing as npt

    from coldparquet.catalog.partition import Partition
    from coldparquet.plan.bloom_probes import BloomAnswers
    from coldparquet.plan.read_plan import MetadataRequest
    from coldparquet.scanning.first_look import FirstLook
    from coldparquet.scanning.metadata_reading import FoundPartitions
    from coldparquet.scanning.partition_drafts import Draft, Drafts
    from coldparquet.scanning.partition_plan import PartitionPlan
    from coldparquet.scanning.planned_partition import PlannedPartition
    from coldparquet.scanning.question import Question


_LOGGER = logging.getLogger("coldparquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedScan:
    """A plan, and what turns its bytes into rows."""

    question: Question
    plan: ReadPlan
    partitions: tuple[PlannedPartition, ...]
    """In the order of :attr:`ReadPlan.partitions`."""
    warnings: tuple[str, ...]
    """Those of its notes that are worth telling to whoever does not ask for the plan."""

    @property
    def late_part_bytes(self) -> int:
        """About how long the requests of a second stage should be."""
        return part_bytes_of(self.question, self.plan.bytes_wanted)


class PlannedOnce:
    """The plan of one question, made when it is first asked for: the state of the table does not change, nor does the plan.

    Args:
        question: What is asked.
        executor: Where to plan.
    """

    def __init__(self, question: Question, executor: Executor) -> None:
        self._question = question
        self._executor = executor
        self._planning = asyncio.Lock()
        self._planned: PlannedScan | None = None

    async def get(self) -> PlannedScan:
        """Return the plan. Requests: those of :func:`plan_question`, the first time."""
        async with self._planning:
            if self._planned is None:
                self._planned = await plan_question(self._question, self._executor)
                for warning in self._planned.warnings:
                    _LOGGER.warning("%s: %s", self._question.url, warning)
            return self._planned


@spanned("coldparquet.plan")
async def plan_question(question: Question, executor: Executor) -> PlannedScan:
    """Plan a question.

    Requests: the metadata of the partitions that are left by their time ranges and, on stores with storage classes, 1 look at
    the data object of each, all at once; none for those known. Metadata-only questions do not look. Where
    that leaves row groups undecided and more is worth a look, bloom filters and pages of all partitions, all at once (see
    :func:`coldparquet.scanning.closer_look.look_closer`). Of native partitions: the search for the rows of the time range,
    and the offsets and symbols of the columns needed. With a limit and no predicate, those of the first partition, then of
    twice as many, until there are enough rows. For ``symbols="global"`` the symbols of the table, see
    :func:`coldparquet.scanning.known_symbols.look_up_symbols`.
    """
    kept, pruned = prune_partitions(question)
    found, symbols = await both(read_metadata(question, kept), look_up_symbols(question))
    if symbols is not NO_SYMBOLS:
        question = replace(question, symbols=symbols)
    loop = asyncio.get_running_loop()
    drafted = await loop.run_in_executor(executor, draft_partitions, question, found, kept)
    copies = BloomCopies(question, drafted.drafts, found.stripes)
    looks = await _look_closer(drafted.drafts, copies)
    pruned += [PrunedPartition(name=partition.name, reason="limit") for partition in drafted.beyond_limit]
    requests = _spent_on(question, found, looks)
    return await loop.run_in_executor(executor, _plan, question, drafted, looks, tuple(pruned), requests)


async def _look_closer(drafts: Sequence[Draft], copies: BloomCopies) -> list[CloserLook]:
    """Look closer at those partitions of which it is wanted: often at few or none of many."""
    wanted = [
        (position, draft)
        for position, draft in enumerate(drafts)
        if isinstance(draft, ParquetDraft) and draft.wants_closer_look
    ]
    looks = [CloserLook()] * len(drafts)
    found = await gather_or_cancel([_look_closer_at(draft, copies) for _, draft in wanted])
    for (position, _), look in zip(wanted, found, strict=True):
        looks[position] = look
    return looks


async def _look_closer_at(draft: ParquetDraft, copies: BloomCopies) -> CloserLook:
    look = await look_closer(draft, copies)
    info = draft.question.snapshot.data_objects.info(draft.partition.data_path)
    if info is None or not (is_lasting_etag(look.pages_etag) and is_lasting_etag(info.etag)):
        return look
    if look.pages_etag != info.etag:
        draft.question.snapshot.store.note_changed(draft.partition.data_path)
        raise stale_pages(draft.partition.data_path, described_etag=look.pages_etag, found_etag=info.etag)
    return replace(look, pages_etag=None)  # all later requests are pinned to the version that was seen


def prune_partitions(question: Question) -> tuple[list[Partition], list[PrunedPartition]]:
    """Drop the partitions whose time range already proves that no row matches."""
    snapshot, predicate = question.snapshot, question.predicate
    partitions, timestamp = snapshot.partitions, snapshot.designated_timestamp
    type_ = None if timestamp is None else snapshot.columns[timestamp].type
    # A damaged sidecar may name any column; directory names bound timestamps only.
    if predicate is None or timestamp is None or type_ is None or type_.arrow.name != "timestamp":
        return list(partitions), []
    unit_ns = NANOSECONDS_PER_UNIT[type_.arrow.unit or "ns"]
    ranges = [partition.time_range_ns for partition in partitions]
    stated = [time_range or (0, 0) for time_range in ranges]
    statistics = IntervalStatistics(
        column=timestamp,
        lower=_bounds([start // unit_ns for start, _ in stated]),
        upper=_bounds([(stop - 1) // unit_ns for _, stop in stated]),
        known=np.array([known is not None for known in ranges], dtype=bool),
    )
    verdict, _ = prune(predicate, statistics, len(partitions))
    kept = [partition for partition, may_match in zip(partitions, verdict.survives, strict=True) if may_match]
    reason = "time range"
    pruned = [
        PrunedPartition(name=partition.name, reason=reason)
        for partition, may_match in zip(partitions, verdict.survives, strict=True)
        if not may_match
    ]
    return kept, pruned


def _bounds(values: Sequence[int]) -> npt.NDArray[np.int64]:
    """Bound timestamps of 64 bits by numbers of any size: the first partition of a table has no begin."""
    limits = np.iinfo(np.int64)
    least, greatest = limits.min, limits.max
    return np.array([min(max(value, least), greatest) for value in values], dtype=np.int64)


def _plan(
    question: Question,
    drafted: Drafts,
    looks: Sequence[CloserLook],
    pruned: tuple[PrunedPartition, ...],
    requests: tuple[MetadataRequest, ...],
) -> PlannedScan:
    plans: list[PartitionPlan] = []
    rows_left = question.limit
    verdicts = _verdicts(drafted.drafts, looks)
    for draft, look in zip(drafted.drafts, looks, strict=True):
        if isinstance(draft, ParquetDraft):
            plan = plan_parquet(draft, look, verdicts[draft.look], rows_left=rows_left)
        else:
            plan = plan_native(question, draft, rows_left=rows_left)
        plans.append(plan)
        rows_left = rows_after(rows_left, plan.row_groups)
    plans = read_late(question, plans)
    row_groups = tuple(read for plan in plans for read in plan.row_groups)
    partitions = tuple(plan.planned for plan in plans)
    described = tuple(with_storage_class(question, plan.read) for plan in plans)
    if question.expects_data:
        found = plan_requests_of(question, partitions, described, row_groups)
    else:
        found = PlannedRequests(requests=(), coalescings=())  # those of what turns out to be read are planned then
    warnings = _columns_left_out(question, drafted.drafts)
    return PlannedScan(
        question=question,
        plan=ReadPlan(
            table=question.url,
            columns=tuple(column.name for column in question.output_columns),
            predicate=question.predicate_text,
            limit=question.limit,
            partitions_pruned=pruned,
            partitions=described,
            row_groups=row_groups,
            requests=found.requests,
            coalescings=found.coalescings,
            metadata_requests=requests,
            snapshot=question.snapshot.source,
            notes=(*question.snapshot.notes, *warnings, *beliefs(question, described)),
            partitions_skipped=drafted.skipped,
            options=question.options,
            speed=question.speed,
        ),
        partitions=partitions,
        warnings=warnings,
    )


def _columns_left_out(question: Question, drafts: Sequence[Draft]) -> tuple[str, ...]:
    """Say which columns are missing from all columns of a table that has those of its newest partition."""
    columns = question.snapshot.columns
    if question.snapshot.files is not None or question.names_columns or not question.output_columns:
        return ()
    in_parquet = [draft for draft in drafts if isinstance(draft, ParquetDraft)]
    left_out: dict[str, str] = {}
    for draft in {draft.metadata.sidecar.schema: draft for draft in in_parquet}.values():
        for name in columns_left_out(columns, draft.metadata.sidecar):
            left_out.setdefault(name, draft.partition.name)
    if not left_out:
        return ()
    shown = few_names([f"{name!r} (of {partition})" for name, partition in left_out.items()])
    note = (
        f"not read, because the newest partition does not have them: columns {shown}; open the table with"
        " ReadOptions(columns_from='all') to read them"
    )
    return (note,)


def _verdicts(drafts: Sequence[Draft], looks: Sequence[CloserLook]) -> dict[FirstLook, Verdicts]:
    """Put together what bloom filters have answered about sidecars that were looked at together."""
    blooms: dict[FirstLook, dict[int, BloomAnswers]] = {}
    for draft, look in zip(drafts, looks, strict=True):
        if isinstance(draft, ParquetDraft):
            of_stack = blooms.setdefault(draft.look, {})
            if look.blooms is not None:
                of_stack[draft.position] = look.blooms
    return {look: Verdicts(look, answers) for look, answers in blooms.items()}


def _spent_on(question: Question, found: FoundPartitions, looks: Sequence[CloserLook]) -> tuple[MetadataRequest, ...]:
    """Return what making the plan has cost: opening the table, metadata, looks at objects, and what a closer look fetched."""
    before = question.snapshot.requests
    of_partitions = [request for known in found.known for request in known.requests if request not in before]
    of_looks = [request for look in looks for request in look.requests]
    return (*before, *of_partitions, *found.looks, *question.symbols.requests, *of_looks)
