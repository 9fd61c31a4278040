"""Redirections of web servers: followed, but without telling other hosts who we are."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from coldparquet.errors import StorageError
from coldparquet.options import StoreOptions
from coldparquet.ranges import ByteRange
from coldparquet.storage.http import HttpCall
from coldparquet.storage.web import WebConnection, parse_web_options
from coldparquet_testing.store_contract import CONTENT
from tests.support.http_servers import Site, fetch, ranges, respond, web_site

SIGNED = "?X-Amz-Credential=AKIASECRET&X-Amz-Signature=abc123%2Fx"

SECRETS: dict[str, Any] = {
    "headers": {"Authorization": "Bearer hunter2", "X-Api-Key": "hunter2"},
    "cookies": {"session": "hunter2"},
    "params": {"token": "hunter2"},
    "client_kwargs": {"headers": {"X-Other": "hunter2"}, "cookies": {"other": "hunter2"}},
}


@pytest.fixture
async def sites() -> AsyncIterator[tuple[Site, Site]]:
    async with web_site() as home, web_site() as other:
        yield home, other


@pytest.fixture
def site(sites: tuple[Site, Site]) -> Site:
    return sites[0]


def was_told_the_secret(request: web.BaseRequest) -> bool:
    return "hunter2" in f"{request.raw_path} {dict(request.headers)}"


async def test_redirections_within_the_host_keep_the_credentials(site: Site) -> None:
    async def move(request: web.BaseRequest) -> web.StreamResponse:
        if request.path != "/moved":
            return web.Response(status=302, headers={"Location": "/moved"})
        return await ranges(request)

    site.answer = move
    assert await fetch(site.url, ByteRange(0, 4), **SECRETS) == CONTENT[:4]
    assert [request.path for request in site.requests] == ["/data.parquet", "/moved"]
    for request in site.requests:
        told = f"{dict(request.headers)}"
        assert all(name in told for name in ("Bearer hunter2", "X-Api-Key", "session=hunter2", "X-Other", "other="))


@pytest.mark.parametrize("query", ["", "?file=data.parquet", "?token=hunter2&file=data.parquet"])
async def test_other_hosts_are_told_what_is_no_secret(sites: tuple[Site, Site], query: str) -> None:
    home, other = sites
    home.answer, other.answer = respond(302, Location=f"{other.url}?file=data.parquet&for=us"), ranges
    assert await fetch(home.url + query, ByteRange(0, 4)) == CONTENT[:4]
    assert other.requests[0].raw_path == "/data.parquet?file=data.parquet&for=us"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_other_hosts_are_told_no_credentials(sites: tuple[Site, Site], status: int) -> None:
    home, other = sites
    home.answer, other.answer = respond(status, Location=f"{other.url}?their=signature"), ranges
    assert await fetch(home.url + SIGNED, ByteRange(0, 4), **SECRETS) == CONTENT[:4]
    assert was_told_the_secret(home.requests[0])
    assert not was_told_the_secret(other.requests[0])
    assert other.requests[0].raw_path == "/data.parquet?their=signature"
    assert other.requests[0].headers["Range"] == "bytes=0-3"


async def test_a_request_that_is_sent_back_has_no_credentials(sites: tuple[Site, Site]) -> None:
    home, other = sites

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        return await (ranges if request.path == "/back" else respond(302, Location=other.url))(request)

    home.answer, other.answer = answer, respond(302, Location=str(URL(home.url).with_path("/back")))
    assert await fetch(home.url, ByteRange(0, 4), **SECRETS) == CONTENT[:4]
    assert [was_told_the_secret(request) for request in (*home.requests, *other.requests)] == [True, False, False]


async def test_basic_auth_stays_at_home(sites: tuple[Site, Site]) -> None:
    home, other = sites
    home.answer, other.answer = respond(302, Location=other.url.replace("://", "://user:pw@")), ranges
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # aiohttp's, about its own class
        auth = aiohttp.BasicAuth("user", "hunter2")
        assert await fetch(home.url, ByteRange(0, 4), client_kwargs={"auth": auth}) == CONTENT[:4]
    assert home.requests[0].headers["Authorization"].startswith("Basic ")
    assert "Authorization" not in other.requests[0].headers


@pytest.mark.parametrize(
    "location",
    [
        "",
        "ftp://127.0.0.1/data.parquet",
        "http://",
        "http://[::1",
        "{other}?more=1&X-Amz-Signature=abc123%2Fx",
        "{home}",
    ],
)
async def test_redirections_that_are_not_followed(sites: tuple[Site, Site], location: str) -> None:
    home, other = sites
    home.answer = respond(302, Location=location.format(home=home.url, other=other.url))
    with pytest.raises(StorageError) as caught:
        await fetch(home.url + SIGNED, ByteRange(0, 4))
    assert caught.value.kind == "RedirectRefused"
    assert "abc123" not in str(caught.value.as_dict())
    assert other.requests == []


async def test_redirections_can_be_switched_off(sites: tuple[Site, Site]) -> None:
    home, other = sites
    home.answer = respond(302, Location=other.url)
    with pytest.raises(StorageError, match="allow_redirects"):
        await fetch(home.url, ByteRange(0, 4), allow_redirects=False)


@pytest.mark.parametrize("location", ["http://example.org/x", "http://elsewhere.example/x"])
async def test_encryption_is_not_left(location: str) -> None:
    connection = WebConnection(parse_web_options({}), query="", store_options=StoreOptions())
    home = URL("https://example.org/data.parquet")
    call = HttpCall(path=str(home))
    with pytest.raises(StorageError, match="without encryption"):
        connection._next_url(call, home, home, location)
    await connection.aclose()
