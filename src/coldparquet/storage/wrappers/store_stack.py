"""What lies between whoever reads and the store: patience, limits and the ledger, in the one order that makes sense.

From the top down:

* RetryStore waits outside of the limits, so that a request that waits for its next attempt is in nobody's way.
* LimitedStore counts a GET once, whether it is hedged or not, and sees every attempt that the store turns away.
* HedgedStore races requests that have been let through: a second one never waits for a turn.
* TraceStore, the ledger, sees every request that is sent, second ones and further attempts included.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from coldparquet.storage.wrappers.hedge import HedgedStore
from coldparquet.storage.wrappers.limit import LimitedStore
from coldparquet.storage.wrappers.measured_speed import SpeedMeter
from coldparquet.storage.wrappers.retry import RetryStore
from coldparquet.storage.wrappers.trace import TraceStore

if TYPE_CHECKING:
    from coldparquet.options import StoreOptions
    from coldparquet.storage.base import ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStack:
    """A store with everything that requests pass through on their way to it."""

    store: ObjectStore
    """The top of the stack: where requests go in. Closing it closes the store at the bottom."""
    trace: TraceStore
    """Sees every request as it is sent: second attempts are requests of their own."""
    meter: SpeedMeter
    """Knows how fast the store answers."""
    retries: RetryStore
    """Knows how many requests were sent again."""
    limits: LimitedStore
    """Knows how many requests are in flight, and how many may be."""
    hedges: HedgedStore | None
    """Knows how many second requests were sent and won; None where none are sent."""


def stack_store(store: ObjectStore, *, store_options: StoreOptions, max_concurrency: int) -> StoreStack:
    """Put the wrappers that every reader and writer needs on a store.

    Args:
        store: Where the requests end up.
        store_options: How patient to be.
        max_concurrency: Requests in flight at once, at most.
    """
    meter = SpeedMeter(store)
    trace = TraceStore(store, observe=meter.note)
    hedges = HedgedStore(trace) if store_options.hedging and store.has_spare_connections else None
    limits = LimitedStore(hedges or trace, max_concurrency=max_concurrency)
    retries = RetryStore(limits, max_attempts=store_options.max_attempts)
    return StoreStack(store=retries, trace=trace, meter=meter, retries=retries, limits=limits, hedges=hedges)
