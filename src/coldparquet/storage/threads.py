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
        # A second cancellation ends this wait, not the thread: it still cleans up after itself.
        await asyncio.wait([thread])
        raise
