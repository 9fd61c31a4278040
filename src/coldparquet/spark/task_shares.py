"""How many tasks a scan is given, and which pieces of its plan each of them gets."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.pieces import ScanPiece

BYTES_PER_TASK = 128 * 1024 * 1024
"""Compressed and decoded bytes that a task is worth, if nobody says how many there shall be. They take 0.4 s or more; a Python task
costs 25-30 ms whatever it does. Spark's own tasks read 128 MB of compressed bytes alone."""

_UNBOUNDED_TASKS = 128
"""So many tasks of that size are made in any case. Of more work each task gets more: a data source is planned in a process that
Spark (4.1 to 4.3 at least) tells neither its settings nor how many cores there are, so that it cannot make 3 tasks per core."""


def default_task_count(worthwhile: int) -> int:
    """Return how many tasks to make of so many that would be worth their cost, where nobody says how many cores there are.

    The square root lets both grow, the tasks and what each does: 400 GB of compressed and decoded bytes become 617 tasks of
    about 2 seconds, which are 3 for each of 200 cores, and cost 1.5 % more on two of them.
    """
    if worthwhile <= _UNBOUNDED_TASKS:
        return worthwhile
    return math.isqrt(_UNBOUNDED_TASKS * worthwhile)


def shares_of(pieces: Sequence[ScanPiece], *, most: int | None, together: bool = False) -> list[list[ScanPiece]]:
    """Give pieces to tasks.

    Args:
        pieces: In table order.
        most: Largest number of tasks; None leaves it to the size, see :func:`default_task_count`.
        together: Whether small neighbours become one task: the pieces of many small tables.

    Returns:
        For each task its pieces, in table order.
    """
    weights = [max(piece.fetched_bytes, 1) for piece in pieces]
    # Decoded bytes are about three times the fetched ones.
    worthwhile = max(1, -(-sum(weights) * 4 // BYTES_PER_TASK)) if together else len(pieces)
    count = default_task_count(worthwhile) if most is None else min(most, worthwhile)
    if count >= len(pieces):
        return [[piece] for piece in pieces]
    even_share = sum(weights) / count
    shares: list[list[ScanPiece]] = []
    weight_before = 0
    for piece, weight in zip(pieces, weights, strict=True):
        if not shares or weight_before >= len(shares) * even_share:
            shares.append([])
        shares[-1].append(piece)
        weight_before += weight
    return shares
