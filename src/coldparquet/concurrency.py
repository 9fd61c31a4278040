"""Runs coroutines in parallel, so that a failure leaves none behind; threads of a table; the loop of blocking calls."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar, cast

from coldparquet.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence
    from concurrent.futures import Future


Item = TypeVar("Item")
Result = TypeVar("Result")
First = TypeVar("First")
Second = TypeVar("Second")


_idle_threads: dict[int, ThreadPoolExecutor] = {}
"""By their number: those that a closed table has left. Starting a thread takes as long as planning a read."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle_threads.clear)


class TableThreads(Executor):
    """The threads that plan and decode for one table. It refuses work that no thread would do, and says why.

    Args:
        thread_count: Largest number of threads; None means one per processor.
    """

    def __init__(self, thread_count: int | None) -> None:
        self._thread_count = thread_count or os.cpu_count() or 1
        idle: ThreadPoolExecutor | None = _idle_threads.pop(self._thread_count, None)
        self._threads = idle or ThreadPoolExecutor(self._thread_count, "coldparquet-decode")
        self._process_id = os.getpid()
        self._to_leave = [self._threads]
        """Empty once the table is closed: of several closing it, one takes them out."""

    def submit(self, fn: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Future[Result]:
        """Submit a call."""
        if not self._to_leave:
            raise InvalidInputError("the table was closed; open it again to read it", kind="TableClosed")
        if self._process_id != os.getpid():  # a forked process inherits the object but not the threads
            raise InvalidInputError(
                "the table was opened before this process was forked; open it again in this process",
                kind="TableOfAnotherProcess",
            )
        return self._threads.submit(fn, *args, **kwargs)

    def close(self) -> None:
        """Accept no more work, and leave the threads to the next table; accepted work is completed for its callers."""
        if self._process_id != os.getpid():
            return
        with suppress(IndexError):
            threads = self._to_leave.pop()
            if _idle_threads.setdefault(self._thread_count, threads) is not threads:
                threads.shutdown(wait=False)


async def gather_or_cancel(coroutines: Sequence[Coroutine[object, object, Result]]) -> list[Result]:
    """Run coroutines in parallel and return their results in order.

    When one fails, the others are cancelled and awaited. Its error is raised unchanged: callers catch
    ``NotFoundError``, not a group with one inside.
    """
    if len(coroutines) == 1:
        return [await coroutines[0]]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in coroutines]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from errors.exceptions[0].__cause__
    return [task.result() for task in tasks]


async def map_or_cancel(
    work: Callable[[Item], Awaitable[Result]], items: Sequence[Item], *, at_once: int
) -> list[Result]:
    """Work on items, ``at_once`` of them at a time, in their order; results and errors as :func:`gather_or_cancel`."""
    slots = asyncio.Semaphore(at_once)

    async def work_on(item: Item) -> Result:
        async with slots:
            return await work(item)

    return await gather_or_cancel([work_on(item) for item in items])


async def both(
    first: Coroutine[object, object, First], second: Coroutine[object, object, Second]
) -> tuple[First, Second]:
    """Run two coroutines with different results in parallel; see :func:`gather_or_cancel`."""
    results = await gather_or_cancel(cast("list[Coroutine[object, object, Any]]", [first, second]))
    return results[0], results[1]


class BackgroundLoop:
    """An event loop in a daemon thread of its own, started on first use and again after a fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process_id = -1
        self._loop: asyncio.AbstractEventLoop | None = None
        self._finishing: set[asyncio.Task[object]] = set()

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine in the background loop and wait for its result; an interrupt cancels it."""
        loop = self._running_loop()
        if self.is_here():
            coroutine.close()
            raise InvalidInputError(
                "coldparquet.sync, or another blocking call, was used in its own event loop and would wait for itself; use"
                " the async API there"
            )
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def finish(self, coroutine: Coroutine[Any, Any, object]) -> None:
        """Run what ends something, and wait for it. In the loop itself, where garbage may be collected, only begin it."""
        if not self.is_here():
            self.run(coroutine)
            return
        task = asyncio.get_running_loop().create_task(coroutine)
        self._finishing.add(task)
        task.add_done_callback(self._finishing.discard)

    def is_here(self) -> bool:
        """Tell whether the caller runs in this loop."""
        try:
            return self.runs(asyncio.get_running_loop())
        except RuntimeError:
            return False

    def runs(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Tell whether a loop is this one, and runs."""
        return loop is self._loop and self._process_id == os.getpid()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            # A forked child inherits the object but not the thread.
            if self._loop is None or self._process_id != os.getpid():
                self._loop = asyncio.new_event_loop()
                self._process_id = os.getpid()
                threading.Thread(target=self._loop.run_forever, name="coldparquet-sync", daemon=True).start()
            return self._loop


background = BackgroundLoop()
"""Does the work of all blocking calls of this process."""


_Result = TypeVar("_Result")

_POLL_S = 0.1
"""How often a thread that waits for the event loop checks whether it should give up."""


async def run_to_end(work: Callable[[threading.Event], _Result]) -> _Result:
    """Run ``work`` in a thread; when cancelled, tell it to give up and wait until it has cleaned up."""
    give_up = threading.Event()
    thread = asyncio.ensure_future(asyncio.to_thread(work, give_up))
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        give_up.set()
        thread.add_done_callback(_forget)
        # A second cancellation ends this wait, not the thread: it still cleans up after itself.
        await asyncio.wait([thread])
        raise


def wait_in_thread(
    coroutine: Coroutine[Any, Any, _Result], loop: asyncio.AbstractEventLoop, give_up: threading.Event
) -> _Result:
    """Run a coroutine in the event loop, and wait in this thread, which is another one; see :func:`run_to_end`."""
    future = asyncio.run_coroutine_threadsafe(coroutine, loop)
    while not wait([future], _POLL_S).done:
        if give_up.is_set():
            future.cancel()
            raise asyncio.CancelledError
    return future.result()


def _forget(thread: asyncio.Task[_Result]) -> None:
    """Retrieve the error of a cancelled thread, which asyncio would otherwise log; no task waits for it any more."""
    if not thread.cancelled():
        thread.exception()
