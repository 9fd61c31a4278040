"""A plan on its way from the process that looks up the columns to the one that plans, cut into tasks. Importing it loads little."""

from __future__ import annotations

import math
import time
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.types import StructType

    from coldparquet.pieces import ScanPiece


_EARLY_PLAN_LASTS_S = 60
"""A DataFrame that one script loads and queries is planned once; a query after this time gets the table's newer
state."""


def cost_in_ui(*, planning_requests: int, requests: int, fetched_bytes: int, dollars: float | None) -> dict[str, int]:
    """Return what Spark's UI shows, by the names of PlannedCost.java; no dollars where a price is not known."""
    priced = {} if dollars is None else {"nanodollars": round(dollars * 1e9)}
    return {"planning_requests": planning_requests, "requests": requests, "bytes": fetched_bytes} | priced


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedShares:
    """A plan, cut into the shares of tasks."""

    shares: tuple[tuple[bytes, ...], ...]
    """The pieces of each task; at least one task, to carry the explanation."""
    explanation: bytes
    """Text, compressed; see :func:`explanation_text`."""
    fetched_bytes: int
    """What all tasks together will fetch."""
    cost: dict[str, int]
    """Made by :func:`cost_in_ui`."""

    @classmethod
    def of(cls, shares: Sequence[Sequence[ScanPiece]], explanation: str, cost: dict[str, int]) -> Self:
        """Combine the pieces of each task with the plan's explanation and cost."""
        return cls(
            shares=tuple(tuple(piece.to_bytes() for piece in share) for share in shares) or ((),),
            explanation=zlib.compress(explanation.encode()),
            fetched_bytes=sum(piece.fetched_bytes for share in shares for piece in share),
            cost=cost,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyPlan:
    """A plan made with the column lookup: Spark looks up columns in one process, and plans in another."""

    schema: str
    """The columns, as :meth:`StructType.json` writes them."""
    shares: PlannedShares
    made_s: float
    """Unix time."""

    def shares_for(self, schema: StructType) -> PlannedShares | None:
        """Return the plan if it has these columns and is still new, else None."""
        is_new = abs(time.time() - self.made_s) <= _EARLY_PLAN_LASTS_S
        return self.shares if is_new and self.schema == schema.json() else None


def explanation_text(explanation: bytes) -> str:
    """Return the text of :attr:`PlannedShares.explanation`."""
    return zlib.decompress(explanation).decode()


BYTES_PER_TASK = 128 * 1024 * 1024
"""Compressed and decoded bytes per task, if the number of tasks is not given. They take 0.4 s or more; a Python task
always costs 25-30 ms. Spark's own tasks read 128 MB of compressed bytes alone."""


_UNBOUNDED_TASKS = 128
"""Number of tasks of that size that is always allowed. Beyond it each task gets more work. A data source is planned in
a process to which Spark (4.1 to 4.3 at least) passes neither its settings nor the number of cores, so 3 tasks per core
is no option."""


def default_task_count(worthwhile: int) -> int:
    """Return the number of tasks, from the number that would be worth their cost, where the number of cores is unknown.

    The square root lets both the tasks and their size grow. 400 GB of compressed and decoded bytes become 617 tasks of
    about 2 seconds. Those are 3 for each of 200 cores, and cost 1.5 % more on two of them.
    """
    if worthwhile <= _UNBOUNDED_TASKS:
        return worthwhile
    return math.isqrt(_UNBOUNDED_TASKS * worthwhile)


def growing_shares(pieces: Sequence[ScanPiece]) -> list[list[ScanPiece]]:
    """Distribute small pieces over tasks of which Spark may run only the first ones: one piece, then twice as many."""
    shares: list[list[ScanPiece]] = []
    start, count = 0, 1
    while start < len(pieces):
        share: list[ScanPiece] = []
        fetched_bytes = 0
        for piece in pieces[start : start + count]:
            share.append(piece)
            fetched_bytes += piece.fetched_bytes
            if fetched_bytes * 4 >= BYTES_PER_TASK:
                break
        shares.append(share)
        start, count = start + len(share), count * 2
    return shares


def shares_of(pieces: Sequence[ScanPiece], *, most: int | None, together: bool = False) -> list[list[ScanPiece]]:
    """Distribute pieces over tasks."""
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
