"""How much memory decoding takes: estimated before, corrected by what was seen."""

from __future__ import annotations

_WORKING_SHARE = 2
"""Decoding holds about twice what it yields: the pages decompressed beside the values, then the rows beside those that
the predicate leaves."""


class DecodedSizes:
    """Estimates of decoded sizes that learn from what came out.

    Metadata knows how wide numbers are, but hardly how long the texts behind a dictionary.
    """

    def __init__(self) -> None:
        self._estimated_bytes = 0
        self._decoded_bytes = 0
        self._looked_at_bytes = 0

    def working_bytes(self, estimated_bytes: int) -> int:
        """Return how much memory to hold while something is decoded that was estimated to yield so much."""
        seen = self._decoded_bytes / self._estimated_bytes if self._estimated_bytes else 1.0
        return round(estimated_bytes * seen) * _WORKING_SHARE

    def learn(self, *, estimated_bytes: int, decoded_bytes: int) -> None:
        """Note what came of an estimate."""
        self._estimated_bytes += estimated_bytes
        self._decoded_bytes += decoded_bytes

    def have_grown(self, growth_bytes: int) -> bool:
        """Tell whether so much has been decoded since this last was true."""
        if self._decoded_bytes < self._looked_at_bytes + growth_bytes:
            return False
        self._looked_at_bytes = self._decoded_bytes
        return True
