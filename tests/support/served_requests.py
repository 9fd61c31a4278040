"""Requests as a simulated store saw them, made up."""

from __future__ import annotations

from typing import Any

from coldparquet.testing.simulator import ServedRequest


def served_request(**facts: Any) -> ServedRequest:
    """Return a GET of an object with these facts, and nothing remarkable besides."""
    return ServedRequest(
        **{
            "operation": "GetObject", "method": "GET", "path": "bucket/x", "query": "", "range_header": None,
            "status": 206, "started_s": 0.0, "finished_s": 0.0, "bytes_sent": 0,
        } | facts,
    )  # fmt: skip
