"""What is left behind when something is over: tasks of a scan, file handles of the process."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_owner: ContextVar[object] = ContextVar("owner", default=None)

_SETTLING_ROUNDS = 50
"""Turns of the event loop that closing connections may take."""


class TaskWatch:
    """Knows which tasks began within which block, however deep; installed in the running event loop."""

    def __init__(self) -> None:
        self._tasks: dict[object, set[asyncio.Task[Any]]] = {}
        asyncio.get_running_loop().set_task_factory(self._make_task)  # type: ignore[arg-type]  # the stubs do not know its settings

    @contextmanager
    def owned(self) -> Iterator[object]:
        """Note the tasks that begin within the block; ask with its value whether one is left."""
        owner = object()
        self._tasks[owner] = set()
        token = _owner.set(owner)
        try:
            yield owner
        finally:
            _owner.reset(token)

    async def leftovers(self, owner: object) -> list[str]:
        """Return the tasks of a block that are still running after a moment, as text; its tasks are then forgotten."""
        tasks = self._tasks.pop(owner)
        for _ in range(_SETTLING_ROUNDS):
            if all(task.done() for task in tasks):
                return []
            await asyncio.sleep(0)
        return [repr(task) for task in tasks if not task.done()]

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **settings: Any
    ) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **settings)
        if (owner := _owner.get()) in self._tasks:
            self._tasks[owner].add(task)
        return task


async def settled_file_handles(limit: int) -> list[str]:
    """Return what the open file handles of this process point to, once they are no more than ``limit`` or time is up."""
    handles = open_file_handles()
    for _ in range(_SETTLING_ROUNDS):
        if len(handles) <= limit:
            break
        await asyncio.sleep(0.02)
        handles = open_file_handles()
    return handles


def open_file_handles() -> list[str]:
    """Return what the open file handles of this process point to, after garbage was collected."""
    gc.collect()
    handles = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - entries vanish while they are listed
        try:
            handles.append(os.readlink(f"/proc/self/fd/{name}"))  # noqa: PTH115
        except FileNotFoundError:
            continue
    return handles
