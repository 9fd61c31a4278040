"""Decides which bytes of a Parquet footer or a sidecar to fetch: state machines without I/O.

A Parquet footer takes at most two ranges, one after the other:

    fetch = FooterFetch(path=path, suffix_bytes=65_536)
    while (wanted := fetch.next_range) is not None:
        answer = await store.get(...)
        fetch.receive(answer.data, start=answer.start, object_size_bytes=answer.object_size_bytes)
    footer = parse_footer(fetch.footer, path=path, offset=fetch.footer_offset)

The first range of a sidecar is a prefix. Most sidecars fit it, and take one round trip. If the committed size in the
first 8 bytes is larger, one more round trip fetches exactly the rest. A large rest is split into parallel parts: three
megabytes over one connection take longer than the wait for their first byte. The length of the object is ignored: it
may include an append that was never committed.

    fetch = SidecarFetch(path, prefix_bytes=65536)
    while wanted := fetch.wanted():
        for byte_range in wanted:
            fetch.receive(byte_range, answer.data, object_size_bytes=answer.object_size_bytes)
    sidecar = parse_sidecar(fetch.committed_bytes())
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from msgspec import Struct

from coldparquet.errors import FormatError, InternalError, InvalidInputError, UnsupportedError
from coldparquet.format import sidecar_layout as layout
from coldparquet.format.parquet_footer import PARQUET_MAGIC
from coldparquet.options import COALESCING_BY_GOAL, Coalescing
from coldparquet.ranges import ByteRange, SuffixRange

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    IntArray: TypeAlias = npt.NDArray[np.int64]

NOT_FETCHED = -1

WRITE_ANEW = "'coldparquet index --force' writes the sidecar anew"
"""What errors about a damaged sidecar advise."""


class WantedRanges(Struct, frozen=True, kw_only=True, eq=False):
    """Ranges of one object to be fetched, in no particular order; they may repeat and overlap."""

    starts: IntArray
    """First byte of each range, shape ``(ranges,)``."""
    stops: IntArray
    """One past the last byte of each range."""


class FetchedRanges:
    """What was fetched so far, in rounds. Pieces of one round are disjoint; those of different rounds may overlap."""

    def __init__(self) -> None:
        self._rounds: list[_Round] = []
        self.data: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
        """All pieces, one after the other."""

    @property
    def round_count(self) -> int:
        """How many rounds were added."""
        return len(self._rounds)

    def bytes_at(self, start: int, stop: int) -> bytes | None:
        """Return one range of the object; None where not all of it is there."""
        (place,) = self.places(np.array([start]), np.array([stop])).tolist()
        return None if place == NOT_FETCHED else self.data[place : place + stop - start].tobytes()

    def add_round(self, pieces: Sequence[tuple[int, bytes]]) -> None:
        """Add the answers of one round of requests."""
        pieces = sorted(pieces, key=lambda piece: piece[0])
        starts = np.array([start for start, _ in pieces], np.int64)
        stops = starts + np.array([len(data) for _, data in pieces], np.int64)
        lengths = stops - starts
        begins_run = np.ones(len(starts), np.bool_)
        begins_run[1:] = starts[1:] != stops[:-1]
        runs = np.cumsum(begins_run) - 1
        # A range may reach over pieces that touch: they belong to one request that was split.
        run_stops = np.append(stops[:-1][begins_run[1:]], stops[-1:])
        places = len(self.data) + np.cumsum(lengths) - lengths
        self._rounds.append(_Round(starts=starts, reach=run_stops[runs], places=places))
        joined = np.frombuffer(b"".join(data for _, data in pieces), np.uint8)
        self.data = np.concatenate([self.data, joined])

    def missing(self, ranges: Sequence[tuple[IntArray, IntArray]]) -> WantedRanges | None:
        """Return the ranges that are not complete; None if nothing is missing."""
        starts = np.concatenate([np.empty(0, np.int64), *(begins for begins, _ in ranges)])
        stops = np.concatenate([np.empty(0, np.int64), *(ends for _, ends in ranges)])
        is_missing = self.places(starts, stops) == NOT_FETCHED
        return WantedRanges(starts=starts[is_missing], stops=stops[is_missing]) if is_missing.any() else None

    def places(self, starts: IntArray, stops: IntArray) -> IntArray:
        """Find the start of each range in ``data``; ``NOT_FETCHED`` where a range is incomplete."""
        found = np.full(len(starts), NOT_FETCHED)
        for fetched in self._rounds:
            if len(fetched.starts):
                piece = np.maximum(np.searchsorted(fetched.starts, starts, side="right") - 1, 0)
                is_there = (fetched.starts[piece] <= starts) & (stops <= fetched.reach[piece])
                found = np.where(is_there, fetched.places[piece] + starts - fetched.starts[piece], found)
        return found


class _Round(Struct, frozen=True, kw_only=True, eq=False):
    """The pieces of one round, ascending; every array has shape ``(pieces,)``."""

    starts: IntArray
    reach: IntArray
    """End of the bytes without a gap from the start of each piece."""
    places: IntArray
    """Start of each piece in the bytes of all rounds."""


TAIL_BYTES = 8
"""Footer length and magic bytes at the end of every Parquet file."""
ENCRYPTED_MAGIC = b"PARE"


class FooterFetch:
    """Fetch the footer of one Parquet file in one round trip, or in two where it is longer than the first guess.

    Args:
        path: The file, for error messages.
        suffix_bytes: Size of the first request; fewer than 8 bytes become 8.
        size_bytes: Committed size of the file. Files may grow behind it: the footer that ends there is the one that
            is fetched. None takes the end of the object, which the first request learns along with the bytes.
    """

    def __init__(self, *, path: str, suffix_bytes: int, size_bytes: int | None = None) -> None:
        self._path = path
        self._size_bytes = size_bytes
        self._footer: bytes | None = None
        self._footer_offset = 0
        suffix_bytes = max(suffix_bytes, TAIL_BYTES)
        self._next_range: ByteRange | SuffixRange | None = SuffixRange(suffix_bytes)
        if size_bytes is not None:
            self._check_size(size_bytes)
            self._next_range = ByteRange(max(0, size_bytes - suffix_bytes), size_bytes)
        self._tail = b""

    @property
    def next_range(self) -> ByteRange | SuffixRange | None:
        """Bytes to fetch next; None when the footer is there."""
        return self._next_range

    @property
    def footer(self) -> bytes:
        """The Thrift bytes of the footer, once ``next_range`` is None."""
        if self._footer is None:
            raise InternalError("the footer was asked for before it was fetched", path=self._path)
        return self._footer

    @property
    def footer_offset(self) -> int:
        """Where ``footer`` begins in the file."""
        return self._footer_offset

    @property
    def size_bytes(self) -> int:
        """Size of the Parquet file: the committed size, or that of the object."""
        if self._size_bytes is None:
            raise InternalError("the size was asked for before anything was fetched", path=self._path)
        return self._size_bytes

    def receive(self, data: bytes, *, start: int, object_size_bytes: int | None = None) -> None:
        """Take the answer for ``next_range``."""
        asked = self._next_range
        if asked is None:
            raise InternalError("an answer came although nothing was asked for", path=self._path)
        stop = start + len(data)
        if isinstance(asked, SuffixRange):
            is_whole = start == 0 or len(data) == asked.length_bytes
            if object_size_bytes not in {None, stop} or not is_whole:
                raise self._truncated(
                    f"asked for the last {asked.length_bytes} bytes of {object_size_bytes or 'unknown size'},"
                    f" got {ByteRange(start, stop)}",
                    offset=stop,
                )
            self._check_size(stop)
            self._size_bytes = stop
        elif (start, stop) != (asked.start, asked.stop):
            raise self._truncated(f"asked for bytes {asked}, got {ByteRange(start, stop)}", offset=stop)
        if self._tail:
            self._finish(data + self._tail)
        else:
            self._receive_tail(data, start)

    def _receive_tail(self, data: bytes, start: int) -> None:
        length_bytes = self._footer_length(data[-TAIL_BYTES:])
        self._footer_offset = self.size_bytes - TAIL_BYTES - length_bytes
        if self._footer_offset >= start:
            self._finish(data[self._footer_offset - start :])
        else:
            self._tail = data
            self._next_range = ByteRange(self._footer_offset, start)

    def _finish(self, footer_and_tail: bytes) -> None:
        self._footer = footer_and_tail[:-TAIL_BYTES]
        self._next_range = None
        self._tail = b""

    def _footer_length(self, tail: bytes) -> int:
        end = self.size_bytes
        magic = tail[4:]
        if magic == ENCRYPTED_MAGIC:
            raise UnsupportedError("the footer is encrypted; decrypt the file first", kind="Encrypted", path=self._path)
        if magic != PARQUET_MAGIC:
            raise FormatError(
                f"a Parquet file ends with {PARQUET_MAGIC!r}, but here {magic!r} is at {end - 4}; it is no Parquet"
                f" file, or {end} bytes are not its committed size",
                path=self._path,
                offset=end - 4,
                field="magic",
            )
        length_bytes = int.from_bytes(tail[:4], "little")
        largest = end - TAIL_BYTES - len(PARQUET_MAGIC)
        if not 0 < length_bytes <= largest:
            raise FormatError(
                f"the footer length at {end - TAIL_BYTES} is {length_bytes}, but a file of {end} bytes has room for"
                f" 1 to {largest}; the file is damaged",
                path=self._path,
                offset=end - TAIL_BYTES,
                field="footer_length",
            )
        return length_bytes

    def _check_size(self, size_bytes: int) -> None:
        least = len(PARQUET_MAGIC) + TAIL_BYTES
        if size_bytes < least:
            raise self._truncated(
                f"a Parquet file has at least {least} bytes, this one {size_bytes}", offset=size_bytes
            )

    def _truncated(self, message: str, *, offset: int) -> FormatError:
        return FormatError(f"{message}; the upload may be incomplete", kind="Truncated", path=self._path, offset=offset)


class SidecarFetch:
    """The fetch of one sidecar, at most two round trips.

    Args:
        path: The sidecar, for error messages.
        prefix_bytes: Length of the first range, at least the 32 bytes of the fixed header.
        coalescing: How long the parts of the rest may be; inlined bloom filters can make a sidecar of tens of megabytes.
        connections: Most connections for the rest, as long as its parts are worth a request each.
    """

    def __init__(
        self,
        path: str,
        *,
        prefix_bytes: int,
        coalescing: Coalescing = COALESCING_BY_GOAL["fast"],
        connections: int = 1,
    ) -> None:
        if prefix_bytes < layout.HEADER.size:
            raise InvalidInputError(
                f"a prefix of {prefix_bytes} bytes does not hold the header; ask for at least {layout.HEADER.size}",
                path=path,
            )
        self._path = path
        self._coalescing = coalescing
        self._connections = connections
        self._wanted: tuple[ByteRange, ...] = (ByteRange(0, prefix_bytes),)
        self._committed_size_bytes: int | None = None
        self._received = memoryview(b"")

    def wanted(self) -> tuple[ByteRange, ...]:
        """Return the ranges to fetch next; empty when the sidecar is complete."""
        return self._wanted

    def receive(
        self,
        byte_range: ByteRange,
        data: bytes | bytearray | memoryview,
        *,
        object_size_bytes: int | None = None,
    ) -> None:
        """Take the bytes of a wanted range."""
        if byte_range not in self._wanted:
            raise InternalError(f"received {byte_range}, wanted {self._wanted}", path=self._path)
        if len(data) > byte_range.length_bytes:
            raise InternalError(f"received {len(data)} bytes for {byte_range}", path=self._path)
        self._wanted = tuple(wanted for wanted in self._wanted if wanted != byte_range)
        object_ends = len(data) < byte_range.length_bytes
        if self._committed_size_bytes is None:
            end = len(data) if object_ends else object_size_bytes
            size_bytes = self._committed_size_bytes = self._parse_committed_size(data, object_size_bytes=end)
            self._received = memoryview(data)
            if size_bytes > len(data):
                # Not cleared, so that no byte is touched before its part arrives.
                self._received = np.empty(size_bytes, np.uint8).data
                self._received[: len(data)] = data
                self._wanted = self._parts_of(ByteRange(len(data), size_bytes))
            return
        if object_ends:
            raise self._unusable_size(self._committed_size_bytes, f"the object ends at {byte_range.start + len(data)}")
        self._received[byte_range.start : byte_range.stop] = data

    def committed_bytes(self) -> memoryview:
        """Return the sidecar up to its committed size."""
        if self._wanted:
            raise InternalError(f"the sidecar is not complete: {self._wanted} is still wanted", path=self._path)
        return self._received[: self._committed_size_bytes].toreadonly()

    def _parts_of(self, rest: ByteRange) -> tuple[ByteRange, ...]:
        """Cut the rest behind the prefix into equal parts that are not longer than a request may be."""
        coalescing = self._coalescing
        part_bytes = coalescing.part_bytes(rest.length_bytes, self._connections)
        least_count = -(-rest.length_bytes // coalescing.max_request_bytes)
        count = max(round(rest.length_bytes / part_bytes), least_count)
        starts = [rest.start + rest.length_bytes * number // count for number in range(count)]
        return tuple(ByteRange(start, stop) for start, stop in zip(starts, [*starts[1:], rest.stop], strict=True))

    def _parse_committed_size(self, prefix: bytes | bytearray | memoryview, *, object_size_bytes: int | None) -> int:
        if len(prefix) < layout.COMMITTED_SIZE.size:
            raise FormatError(
                f"the object has {len(prefix)} bytes and not even a committed size; it is no sidecar",
                kind="Truncated",
                path=self._path,
                offset=0,
                field="parquet_meta_file_size",
            )
        size: int = layout.COMMITTED_SIZE.unpack_from(prefix)[0]
        if size < layout.HEADER.size:
            raise self._unusable_size(size, f"the header alone takes {layout.HEADER.size}: nothing was committed")
        if object_size_bytes is not None and size > object_size_bytes:
            raise self._unusable_size(size, f"the object ends at {object_size_bytes}")
        if size > layout.MAX_COMMITTED_BYTES:
            raise self._unusable_size(size, f"no sidecar above {layout.MAX_COMMITTED_BYTES} bytes is fetched")
        return size

    def _unusable_size(self, size: int, reason: str) -> FormatError:
        return FormatError(
            f"the committed size is {size} bytes, but {reason}: this is no sidecar, or a damaged one; {WRITE_ANEW}",
            kind="Truncated",
            path=self._path,
            offset=0,
            field="parquet_meta_file_size",
        )
