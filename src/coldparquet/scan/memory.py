"""Enforces the memory limit of a scan: grants leases in order of rank, by estimates that learn from decoded sizes."""

from __future__ import annotations

import asyncio
import heapq
from dataclasses import dataclass, field
from itertools import count

_WORKING_SHARE = 2
"""Decoding holds about twice its result: decompressed pages beside values, then all rows beside those that the
predicate leaves."""


class DecodedSizes:
    """Estimates of decoded sizes that learn from actual ones.

    Metadata knows the width of numbers, but hardly the length of the texts behind a dictionary.
    """

    def __init__(self) -> None:
        self._estimated_bytes = 0
        self._decoded_bytes = 0
        self._noted_bytes = 0

    def working_bytes(self, estimated_bytes: int) -> int:
        """Return how much memory to hold while decoding something with this estimated size."""
        seen = self._decoded_bytes / self._estimated_bytes if self._estimated_bytes else 1.0
        return round(estimated_bytes * seen) * _WORKING_SHARE

    def learn(self, *, estimated_bytes: int, decoded_bytes: int) -> None:
        """Record the actual size beside its estimate."""
        self._estimated_bytes += estimated_bytes
        self._decoded_bytes += decoded_bytes

    def have_grown(self, growth_bytes: int) -> bool:
        """Tell whether this much has been decoded since this was last true."""
        if self._decoded_bytes < self._noted_bytes + growth_bytes:
            return False
        self._noted_bytes = self._decoded_bytes
        return True


@dataclass(order=True, slots=True)
class _Claim:
    rank: int
    number: int
    """Among claims of the same rank, the earlier one comes first."""
    amount: int = field(compare=False)
    granted: asyncio.Future[None] = field(compare=False)


class Quota:
    """An amount that may be held at once, and the claims that wait for it.

    The rank of a claim is the position of its row group in consumption order. The claim with the lowest rank is granted
    first. While it does not fit, all claims behind it wait, even smaller ones: otherwise they could block the row group
    that is needed next forever.

    Args:
        limit: How much may be held, in any unit.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0
        self._most_held = 0
        self._urgent_rank = -1
        self._claims: list[_Claim] = []
        """A heap. Claims that were given up stay in it until they come first."""
        self._numbers = count()

    @property
    def most_held(self) -> int:
        """The largest amount that was held at once."""
        return self._most_held

    @property
    def is_short(self) -> bool:
        """Whether any claim waits."""
        return bool(self._claims)

    async def take(self, amount: int, *, rank: int) -> None:
        """Wait until the amount fits, and hold it. A cancelled call holds nothing."""
        claim = _Claim(rank, next(self._numbers), amount, asyncio.get_running_loop().create_future())
        heapq.heappush(self._claims, claim)
        self._grant()
        try:
            await claim.granted
        except asyncio.CancelledError:
            if not claim.granted.cancelled():  # it was granted and cancelled in the same moment
                self.hold(-amount)
            self._grant()  # claims behind this one may fit
            raise

    def hold(self, amount: int) -> None:
        """Hold more at once, regardless of the limit; a negative amount is given back."""
        self._held += amount
        self._most_held = max(self._most_held, self._held)
        if amount < 0 and self._claims:
            # Deferred: the caller that gives an answer's memory back holds that of its copies right afterwards.
            asyncio.get_running_loop().call_soon(self._grant)

    def hurry(self, rank: int) -> None:
        """Grant claims up to this rank from now on, even beyond the limit: the consumer waits for them."""
        self._urgent_rank = max(self._urgent_rank, rank)
        self._grant()

    def _grant(self) -> None:
        while self._claims:
            first = self._claims[0]
            if not first.granted.done():
                if self._held + first.amount > self._limit and first.rank > self._urgent_rank:
                    return
                self.hold(first.amount)
                first.granted.set_result(None)
            heapq.heappop(self._claims)


class Lease:
    """What one row group holds of a quota, so that all of it can be given back at once.

    Args:
        room: The quota.
        rank: Rank of the row group.
    """

    def __init__(self, room: Quota, *, rank: int) -> None:
        self.room = room
        self._rank = rank
        self._amount = 0
        self._is_released = False

    async def take(self, amount: int) -> None:
        """Wait until the amount fits, and hold it."""
        await self.room.take(amount, rank=self._rank)
        if self._is_released:
            self.room.hold(-amount)
        else:
            self._amount += amount

    def hold(self, amount: int) -> None:
        """Hold more at once, regardless of the limit; a negative amount is given back."""
        if not self._is_released:
            self._amount += amount
            self.room.hold(amount)

    def keep(self, amount: int) -> None:
        """Hold exactly this amount from now on."""
        self.hold(amount - self._amount)

    def release(self) -> None:
        """Give everything back."""
        self.keep(0)
        self._is_released = True
