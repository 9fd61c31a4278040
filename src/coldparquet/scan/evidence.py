"""Fetches evidence about row groups that a sidecar leaves undecided: bloom filters and page indexes, in parallel."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec import Struct

from coldparquet.catalog.packed import AskedPartition
from coldparquet.concurrency import both, gather_or_cancel
from coldparquet.format.pages import PagesFound
from coldparquet.plan.coalesce import coalesce
from coldparquet.ranges import ByteRange
from coldparquet.scan.draft import ParquetDraft
from coldparquet.storage.log import metadata_requests, note_metadata_answer
from coldparquet.storage.requests import RangeRequest, is_lasting_etag
from coldparquet.storage.versions import stale_pages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.catalog.packed import Words
    from coldparquet.format.fetch import WantedRanges
    from coldparquet.format.pages import PartitionPages
    from coldparquet.options import Coalescing
    from coldparquet.plan.blooms import BloomProbes
    from coldparquet.plan.model import MetadataRequest
    from coldparquet.plan.statistics import BloomAnswers
    from coldparquet.scan.draft import Draft
    from coldparquet.scan.model import Question
    from coldparquet.storage.base import ObjectStore


class BloomCopies:
    """The catalogue's copies of the bloom filters that the drafts of a question probe.

    Args:
        question: The question.
        drafts: Of all partitions.
        confirmed: Is set once it is known which entries of the catalogue are of the files that are read.
        requests: Takes its requests, which are for all drafts together.
    """

    def __init__(
        self,
        question: Question,
        drafts: Sequence[Draft],
        confirmed: asyncio.Event,
        requests: list[MetadataRequest],
    ) -> None:
        self._catalogue = question.snapshot.catalogue
        self._drafts = [draft for draft in drafts if isinstance(draft, ParquetDraft)]
        self._confirmed = confirmed
        self._requests = requests
        self._lock = asyncio.Lock()
        self._is_done = False
        self._doubtful: dict[str, list[Words]] = {}
        """By partition: blocks that count if its entry turns out to be of its file."""
        self.notes: tuple[str, ...] = ()
        """Why the catalogue could not be read."""

    async def give(self, draft: ParquetDraft, probes: BloomProbes) -> None:
        """Give the probes of a draft their blocks, if the catalogue has them; what it lacks is wanted still.

        Requests: on the first call those of :meth:`coldparquet.catalog.packed.PackedBlooms.blocks_of`, for all drafts.
        """
        if self._catalogue.blooms.are_there:
            async with self._lock:
                if not self._is_done:
                    await self._give_all()
                    self._is_done = True
        if probes.are_at_hand:
            return
        await self._confirmed.wait()
        if draft.partition.name in self._doubtful and self._is_packed(draft):
            probes.receive_blocks(self._doubtful[draft.partition.name])

    async def _give_all(self) -> None:
        drafts, asked = {}, []
        for draft in self._drafts:
            wanted = None if draft.probes is None else draft.probes.wanted_blocks()
            if wanted is not None and (self._is_packed(draft) or self._may_be_packed(draft)):
                drafts[draft.partition.name] = draft
                asked.append(AskedPartition(name=draft.partition.name, wanted=wanted))
        with metadata_requests(self._requests):
            found, problem = await self._catalogue.blooms.blocks_of(asked)
        for name, blocks in found.items():
            probes = drafts[name].probes
            if probes is not None and self._is_packed(drafts[name]):
                probes.receive_blocks(blocks)
            else:
                self._doubtful[name] = blocks
        self.notes = () if problem is None else (problem,)

    def _is_packed(self, draft: ParquetDraft) -> bool:
        return draft.metadata.source == "catalogue" or self._catalogue.has_version_of(draft.partition.location)

    def _may_be_packed(self, draft: ParquetDraft) -> bool:
        return not self._confirmed.is_set() and self._catalogue.has_entry(draft.partition.location)


BLOOM_REASON = "bloom filter"

_GAPS_PER_CHUNK_GAP = 2
"""A lookup needs 32 bytes, and filters are often adjacent. The gap used for chunks would read over all filters as long
as itself. Half of it fetches filters of 32 KiB together where their columns alternate."""


async def fetch_blooms(
    store: ObjectStore,
    data_path: str,
    probes: BloomProbes,
    *,
    coalescing: Coalescing,
    may_grow: bool,
) -> BloomAnswers:
    """Fetch the parts of the filters that the probes need, and return their answers.

    Requests: none if the filters are in the sidecar. Otherwise one round trip of few requests in parallel. A second
    round trip follows for large filters whose length neither sidecar nor footer states.
    """
    while (wanted := probes.wanted()) is not None:
        probes.receive(
            await fetch_bloom_ranges(
                store,
                data_path,
                wanted,
                coalescing=coalescing,
                object_bytes=probes.parquet_size_bytes,
                may_grow=may_grow,
            )
        )
    return probes.answers()


async def fetch_bloom_ranges(  # noqa: PLR0913 - knobs are required keywords here; their defaults live in ReadOptions
    store: ObjectStore,
    data_path: str,
    wanted: WantedRanges,
    *,
    coalescing: Coalescing,
    object_bytes: int,
    may_grow: bool,
) -> list[tuple[int, bytes]]:
    """Fetch ranges of bloom filters in few requests, all in parallel."""
    coalesced = coalesce(
        wanted.starts,
        wanted.stops,
        gap_bytes=coalescing.gap_bytes // _GAPS_PER_CHUNK_GAP,
        max_request_bytes=coalescing.max_request_bytes,
    )
    requests = [
        RangeRequest(
            path=data_path,
            byte_range=ByteRange(start, stop),
            reason=BLOOM_REASON,
            object_bytes=object_bytes,
            may_grow=may_grow,
        )
        for start, stop in zip(coalesced.starts.tolist(), coalesced.stops.tolist(), strict=True)
    ]
    answers = await gather_or_cancel([store.get(request) for request in requests])
    for request, answer in zip(requests, answers, strict=True):
        note_metadata_answer(request, answer)
    return [(answer.start, answer.data) for answer in answers]


class Evidence(Struct, frozen=True, kw_only=True):
    """What was fetched beyond the sidecar in order to read less data."""

    blooms: BloomAnswers | None = None
    pages: PartitionPages | None = None
    pages_etag: str | None = None
    """Version of the Parquet object that the partition's ``_pages`` describes. None if the pages state none, or come
    from the Parquet file."""
    notes: tuple[str, ...] = ()
    requests: tuple[MetadataRequest, ...] = ()


async def gather_evidence(
    question: Question, drafts: Sequence[Draft], confirmed: asyncio.Event, of_all: list[MetadataRequest]
) -> list[Evidence]:
    """Fetch the evidence that the drafts ask for, often few or none.

    Requests: for bloom filters those of :meth:`coldparquet.scan.evidence.BloomCopies.give`, or those of
    :func:`coldparquet.scan.evidence.fetch_blooms`. For pages 1 for each partition, or none if its ``_pages`` came with
    its sidecar. All in one round trip, unless the length or the place of bloom filters is unknown.

    Args:
        question: The question.
        drafts: Of all partitions.
        confirmed: Is set once the drafts are known to be of the files that are read. Before that, the catalogue alone is asked,
            for its copies of bloom filters: they are of the same state as its entries.
        of_all: Takes the requests that are for all drafts together.
    """
    copies, packed = BloomCopies(question, drafts, confirmed, of_all), _PackedPages(question, drafts)
    wanted = {
        position: _evidence_for(draft, copies, packed, confirmed)
        for position, draft in enumerate(drafts)
        if isinstance(draft, ParquetDraft) and draft.wants_evidence
    }
    found = dict(zip(wanted, await gather_or_cancel(list(wanted.values())), strict=True))
    none = Evidence()
    return [found.get(position, none) for position in range(len(drafts))]


class _PackedPages:
    """What an index elsewhere says of the pages of the drafts that want them: the first of these to come asks for all."""

    def __init__(self, question: Question, drafts: Sequence[Draft]) -> None:
        self._page_files = question.snapshot.page_files
        self._locations = [
            draft.partition.location for draft in drafts if isinstance(draft, ParquetDraft) and draft.wants_pages
        ]

    async def fetch(self) -> None:
        """Fetch it. Requests: those of :meth:`coldparquet.catalog.pages.PageFiles.look_up_packed`, once."""
        locations, self._locations = self._locations, []
        await self._page_files.look_up_packed(locations)  # with none, those who come later wait for it


async def _evidence_for(
    draft: ParquetDraft, copies: BloomCopies, packed: _PackedPages, confirmed: asyncio.Event
) -> Evidence:
    with metadata_requests() as requests:
        if draft.probes is not None and draft.wants_pages:
            blooms, found = await both(_blooms(draft, copies), _pages(draft, packed, confirmed))
        else:  # one of the two has nothing to wait for, and needs no task
            blooms, found = await _blooms(draft, copies), await _pages(draft, packed, confirmed)
    notes = (*(copies.notes if blooms is not None else ()), *(blooms.notes if blooms is not None else ()), *found.notes)
    return Evidence(
        blooms=blooms,
        pages=found.pages,
        pages_etag=_etag_to_expect(draft, found.etag),
        notes=notes,
        requests=tuple(requests),
    )


def _etag_to_expect(draft: ParquetDraft, pages_etag: str | None) -> str | None:
    """Refuse a `_pages` of another version than the HEAD found; requests are pinned to the latter, if there is one."""
    versions, path = draft.question.snapshot.versions, draft.partition.data_path
    info = versions.info(path)
    if info is None or not (is_lasting_etag(pages_etag) and is_lasting_etag(info.etag)):
        return pages_etag
    if pages_etag != info.etag:
        versions.changed.add(path)
        raise stale_pages(path, described_etag=pages_etag, found_etag=info.etag)
    return None


async def _blooms(draft: ParquetDraft, copies: BloomCopies) -> BloomAnswers | None:
    if draft.probes is None:
        return None
    await copies.give(draft, draft.probes)
    return await fetch_blooms(
        draft.question.snapshot.store,
        draft.partition.data_path,
        draft.probes,
        coalescing=draft.question.coalescing_of(draft.partition.data_path),
        may_grow=draft.partition.may_grow,
    )


async def _pages(draft: ParquetDraft, packed: _PackedPages, confirmed: asyncio.Event) -> PagesFound:
    if not draft.wants_pages:
        return PagesFound(pages=None)
    await confirmed.wait()
    await packed.fetch()
    needed = {place for place in draft.places.values() if place is not None}
    return await draft.question.snapshot.page_files.pages_of(
        draft.partition.location,
        draft.sidecar,
        row_groups=draft.row_groups_left,
        columns=sorted(needed),
    )
