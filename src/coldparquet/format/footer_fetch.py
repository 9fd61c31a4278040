"""Which bytes to fetch for a Parquet footer: a state machine without I/O.

    fetch = FooterFetch(path=path, suffix_bytes=65_536)
    while (wanted := fetch.next_range) is not None:
        answer = await store.get(...)
        fetch.receive(answer.data, start=answer.start, object_size_bytes=answer.object_size_bytes)
    footer = parse_footer(fetch.footer, path=path, offset=fetch.footer_offset)

At most two ranges are wanted, one after the other.
"""

from __future__ import annotations

from coldparquet.errors import FormatError, InternalError, UnsupportedError
from coldparquet.format.parquet_footer import PARQUET_MAGIC
from coldparquet.ranges import ByteRange, SuffixRange

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
        """Take the answer for ``next_range``.

        Args:
            data: Exactly the bytes asked for; for a suffix of a smaller object, the whole object.
            start: Where ``data`` begins in the object.
            object_size_bytes: Size of the object, where the answer tells it.

        Raises:
            FormatError: The object is no Parquet file, is damaged, or is shorter than the committed size.
            UnsupportedError: The footer is encrypted.
        """
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
