"""Our `_catalogue` file: what goes in comes out, and anything else than that is refused."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.errors import FormatError, InvalidInputError, UnsupportedError
from coldparquet.format import catalogue_file
from coldparquet.format.blooms import BLOCK_BYTES
from coldparquet.format.catalogue_blooms import PackedBloom, encode_blooms, parse_blooms
from coldparquet.format.catalogue_file import (
    ENVELOPE,
    LARGEST_RAW_INDEX_BYTES,
    PackedSidecar,
    encode_catalogue,
    index_range,
    parse_catalogue_index,
)
from coldparquet.records import replace
from tests.support.damage import catalogue_entry as entry
from tests.support.damage import sealed, unpacked

ENTRIES = [entry(number) for number in range(1, 12)]
SMALL = encode_catalogue(ENTRIES)


def packed_sidecar(values: dict[str, Any]) -> PackedSidecar:
    if isinstance(left_out_bytes := values["pages"], int):
        return PackedSidecar(**values | {"pages": None, "left_out_pages_bytes": left_out_bytes})
    return PackedSidecar(**values)


entries_of_any_kind = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.text(st.characters(max_codepoint=127), min_size=1, max_size=20),
            "parquet_size_bytes": st.integers(0, 2**63 - 1),
            "row_count": st.integers(0, 2**63 - 1),
            "sidecar": st.binary(max_size=300),
            "data_etag": st.none() | st.just('"5d41402abc4b2a76b9719d911017c592-3"'),
            "sidecar_etag": st.none() | st.just('"x"'),
            "has_pages": st.booleans(),
            "pages": st.none() | st.binary(max_size=60) | st.integers(1, 2**31 - 2),
        },
    ).map(packed_sidecar),
    max_size=8,
    unique_by=lambda packed: packed.name,
)


@given(entries_of_any_kind)
def test_what_was_written_is_read(entries: list[PackedSidecar]) -> None:
    data = encode_catalogue(entries)
    assert unpacked(data) == entries
    assert encode_catalogue(unpacked(data)) == data


def test_sidecars_are_compressed_in_blocks_that_can_be_fetched_by_themselves() -> None:
    entries = [entry(number, bytes(20_000) + bytes([number])) for number in range(1, 12)]
    data = encode_catalogue([*entries, entry(12, bytes(200_000)), entry(13)])
    index = parse_catalogue_index(data[: index_range(data[: ENVELOPE.header.size], path=None).stop], path=None)
    assert index.blocks.tolist() == [0] * 4 + [1] * 4 + [2] * 4 + [3]
    assert len(data) < 5_000
    assert index.block_range(3).stop == index.file_bytes == len(data)


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_refused(data: bytes, as_catalogue: bool) -> None:
    with pytest.raises((FormatError, UnsupportedError)):
        parse_catalogue_index(SMALL[:12] + data if as_catalogue else data, path=None)


def index_of(data: bytes) -> bytes:
    """Return the index of a catalogue, decompressed."""
    index_bytes = ENVELOPE.header.unpack(data).index_bytes
    return zlib.decompress(data[ENVELOPE.header.size : ENVELOPE.header.size + index_bytes])


def with_index(data: bytes, compressed: bytes | None, **changes: int) -> bytes:
    """Write another header or index, under the right checksum."""
    stop = ENVELOPE.header.size + ENVELOPE.header.unpack(data).index_bytes
    compressed = data[ENVELOPE.header.size : stop] if compressed is None else compressed
    return sealed(ENVELOPE, data[: ENVELOPE.header.size] + compressed, **changes) + data[stop:]


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"entry_count": 2**32 - 1}, "InvalidValue"),
        ({"entry_count": 10}, "InvalidValue"),
        ({"block_count": 2**32 - 1}, "InvalidValue"),
        ({"block_count": 0}, "InvalidValue"),
        ({"index_bytes": 2**63}, "InvalidValue"),
        ({"index_bytes": 2**20}, "Truncated"),
        ({"body_bytes": 2**60}, "InvalidValue"),
        ({"body_bytes": 1}, "InvalidValue"),
        ({"file_bytes": 2**63}, "InvalidValue"),
        ({"file_bytes": 10}, "Truncated"),
        ({"file_bytes": len(SMALL) + 1}, "InvalidValue"),
        ({"pages_bytes": 1}, "InvalidValue"),
        ({"pages_bytes": 2**63}, "InvalidValue"),
    ],
)
def test_headers_that_cannot_be(changes: dict[str, int], kind: str) -> None:
    with pytest.raises((FormatError, UnsupportedError)) as caught:
        parse_catalogue_index(with_index(SMALL, None, **changes), path="t/_catalogue")
    assert (caught.value.kind, caught.value.path) == (kind, "t/_catalogue")


@given(st.data())
def test_an_index_of_any_content_gives_a_model_or_a_refusal(data: st.DataObject) -> None:
    body = bytearray(index_of(SMALL))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    compressed = zlib.compress(bytes(body))
    file_bytes = len(with_index(SMALL, compressed))
    try:
        found = unpacked(with_index(SMALL, compressed, file_bytes=file_bytes, index_bytes=len(compressed)))
    except FormatError:
        return
    assert len(found) == len(ENTRIES)


def test_two_entries_of_one_name_are_neither_written_nor_read() -> None:
    with pytest.raises(InvalidInputError):
        encode_catalogue([ENTRIES[0], ENTRIES[0]])
    data = encode_catalogue([ENTRIES[0], replace(ENTRIES[1], name="2024-03-01.2")])
    compressed = zlib.compress(index_of(data).replace(b"01.2", b"01.1"))
    file_bytes = len(with_index(data, compressed))
    changed = with_index(data, compressed, file_bytes=file_bytes, index_bytes=len(compressed))
    with pytest.raises(FormatError, match="two entries"):
        parse_catalogue_index(changed, path=None)


def test_names_are_any_text() -> None:
    entries = [
        replace(ENTRIES[0], name="stadt=Zürich/части-0.parquet"),
        replace(ENTRIES[1], name="a half of two \ud83d, a byte \udcff"),
    ]
    data = encode_catalogue(entries)
    assert list(parse_catalogue_index(data, path=None).entry_of) == [one.name for one in entries]
    assert encode_catalogue(unpacked(data)) == data
    compressed = zlib.compress(index_of(data).replace("ü".encode(), b"\xff\xff"))
    file_bytes = len(with_index(data, compressed))
    with pytest.raises(FormatError, match="not UTF-8"):
        parse_catalogue_index(
            with_index(data, compressed, file_bytes=file_bytes, index_bytes=len(compressed)), path=None
        )


def test_an_index_of_zeros_is_refused_before_it_is_decompressed() -> None:
    """A few hundred kilobytes of them in the file would take gigabytes of memory."""
    raw_bytes = LARGEST_RAW_INDEX_BYTES + 1
    # As many bytes as could hold it; what they are does not matter.
    compressed = bytes(raw_bytes // 1000)
    data = ENVELOPE.encode(
        compressed,
        **dict.fromkeys(list(ENVELOPE.header.dtype.names or ())[3:], 0)
        | {
            "file_bytes": ENVELOPE.header.size + len(compressed),
            "index_bytes": len(compressed),
            "body_bytes": raw_bytes,
        },
    )
    with pytest.raises(FormatError, match=f"the index says {raw_bytes:,} bytes"):
        parse_catalogue_index(data, path=None)
    with_blooms = replace(parse_catalogue_index(SMALL, path=None), blooms_index_bytes=raw_bytes)
    with pytest.raises(FormatError, match=f"the index of the bloom filters says {raw_bytes:,} bytes"):
        with_blooms.parse_blooms(zlib.crc32(compressed).to_bytes(4, "little") + compressed)


@pytest.mark.parametrize("limit", ["LARGEST_FILE_BYTES", "LARGEST_INDEX_BYTES", "LARGEST_RAW_INDEX_BYTES"])
def test_a_catalogue_that_no_reader_takes_is_not_written(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue_file, limit, 100)
    with pytest.raises(UnsupportedError) as caught:
        encode_catalogue(ENTRIES)
    assert caught.value.kind == "TooLarge"


# --- Bloom filters in a catalogue: every block is found again where a value needs it, and damage is noticed ---


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
BLOOMED = st.lists(st.lists(FILTERS, max_size=6, unique_by=lambda bloom: (bloom.column, bloom.row_group)), max_size=5)


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


WITH_BLOOMS = encode_catalogue([of_one(PackedBloom(column="id", row_group=0, bitset=bytes(range(64))))])


@given(entries=BLOOMED)
def test_every_block_is_in_the_stripe_of_its_number(entries: list[list[PackedBloom]]) -> None:
    body, stripes = encode_blooms(entries)
    if not any(entries):
        assert (body, stripes) == (b"", b"")
        return
    blooms = parse_blooms(body, stripes_start=100, stripes_bytes=len(stripes), entry_count=len(entries))
    for number, filters in enumerate(entries):
        for bloom in filters:
            group = blooms.groups[bloom.column, len(bloom.bitset) // BLOCK_BYTES]
            places = group.positions(number, np.array([bloom.row_group]))
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
    index = parse_catalogue_index(WITH_BLOOMS, path=None)
    place = index.blooms_range
    assert place is not None
    assert index.parse_blooms(WITH_BLOOMS[place.start : place.stop]).stripes_start == index.stripes_range.start
    assert WITH_BLOOMS[index.stripes_range.start :] == bytes(range(64))
    block = index.unpack_block(0, WITH_BLOOMS[place.stop : index.stripes_range.start])
    assert bytes(index.sidecar_in(block, 0)) == b"sidecar"
    assert parse_catalogue_index(encode_catalogue([of_one()]), path=None).blooms_range is None


@given(flipped=st.integers(0, 8 * len(WITH_BLOOMS) - 1))
def test_no_flipped_bit_of_the_filters_goes_unnoticed(flipped: int) -> None:
    index = parse_catalogue_index(WITH_BLOOMS, path=None)
    place = index.blooms_range
    assert place is not None
    data = bytearray(WITH_BLOOMS)
    data[flipped // 8] ^= 1 << flipped % 8
    if flipped // 8 in range(place.start, place.stop):
        with pytest.raises(FormatError):
            index.parse_blooms(bytes(data[place.start : place.stop]))
    elif flipped // 8 >= index.stripes_range.start:
        blooms = index.parse_blooms(WITH_BLOOMS[place.start : place.stop])
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
