"""Numbers as byte planes: first the lowest bytes of all of them, then the next ones and so on.

Numbers that are alike have mostly equal bytes in every plane, of which little is left when they are compressed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

WORD_BYTES = 8
"""Bytes of a number, and so the number of planes."""


def to_byte_planes(numbers: npt.NDArray[np.int64]) -> bytes:
    """Write numbers, of shape ``(..., count)``, as eight planes of ``count`` bytes for each row."""
    words = np.ascontiguousarray(numbers, dtype="<i8")
    return words.view(np.uint8).reshape(*numbers.shape, WORD_BYTES).swapaxes(-1, -2).tobytes()


def from_byte_planes(data: bytes | memoryview, shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """Return the numbers, of this shape, of which :func:`to_byte_planes` wrote these bytes.

    Raises:
        ValueError: There are more or fewer bytes.
    """
    *rows, count = shape
    planes = np.frombuffer(data, np.uint8).reshape(*rows, WORD_BYTES, count)
    words = np.ascontiguousarray(planes.swapaxes(-1, -2)).view("<i8")
    return words.reshape(shape).astype(np.int64)
