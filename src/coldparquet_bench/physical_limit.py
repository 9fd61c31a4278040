"""How fast a call could have been: only latency and bandwidth of the store, nothing else."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coldparquet_testing.simulator import ServedRequest


def longest_chain_s(requests: Iterable[ServedRequest], *, first_byte_s: float, bandwidth_bytes_per_s: float) -> float:
    """Return how long the costliest chain of requests takes of which each began when the one before it was over.

    Each request costs the latency of the store and the transfer of its body over one connection; requests beside such a
    chain cost no time of their own. For a reader in two round trips this is 2 x latency + bytes / bandwidth.
    """
    finished: list[float] = []
    best_s: list[float] = []
    # Of the chains that are over at a time the costliest one is kept, so that one look finds what a request can follow.
    for request in sorted(requests, key=lambda request: request.finished_s):
        behind = bisect_right(finished, request.started_s)
        own_s = first_byte_s + request.bytes_sent / bandwidth_bytes_per_s
        chain_s = own_s + (best_s[behind - 1] if behind else 0.0)
        finished.append(request.finished_s)
        best_s.append(max(chain_s, best_s[-1] if best_s else 0.0))
    return best_s[-1] if best_s else 0.0
