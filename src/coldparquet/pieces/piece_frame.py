"""The outermost layer of a piece in bytes: what it is, whether it arrived whole, and which version wrote it.

    magic       8 bytes, ``CPPIECE`` and a zero
    checksum    u32, CRC-32 of everything behind it
    version     u16, of the format of the content
    release     u8 and so many bytes of ASCII: the release of coldparquet that wrote it
    length      u64, of the content
    content     compressed with zstd

Numbers are little-endian. The first four fields stay where they are in every version, so that a reader of any version can
tell a damaged piece from one that another version has to read.
"""

from __future__ import annotations

import struct
import zlib
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version

import pyarrow as pa

from coldparquet.errors import UnsupportedError
from coldparquet.pieces.sections import damaged_piece

PIECE_MAGIC = b"CPPIECE\0"
PIECE_VERSION = 3
"""Raised with every change of the content. Driver and executors run the same release, so that one version is enough."""

_CHECKSUM = struct.Struct("<I")
_CHECKED_FROM = len(PIECE_MAGIC) + _CHECKSUM.size
_VERSION = struct.Struct("<HB")
"""Version, and length of the release."""
_LENGTH = struct.Struct("<Q")

_SMALL_CONTENT_BYTES = 16 * 1024
_SMALL_CONTENT_LEVEL, _LEVEL = 9, 1
"""How hard to compress: a twentieth of a small content is worth 0.2 ms; of long ones the quick level leaves little more."""

_LARGEST_CONTENT_BYTES = 1 << 30
"""A row group of 10 columns takes less than a kilobyte."""


def frame_content(content: bytes) -> bytes:
    """Wrap the content of a piece."""
    release = installed_release().encode("ascii", "replace")[:0xFF]
    behind = b"".join(
        (
            _VERSION.pack(PIECE_VERSION, len(release)),
            release,
            _LENGTH.pack(len(content)),
            pa.Codec("zstd", compression_level=_level(content)).compress(content, asbytes=True),
        )
    )
    return b"".join((PIECE_MAGIC, _CHECKSUM.pack(zlib.crc32(behind)), behind))


def unframe_content(data: bytes) -> bytes:
    """Return the content of a piece.

    Raises:
        FormatError: The bytes are none of a piece, or were damaged on their way (``ChecksumMismatch``).
        UnsupportedError: Another version of coldparquet wrote them (kind ``UnknownPieceVersion``).
    """
    if data[: len(PIECE_MAGIC)] != PIECE_MAGIC:
        raise damaged_piece(f"they begin with {data[: len(PIECE_MAGIC)]!r}, not with {PIECE_MAGIC!r}", offset=0)
    behind = memoryview(data)[_CHECKED_FROM:]
    if len(behind) < _VERSION.size:
        raise damaged_piece(f"there are only {len(data)} of them", kind="Truncated")
    (stored,) = _CHECKSUM.unpack_from(data, len(PIECE_MAGIC))
    if zlib.crc32(behind) != stored:
        raise damaged_piece("their checksum does not match", offset=len(PIECE_MAGIC), kind="ChecksumMismatch")
    piece_version, release_bytes = _VERSION.unpack_from(behind)
    content_at = _VERSION.size + release_bytes + _LENGTH.size
    if piece_version != PIECE_VERSION:
        raise _other_version(piece_version, bytes(behind[_VERSION.size :][:release_bytes]))
    if len(behind) < content_at:
        raise damaged_piece("they end within the header", kind="Truncated")
    (length_bytes,) = _LENGTH.unpack_from(behind, content_at - _LENGTH.size)
    if length_bytes > _LARGEST_CONTENT_BYTES:
        raise damaged_piece(f"they claim a content of {length_bytes:,} bytes", offset=_CHECKED_FROM)
    try:
        return pa.decompress(behind[content_at:], decompressed_size=length_bytes, codec="zstd", asbytes=True)
    except (OSError, ValueError) as error:
        raise damaged_piece(f"the content does not decompress ({error})", offset=_CHECKED_FROM + content_at) from error


@lru_cache(maxsize=1)
def installed_release() -> str:
    """Return the release of coldparquet that runs here."""
    try:
        return version("coldparquet")
    except PackageNotFoundError:  # a checkout that was put on the path
        return "unreleased"


def _level(content: bytes) -> int:
    return _SMALL_CONTENT_LEVEL if len(content) <= _SMALL_CONTENT_BYTES else _LEVEL


def _other_version(found: int, release: bytes) -> UnsupportedError:
    writer, reader = release.decode("ascii", "replace"), installed_release()
    return UnsupportedError(
        f"the piece was written by coldparquet {writer} (piece format {found}), and this is coldparquet {reader} (piece"
        f" format {PIECE_VERSION}); install the same release on the driver and on all executors",
        kind="UnknownPieceVersion",
        written_by=writer,
        read_by=reader,
        piece_version=found,
        known_version=PIECE_VERSION,
    )
