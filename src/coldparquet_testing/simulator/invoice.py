"""Computes what a store would have charged for its requests."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from coldparquet.prices import PriceTable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coldparquet.prices import RequestKind
    from coldparquet_testing.simulator.options import ServedRequest

_KINDS: dict[str, RequestKind] = {
    "GetObject": "get",
    "HeadObject": "head",
    "HeadBucket": "head",
    "ListBuckets": "list",
    "ListObjectsV2": "list",
    "ListMultipartUploads": "list",
    "GetBucketLocation": "list",
    "PutObject": "put",
    "CopyObject": "put",
    "CreateMultipartUpload": "put",
    "UploadPart": "put",
    "CompleteMultipartUpload": "put",
}
"""How S3 charges an operation; deletions, and what is missing here, are free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InvoiceLine:
    """Requests with equal prices."""

    kind: str
    """``get``, ``head``, ``list``, ``put``, or ``restore`` with its tier."""
    storage_class: str
    requests: int
    sent_bytes: int
    """Bytes that the store sent for them; for restores the bytes of the objects."""
    dollars: float | None
    """None where the price table lacks the class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Invoice:
    """All lines, most expensive first."""

    lines: tuple[InvoiceLine, ...]

    @property
    def dollars(self) -> float:
        """The sum of all lines with a known price."""
        return sum(line.dollars or 0.0 for line in self.lines)

    def as_dict(self) -> dict[str, Any]:
        """Return the invoice as plain data."""
        return {"dollars": self.dollars, "lines": [asdict(line) for line in self.lines]}


def make_invoice(served: Iterable[ServedRequest], prices: PriceTable | None = None) -> Invoice:
    """Price requests; those that the store itself failed to answer (5xx, broken connections) are free, as on S3.

    Args:
        served: The requests.
        prices: None uses the library's table.
    """
    table = prices or PriceTable.default()
    counted: dict[tuple[str, str], tuple[int, int]] = {}
    for request in served:
        is_ours = request.status == 0 or request.status >= HTTPStatus.INTERNAL_SERVER_ERROR
        tier = request.restore_tier
        kind = f"restore {tier}" if tier else _KINDS.get(request.operation)
        if is_ours or kind is None:
            continue
        requests, sent_bytes = counted.get((kind, request.storage_class), (0, 0))
        charged_bytes = request.restored_bytes if tier else request.bytes_sent
        counted[kind, request.storage_class] = requests + 1, sent_bytes + charged_bytes
    lines = [_line(table, *key, *amounts) for key, amounts in counted.items()]
    return Invoice(lines=tuple(sorted(lines, key=lambda line: -(line.dollars or 0.0))))


def _line(table: PriceTable, kind: str, storage_class: str, requests: int, sent_bytes: int) -> InvoiceLine:
    known: dict[str, RequestKind] = {"get": "get", "head": "head", "list": "list", "put": "put"}
    dollars: float | None
    if kind in known:
        retrieved_bytes = sent_bytes if kind == "get" else 0
        dollars = table.request_dollars(
            known[kind], storage_class=storage_class, retrieved_bytes=retrieved_bytes, count=requests
        )
    else:
        dollars = _restore_dollars(table, kind.partition(" ")[2], storage_class, requests, sent_bytes)
    return InvoiceLine(
        kind=kind, storage_class=storage_class, requests=requests, sent_bytes=sent_bytes, dollars=dollars
    )


def _restore_dollars(
    table: PriceTable, tier: str, storage_class: str, object_count: int, object_bytes: int
) -> float | None:
    """Price restores without the storage of their copies, which is charged day by day."""
    found = table.find(storage_class)
    for price in found.restores if found else ():
        if price.tier == tier:
            return table.restore_dollars(
                storage_class, price.tier, object_count=object_count, object_bytes=object_bytes, days=0
            )
    return None
