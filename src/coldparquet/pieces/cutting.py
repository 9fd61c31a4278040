"""Where a plan is cut into pieces: of about equal cost, in table order, and between partitions where balance allows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coldparquet.options import KIB, MIB

if TYPE_CHECKING:
    import numpy.typing as npt

    from coldparquet.plan.bounds import BoolArray, IntArray

TARGET_BYTES = 64 * MIB
"""Cost of a piece where nobody says how many there may be or how large: long enough that starting it hardly counts."""

READ_COST_BYTES = 64 * KIB
"""What a row group costs beside its bytes: to begin it, to decode its few pages, to hand its rows over."""

_SLACK = 0.2
"""A cut may be this part of a piece off its place, if two partitions meet there: their requests never merge anyway."""


def piece_count(total_cost: float, read_count: int, *, most_pieces: int | None, target_bytes: int | None) -> int:
    """Choose into how many pieces reads are cut.

    Args:
        total_cost: Of all reads, in bytes.
        read_count: Number of reads; none is ever split.
        most_pieces: Never more than these; None for any number.
        target_bytes: About how much each should cost; None leaves it to ``most_pieces`` or else to :data:`TARGET_BYTES`.
    """
    if target_bytes is None and most_pieces is not None:
        wanted = most_pieces
    else:
        wanted = round(total_cost / (target_bytes or TARGET_BYTES))
    most = read_count if most_pieces is None else min(most_pieces, read_count)
    return min(max(wanted, 1), most)


def cut_evenly(costs: npt.NDArray[np.float64], begins_partition: BoolArray, count: int) -> IntArray:
    """Cut reads into contiguous pieces of about the same cost.

    Args:
        costs: Of each read, all above 0, shape ``(reads,)``, at least one.
        begins_partition: Whether each read is the first of its partition.
        count: Number of pieces, at most the number of reads.

    Returns:
        Where each piece begins, and at last the number of reads, shape ``(pieces + 1,)``; there are fewer pieces than
        asked for where some reads cost more than a share.
    """
    stops = np.cumsum(costs)
    share = stops[-1] / count
    ideal = share * np.arange(1, count)
    edges = np.concatenate([np.zeros(1), stops])
    cuts = _nearest(edges, ideal)
    between = np.flatnonzero(np.append(begins_partition, True))
    preferred = between[_nearest(edges[between], ideal)]
    is_near = np.abs(edges[preferred] - ideal) <= np.maximum(_SLACK * share, np.abs(edges[cuts] - ideal))
    chosen = np.where(is_near, preferred, cuts)
    starts: IntArray = np.unique(np.concatenate([np.zeros(1, np.int64), chosen, np.array([len(costs)])]))
    return starts


def _nearest(edges: npt.NDArray[np.float64], places: npt.NDArray[np.float64]) -> IntArray:
    """Return the index of the edge that is nearest to each place; edges ascend."""
    after = np.searchsorted(edges, places).clip(1, len(edges) - 1)
    is_before = places - edges[after - 1] <= edges[after] - places
    nearest: IntArray = np.where(is_before, after - 1, after)
    return nearest
