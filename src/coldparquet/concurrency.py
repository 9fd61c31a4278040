"""Running several coroutines at once, so that a failure leaves none of them behind."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

Result = TypeVar("Result")


async def gather_or_cancel(coroutines: Sequence[Coroutine[object, object, Result]]) -> list[Result]:
    """Run coroutines at once and return their results in order.

    When one fails, the others are cancelled and awaited, and its error is raised as it is: callers catch
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
