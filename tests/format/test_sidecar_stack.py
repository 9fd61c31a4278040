"""What a stack of sidecars says of bloom filters and page indexes is what each of its sidecars says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.format.blooms import BloomPlaces, locate_blooms
from coldparquet.format.page_index import page_index_starts
from coldparquet.format.sidecar import Sidecar, SidecarStack, parse_sidecar, stack_alike
from coldparquet.format.sidecar_header import parse_columns_ahead, shared_schema
from coldparquet.format.sidecar_writer import encode_sidecar
from coldparquet.records import replace
from tests.support.sidecar_strategies import contents, row_groups


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


# --- Columns that are parsed before the rest of a sidecar has come: the same ones, and nothing from damaged bytes ---


GOLDEN = Path(__file__).parents[1] / "golden" / "pm"
SIDECARS = [GOLDEN / name for name in ("03_sample_a.pm", "15_five_groups.pm", "20_chain_3.pm")]


@pytest.fixture(autouse=True)
def _nothing_known() -> None:
    shared_schema.cache_clear()


def exhaust(beginning: bytes) -> int:
    """Parse to the end; return the number of steps."""
    return sum(1 for _ in parse_columns_ahead(memoryview(beginning)))


@pytest.mark.parametrize("path", SIDECARS, ids=lambda path: path.stem)
def test_what_was_parsed_ahead_is_what_the_sidecar_says(path: Path) -> None:
    file = path.read_bytes()
    expected = parse_sidecar(file).columns
    shared_schema.cache_clear()
    assert exhaust(file) == -(-len(expected) // 32)
    sidecar = parse_sidecar(file)
    assert [sidecar.schema.descriptors[index] for index in range(sidecar.column_count)] == list(expected)
    assert sidecar.columns == expected


@pytest.mark.parametrize("path", SIDECARS, ids=lambda path: path.stem)
def test_a_beginning_of_any_length_is_enough_or_parses_nothing(path: Path) -> None:
    file = path.read_bytes()
    names_stop = parse_sidecar(file).header.names_stop
    for length in range(len(file)):
        shared_schema.cache_clear()
        exhaust(file[:length])
        assert bool(_known(parse_sidecar(file))) == (length >= names_stop)


def test_no_damaged_byte_is_found_in_the_columns_of_a_sound_sidecar() -> None:
    file = SIDECARS[0].read_bytes()
    sound = parse_sidecar(file)
    for place in range(sound.header.names_stop):
        damaged = bytearray(file)
        damaged[place] ^= 0xFF
        exhaust(bytes(damaged))
    shared = parse_sidecar(file)
    assert shared.columns == sound.columns


def _known(sidecar: Sidecar) -> dict[int, object]:
    return dict(sidecar.schema.descriptors)
