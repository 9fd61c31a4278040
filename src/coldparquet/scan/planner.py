"""Plans one question, from pruning to requests."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from coldparquet.concurrency import both
from coldparquet.plan.choices import Choice
from coldparquet.plan.columns import columns_left_out
from coldparquet.plan.model import PrunedPartition, ReadPlan
from coldparquet.records import replace
from coldparquet.scan.admission import archived_object, skipped, with_storage_class
from coldparquet.scan.ahead import MadePlan, PlanAhead
from coldparquet.scan.draft import ParquetDraft, draft_parquet
from coldparquet.scan.evidence import gather_evidence
from coldparquet.scan.known_symbols import look_up_symbols
from coldparquet.scan.late import read_late
from coldparquet.scan.metadata import beliefs, read_metadata
from coldparquet.scan.model import PlannedScan
from coldparquet.scan.native import plan_native
from coldparquet.scan.parquet import plan_parquet
from coldparquet.scan.partition_pruning import prune_partitions
from coldparquet.scan.pruning import SidecarPruning, SidecarPrunings, Verdicts
from coldparquet.scan.requests import with_requests
from coldparquet.telemetry import spanned
from coldparquet.text import few_names

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Executor

    from coldparquet.plan.model import MetadataRequest, Read, SkippedPartition
    from coldparquet.plan.statistics import BloomAnswers
    from coldparquet.scan.ahead import ReadsAhead
    from coldparquet.scan.draft import Draft
    from coldparquet.scan.evidence import Evidence
    from coldparquet.scan.model import KnownPartition, PartitionPlan, Question


_LOGGER = logging.getLogger("coldparquet")


class PlannedOnce:
    """The plan of one question, made on the first call. The table's state is fixed, and so is the plan.

    Args:
        question: The question.
        executor: Threads for planning.
    """

    def __init__(self, question: Question, executor: Executor) -> None:
        self._question = question
        self._executor = executor
        self._planning = asyncio.Lock()
        self._planned: PlannedScan | None = None

    @property
    def made(self) -> ReadPlan | None:
        """The plan, if it has been made."""
        return None if self._planned is None else self._planned.plan

    async def get(self, *, is_read_here: bool = True, ahead: ReadsAhead | None = None) -> PlannedScan:
        """Return the plan. Requests: those of :func:`plan_question`, on the first call.

        Args:
            is_read_here: Whether this process goes on to read the rows.
            ahead: Takes requests for data, all of which will be read; None if some may not be. The caller cancels what it does
                not take.
        """
        async with self._planning:
            if self._planned is None:
                question = replace(self._question, is_read_here=is_read_here)
                self._planned = await plan_question(question, self._executor, reads=ahead)
                for warning in self._planned.warnings:
                    _LOGGER.warning("%s: %s", self._question.url, warning)
            return self._planned


@spanned("coldparquet.plan")
async def plan_question(question: Question, executor: Executor, *, reads: ReadsAhead | None = None) -> PlannedScan:
    """Plan a question.

    Requests: the metadata of the partitions that their time ranges leave. On stores with storage classes, also 1 HEAD
    of the data object of each. All in parallel; none for known metadata and objects. Metadata-only questions send no
    HEAD. If row groups stay undecided and more evidence is worth it, bloom filters and pages of all partitions in
    parallel, see :func:`coldparquet.scan.evidence.gather_evidence`. For native partitions: the search for the rows of
    the time range, and the offsets and symbols of the needed columns. With a limit and no predicate, those of the first
    partition, then of twice as many, until there are enough rows. For ``symbols="global"`` the symbols of the table,
    see :func:`coldparquet.scan.known_symbols.look_up_symbols`. With ``reads``, the requests for data of a short read are sent
    while HEADs or a listing are awaited, see :class:`coldparquet.scan.ahead.PlanAhead`; they are those of the plan.
    """
    kept, pruned = prune_partitions(question)
    of_all: list[MetadataRequest] = []
    ahead = PlanAhead(question, kept, partial(_plan_with, question, executor), reads, of_all)
    ahead.start()
    try:
        found, (symbols, symbol_requests) = await both(read_metadata(question, kept), look_up_symbols(question))
        question = replace(question, symbols=symbols)
        made = await ahead.made_for(found)
        if made is None:
            made = await _plan_with(question, executor, found.known, _set_event(), of_all)
    except BaseException:
        await ahead.drop()
        raise
    planned, left_out = made.planned, (*found.skipped, *made.left_out)
    considered = {known.partition.name for known in planned.known} | {partition.name for partition in left_out}
    pruned += [PrunedPartition(name=one.name, reason="limit") for one in kept if one.name not in considered]
    before = question.snapshot.requests
    of_partitions = [request for known in found.known for request in known.requests if request not in before]
    of_evidence = [request for evidence in made.gathered for request in evidence.requests]
    partitions = tuple(with_storage_class(question, read) for read in planned.plan.partitions)
    requests = (*of_all, *found.heads, *symbol_requests, *of_evidence)
    plan = replace(
        planned.plan,
        partitions=partitions,
        partitions_pruned=tuple(pruned),
        partitions_skipped=left_out,
        notes=(*planned.plan.notes, *beliefs(question, partitions)),
        metadata_requests=(*before, *of_partitions, *requests),
    )
    return replace(planned, plan=plan)


def _set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


async def _plan_with(
    question: Question,
    executor: Executor,
    known: Sequence[KnownPartition],
    confirmed: asyncio.Event,
    of_all: list[MetadataRequest],
) -> MadePlan:
    """Plan with the metadata of partitions; see :func:`coldparquet.scan.evidence.gather_evidence`."""
    loop = asyncio.get_running_loop()
    drafts, left_out = await loop.run_in_executor(executor, draft_partitions, question, known)
    gathered = await gather_evidence(question, drafts, confirmed, of_all)
    planned = await loop.run_in_executor(executor, plan_reads, question, drafts, gathered)
    return MadePlan(planned=planned, left_out=left_out, gathered=tuple(gathered))


def plan_reads(question: Question, drafts: Sequence[Draft], gathered: Sequence[Evidence]) -> PlannedScan:
    """Plan the reads that metadata and evidence leave, and their requests if rows will probably be read. No request."""
    plans: list[PartitionPlan] = []
    rows_left = question.limit
    verdicts = _verdicts(drafts, gathered)
    for draft, evidence in zip(drafts, gathered, strict=True):
        if isinstance(draft, ParquetDraft):
            plan = plan_parquet(draft, evidence, verdicts[draft.pruning], rows_left=rows_left)
        else:
            plan = plan_native(draft, rows_left=rows_left)
        plans.append(plan)
        rows_left = rows_after(rows_left, plan.row_groups)
    plans = read_late(question, plans)
    warnings = _columns_left_out(question, drafts)
    hints = () if question.hint is None or any(plan.row_groups for plan in plans) else (question.hint.text,)
    read_plan = ReadPlan(
        table=question.url,
        columns=tuple(column.name for column in question.output_columns),
        predicate=question.predicate_text,
        limit=question.limit,
        partitions_pruned=(),
        partitions=tuple(plan.read for plan in plans),
        row_groups=tuple(read for plan in plans for read in plan.row_groups),
        requests=(),
        metadata_requests=(),
        snapshot=question.snapshot.source,
        notes=(*question.snapshot.notes, *warnings, *hints),
        options=question.options,
        speed=question.speed,
    )
    return PlannedScan(
        question=question,
        # Otherwise the user of the plan chooses the reads and plans them.
        plan=with_requests(question, read_plan) if question.expects_data else read_plan,
        known=tuple(plan.known for plan in plans),
        warnings=warnings,
    )


def _columns_left_out(question: Question, drafts: Sequence[Draft]) -> tuple[str, ...]:
    """Name the columns that are not read because the table has only the columns of its newest partition."""
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


def _verdicts(drafts: Sequence[Draft], gathered: Sequence[Evidence]) -> dict[SidecarPruning, Verdicts]:
    """Group the answers of bloom filters by the pruning of their sidecars."""
    blooms: dict[SidecarPruning, dict[int, BloomAnswers]] = {}
    for draft, evidence in zip(drafts, gathered, strict=True):
        if isinstance(draft, ParquetDraft):
            of_stack = blooms.setdefault(draft.pruning, {})
            if evidence.blooms is not None:
                of_stack[draft.position] = evidence.blooms
    return {pruning: Verdicts(pruning, answers) for pruning, answers in blooms.items()}


def draft_partitions(
    question: Question, found: Sequence[KnownPartition]
) -> tuple[tuple[Draft, ...], tuple[SkippedPartition, ...]]:
    """Prune the row groups of partitions by their metadata, until earlier ones certainly have enough rows. No request.

    Native partitions are already planned. If the options say so, archived partitions with remaining row groups are
    skipped here: they come second. For other archived partitions only evidence outside of the archived object is worth
    its requests.
    """
    drafts: list[Draft] = []
    left_out: list[SkippedPartition] = []
    rows_left = question.limit
    in_parquet = [known.metadata.sidecar for known in found if known.metadata is not None]
    prunings, sidecar_count = SidecarPrunings(question, in_parquet), 0
    for known in found:
        if rows_left is not None and rows_left <= 0:
            break
        if known.metadata is None:
            drafts.append(_renumbered(known, len(drafts)))
            rows_left = rows_after(rows_left, known.native_reads)
            continue
        pruning, position = prunings.at(sidecar_count)
        sidecar_count += 1
        draft = draft_parquet(
            pruning,
            position,
            known,
            index=len(drafts),
            rows_wanted=question.last_rows if rows_left is None else rows_left,
        )
        archived = archived_object(question, known.partition.name, known.partition.data_path)
        if archived is not None and draft.is_read and question.options.archived == "skip":
            left_out.append(skipped(archived))
            continue
        drafts.append(draft if archived is None else _without_the_object(draft))
        rows_left = None if rows_left is None else rows_left - draft.certain_rows
    return tuple(drafts), tuple(left_out)


def rows_after(rows_left: int | None, reads: Sequence[Read]) -> int | None:
    """Return how many rows are still wanted after these reads; None for all."""
    return None if rows_left is None else rows_left - sum(read.row_count for read in reads if read.all_rows_match)


def _without_the_object(draft: ParquetDraft) -> ParquetDraft:
    """Drop all evidence that is inside the archived object itself."""
    probes, page_index = draft.probes, draft.page_index
    if probes is not None and not probes.are_at_hand:
        probes = None
    if page_index is not None and not draft.question.snapshot.page_files.is_at_hand(draft.partition.location):
        page_index = Choice(pays=False, reason="it lies in an archived object")
    return replace(draft, probes=probes, page_index=page_index)


def _renumbered(known: KnownPartition, index: int) -> KnownPartition:
    """Move a native partition's reads to its position after partitions were skipped."""
    if all(read.partition_index == index for read in known.native_reads):
        return known
    return replace(known, native_reads=tuple(replace(read, partition_index=index) for read in known.native_reads))
