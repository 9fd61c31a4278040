"""Small files of the formats, and such with other numbers in them under a checksum that is right."""

from __future__ import annotations

from collections.abc import Sequence

from coldparquet.format import catalogue_file
from coldparquet.format.binary import Envelope
from coldparquet.format.catalogue_file import PackedSidecar, parse_catalogue_index


def sealed(envelope: Envelope, data: bytes, **changes: int) -> bytes:
    """Write a file again, all of it under the checksum, with other fields in its header."""
    fields = envelope.header.unpack(data)._asdict() | changes
    own = {name: value for name, value in fields.items() if name not in {"magic", "version", "checksum"}}
    return envelope.encode(data[envelope.header.size :], **own)


def catalogue_entry(number: int, sidecar: bytes | None = None) -> PackedSidecar:
    return PackedSidecar(
        name=f"2024-03-{number:02}.{number}",
        parquet_size_bytes=1000 + number,
        row_count=10 * number,
        sidecar=bytes([number % 256]) * 40 if sidecar is None else sidecar,
        data_etag=None if number % 3 == 0 else f'"data-{number}"',
        sidecar_etag=None if number % 2 == 0 else f'"sidecar-{number}"',
        has_pages=number % 4 == 0,
        pages=None if number % 3 == 0 else b"",
    )


def unpacked(data: bytes, path: str | None = None) -> list[PackedSidecar]:
    """Read every entry of a catalogue."""
    index = parse_catalogue_index(data, path=path)
    blocks = [
        index.unpack_block(block, data[place.start : place.stop])
        for block in range(len(index.block_starts))
        if (place := index.block_range(block)) is not None
    ]
    return [_entry(index, name, number, blocks, data) for name, number in index.entry_of.items()]


def _entry(
    index: catalogue_file.CatalogueIndex, name: str, number: int, blocks: Sequence[memoryview], data: bytes
) -> PackedSidecar:
    sidecar = bytes(index.sidecar_in(blocks[int(index.blocks[number])], number))
    return PackedSidecar(
        name=name,
        parquet_size_bytes=int(index.parquet_sizes[number]),
        row_count=int(index.row_counts[number]),
        sidecar=sidecar,
        data_etag=index.data_etags[number],
        sidecar_etag=index.sidecar_etags[number],
        has_pages=bool(index.has_pages[number]),
        pages=None if (place := index.pages_range(name)) is None else data[place.start : place.stop],
        left_out_pages_bytes=int(index.left_out_pages_bytes[number]),
    )
