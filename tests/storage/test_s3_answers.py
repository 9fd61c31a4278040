"""What S3Store makes of every kind of answer, honest or not: a scripted server that says what each test wants."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.errors import (
    AccessError,
    ArchivedObjectError,
    ColdParquetError,
    InvalidInputError,
    NotFoundError,
    ObjectChangedError,
    StorageError,
)
from coldparquet.ranges import ByteRange, SuffixRange
from coldparquet.storage.http_errors import XmlReader, parse_refusal, parse_xml, refusal_error
from coldparquet.storage.retry import RetryStore
from coldparquet.storage.s3.store import S3Store
from coldparquet.storage.s3.xml import ListedPage, parse_list_page
from coldparquet_testing.store_contract import request_for
from tests.support.http_servers import Script, raw, refuse, respond

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aiohttp import web

    from tests.support.http_servers import Answer


@pytest.fixture
async def store(script: Script) -> AsyncIterator[S3Store]:
    store = S3Store(storage_options={"anon": True, "endpoint_url": script.endpoint_url})
    yield store
    await store.aclose()


async def get(store: S3Store | RetryStore, byte_range: ByteRange | SuffixRange) -> Any:
    return await store.get(request_for("bucket/db/key", byte_range))


REFUSALS: list[tuple[int, str, tuple[type[ColdParquetError], str]]] = [
    (400, "ExpiredToken", (AccessError, "ExpiredToken")),
    (400, "InvalidRequest", (StorageError, "RequestRefused")),
    (401, "Whatever", (AccessError, "AccessDenied")),
    (403, "AccessDenied", (AccessError, "AccessDenied")),
    (403, "InvalidAccessKeyId", (AccessError, "InvalidAccessKeyId")),
    (403, "SignatureDoesNotMatch", (AccessError, "SignatureDoesNotMatch")),
    (403, "RequestTimeTooSkewed", (AccessError, "RequestTimeTooSkewed")),
    (403, "InvalidObjectState", (ArchivedObjectError, "ObjectArchived")),
    (404, "NoSuchKey", (NotFoundError, "NotFound")),
    (404, "NoSuchBucket", (NotFoundError, "NoSuchBucket")),
    (412, "PreconditionFailed", (ObjectChangedError, "ObjectChanged")),
    (429, "TooManyRequests", (StorageError, "SlowDown")),
    (500, "InternalError", (StorageError, "ServerError")),
    (503, "SlowDown", (StorageError, "SlowDown")),
    (503, "ServiceUnavailable", (StorageError, "ServerError")),
    (302, "Found", (StorageError, "RequestRefused")),
]


async def test_a_suffix_that_is_answered_otherwise(script: Script, store: S3Store) -> None:
    for answer, asked, kind in (
        (respond(206, b"x" * 10, Content_Range="bytes 0-9/100"), SuffixRange(10), "WrongRange"),
        (respond(200, b"0123456789"), SuffixRange(9), "RangeIgnored"),
    ):
        script.answers = [answer]
        with pytest.raises(StorageError) as caught:
            await get(store, asked)
        assert caught.value.kind == kind


@pytest.mark.parametrize(("status", "code", "expected"), REFUSALS)
async def test_refusals(
    script: Script, store: S3Store, status: int, code: str, expected: tuple[type[ColdParquetError], str]
) -> None:
    script.answers = [refuse(status, code)]
    with pytest.raises(expected[0]) as caught:
        await get(store, ByteRange(0, 4))
    error = caught.value
    assert (error.kind, error.path) == (expected[1], "bucket/db/key")
    assert (error.details["status"], error.details["code"]) == (status, code)
    assert error.details["request_id"] == "4442587FB7D0A2F9"
    assert error.details["byte_range"] == ByteRange(0, 4)
    assert len(script.requests) == 1


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>Bad gateway", b"<Error>", b"\xff\xfe\x00", b'<!DOCTYPE x [<!ENTITY a "b">]><Error>&a;</Error>'],
)
async def test_refusal_without_a_document(script: Script, store: S3Store, body: bytes) -> None:
    script.answers = [respond(502, body)]
    with pytest.raises(StorageError, match="502 BadGateway") as caught:
        await get(store, ByteRange(0, 4))
    assert caught.value.kind == "ServerError"


async def test_an_object_with_a_key_of_its_owner(script: Script, store: S3Store) -> None:
    words = "The object was stored using a form of Server Side Encryption. The correct parameters must be provided"
    body = f"<Error><Code>InvalidRequest</Code><Message>{words}</Message></Error>"
    script.answers = [respond(400, body.encode())]
    with pytest.raises(StorageError, match=r"SSE-C.*copy it with another encryption") as caught:
        await get(store, ByteRange(0, 4))
    assert caught.value.kind == "RequestRefused"


async def test_refusal_of_a_look_names_what_may_be_behind_it(script: Script, store: S3Store) -> None:
    script.answers = [respond(400, b"")]
    with pytest.raises(StorageError, match="session token has expired, then region, endpoint_url and path"):
        await store.info("bucket/db/key")


async def test_refusal_with_an_endless_document(script: Script, store: S3Store) -> None:
    script.answers = [raw("HTTP/1.1 500 Oops\nContent-Length: 10000000000", b"x" * 200_000)]
    with pytest.raises(StorageError) as caught:
        await get(store, ByteRange(0, 4))
    assert caught.value.kind == "ServerError"


@pytest.mark.parametrize(
    "answer",
    [
        refuse(301, "PermanentRedirect", x_amz_bucket_region="eu-west-1", Location="http://elsewhere.invalid/"),
        refuse(400, "AuthorizationHeaderMalformed", "<Region>eu-west-1</Region>"),
    ],
)
async def test_other_region_is_followed_once(script: Script, store: S3Store, answer: Answer) -> None:
    found = respond(206, b"abcd", Content_Range="bytes 0-3/4")
    script.answers = [answer, found]
    assert (await get(store, ByteRange(0, 4))).data == b"abcd"
    assert (await get(store, ByteRange(0, 4))).data == b"abcd"
    assert len(script.requests) == 3

    script.answers = [refuse(301, "PermanentRedirect", x_amz_bucket_region=f"ap-south-{turn}") for turn in range(9)]
    script.requests.clear()
    with pytest.raises(StorageError, match="ap-south-1") as caught:
        await get(store, ByteRange(0, 4))
    assert caught.value.kind == "WrongRegion"
    assert len(script.requests) == 2


async def test_conditional_put(script: Script, store: S3Store) -> None:
    for status in (409, 412):
        script.answers = [refuse(status, "Conflict")]
        with pytest.raises(InvalidInputError) as caught:
            await store.put("bucket/key", b"abc", overwrite=False)
        assert caught.value.kind == "AlreadyExists"
    assert script.requests[0].headers["If-None-Match"] == "*"
    with pytest.raises(ObjectChangedError):
        await store.put("bucket/key", b"abc", overwrite=True)


async def test_listing_that_repeats_itself(script: Script, store: S3Store) -> None:
    script.answers = [
        respond(
            200,
            b"<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>x</NextContinuationToken>"
            b"<Contents><Key>db/a</Key><Size>1</Size></Contents></ListBucketResult>",
        )
    ]
    with pytest.raises(StorageError) as caught:
        await store.list("bucket/db")
    assert caught.value.kind == "BadListing"
    assert len(script.requests) == 2


async def test_retry_after_is_passed_on(script: Script, store: S3Store) -> None:
    script.answers = [refuse(503, "SlowDown", Retry_After="7")]
    with pytest.raises(StorageError) as caught:
        await get(store, ByteRange(0, 4))
    assert (caught.value.kind, caught.value.details["retry_after_s"]) == ("SlowDown", 7.0)
    script.answers = [refuse(400, "RequestTimeout")]
    with pytest.raises(StorageError) as caught:
        await store.put("bucket/key", b"abc", overwrite=True)
    assert caught.value.kind == "Timeout"


def credentials_of(request: web.BaseRequest) -> str:
    return request.headers["Authorization"].partition("Credential=")[2].partition("/")[0]


async def test_expired_credentials_are_renewed(script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "credentials"

    def log_in(key: str) -> None:
        file.write_text(f"[default]\naws_access_key_id={key}\naws_secret_access_key=secret\naws_session_token=t\n")

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        is_head = request.method == "HEAD"
        if credentials_of(request) not in valid:
            return await refuse(400, "ExpiredToken")(request)
        return await (respond(200) if is_head else respond(206, b"abcd", Content_Range="bytes 0-3/4"))(request)

    valid = {"new", "newest"}
    script.answers = [answer]
    log_in("old")
    store = S3Store(storage_options={"endpoint_url": script.endpoint_url})
    patient = RetryStore(store, max_attempts=8)
    with pytest.raises(AccessError) as caught:
        await get(patient, ByteRange(0, 4))
    assert (caught.value.kind, caught.value.details["credentials_renewed"]) == ("ExpiredToken", False)
    assert len(script.requests) == 1
    log_in("new")
    answers = await asyncio.gather(*(get(patient, ByteRange(0, 4)) for _ in range(5)))
    assert {fetched.data for fetched in answers} == {b"abcd"}
    assert [credentials_of(request) for request in script.requests[1:]] == ["old"] * 5 + ["new"] * 5
    log_in("newest")
    valid.remove("new")
    await patient.info("bucket/key")  # a refused HEAD does not even say why
    await store.aclose()
    assert [credentials_of(request) for request in script.requests[11:]] == ["new", "newest"]


async def test_given_credentials_cannot_be_renewed(script: Script) -> None:
    script.answers = [refuse(400, "ExpiredToken"), respond(500)]
    given = {"key": "AKIAEXAMPLE", "secret": "wJalrXUtnFEMI", "token": "FwoGZXIvYXdz"}
    store = S3Store(storage_options={"endpoint_url": script.endpoint_url, **given})
    with pytest.raises(AccessError) as caught:
        await get(RetryStore(store, max_attempts=8), ByteRange(0, 4))
    await store.aclose()
    assert caught.value.details["credentials_renewed"] is False
    assert len(script.requests) == 1


# --- Listings: pages, names, and answers that are none ----------------------------------------------------------------


def page(content: str) -> bytes:
    return (
        f'<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"{content}</ListBucketResult>"
    ).encode()


def listed_page(body: bytes, *, bucket: str, prefix: str) -> ListedPage:
    reader = XmlReader()
    with suppress(ET.ParseError, ValueError):
        reader.feed(body)
    return parse_list_page(reader, bucket=bucket, prefix=prefix)


def test_objects_and_directories() -> None:
    listed = listed_page(
        page(
            "<Name>bucket</Name><Prefix>db/</Prefix><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>"
            "<NextContinuationToken>abc==</NextContinuationToken>"
            "<Contents><Key>db/</Key><Size>0</Size></Contents>"
            "<Contents><Key>db/a%2Bb+c%3D%C3%A9</Key><ETag>&quot;1&quot;</ETag><Size>12</Size></Contents>"
            "<CommonPrefixes><Prefix>db/2024-03-01/</Prefix></CommonPrefixes>"
            "<CommonPrefixes><Prefix>db//</Prefix></CommonPrefixes>"
        ),
        bucket="bucket",
        prefix="db/",
    )
    assert [(info.path, info.size_bytes, info.etag) for info in listed.objects] == [("bucket/db/a+b c=é", 12, '"1"')]
    assert listed.directories == ("bucket/db/2024-03-01",)
    assert listed.has_marker
    assert listed.next_token == "abc=="  # noqa: S105


def test_names_without_url_encoding_are_taken_as_they_are() -> None:
    listed = listed_page(page("<Contents><Key>a+b%20c</Key><Size>1</Size></Contents>"), bucket="bucket", prefix="")
    assert listed.objects[0].path == "bucket/a+b%20c"
    assert (listed.has_marker, listed.next_token) == (False, None)


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1))
def test_any_name_survives_url_encoding(name: str) -> None:
    body = page(f"<EncodingType>url</EncodingType><Contents><Key>{quote(name)}</Key><Size>1</Size></Contents>")
    assert [info.path for info in listed_page(body, bucket="b", prefix="").objects] == [f"b/{name}"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html></html>",
        b"<ListBucketResult>",
        b"\xff",
        page("<Contents><Key>a</Key></Contents>"),
        page("<Contents><Key>a</Key><Size>many</Size></Contents>"),
        page("<IsTruncated>true</IsTruncated>"),
        page("<IsTruncated>true</IsTruncated><Contents><Key>a</Key><Size>1</Size></Contents>"),
        page("<IsTruncated>true</IsTruncated><NextContinuationToken>x</NextContinuationToken>"),
        page("<CommonPrefixes><Prefix>elsewhere/</Prefix></CommonPrefixes>"),
        b'<!DOCTYPE a [<!ENTITY b "c">]><ListBucketResult>&b;</ListBucketResult>',
    ],
)
def test_answers_that_are_no_listing(body: bytes) -> None:
    with pytest.raises(StorageError) as caught:
        listed_page(body, bucket="bucket", prefix="db/")
    assert caught.value.kind == "BadListing"


@given(st.binary())
def test_any_bytes(body: bytes) -> None:
    with pytest.raises(StorageError):
        listed_page(body, bucket="bucket", prefix="")


def test_a_long_token_in_small_blocks_is_parsed_in_a_time_that_grows_with_its_length() -> None:
    reader = XmlReader()
    started_s = time.process_time()
    reader.feed(b"<a b='")
    for _ in range(4_000):
        reader.feed(b"x" * 1_000)
    reader.feed(b"'/>")
    assert len(reader.root().get("b", "")) == 4_000_000
    assert time.process_time() - started_s < 2.0, "about 0.1 s; parsed block by block it was more than ten seconds"


@pytest.mark.parametrize("encoding", ["rot13", "zlib", "hex", "utf-7", "none"])
def test_encodings_that_xml_cannot_have(encoding: str) -> None:
    document = f"<?xml version='1.0' encoding='{encoding}'?><ListBucketResult/>".encode()
    with pytest.raises((ET.ParseError, ValueError)):
        parse_xml(document)


def test_what_a_server_says_is_short_and_steers_no_terminal() -> None:
    evil = "<Error><Code>%s</Code><Message>\x9b31m\u202e</Message></Error>" % ("\u202e\x9bA" * 9_999)
    message = str(refusal_error(parse_refusal(500, {}, evil.encode()), path="bucket/\x1bkey"))
    assert len(message) < 1_000
    assert message.isprintable()
