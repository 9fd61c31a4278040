"""What a plan costs in dollars and in time. Estimates, with their assumptions as data."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coldparquet.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

PRICES_AS_OF = "2026-11"
"""Month in which the price table was put together. Current prices: https://aws.amazon.com/s3/pricing."""

FIRST_BYTE_S = 0.030
"""Time to the first byte of a small GET from S3 Standard: 27-30 ms in the published medians
(AnyBlob, VLDB 2023; Bodner et al., arXiv 2501.07771)."""

CONNECTION_BYTES_PER_S = 55 * 1024 * 1024
"""Throughput of one connection to S3: median 55-60 MiB/s (AnyBlob, VLDB 2023)."""

BYTES_PER_PRICED_GB = 1e9
"""Prices are per GB; the decimal one makes the estimate err on the expensive side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageClassPrice:
    """Prices of one S3 storage class in us-east-1, without transfer out of the region; transfer into it is free."""

    dollars_per_million_gets: float
    dollars_per_gb_retrieved: float
    dollars_per_million_puts: float
    """Also of the requests of an upload in parts."""
    dollars_per_gb_month: float
    """Of storing."""
    verified: bool
    """False where the price of a GET could not be checked against a published list."""


PRICES: dict[str, StorageClassPrice] = {
    "STANDARD": StorageClassPrice(
        dollars_per_million_gets=0.40,
        dollars_per_gb_retrieved=0.0,
        dollars_per_million_puts=5.0,
        dollars_per_gb_month=0.023,
        verified=True,
    ),
    "INTELLIGENT_TIERING": StorageClassPrice(
        dollars_per_million_gets=0.40,
        dollars_per_gb_retrieved=0.0,
        dollars_per_million_puts=5.0,
        dollars_per_gb_month=0.023,
        verified=False,
    ),
    "STANDARD_IA": StorageClassPrice(
        dollars_per_million_gets=1.0,
        dollars_per_gb_retrieved=0.01,
        dollars_per_million_puts=10.0,
        dollars_per_gb_month=0.0125,
        verified=False,
    ),
    "GLACIER_IR": StorageClassPrice(
        dollars_per_million_gets=10.0,
        dollars_per_gb_retrieved=0.03,
        dollars_per_million_puts=20.0,
        dollars_per_gb_month=0.004,
        verified=False,
    ),
}
"""Storage classes that answer a GET at once; archive classes have to be restored first."""

DOLLARS_PER_MILLION_LISTS = 5.0
"""S3 bills a listing as a PUT to S3 Standard, whatever the storage class of what it lists."""


def estimate_dollars(
    get_count: int, fetched_bytes: int, *, list_count: int = 0, storage_class: str = "STANDARD"
) -> float:
    """Estimate the price of requests in S3's region.

    Args:
        get_count: Number of GETs.
        fetched_bytes: What they retrieve, all together.
        list_count: Number of listings; one lists up to 1,000 names.
        storage_class: Where the objects lie.

    Raises:
        InvalidInputError: The storage class is not in :data:`PRICES`.
    """
    price = PRICES.get(storage_class)
    if price is None:
        raise InvalidInputError(
            f"no price known for storage class {storage_class!r}; known: {', '.join(PRICES)}",
            kind="UnknownStorageClass",
        )
    gigabytes = fetched_bytes / BYTES_PER_PRICED_GB
    requests = get_count * price.dollars_per_million_gets + list_count * DOLLARS_PER_MILLION_LISTS
    return requests / 1e6 + gigabytes * price.dollars_per_gb_retrieved


def estimate_write_dollars(write_counts: Mapping[str, int]) -> float:
    """Estimate the price of writing requests.

    Args:
        write_counts: Number of PUTs and requests of uploads in parts, by storage class, a key of :data:`PRICES`.
    """
    return sum(count * PRICES[name].dollars_per_million_puts for name, count in write_counts.items()) / 1e6


def estimate_seconds(
    stages: Iterable[Sequence[int]],
    *,
    concurrency: int,
    first_byte_s: float = FIRST_BYTE_S,
    connection_bytes_per_s: float = CONNECTION_BYTES_PER_S,
) -> float:
    """Estimate the time from the first request sent to the last byte received.

    Each request takes ``first_byte_s`` plus its length over ``connection_bytes_per_s``; ``concurrency`` of them run at
    once, in the order of the plan, each starting as soon as one is done; a stage begins when the one before is over.
    Retries, a slow network of the machine and decoding are not in it.

    Args:
        stages: For each stage the lengths of its requests in bytes, in the order in which they are sent.
        concurrency: Requests in flight at once, at most.
        first_byte_s: Time from a request to the first byte of its answer.
        connection_bytes_per_s: Throughput of one connection.
    """
    return sum(
        _makespan_s([first_byte_s + length / connection_bytes_per_s for length in lengths_bytes], concurrency)
        for lengths_bytes in stages
        if lengths_bytes
    )


def _makespan_s(durations_s: list[float], concurrency: int) -> float:
    free_at_s = [0.0] * min(concurrency, len(durations_s))
    for duration_s in durations_s:
        heapq.heapreplace(free_at_s, free_at_s[0] + duration_s)
    return max(free_at_s)
