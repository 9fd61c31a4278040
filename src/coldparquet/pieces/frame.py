"""Frames a piece in bytes: the outermost frame, the sections inside it, and their content as plain data.

    magic       8 bytes, ``CPPIECE`` and a zero
    checksum    u32, CRC-32 of everything after it
    version     u16, of the format of the content
    release     u8 length and ASCII: the release of coldparquet that wrote it
    length      u64, of the content
    content     compressed with zstd

Numbers are little-endian. The first four fields have the same places in every version. So a reader of any version can
distinguish a damaged piece from one of another version.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa

from coldparquet import __version__
from coldparquet.errors import FormatError, UnsupportedError
from coldparquet.format.binary import WORD_BYTES, from_byte_planes, to_byte_planes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from coldparquet.catalog.table_files import TableMoment
    from coldparquet.format.partition_records import PartitionRecord
    from coldparquet.options import Coalescing, ReadOptions
    from coldparquet.plan.bind import BoundPredicate
    from coldparquet.plan.bounds import IntArray
    from coldparquet.plan.columns import TableColumn
    from coldparquet.plan.model import MetadataSource, Read, StoredData


Scalar = TypeVar("Scalar", bound=np.generic)

_LENGTH = struct.Struct("<Q")


class SectionWriter:
    """Collects sections; each is its length as a little-endian u64, and its bytes."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def add_bytes(self, data: bytes) -> None:
        """Add a byte string."""
        self._parts += (_LENGTH.pack(len(data)), data)

    def add_numbers(self, numbers: IntArray | Sequence[int]) -> None:
        """Add an array of signed 64-bit numbers.

        It is written as byte planes of the differences of neighbours, modulo 2**64: offsets in a file become mostly
        zeros.
        """
        array = np.asarray(numbers, dtype=np.int64)
        self.add_bytes(to_byte_planes(np.diff(array, prepend=0)))

    def finish(self) -> bytes:
        """Return all sections."""
        return b"".join(self._parts)


class SectionReader:
    """Returns sections in the order in which they were added.

    Args:
        data: The result of :meth:`SectionWriter.finish`.
    """

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self._position = 0

    def bytes(self) -> memoryview:
        """Return the next byte string."""
        start = self._position + _LENGTH.size
        if start > len(self._data):
            raise self._damaged("another section is missing")
        stop = start + _LENGTH.unpack_from(self._data, self._position)[0]
        if stop > len(self._data):
            raise self._damaged(f"a section ends at byte {stop:,} of {len(self._data):,}")
        self._position = stop
        return self._data[start:stop]

    def numbers(self) -> IntArray:
        """Return the next array."""
        section = self.bytes()
        count, rest_bytes = divmod(len(section), WORD_BYTES)
        if rest_bytes:
            raise self._damaged("a section of numbers has a length that is no multiple of 8")
        return np.cumsum(from_byte_planes(section, (count,)))

    def lists(self) -> list[IntArray]:
        """Return the next lists, which were added as lengths, then numbers. Raises what :meth:`numbers` raises."""
        counts = self.numbers()
        return split(self.numbers(), counts)

    def finish(self) -> None:
        """Check that nothing is left."""
        if self._position != len(self._data):
            raise self._damaged("there are more sections than expected")

    def _damaged(self, problem: str) -> FormatError:
        return damaged_piece(problem, offset=self._position)


def split(numbers: npt.NDArray[Scalar], counts: IntArray) -> list[npt.NDArray[Scalar]]:
    """Cut an array into lists of these lengths."""
    stops = np.cumsum(counts)
    if counts.min(initial=0) < 0 or (stops[-1] if len(stops) else 0) != len(numbers):
        raise damaged_piece(f"the lengths of its lists do not add up to {len(numbers):,} numbers")
    return [numbers[start:stop] for start, stop in pairwise([0, *stops.tolist()])]


def damaged_piece(problem: str, *, offset: int | None = None, kind: str = "InvalidValue") -> FormatError:
    """Make the error for bytes that are not, or no longer, a piece."""
    return FormatError(
        f"these bytes are no piece of a scan: {problem}; take them from ScanPiece.to_bytes() again, and hand them over unchanged",
        kind=kind,
        offset=offset,
        field="piece",
    )


PIECE_MAGIC = b"CPPIECE\0"
PIECE_VERSION = 4
"""Grows with every change of the content. Driver and executors run the same release, so that one version is enough."""

_CHECKSUM = struct.Struct("<I")
_CHECKED_FROM = len(PIECE_MAGIC) + _CHECKSUM.size
_VERSION = struct.Struct("<HB")
"""Version, and length of the release."""

_SMALL_CONTENT_BYTES = 16 * 1024
_SMALL_CONTENT_LEVEL, _LEVEL = 9, 1
"""Compression levels: a twentieth of a small content is worth 0.2 ms; for long ones the fast level is nearly as
good."""

_LARGEST_CONTENT_BYTES = 1 << 30
"""A row group of 10 columns takes less than a kilobyte."""


def frame_content(content: bytes) -> bytes:
    """Wrap the content of a piece."""
    release = __version__.encode("ascii", "replace")[:0xFF]
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
    """Return the content of a piece."""
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


def _level(content: bytes) -> int:
    return _SMALL_CONTENT_LEVEL if len(content) <= _SMALL_CONTENT_BYTES else _LEVEL


def _other_version(found: int, release: bytes) -> UnsupportedError:
    writer, reader = release.decode("ascii", "replace"), __version__
    return UnsupportedError(
        f"the piece was written by coldparquet {writer} (piece format {found}), and this is coldparquet {reader} (piece"
        f" format {PIECE_VERSION}); install the same release on the driver and on all executors",
        kind="UnknownPieceVersion",
        written_by=writer,
        read_by=reader,
        piece_version=found,
        known_version=PIECE_VERSION,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestShape:
    """How the ranges of one partition become requests, as the plan chose for the whole scan."""

    coalescing: Coalescing
    part_bytes: int
    """Approximate length of requests."""
    late_coalescing: Coalescing
    """The same for deferred columns, which are requested separately."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PieceShare:
    """What the reads of a piece in one partition share."""

    name: str
    """Directory name as people know it."""
    metadata_source: MetadataSource
    etag: str | None
    """Version that every answer must have; None if the store tells none."""
    shape: RequestShape
    record: PartitionRecord | None
    """The record of a native partition in the table's `_txn` at planning time."""
    data: StoredData

    @property
    def paths(self) -> tuple[str, ...]:
        """The files to read; for a native partition also their directory, beside which the table's own files are."""
        return (self.data.path, *(file.path for file in self.data.files))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PieceContent:
    """The content of one piece."""

    table: str
    """URL of the table, without credentials."""
    options: ReadOptions
    """How to read; without the options that only concern the driver."""
    columns: tuple[TableColumn, ...]
    """Columns of the result and of the predicate, each once; those of the result come first."""
    output_column_count: int
    predicate: BoundPredicate | None
    predicate_text: str | None
    """For people."""
    late_part_bytes: int
    """Approximate length of second-stage requests."""
    symbols: Mapping[int, Sequence[str]]
    """By index of a column in the table: the symbols that begin its dictionaries; only with ``symbols="global"``."""
    moment: TableMoment | None
    """State of the table that the native partitions have; None without native partitions."""
    shares: tuple[PieceShare, ...]
    """In table order."""
    reads: tuple[Read, ...]
    """Likewise, with the position of their share as ``partition_index``."""

    @property
    def output_columns(self) -> tuple[TableColumn, ...]:
        """Columns of the result, in order."""
        return self.columns[: self.output_column_count]


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceNumbers:
    """What is known of a piece without decoding its reads."""

    row_group_count: int
    """Row groups, or runs of them, to read one by one."""
    rows_at_most: int
    """Upper bound of its rows: the predicate may leave fewer."""
    fetched_bytes: int
    """Upper bound of the bytes that its requests fetch."""
    request_count: int
    """Upper bound of its GETs: fewer where no row remains whose deferred columns would be fetched."""
