"""Stores that misbehave on purpose, for tests of code that reads through a store.

    store = FaultStore(MemoryStore(objects), scripted({2: ShortBody(missing_bytes=1)}))
    store = LatencyStore(MemoryStore(objects), first_byte_s=0.03, bandwidth_bytes_per_s=55e6)

    store = DyingStore(MemoryStore(), at_call=7, when="after")

All wrap any store, and are stores themselves.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from coldparquet.errors import ColdParquetError, NotFoundError, StorageError
from coldparquet.records import replace
from coldparquet.storage.base import StoreWrapper

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from coldparquet.storage.base import Answer, Call, ObjectStore
    from coldparquet.storage.requests import FetchedRange, RangeRequest

_AT_ONCE = frozenset({"abort upload", "remove unfinished", "delete", "restore", "change class"})
"""Calls that :class:`LatencyStore` does not delay: no reader or writer waits for them one by one."""


class LatencyStore(StoreWrapper):
    """Answers as another store does, but with an object store's latency.

    Args:
        store: Where the requests go. Closing this store closes it.
        first_byte_s: Delay of GETs, questions about objects, listings and writes.
        bandwidth_bytes_per_s: Transfer rate of each request on its own; None for no limit.
        sleep: How to wait; a test may put a fake clock here.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        first_byte_s: float,
        bandwidth_bytes_per_s: float | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        super().__init__(store)
        self._first_byte_s = first_byte_s
        self._bandwidth_bytes_per_s = bandwidth_bytes_per_s
        self._sleep = sleep

    async def get(self, request: RangeRequest) -> FetchedRange:
        """Fetch, then wait as long as the transfer would take."""
        fetched = await self._store.get(request)
        await self._delay(len(fetched.data))
        return fetched

    async def send(self, call: Call[Answer]) -> Answer:
        """Wait as long as the first byte, and the transfer of what is written, would take; then make the call."""
        if call.operation not in _AT_ONCE:
            await self._delay(call.size_bytes)
        return await call.make(self._store)

    async def _delay(self, transferred_bytes: int) -> None:
        transfer_s = transferred_bytes / self._bandwidth_bytes_per_s if self._bandwidth_bytes_per_s else 0.0
        await self._sleep(self._first_byte_s + transfer_s)


@dataclass(frozen=True, slots=True)
class ShortBody:
    """The connection breaks: the last bytes of the answer are missing."""

    missing_bytes: int = 1


@dataclass(frozen=True, slots=True)
class Failure:
    """The request raises this error; a new copy of it every time."""

    error: ColdParquetError


@dataclass(frozen=True, slots=True)
class Hang:
    """No answer ever comes; the request ends only by being cancelled."""


@dataclass(frozen=True, slots=True)
class ChangedETag:
    """The object was replaced: the same bytes, another version."""

    etag: str = "replaced"


Fault = ShortBody | Failure | Hang | ChangedETag


class FaultStore(StoreWrapper):
    """Answers GETs as another store does, except where ``choose`` returns a fault. Listings and writes pass untouched.

    Args:
        store: Where the requests go. Closing this store closes it.
        choose: Receives the number of the GET, from 0 in order of arrival, and the request; returns the fault to
            inject, or None. :func:`scripted`, :func:`seeded` and :func:`missing_after` make such functions.
    """

    def __init__(self, store: ObjectStore, choose: Callable[[int, RangeRequest], Fault | None]) -> None:
        super().__init__(store)
        self._choose = choose
        self.get_count = 0
        self.hanging_count = 0

    async def get(self, request: RangeRequest) -> FetchedRange:
        """Fetch one range, or suffer the fault chosen for it."""
        number = self.get_count
        self.get_count += 1
        match self._choose(number, request):
            case Failure(error):
                raise type(error)(error.message, kind=error.kind, path=error.path or request.path, **error.details)
            case Hang():
                await self._hang()
            case ShortBody(missing_bytes):
                fetched = await self._store.get(request)
                return replace(fetched, data=fetched.data[: max(0, len(fetched.data) - missing_bytes)])
            case ChangedETag(etag):
                fetched = await self._store.get(replace(request, if_match=None))
                return replace(fetched, etag=etag)
        return await self._store.get(request)

    async def _hang(self) -> None:
        self.hanging_count += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.hanging_count -= 1


class DyingStore(StoreWrapper):
    """Answers as another store does, until the process that uses it is killed: then all calls fail.

    Args:
        store: Where the requests go. Closing this store closes it.
        at_call: Number of the call during which the process dies, from 0 in order of arrival; None never dies.
        when: Whether that call fails before it reaches the store, or after the store has done it, without an answer.
    """

    def __init__(
        self, store: ObjectStore, *, at_call: int | None = None, when: Literal["before", "after"] = "before"
    ) -> None:
        super().__init__(store)
        self._at_call = at_call
        self._dies_after = when == "after"
        self.call_count = 0
        self.is_dead = False

    async def send(self, call: Call[Answer]) -> Answer:
        """Make a call, or die."""
        number = self.call_count
        self.call_count += 1
        if self.is_dead:
            raise _killed()
        if number != self._at_call:
            return await call.make(self._store)
        self.is_dead = True
        if self._dies_after:
            await call.make(self._store)
        raise _killed()


def _killed() -> StorageError:
    return StorageError("the process was killed", kind="Killed")


def scripted(faults: Mapping[int, Fault]) -> Callable[[int, RangeRequest], Fault | None]:
    """Choose faults by the number of the GET, from 0."""
    return lambda number, _request: faults.get(number)


def seeded(seed: int, *, probability: float, faults: Sequence[Fault]) -> Callable[[int, RangeRequest], Fault | None]:
    """Choose one of ``faults`` at random, with the same choices for the same seed."""
    generator = random.Random(seed)  # noqa: S311 - faults need repeatable chance, not secrecy

    def choose(_number: int, _request: RangeRequest) -> Fault | None:
        strikes = generator.random() < probability
        fault = generator.choice(faults)
        return fault if strikes else None

    return choose


def missing_after(get_count: int) -> Callable[[int, RangeRequest], Fault | None]:
    """Let this many GETs pass; every later one finds its object missing."""
    gone = Failure(NotFoundError("there is no such object"))
    return lambda number, _request: gone if number >= get_count else None
