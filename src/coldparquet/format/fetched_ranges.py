"""Bytes of one object that were fetched in pieces, and where in them a range of the object lies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    IntArray: TypeAlias = npt.NDArray[np.int64]

NOT_FETCHED = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WantedRanges:
    """Ranges of one object to be fetched, in no particular order; they may repeat and overlap."""

    starts: IntArray
    """First byte of each range, shape ``(ranges,)``."""
    stops: IntArray
    """One past the last byte of each range."""


class FetchedRanges:
    """What was fetched so far, in rounds. Pieces of one round are disjoint; those of different rounds may overlap."""

    def __init__(self) -> None:
        self._rounds: list[_Round] = []
        self.data: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
        """All pieces, one after the other."""

    @property
    def round_count(self) -> int:
        """How many rounds were added."""
        return len(self._rounds)

    def bytes_at(self, start: int, stop: int) -> bytes | None:
        """Return one range of the object; None where not all of it is there."""
        (place,) = self.places(np.array([start]), np.array([stop])).tolist()
        return None if place == NOT_FETCHED else self.data[place : place + stop - start].tobytes()

    def add_round(self, pieces: Sequence[tuple[int, bytes]]) -> None:
        """Add the answers of one round of requests.

        Args:
            pieces: Where each piece begins in the object, and its bytes.
        """
        pieces = sorted(pieces, key=lambda piece: piece[0])
        starts = np.array([start for start, _ in pieces], np.int64)
        stops = starts + np.array([len(data) for _, data in pieces], np.int64)
        lengths = stops - starts
        begins_run = np.ones(len(starts), np.bool_)
        begins_run[1:] = starts[1:] != stops[:-1]
        runs = np.cumsum(begins_run) - 1
        # A range may reach over pieces that touch: they belong to one request that was split.
        run_stops = np.append(stops[:-1][begins_run[1:]], stops[-1:])
        places = len(self.data) + np.cumsum(lengths) - lengths
        self._rounds.append(_Round(starts=starts, reach=run_stops[runs], places=places))
        joined = np.frombuffer(b"".join(data for _, data in pieces), np.uint8)
        self.data = np.concatenate([self.data, joined])

    def missing(self, ranges: Sequence[tuple[IntArray, IntArray]]) -> WantedRanges | None:
        """Return those of some ranges that are not all there; None if nothing is missing.

        Args:
            ranges: Starts and stops, in any number of pieces.
        """
        starts = np.concatenate([np.empty(0, np.int64), *(begins for begins, _ in ranges)])
        stops = np.concatenate([np.empty(0, np.int64), *(ends for _, ends in ranges)])
        is_missing = self.places(starts, stops) == NOT_FETCHED
        return WantedRanges(starts=starts[is_missing], stops=stops[is_missing]) if is_missing.any() else None

    def places(self, starts: IntArray, stops: IntArray) -> IntArray:
        """Find where ranges of the object begin in ``data``; ``NOT_FETCHED`` where not all of a range is there.

        Args:
            starts: First byte of each range in the object, shape ``(ranges,)``.
            stops: One past the last byte of each range.
        """
        found = np.full(len(starts), NOT_FETCHED)
        for fetched in self._rounds:
            if len(fetched.starts):
                piece = np.maximum(np.searchsorted(fetched.starts, starts, side="right") - 1, 0)
                is_there = (fetched.starts[piece] <= starts) & (stops <= fetched.reach[piece])
                found = np.where(is_there, fetched.places[piece] + starts - fetched.starts[piece], found)
        return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Round:
    """The pieces of one round, ascending; every array has shape ``(pieces,)``."""

    starts: IntArray
    reach: IntArray
    """Up to where bytes are there without a gap, from the start of each piece on."""
    places: IntArray
    """Where each piece begins in the bytes of all rounds."""
