"""A closer look at a partition, where its sidecar leaves row groups undecided: bloom filters and pages, at the same time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from coldparquet.concurrency import both
from coldparquet.format.partition_pages import PagesFound
from coldparquet.scanning.bloom_fetch import fetch_blooms

if TYPE_CHECKING:
    from coldparquet.format.partition_pages import PartitionPages
    from coldparquet.plan.bloom_probes import BloomAnswers
    from coldparquet.plan.read_plan import MetadataRequest
    from coldparquet.scanning.bloom_copies import BloomCopies
    from coldparquet.scanning.parquet_draft import ParquetDraft


@dataclass(frozen=True, slots=True, kw_only=True)
class CloserLook:
    """What was fetched beyond the sidecar, to read less of the data."""

    blooms: BloomAnswers | None = None
    pages: PartitionPages | None = None
    pages_etag: str | None = None
    """Version of the Parquet object that the ``_pages`` of the partition was made for; None where they say none, or come
    from the Parquet file."""
    notes: tuple[str, ...] = ()
    requests: tuple[MetadataRequest, ...] = ()


async def look_closer(draft: ParquetDraft, copies: BloomCopies) -> CloserLook:
    """Fetch what the draft of a partition's plan asks for.

    Requests: for bloom filters those of :meth:`coldparquet.scanning.bloom_copies.BloomCopies.hand_out`, or those of
    :func:`coldparquet.scanning.bloom_fetch.fetch_blooms`; for pages 1, or none where the ``_pages`` of the partition came
    with its sidecar. All in one round trip, unless the length or the place of bloom filters is not known.

    Args:
        draft: The draft.
        copies: What the catalogue has of the filters.
    """
    spent: list[MetadataRequest] = []
    asks_blooms = draft.probes is not None
    if asks_blooms and draft.wants_pages:
        blooms, found = await both(_blooms(draft, copies, spent), _pages(draft, spent))
    else:  # one of the two has nothing to wait for, and needs no task
        blooms, found = await _blooms(draft, copies, spent), await _pages(draft, spent)
    notes = (*(copies.notes if blooms is not None else ()), *(blooms.notes if blooms is not None else ()), *found.notes)
    return CloserLook(blooms=blooms, pages=found.pages, pages_etag=found.etag, notes=notes, requests=tuple(spent))


async def _blooms(draft: ParquetDraft, copies: BloomCopies, spent: list[MetadataRequest]) -> BloomAnswers | None:
    if draft.probes is None:
        return None
    await copies.hand_out(spent)
    return await fetch_blooms(
        draft.question.snapshot.store,
        draft.partition.data_path,
        draft.probes,
        coalescing=draft.question.coalescing_of(draft.partition.data_path),
        may_grow=draft.partition.may_grow,
        spent=spent,
    )


async def _pages(draft: ParquetDraft, spent: list[MetadataRequest]) -> PagesFound:
    if not draft.wants_pages:
        return PagesFound(pages=None)
    needed = {place for place in draft.places.values() if place is not None}
    return await draft.question.snapshot.page_files.pages_of(
        draft.partition.location,
        draft.sidecar,
        row_groups=draft.row_groups_left,
        columns=sorted(needed),
        spent=spent,
    )
