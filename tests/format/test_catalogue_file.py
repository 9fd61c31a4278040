"""Our `_catalogue` file: what goes in comes out, and anything else than that is refused."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.errors import FormatError, InvalidInputError, UnsupportedError
from coldparquet.format import catalogue_file
from coldparquet.format.catalogue_file import (
    HEADER,
    LARGEST_RAW_INDEX_BYTES,
    CatalogueIndex,
    PackedSidecar,
    encode_catalogue,
    index_range,
    parse_catalogue_index,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


def entry(number: int, sidecar: bytes | None = None) -> PackedSidecar:
    return PackedSidecar(
        name=f"2024-03-{number:02}.{number}",
        parquet_size_bytes=1000 + number,
        row_count=10 * number,
        sidecar=bytes([number % 256]) * 40 if sidecar is None else sidecar,
        data_etag=None if number % 3 == 0 else f'"data-{number}"',
        sidecar_etag=None if number % 2 == 0 else f'"sidecar-{number}"',
        has_pages=number % 4 == 0,
    )


def unpacked(data: bytes) -> list[PackedSidecar]:
    """Read every entry of a catalogue."""
    index = parse_catalogue_index(data, path="t/_catalogue")
    blocks = [
        index.unpack_block(block, data[place.start : place.stop])
        for block in range(len(index.block_starts))
        if (place := index.block_range(block)) is not None
    ]
    return [_entry(index, name, number, blocks) for name, number in index.entry_of.items()]


def _entry(index: CatalogueIndex, name: str, number: int, blocks: Sequence[memoryview]) -> PackedSidecar:
    sidecar = bytes(index.sidecar_in(blocks[int(index.blocks[number])], number))
    return PackedSidecar(
        name=name,
        parquet_size_bytes=int(index.parquet_sizes[number]),
        row_count=int(index.row_counts[number]),
        sidecar=sidecar,
        data_etag=index.data_etags[number],
        sidecar_etag=index.sidecar_etags[number],
        has_pages=bool(index.has_pages[number]),
    )


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
    index = parse_catalogue_index(data[: index_range(data[: HEADER.size], path=None).stop], path=None)
    assert index.blocks.tolist() == [0] * 4 + [1] * 4 + [2] * 4 + [3]
    assert len(data) < 5_000
    assert index.block_range(3).stop == index.file_bytes == len(data)


def test_every_shorter_file_is_refused() -> None:
    for length in range(len(SMALL)):
        with pytest.raises(FormatError):
            unpacked(SMALL[:length])


def test_every_flipped_byte_is_noticed() -> None:
    for position in range(len(SMALL)):
        for bit in (0x01, 0x80):
            damaged = bytearray(SMALL)
            damaged[position] ^= bit
            with pytest.raises((FormatError, UnsupportedError)):
                unpacked(bytes(damaged))


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_refused(data: bytes, as_catalogue: bool) -> None:
    with pytest.raises((FormatError, UnsupportedError)):
        parse_catalogue_index(SMALL[:12] + data if as_catalogue else data, path=None)


def with_header(**changes: int) -> bytes:
    """Write another header, whose checksum is right."""
    fields = dict(
        zip(
            ("magic", "version", "checksum", "file", "entries", "blocks", "index", "body", "reserved"),
            HEADER.unpack_from(SMALL),
            strict=True,
        )
    )
    header = HEADER.pack(*(fields | changes).values())
    stop = HEADER.size + fields["index"]
    checksum = zlib.crc32(header[16:] + SMALL[HEADER.size : stop])
    return header[:12] + checksum.to_bytes(4, "little") + header[16:] + SMALL[HEADER.size :]


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"version": 2}, "UnsupportedVersion"),
        ({"entries": 2**32 - 1}, "InvalidValue"),
        ({"entries": 10}, "InvalidValue"),
        ({"blocks": 2**32 - 1}, "InvalidValue"),
        ({"blocks": 0}, "InvalidValue"),
        ({"index": 2**63}, "InvalidValue"),
        ({"index": 2**20}, "Truncated"),
        ({"body": 2**60}, "InvalidValue"),
        ({"body": 1}, "InvalidValue"),
        ({"file": 2**63}, "InvalidValue"),
        ({"file": 10}, "Truncated"),
        ({"file": len(SMALL) + 1}, "InvalidValue"),
    ],
)
def test_headers_that_cannot_be(changes: dict[str, int], kind: str) -> None:
    with pytest.raises((FormatError, UnsupportedError)) as caught:
        parse_catalogue_index(with_header(**changes), path="t/_catalogue")
    assert (caught.value.kind, caught.value.path) == (kind, "t/_catalogue")


@given(st.data())
def test_an_index_of_any_content_gives_a_model_or_a_refusal(data: st.DataObject) -> None:
    index_bytes = HEADER.unpack_from(SMALL)[6]
    body = bytearray(zlib.decompress(SMALL[HEADER.size : HEADER.size + index_bytes]))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    compressed = zlib.compress(bytes(body))
    blocks = SMALL[HEADER.size + index_bytes :]
    magic, version, _, _, entries, block_count, _, _, reserved = HEADER.unpack_from(SMALL)
    size = HEADER.size + len(compressed) + len(blocks)
    header = HEADER.pack(magic, version, 0, size, entries, block_count, len(compressed), len(body), reserved)
    checksum = zlib.crc32(header[16:] + compressed)
    try:
        found = unpacked(header[:12] + checksum.to_bytes(4, "little") + header[16:] + compressed + blocks)
    except FormatError:
        return
    assert len(found) == len(ENTRIES)


def test_two_entries_of_one_name_are_neither_written_nor_read() -> None:
    with pytest.raises(InvalidInputError):
        encode_catalogue([ENTRIES[0], ENTRIES[0]])
    data = encode_catalogue([ENTRIES[0], replace(ENTRIES[1], name="2024-03-01.2")])
    index_bytes = HEADER.unpack_from(data)[6]
    body = zlib.decompress(data[HEADER.size : HEADER.size + index_bytes]).replace(b"01.2", b"01.1")
    compressed = zlib.compress(body)
    fields = list(HEADER.unpack_from(data))
    fields[3] += len(compressed) - index_bytes
    fields[6] = len(compressed)
    header = HEADER.pack(*fields)
    checksum = zlib.crc32(header[16:] + compressed).to_bytes(4, "little")
    with pytest.raises(FormatError, match="two entries"):
        parse_catalogue_index(header[:12] + checksum + header[16:] + compressed, path=None)


def test_what_is_not_ascii_is_not_packed() -> None:
    with pytest.raises(InvalidInputError):
        encode_catalogue([replace(ENTRIES[0], name="2024-03-01.é")])


def test_an_index_of_zeros_is_refused_before_it_is_decompressed() -> None:
    """A few hundred kilobytes of them in the file would take gigabytes of memory."""
    raw_bytes = LARGEST_RAW_INDEX_BYTES + 1
    # As many bytes as could hold it; nobody looks at what they are.
    compressed = bytes(raw_bytes // 1000)
    fields = HEADER.size + len(compressed), 0, 0, len(compressed), raw_bytes, bytes(16)
    behind = HEADER.pack(b"COLDCATL", 1, 0, *fields)[16:] + compressed
    data = SMALL[:12] + zlib.crc32(behind).to_bytes(4, "little") + behind
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
