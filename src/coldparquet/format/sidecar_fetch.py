"""Which bytes of a sidecar to fetch: a state machine that does no I/O itself.

The first range is a prefix. Most sidecars fit it, and one round trip is all. When the committed size in the first 8
bytes exceeds it, one more round trip brings exactly the rest, a large one in parts that can be fetched side by side. The
length of the object plays no part: it may include an append that was never committed.

    fetch = SidecarFetch(path, prefix_bytes=65536)
    while wanted := fetch.wanted():
        for byte_range in wanted:
            fetch.receive(byte_range, <the bytes of that range>)
    sidecar = parse_sidecar(fetch.committed_bytes())
"""

from __future__ import annotations

from coldparquet.errors import FormatError, InternalError, InvalidInputError
from coldparquet.format import sidecar_layout as layout
from coldparquet.ranges import ByteRange

_PART_BYTES = 8 * 1024 * 1024
"""Longest range of the rest: inlined bloom filters can make a sidecar of tens of megabytes."""


class SidecarFetch:
    """The fetch of one sidecar, at most two round trips.

    Args:
        path: The sidecar, for error messages.
        prefix_bytes: Length of the first range, at least the 32 bytes of the fixed header.
    """

    def __init__(self, path: str, *, prefix_bytes: int) -> None:
        if prefix_bytes < layout.HEADER.size:
            raise InvalidInputError(
                f"a prefix of {prefix_bytes} bytes does not hold the header; ask for at least {layout.HEADER.size}",
                path=path,
            )
        self._path = path
        self._wanted: tuple[ByteRange, ...] = (ByteRange(0, prefix_bytes),)
        self._committed_size_bytes: int | None = None
        self._received: bytes | bytearray | memoryview = b""

    def wanted(self) -> tuple[ByteRange, ...]:
        """Return the ranges to fetch next; empty when the sidecar is complete."""
        return self._wanted

    def receive(self, byte_range: ByteRange, data: bytes | bytearray | memoryview) -> None:
        """Take the bytes of a wanted range.

        Args:
            byte_range: The range as `wanted` returned it.
            data: Its bytes; fewer only where the object ends.

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
            size_bytes = self._committed_size_bytes = self._parse_committed_size(data, object_ends=object_ends)
            self._received = data
            if size_bytes > len(data):
                self._received = bytearray(size_bytes)
                self._received[: len(data)] = data
                self._wanted = tuple(
                    ByteRange(start, min(start + _PART_BYTES, size_bytes))
                    for start in range(len(data), size_bytes, _PART_BYTES)
                )
            return
        if object_ends:
            raise self._unusable_size(self._committed_size_bytes, f"the object ends at {byte_range.start + len(data)}")
        memoryview(self._received)[byte_range.start : byte_range.stop] = data

    def committed_bytes(self) -> memoryview:
        """Return the sidecar up to its committed size.

        Raises:
            InternalError: Something is still wanted.
        """
        if self._wanted:
            raise InternalError(f"the sidecar is not complete: {self._wanted} is still wanted", path=self._path)
        return memoryview(self._received)[: self._committed_size_bytes]

    def _parse_committed_size(self, prefix: bytes | bytearray | memoryview, *, object_ends: bool) -> int:
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
        if object_ends and size > len(prefix):
            raise self._unusable_size(size, f"the object ends at {len(prefix)}")
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
