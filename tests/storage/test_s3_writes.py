"""What S3Store makes of the answers to its writes, honest or not: a scripted server that says what each test wants."""

from __future__ import annotations

import base64
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import pytest
from aiohttp import web

from coldparquet.errors import (
    AccessError,
    ColdParquetError,
    InvalidInputError,
    NotFoundError,
    ObjectChangedError,
    StorageError,
)
from coldparquet.storage.http_errors import XmlReader
from coldparquet.storage.requests import StoredChecksum, Upload, UploadedPart
from coldparquet.storage.s3.store import S3Store
from coldparquet.storage.s3.xml import parse_upload_page
from coldparquet_testing.simulator.server import serve

PATH = "bucket/t/x"
UPLOAD = Upload(path=PATH, upload_id="id", storage_class=None)
PART = UploadedPart(number=1, size_bytes=3, etag='"a"', crc32=zlib.crc32(b"abc"))


@dataclass
class Server:
    """Gives the same answer to every request, and remembers them with their bodies."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    requests: list[tuple[web.BaseRequest, bytes]] = field(default_factory=list)

    async def answer(self, request: web.BaseRequest) -> web.Response:
        self.requests.append((request, await request.read()))
        return web.Response(status=self.status, body=self.body, headers=self.headers)

    def refuse(self, status: int, code: str) -> None:
        self.status, self.body = status, error(code)


def error(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>Words.</Message></Error>".encode()


def checksum(data: bytes, suffix: str = "") -> str:
    return base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode() + suffix


@pytest.fixture
async def server() -> AsyncIterator[tuple[Server, S3Store]]:
    script = Server()
    async with serve(script.answer) as port:
        store = S3Store(storage_options={"anon": True, "endpoint_url": f"http://127.0.0.1:{port}"})
        yield script, store
        await store.aclose()


async def test_headers_of_a_put(server: tuple[Server, S3Store]) -> None:
    script, store = server
    script.headers["ETag"] = '"v1"'
    assert await store.put(PATH, b"abc", overwrite=False, storage_class="GLACIER_IR") == '"v1"'
    await store.put(PATH, b"abc", overwrite=True, if_match='"v0"')
    await store.put(PATH, b"abc", overwrite=True)
    sent = [request.headers for request, _ in script.requests]
    assert [headers["x-amz-checksum-crc32"] for headers in sent] == [checksum(b"abc")] * 3
    assert [(headers.get("If-None-Match"), headers.get("If-Match")) for headers in sent] == [
        ("*", None),
        (None, '"v0"'),
        (None, None),
    ]
    assert [headers.get("x-amz-storage-class") for headers in sent] == ["GLACIER_IR", None, None]
    assert [body for _, body in script.requests] == [b"abc"] * 3


@pytest.mark.parametrize("stored", [checksum(b"abd"), "AAAAAA=="])
async def test_a_store_that_holds_other_bytes_is_not_believed(server: tuple[Server, S3Store], stored: str) -> None:
    script, store = server
    script.headers |= {"x-amz-checksum-crc32": stored, "ETag": '"v1"'}
    for call in (
        store.put(PATH, b"abc", overwrite=True),
        store.upload_part(UPLOAD, 1, start=0, data=b"abc"),
    ):
        with pytest.raises(StorageError) as caught:
            await call
        assert (caught.value.kind, caught.value.path) == ("ChecksumMismatch", PATH)


async def test_a_finished_upload_must_have_the_checksum_of_its_parts(server: tuple[Server, S3Store]) -> None:
    script, store = server
    right = StoredChecksum.of_parts([PART.crc32]).value.to_bytes(4, "big")
    for text, is_right in (
        (f"{base64.b64encode(right).decode()}-1", True),
        (checksum(b"abc"), True),  # that of the whole, which cannot be compared
        ("", True),
        (f"{base64.b64encode(right).decode()}-2", False),
        (checksum(b"x", "-1"), False),
    ):
        script.body = (
            "<CompleteMultipartUploadResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'><ETag>\"v-1\"</ETag>"
            f"<ChecksumCRC32>{text}</ChecksumCRC32></CompleteMultipartUploadResult>"
        ).encode()
        if is_right:
            assert await store.finish_upload(UPLOAD, [PART], overwrite=False) == '"v-1"'
        else:
            with pytest.raises(StorageError) as caught:
                await store.finish_upload(UPLOAD, [PART], overwrite=False)
            assert caught.value.kind == "ChecksumMismatch"
    request, body = script.requests[0]
    assert request.headers["If-None-Match"] == "*"
    assert body == (
        b'<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>"a"</ETag><ChecksumCRC32>'
        + checksum(b"abc").encode()
        + b"</ChecksumCRC32></Part></CompleteMultipartUpload>"
    )


@pytest.mark.parametrize(
    ("code", "expected", "kind"),
    [
        ("InternalError", StorageError, "ServerError"),
        ("SlowDown", StorageError, "SlowDown"),
        ("PreconditionFailed", InvalidInputError, "AlreadyExists"),
        ("AccessDenied", AccessError, "AccessDenied"),
    ],
)
async def test_a_200_to_complete_may_be_an_error(
    server: tuple[Server, S3Store], code: str, expected: type[ColdParquetError], kind: str
) -> None:
    script, store = server
    script.body = error(code)
    with pytest.raises(expected) as caught:
        await store.finish_upload(UPLOAD, [PART], overwrite=False)
    assert (caught.value.kind, caught.value.path) == (kind, PATH)


@pytest.mark.parametrize(
    ("status", "code", "if_match", "expected", "kind"),
    [
        (412, "PreconditionFailed", None, InvalidInputError, "AlreadyExists"),
        (409, "ConditionalRequestConflict", None, InvalidInputError, "AlreadyExists"),
        (412, "PreconditionFailed", '"v1"', ObjectChangedError, "ObjectChanged"),
        (409, "ConditionalRequestConflict", '"v1"', ObjectChangedError, "ObjectChanged"),
        (404, "NoSuchKey", '"v1"', ObjectChangedError, "ObjectChanged"),
        (404, "NoSuchBucket", '"v1"', NotFoundError, "NoSuchBucket"),
        (404, "NoSuchBucket", None, NotFoundError, "NoSuchBucket"),
        (400, "BadDigest", None, StorageError, "RequestRefused"),
        (403, "AccessDenied", None, AccessError, "AccessDenied"),
        (503, "SlowDown", None, StorageError, "SlowDown"),
    ],
)
async def test_refused_writes(  # noqa: PLR0917 - a table of cases
    server: tuple[Server, S3Store],
    status: int,
    code: str,
    if_match: str | None,
    expected: type[ColdParquetError],
    kind: str,
) -> None:
    script, store = server
    script.refuse(status, code)
    with pytest.raises(expected) as caught:
        await store.put(PATH, b"abc", overwrite=if_match is not None, if_match=if_match)
    assert (type(caught.value), caught.value.kind, caught.value.path) == (expected, kind, PATH)


async def test_an_upload_that_is_gone(server: tuple[Server, S3Store]) -> None:
    script, store = server
    script.refuse(404, "NoSuchUpload")
    await store.abort_upload(UPLOAD)
    with pytest.raises(NotFoundError, match="begin it again"):
        await store.upload_part(UPLOAD, 1, start=0, data=b"abc")


@pytest.mark.parametrize("body", [b"", b"<html/>", b"<Wrong>", b"<!DOCTYPE x><x/>", b"\xff\xfe"])
async def test_answers_that_make_no_sense(server: tuple[Server, S3Store], body: bytes) -> None:
    script, store = server
    script.body = body
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: store.start_upload(PATH),
        lambda: store.remove_unfinished("bucket/t", started_before_s=0),
    ]
    if body != b"<html/>":  # well-formed, and without any error in it
        calls += [lambda: store.finish_upload(UPLOAD, [PART], overwrite=False), lambda: store.delete([PATH])]
    for call in calls:
        with pytest.raises(StorageError) as caught:
            await call()
        assert caught.value.kind in ("BadAnswer", "BadListing")


async def test_deletions_that_failed(server: tuple[Server, S3Store]) -> None:
    script, store = server
    for code, expected in (("AccessDenied", AccessError), ("InternalError", StorageError)):
        script.body = (
            f"<DeleteResult><Error><Key>t/x</Key><Code>NoSuchKey</Code></Error>"
            f"<Error><Key>t/y</Key><Code>{code}</Code></Error></DeleteResult>"
        ).encode()
        with pytest.raises(expected) as caught:
            await store.delete([PATH, "bucket/t/y"])
        assert caught.value.path == "bucket/t/y"
    assert b"<Key>t/x</Key>" in script.requests[0][1]
    assert script.requests[0][0].headers["Content-MD5"]


async def test_what_head_tells(server: tuple[Server, S3Store]) -> None:
    script, store = server
    script.headers |= {"Last-Modified": "Thu, 01 Jan 1970 00:01:40 GMT", "x-amz-storage-class": "STANDARD_IA"}
    plain, parts, digest = checksum(b"abc"), checksum(b"abc", "-3"), "0123456789abcdef" * 2
    for etag, stored, kind, expected in (
        ('"x"', plain, None, StoredChecksum(value=zlib.crc32(b"abc"))),
        ('"x"', parts, None, StoredChecksum(value=zlib.crc32(b"abc"), part_count=3)),
        (f'"{digest}-2"', plain, None, StoredChecksum(value=zlib.crc32(b"abc"), part_count=2)),
        (f'"{digest}-2"', plain, "FULL_OBJECT", StoredChecksum(value=zlib.crc32(b"abc"))),
        ('"x"', "nonsense", None, None),
        ('"x"', None, None, None),
    ):
        script.headers |= {"ETag": etag, "x-amz-checksum-type": kind or "", "x-amz-checksum-crc32": stored or ""}
        found = await store.info(PATH)
        assert (found.etag, found.checksum, found.modified_s) == (etag, expected, 100.0)
        assert found.storage_class == "STANDARD_IA"
    assert script.requests[0][0].headers["x-amz-checksum-mode"] == "ENABLED"


def test_uploads_outside_of_the_prefix_are_left_alone() -> None:
    body = (
        b"<ListMultipartUploadsResult><IsTruncated>true</IsTruncated><NextKeyMarker>t/b</NextKeyMarker>"
        b"<NextUploadIdMarker>2</NextUploadIdMarker>"
        b"<Upload><Key>t/a</Key><UploadId>1</UploadId><Initiated>1970-01-01T00:01:40.000Z</Initiated></Upload>"
        b"<Upload><Key>other</Key><UploadId>2</UploadId><Initiated>1970-01-01T00:01:40.000Z</Initiated></Upload>"
        b"</ListMultipartUploadsResult>"
    )
    reader = XmlReader()
    reader.feed(body)
    page = parse_upload_page(reader, bucket="bucket", prefix="t/")
    assert [(found.path, found.upload_id, found.started_s) for found in page.uploads] == [("bucket/t/a", "1", 100.0)]
    assert page.next_markers == ("t/b", "2")
