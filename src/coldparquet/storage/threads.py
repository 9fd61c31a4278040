"""Run blocking work in a thread so that cancelling it leaves nothing half done."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_Result = TypeVar("_Result")


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


def _forget(thread: asyncio.Task[_Result]) -> None:
    """Take what a cancelled thread raised, which asyncio would complain about otherwise; nobody waits for it any more."""
    if not thread.cancelled():
        thread.exception()
