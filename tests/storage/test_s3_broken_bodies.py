"""What S3Store keeps of answers that break off, and what RetryStore makes of it: over real connections."""

from __future__ import annotations

import asyncio
import socket
import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from coldparquet.errors import AccessError, ObjectChangedError, StorageError
from coldparquet.options import StoreOptions
from coldparquet.ranges import ByteRange
from coldparquet.storage.refusals import BrokenBodyError
from coldparquet.storage.retry import RetryStore
from coldparquet.storage.s3.store import S3Store
from coldparquet_testing.store_contract import request_for
from tests.support.http_servers import Script, client_has_gone, refuse, respond, scripted_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.http_servers import Answer

CONTENT = bytes(range(256)) * 400
ETAG = '"version-1"'
ASKED = ByteRange(1_000, 91_000)


@pytest.fixture
async def script() -> AsyncIterator[Script]:
    async with scripted_server() as script:
        yield script


@pytest.fixture
async def store(script: Script) -> AsyncIterator[S3Store]:
    store = S3Store(
        storage_options={"anon": True, "endpoint_url": script.endpoint_url},
        store_options=StoreOptions(stall_timeout_s=0.2),
    )
    yield store
    await store.aclose()


def asked_range(request: web.BaseRequest) -> ByteRange:
    first, _, last = request.headers["Range"].removeprefix("bytes=").partition("-")
    return ByteRange(int(first), int(last) + 1)


def serve(*, etag: str = ETAG) -> Answer:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if request.headers.get("If-Match", etag) != etag:
            return web.Response(status=412)
        asked = asked_range(request)
        return web.Response(status=206, body=CONTENT[asked.start : asked.stop], headers=head(asked, etag))

    return answer


def head(asked: ByteRange, etag: str = ETAG) -> dict[str, str]:
    return {"Content-Range": f"bytes {asked.start}-{asked.stop - 1}/{len(CONTENT)}", "ETag": etag}


def cut(after_bytes: int, *, how: str, etag: str = ETAG) -> Answer:
    """Send the head and so many bytes; then reset or close the connection, or say nothing any more."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        asked = asked_range(request)
        response = web.StreamResponse(status=206, headers=head(asked, etag))
        response.content_length = asked.length_bytes
        await response.prepare(request)
        await response.write(CONTENT[asked.start : asked.start + after_bytes])
        await asyncio.sleep(0.05)  # so that a reset does not overtake the bytes
        transport = request.transport
        assert isinstance(transport, asyncio.Transport)
        if how == "reset":
            connection = transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            transport.abort()
        elif how == "closed":
            transport.close()
        else:
            await client_has_gone(request)
        return response

    return answer


@pytest.mark.parametrize(
    ("how", "kinds"),
    [("reset", {"ConnectionFailed", "ShortRead"}), ("closed", {"ShortRead"}), ("silent", {"Timeout"})],
)
async def test_bytes_that_arrived_are_kept(script: Script, store: S3Store, how: str, kinds: set[str]) -> None:
    script.answers = [cut(40_000, how=how)]
    with pytest.raises(BrokenBodyError, match="after 40000 of 90000 bytes") as caught:
        await store.get(request_for("bucket/key", ASKED))
    error = caught.value
    assert error.kind in kinds
    assert error.received is not None
    assert (error.received.data, error.received.start) == (CONTENT[1_000:41_000], 1_000)
    assert (error.received.etag, error.received.object_size_bytes) == (ETAG, len(CONTENT))
    assert (error.path, error.details["byte_range"], error.details["status"]) == ("bucket/key", ASKED, 206)
    assert error.details["elapsed_s"] < 30


@pytest.mark.parametrize("how", ["reset", "closed", "silent"])
async def test_the_rest_is_asked_for_with_the_same_version(script: Script, store: S3Store, how: str) -> None:
    script.answers = [cut(40_000, how=how), refuse(503, "SlowDown"), cut(10_000, how=how), serve()]
    patient = RetryStore(store, max_attempts=3, random=lambda: 0.0)
    fetched = await patient.get(request_for("bucket/key", ASKED))
    assert (fetched.data, fetched.start, fetched.etag) == (CONTENT[1_000:91_000], 1_000, ETAG)
    assert [(request.headers["Range"], request.headers.get("If-Match")) for request in script.requests] == [
        ("bytes=1000-90999", None),
        ("bytes=41000-90999", ETAG),
        ("bytes=41000-90999", ETAG),
        ("bytes=51000-90999", ETAG),
    ]


async def test_object_replaced_in_the_middle_of_its_body(script: Script, store: S3Store) -> None:
    script.answers = [cut(40_000, how="closed"), serve(etag='"version-2"')]
    patient = RetryStore(store, max_attempts=3, random=lambda: 0.0)
    with pytest.raises(ObjectChangedError):
        await patient.get(request_for("bucket/key", ASKED, if_match=ETAG))
    assert len(script.requests) == 2


async def test_a_trickle_of_bytes_is_a_stall(script: Script, store: S3Store) -> None:
    async def trickle(request: web.BaseRequest) -> web.StreamResponse:
        asked = asked_range(request)
        response = web.StreamResponse(status=206, headers=head(asked))
        response.content_length = asked.length_bytes
        await response.prepare(request)
        for position in range(asked.start, asked.stop):
            await response.write(CONTENT[position : position + 1])
            await asyncio.sleep(0.02)
        return response

    script.answers = [trickle]
    with pytest.raises(BrokenBodyError, match=r"only \d+ bytes arrived in") as caught:
        await store.get(request_for("bucket/key", ASKED))
    assert caught.value.kind == "Timeout"
    assert caught.value.received is not None
    assert caught.value.received.data == CONTENT[1_000 : 1_000 + len(caught.value.received.data)] != b""
    with pytest.raises(BrokenBodyError):
        await RetryStore(store, max_attempts=2, random=lambda: 0.0).get(request_for("bucket/key", ASKED))
    assert len(script.requests) == 3


async def test_retry_after_is_passed_on(script: Script, store: S3Store) -> None:
    script.answers = [refuse(503, "SlowDown", Retry_After="7")]
    with pytest.raises(StorageError) as caught:
        await store.get(request_for("bucket/key", ASKED))
    assert (caught.value.kind, caught.value.details["retry_after_s"]) == ("SlowDown", 7.0)
    script.answers = [refuse(400, "RequestTimeout")]
    with pytest.raises(StorageError) as caught:
        await store.put("bucket/key", b"abc", overwrite=True)
    assert caught.value.kind == "Timeout"


async def test_no_connection_means_nothing_was_written(script: Script) -> None:
    store = S3Store(storage_options={"anon": True, "endpoint_url": "http://127.0.0.1:9"})
    with pytest.raises(StorageError) as caught:
        await store.put("bucket/key", b"abc", overwrite=False)
    await store.aclose()
    assert (caught.value.kind, caught.value.details["was_sent"]) == ("ConnectionFailed", False)
    assert script.requests == []


async def test_hedges_have_connections_of_their_own(script: Script, store: S3Store) -> None:
    script.answers = [serve()]
    peers: list[Any] = []
    for is_hedge in (False, True, False, True):
        await store.get(replace(request_for("bucket/key", ASKED), is_hedge=is_hedge))
        transport = script.requests[-1].transport
        assert transport is not None
        peers.append(transport.get_extra_info("peername"))
    assert peers[0] == peers[2] != peers[1] == peers[3]


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
        return await (respond(200) if is_head else serve())(request)

    valid = {"new", "newest"}

    script.answers = [answer]
    log_in("old")
    store = S3Store(storage_options={"endpoint_url": script.endpoint_url})
    patient = RetryStore(store, max_attempts=8)
    with pytest.raises(AccessError) as caught:
        await patient.get(request_for("bucket/key", ASKED))
    assert (caught.value.kind, caught.value.details["credentials_renewed"]) == ("ExpiredToken", False)
    assert len(script.requests) == 1
    log_in("new")
    answers = await asyncio.gather(*(patient.get(request_for("bucket/key", ASKED)) for _ in range(5)))
    assert {fetched.data for fetched in answers} == {CONTENT[1_000:91_000]}
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
        await RetryStore(store, max_attempts=8).get(request_for("bucket/key", ASKED))
    await store.aclose()
    assert caught.value.details["credentials_renewed"] is False
    assert len(script.requests) == 1
