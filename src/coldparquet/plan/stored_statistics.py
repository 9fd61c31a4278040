"""What a writer stored about the values of many chunks, or pages, of one column: the shape that both have.

``plan/statistics.py`` says how far it may be believed, once for chunks and pages alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class StoredBounds(Protocol):
    """One side's bounds as raw bytes; every array has shape ``(units,)``. See ``RawBounds``, which holds those of chunks."""

    @property
    def inlined(self) -> npt.NDArray[np.bool_]:
        """Whether ``raw`` holds the bytes of a bound."""

    @property
    def raw(self) -> npt.NDArray[np.uint64]:
        """The bytes of each bound in little-endian order, zeros behind its end."""

    def prefix_words(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
        """Return the first 8 bytes of each bound read big-endian, and its length, -1 where there is none."""

    def bytes_at(self, unit: int, /) -> bytes | None:
        """Return the bytes of one bound."""


class StoredStatistics(Protocol):
    """The statistics of one column; every array has shape ``(units,)``. ``ChunkColumn`` holds those of chunks."""

    @property
    def min(self) -> StoredBounds:
        """Lower bounds."""

    @property
    def max(self) -> StoredBounds:
        """Upper bounds."""

    @property
    def encodings(self) -> npt.NDArray[np.uint8]:
        """Mask of ``sidecar_layout.ENCODING_*``: those of the chunk."""

    @property
    def num_values(self) -> npt.NDArray[np.int64]:
        """Number of values, nulls included."""

    @property
    def null_count(self) -> npt.NDArray[np.int64]:
        """Number of nulls; 0 where it is unknown."""

    @property
    def has_null_count(self) -> npt.NDArray[np.bool_]:
        """Whether the number of nulls is known."""
