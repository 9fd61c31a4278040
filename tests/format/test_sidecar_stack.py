"""What a stack of sidecars says of bloom filters and page indexes is what each of its sidecars says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.format.blooms import BloomPlaces, locate_blooms
from coldparquet.format.page_index import page_index_starts
from coldparquet.format.sidecar import Sidecar, SidecarStack, parse_sidecar, stack_alike
from coldparquet.format.sidecar_writer import encode_sidecar
from tests.support.sidecars import contents, row_groups


@st.composite
def stacks(draw: st.DrawFn) -> SidecarStack:
    """Draw sidecars of the same columns, with other row groups and with bloom filters in other columns."""
    content = draw(contents())
    of_any_length = st.lists(row_groups(len(content.columns), blooms_external=content.blooms_external), max_size=2)
    others = [
        replace(content, row_groups=draw(of_any_length), bloom_columns=None) for _ in range(draw(st.integers(1, 2)))
    ]
    sidecars = [parse_sidecar(encode_sidecar(one)) for one in (content, *others)]
    return SidecarStack([sidecars[position] for position in draw(st.sampled_from(stack_alike(sidecars)))])


def described(places: BloomPlaces) -> dict[str, object]:
    arrays = ("present", "header_starts", "starts", "lengths", "ends")
    return {name: getattr(places, name).tolist() for name in arrays} | {
        "in_sidecar": places.in_sidecar,
        "damage": places.damage,
    }


def without_filters(places: BloomPlaces, sidecar: Sidecar) -> bool:
    return places.present.tolist() == [False] * sidecar.row_group_count and not places.damage


@given(stacks())
def test_filters_and_page_indexes_lie_where_each_sidecar_says(stack: SidecarStack) -> None:
    assert set(stack.bloom_columns) == {column for sidecar in stack.sidecars for column in sidecar.bloom_columns}
    for column in stack.bloom_columns:
        found = locate_blooms(stack, column)
        for position, sidecar in enumerate(stack.sidecars):
            here = found.of(stack.row_groups_of(position))
            if column in sidecar.bloom_columns:
                assert described(here) == described(locate_blooms(sidecar, column))
            else:
                assert without_filters(here, sidecar)
    starts = [page_index_starts(sidecar, np.array([0, sidecar.row_group_count])) for sidecar in stack.sidecars]
    assert page_index_starts(stack, stack.borders).tolist() == np.concatenate(starts).tolist()
