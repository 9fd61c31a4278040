"""Distinct integers in ascending order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from coldparquet.format.types import distinct_values


@given(
    arrays.arrays(
        st.sampled_from([np.int32, np.int64, np.uint64]),
        st.integers(0, 20),
        elements=st.integers(0, 5),
        fill=st.nothing(),
    )
)
def test_same_as_numpy(values: np.ndarray) -> None:
    found = distinct_values(values)
    expected = np.unique(values)
    assert found.dtype == values.dtype
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("values", [[], [7], [3, 3, 3], [2, 1, 2, 1]])
def test_leaves_its_argument_as_it_is(values: list[int]) -> None:
    given_values = np.array(values, dtype=np.int64)
    assert distinct_values(given_values).tolist() == sorted(set(values))
    assert given_values.tolist() == values
