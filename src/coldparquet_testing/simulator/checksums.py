"""Computes checksums of whole objects as S3 does, with other packages than those that the library uses."""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Literal, Self, TypeAlias

from coldparquet_testing.simulator.objects import AnswerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

Algorithm: TypeAlias = Literal["CRC32", "CRC32C", "CRC64NVME"]

_WIDTH_BYTES: dict[Algorithm, int] = {"CRC32": 4, "CRC32C": 4, "CRC64NVME": 8}


@dataclass(frozen=True, slots=True)
class ObjectChecksum:
    """A checksum in S3's notation."""

    algorithm: Algorithm
    value: str
    """In base 64; a composite one has ``-`` and the number of parts behind it."""

    @classmethod
    def of(cls, algorithm: Algorithm, pieces: Iterable[bytes]) -> Self:
        """Return the checksum of all bytes."""
        return cls(algorithm, base64.b64encode(_digest(algorithm, pieces)).decode())

    @classmethod
    def of_parts(cls, algorithm: Algorithm, parts: list[ObjectChecksum]) -> Self:
        """Return the composite checksum: that of the checksums of the parts, one after the other."""
        joined = b"".join(base64.b64decode(part.value) for part in parts)
        return cls(algorithm, f"{cls.of(algorithm, [joined]).value}-{len(parts)}")

    @property
    def header(self) -> str:
        """Name of its header."""
        return checksum_header(self.algorithm)

    @property
    def headers(self) -> dict[str, str]:
        """Its headers in an answer."""
        return {self.header: self.value, "x-amz-checksum-type": "COMPOSITE" if "-" in self.value else "FULL_OBJECT"}


def checksum_header(algorithm: Algorithm) -> str:
    """Return the name of the header for a checksum."""
    return f"x-amz-checksum-{algorithm.lower()}"


def checked_checksum(body: bytes, headers: Mapping[str, str], *, otherwise: Algorithm = "CRC32") -> ObjectChecksum:
    """Compute the checksum of a body, and compare it with the client's.

    Args:
        body: The received body.
        headers: Those of the request.
        otherwise: The algorithm if the client sent no checksum.
    """
    algorithm = next((known for known in _WIDTH_BYTES if checksum_header(known) in headers), otherwise)
    checksum = ObjectChecksum.of(algorithm, [body])
    if headers.get(checksum.header, checksum.value) != checksum.value:
        raise AnswerError(
            HTTPStatus.BAD_REQUEST, "BadDigest", f"The {algorithm} you specified did not match what we received."
        )
    return checksum


def asked_algorithm(headers: Mapping[str, str]) -> Algorithm:
    """Return the algorithm that a multipart upload requests at its start."""
    asked = headers.get("x-amz-checksum-algorithm", "CRC32")
    for algorithm in _WIDTH_BYTES:
        if algorithm == asked:
            return algorithm
    raise AnswerError(HTTPStatus.BAD_REQUEST, "InvalidRequest", "The simulated store lacks this checksum algorithm.")


def _digest(algorithm: Algorithm, pieces: Iterable[bytes]) -> bytes:
    update, crc = _update(algorithm), 0
    for piece in pieces:
        crc = update(piece, crc)
    return crc.to_bytes(_WIDTH_BYTES[algorithm], "big")


@cache
def _update(algorithm: Algorithm) -> Callable[[bytes, int], int]:
    """Return the function from bytes and the checksum so far to the checksum with them."""
    if algorithm == "CRC32":
        return zlib.crc32
    import crcmod.predefined  # noqa: PLC0415 - only stores that are asked for these need the package

    update: Callable[[bytes, int], int]
    if algorithm == "CRC32C":
        update = crcmod.predefined.mkCrcFun("crc-32c")
    else:
        update = crcmod.mkCrcFun(0x1AD93D23594C93659, initCrc=0, xorOut=(1 << 64) - 1)
    return update
