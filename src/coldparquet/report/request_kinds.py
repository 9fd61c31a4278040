"""The kinds into which requests are sorted where people look at them: one colour each, everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from coldparquet.storage.wrappers.trace import RequestRecord

RequestKind: TypeAlias = Literal["listing", "metadata", "data", "writing", "failed"]

KIND_NAMES: dict[RequestKind, str] = {
    "listing": "listing",
    "metadata": "metadata",
    "data": "data",
    "writing": "writing",
    "failed": "failed",
}
"""In the order in which a read usually goes through them."""

_NO_FAILURES = frozenset({"ok", "cancelled", "NotFound"})
"""To look for a sidecar that is not there is no failure, nor is a race that was lost."""


def kind_of(record: RequestRecord) -> RequestKind:
    """Return the kind of a request."""
    if record.status not in _NO_FAILURES:
        return "failed"
    if record.operation == "list":
        return "listing"
    if record.operation in ("get", "info"):
        return record.role
    return "writing"


def purpose_of(record: RequestRecord) -> str:
    """Say what a request was for; the directory of its object tells the requests of one table apart."""
    if record.operation == "list":
        return record.reason
    directories = record.path.rsplit("/", 2)
    return f"{directories[-2]}  {record.reason}" if len(directories) > 1 else record.reason


def remarks_on(record: RequestRecord) -> tuple[str, ...]:
    """Return what is unusual about a request: that it repeats another one, or how it ended."""
    remarks = []
    if record.attempt > 1:
        remarks.append(f"attempt {record.attempt}")
    if record.is_hedge:
        remarks.append("hedge")
    if record.status == "NotFound":
        remarks.append("not there")
    elif record.status != "ok":
        remarks.append(record.status)
    return tuple(remarks)
