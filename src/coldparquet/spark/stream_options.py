"""The options of a stream, beside those of every scan (:mod:`coldparquet.spark.options`).

| option | meaning |
|---|---|
| ``on_change`` | ``error`` (default), ``ignore``, ``reread`` or ``append``: what to do about partitions that were rewritten after their rows had been handed over |
| ``starting_from`` | ``earliest`` (default): all rows of the table; ``latest``: only those that are added after the stream was first started |
| ``maxPartitionsPerTrigger`` | most partitions of a batch |
| ``maxRowsPerTrigger`` | most rows of a batch, before ``where`` is applied; a partition may come in several batches |
| ``maxBytesPerTrigger`` | most bytes of Parquet files of a batch, such as ``500MB``, in proportion to the rows of a partition that is cut |
| ``poll_seconds`` | least time between two looks at the table, by default 1: Spark's default trigger asks for news 100 times a second, and a look takes 1 listing and 2 small requests |

Names are the same in letters of any case. Several limits hold together. Row groups that a limit cuts are fetched for both
batches, so that the first limit is the cheapest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self, TypeAlias, get_args

from coldparquet.byte_sizes import parse_byte_count
from coldparquet.catalog.table_progress import ON_CHANGE, StepLimit
from coldparquet.spark.option_reading import OptionReading, one_of, positive_count

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coldparquet.catalog.table_progress import OnChange

StartingFrom: TypeAlias = Literal["earliest", "latest"]
_POLL_S = 1.0

MOST_PARTITIONS = "maxPartitionsPerTrigger"
MOST_ROWS = "maxRowsPerTrigger"
MOST_BYTES = "maxBytesPerTrigger"

STREAM_OPTIONS = frozenset(
    {"on_change", "starting_from", "poll_seconds", MOST_PARTITIONS.lower(), MOST_ROWS.lower(), MOST_BYTES.lower()}
)
"""Names in lower case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """How a stream goes on."""

    on_change: OnChange
    starting_from: StartingFrom
    limit: StepLimit
    """Of one batch."""
    poll_s: float
    """Least time between two looks at the table."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Understand the options of a stream; others are not looked at.

        Args:
            options: As Spark hands them over.

        Raises:
            InvalidInputError: A value is none that the option takes (kind ``InvalidOption``).
        """
        read = OptionReading(options)
        poll_s = read.one("poll_seconds", _seconds)
        return cls(
            on_change=read.one("on_change", one_of(*ON_CHANGE)) or "error",
            starting_from=read.one("starting_from", one_of(*get_args(StartingFrom))) or "earliest",
            limit=StepLimit(
                partitions=read.one(MOST_PARTITIONS, positive_count),
                rows=read.one(MOST_ROWS, positive_count),
                compressed_bytes=read.one(MOST_BYTES, _byte_limit),
            ),
            poll_s=_POLL_S if poll_s is None else poll_s,
        )


def _seconds(text: str) -> float:
    message = "it must be a number of seconds, 0 or more"
    try:
        seconds = float(text)
    except ValueError:
        raise ValueError(message) from None
    if not 0 <= seconds < float("inf"):
        raise ValueError(message)
    return seconds


def _byte_limit(text: str) -> int:
    limit_bytes = parse_byte_count(text)
    if limit_bytes < 1:
        raise ValueError("it must be at least 1 byte")
    return limit_bytes
