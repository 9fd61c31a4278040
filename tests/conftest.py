"""What holds in every test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from coldparquet.ranges import ByteRange
from coldparquet.scanning.batch_stream import BatchStream
from coldparquet.storage.checked import CheckedStore
from tests.support.request_logs import unannounced_requests

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coldparquet.plan.read_plan import ReadPlan
    from coldparquet.storage.base import FetchedRange, RangeRequest

# A busy machine is no bug of an example; tests that bound their time say so themselves.
settings.register_profile("without deadline", deadline=None)
settings.load_profile("without deadline")


@pytest.fixture(autouse=True)
def _plans_are_honest(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever a test reads: each request that reaches the store was announced by the plan of its stream.

    That everything announced is also sent holds only where a stream runs to its end; `assert_plan_was_followed` is for
    that.
    """
    if request.path.parent.name == "storage":  # those tests send requests of their own
        yield
        return
    plans: list[ReadPlan] = []
    sent: list[tuple[str, ByteRange]] = []
    get, enter = CheckedStore.get, BatchStream.__aenter__

    async def remember_plan(stream: BatchStream) -> BatchStream:
        await enter(stream)
        plans.append(stream.plan)
        return stream

    async def remember_request(store: CheckedStore, wanted: RangeRequest) -> FetchedRange:
        if wanted.role == "data" and isinstance(wanted.byte_range, ByteRange):
            sent.append((wanted.path, wanted.byte_range))
        return await get(store, wanted)

    monkeypatch.setattr(BatchStream, "__aenter__", remember_plan)
    monkeypatch.setattr(CheckedStore, "get", remember_request)
    yield
    assert not unannounced_requests(sent, plans), "requests that no plan announced"
