"""From a URL, as users write it, to a store and the path in it.

Between a reader and the store lie retries, limits and the ledger, in the one order that makes sense, from the top down:

* RetryStore waits outside of the limits, so that a request that waits for its next attempt is in no other's way.
* LimitedStore counts a GET once, whether it is hedged or not, and sees every attempt that the store turns away.
* HedgedStore races requests that have been let through: a second one never waits for a slot.
* TraceStore, the ledger, sees every request that is sent, second ones and further attempts included.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from coldparquet.errors import InvalidInputError, StorageError, UnsupportedError
from coldparquet.options import checked_store_options
from coldparquet.storage.fsspec_store import FsspecStore, without_secrets
from coldparquet.storage.hedge import HedgedStore
from coldparquet.storage.limit import LimitedStore, limit_of
from coldparquet.storage.local import LocalStore
from coldparquet.storage.log import SpeedMeter, TraceStore
from coldparquet.storage.retry import RetryStore
from coldparquet.storage.urls import LOCAL_SCHEMES, S3_SCHEMES, errors_name_urls

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from fsspec import AbstractFileSystem

    from coldparquet.options import StoreOptions
    from coldparquet.storage.base import ObjectStore


_S3_PACKAGES = ("aiohttp", "botocore")
_WEB_SCHEMES = ("http", "https")
_VERSION = re.compile(r"\?versionId=([A-Za-z0-9._-]{1,1024})$")
"""S3's versions are words of these characters. Any other question mark belongs to the key."""

_SIGNED = re.compile(r"[?&](X-Amz-[A-Za-z-]+|AWSAccessKeyId|Signature)=", re.IGNORECASE)
"""Parameters of presigned URLs, which name no object of S3's own."""

_ONE_SLASH = re.compile(r"(s3|s3a|https?):/(?!/)", re.IGNORECASE)
"""How a URL begins that lost a slash, and would be taken for a local path."""

_LINK = re.compile(r"([A-Za-z0-9+.-]+)://([^/?#]*)")
"""Scheme and authority of one part of a chained URL."""

_NAMES_WITH_COLONS = ("git", "github")
"""``github://organisation:repository@branch``: what stands before the ``@`` is no password."""


def open_store(
    url: str, *, storage_options: Mapping[str, Any] | None = None, store_options: StoreOptions | None = None
) -> tuple[ObjectStore, str]:
    """Make the store for a URL. No request. Call it in the event loop that will use the store."""
    options = dict(storage_options or {})
    scheme, separator, rest = url.partition("://")
    if not url:
        raise InvalidInputError("the URL is empty; needed: a local path or a URL such as s3://bucket/table")
    if lost := _ONE_SLASH.match(url):
        raise InvalidInputError(f"a URL of {lost[1]} begins with {lost[1]}://, with two slashes", kind="BadUrl")
    if url.startswith("/") or (not separator and "::" not in url):
        return _open_local(url, options)
    if scheme in LOCAL_SCHEMES:
        return _open_local(rest, options)
    if scheme in S3_SCHEMES:
        return _open_s3(rest, options, store_options)
    if scheme in _WEB_SCHEMES:
        return _open_web(url, options, store_options)
    return _open_other(url, options)


def import_store(url: str) -> None:
    """Import what :func:`open_store` will need for a URL, which takes up to half a second. Mistakes are left to it."""
    scheme = url.partition("://")[0]
    if "://" not in url and "::" not in url:
        return
    with contextlib.suppress(ImportError, ValueError):
        if scheme in S3_SCHEMES:
            importlib.import_module("coldparquet.storage.s3.store")
            return
        import fsspec  # noqa: PLC0415 - local paths do without it

        if scheme in _WEB_SCHEMES:
            importlib.import_module("coldparquet.storage.web")
        for link in url.split("::"):
            fsspec.get_filesystem_class(link.partition("://")[0])


def s3_path(url: str) -> str | None:
    """Return the path that :func:`open_store` makes of an S3 URL; None of any other URL."""
    scheme, _, rest = url.partition("://")
    return _s3_path_and_version(rest)[0] if scheme in S3_SCHEMES else None


def path_beside(url: str, store: ObjectStore, table_url: str | None) -> str:
    """Return the path of another URL in the store of a table; ``table_url`` is None where the caller brought the store.

    Raises:
        InvalidInputError: The URL is of another kind of store.
    """
    if table_url is None:
        return url.rstrip("/")
    path = s3_path(url) if s3_path(table_url) is not None else None
    if path is None:
        raise InvalidInputError(
            "an index at another place needs both, table and index, on S3, such as s3://mine/indexes/events; this table is in"
            f" {store.label}",
            kind="BadUrl",
        )
    return path


def _s3_path_and_version(rest: str) -> tuple[str, str | None]:
    version = _VERSION.search(rest)
    return rest[: version.start() if version else None].rstrip("/"), version[1] if version else None


def _open_local(path: str, options: dict[str, Any]) -> tuple[ObjectStore, str]:
    local = Path(path)
    with contextlib.suppress(RuntimeError):  # no such user: the name itself begins with a tilde
        local = local.expanduser()
    absolute = str(local.absolute())
    return LocalStore(within=None if options.get("follow_links") else absolute), absolute


def _open_s3(rest: str, options: dict[str, Any], store_options: StoreOptions | None) -> tuple[ObjectStore, str]:
    if _SIGNED.search(rest):
        raise InvalidInputError(
            "an S3 URL holds no signature: presigned URLs begin with https://; or pass key and secret in storage_options",
            path=rest.partition("?")[0],
        )
    path, version = _s3_path_and_version(rest)
    bucket = path.partition("/")[0]
    if not bucket:
        raise InvalidInputError("the URL names no bucket; needed: s3://bucket/path")
    if "@" in bucket:
        raise InvalidInputError("an S3 URL holds no credentials; pass key and secret in storage_options")
    _require("S3", *_S3_PACKAGES)
    from coldparquet.storage.s3.parameters import with_fsspec_config  # noqa: PLC0415 - only S3 needs these packages
    from coldparquet.storage.s3.store import S3Store  # noqa: PLC0415

    versions = {path: version} if version else {}
    options = with_fsspec_config(options)
    return S3Store(storage_options=options, versions=versions, store_options=store_options), path


def _require(place: str, *packages: str) -> None:
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise UnsupportedError(
                f"reading from {place} needs the package {package}: pip install 'coldparquet[s3]'",
                kind="MissingPackage",
            )


def _open_web(url: str, options: dict[str, Any], store_options: StoreOptions | None) -> tuple[ObjectStore, str]:
    parts: SplitResult | None
    try:
        parts = urlsplit(url)
        _ = parts.port  # which looks at it
    except ValueError:  # whose text may hold a password
        parts = None
    if parts is None:
        raise InvalidInputError("the URL has no sound host and port; needed: https://host:port/path", kind="BadUrl")
    if parts.username is not None:
        raise _holds_password(url, '{"headers": {"Authorization": "Basic " + base64 of user:password}}')
    _require("web servers", "aiohttp")
    base = f"{parts.scheme}://{parts.netloc}{parts.path}"
    filesystem, path = _filesystem(base, options)
    query = f"?{parts.query}" if parts.query else ""
    from coldparquet.storage.web import WebStore, parse_web_options  # noqa: PLC0415 - only the web needs aiohttp

    web_options = parse_web_options(options)
    fsspec_store = FsspecStore(filesystem, label=f"{parts.scheme}://{parts.netloc}", query=query)
    return WebStore(fsspec_store, options=web_options, query=query, store_options=store_options), path.rstrip("/")


def _open_other(url: str, options: dict[str, Any]) -> tuple[ObjectStore, str]:
    if "::" in url:
        _refuse_secrets_in_chain(url)
    filesystem, path = _filesystem(url, options)
    return FsspecStore(filesystem, label=url.partition("://")[0]), path.rstrip("/") or "/"


def _refuse_secrets_in_chain(url: str) -> None:
    """Refuse what would become a part of the store's paths, and so of errors, plans and logs."""
    found = [(link, match) for link in url.split("::") if (match := _LINK.match(link))]
    for link, match in found:
        scheme, user = match[1].lower(), match[2].rpartition("@")[0]
        if user and (scheme in _WEB_SCHEMES or (":" in user and scheme not in _NAMES_WITH_COLONS)):
            raise _holds_password(url, f'{{"{scheme}": {{...}}}} with the options of that filesystem')
        is_innermost_path = (link, match) == found[
            0
        ]  # caches have no path of their own: theirs is that of the next link
        if is_innermost_path and scheme in _WEB_SCHEMES and "?" in link:
            raise InvalidInputError(
                "the query string of a chained URL cannot be kept secret; open the https:// URL itself, which needs no"
                " fsspec cache: StoreOptions(cache_directory=...) keeps what was fetched",
                path=without_secrets(url),
            )


def _holds_password(url: str, where: str) -> InvalidInputError:
    return InvalidInputError(
        f"the URL holds a user name or password; pass them in storage_options: {where}", path=without_secrets(url)
    )


def _filesystem(url: str, options: dict[str, Any]) -> tuple[AbstractFileSystem, str]:
    """Make the filesystem, asynchronous if it can be; a chained URL's filesystems are blocking ones."""
    import fsspec  # noqa: PLC0415 - neither local paths nor S3 need it
    from fsspec.core import url_to_fs  # noqa: PLC0415

    scheme = url.partition("://")[0]
    try:
        if "::" not in url and fsspec.get_filesystem_class(scheme).async_impl:
            # Not from fsspec's cache: its connections belong to one event loop, and the store closes them.
            options = {**options, "asynchronous": True, "skip_instance_cache": True}
        filesystem, path = url_to_fs(url, **options)
    except ImportError as error:
        raise UnsupportedError(f"{scheme}:// needs another package: {error}", kind="MissingPackage") from error
    except Exception as error:  # noqa: BLE001 - each filesystem raises what its client library raises
        failure = _cannot_be_opened(url, error)
    else:
        return filesystem, str(path)
    # Raised outside of the except block: the original may name signed URLs, and must not come along as context.
    raise failure


def _cannot_be_opened(url: str, error: Exception) -> InvalidInputError | StorageError:
    scheme, message = url.partition("://")[0], without_secrets(str(error))
    if isinstance(error, ValueError):
        return InvalidInputError(f"{scheme}:// cannot be opened: {message}", kind="UnknownScheme")
    cause = f"{type(error).__name__}: {message}"
    return StorageError(f"{scheme}:// cannot be opened ({cause})", path=without_secrets(url))


class StoreStack(Struct, frozen=True, kw_only=True):
    """A store with everything that requests pass through on their way to it."""

    store: ObjectStore
    """The top of the stack: where requests go in. Closing it closes the store at the bottom."""
    trace: TraceStore
    """Sees every request as it is sent: second attempts are requests of their own."""
    meter: SpeedMeter
    """Knows how fast the store answers."""
    retries: RetryStore
    """Knows how many requests were sent again."""
    limits: LimitedStore
    """Knows how many requests of the store are in flight, and how many may be."""
    hedges: HedgedStore | None
    """Knows how many second requests were sent and won; None where none are sent."""


def stack_store(store: ObjectStore, *, store_options: StoreOptions, max_concurrency: int) -> StoreStack:
    """Put the wrappers that every reader and writer needs on a store. All such stacks on one store share its limit."""
    meter = SpeedMeter(store)
    trace = TraceStore(store, observe=meter.note)
    hedges = HedgedStore(trace) if store_options.hedging and store.has_spare_connections else None
    limits = LimitedStore(hedges or trace, max_concurrency=max_concurrency, in_flight=limit_of(store, max_concurrency))
    retries = RetryStore(limits, max_attempts=store_options.max_attempts)
    return StoreStack(store=retries, trace=trace, meter=meter, retries=retries, limits=limits, hedges=hedges)


class OpenedStore(Struct, frozen=True, kw_only=True):
    """A store, and the place in it that was asked for."""

    path: str
    bare: ObjectStore
    """The store itself, for functions that put the wrappers on it themselves."""
    stack: StoreStack
    """The same with everything that requests pass through on their way to it."""


@asynccontextmanager
async def opened_store(
    url: str,
    *,
    storage_options: Mapping[str, Any] | None,
    store_options: StoreOptions | None,
    store: ObjectStore | None,
    max_concurrency: int,
) -> AsyncGenerator[OpenedStore, None]:
    """Open a store with the wrappers that every reader and writer needs, and close it afterwards. No request.

    Errors that leave the block name objects by URL; see :func:`~coldparquet.storage.urls.errors_name_urls`.
    """
    store_options = checked_store_options(store_options)
    if store is None:
        bare, path = open_store(url, storage_options=storage_options, store_options=store_options)
    else:
        bare, path = store, url
    try:
        stack = stack_store(bare, store_options=store_options, max_concurrency=max_concurrency)
        with errors_name_urls(url, path):
            yield OpenedStore(path=path, bare=bare, stack=stack)
    finally:
        if store is None:
            await bare.aclose()
