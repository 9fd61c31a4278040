"""Blocking work that is cancelled: it ends, and is not heard of again."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import pytest

from coldparquet.concurrency import run_to_end


async def test_what_cancelled_work_raises_is_not_complained_about() -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    has_begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    def work(give_up: threading.Event) -> None:
        loop.call_soon_threadsafe(has_begun.set)
        give_up.wait()
        raise OSError("while giving up")

    task = asyncio.create_task(run_to_end(work))
    await has_begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    del task
    gc.collect()
    await asyncio.sleep(0)
    assert complaints == []
