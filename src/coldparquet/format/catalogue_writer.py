"""Model to bytes: write a `_catalogue`, as :mod:`coldparquet.format.catalogue_layout` describes it."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.errors import InvalidInputError, UnsupportedError
from coldparquet.format.catalogue_blooms import encode_blooms
from coldparquet.format.catalogue_layout import (
    BLOCK_SIDECAR_BYTES,
    BLOOMS,
    CHECKSUM,
    HEADER,
    LARGEST_FILE_BYTES,
    LARGEST_INDEX_BYTES,
    LARGEST_RAW_INDEX_BYTES,
    MAGIC,
    PREAMBLE,
    VERSION,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from coldparquet.format.catalogue_blooms import PackedBloom


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedSidecar:
    """One sidecar, and which state of its partition it is of."""

    name: str
    """Name of the partition's directory, with the version suffix."""
    parquet_size_bytes: int
    """Size of the Parquet file as far as it is committed."""
    row_count: int
    sidecar: bytes | memoryview
    """The file up to its committed size."""
    data_etag: str | None
    """Version of the Parquet object; None where it has none that lasts."""
    sidecar_etag: str | None
    """Version of the sidecar; likewise."""
    has_pages: bool
    """Whether a ``_pages`` lies beside it."""
    blooms: tuple[PackedBloom, ...] = ()
    """Bloom filters of the Parquet file, as far as they are packed."""


def encode_catalogue(entries: Sequence[PackedSidecar]) -> bytes:
    """Write a catalogue.

    Args:
        entries: In time order. None of the sidecars is longer than ``LARGEST_SIDECAR_BYTES``.

    Raises:
        InvalidInputError: Two entries have one name, or a name or an ETag is not ASCII.
        UnsupportedError: The catalogue would be longer than any that is read (kind ``TooLarge``).
    """
    names = [entry.name for entry in entries]
    if len(set(names)) != len(names):
        raise InvalidInputError("two partitions of one name cannot be packed together")
    lengths = np.array([len(entry.sidecar) for entry in entries], np.int64)
    block_counts = _block_counts(lengths)
    blocks, first = [], 0
    for count in block_counts:
        blocks.append(zlib.compress(b"".join(entry.sidecar for entry in entries[first : first + count])))
        first += count
    index = _encode_index(entries, block_counts, blocks)
    compressed = zlib.compress(index)
    blooms_index, stripes = encode_blooms([entry.blooms for entry in entries])
    blooms = _with_checksum(zlib.compress(blooms_index)) if blooms_index else b""
    file_bytes = HEADER.size + len(compressed) + len(blooms) + sum(map(len, blocks)) + len(stripes)
    is_too_large = file_bytes > LARGEST_FILE_BYTES or len(compressed) > LARGEST_INDEX_BYTES
    if is_too_large or max(len(index), len(blooms_index)) > LARGEST_RAW_INDEX_BYTES:
        raise UnsupportedError(
            f"sidecars and bloom filters of {len(entries):,} partitions make a catalogue of {file_bytes:,} bytes, more than is"
            " read in one piece",
            kind="TooLarge",
        )
    of_blooms = BLOOMS.pack(len(blooms), len(blooms_index), len(stripes))
    fields = (file_bytes, len(entries), len(blocks), len(compressed), len(index), of_blooms)
    content = HEADER.pack(MAGIC, VERSION, 0, *fields)[PREAMBLE.size :] + compressed
    return b"".join([PREAMBLE.pack(MAGIC, VERSION, zlib.crc32(content)), content, blooms, *blocks, stripes])


def _with_checksum(data: bytes) -> bytes:
    return CHECKSUM.pack(zlib.crc32(data)) + data


def _block_counts(lengths: npt.NDArray[np.int64]) -> list[int]:
    """Say how many sidecars of these lengths go into each block: as many as it takes to fill it."""
    counts, filled_bytes = [], BLOCK_SIDECAR_BYTES
    for length in lengths.tolist():
        if filled_bytes >= BLOCK_SIDECAR_BYTES:
            counts.append(0)
            filled_bytes = 0
        counts[-1] += 1
        filled_bytes += length
    return counts


def _encode_index(entries: Sequence[PackedSidecar], block_counts: Sequence[int], blocks: Sequence[bytes]) -> bytes:
    texts = [
        [entry.name for entry in entries],
        [entry.data_etag or "" for entry in entries],
        [entry.sidecar_etag or "" for entry in entries],
    ]
    sizes = [
        [entry.parquet_size_bytes for entry in entries],
        [entry.row_count for entry in entries],
    ]
    numbers = [
        [len(entry.sidecar) for entry in entries],
        *([len(text) for text in of_kind] for of_kind in texts),
        [int(entry.has_pages) for entry in entries],
        block_counts,
    ]
    try:
        joined = "".join("".join(of_kind) for of_kind in texts).encode("ascii")
    except UnicodeEncodeError as error:
        raise InvalidInputError("a partition of which name or ETag is not ASCII cannot be packed") from error
    parts = [
        *(np.array(column, "<u8").tobytes() for column in sizes),
        *(np.array(column, "<u4").tobytes() for column in numbers),
        np.array([len(block) for block in blocks], "<u8").tobytes(),
        np.array([zlib.crc32(block) for block in blocks], "<u4").tobytes(),
        joined,
    ]
    return b"".join(parts)
