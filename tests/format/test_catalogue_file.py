"""Our `_catalogue` file: what goes in comes out, and anything else than that is refused."""

from __future__ import annotations

import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.errors import FormatError, InvalidInputError, UnsupportedError
from coldparquet.format import catalogue_file
from coldparquet.format.catalogue_file import (
    ENVELOPE,
    LARGEST_RAW_INDEX_BYTES,
    PackedSidecar,
    encode_catalogue,
    index_range,
    parse_catalogue_index,
)
from tests.support.damage import catalogue_entry as entry
from tests.support.damage import sealed, unpacked

ENTRIES = [entry(number) for number in range(1, 12)]
SMALL = encode_catalogue(ENTRIES)

entries_of_any_kind = st.lists(
    st.builds(
        PackedSidecar,
        name=st.text(st.characters(max_codepoint=127), min_size=1, max_size=20),
        parquet_size_bytes=st.integers(0, 2**63 - 1),
        row_count=st.integers(0, 2**63 - 1),
        sidecar=st.binary(max_size=300),
        data_etag=st.none() | st.just('"5d41402abc4b2a76b9719d911017c592-3"'),
        sidecar_etag=st.none() | st.just('"x"'),
        has_pages=st.booleans(),
    ),
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


def with_index(data: bytes, compressed: bytes | None = None, **changes: int) -> bytes:
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
    ],
)
def test_headers_that_cannot_be(changes: dict[str, int], kind: str) -> None:
    with pytest.raises((FormatError, UnsupportedError)) as caught:
        parse_catalogue_index(with_index(SMALL, **changes), path="t/_catalogue")
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


def test_what_is_not_ascii_is_not_packed() -> None:
    with pytest.raises(InvalidInputError):
        encode_catalogue([replace(ENTRIES[0], name="2024-03-01.é")])


def test_an_index_of_zeros_is_refused_before_it_is_decompressed() -> None:
    """A few hundred kilobytes of them in the file would take gigabytes of memory."""
    raw_bytes = LARGEST_RAW_INDEX_BYTES + 1
    # As many bytes as could hold it; nobody looks at what they are.
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
def test_a_catalogue_that_nobody_would_read_is_not_written(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue_file, limit, 100)
    with pytest.raises(UnsupportedError) as caught:
        encode_catalogue(ENTRIES)
    assert caught.value.kind == "TooLarge"
