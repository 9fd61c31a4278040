"""Answers the requests to a simulated cold store, each at the pace that the options ask for."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import count
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote

from aiohttp import web

from coldparquet.ranges import ByteRange
from coldparquet.testing import simulator_protocol as protocol
from coldparquet.testing.simulator_options import ColdStoreOptions, ServedRequest
from coldparquet.testing.simulator_protocol import AnswerError
from coldparquet.testing.simulator_writes import CHECKSUM_HEADER, STORAGE_CLASS_HEADER, ObjectWriter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coldparquet.testing.simulator_objects import DirectoryStore, OpenedObject, StoredObject

_PIECE_BYTES = 128 * 1024
"""Bodies are sent in pieces of this size: 1.5 ms at 90 MB/s, near the resolution of the event loop's sleep."""

_HALF_TICK_S = 0.0005
"""epoll sleeps in whole milliseconds, rounded up; aiming half of one early makes the error centre on zero."""

_MAX_KEYS = 1_000
"""S3's largest page of a listing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fate:
    """What chance has in store for one request."""

    first_byte_due_s: float
    """When the first byte of the answer is due, on the clock ``time.monotonic``."""
    fails: bool
    cuts_body: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """One request taken apart."""

    request: web.BaseRequest
    request_id: str
    bucket: str
    key: str
    query: dict[str, str]
    fate: _Fate


@dataclass(slots=True)
class _Outcome:
    """What became of a call; filled in while it is answered."""

    operation: str = "Unsupported"
    status: int = 0
    bytes_sent: int = 0


@dataclass(slots=True)
class ColdStoreHandler:
    """Serves S3's requests from a :class:`DirectoryStore`; one per server, used on its event loop only."""

    store: DirectoryStore
    options: ColdStoreOptions
    served: list[ServedRequest] = field(default_factory=list)
    """Every finished request in the order in which they finished, other than those to ``/__log`` and ``/__reset``."""
    _writer: ObjectWriter = field(init=False)
    _random: random.Random = field(init=False)
    _request_ids: count[int] = field(default_factory=lambda: count(1))

    def __post_init__(self) -> None:
        self._writer = ObjectWriter(self.store)
        self._random = random.Random(self.options.seed)  # noqa: S311 - repeatable faults, not secrets

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one HTTP request and record it."""
        started_s = time.monotonic()
        raw_path, _, raw_query = request.raw_path.partition("?")
        if raw_path in ("/__log", "/__reset"):
            return self._administer(raw_path)
        bucket, _, key = unquote(raw_path, errors="surrogateescape").removeprefix("/").partition("/")
        call = _Call(
            request=request,
            request_id=f"{next(self._request_ids):016X}",
            bucket=bucket,
            key=key,
            query=dict(parse_qsl(raw_query, keep_blank_values=True)),
            fate=self._draw_fate(started_s),
        )
        outcome = _Outcome()
        try:
            return await self._answer_or_refuse(call, outcome)
        finally:
            self.served.append(
                ServedRequest(
                    operation=outcome.operation,
                    method=request.method,
                    path=f"{bucket}/{key}" if key else bucket,
                    query=raw_query,
                    range_header=request.headers.get("Range"),
                    status=outcome.status,
                    started_s=started_s,
                    finished_s=time.monotonic(),
                    bytes_sent=outcome.bytes_sent,
                )
            )

    def _administer(self, path: str) -> web.Response:
        """Hand out the log or forget it, at once, for a benchmark that runs in another process."""
        served = [record.as_dict() for record in self.served]
        if path == "/__reset":
            self.served.clear()
        return web.json_response(served)

    def _draw_fate(self, started_s: float) -> _Fate:
        # Always three draws, so that the n-th request's fate depends on the seed and on n alone.
        tail, error, cut = self._random.random(), self._random.random(), self._random.random()
        slow = tail < self.options.slow_tail_probability
        first_byte_s = self.options.first_byte_s * (self.options.slow_tail_factor if slow else 1)
        return _Fate(
            first_byte_due_s=started_s + first_byte_s,
            fails=error < self.options.error_503_probability,
            cuts_body=cut < self.options.cut_body_probability,
        )

    async def _answer_or_refuse(self, call: _Call, outcome: _Outcome) -> web.StreamResponse:
        try:
            return await self._dispatch(call, outcome)
        except AnswerError as error:
            body = protocol.error_document(
                error.code, error.message, f"/{call.bucket}/{call.key}", call.request_id, **error.facts
            )
            return await self._send_document(call, outcome, error.status, body, error.headers)

    async def _dispatch(self, call: _Call, outcome: _Outcome) -> web.StreamResponse:
        """Find out which of S3's operations this is, and answer it."""
        outcome.operation = _operation(call)
        if outcome.operation == "Unsupported":
            raise AnswerError(HTTPStatus.NOT_IMPLEMENTED, "NotImplemented", "The simulated store lacks this request.")
        self._refuse_at_the_door(call)
        if outcome.operation in ("GetObject", "HeadObject"):
            return await self._send_object(call, outcome)
        headers = {"x-amz-bucket-region": "us-east-1"}
        status = HTTPStatus.OK
        body = b""
        match outcome.operation:
            case "ListBuckets":
                body = protocol.buckets_document(self.store.buckets())
            case "ListObjectsV2":
                body = await self._list(call)
            case "HeadBucket" | "GetBucketLocation":
                body = protocol.location_document()
            case "ListMultipartUploads":
                uploads = self._writer.pending(call.bucket, call.query.get("prefix", ""))
                body = protocol.uploads_document(call.bucket, uploads, call.query)
            case "AbortMultipartUpload":
                self._writer.abort(call.query["uploadId"])
                status = HTTPStatus.NO_CONTENT
            case _:
                body = await self._write(call, outcome.operation, headers)
        return await self._send_document(call, outcome, status, body, headers)

    async def _write(self, call: _Call, operation: str, headers: dict[str, str]) -> bytes:
        """Answer a request that brings bytes; they arrive at the pace of the line."""
        self._require_bucket(call.bucket)
        sent, query = call.request.headers, call.query
        if sent.get("Expect", "").lower() == "100-continue":
            await call.request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await call.request.content.read()
        await _sleep_until(self._due_s(call, len(body)))
        match operation:
            case "PutObject":
                facts = await self._writer.put(call.bucket, call.key, body, sent)
                headers.update({"ETag": facts.etag, CHECKSUM_HEADER: facts.checksum})
                return b""
            case "UploadPart":
                etag, checksum = await self._writer.put_part(query["uploadId"], int(query["partNumber"]), body, sent)
                headers.update({"ETag": etag, CHECKSUM_HEADER: checksum})
                return b""
            case "CreateMultipartUpload":
                upload_id = self._writer.start(call.bucket, call.key, sent)
                return protocol.upload_document(call.bucket, call.key, upload_id)
            case "CompleteMultipartUpload":
                numbers = [int(text) for text in protocol.texts_in(body, "PartNumber")]
                facts = await self._writer.complete(query["uploadId"], numbers, sent)
                return protocol.completed_document(call.bucket, call.key, facts.etag, facts.checksum)
            case _:
                self._writer.delete(call.bucket, protocol.texts_in(body, "Key"))
                return protocol.deleted_document()

    def _refuse_at_the_door(self, call: _Call) -> None:
        """Raise what does not depend on the object: overload, a wrong signature, a bucket that is not there."""
        if call.fate.fails:
            raise AnswerError(HTTPStatus.SERVICE_UNAVAILABLE, "SlowDown", "Please reduce your request rate.")
        request = call.request
        if (secret := self.options.secret_key) is not None:
            if "Authorization" not in request.headers:
                raise AnswerError(HTTPStatus.FORBIDDEN, "AccessDenied", "Access Denied")
            if not protocol.is_signed_with(
                secret, method=request.method, raw_path=request.raw_path, headers=request.headers
            ):
                raise AnswerError(
                    HTTPStatus.FORBIDDEN, "SignatureDoesNotMatch", "The signature is not the one that we calculated."
                )
        if call.bucket and not call.key:
            self._require_bucket(call.bucket)

    def _require_bucket(self, bucket: str) -> None:
        if not self.store.has_bucket(bucket):
            raise AnswerError(HTTPStatus.NOT_FOUND, "NoSuchBucket", "The specified bucket does not exist")

    async def _list(self, call: _Call) -> bytes:
        query = call.query
        try:
            max_keys = min(int(query.get("max-keys", _MAX_KEYS)), _MAX_KEYS)
            page = await asyncio.to_thread(
                self.store.list_page,
                call.bucket,
                prefix=query.get("prefix", ""),
                delimiter=query.get("delimiter", ""),
                after=protocol.list_position(query),
                max_keys=max(max_keys, 0),
            )
        except ValueError:
            raise AnswerError(
                HTTPStatus.BAD_REQUEST, "InvalidArgument", "The max-keys or continuation-token is not valid."
            ) from None
        return protocol.list_document(
            call.bucket, page, query, max_keys, storage_class_of=lambda found: self._storage_class(call.bucket, found)
        )

    def _storage_class(self, bucket: str, found: StoredObject) -> str:
        facts = self._writer.facts(bucket, found.key, found.etag)
        return "STANDARD" if facts is None else facts.storage_class

    async def _send_document(
        self, call: _Call, outcome: _Outcome, status: HTTPStatus, body: bytes, headers: dict[str, str]
    ) -> web.Response:
        """Answer with a small XML body; HEAD gets the headers alone."""
        await _sleep_until(call.fate.first_byte_due_s)
        outcome.status = status
        outcome.bytes_sent = 0 if call.request.method == "HEAD" else len(body)
        return web.Response(
            status=status,
            body=body,
            content_type="application/xml",
            headers={"x-amz-request-id": call.request_id, **headers},
        )

    async def _send_object(self, call: _Call, outcome: _Outcome) -> web.StreamResponse:
        """Answer GET or HEAD of an object, as a whole or in part."""
        with self.store.opened(call.bucket, call.key) as opened:
            if opened is None:
                self._require_bucket(call.bucket)
                raise AnswerError(HTTPStatus.NOT_FOUND, "NoSuchKey", "The specified key does not exist.", Key=call.key)
            etag, size_bytes = opened.stored.etag, opened.stored.size_bytes
            status, wanted = _status_and_range(call.request.headers, etag, size_bytes)
            headers = {
                "x-amz-request-id": call.request_id,
                "ETag": etag,
                "Last-Modified": opened.stored.last_modified,
                "Accept-Ranges": "bytes",
                "Content-Type": "binary/octet-stream",
                "Content-Length": str(wanted.length_bytes),
            }
            facts = self._writer.facts(call.bucket, call.key, etag)
            if facts is not None and facts.storage_class != "STANDARD":
                headers[STORAGE_CLASS_HEADER] = facts.storage_class
            # As S3 does it: asked for, and never with a range.
            wants_checksum = call.request.headers.get("x-amz-checksum-mode") == "ENABLED"
            if facts is not None and wants_checksum and status == HTTPStatus.OK:
                headers[CHECKSUM_HEADER] = facts.checksum
            if status == HTTPStatus.PARTIAL_CONTENT:
                headers["Content-Range"] = f"bytes {wanted.start}-{wanted.stop - 1}/{size_bytes}"
            outcome.status = status
            if call.request.method == "HEAD" or status == HTTPStatus.NOT_MODIFIED:
                await _sleep_until(call.fate.first_byte_due_s)
                return web.Response(status=status, headers=headers)
            if wanted.length_bytes <= _PIECE_BYTES and not call.fate.cuts_body:
                # Headers and body leave together when the body is due: one sleep is twice as precise as two.
                await _sleep_until(self._due_s(call, wanted.length_bytes))
                outcome.bytes_sent = wanted.length_bytes
                body = opened.read(wanted.start, wanted.length_bytes)
                return web.Response(status=status, headers=headers, body=body)
            response = web.StreamResponse(status=status, headers=headers)
            # A client that goes away early is an ordinary thing.
            with suppress(ConnectionResetError):
                await self._send_pieces(call, outcome, response, opened, wanted)
            return response

    async def _send_pieces(
        self, call: _Call, outcome: _Outcome, response: web.StreamResponse, opened: OpenedObject, wanted: ByteRange
    ) -> None:
        """Send the bytes so that the last one leaves at ``first byte + length / bandwidth``.

        The pieces follow a schedule from the first byte on, so that late wake-ups do not add up.
        """
        stop = wanted.start + wanted.length_bytes // 2 if call.fate.cuts_body else wanted.stop
        await _sleep_until(call.fate.first_byte_due_s)
        await response.prepare(call.request)
        for start in range(wanted.start, stop, _PIECE_BYTES):
            piece = opened.read(start, min(_PIECE_BYTES, stop - start))
            await _sleep_until(self._due_s(call, start + len(piece) - wanted.start))
            await response.write(piece)
            outcome.bytes_sent += len(piece)
        if outcome.bytes_sent < wanted.length_bytes and call.request.transport:
            call.request.transport.close()

    def _due_s(self, call: _Call, sent_bytes: int) -> float:
        """Return when this many bytes of the body have gone through the line."""
        bandwidth = self.options.bandwidth_bytes_per_s
        return call.fate.first_byte_due_s + (sent_bytes / bandwidth if bandwidth else 0.0)


def _operation(call: _Call) -> str:
    """Return S3's name of a request, ``Unsupported`` for those that are not simulated."""
    method, query = call.request.method, call.query
    if call.key:
        in_parts = "uploadId" in query
        operations = {
            "GET": "GetObject",
            "HEAD": "HeadObject",
            "PUT": "UploadPart" if in_parts and query.get("partNumber", "").isdecimal() else "PutObject",
            "POST": "CompleteMultipartUpload" if in_parts else "CreateMultipartUpload" if "uploads" in query else "",
            "DELETE": "AbortMultipartUpload" if in_parts else "",
        }
    elif not call.bucket:
        operations = {"GET": "ListBuckets", "HEAD": "ListBuckets"}
    elif "location" in query:
        operations = {"GET": "GetBucketLocation"}
    elif "uploads" in query:
        operations = {"GET": "ListMultipartUploads"}
    elif query.get("list-type") == "2":
        operations = {"GET": "ListObjectsV2", "HEAD": "HeadBucket"}
    else:
        operations = {"HEAD": "HeadBucket", "POST": "DeleteObjects" if "delete" in query else ""}
    return operations.get(method, "") or "Unsupported"


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


async def _sleep_until(due_s: float) -> None:
    remaining_s = due_s - time.monotonic() - _HALF_TICK_S
    if remaining_s > 0:
        await asyncio.sleep(remaining_s)
