"""Row selections from masks: the plainest way to say which rows are meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coldparquet.plan.model import RowSelection

if TYPE_CHECKING:
    import numpy.typing as npt


def selection_of(mask: npt.NDArray[np.bool_]) -> RowSelection:
    """Select the rows where ``mask``, shape ``(rows,)``, is true."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    return RowSelection(starts=edges[::2].astype(np.int64), stops=edges[1::2].astype(np.int64))
