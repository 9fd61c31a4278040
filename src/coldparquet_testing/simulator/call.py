"""Represents one parsed request to a simulated cold store, and its outcome."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiohttp import web

    from coldparquet_testing.simulator.faults import FaultKind, FaultRule

_HALF_TICK_S = 0.0005
"""epoll sleeps in whole milliseconds, rounded up; aiming half of one early centres the error on zero."""


@dataclass(slots=True, kw_only=True)
class Call:
    """One parsed request."""

    request: web.BaseRequest
    request_id: str
    bucket: str
    key: str
    query: dict[str, str]
    operation: str
    """S3's name of the request."""
    first_byte_due_s: float
    """When the first byte of the answer is due, on the clock ``time.monotonic``."""
    fault: FaultRule | None
    """The fault that it meets."""

    @property
    def path(self) -> str:
        """``bucket/key``."""
        return f"{self.bucket}/{self.key}" if self.key else self.bucket

    def meets(self, *kinds: FaultKind) -> bool:
        """Tell whether it meets one of these faults."""
        return self.fault is not None and self.fault.kind in kinds


@dataclass(slots=True)
class Outcome:
    """The outcome of a call; filled in while it is answered."""

    status: int = 0
    bytes_sent: int = 0
    storage_class: str = "STANDARD"
    restore_tier: str | None = None
    restored_bytes: int = 0


def operation_of(method: str, bucket: str, key: str, query: dict[str, str], *, is_copy: bool) -> str:
    """Return S3's name of a request, ``Unsupported`` for those that are not simulated.

    Args:
        method: HTTP method.
        bucket: Its bucket; empty for requests about all of them.
        key: Its key; empty for requests about a bucket.
        query: Its parameters.
        is_copy: Whether a header names an object to copy from.
    """
    if key:
        in_parts = "uploadId" in query
        operations = {
            "GET": "GetObject",
            "HEAD": "HeadObject",
            "PUT": _put_of_object(query, is_copy=is_copy),
            "POST": "CompleteMultipartUpload" if in_parts else _post_of_object(query),
            "DELETE": "AbortMultipartUpload" if in_parts else "",
        }
    elif not bucket:
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


def _put_of_object(query: dict[str, str], *, is_copy: bool) -> str:
    if "uploadId" in query and query.get("partNumber", "").isdecimal():
        return "" if is_copy else "UploadPart"
    return "CopyObject" if is_copy else "PutObject"


def _post_of_object(query: dict[str, str]) -> str:
    if "uploads" in query:
        return "CreateMultipartUpload"
    return "RestoreObject" if "restore" in query else ""


async def sleep_until(due_s: float) -> None:
    """Sleep until ``time.monotonic()`` reaches a time."""
    remaining_s = due_s - time.monotonic() - _HALF_TICK_S
    if remaining_s > 0:
        await asyncio.sleep(remaining_s)
