"""Checksums of whole objects: CRC-32, CRC-32C and CRC-64/NVME, over all bytes or over the checksums of parts.

Stores tell one for a whole object only, never for a range. CRC-32 comes with Python; the other two need ``awscrt`` (5 GB/s) or
``crcmod-plus`` (0.35 GB/s). Where neither is installed they are not compared.
"""

from __future__ import annotations

import asyncio
import sys
import zlib
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from coldparquet.errors import StorageError
from coldparquet.options import KIB, MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from coldparquet.storage.requests import ChecksumAlgorithm, StoredChecksum

    CrcFunction: TypeAlias = Callable[[bytes | memoryview, int], int]
    """From bytes, and the checksum of what lies before them, to the checksum of both."""

CHECKSUM_BYTES: dict[ChecksumAlgorithm, int] = {"CRC32": 4, "CRC32C": 4, "CRC64NVME": 8}

_CRC32C_POLYNOMIAL = 0x11EDC6F41
_CRC64NVME_POLYNOMIAL = 0x1AD93D23594C93659
_ALL_ONES_32 = 0xFFFFFFFF
_ALL_ONES_64 = 0xFFFFFFFFFFFFFFFF
_IN_THREAD_BYTES = 256 * KIB
_USUAL_PART_BYTES = tuple(mib * MIB for mib in (5, 8, 10, 16, 25, 32, 50, 64, 100, 128, 256, 512))
"""Part sizes that uploaders have as their defaults, ours among them, or that people set."""
MAX_PARTS = 10_000
"""S3's limit. An object of more than 156 GiB has parts of more than 16 MiB."""


@cache
def crc_function(algorithm: ChecksumAlgorithm) -> CrcFunction | None:
    """Return the function that computes a checksum; None where no package that brings it is installed."""
    if algorithm == "CRC32":
        return zlib.crc32
    try:
        from awscrt import checksums  # noqa: PLC0415 - optional, and slow to import
    except ImportError:
        return _crcmod_function(algorithm)
    compute: CrcFunction = checksums.crc32c if algorithm == "CRC32C" else checksums.crc64nvme
    return compute


def _crcmod_function(algorithm: ChecksumAlgorithm) -> CrcFunction | None:
    try:
        import crcmod  # noqa: PLC0415 - optional
    except ImportError:
        return None
    polynomial, ones = (
        (_CRC32C_POLYNOMIAL, _ALL_ONES_32) if algorithm == "CRC32C" else (_CRC64NVME_POLYNOMIAL, _ALL_ONES_64)
    )
    compute: CrcFunction = crcmod.mkCrcFun(polynomial, initCrc=0, rev=True, xorOut=ones)
    return compute


class WholeObjectCheck:
    """Compares the bytes of an object, handed over in order, with the checksum that the store keeps.

    Stores do not tell the sizes of the parts that an object came in, so that several likely ones are tried.

    Args:
        expected: What the store keeps.
        size_bytes: Size of the object.
    """

    def __init__(self, expected: StoredChecksum, *, size_bytes: int) -> None:
        self.expected = expected
        self._size_bytes = size_bytes
        self._seen_bytes = 0
        crc = crc_function(expected.algorithm)
        self._layouts = [] if crc is None else [_Layout(ends, crc) for ends in _likely_part_ends(expected, size_bytes)]

    async def update(self, data: bytes | memoryview) -> None:
        """Take the next bytes; long ones are worked on in a thread."""
        if len(data) < _IN_THREAD_BYTES:
            self._update(data)
        else:
            await asyncio.to_thread(self._update, data)

    @property
    def can_tell(self) -> bool:
        """Whether there is anything to compare: False spares handing the bytes over."""
        return bool(self._layouts)

    def is_match(self) -> bool | None:
        """Tell, after the last byte, whether these are the bytes that were stored."""
        if self._seen_bytes != self._size_bytes:
            return False
        if any(layout.checksum(self.expected) == self.expected.value for layout in self._layouts):
            return True
        is_certain = self.can_tell and self.expected.part_count in (None, 1)
        return False if is_certain else None

    def refuse_mismatch(self, path: str) -> None:
        """Raise where the bytes are certainly others than those that were stored."""
        if self.is_match() is False:
            raise StorageError(
                f"these are not the bytes that were stored: their {self.expected.algorithm} is not"
                f" {self.expected.value:0{2 * CHECKSUM_BYTES[self.expected.algorithm]}x}, which the store keeps; read the"
                " object again, and write it anew if that does not help",
                kind="ChecksumMismatch",
                path=path,
                algorithm=self.expected.algorithm,
                expected=self.expected.value,
            )

    def _update(self, data: bytes | memoryview) -> None:
        for layout in self._layouts:
            layout.update(memoryview(data), self._seen_bytes)
        self._seen_bytes += len(data)


async def check_whole(data: bytes, stored: StoredChecksum, *, path: str) -> None:
    """Compare all bytes of an object with the checksum that the store keeps of it, as far as that can be done."""
    if stored.algorithm != "CRC32" and "awscrt.checksums" not in sys.modules:
        await asyncio.to_thread(crc_function, stored.algorithm)  # the import takes a tenth of a second
    check = WholeObjectCheck(stored, size_bytes=len(data))
    if check.can_tell:
        await check.update(data)
        check.refuse_mismatch(path)


class _Layout:
    """Running checksums of an object that is thought to have come in parts with these ends."""

    def __init__(self, part_ends: Sequence[int], crc: CrcFunction) -> None:
        self._part_ends = part_ends
        self._crc = crc
        self._crcs = [0] * len(part_ends)
        self._part = 0

    def update(self, data: memoryview, start: int) -> None:
        while data and self._part < len(self._part_ends):
            own = data[: self._part_ends[self._part] - start]
            self._crcs[self._part] = self._crc(own, self._crcs[self._part])
            start, data = start + len(own), data[len(own) :]
            if start == self._part_ends[self._part]:
                self._part += 1

    def checksum(self, like: StoredChecksum) -> int:
        if like.part_count is None:
            return self._crcs[0]
        width_bytes = CHECKSUM_BYTES[like.algorithm]
        return self._crc(b"".join(crc.to_bytes(width_bytes, "big") for crc in self._crcs), 0)


def _likely_part_ends(expected: StoredChecksum, size_bytes: int) -> Iterable[tuple[int, ...]]:
    """Return where the parts of an object may end; the only answer is the right one where it is a single part."""
    count = expected.part_count or 1
    if count == 1:
        return [(size_bytes,)]
    least_bytes = -(-size_bytes // (MAX_PARTS * MIB)) * MIB
    return [
        (*range(part_bytes, size_bytes, part_bytes), size_bytes)
        for part_bytes in sorted({*_USUAL_PART_BYTES, least_bytes})
        if part_bytes > 0 and -(-size_bytes // part_bytes) == count
    ]
