"""A plan on its way from the process that looks up the columns to the one that plans. Importing this loads nothing else."""

from __future__ import annotations

import time
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.types import StructType

_EARLY_PLAN_LASTS_S = 60
"""A DataFrame that is loaded and queried by one script is planned once; who comes back to it later sees the table as it is then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedShares:
    """A plan, cut."""

    shares: tuple[tuple[bytes, ...], ...]
    """For each task its pieces; at least one task, so that there is somebody to carry the explanation."""
    explanation: bytes
    """Text, compressed; see :func:`explanation_text`."""

    @classmethod
    def of(cls, shares: Sequence[tuple[bytes, ...]], explanation: str) -> Self:
        """Take the pieces of each task, and what the plan says."""
        return cls(shares=tuple(shares) or ((),), explanation=zlib.compress(explanation.encode()))


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyPlan:
    """A plan that was made when the columns were looked up: Spark does that in one process, and plans in another."""

    schema: str
    """The columns, as :meth:`StructType.json` writes them."""
    shares: PlannedShares
    made_s: float
    """Unix time."""

    def shares_for(self, schema: StructType) -> PlannedShares | None:
        """Return the plan if it is of these columns and still new, else None."""
        is_new = abs(time.time() - self.made_s) <= _EARLY_PLAN_LASTS_S
        return self.shares if is_new and self.schema == schema.json() else None


def explanation_text(explanation: bytes) -> str:
    """Return the text of :attr:`PlannedShares.explanation`."""
    return zlib.decompress(explanation).decode()
