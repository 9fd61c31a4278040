"""What holds in every test."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from coldparquet import scan
from coldparquet.scan_planner import plan_question
from coldparquet.storage.checked import CheckedStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Executor

    from coldparquet.scan_planner import PlannedScan, Question
    from coldparquet.storage.base import FetchedRange, RangeRequest

# A busy machine is no bug of an example; tests that bound their time say so themselves.
settings.register_profile("without deadline", deadline=None)
settings.load_profile("without deadline")

METADATA_REASONS = {"sidecar", "Parquet footer", "size of the Parquet file"}
"""Requests that are sent to make plans, or sidecars, and so cannot be part of one."""


@pytest.fixture(autouse=True)
def _plans_are_honest(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever a test reads: each request that reaches the store was announced by a plan, with exactly its range."""
    if request.path.parent.name == "storage":  # those tests send requests of their own
        yield
        return
    announced: Counter[tuple[str, object]] = Counter()
    sent: Counter[tuple[str, object]] = Counter()
    get = CheckedStore.get

    async def remember_plan(question: Question, executor: Executor) -> PlannedScan:
        planned = await plan_question(question, executor)
        announced.update(
            (planned_request.path, planned_request.byte_range) for planned_request in planned.plan.requests
        )
        return planned

    async def remember_request(store: CheckedStore, wanted: RangeRequest) -> FetchedRange:
        if wanted.reason not in METADATA_REASONS:
            sent[wanted.path, wanted.byte_range] += 1
        return await get(store, wanted)

    monkeypatch.setattr(scan, "plan_question", remember_plan)
    monkeypatch.setattr(CheckedStore, "get", remember_request)
    yield
    assert not sent - announced, "requests that no plan announced"
