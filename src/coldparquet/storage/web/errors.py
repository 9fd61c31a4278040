"""What the refusals of web servers mean, those of object stores behind signed URLs among them."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from coldparquet.errors import (
    AccessError,
    ArchivedObjectError,
    ColdParquetError,
    InvalidInputError,
    NotFoundError,
    StorageError,
)
from coldparquet.storage.refusals import object_replaced
from coldparquet.storage.s3.errors import parse_refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

    import aiohttp

_CODE = re.compile(r"[A-Za-z]{1,64}")
_REFUSED = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.PROXY_AUTHENTICATION_REQUIRED})
_GONE = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.GONE})


def web_refusal(response: aiohttp.ClientResponse, body: bytes, *, path: str, **facts: Any) -> ColdParquetError:
    """Return our error for an answer that is not a success.

    The server's own words are left out, but for the error code of an object store: they may repeat a signature.

    Args:
        response: The answer.
        body: Its body, as far as it was read.
        path: The URL without its query string.
        **facts: Further details, such as ``byte_range`` and ``elapsed_s``.
    """
    refusal = parse_refusal(response.status, response.headers, body)
    status, code = refusal.status, refusal.code if _CODE.fullmatch(refusal.code) else "Unknown"
    details = {"status": status, "code": code, "request_id": refusal.request_id, **facts}
    if refusal.retry_after_s is not None:
        details["retry_after_s"] = refusal.retry_after_s
    said = f"the server answered {status} {code}"
    if code == "InvalidObjectState":
        return ArchivedObjectError(
            "the object lies in an archive class and must be restored before it can be read; with a signed URL this"
            " cannot be asked for: use its s3:// URL",
            path=path,
            storage_class=refusal.storage_class,
            **details,
        )
    if status in _GONE:
        return NotFoundError("there is no such object; check the URL", path=path, **details)
    if status in _REFUSED:
        return AccessError(
            f"{said}: check the credentials in storage_options; a signed URL may have expired", path=path, **details
        )
    if status == HTTPStatus.PRECONDITION_FAILED:
        return object_replaced(path, **details)
    kind, advice = _cause_and_advice(status, code)
    return StorageError(f"{said}: {advice}", kind=kind, path=path, **details)


def _cause_and_advice(status: int, code: str) -> tuple[str, str]:
    if status == HTTPStatus.TOO_MANY_REQUESTS or code == "SlowDown":
        return "SlowDown", "too many requests; try again later"
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return "ServerError", "try again"
    return "RequestRefused", "check the URL"


def redirect_refused(path: str, why: str) -> StorageError:
    """Make the error for a redirection that is not followed."""
    return StorageError(f"{why}; open the address that is meant", kind="RedirectRefused", path=path)


def unsound_options(
    given: Mapping[str, Any], *, name: str = "storage_options", path: str | None = None
) -> ColdParquetError:
    """Make the error for arguments that aiohttp does not take. Their values may be secrets and are left out.

    Args:
        given: What it was given, by name.
        name: Where the caller gave it.
        path: The URL without its query string.
    """
    told = ", ".join(f"{argument} ({type(value).__name__})" for argument, value in sorted(given.items()))
    return InvalidInputError(
        f"aiohttp does not take what {name} give it, by name and type: {told}; check these against its documentation",
        kind="BadOption",
        path=path,
    )
