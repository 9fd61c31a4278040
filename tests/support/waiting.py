"""Waiting: for what other threads bring about, and in virtual time."""

from __future__ import annotations

import asyncio
import functools
import selectors
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

# --- Waiting for what other threads bring about, however busy the machine is ------------------------------------------


DEADLINE_S = 60
"""After so long it is not going to happen."""
_PAUSE_S = 0.005


async def eventually(condition: Callable[[], bool]) -> None:
    """Let the event loop run until the condition holds; fail if it never does."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline_s, "it did not happen"
        await asyncio.sleep(_PAUSE_S)


# --- An event loop whose clock jumps to the next timer, so that hours of waiting cost a test nothing ------------------


Result = TypeVar("Result")


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Whenever it would wait for a timer, the timer is due at once. There must be nothing else to wait for."""

    def __init__(self) -> None:
        super().__init__(_JumpingSelector(self))
        self.now_s = 0.0

    def time(self) -> float:
        return self.now_s


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._virtual_loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "the test waits for something that never comes"
        self._virtual_loop.now_s += timeout
        ready: list[tuple[selectors.SelectorKey, int]] = super().select(0)
        return ready


def run_in_virtual_time(test: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine on a loop of its own; no task of it may be left over."""

    async def checked() -> Result:
        result = await test
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return result

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(checked())


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Mark a test that runs on such a loop."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        run_in_virtual_time(test(*args, **kwargs))

    return run
