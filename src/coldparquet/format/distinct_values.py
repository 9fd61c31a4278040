"""The distinct values of an array of integers.

``np.unique`` asks ``numpy.ma`` whether its argument is masked, and so imports it in the first call of a process: tens of
milliseconds of the first read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

_Integer = TypeVar("_Integer", bound=np.integer)


def distinct_values(values: npt.NDArray[_Integer]) -> npt.NDArray[_Integer]:
    """Return the distinct values of an array, shape ``(values,)``, in ascending order."""
    ascending = np.sort(values)
    is_first = np.ones(len(ascending), dtype=np.bool_)
    np.not_equal(ascending[1:], ascending[:-1], out=is_first[1:])
    return ascending[is_first]
