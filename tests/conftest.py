"""What holds in every test."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

from coldparquet.catalog.caches import clear_caches
from coldparquet.plan.model import ReadPlan
from coldparquet.ranges import ByteRange
from coldparquet.scan.stream import BatchStream
from coldparquet.storage.checked import CheckedStore
from coldparquet.storage.hedge import HedgePace
from coldparquet.storage.requests import FetchedRange, RangeRequest
from tests.support.request_logs import unannounced_requests

# A busy machine is no bug of an example, so that none has a deadline. Tests that need fewer examples say so themselves;
# `--hypothesis-profile=soak` tries more in all others.
settings.register_profile("normal run", deadline=None, max_examples=50)
settings.register_profile("soak", deadline=None, max_examples=2_000)
settings.load_profile("normal run")


@pytest.fixture(autouse=True)
def _caches_are_empty() -> None:
    """What one test fetched, no other test finds in the memory of the process."""
    clear_caches()


@pytest.fixture(autouse=True)
def _a_busy_machine_sends_nothing_twice(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """No second GET is sent for one that only this machine made slow, except in tests marked ``hedges``."""
    if request.node.get_closest_marker("hedges") is None:
        monkeypatch.setattr(HedgePace, "may_hedge", lambda _: False)


@pytest.fixture(autouse=True)
def _plans_are_honest(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever a test reads: each request that the store answers was announced by the plan of its stream.

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

    def note(wanted: RangeRequest) -> None:
        if wanted.role == "data" and isinstance(wanted.byte_range, ByteRange):
            sent.append((wanted.path, wanted.byte_range))

    async def remember_request(store: CheckedStore, wanted: RangeRequest) -> FetchedRange:
        try:
            answer = await get(store, wanted)
        except asyncio.CancelledError:  # whoever gives up while a plan is made never sees it
            raise
        except BaseException:
            note(wanted)
            raise
        note(wanted)
        return answer

    monkeypatch.setattr(BatchStream, "__aenter__", remember_plan)
    monkeypatch.setattr(CheckedStore, "get", remember_request)
    yield
    assert not unannounced_requests(sent, plans), "requests that no plan announced"


def directory_with_servers(nodeid: str) -> str | None:
    """Return the directory all of whose tests share servers, this one among them; None for a test without."""
    return next((name for name in ("tests/spark/", "tests/integration/") if nodeid.startswith(name)), None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """One process runs all tests of a file, and all tests of a directory that share a server, in the order given."""
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]  # noqa: PLC0415 - need not be installed

    class FileSchedule(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return directory_with_servers(nodeid) or nodeid.partition("::")[0]

    config.option.loadscopereorder = False
    return FileSchedule(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that share servers: one process has all of a kind, and the others run the rest meanwhile."""
    items.sort(key=lambda item: directory_with_servers(item.nodeid) is None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say loudly which servers were left out."""
    reasons = {str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", [])}
    messages = sorted(reason for reason in reasons if "was not started" in reason)
    if messages:
        from tests.support.live_servers import REQUIRED_VARIABLE  # noqa: PLC0415 - slow to import

        terminalreporter.section("TESTS WITH REAL SERVERS DID NOT RUN", red=True, bold=True)
        for message in messages:
            terminalreporter.write_line(message)
        terminalreporter.write_line(
            f"Nothing was compared with these servers. With {REQUIRED_VARIABLE}=1, those that must run fail instead."
        )
