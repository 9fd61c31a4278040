"""One buffer for what several requests bring: each byte is copied once, from the answer of the store to its place."""

from __future__ import annotations

from bisect import bisect_right

import pyarrow as pa

from coldparquet.errors import FormatError, InternalError


class PlacedBuffer:
    """Memory of its final size before the first byte arrives, to be filled in any order.

    Args:
        payload_bytes: How many bytes will be placed.
        before: What precedes them in the buffer, known already.
        behind: What follows them.
    """

    def __init__(self, payload_bytes: int, *, before: bytes = b"", behind: bytes = b"") -> None:
        self._payload_start = len(before)
        self._payload_stop = len(before) + payload_bytes
        self.size_bytes = self._payload_stop + len(behind)
        """Memory that the buffer holds."""
        # Arrow's allocator does not clear the memory; nobody looks at it before every byte has been placed.
        try:
            self._buffer = pa.allocate_buffer(self.size_bytes)
        except MemoryError as error:
            raise FormatError(
                f"{self.size_bytes:,} bytes are to be decoded at once, and this machine has not so much memory: the metadata is"
                " damaged, or the row group is too large for it",
                kind="TooLarge",
            ) from error
        self._bytes = memoryview(self._buffer).cast("B")
        self._bytes[: self._payload_start] = before
        self._bytes[self._payload_stop :] = behind
        self._placed: list[tuple[int, int]] = []
        """Disjoint (start, stop) of the bytes that have arrived, ascending; neighbours that touch are joined."""

    @property
    def missing_bytes(self) -> int:
        """Bytes that have not been placed yet."""
        return self._payload_stop - self._payload_start - sum(stop - start for start, stop in self._placed)

    @property
    def complete(self) -> bool:
        """Whether every byte has been placed."""
        return self.missing_bytes == 0

    def place(self, destination_offset: int, data: memoryview) -> None:
        """Copy fetched bytes to their place.

        Args:
            destination_offset: Where they belong, counted from the start of the buffer.
            data: The bytes.

        Raises:
            InternalError: They lie outside the chunks, or some of them have been placed before.
        """
        start, stop = destination_offset, destination_offset + data.nbytes
        if not self._payload_start <= start <= stop <= self._payload_stop:
            raise InternalError(
                f"bytes [{start}, {stop}) lie outside the chunks [{self._payload_start}, {self._payload_stop}) of a buffer"
            )
        if start == stop:
            return
        after = bisect_right(self._placed, (start, stop))
        joins_before = after > 0 and self._placed[after - 1][1] >= start
        joins_after = after < len(self._placed) and self._placed[after][0] <= stop
        if (joins_before and self._placed[after - 1][1] > start) or (joins_after and self._placed[after][0] < stop):
            raise InternalError(f"some of the bytes [{start}, {stop}) of a buffer were placed twice")
        self._bytes[start:stop] = data.cast("B")
        joined_start = self._placed[after - 1][0] if joins_before else start
        joined_stop = self._placed[after][1] if joins_after else stop
        self._placed[after - joins_before : after + joins_after] = [(joined_start, joined_stop)]

    def bytes(self) -> memoryview:
        """Return the whole buffer; it shares the memory of this object.

        Raises:
            InternalError: Bytes are missing.
        """
        if not self.complete:
            raise InternalError(f"a buffer is decoded while {self.missing_bytes} of its bytes are missing")
        return self._bytes
