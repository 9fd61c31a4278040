"""Bloom filters in a catalogue: every block is found again where a value needs it, and damage is noticed."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.errors import FormatError
from coldparquet.format.blooms import BLOCK_BYTES
from coldparquet.format.catalogue_blooms import PackedBloom, encode_blooms, parse_blooms
from coldparquet.format.catalogue_file import PackedSidecar, encode_catalogue, parse_catalogue_index

FILTERS = st.builds(
    lambda column, row_group, blocks, seed: PackedBloom(
        column=column,
        row_group=row_group,
        bitset=np.random.default_rng(seed).bytes(blocks * BLOCK_BYTES),
    ),
    st.sampled_from(["id", "Ämter", "order_id"]),
    st.integers(0, 5),
    st.integers(1, 4),
    st.integers(0, 9),
)
ENTRIES = st.lists(st.lists(FILTERS, max_size=6, unique_by=lambda bloom: (bloom.column, bloom.row_group)), max_size=5)


def of_one(*blooms: PackedBloom) -> PackedSidecar:
    return PackedSidecar(
        name="2024-03-01",
        parquet_size_bytes=1_000,
        row_count=10,
        sidecar=b"sidecar",
        data_etag=None,
        sidecar_etag=None,
        has_pages=False,
        blooms=blooms,
    )


SMALL = encode_catalogue([of_one(PackedBloom(column="id", row_group=0, bitset=bytes(range(64))))])


@given(entries=ENTRIES)
def test_every_block_is_in_the_stripe_of_its_number(entries: list[list[PackedBloom]]) -> None:
    body, stripes = encode_blooms(entries)
    if not any(entries):
        assert (body, stripes) == (b"", b"")
        return
    blooms = parse_blooms(body, stripes_start=100, stripes_bytes=len(stripes), entry_count=len(entries))
    for entry, filters in enumerate(entries):
        for bloom in filters:
            group = blooms.groups[bloom.column, len(bloom.bitset) // BLOCK_BYTES]
            places = group.positions(entry, np.array([bloom.row_group]))
            assert places is not None
            for block in range(group.block_count):
                at = group.stripe_range(block)
                stripe = stripes[at.start : at.stop]
                group.check_stripe(block, stripe)
                start = int(places[0]) * BLOCK_BYTES
                found = stripe[start : start + BLOCK_BYTES]
                assert found == bloom.bitset[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES]
    again = blooms.bitsets_of_entries(memoryview(stripes))
    by_place = [{(bloom.column, bloom.row_group): bloom.bitset for bloom in filters} for filters in entries]
    assert by_place == [
        {(bloom.column, bloom.row_group): bloom.bitset for bloom in again.get(entry, [])}
        for entry in range(len(entries))
    ]


def test_filters_that_are_not_there_have_no_place() -> None:
    body, stripes = encode_blooms([[], [PackedBloom(column="id", row_group=3, bitset=bytes(32))]])
    blooms = parse_blooms(body, stripes_start=0, stripes_bytes=len(stripes), entry_count=2)
    group = blooms.groups["id", 1]
    assert group.positions(1, np.array([3])) is not None
    assert group.positions(1, np.array([3, 4])) is None
    assert group.positions(0, np.array([3])) is None


def test_a_catalogue_says_where_its_filters_lie() -> None:
    index = parse_catalogue_index(SMALL, path=None)
    place = index.blooms_range
    assert place is not None
    assert index.parse_blooms(SMALL[place.start : place.stop]).stripes_start == index.stripes_range.start
    assert SMALL[index.stripes_range.start :] == bytes(range(64))
    block = index.unpack_block(0, SMALL[place.stop : index.stripes_range.start])
    assert bytes(index.sidecar_in(block, 0)) == b"sidecar"
    assert parse_catalogue_index(encode_catalogue([of_one()]), path=None).blooms_range is None


@given(flipped=st.integers(0, 8 * len(SMALL) - 1))
def test_no_flipped_bit_of_the_filters_goes_unnoticed(flipped: int) -> None:
    index = parse_catalogue_index(SMALL, path=None)
    place = index.blooms_range
    assert place is not None
    data = bytearray(SMALL)
    data[flipped // 8] ^= 1 << flipped % 8
    if flipped // 8 in range(place.start, place.stop):
        with pytest.raises(FormatError):
            index.parse_blooms(bytes(data[place.start : place.stop]))
    elif flipped // 8 >= index.stripes_range.start:
        blooms = index.parse_blooms(SMALL[place.start : place.stop])
        with pytest.raises(FormatError) as caught:
            blooms.bitsets_of_entries(memoryview(data)[index.stripes_range.start :])
        assert caught.value.kind == "ChecksumMismatch"


@given(body=st.binary(max_size=80))
def test_no_index_hangs_or_fails_otherwise(body: bytes) -> None:
    with pytest.raises(FormatError):
        parse_blooms(body, stripes_start=0, stripes_bytes=1, entry_count=1)


def test_an_index_of_other_stripes_is_refused() -> None:
    body, stripes = encode_blooms([[PackedBloom(column="id", row_group=0, bitset=bytes(32))]])
    assert zlib.crc32(stripes).to_bytes(4, "little") in body
    for stripes_bytes, entry_count in ((len(stripes) + 1, 1), (len(stripes), 0)):
        with pytest.raises(FormatError, match="of other partitions"):
            parse_blooms(body, stripes_start=0, stripes_bytes=stripes_bytes, entry_count=entry_count)
