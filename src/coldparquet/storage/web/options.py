"""``storage_options`` for web servers, as users of fsspec's HTTP filesystem write them, checked and in one place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from coldparquet.errors import InvalidInputError
from coldparquet.storage.option_checks import mapping_option, refuse_unknown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    import aiohttp

_FOR_EACH_REQUEST = frozenset(
    {
        "allow_redirects",
        "auth",
        "cookies",
        "headers",
        "max_redirects",
        "params",
        "proxy",
        "proxy_auth",
        "proxy_headers",
        "server_hostname",
        "ssl",
        "timeout",
        "trace_request_ctx",
    }
)
"""What aiohttp takes with a request."""

_PERSONAL = ("auth", "cookies", "headers", "params", "server_hostname")
"""What says who we are, or was meant for one host: it goes with requests to the host of the URL, and to no other."""

_OF_THE_FILESYSTEM = frozenset({"client_kwargs", "encoded", "get_client"})
_MEANINGFUL_TO_FSSPEC_ONLY = frozenset(
    {
        "asynchronous",
        "block_size",
        "cache_options",
        "cache_type",
        "listings_expiry_time",
        "loop",
        "max_paths",
        "same_scheme",
        "simple_links",
        "size_policy",
        "skip_instance_cache",
        "use_listings_cache",
    }
)
"""Caches, buffers and listings of fsspec: without meaning for a GET."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebOptions:
    """What the caller said about a web server."""

    personal: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Arguments of requests to the host of the URL: ``auth``, ``cookies``, ``headers`` and so on."""
    request: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Further arguments of every request."""
    client: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Arguments of ``aiohttp.ClientSession``."""
    get_client: Callable[..., Awaitable[aiohttp.ClientSession]] | None = None
    """Makes sessions in place of ours."""
    is_encoded: bool = False
    """Whether the URL's path is percent-encoded already and has to be sent exactly as it is."""
    follows_redirects: bool = True
    max_redirects: int = 10


def parse_web_options(storage_options: Mapping[str, Any]) -> WebOptions:
    """Check ``storage_options`` and bring their several spellings together.

    Args:
        storage_options: ``client_kwargs`` (arguments of ``aiohttp.ClientSession``), ``get_client``, ``encoded``, and what
            aiohttp takes with a request: ``headers``, ``auth``, ``cookies``, ``ssl``, ``proxy``, ``timeout`` and so on.
            Options of fsspec's caches are ignored.

    Raises:
        InvalidInputError: An option is unknown or of another type. Values are not repeated in the message, since they may be
            secrets.
    """
    refuse_unknown(storage_options, known=_FOR_EACH_REQUEST | _OF_THE_FILESYSTEM, ignored=_MEANINGFUL_TO_FSSPEC_ONLY)
    client = dict(mapping_option(storage_options, "client_kwargs"))
    for options in (storage_options, client):
        for name in ("cookies", "headers"):
            mapping_option(options, name)
    max_redirects = storage_options.get("max_redirects", 10)
    if isinstance(max_redirects, bool) or not isinstance(max_redirects, int) or max_redirects < 0:
        raise InvalidInputError("the storage option max_redirects must be a whole number, 0 or more", kind="BadOption")
    get_client = storage_options.get("get_client")
    if get_client is not None and not callable(get_client):
        raise InvalidInputError(
            "the storage option get_client must be a function that makes sessions", kind="BadOption"
        )
    request = {name: value for name, value in storage_options.items() if name in _FOR_EACH_REQUEST - {"max_redirects"}}
    personal: dict[str, Any] = {}
    for name in _PERSONAL:
        of_session, of_request = client.pop(name, None), request.pop(name, None)
        if of_session is not None and of_request is not None and name != "auth":
            personal[name] = {**of_session, **of_request}
        elif of_session is not None or of_request is not None:
            personal[name] = of_session if of_request is None else of_request
    return WebOptions(
        personal=personal,
        follows_redirects=bool(request.pop("allow_redirects", True)),
        max_redirects=max_redirects,
        request=request,
        client=client,
        get_client=get_client,
        is_encoded=bool(storage_options.get("encoded")),
    )
