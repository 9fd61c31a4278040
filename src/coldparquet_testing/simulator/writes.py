"""Answers writes to the simulated cold store: PUT, multipart uploads, deletions, with S3's conditions."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from contextlib import suppress
from http import HTTPStatus
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from coldparquet.errors import InvalidInputError
from coldparquet_testing.simulator.checksums import ObjectChecksum, asked_algorithm, checked_checksum
from coldparquet_testing.simulator.classes import ObjectClass, parse_object_class
from coldparquet_testing.simulator.objects import AnswerError
from coldparquet_testing.simulator.protocol import ObjectFacts, PendingUpload

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from contextlib import AbstractContextManager

    from coldparquet_testing.simulator.objects import DirectoryStore, OpenedObject


class ObjectWriter:
    """Writes the objects of a :class:`DirectoryStore`.

    A condition is checked and the file replaced without yielding to the event loop, so of two conditional writes one
    wins. The bytes are written before that, in threads. Incomplete files are in a folder that no listing shows.

    Args:
        objects: Reads the objects.
        keep_versions: Whether replaced or deleted objects remain readable by their version.
    """

    def __init__(self, objects: DirectoryStore, *, keep_versions: bool = False) -> None:
        self._objects = objects
        self._keeps_versions = keep_versions
        self._uploads: dict[str, PendingUpload] = {}
        self._facts: dict[tuple[str, str], dict[str, ObjectFacts]] = {}
        self._versions: dict[tuple[str, str, str], Path] = {}
        self._numbers = count(1)

    def facts(self, bucket: str, key: str, etag: str) -> ObjectFacts | None:
        """Return the facts about this version of an object; None if it was not written through the store."""
        versions = self._facts.get((bucket, key))
        return versions.get(etag) if versions else None

    async def put(self, bucket: str, key: str, body: bytes, headers: Mapping[str, str]) -> ObjectFacts:
        """Answer PutObject."""
        checksum = checked_checksum(body, headers)
        storage_class = asked_class(headers)
        staged = await self._stage(bucket, [body])
        return self._publish(bucket, key, staged, checksum, storage_class, headers)

    def start(self, bucket: str, key: str, headers: Mapping[str, str]) -> str:
        """Answer CreateMultipartUpload with the id of the upload."""
        upload_id = f"upload-{next(self._numbers)}"
        self._uploads[upload_id] = PendingUpload(
            bucket=bucket,
            key=key,
            upload_id=upload_id,
            started_s=time.time(),
            storage_class=asked_class(headers),
            algorithm=asked_algorithm(headers),
            is_composite=headers.get("x-amz-checksum-type", "COMPOSITE") == "COMPOSITE",
        )
        return upload_id

    async def put_part(self, upload_id: str, number: int, body: bytes, headers: Mapping[str, str]) -> ObjectFacts:
        """Answer UploadPart with ETag and checksum of the part."""
        upload = self._upload(upload_id)
        checksum = checked_checksum(body, headers, otherwise=upload.algorithm)
        upload.parts[number] = (await self._stage(upload.bucket, [body]), checksum)
        return ObjectFacts(etag=_part_etag(checksum), checksum=checksum, storage_class=upload.storage_class)

    async def complete(self, upload_id: str, numbers: list[int], headers: Mapping[str, str]) -> ObjectFacts:
        """Answer CompleteMultipartUpload."""
        upload = self._upload(upload_id)
        if not numbers or numbers != sorted(upload.parts.keys() & set(numbers)):
            raise AnswerError(HTTPStatus.BAD_REQUEST, "InvalidPart", "One or more of the specified parts are missing.")
        parts = [upload.parts[number][0] for number in numbers]
        staged = await self._stage(upload.bucket, (part.read_bytes() for part in parts))
        if upload.is_composite:
            checksum = ObjectChecksum.of_parts(upload.algorithm, [upload.parts[number][1] for number in numbers])
        else:
            checksum = ObjectChecksum.of(upload.algorithm, (part.read_bytes() for part in parts))
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
                self._keep_version(bucket, key, path)
                Path(path).unlink(missing_ok=True)

    def opened_version(
        self, bucket: str, key: str, version_id: str | None
    ) -> AbstractContextManager[OpenedObject | None]:
        """Yield a version of an object with its file open, or None when there is none; the newest without an id."""
        kept = self._versions.get((bucket, key, version_id or ""))
        if version_id is None or kept is None:
            return self._objects.opened(bucket, key, version_id=version_id)
        return self._objects.opened_file(str(kept), key)

    def _keep_version(self, bucket: str, key: str, path: str) -> None:
        """Keep the file of an object before it is replaced, where the bucket keeps versions."""
        if not self._keeps_versions:
            return
        with self._objects.opened(bucket, key) as opened:
            if opened is None:
                return
            kept = self._objects.staging_folder(bucket) / f"version-{next(self._numbers)}"
            kept.parent.mkdir(exist_ok=True)
            with suppress(FileNotFoundError):  # deleted concurrently
                os.link(path, kept)
                self._versions[bucket, key, opened.stored.etag.strip('"')] = kept

    def _upload(self, upload_id: str) -> PendingUpload:
        if upload_id not in self._uploads:
            raise AnswerError(HTTPStatus.NOT_FOUND, "NoSuchUpload", "The specified multipart upload does not exist.")
        return self._uploads[upload_id]

    async def _stage(self, bucket: str, pieces: Iterable[bytes]) -> Path:
        staged = self._objects.staging_folder(bucket) / str(next(self._numbers))
        await asyncio.to_thread(_write_pieces, staged, pieces)
        return staged

    def _publish(  # noqa: PLR0913, PLR0917 - one step, of which everything is decided
        self,
        bucket: str,
        key: str,
        staged: Path,
        checksum: ObjectChecksum,
        storage_class: ObjectClass,
        headers: Mapping[str, str],
    ) -> ObjectFacts:
        """Rename a staged file to its final name if the request's conditions hold."""
        path = self._objects.path_of(bucket, key)
        try:
            if path is None:
                raise AnswerError(HTTPStatus.BAD_REQUEST, "InvalidArgument", "The key cannot be the name of a file.")
            self._check_conditions(bucket, key, headers)
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            self._keep_version(bucket, key, path)
            os.replace(staged, path)  # noqa: PTH105 - as above
        finally:
            staged.unlink(missing_ok=True)
        with self._objects.opened(bucket, key) as opened:
            if opened is None:
                raise AnswerError(HTTPStatus.INTERNAL_SERVER_ERROR, "InternalError", "The object vanished.")
            facts = ObjectFacts(etag=opened.stored.etag, checksum=checksum, storage_class=storage_class)
        self._facts.setdefault((bucket, key), {})[facts.etag] = facts
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


def asked_class(headers: Mapping[str, str]) -> ObjectClass:
    """Return the class that a write requests.

    Raises:
        AnswerError: S3 knows no such class.
    """
    try:
        return parse_object_class(headers.get("x-amz-storage-class", "STANDARD"))
    except InvalidInputError:
        raise AnswerError(
            HTTPStatus.BAD_REQUEST, "InvalidStorageClass", "The storage class you specified is not valid"
        ) from None


def _part_etag(checksum: ObjectChecksum) -> str:
    return f'"{hashlib.blake2b(checksum.value.encode(), digest_size=16).hexdigest()}"'
