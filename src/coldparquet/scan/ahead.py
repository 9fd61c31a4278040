"""Plans, and begins to fetch the data, while HEADs or a listing are in flight that tell whether the metadata is stale.

Nearly always it is not, and then the plan is made, and its data is on the way, when they are answered. Otherwise the plan is
dropped, and made anew with what is there. Rows are only read by a plan that the answers confirm. A request for data that is sent
before that names the version that the catalogue tells, pins no other request to it, and is not sent where none is known.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from coldparquet.catalog.partition import metadata_of_entry
from coldparquet.options import MIB
from coldparquet.plan.budget import has_budget
from coldparquet.plan.model import MetadataRequest
from coldparquet.records import replace
from coldparquet.scan.admission import archived_object
from coldparquet.scan.metadata import consider_listing
from coldparquet.scan.model import KnownPartition
from coldparquet.scan.requests import data_request
from coldparquet.storage.log import metadata_requests

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from coldparquet.catalog.partition import Partition
    from coldparquet.plan.model import PlannedRequest, SkippedPartition
    from coldparquet.ranges import ByteRange, SuffixRange
    from coldparquet.scan.evidence import Evidence
    from coldparquet.scan.metadata import FoundMetadata
    from coldparquet.scan.model import PlannedScan, Question
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.requests import FetchedRange, RangeRequest

AnyRange: TypeAlias = "ByteRange | SuffixRange"

_MOST_BYTES_AHEAD = 16 * MIB
"""Of a longer read a round trip is a small part, and its bytes are fetched as its memory allows."""

_SHARE_OF_MEMORY = 16
"""Requests sent ahead hold at most this part of the memory limit, beside what the stream counts."""


class ReadsAhead:
    """The requests of a stream for data that were sent before its plan was confirmed. The stream owns them."""

    def __init__(self) -> None:
        self._tasks: dict[tuple[str, AnyRange], asyncio.Task[FetchedRange]] = {}
        self._received_bytes: dict[tuple[str, AnyRange], int] = {}
        """By request that has left: bytes of its answer, 0 before that."""
        self.length_bytes = 0
        """Of all answers."""

    def send(self, store: ObjectStore, request: RangeRequest) -> None:
        """Send a request."""
        self.length_bytes += request.byte_range.length_bytes
        self._tasks[request.path, request.byte_range] = asyncio.create_task(self._get(store, request))

    def take(self, request: PlannedRequest) -> asyncio.Task[FetchedRange] | None:
        """Return the answer to a request, which is the caller's from then on; None if it was not sent."""
        return self._tasks.pop((request.path, request.byte_range), None)

    async def cancel(self) -> list[MetadataRequest]:
        """Cancel what nobody has taken, wait until it has ended, and return those of it that were sent, in vain."""
        tasks, self._tasks = self._tasks, {}
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        return [
            MetadataRequest(
                path=path,
                byte_range=byte_range,
                reason="data, asked for in vain",
                fetched_bytes=self._received_bytes[path, byte_range],
            )
            for path, byte_range in tasks
            if (path, byte_range) in self._received_bytes
        ]

    async def _get(self, store: ObjectStore, request: RangeRequest) -> FetchedRange:
        key = request.path, request.byte_range
        self._received_bytes[key] = 0  # a task that is cancelled before it runs sends nothing
        answer = await store.get(request)
        self._received_bytes[key] = len(answer.data)
        return answer


class MadePlan(Struct, frozen=True, kw_only=True):
    """A plan, with what it was made of."""

    planned: PlannedScan
    left_out: tuple[SkippedPartition, ...]
    """Archived partitions that the options skip."""
    gathered: tuple[Evidence, ...]


PlanWithMetadata: TypeAlias = (
    "Callable[[Sequence[KnownPartition], asyncio.Event, list[MetadataRequest]], Coroutine[object, object, MadePlan]]"
)
"""Plans with metadata. It waits for the event before requests that would be in vain if the metadata is stale. The list takes
those requests that are for all partitions together."""


class PlanAhead:
    """The plan of a question that is made before it is known whether the metadata is current.

    Args:
        question: The question.
        kept: Its partitions.
        make: Makes the plan.
        reads: Takes the requests for data that are sent ahead; None sends none.
        requests: Takes what it sent, but for what the plan itself tells.
    """

    def __init__(
        self,
        question: Question,
        kept: Sequence[Partition],
        make: PlanWithMetadata,
        reads: ReadsAhead | None,
        requests: list[MetadataRequest],
    ) -> None:
        self._question = question
        self._kept = kept
        self._make = make
        self._reads = reads
        self._known: list[KnownPartition] | None = None
        self._confirmed = asyncio.Event()
        self._making: asyncio.Task[MadePlan | None] | None = None
        self._requests = requests

    def start(self) -> None:
        """Begin to plan, if there is time for it, and it will be like a plan made later.

        So it must not depend on storage classes, nor on symbols that are looked up meanwhile.
        """
        question, options = self._question, self._question.options
        is_preview = question.limit is not None and question.predicate is None
        depends = options.goal == "cheap" or options.symbols == "global" or question.snapshot.catalogue.is_asked_for
        if not (is_preview or depends) and _is_to_be_confirmed(question, self._kept):
            self._making = asyncio.create_task(self._plan())

    async def made_for(self, found: FoundMetadata) -> MadePlan | None:
        """Return the plan, if the metadata that it was made of is what was found; else drop it."""
        if self._making is None or not self._is_made_of(found):
            await self.drop()
            return None
        self._confirmed.set()
        made = await self._making
        if made is None:
            return None
        pairs = zip(found.known, made.planned.known, strict=False)  # a limit may leave out the last ones
        known = tuple(replace(read, places=planned.places) for read, planned in pairs)
        return replace(made, planned=replace(made.planned, known=known))

    async def drop(self) -> None:
        """Cancel what is under way, and wait until it has ended."""
        if self._making is not None:
            self._making.cancel()
            await asyncio.gather(self._making, return_exceptions=True)
        if self._reads is not None:
            self._requests += await self._reads.cancel()

    def _is_made_of(self, found: FoundMetadata) -> bool:
        known = self._known
        return (
            known is not None
            and not found.skipped
            and len(found.known) == len(known)
            and all(map(_have_same_sidecar, found.known, known))
            and not any(archived_object(self._question, one.name, one.data_path) for one in self._kept)
        )

    async def _plan(self) -> MadePlan | None:
        with metadata_requests(self._requests):
            self._known = await _metadata_if_current(self._question, self._kept)
        if self._known is None:
            return None
        made = await self._make(self._known, self._confirmed, self._requests)
        if self._reads is not None and self._may_read_ahead(made.planned):
            await self._read_ahead(self._reads, self._known, made.planned)
        return made

    def _may_read_ahead(self, planned: PlannedScan) -> bool:
        """Tell whether all that the plan reads is little, and certainly wanted."""
        question, options = self._question, self._question.options
        is_for_all_rows = question.expects_data and question.limit is None and question.last_rows is None
        # Partitions that the options leave out, or restore first, must not be asked for before their storage class is known.
        is_read_or_refused = options.archived == "refuse" and not has_budget(options)
        most_bytes = min(_MOST_BYTES_AHEAD, options.memory_limit_bytes // _SHARE_OF_MEMORY)
        return is_for_all_rows and is_read_or_refused and planned.plan.bytes_fetched <= most_bytes

    async def _read_ahead(self, reads: ReadsAhead, known: Sequence[KnownPartition], planned: PlannedScan) -> None:
        """Send the requests of the first stage, but for what is held: only the answers tell whether that is current."""
        store, plan = self._question.snapshot.store, planned.plan
        may_be_kept = plan.bytes_fetched <= store.largest_scan_bytes
        etags = {one.partition.data_path: None if one.metadata is None else one.metadata.data_etag for one in known}
        first_read = {read.partition_index: rank for rank, read in reversed(list(enumerate(plan.row_groups)))}
        for request in plan.requests:
            etag = etags[request.path]
            is_new = request.stage == 1 and etag is not None and not await store.holds(request.path, request.byte_range)
            if self._confirmed.is_set():
                return
            if not is_new:
                continue
            rank = first_read[request.partition_index]
            asked = data_request(plan.row_groups[rank].data, request, rank=rank, may_be_kept=may_be_kept)
            reads.send(store, replace(asked, if_match=etag, pins_version=False))


def _is_to_be_confirmed(question: Question, kept: Sequence[Partition]) -> bool:
    """Tell whether reading the metadata waits for HEADs or a listing though it may be at hand. No request."""
    if not kept:
        return False  # nothing is read
    snapshot = question.snapshot
    # The newest partition, read when the table was opened, may show that the table was rewritten since packing.
    if snapshot.catalogue.is_contradicted_by(snapshot.partitions[-1].location):
        return False
    headed = consider_listing(question, kept)
    unread = [partition.location for partition in kept if partition.snapshot is None]
    return snapshot.catalogue.waits_for_listing(unread) or not all(
        snapshot.versions.was_asked_for(partition.data_path) for partition in headed
    )


async def _metadata_if_current(question: Question, kept: Sequence[Partition]) -> list[KnownPartition] | None:
    """Return the metadata of partitions as it is if no entry of the catalogue is stale; None where some is not at hand.

    Requests: those of :meth:`coldparquet.catalog.catalogue.Catalogue.entries`.
    """
    catalogue = question.snapshot.catalogue
    # Partitions that are unchanged since an earlier state have the catalogue of that state.
    unread = [partition.location for partition in kept if partition.catalogue is catalogue]
    entries = await catalogue.entries(catalogue.wanted(unread))
    found = []
    for partition in kept:
        entry = entries.get(partition.name)
        metadata = partition.known_metadata or (None if entry is None else metadata_of_entry(entry))
        if metadata is None:
            return None
        found.append(KnownPartition(partition=partition, metadata=metadata, requests=()))
    return found


def _have_same_sidecar(one: KnownPartition, other: KnownPartition) -> bool:
    if one.metadata is None or other.metadata is None:
        return one.metadata is other.metadata
    return one.metadata.sidecar is other.metadata.sidecar
