"""Answers GET and HEAD of an object in a simulated cold store: conditions, ranges, versions, classes, checksums."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import unquote

from aiohttp import web

from coldparquet.ranges import ByteRange
from coldparquet_testing.simulator import protocol
from coldparquet_testing.simulator.call import Call, Outcome, sleep_until
from coldparquet_testing.simulator.checksums import ObjectChecksum
from coldparquet_testing.simulator.objects import AnswerError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coldparquet_testing.simulator.bodies import BodySender
    from coldparquet_testing.simulator.classes import ObjectClass, StorageClasses
    from coldparquet_testing.simulator.objects import DirectoryStore, OpenedObject
    from coldparquet_testing.simulator.options import ColdStoreOptions
    from coldparquet_testing.simulator.writes import ObjectWriter

_READ_BYTES = 1024 * 1024


class ObjectReader:
    """Answers requests for objects.

    Args:
        store: Reads the objects.
        writer: Knows the facts about objects that files cannot express.
        classes: Knows their storage classes.
        sender: Sends the bodies.
        options: Checksums and versions.
    """

    def __init__(
        self,
        store: DirectoryStore,
        *,
        writer: ObjectWriter,
        classes: StorageClasses,
        sender: BodySender,
        options: ColdStoreOptions,
    ) -> None:
        self._store = store
        self._writer = writer
        self._classes = classes
        self._sender = sender
        self._options = options
        self._file_checksums: dict[tuple[str, str], ObjectChecksum] = {}

    async def answer(self, call: Call, outcome: Outcome) -> web.StreamResponse:
        """Answer GET or HEAD of an object, as a whole or in part."""
        version_id = call.query.get("versionId")
        with self._writer.opened_version(call.bucket, call.key, version_id) as opened:
            if opened is None:
                raise self._missing(call, version_id)
            etag, size_bytes = opened.stored.etag, opened.stored.size_bytes
            found = self.class_of(call, etag)
            outcome.storage_class = found.name
            if call.operation == "GetObject" and not self._classes.is_readable(call.path, etag, found):
                raise archived(found)
            asked = call.request.headers
            status, wanted = _status_and_range(asked, etag, size_bytes)
            if call.meets("whole-object") and status == HTTPStatus.PARTIAL_CONTENT:
                status, wanted = HTTPStatus.OK, ByteRange(0, size_bytes)
            headers = {
                "x-amz-request-id": call.request_id,
                "ETag": '"another-version"' if call.meets("wrong-etag") else etag,
                "Last-Modified": opened.stored.last_modified,
                "Accept-Ranges": "bytes",
                "Content-Type": "binary/octet-stream",
                "Content-Length": str(wanted.length_bytes),
                **self._classes.headers(call.path, etag, found),
            }
            if self._options.keep_versions:
                headers["x-amz-version-id"] = version_id or etag.strip('"')
            if self._options.requester_pays:
                headers["x-amz-request-charged"] = "requester"
            # As S3 does: only on request, and never with a range.
            if status == HTTPStatus.OK and asked.get("x-amz-checksum-mode") == "ENABLED":
                headers |= self._checksum_headers(call, opened)
            if status == HTTPStatus.PARTIAL_CONTENT:
                first = wanted.start + 1 if call.meets("wrong-range") else wanted.start
                headers["Content-Range"] = f"bytes {first}-{wanted.stop - 1}/{size_bytes}"
            outcome.status = status
            if call.request.method == "HEAD" or status == HTTPStatus.NOT_MODIFIED:
                await sleep_until(call.first_byte_due_s)
                return web.Response(status=status, headers=headers)
            return await self._sender.send(call, outcome, opened, wanted, headers)

    def restore(self, call: Call, outcome: Outcome, body: bytes) -> HTTPStatus:
        """Answer RestoreObject."""
        with self._writer.opened_version(call.bucket, call.key, call.query.get("versionId")) as opened:
            if opened is None:
                raise self._missing(call, call.query.get("versionId"))
            etag = opened.stored.etag
            days = protocol.texts_in(body, "Days")
            tier = (protocol.texts_in(body, "Tier") or ["Standard"])[0]
            if days and not (days[0].isdecimal() and int(days[0])):
                raise AnswerError(HTTPStatus.BAD_REQUEST, "InvalidArgument", "Days must be a whole number above 0.")
            found = self.class_of(call, etag)
            outcome.storage_class = found.name
            status = self._classes.restore(call.path, etag, found, days=int(days[0]) if days else None, tier=tier)
            outcome.restore_tier, outcome.restored_bytes = tier, opened.stored.size_bytes
            return status

    def copied(self, call: Call) -> bytes:
        """Return the bytes of the source object of CopyObject, if it may be copied."""
        sent = call.request.headers
        bucket, _, key = unquote(sent["x-amz-copy-source"]).removeprefix("/").partition("/")
        with self._writer.opened_version(bucket, key, None) as opened:
            if opened is None:
                raise self._missing(call, None)
            etag = opened.stored.etag
            facts = self._writer.facts(bucket, key, etag)
            written = None if facts is None else facts.storage_class
            found = self._classes.class_of(f"{bucket}/{key}", etag, written=written)
            if not self._classes.is_readable(f"{bucket}/{key}", etag, found):
                raise archived(found)
            if sent.get("x-amz-copy-source-if-match", etag) != etag:
                raise AnswerError(
                    HTTPStatus.PRECONDITION_FAILED,
                    "PreconditionFailed",
                    "At least one of the pre-conditions you specified did not hold",
                )
            return opened.read(0, opened.stored.size_bytes)

    def class_of(self, call: Call, etag: str) -> ObjectClass:
        """Return the storage class of an object version in a call."""
        facts = self._writer.facts(call.bucket, call.key, etag)
        return self._classes.class_of(call.path, etag, written=None if facts is None else facts.storage_class)

    def _checksum_headers(self, call: Call, opened: OpenedObject) -> dict[str, str]:
        facts = self._writer.facts(call.bucket, call.key, opened.stored.etag)
        if facts is not None:
            return facts.checksum.headers
        algorithm = self._options.checksum_of_files
        if algorithm is None:
            return {}
        known = call.path, opened.stored.etag
        if known not in self._file_checksums:
            starts = range(0, opened.stored.size_bytes, _READ_BYTES)
            pieces = (opened.read(start, _READ_BYTES) for start in starts)
            self._file_checksums[known] = ObjectChecksum.of(algorithm, pieces)
        return self._file_checksums[known].headers

    def _missing(self, call: Call, version_id: str | None) -> AnswerError:
        if not self._store.has_bucket(call.bucket):
            return no_such_bucket()
        if version_id is not None:
            return AnswerError(
                HTTPStatus.NOT_FOUND, "NoSuchVersion", "The specified version does not exist.", Key=call.key
            )
        return AnswerError(HTTPStatus.NOT_FOUND, "NoSuchKey", "The specified key does not exist.", Key=call.key)


def no_such_bucket() -> AnswerError:
    """Make the answer to requests for a bucket that does not exist."""
    return AnswerError(HTTPStatus.NOT_FOUND, "NoSuchBucket", "The specified bucket does not exist")


def archived(found: ObjectClass) -> AnswerError:
    """Make the answer to a GET of an archived object."""
    facts = {"StorageClass": found.name}
    if found.archive_status is not None:
        facts["AccessTier"] = found.archive_status
    message = "The operation is not valid for the object's storage class"
    return AnswerError(HTTPStatus.FORBIDDEN, "InvalidObjectState", message, headers=None, **facts)


def _status_and_range(headers: Mapping[str, str], etag: str, size_bytes: int) -> tuple[HTTPStatus, ByteRange]:
    """Return how a GET of an existing object is answered, conditions before ranges (RFC 9110 section 13.2.2)."""
    if not _matches(headers.get("If-Match"), etag, absent=True):
        raise AnswerError(
            HTTPStatus.PRECONDITION_FAILED,
            "PreconditionFailed",
            "At least one of the pre-conditions you specified did not hold",
            Condition="If-Match",
        )
    if _matches(headers.get("If-None-Match"), etag, absent=False):
        return HTTPStatus.NOT_MODIFIED, ByteRange(0, 0)
    status, wanted = protocol.resolve_range(headers.get("Range"), size_bytes)
    if status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        raise AnswerError(
            status,
            "InvalidRange",
            "The requested range is not satisfiable",
            headers={"Content-Range": f"bytes */{size_bytes}"},
            RangeRequested=headers["Range"],
            ActualObjectSize=str(size_bytes),
        )
    return status, wanted


def _matches(header: str | None, etag: str, *, absent: bool) -> bool:
    """Tell whether an If-Match or If-None-Match header names the ETag; ``absent`` is the answer without a header."""
    if header is None:
        return absent
    named = {part.strip().removeprefix("W/").strip('"') for part in header.split(",")}
    return bool(named & {"*", etag.strip('"')})
