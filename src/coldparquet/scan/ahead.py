"""Plans, and begins to fetch the data, while HEADs or a listing are in flight that tell whether the metadata is stale.

Nearly always it is not, and then the plan is made, and its data is on the way, when they are answered. Otherwise the plan is
dropped, and made anew with what is there. Rows are only read by a plan that the answers confirm; and requests for data refuse
other versions than the catalogue tells.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from coldparquet.options import MIB
from coldparquet.plan.budget import has_budget
from coldparquet.plan.model import MetadataRequest
from coldparquet.records import replace
from coldparquet.scan.admission import archived_object
from coldparquet.scan.metadata import is_to_be_confirmed, metadata_if_current
from coldparquet.scan.requests import data_request
from coldparquet.storage.log import metadata_requests

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from coldparquet.catalog.partition import Partition
    from coldparquet.plan.model import SkippedPartition
    from coldparquet.scan.evidence import Evidence
    from coldparquet.scan.metadata import FoundMetadata
    from coldparquet.scan.model import BegunRequests, KnownPartition, PlannedScan, Question
    from coldparquet.storage.requests import FetchedRange

_MOST_BEGUN_BYTES = 16 * MIB
"""Of a longer read a round trip is a small part, and its bytes are fetched as its memory allows."""


_IN_VAIN = "data, by metadata that was stale"


class MadePlan(Struct, frozen=True, kw_only=True):
    """A plan, with what it was made of."""

    planned: PlannedScan
    left_out: tuple[SkippedPartition, ...]
    """Archived partitions that the options skip."""
    gathered: tuple[Evidence, ...]


Make: TypeAlias = "Callable[[Sequence[KnownPartition], asyncio.Event], Coroutine[object, object, MadePlan]]"
"""Plans with metadata. Until the event is set, it asks for nothing that must not be asked for in vain."""


class PlanAhead:
    """The plan of a question that is made before it is known whether the metadata is current.

    Args:
        question: The question.
        kept: Its partitions.
        make: Makes the plan.
        may_begin: Whether requests for its data may be sent, too.
    """

    def __init__(self, question: Question, kept: Sequence[Partition], make: Make, *, may_begin: bool) -> None:
        self._question = question
        self._kept = kept
        self._make = make
        options, is_for_all_rows = question.options, question.limit is None and question.last_rows is None
        # Of a partition that options leave out, or restore first, no data is to be asked for before its storage class is known.
        is_read_or_refused = options.archived == "refuse" and not has_budget(options)
        self._may_begin = may_begin and question.expects_data and is_for_all_rows and is_read_or_refused
        self.requests: list[MetadataRequest] = []
        """Those for metadata."""
        self._known: list[KnownPartition] | None = None
        self._confirmed = asyncio.Event()
        self._begun: BegunRequests = {}
        self._making: asyncio.Task[MadePlan | None] | None = None
        if self._is_of_use:
            self._making = asyncio.create_task(self._plan())

    @property
    def _is_of_use(self) -> bool:
        """Whether there is time for it, and it will be like one made later: it must not depend on storage classes or symbols."""
        question, options = self._question, self._question.options
        is_preview = question.limit is not None and question.predicate is None
        depends = options.goal == "cheap" or options.symbols == "global" or question.snapshot.catalogue.is_asked_for
        return not (is_preview or depends) and is_to_be_confirmed(question, self._kept)

    async def made_for(self, found: FoundMetadata) -> MadePlan | None:
        """Return the plan, if the metadata that it was made of is what was found; else drop it."""
        if self._making is None or not self._is_of(found):
            self.drop()
            return None
        self._confirmed.set()
        made = await self._making
        if made is None:
            return None
        pairs = zip(found.known, made.planned.known, strict=False)  # a limit may leave out the last ones
        known = tuple(replace(read, places=planned.places) for read, planned in pairs)
        return replace(made, planned=replace(made.planned, known=known, begun=self._begun))

    @property
    def in_vain(self) -> tuple[MetadataRequest, ...]:
        """The requests for data that a dropped plan had sent."""
        if self._confirmed.is_set():
            return ()
        return tuple(
            MetadataRequest(path=path, byte_range=byte_range, reason=_IN_VAIN, fetched_bytes=_fetched_bytes(task))
            for (path, byte_range), task in self._begun.items()
        )

    def drop(self) -> None:
        """Cancel what is under way."""
        for task in (self._making, *self._begun.values()):
            if task is not None:
                task.cancel()

    def _is_of(self, found: FoundMetadata) -> bool:
        return (
            self._known is not None
            and not found.skipped
            and [_sidecar(known) for known in found.known] == [_sidecar(known) for known in self._known]
            and not any(archived_object(self._question, one.name, one.data_path) for one in self._kept)
        )

    async def _plan(self) -> MadePlan | None:
        with metadata_requests(self.requests):
            self._known = await metadata_if_current(self._question, self._kept)
        if self._known is None:
            return None
        made = await self._make(self._known, self._confirmed)
        if self._may_begin and not self._confirmed.is_set():
            await self._begin_reads(made.planned)
        return made

    async def _begin_reads(self, planned: PlannedScan) -> None:
        """Send the requests of a short read, but for what is held: only the listing tells whether that is current."""
        store, plan = self._question.snapshot.store, planned.plan
        if plan.bytes_fetched > _MOST_BEGUN_BYTES:
            return
        may_be_kept = plan.bytes_fetched <= store.largest_scan_bytes
        etags = {
            known.partition.data_path: known.metadata.data_etag
            for known in self._known or ()
            if known.metadata is not None
        }
        for rank, request in enumerate(plan.requests):
            is_held = await store.holds(request.path, request.byte_range)
            if request.stage == 1 and not is_held and not self._confirmed.is_set():
                data = plan.row_groups_of(request.partition_index)[0].data
                asked = data_request(data, request, rank=rank, may_be_kept=may_be_kept)
                asked = replace(asked, if_match=etags[request.path])
                task = self._begun[request.path, request.byte_range] = asyncio.create_task(store.get(asked))
                task.add_done_callback(_note_seen)


def _sidecar(known: KnownPartition) -> int | None:
    return None if known.metadata is None else id(known.metadata.sidecar)


def _fetched_bytes(task: asyncio.Task[FetchedRange]) -> int:
    is_answered = task.done() and not task.cancelled() and task.exception() is None
    return len(task.result().data) if is_answered else 0


def _note_seen(task: asyncio.Task[FetchedRange]) -> None:
    """Take note of an error that nobody waits for, once the plan is dropped."""
    if not task.cancelled():
        task.exception()
