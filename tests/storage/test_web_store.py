"""Web servers and signed URLs: ranges, versions, errors and redirections."""

from __future__ import annotations

import logging
import pickle
import traceback
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from coldparquet.errors import (
    AccessError,
    ArchivedObjectError,
    ColdParquetError,
    InvalidInputError,
    NotFoundError,
    ObjectChangedError,
    StorageError,
    UnsupportedError,
)
from coldparquet.ranges import ByteRange, SuffixRange
from coldparquet.storage.open import open_store
from coldparquet.storage.requests import RangeRequest
from coldparquet.storage.web import parse_index_page
from coldparquet_testing.store_contract import CONTENT, request_for
from tests.support.http_servers import Site, client_has_gone, fetch, ranges, respond, web_site

SIGNED = "?X-Amz-Credential=AKIASECRET&X-Amz-Signature=abc123%2Fx"
WHOLE = f"bytes 0-3/{len(CONTENT)}"


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with web_site() as site:
        yield site


@pytest.fixture
async def files(tmp_path: Path) -> AsyncIterator[TestServer]:
    (tmp_path / "table" / "2024-03-01").mkdir(parents=True)
    (tmp_path / "table" / "data.parquet").write_bytes(CONTENT)
    (tmp_path / "table" / "a b%20c").write_bytes(CONTENT)
    (tmp_path / "table" / "empty").write_bytes(b"")
    application = web.Application()
    application.router.add_static("/files", tmp_path, show_index=True)
    server = TestServer(application)
    await server.start_server()
    yield server
    await server.close()


@pytest.mark.parametrize(
    ("byte_range", "expected"),
    [
        (ByteRange(10, 20), CONTENT[10:20]),
        (ByteRange(1000, 5000), CONTENT[1000:]),
        (ByteRange(2000, 2001), b""),
        (SuffixRange(8), CONTENT[-8:]),
        (SuffixRange(5000), CONTENT),
    ],
)
async def test_ranges(files: TestServer, site: Site, byte_range: ByteRange | SuffixRange, expected: bytes) -> None:
    assert await fetch(str(files.make_url("/files/table/data.parquet")), byte_range) == expected
    site.answer = ranges
    assert await fetch(site.url, byte_range) == expected


async def test_suffixes_that_a_server_does_not_know_are_asked_for_once(site: Site) -> None:
    site.answer = ranges
    store, path = open_store(site.url)
    for _ in range(2):
        fetched = await store.get(request_for(path, SuffixRange(8)))
        assert (fetched.data, fetched.start) == (CONTENT[-8:], len(CONTENT) - 8)
    await store.aclose()
    first_byte, wanted = "bytes=0-0", f"bytes={len(CONTENT) - 8}-{len(CONTENT) - 1}"
    assert [request.headers["Range"] for request in site.requests] == ["bytes=-8"] + 2 * [first_byte, wanted]


async def test_suffix_where_the_size_is_not_told(site: Site) -> None:
    site.answer = respond(206, b"abcd", Content_Range="bytes 0-3/*")
    with pytest.raises(UnsupportedError) as caught:
        await fetch(site.url, SuffixRange(8))
    assert caught.value.kind == "NoObjectSize"


async def test_what_is_known_of_an_object(files: TestServer, site: Site) -> None:
    store, path = open_store(str(files.make_url("/files/table/")))
    found = await store.info(f"{path}/data.parquet")
    fetched = await store.get(request_for(f"{path}/data.parquet", ByteRange(0, 4)))
    assert (found.size_bytes, found.etag) == (len(CONTENT), fetched.etag)
    assert found.modified_s is not None
    assert (await store.info(f"{path}/empty")).size_bytes == 0
    assert (await store.get(request_for(f"{path}/a b%2520c", SuffixRange(8)))).data == CONTENT[-8:]
    with pytest.raises(NotFoundError):
        await store.info(f"{path}/absent")
    await store.aclose()
    site.answer = respond(200, CONTENT)  # a server without ranges
    store, path = open_store(site.url)
    assert (await store.info(path)).size_bytes == len(CONTENT)
    await store.aclose()


async def test_listing(files: TestServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    store, path = open_store(str(files.make_url("/files/table/")) + SIGNED)
    for name in (path, f"{path}/"):
        listing = await store.list(name)
        assert [info.path for info in listing.objects] == [
            f"{path}/2024-03-01",  # this server's links do not say that it is a directory
            f"{path}/a%20b%2520c",
            f"{path}/data.parquet",
            f"{path}/empty",
        ]
        assert all(info.size_bytes is None for info in listing.objects)
    for absent in ("absent", "2024-03-01"):
        with pytest.raises(NotFoundError) as caught:
            await store.list(f"{path}/{absent}")
        assert caught.value.path in (f"{path}/{absent}", f"{path}/{absent}/")
    await store.aclose()
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith("aiohttp.access")]
    assert not any("abc123" in message for message in ours)


async def test_a_listing_of_what_is_no_page(site: Site) -> None:
    site.answer = respond(200, b"<a href=x>", Content_Type="application/octet-stream")
    store, path = open_store(site.url)
    with pytest.raises(NotFoundError, match="there is no such directory, or the server shows no page"):
        await store.list(path)
    await store.aclose()


@pytest.mark.parametrize(
    ("link", "directories", "objects"),
    [
        ("_txn", [], ["_txn"]),
        ("./_txn", [], ["_txn"]),
        ("2024-03-01.12/", ["2024-03-01.12"], []),
        ("/db/t/2024-03-01/", ["2024-03-01"], []),
        ("https://host/db/t/x", [], ["x"]),
        ("http://host/db/t/x?sig=1#top", [], ["x"]),
        ("a%20b&amp;c", [], ["a%20b&c"]),
        ("?C=M;O=A", [], []),
        ("../", [], []),
        ("..", [], []),
        ("/db/t", [], []),
        ("/db/tx", [], []),
        ("a/b", [], []),
        ("//elsewhere/db/t/x", [], []),
        ("ftp://host/db/t/x", [], []),
        ("http://[::1", [], []),
        ("javascript:go()", [], []),
    ],
)
def test_links(link: str, directories: list[str], objects: list[str]) -> None:
    page = f"<html><p><A class='x' HREF=\"{link}\">name</a><a>nothing</a><img src='x.png'>"
    found = parse_index_page(page.encode(), path="https://host/db/t")
    assert found.directories == tuple(f"https://host/db/t/{name}" for name in directories)
    assert [info.path for info in found.objects] == [f"https://host/db/t/{name}" for name in objects]


@given(st.binary(max_size=200))
def test_any_page(body: bytes) -> None:
    listing = parse_index_page(b"<a href=" + body + b">", path="https://host/db/t")
    for name in (*listing.directories, *(info.path for info in listing.objects)):
        assert name.startswith("https://host/db/t/")
        assert "/" not in name.removeprefix("https://host/db/t/")


async def test_versions(files: TestServer, tmp_path: Path) -> None:
    store, path = open_store(str(files.make_url("/files/table/data.parquet")))
    first = await store.get(request_for(path, ByteRange(0, 4)))
    again = await store.get(
        RangeRequest(path=path, byte_range=ByteRange(0, 4), reason="again", if_none_match=first.etag)
    )
    assert (again.is_unchanged, again.data, again.etag) == (True, b"", first.etag)
    (tmp_path / "table" / "data.parquet").write_bytes(CONTENT + b"more")
    with pytest.raises(ObjectChangedError) as caught:
        await store.get(request_for(path, ByteRange(0, 4), if_match=first.etag))
    assert caught.value.path == path
    await store.aclose()


@pytest.mark.parametrize("etag", ['"1"', 'W/"1"'])
async def test_servers_that_do_not_look_at_if_match(site: Site, etag: str) -> None:
    site.answer = respond(206, CONTENT[:4], Content_Range=WHOLE, ETag=etag)
    assert await fetch(site.url, ByteRange(0, 4), if_match=etag) == CONTENT[:4]
    # A weak ETag never fulfils the condition, so that servers that do look at it would refuse.
    assert ("If-Match" in site.requests[0].headers) == (etag == '"1"')
    with pytest.raises(ObjectChangedError):
        await fetch(site.url, ByteRange(0, 4), if_match='"2"')
    site.answer = respond(206, CONTENT[:4], Content_Range=WHOLE)
    with pytest.raises(UnsupportedError) as caught:
        await fetch(site.url, ByteRange(0, 4), if_match=etag)
    assert caught.value.kind == "NoVersions"


REFUSALS: list[tuple[int, bytes, type[ColdParquetError], str]] = [
    (404, b"", NotFoundError, "NotFound"),
    (410, b"", NotFoundError, "NotFound"),
    (401, b"", AccessError, "AccessDenied"),
    (403, b"<Error><Code>AccessDenied</Code></Error>", AccessError, "AccessDenied"),
    (403, b"<Error><Code>InvalidObjectState</Code></Error>", ArchivedObjectError, "ObjectArchived"),
    (400, b"<Error><Code>abc123</Code></Error>", StorageError, "RequestRefused"),
    (412, b"", ObjectChangedError, "ObjectChanged"),
    (429, b"", StorageError, "SlowDown"),
    (503, b"<Error><Code>SlowDown</Code></Error>", StorageError, "SlowDown"),
    (500, b"<Message>abc123</Message>", StorageError, "ServerError"),
]


@pytest.mark.parametrize(("status", "body", "error_class", "kind"), REFUSALS)
async def test_refusals_hold_no_signature(
    site: Site, status: int, body: bytes, error_class: type[ColdParquetError], kind: str
) -> None:
    site.answer = respond(status, body, Retry_After="7")
    with pytest.raises(error_class) as caught:
        await fetch(site.url + SIGNED, ByteRange(0, 4))
    assert (caught.value.kind, caught.value.path) == (kind, site.url)
    assert caught.value.details["status"] == status
    assert caught.value.details["retry_after_s"] == 7
    assert caught.value.details["byte_range"] == ByteRange(0, 4)
    everything = "".join(traceback.format_exception(caught.value)) + repr(pickle.dumps(caught.value))
    assert not any(secret in everything for secret in ("X-Amz", "abc123", "AKIASECRET"))
    assert caught.value.__context__ is None


async def test_a_signature_is_sent_as_it_is_and_stays_out_of_the_path(site: Site) -> None:
    site.answer = ranges
    assert await fetch(site.url + SIGNED, ByteRange(0, 4)) == CONTENT[:4]
    assert site.requests[0].raw_path.endswith(SIGNED)
    # A signature for this method only, or for these headers, refuses others.
    assert site.requests[0].method == "GET"
    assert not any(name.lower().startswith("x-amz") for name in site.requests[0].headers)
    store, path = open_store(site.url + SIGNED)
    assert path == site.url
    assert not any(secret in f"{store!r} {store.label}" for secret in ("X-Amz", "abc123"))
    await store.aclose()


@pytest.mark.parametrize(
    ("spelled", "sent"),
    [
        ("/a%20b/%C3%A9%3D1", "/a%20b/%C3%A9%3D1"),
        ("/a b/é=1", "/a%20b/%C3%A9=1"),
        ("/100%/x%zz", "/100%25/x%25zz"),
        ("/2024-03-01.12/data(1).parquet", "/2024-03-01.12/data(1).parquet"),
        ("//a///b", "//a///b"),
    ],
)
async def test_a_path_keeps_its_spelling(site: Site, spelled: str, sent: str) -> None:
    site.answer = ranges
    host = site.url.removesuffix("/data.parquet")
    for query in ("", "?sig=a%2Bb+c/=="):
        await fetch(host + spelled + query, ByteRange(0, 4))
        assert site.requests[-1].raw_path == sent + query


async def test_a_server_that_hangs(site: Site) -> None:
    async def hang(request: web.BaseRequest) -> web.StreamResponse:
        await client_has_gone(request)
        return web.Response()

    site.answer = hang
    for options in (
        {"client_kwargs": {"timeout": aiohttp.ClientTimeout(total=0.1)}},
        {"timeout": aiohttp.ClientTimeout(sock_read=0.1)},
    ):
        with pytest.raises(StorageError) as caught:
            await fetch(site.url, ByteRange(0, 4), **options)
        assert caught.value.kind == "Timeout"


async def test_unknown_options_are_named() -> None:
    with pytest.raises(InvalidInputError, match="did you mean 'headers'") as caught:
        open_store("https://example.org/x", storage_options={"header": {"Authorization": "hunter2"}})
    assert "hunter2" not in str(caught.value)
    with pytest.raises(InvalidInputError, match="client_kwargs"):
        await fetch("https://example.org/x", ByteRange(0, 4), client_kwargs={"nonsense": 1})


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"ssl": "hunter2"}, r"ssl \(str\)"),
        ({"timeout": "hunter2"}, r"timeout \(str\)"),
        ({"headers": {"X-Key": b"hunter2"}}, r"headers \(dict\)"),
        ({"headers": ["hunter2"]}, "headers is a list; it must be a dictionary"),
        ({"max_redirects": "hunter2"}, "max_redirects must be a whole number"),
        ({"get_client": "hunter2"}, "get_client must be a function"),
        ({"client_kwargs": ["hunter2"]}, "client_kwargs is a list; it must be a dictionary"),
        ({"client_kwargs": {"cookies": "hunter2"}}, "cookies is a str; it must be a dictionary"),
        ({"client_kwargs": {"connector": "hunter2"}}, r"client_kwargs give it, by name and type: connector \(str\)"),
        ({"client_kwargs": {"timeout": "hunter2"}}, r"client_kwargs give it, by name and type: timeout \(str\)"),
    ],
)
async def test_options_that_aiohttp_does_not_take(site: Site, options: dict[str, Any], match: str) -> None:
    site.answer = ranges
    with pytest.raises(InvalidInputError, match=match) as caught:
        await fetch(site.url, ByteRange(0, 4), **options)
    assert caught.value.kind == "BadOption"
    assert "hunter2" not in f"{caught.value} {caught.value.__cause__} {caught.value.__context__}"


async def test_a_client_of_the_callers_own(site: Site) -> None:
    async def get_client(**arguments: Any) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(headers={"X-Own": "yes"}, **arguments)

    site.answer = ranges
    assert await fetch(site.url, ByteRange(0, 4), get_client=get_client) == CONTENT[:4]
    assert site.requests[0].headers["X-Own"] == "yes"


async def test_the_proxy_of_the_environment(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.answer = ranges
    proxy = URL(site.url).origin()
    monkeypatch.setenv("http_proxy", str(proxy))
    monkeypatch.setenv("no_proxy", "")
    assert await fetch("http://store.example/data.parquet", ByteRange(0, 4)) == CONTENT[:4]
    assert site.requests[0].headers["Host"] == "store.example"
