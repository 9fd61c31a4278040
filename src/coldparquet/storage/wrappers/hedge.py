"""A store that asks a second time for what takes unusually long, and takes the answer that comes first."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from coldparquet.errors import ColdParquetError
from coldparquet.storage.wrappers.hedge_pace import HedgePace
from coldparquet.storage.wrappers.retry import RetryStore
from coldparquet.storage.wrappers.wrapper import StoreWrapper

if TYPE_CHECKING:
    from collections.abc import Callable

    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.requests import FetchedRange, RangeRequest

_ATTEMPTS_OF_SECOND = 2


class HedgedStore(StoreWrapper):
    """Send slow GETs a second time; see :mod:`coldparquet.storage.wrappers.hedge_pace` for which, and how many.

    The second request has ``is_hedge`` set: it goes over connections of its own, because those of a pool that went bad tend
    to hang together. Whichever is answered first wins; the other one is cancelled, and gone before the answer is
    returned. Where one of the two fails, the other one is waited for; a second one that is refused is tried once more, as
    the first is still as slow as before. Nothing but GETs is sent twice.

    Args:
        store: Where the requests go; it ``has_spare_connections``. Closing this store closes it.
    """

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self._seconds = RetryStore(store, max_attempts=_ATTEMPTS_OF_SECOND)
        self._pace = HedgePace()
        self.sent_count = 0
        """Second requests that were sent."""
        self.won_count = 0
        """Second requests whose answers were taken."""

    async def get(self, request: RangeRequest) -> FetchedRange:
        """Fetch one range. 1 request; 2 where the first is slow."""
        loop = asyncio.get_running_loop()
        size_bytes = request.byte_range.length_bytes
        started_s = loop.time()
        slow_after_s = self._pace.slow_after_s(size_bytes)
        if slow_after_s is None:
            fetched = await self._store.get(request)
        else:
            race = _Race(self._store, self._seconds, request, may_start_second=self._pace.may_hedge)
            try:
                fetched = await race.run(loop.call_later(slow_after_s, race.start_second))
            finally:
                self.sent_count += race.has_second
            self.won_count += race.second_won
            if not race.was_slow:
                self._pace.note_in_time()
        self._pace.note_answer(size_bytes, loop.time() - started_s)
        return fetched


class _Race:
    """One GET and, if it is slow, a second one for the same bytes.

    The first one runs in the caller's own task, so that a GET in time costs a timer and no task. The second one's answer ends
    it in the way of ``asyncio.timeout``: the task is cancelled and, once the cancellation has arrived, uncancelled.

    Args:
        store: Where the first one goes.
        seconds: Where the second one goes.
        request: The first one.
        may_start_second: Asked once, when the first is slow.
    """

    __slots__ = (
        "_cancelling",
        "_has_ended_first",
        "_is_first_running",
        "_may_start_second",
        "_request",
        "_second",
        "_seconds",
        "_store",
        "_task",
        "second_won",
        "was_slow",
    )

    def __init__(
        self, store: ObjectStore, seconds: ObjectStore, request: RangeRequest, *, may_start_second: Callable[[], bool]
    ) -> None:
        self._store = store
        self._seconds = seconds
        self._request = request
        self._may_start_second = may_start_second
        self._task = cast("asyncio.Task[object]", asyncio.current_task())
        self._cancelling = self._task.cancelling()
        self._is_first_running = True
        self._has_ended_first = False
        """Whether the task was cancelled here, and not uncancelled yet."""
        self._second: asyncio.Task[FetchedRange] | None = None
        self.was_slow = False
        self.second_won = False

    @property
    def has_second(self) -> bool:
        """Whether a second request was sent."""
        return self._second is not None

    async def run(self, timer: asyncio.TimerHandle) -> FetchedRange:
        """Return the first good answer, or raise the first one's error.

        Args:
            timer: Calls :meth:`start_second`.
        """
        try:
            return await self._store.get(self._request)
        except asyncio.CancelledError:
            if not self._undo_cancellation() or self._second is None:
                raise
            return self._won_by(self._second)
        except ColdParquetError:
            self._is_first_running = False
            timer.cancel()
            if self._second is None or not await _succeeds(self._second):
                raise
            return self._won_by(self._second)
        finally:
            self._is_first_running = False
            timer.cancel()
            if self._second is not None:
                self._undo_cancellation()
                await _end(self._second)

    def start_second(self) -> None:
        """Note that the first is slow, and send the second if that may be."""
        self.was_slow = True
        if self._may_start_second():
            self._second = asyncio.create_task(self._send_second())
            self._second.add_done_callback(self._end_first)

    async def _send_second(self) -> FetchedRange:
        return await self._seconds.get(replace(self._request, is_hedge=True))

    def _end_first(self, second: asyncio.Task[FetchedRange]) -> None:
        """Let the second one's answer end the first. An error of it is of no interest."""
        if not second.cancelled() and second.exception() is None and self._is_first_running:
            self._has_ended_first = True
            self._task.cancel()

    def _undo_cancellation(self) -> bool:
        """Take back the cancellation of the task, if it was cancelled here; tell whether nobody else cancelled it."""
        if not self._has_ended_first:
            return False
        self._has_ended_first = False
        return self._task.uncancel() <= self._cancelling

    def _won_by(self, second: asyncio.Task[FetchedRange]) -> FetchedRange:
        self.second_won = True
        return second.result()


async def _succeeds(second: asyncio.Task[FetchedRange]) -> bool:
    await asyncio.wait([second])
    return not second.cancelled() and second.exception() is None


async def _end(second: asyncio.Task[FetchedRange]) -> None:
    """Cancel a request and wait until it is gone, also when cancelled meanwhile."""
    if second.done():
        return
    second.cancel()
    try:
        await asyncio.wait([second])
    except asyncio.CancelledError:
        await asyncio.wait([second])
        raise
