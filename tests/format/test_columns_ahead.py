"""Columns that are parsed before the rest of a sidecar has come: the same ones, and nothing from damaged bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from coldparquet.format.sidecar import Sidecar, parse_sidecar
from coldparquet.format.sidecar_header import parse_columns_ahead, shared_schema

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
