"""Where plans are cut: contiguous, never more pieces than allowed, none much more expensive than its share."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.options import MIB
from coldparquet.pieces.make import TARGET_BYTES, cut_evenly, piece_count


@given(
    st.lists(st.tuples(st.floats(1, 1e12), st.booleans()), min_size=1, max_size=60),
    st.integers(1, 20),
)
def test_pieces_are_contiguous_and_bounded(reads: list[tuple[float, bool]], wanted: int) -> None:
    costs = np.array([cost for cost, _ in reads])
    begins = np.array([begins_partition for _, begins_partition in reads])
    begins[0] = True
    count = min(wanted, len(reads))
    edges = cut_evenly(costs, begins, count)
    assert edges[0] == 0
    assert edges[-1] == len(reads)
    assert (np.diff(edges) > 0).all()
    assert len(edges) - 1 <= count
    share = costs.sum() / count
    heaviest = max(costs[start:stop].sum() for start, stop in pairwise(edges.tolist()))
    # A cut is at most a fifth of a share, or half of the read at its place, off on either side.
    assert heaviest <= share * 1.4 + costs.max() + 1e-6 * costs.sum()


def test_cuts_move_to_where_partitions_meet() -> None:
    costs = np.ones(100)
    begins = np.zeros(100, dtype=bool)
    begins[[0, 27, 51, 80]] = True
    assert cut_evenly(costs, begins, 4).tolist() == [0, 27, 51, 75 + 5, 100]
    assert cut_evenly(costs, begins, 10).tolist() == [0, 10, 20, 30, 40, 51, 60, 70, 80, 90, 100]


def test_how_many_pieces() -> None:
    def count(cost: float, reads: int = 1000, most: int | None = None, target: int | None = None) -> int:
        return piece_count(cost, reads, most_pieces=most, target_bytes=target)

    assert count(1.0) == 1
    assert count(10 * TARGET_BYTES) == 10
    assert count(1e15) == 1000
    assert count(1.0, most=6) == 6
    assert count(1.0, reads=4, most=6) == 4
    assert count(100 * MIB, target=MIB) == 100
    assert count(100 * MIB, most=6, target=MIB) == 6
    assert count(3 * MIB, most=6, target=MIB) == 3
