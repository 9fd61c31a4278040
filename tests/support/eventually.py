"""Waiting for what other threads bring about, however busy the machine is."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

DEADLINE_S = 60
"""After so long it is not going to happen."""
_PAUSE_S = 0.005


async def eventually(condition: Callable[[], bool]) -> None:
    """Let the event loop run until the condition holds; fail if it never does."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline_s, "it did not happen"
        await asyncio.sleep(_PAUSE_S)
