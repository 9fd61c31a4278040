"""What the simulated cold store does when it is written to: PUT, uploads in parts, deletions, each on S3's conditions."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import time
import zlib
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from coldparquet.testing.simulator_protocol import AnswerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from coldparquet.testing.simulator_objects import DirectoryStore

CHECKSUM_HEADER = "x-amz-checksum-crc32"
STORAGE_CLASS_HEADER = "x-amz-storage-class"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectFacts:
    """What a file cannot say about the object that it is."""

    etag: str
    """Of the version that the facts are about."""
    checksum: str
    """Value of :data:`CHECKSUM_HEADER`."""
    storage_class: str


@dataclass(slots=True, kw_only=True)
class PendingUpload:
    """An upload in parts that is neither completed nor aborted."""

    bucket: str
    key: str
    upload_id: str
    started_s: float
    """Seconds since 1970."""
    storage_class: str
    parts: dict[int, tuple[Path, int]] = field(default_factory=dict)
    """File and CRC-32 of each part, by its number."""


class ObjectWriter:
    """Writes the objects of a :class:`DirectoryStore`.

    Checking a condition and replacing the file happen without giving the event loop to anybody else, so that of two
    conditional writes one wins; writing the bytes before that happens in threads. What is not complete lies in a folder
    that no listing shows.

    Args:
        objects: Where they are read from.
    """

    def __init__(self, objects: DirectoryStore) -> None:
        self._objects = objects
        self._uploads: dict[str, PendingUpload] = {}
        self._facts: dict[tuple[str, str], ObjectFacts] = {}
        self._numbers = count(1)

    def facts(self, bucket: str, key: str, etag: str) -> ObjectFacts | None:
        """Return what is known about this version of an object; None if it was not written here."""
        found = self._facts.get((bucket, key))
        return found if found is not None and found.etag == etag else None

    async def put(self, bucket: str, key: str, body: bytes, headers: Mapping[str, str]) -> ObjectFacts:
        """Answer PutObject."""
        checksum = _checked_checksum(body, headers)
        staged = await self._stage(bucket, [body])
        return self._publish(bucket, key, staged, checksum, headers.get(STORAGE_CLASS_HEADER, "STANDARD"), headers)

    def start(self, bucket: str, key: str, headers: Mapping[str, str]) -> str:
        """Answer CreateMultipartUpload with the id of the upload."""
        upload_id = f"upload-{next(self._numbers)}"
        self._uploads[upload_id] = PendingUpload(
            bucket=bucket,
            key=key,
            upload_id=upload_id,
            started_s=time.time(),
            storage_class=headers.get(STORAGE_CLASS_HEADER, "STANDARD"),
        )
        return upload_id

    async def put_part(self, upload_id: str, number: int, body: bytes, headers: Mapping[str, str]) -> tuple[str, str]:
        """Answer UploadPart with its ETag and checksum."""
        upload = self._upload(upload_id)
        checksum = _checked_checksum(body, headers)
        upload.parts[number] = (await self._stage(upload.bucket, [body]), zlib.crc32(body))
        return _part_etag(zlib.crc32(body)), checksum

    async def complete(self, upload_id: str, numbers: list[int], headers: Mapping[str, str]) -> ObjectFacts:
        """Answer CompleteMultipartUpload."""
        upload = self._upload(upload_id)
        if not numbers or numbers != sorted(upload.parts.keys() & set(numbers)):
            raise AnswerError(HTTPStatus.BAD_REQUEST, "InvalidPart", "One or more of the specified parts are missing.")
        parts = [upload.parts[number][0] for number in numbers]
        staged = await self._stage(upload.bucket, (part.read_bytes() for part in parts))
        crc32s = b"".join(upload.parts[number][1].to_bytes(4, "big") for number in numbers)
        checksum = f"{_encoded(zlib.crc32(crc32s))}-{len(numbers)}"
        facts = self._publish(upload.bucket, upload.key, staged, checksum, upload.storage_class, headers)
        self.abort(upload_id)
        return facts

    def abort(self, upload_id: str) -> None:
        """Answer AbortMultipartUpload."""
        upload = self._upload(upload_id)
        del self._uploads[upload_id]
        for path, _ in upload.parts.values():
            path.unlink(missing_ok=True)

    def pending(self, bucket: str, prefix: str) -> list[PendingUpload]:
        """Answer ListMultipartUploads."""
        found = [
            upload for upload in self._uploads.values() if upload.bucket == bucket and upload.key.startswith(prefix)
        ]
        return sorted(found, key=lambda upload: (upload.key, upload.started_s))

    def delete(self, bucket: str, keys: list[str]) -> None:
        """Answer DeleteObjects; objects that do not exist are fine."""
        for key in keys:
            path = self._objects.path_of(bucket, key)
            if path is not None:
                Path(path).unlink(missing_ok=True)
            self._facts.pop((bucket, key), None)

    def _upload(self, upload_id: str) -> PendingUpload:
        if upload_id not in self._uploads:
            raise AnswerError(HTTPStatus.NOT_FOUND, "NoSuchUpload", "The specified multipart upload does not exist.")
        return self._uploads[upload_id]

    async def _stage(self, bucket: str, pieces: Iterable[bytes]) -> Path:
        staged = self._objects.staging_folder(bucket) / str(next(self._numbers))
        await asyncio.to_thread(_write_pieces, staged, pieces)
        return staged

    def _publish(  # noqa: PLR0913, PLR0917 - one step, of which everything is decided
        self, bucket: str, key: str, staged: Path, checksum: str, storage_class: str, headers: Mapping[str, str]
    ) -> ObjectFacts:
        """Give a staged file its name if the request's conditions hold."""
        path = self._objects.path_of(bucket, key)
        try:
            if path is None:
                raise AnswerError(HTTPStatus.BAD_REQUEST, "InvalidArgument", "The key cannot be the name of a file.")
            self._check_conditions(bucket, key, headers)
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            os.replace(staged, path)  # noqa: PTH105 - as above
        finally:
            staged.unlink(missing_ok=True)
        with self._objects.opened(bucket, key) as opened:
            if opened is None:
                raise AnswerError(HTTPStatus.INTERNAL_SERVER_ERROR, "InternalError", "The object vanished.")
            facts = ObjectFacts(etag=opened.stored.etag, checksum=checksum, storage_class=storage_class)
        self._facts[bucket, key] = facts
        return facts

    def _check_conditions(self, bucket: str, key: str, headers: Mapping[str, str]) -> None:
        with self._objects.opened(bucket, key) as opened:
            etag = None if opened is None else opened.stored.etag
        wanted = headers.get("If-Match")
        if wanted is not None and etag is None:
            raise AnswerError(HTTPStatus.NOT_FOUND, "NoSuchKey", "The specified key does not exist.", Key=key)
        if (wanted is not None and wanted != etag) or (headers.get("If-None-Match") == "*" and etag is not None):
            raise AnswerError(
                HTTPStatus.PRECONDITION_FAILED,
                "PreconditionFailed",
                "At least one of the pre-conditions you specified did not hold",
            )


def _write_pieces(path: Path, pieces: Iterable[bytes]) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as file:
        file.writelines(pieces)


def _checked_checksum(body: bytes, headers: Mapping[str, str]) -> str:
    """Return the checksum of a body, which must be the one that the client sent with it."""
    checksum = _encoded(zlib.crc32(body))
    if headers.get(CHECKSUM_HEADER, checksum) != checksum:
        raise AnswerError(
            HTTPStatus.BAD_REQUEST, "BadDigest", "The CRC32 you specified did not match what we received."
        )
    return checksum


def _encoded(crc32: int) -> str:
    return base64.b64encode(crc32.to_bytes(4, "big")).decode()


def _part_etag(crc32: int) -> str:
    return f'"{hashlib.blake2b(crc32.to_bytes(4, "big"), digest_size=16).hexdigest()}"'
