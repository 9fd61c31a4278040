"""Asking the bloom filters of one partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coldparquet.concurrency import gather_or_cancel
from coldparquet.plan.coalesce import coalesce
from coldparquet.plan.read_plan import MetadataRequest
from coldparquet.ranges import ByteRange
from coldparquet.storage.requests import RangeRequest

if TYPE_CHECKING:
    from coldparquet.format.fetched_ranges import WantedRanges
    from coldparquet.options import Coalescing
    from coldparquet.plan.bloom_probes import BloomAnswers, BloomProbes
    from coldparquet.storage.base import ObjectStore

BLOOM_REASON = "bloom filter"

_GAPS_PER_CHUNK_GAP = 2
"""Lookups want 32 bytes each and filters often lie side by side. Reading over gaps as wide as those between chunks would
bring all of filters as long as that; half of it brings filters of 32 KiB at once, whose columns take turns."""


async def fetch_blooms(  # noqa: PLR0913 - knobs are required keywords here; their defaults live in ReadOptions
    store: ObjectStore,
    data_path: str,
    probes: BloomProbes,
    *,
    coalescing: Coalescing,
    may_grow: bool,
    spent: list[MetadataRequest],
) -> BloomAnswers:
    """Fetch what the probes want to see of the filters, and return their answers.

    Requests: none where the filters lie in the sidecar. Otherwise one round trip of few, all in flight together; a second
    one for large filters of which neither sidecar nor footer states the length.

    Args:
        store: Where the partition lies; it should pin versions.
        data_path: The Parquet file.
        probes: What to ask.
        coalescing: How ranges become requests.
        may_grow: Whether the file is only ever appended to.
        spent: Gets the requests.

    Raises:
        ObjectChangedError: The file is another one than the sidecar describes.
        StorageError: The store failed.
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
                spent=spent,
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
    spent: list[MetadataRequest],
) -> list[tuple[int, bytes]]:
    """Fetch ranges of bloom filters, in few requests that are all in flight together.

    Args:
        store: As for :func:`fetch_blooms`.
        data_path: The Parquet file.
        wanted: The ranges.
        coalescing: How ranges become requests.
        object_bytes: Size that the file must have; see :class:`~coldparquet.storage.requests.RangeRequest`.
        may_grow: Whether the file is only ever appended to.
        spent: Gets the requests.

    Returns:
        Disjoint pieces that cover the ranges: where each begins in the file, and its bytes.
    """
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
    spent += [
        MetadataRequest(
            path=data_path, byte_range=request.byte_range, reason=BLOOM_REASON, fetched_bytes=len(answer.data)
        )
        for request, answer in zip(requests, answers, strict=True)
        if not answer.is_from_cache
    ]
    return [(answer.start, answer.data) for answer in answers]
