"""Bloom filters that cannot be right are not asked, say so, and lose no row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from coldparquet.format.sidecar import parse_sidecar
from coldparquet.ranges import ByteRange
from tests.support.blooms import (
    ask,
    bound,
    encoded_header,
    fields_of,
    numbers_file,
    sidecar_in_memory,
    sidecar_to_keep,
    with_references,
)

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    ("change", "note"),
    [
        (lambda place: ByteRange(place.start, place.start + 16), "shorter than a block"),
        (lambda place: ByteRange(place.start, place.stop + (1 << 40)), "outside of the file's data"),
        (lambda place: ByteRange(1 << 50, (1 << 50) + place.length_bytes), "outside of the file's data"),
        (lambda _: ByteRange(2, 34), "outside of the file's data"),
        (lambda place: ByteRange(place.start, place.stop - 32), "a header that does not fit"),
        (lambda place: ByteRange(place.start, place.stop + 32), "a header that does not fit"),
        (lambda place: ByteRange(place.start + 3, place.stop + 3), "a header that does not fit"),
        (lambda place: ByteRange(place.start, place.stop + 1), "a header that does not fit"),
        (lambda place: ByteRange(place.start - 40, place.start - 40), "of an unknown kind"),
    ],
)
def test_filters_that_cannot_be_right_are_not_asked(change: Callable[[ByteRange], ByteRange], note: str) -> None:
    file, values = numbers_file(row_groups=2, rows=40)
    sidecar = with_references(file, change)
    fields = fields_of(sidecar)
    for value in (values[5], 12345):
        asked = ask(bound(f"id = {value}", fields), sidecar, file)
        assert asked.survives == [True, True]
        texts = asked.probes.answers().notes
        assert note in texts[-1]
        assert all(text.startswith("bloom filters of column 'id' ") for text in texts)
        assert " and ".join(texts).count("row group") == len(texts)


def test_a_header_that_claims_more_than_the_file_has() -> None:
    file, _ = numbers_file(row_groups=1, rows=40)
    place = sidecar_in_memory(file).bloom_location(0, 0)
    assert place is not None
    header = encoded_header(1 << 20)
    damaged = file[: place.start] + header + file[place.start + len(header) :]
    sidecar = with_references(file, lambda found: ByteRange(found.start, found.start))
    asked = ask(bound("id = 12345", fields_of(sidecar)), sidecar, damaged)
    assert asked.survives == [True]
    assert "behind the file's data" in asked.probes.answers().notes[0]


@pytest.mark.parametrize(("length_bytes", "note"), [(40, "no multiple of 32"), (1 << 20, "behind the sidecar")])
def test_an_inlined_filter_of_impossible_length(length_bytes: int, note: str) -> None:
    file, _ = numbers_file(row_groups=2, rows=40)
    sound = sidecar_to_keep(file, inline_bytes=1 << 20)
    offset, _ = sound.bloom_entry(0, 0)
    changed = bytearray(sound.file)
    changed[offset : offset + 4] = length_bytes.to_bytes(4, "little")
    sidecar = parse_sidecar(changed, verify_checksum=False)
    asked = ask(bound("id = 12345", fields_of(sidecar)), sidecar, file)
    assert asked.survives == [True, False]
    assert note in asked.probes.answers().notes[0]
