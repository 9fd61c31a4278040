"""Waiting until restored copies are there: looks at the objects with growing pauses between them."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coldparquet.concurrency import gather_or_cancel
from coldparquet.errors import ArchivedObjectError
from coldparquet.plan.wording import few_names, plural
from coldparquet.restoring.archive_state import is_being_restored, needs_restore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.objects import ObjectInfo

FIRST_PAUSE_S = 2.0
"""A restore that somebody asked for earlier may be nearly over."""

_LONGEST_PAUSE_S = 120.0
_PAUSE_GROWTH = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreProgress:
    """How far a restore has come."""

    ready_objects: int
    total_objects: int
    waited_s: float
    """Since waiting began."""
    pause_s: float
    """Until the next look; 0 when all are ready."""


async def wait_until_restored(
    store: ObjectStore,
    paths: Sequence[str],
    *,
    timeout_s: float,
    first_pause_s: float,
    on_progress: Callable[[RestoreProgress], None] | None = None,
) -> list[ObjectInfo]:
    """Wait until all objects can be read.

    Requests: 1 for each object that is not ready yet, all at once, at once and after every pause. Pauses grow to 2 minutes.

    Args:
        store: Where the objects lie.
        paths: The objects.
        timeout_s: Longest wait. The objects are looked at once at least.
        first_pause_s: Time until the second look.
        on_progress: Called after every look.

    Returns:
        What the last look has shown of each object, in the order of ``paths``.

    Raises:
        ArchivedObjectError: Time is up (kind ``RestoreNotFinished``), or the restore of an object is not under way any more:
            the copy has expired (kind ``RestoreExpired``).
        NotFoundError: An object is gone.
        AccessError: The store refused.
        StorageError: The store failed.
    """
    started_s = time.monotonic()
    pause_s = first_pause_s
    ready: dict[str, ObjectInfo] = {}
    while True:
        missing = [path for path in dict.fromkeys(paths) if path not in ready]
        infos = await gather_or_cancel([store.info(path) for path in missing])
        ready |= {path: info for path, info in zip(missing, infos, strict=True) if not needs_restore(info)}
        left = [path for path in missing if path not in ready]
        waited_s = time.monotonic() - started_s
        if on_progress is not None:
            total = len(ready) + len(left)
            shown_pause_s = pause_s if left else 0.0
            on_progress(
                RestoreProgress(ready_objects=len(ready), total_objects=total, waited_s=waited_s, pause_s=shown_pause_s)
            )
        if not left:
            return [ready[path] for path in paths]
        _refuse_lost_restores([info for info in infos if info.path in left])
        if waited_s + pause_s > timeout_s:
            raise ArchivedObjectError(
                f"{plural(len(left), 'object')} of {len(ready) + len(left):,} could not be read yet after {waited_s:,.0f} s:"
                f" {few_names(left)}; the restore goes on, wait for it again",
                kind="RestoreNotFinished",
                path=left[0],
                paths=left,
            )
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * _PAUSE_GROWTH, _LONGEST_PAUSE_S)


def _refuse_lost_restores(waiting: Sequence[ObjectInfo]) -> None:
    lost = [info.path for info in waiting if not is_being_restored(info)]
    if lost:
        raise ArchivedObjectError(
            f"no restore of {plural(len(lost), 'object')} is under way: {few_names(lost)}; the restored copies have expired,"
            " or nobody has asked for them: ask for the restore again",
            kind="RestoreExpired",
            path=lost[0],
            paths=lost,
        )
