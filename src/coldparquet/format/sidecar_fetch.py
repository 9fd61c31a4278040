"""Which bytes of a sidecar to fetch: a state machine that does no I/O itself.

The first range is a prefix. Most sidecars fit it, and one round trip is all. When the committed size in the first 8
bytes exceeds it, one more round trip brings exactly the rest, a large one in parts that can be fetched side by side: three
megabytes over one connection take longer than the wait for their first byte. The length of the object plays no part: it may
include an append that was never committed.

    fetch = SidecarFetch(path, prefix_bytes=65536)
    while wanted := fetch.wanted():
        for byte_range in wanted:
            fetch.receive(byte_range, answer.data, object_size_bytes=answer.object_size_bytes)
    sidecar = parse_sidecar(fetch.committed_bytes())
"""

from __future__ import annotations

import numpy as np

from coldparquet.errors import FormatError, InternalError, InvalidInputError
from coldparquet.format import sidecar_layout as layout
from coldparquet.options import COALESCING_BY_GOAL, Coalescing
from coldparquet.ranges import ByteRange


class SidecarFetch:
    """The fetch of one sidecar, at most two round trips.

    Args:
        path: The sidecar, for error messages.
        prefix_bytes: Length of the first range, at least the 32 bytes of the fixed header.
        coalescing: How long the parts of the rest may be; inlined bloom filters can make a sidecar of tens of megabytes.
        connections: Over so many the rest is spread, as long as its parts are worth a request each.
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
        """Take the bytes of a wanted range.

        Args:
            byte_range: The range as `wanted` returned it.
            data: Its bytes; fewer only where the object ends.
            object_size_bytes: Size of the whole object, where its store told it: nothing behind it is asked for.

        Raises:
            FormatError: The committed size is none that the object can have, or the object ends before it (`Truncated`).
            InternalError: The range was not wanted, or there are more bytes than it has.
        """
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
        """Return the sidecar up to its committed size.

        Raises:
            InternalError: Something is still wanted.
        """
        if self._wanted:
            raise InternalError(f"the sidecar is not complete: {self._wanted} is still wanted", path=self._path)
        return self._received[: self._committed_size_bytes].toreadonly()

    def _parts_of(self, rest: ByteRange) -> tuple[ByteRange, ...]:
        """Cut what lies behind the prefix into equal parts, of which none is longer than a request may be."""
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
            f"the committed size is {size} bytes, but {reason}: this is no sidecar, or a damaged one; 'coldparquet index --force'"
            " writes it anew from the Parquet footer",
            kind="Truncated",
            path=self._path,
            offset=0,
            field="parquet_meta_file_size",
        )
