"""Run blocking work in a thread so that cancelling it leaves nothing half done, and wait in one for the event loop."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import wait
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

_Result = TypeVar("_Result")

_POLL_S = 0.1
"""How often a thread that waits for the event loop looks whether it should give up."""


async def run_to_end(work: Callable[[threading.Event], _Result]) -> _Result:
    """Run ``work`` in a thread; when cancelled, tell it to give up and wait until it has cleaned up.

    Args:
        work: Receives an event that is set on cancellation. It checks the event between its steps.
    """
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
    """Run a coroutine in the event loop, and wait for it in this thread, which is not the loop's; see :func:`run_to_end`.

    Raises:
        CancelledError: ``give_up`` was set.
    """
    future = asyncio.run_coroutine_threadsafe(coroutine, loop)
    while not wait([future], _POLL_S).done:
        if give_up.is_set():
            future.cancel()
            raise asyncio.CancelledError
    return future.result()


def _forget(thread: asyncio.Task[_Result]) -> None:
    """Take what a cancelled thread raised, which asyncio would complain about otherwise; nobody waits for it any more."""
    if not thread.cancelled():
        thread.exception()
