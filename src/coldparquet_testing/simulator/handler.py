"""Answers the requests to a simulated cold store, at the rate of the options."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import count
from random import Random
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote

from aiohttp import web

from coldparquet_testing.simulator import protocol
from coldparquet_testing.simulator.access import AccessCheck
from coldparquet_testing.simulator.bodies import BodySender, break_connection
from coldparquet_testing.simulator.call import Call, Outcome, operation_of, sleep_until
from coldparquet_testing.simulator.classes import StorageClasses, StoreClock
from coldparquet_testing.simulator.faults import BROKEN_CONNECTIONS, FaultDice, FaultRule
from coldparquet_testing.simulator.invoice import make_invoice
from coldparquet_testing.simulator.objects import AnswerError
from coldparquet_testing.simulator.options import ColdStoreOptions, ServedRequest
from coldparquet_testing.simulator.reads import ObjectReader, no_such_bucket
from coldparquet_testing.simulator.writes import ObjectWriter, asked_class

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coldparquet_testing.simulator.objects import DirectoryStore, StoredObject

_MAX_KEYS = 1_000
"""S3's largest page of a listing."""


@dataclass(slots=True)
class ColdStoreHandler:
    """Serves S3's requests from a :class:`DirectoryStore`; one per server, used on its event loop only."""

    store: DirectoryStore
    options: ColdStoreOptions
    before_answer: Callable[[str, str], None] | None = None
    """Called with the operation and ``bucket/key`` of every request before it is processed."""
    served: list[ServedRequest] = field(default_factory=list)
    """All finished requests in the order in which they finished, except those to ``/__log`` and similar paths."""
    under_way_count: int = 0
    """Requests that have arrived and are not finished."""
    clock: StoreClock = field(init=False)
    classes: StorageClasses = field(init=False)
    access: AccessCheck = field(init=False)
    _dice: FaultDice | None = field(init=False)
    _sender: BodySender = field(init=False)
    _writer: ObjectWriter = field(init=False)
    _reader: ObjectReader = field(init=False)
    _random: Random = field(init=False)
    _request_ids: count[int] = field(default_factory=lambda: count(1))
    _listings: dict[tuple[str, str], tuple[float, bytes]] = field(default_factory=dict)
    """Time and content of earlier listings, by bucket and query: for stores with stale listings."""

    def __post_init__(self) -> None:
        options = self.options
        self.clock = StoreClock(options.clock_speed)
        self.classes = StorageClasses(options.storage_classes, self.clock)
        self.access = AccessCheck(options)
        self._sender = BodySender(options.bandwidth_bytes_per_s)
        self._writer = ObjectWriter(self.store, keep_versions=options.keep_versions)
        self._reader = ObjectReader(
            self.store, writer=self._writer, classes=self.classes, sender=self._sender, options=options
        )
        self._random = Random(options.seed)  # noqa: S311 - repeatable faults, not secrets
        self.set_faults(options.all_faults)

    def set_faults(self, rules: Sequence[FaultRule]) -> None:
        """Replace all faults from now on; request numbers and random choices start anew."""
        self._dice = FaultDice(rules, seed=self.options.seed) if rules else None

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one HTTP request and record it."""
        started_s = time.monotonic()
        raw_path, _, raw_query = request.raw_path.partition("?")
        if raw_path.startswith("/__"):
            return self._administer(raw_path)
        bucket, _, key = unquote(raw_path, errors="surrogateescape").removeprefix("/").partition("/")
        query = dict(parse_qsl(raw_query, keep_blank_values=True)) if raw_query else {}
        operation = operation_of(request.method, bucket, key, query, is_copy="x-amz-copy-source" in request.headers)
        call = Call(
            request=request,
            request_id=f"{next(self._request_ids):016X}",
            bucket=bucket,
            key=key,
            query=query,
            operation=operation,
            first_byte_due_s=started_s + self._draw_first_byte_s(),
            fault=self._dice.roll(operation, f"{bucket}/{key}" if key else bucket) if self._dice else None,
        )
        if self.before_answer is not None:
            self.before_answer(operation, call.path)
        outcome = Outcome()
        self.under_way_count += 1
        try:
            return await self._answer_or_refuse(call, outcome)
        finally:
            self.under_way_count -= 1
            self.served.append(
                ServedRequest(
                    operation=operation,
                    method=request.method,
                    path=call.path,
                    query=raw_query,
                    range_header=request.headers.get("Range"),
                    status=outcome.status,
                    started_s=started_s,
                    finished_s=time.monotonic(),
                    bytes_sent=outcome.bytes_sent,
                    storage_class=outcome.storage_class,
                    fault=call.fault.kind if call.fault else None,
                    restore_tier=outcome.restore_tier,
                    restored_bytes=outcome.restored_bytes,
                )
            )

    def _administer(self, path: str) -> web.Response:
        """Return the log or the invoice, or clear them, without delay, for callers in another process."""
        if path not in ("/__log", "/__reset", "/__invoice"):
            return web.json_response({"unknown": path}, status=HTTPStatus.NOT_FOUND)
        if path == "/__invoice":
            return web.json_response(make_invoice(self.served).as_dict())
        served = [record.as_dict() for record in self.served]
        if path == "/__reset":
            self.served.clear()
        return web.json_response(served)

    def _draw_first_byte_s(self) -> float:
        options = self.options
        if not options.slow_tail_probability:
            return options.first_byte_s
        is_slow = self._random.random() < options.slow_tail_probability
        return options.first_byte_s * (options.slow_tail_factor if is_slow else 1)

    async def _answer_or_refuse(self, call: Call, outcome: Outcome) -> web.StreamResponse:
        if call.meets(*BROKEN_CONNECTIONS):
            return await break_connection(call)
        try:
            return await self._dispatch(call, outcome)
        except AnswerError as error:
            body = protocol.error_document(
                error.code, error.message, f"/{call.bucket}/{call.key}", call.request_id, **error.facts
            )
            return await self._send_document(call, outcome, error.status, body, error.headers)

    async def _dispatch(self, call: Call, outcome: Outcome) -> web.StreamResponse:
        """Answer as S3 does."""
        if call.operation == "Unsupported":
            raise AnswerError(HTTPStatus.NOT_IMPLEMENTED, "NotImplemented", "The simulated store lacks this request.")
        self.access.pass_or_refuse(call)
        if call.operation in ("GetObject", "HeadObject"):
            return await self._reader.answer(call, outcome)
        if call.bucket and not call.key:
            self._require_bucket(call.bucket)
        headers = {"x-amz-bucket-region": "us-east-1"}
        status = HTTPStatus.OK
        body = b""
        match call.operation:
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
            case "RestoreObject":
                status = self._reader.restore(call, outcome, await call.request.content.read())
            case _:
                body = await self._write(call, outcome, headers)
        return await self._send_document(call, outcome, status, body, headers)

    async def _write(self, call: Call, outcome: Outcome, headers: dict[str, str]) -> bytes:
        """Answer a request with a body, which arrives at the rate of the connection."""
        self._require_bucket(call.bucket)
        sent, query = call.request.headers, call.query
        if sent.get("Expect", "").lower() == "100-continue":
            await call.request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await call.request.content.read()
        await sleep_until(self._sender.due_s(call, len(body)))
        outcome.storage_class = asked_class(sent).name
        match call.operation:
            case "PutObject":
                facts = await self._writer.put(call.bucket, call.key, body, sent)
                headers |= {"ETag": facts.etag, **facts.checksum.headers}
                if self.options.keep_versions:
                    headers["x-amz-version-id"] = facts.etag.strip('"')
                return b""
            case "CopyObject":
                facts = await self._writer.put(call.bucket, call.key, self._reader.copied(call), sent)
                return protocol.copied_document(facts)
            case "UploadPart":
                facts = await self._writer.put_part(query["uploadId"], int(query["partNumber"]), body, sent)
                headers |= {"ETag": facts.etag, facts.checksum.header: facts.checksum.value}
                return b""
            case "CreateMultipartUpload":
                upload_id = self._writer.start(call.bucket, call.key, sent)
                return protocol.upload_document(call.bucket, call.key, upload_id)
            case "CompleteMultipartUpload":
                numbers = [int(text) for text in protocol.texts_in(body, "PartNumber")]
                facts = await self._writer.complete(query["uploadId"], numbers, sent)
                return protocol.completed_document(call.bucket, call.key, facts)
            case _:
                self._writer.delete(call.bucket, protocol.texts_in(body, "Key"))
                return protocol.deleted_document()

    def _require_bucket(self, bucket: str) -> None:
        if not self.store.has_bucket(bucket):
            raise no_such_bucket()

    async def _list(self, call: Call) -> bytes:
        """Answer ListObjectsV2, in a stale store with an earlier answer."""
        known = call.bucket, call.request.raw_path
        made_s, body = self._listings.get(known, (0.0, b""))
        if body and time.monotonic() - made_s < self.options.stale_listing_s:
            return body
        body = await self._fresh_listing(call)
        if self.options.stale_listing_s:
            self._listings[known] = time.monotonic(), body
        return body

    async def _fresh_listing(self, call: Call) -> bytes:
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
        written = None if facts is None else facts.storage_class
        return self.classes.class_of(f"{bucket}/{found.key}", found.etag, written=written).name

    async def _send_document(
        self, call: Call, outcome: Outcome, status: HTTPStatus, body: bytes, headers: dict[str, str]
    ) -> web.Response:
        """Answer with a small XML body; HEAD gets only the headers."""
        await sleep_until(call.first_byte_due_s)
        outcome.status = status
        outcome.bytes_sent = 0 if call.request.method == "HEAD" else len(body)
        return web.Response(
            status=status,
            body=body,
            content_type="application/xml",
            headers={"x-amz-request-id": call.request_id, **headers},
        )
