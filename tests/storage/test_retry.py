"""What is sent again, and when; and RetryStore over stores that fail as scripted: waits are recorded, not slept."""

from __future__ import annotations

import asyncio
import logging
import pickle
from collections import deque
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.errors import (
    AccessError,
    ArchivedObjectError,
    ColdParquetError,
    InvalidInputError,
    NotFoundError,
    ObjectChangedError,
    StorageError,
    UnsupportedError,
)
from coldparquet.ranges import ByteRange, SuffixRange
from coldparquet.records import replace
from coldparquet.storage.base import Effect
from coldparquet.storage.limit import LimitedStore
from coldparquet.storage.memory import MemoryStore
from coldparquet.storage.refusals import BrokenBodyError
from coldparquet.storage.requests import FetchedRange, RangeRequest
from coldparquet.storage.retry import GiveUp, Retry, RetryStore, decide_retry, is_throttled, parse_retry_after
from coldparquet_testing.store_contract import CONTENT, request_for

PATH = "table/x"
ETAG = '"version-1"'
RESET = StorageError("reset", kind="ConnectionFailed", request_id="4442587FB7D0A2F9")


@dataclass(frozen=True, slots=True)
class Cut:
    """The body ends after so many bytes."""

    after_bytes: int
    etag: str | None = ETAG


@dataclass
class Scripted(MemoryStore):
    """Fails the n-th call with the n-th failure; None, and everything behind the script, succeeds."""

    failures: deque[ColdParquetError | Cut | None] = field(default_factory=deque)
    requests: list[RangeRequest] = field(default_factory=list)
    etag: str | None = ETAG

    def __post_init__(self) -> None:
        super().__init__({PATH: CONTENT})

    async def get(self, request: RangeRequest) -> FetchedRange:
        self.requests.append(request)
        fetched = replace(await super().get(replace(request, if_match=None)), etag=self.etag)
        failure = self.failures.popleft() if self.failures else None
        if isinstance(failure, Cut):
            received = replace(fetched, data=fetched.data[: failure.after_bytes], etag=failure.etag)
            raise BrokenBodyError("the body ended early", path=request.path, received=received)
        if failure is not None:
            raise copy(failure)
        if request.if_match not in (None, self.etag):
            raise ObjectChangedError("replaced", path=request.path)
        return fetched


@dataclass
class Patience:
    """A clock that only sleeping moves."""

    now_s: float = 0.0
    waits_s: list[float] = field(default_factory=list)

    async def sleep(self, wait_s: float) -> None:
        self.waits_s.append(wait_s)
        self.now_s += wait_s

    def store(
        self, inner: MemoryStore, *, max_attempts: int = 4, random: Callable[[], float] = lambda: 0.5
    ) -> RetryStore:
        return RetryStore(inner, max_attempts=max_attempts, sleep=self.sleep, clock=lambda: self.now_s, random=random)


def scripted(*failures: ColdParquetError | Cut | None) -> Scripted:
    return Scripted(failures=deque(failures))


def ranges_of(store: Scripted) -> list[tuple[ByteRange | SuffixRange, str | None, int]]:
    return [(request.byte_range, request.if_match, request.attempt) for request in store.requests]


async def test_a_get_is_sent_again_after_growing_waits() -> None:
    inner, patience = scripted(RESET, RESET, RESET), Patience()
    store = patience.store(inner)
    assert (await store.get(request_for(PATH, ByteRange(3, 9)))).data == CONTENT[3:9]
    assert ranges_of(inner) == [(ByteRange(3, 9), None, attempt) for attempt in (1, 2, 3, 4)]
    assert patience.waits_s == [0.01, 0.04, 0.16]
    assert store.retry_count == 3


async def test_an_error_that_is_given_up_tells_what_was_tried() -> None:
    inner, patience = scripted(*[RESET] * 9), Patience()
    with pytest.raises(StorageError, match=r"given up after 4 attempts in 0\.2 s") as caught:
        await patience.store(inner).get(request_for(PATH, ByteRange(3, 9)))
    assert caught.value.kind == "ConnectionFailed"
    elapsed_s = caught.value.details.pop("elapsed_s")
    assert elapsed_s == pytest.approx(0.21)
    assert caught.value.details == {"attempts": 4, "byte_range": ByteRange(3, 9), "request_id": "4442587FB7D0A2F9"}
    assert len(inner.requests) == 4


async def test_a_store_that_cannot_be_reached_is_told_before_two_seconds(caplog: pytest.LogCaptureFixture) -> None:
    nowhere = StorageError("no host 'typo'; check endpoint_url", kind="ConnectionFailed", was_sent=False)
    inner, patience = scripted(*[nowhere] * 20), Patience()
    said_at_s: list[float] = []
    caplog.set_level("WARNING", logger="coldparquet")

    def note(_: logging.LogRecord) -> bool:
        said_at_s.append(patience.now_s)
        return True

    caplog.handler.addFilter(note)
    store = patience.store(inner, max_attempts=8)
    with pytest.raises(StorageError):
        await store.get(request_for(PATH, ByteRange(3, 9)))
    caplog.handler.filters.clear()
    assert caplog.messages[0] == "no host 'typo'; check endpoint_url; retrying (6 of 8)"
    assert said_at_s[0] < 2
    assert len(caplog.messages) == 3
    again = patience.store(scripted(RESET, RESET, RESET, RESET, RESET), max_attempts=8)
    await again.get(request_for(PATH, ByteRange(3, 9)))
    assert len(caplog.messages) == 3  # what is lost on the way is not a question of names


async def test_what_is_not_transient_is_raised_as_it_is() -> None:
    inner, patience = scripted(StorageError("the disk is full")), Patience()
    with pytest.raises(StorageError) as caught:
        await patience.store(inner).get(request_for(PATH, ByteRange(3, 9)))
    assert (str(caught.value), caught.value.details, patience.waits_s) == ("the disk is full", {}, [])


async def test_one_attempt_never_repeats() -> None:
    inner, patience = scripted(RESET), Patience()
    with pytest.raises(StorageError):
        await patience.store(inner, max_attempts=1).get(request_for(PATH, ByteRange(3, 9)))
    assert (len(inner.requests), patience.waits_s) == (1, [])


async def test_a_broken_body_goes_on_behind_its_last_byte() -> None:
    inner, patience = scripted(Cut(100), RESET, Cut(50)), Patience()
    fetched = await patience.store(inner).get(request_for(PATH, ByteRange(10, 700)))
    assert fetched == FetchedRange(data=CONTENT[10:700], start=10, etag=ETAG, object_size_bytes=len(CONTENT))
    assert ranges_of(inner) == [
        (ByteRange(10, 700), None, 1),
        (ByteRange(110, 700), ETAG, 2),
        (ByteRange(110, 700), ETAG, 3),
        (ByteRange(160, 700), ETAG, 4),
    ]
    assert patience.waits_s == [0.01, 0.04, 0.01]  # progress starts the count of failures anew


@pytest.mark.parametrize("asked", [SuffixRange(300), SuffixRange(10**6), ByteRange(500, 10**6)], ids=str)
async def test_a_broken_body_of_a_range_that_leaves_its_place_open(asked: ByteRange | SuffixRange) -> None:
    whole = await MemoryStore({PATH: CONTENT}).get(request_for(PATH, asked))
    inner, patience = scripted(Cut(99)), Patience()
    fetched = await patience.store(inner).get(request_for(PATH, asked, may_be_short=True))
    assert (fetched.data, fetched.start) == (whole.data, whole.start)
    assert ranges_of(inner)[1:] == [(ByteRange(whole.start + 99, len(CONTENT)), ETAG, 2)]
    assert not inner.requests[1].may_be_short


async def test_progress_has_no_end_of_attempts_but_single_bytes_are_no_progress() -> None:
    inner = scripted(*(Cut(64) for _ in range(15)))
    fetched = await Patience().store(inner, max_attempts=2).get(request_for(PATH, ByteRange(0, 1024)))
    assert fetched.data == CONTENT[:1024]

    inner, patience = scripted(*(Cut(1) for _ in range(1000))), Patience()
    with pytest.raises(BrokenBodyError) as caught:
        await patience.store(inner, max_attempts=8).get(request_for(PATH, ByteRange(0, 1024)))
    assert caught.value.details["attempts"] == len(inner.requests) == 8
    assert caught.value.details["byte_range"] == ByteRange(0, 1024)
    assert caught.value.received is None


@pytest.mark.parametrize("etag", [None, 'W/"weak"', "mtime-17"])
async def test_without_a_version_a_broken_body_is_fetched_anew(etag: str | None) -> None:
    inner = scripted(Cut(100, etag=etag))
    fetched = await Patience().store(inner).get(request_for(PATH, ByteRange(10, 700)))
    assert fetched.data == CONTENT[10:700]
    assert ranges_of(inner) == [(ByteRange(10, 700), None, 1), (ByteRange(10, 700), None, 2)]


async def test_object_replaced_behind_a_broken_body() -> None:
    inner = scripted(Cut(100, etag='"older"'))
    fetched = await Patience().store(inner).get(request_for(PATH, ByteRange(10, 700)))
    assert (fetched.data, fetched.etag) == (CONTENT[10:700], ETAG)
    assert ranges_of(inner) == [
        (ByteRange(10, 700), None, 1),
        (ByteRange(110, 700), '"older"', 2),
        (ByteRange(10, 700), None, 3),
    ]

    inner = scripted(Cut(100, etag='"older"'))
    with pytest.raises(ObjectChangedError):
        await Patience().store(inner).get(request_for(PATH, ByteRange(10, 700), if_match='"older"'))
    assert len(inner.requests) == 2


async def test_object_that_is_replaced_all_the_time() -> None:
    inner = scripted(*(cut for turn in range(9) for cut in (Cut(100, etag=f'"{turn}"'), None)))
    inner.etag = '"newest"'
    with pytest.raises(ObjectChangedError):
        await Patience().store(inner).get(request_for(PATH, ByteRange(10, 700)))
    assert len(inner.requests) == 4


async def test_store_that_ignores_the_condition() -> None:
    class Ignoring(Scripted):
        async def get(self, request: RangeRequest) -> FetchedRange:
            return await super().get(replace(request, if_match=None))

    inner = Ignoring(failures=deque([Cut(100, etag='"older"'), None, Cut(100, etag='"older"'), None]))
    with pytest.raises(ObjectChangedError):
        await Patience().store(inner).get(request_for(PATH, ByteRange(10, 700), if_match='"older"'))


async def test_cancelled_while_it_waits() -> None:
    inner = scripted(*(RESET for _ in range(9)))
    store = RetryStore(inner, max_attempts=8, random=lambda: 0.999)
    waiting = asyncio.create_task(store.get(request_for(PATH, ByteRange(0, 4))))
    await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert len(inner.requests) == 1
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_closed_store_is_not_asked_again() -> None:
    inner = scripted(RESET, RESET)
    limited = LimitedStore(inner, max_concurrency=1)

    async def close_meanwhile(_: float) -> None:
        await limited.aclose()

    store = RetryStore(limited, max_attempts=8, sleep=close_meanwhile)
    with pytest.raises(InvalidInputError, match="closed"):
        await store.get(request_for(PATH, ByteRange(0, 4)))
    assert len(inner.requests) == 1


async def test_missing_object_behind_a_failure() -> None:
    inner = scripted(RESET, NotFoundError("gone"))
    with pytest.raises(NotFoundError):
        await Patience().store(inner).get(request_for(PATH, ByteRange(0, 4)))


def test_a_broken_body_is_pickled_without_its_bytes() -> None:
    received = FetchedRange(data=b"abc", start=0, etag=ETAG, object_size_bytes=9)
    again = pickle.loads(pickle.dumps(BrokenBodyError("early", path="x", received=received, status=206)))  # noqa: S301 - our own
    assert (str(again), again.kind, again.details, again.received) == ("x: early", "ShortRead", {"status": 206}, None)


@given(
    st.lists(st.one_of(st.integers(0, 1500).map(Cut), st.just(RESET), st.none()), max_size=12),
    st.one_of(
        st.tuples(st.integers(0, 1100), st.integers(1, 1100)).map(lambda pair: ByteRange(pair[0], sum(pair))),
        st.integers(1, 1100).map(SuffixRange),
    ),
)
def test_whatever_breaks_the_bytes_are_exact(failures: list[Any], asked: ByteRange | SuffixRange) -> None:
    async def check() -> None:
        expected = await MemoryStore({PATH: CONTENT}).get(request_for(PATH, asked))
        inner = scripted(*failures)
        store = Patience().store(inner, max_attempts=3)
        try:
            fetched = await store.get(request_for(PATH, asked, may_be_short=True))
        except StorageError as error:
            assert error.details["attempts"] == len(inner.requests) >= 3  # noqa: PT017 - either outcome is fine
            return
        assert (fetched.data, fetched.start) == (expected.data, expected.start)

    asyncio.run(check())


TRANSIENT: list[ColdParquetError] = [
    StorageError("slow down", kind="SlowDown", status=503),
    StorageError("slow down", kind="SlowDown", status=429),
    StorageError("internal", kind="ServerError", status=500),
    StorageError("bad gateway", kind="ServerError", status=502),
    StorageError("gateway timeout", kind="ServerError", status=504),
    StorageError("fsspec said 503", status=503),
    StorageError("refused or no such host", kind="ConnectionFailed", was_sent=False),
    StorageError("reset", kind="ConnectionFailed"),
    StorageError("silence", kind="Timeout"),
    BrokenBodyError("the body ended early"),
    AccessError("expired", kind="ExpiredToken", credentials_renewed=True),
]
LASTING: list[ColdParquetError] = [
    StorageError("the disk is full"),
    StorageError("not implemented", kind="ServerError", status=501),
    StorageError("another range", kind="WrongRange", status=206),
    StorageError("no trusted connection", kind="CertificateInvalid"),
    StorageError("no capacity", kind="TierNotAvailable", status=400),
    AccessError("denied", status=403),
    AccessError("expired", kind="ExpiredToken", credentials_renewed=False),
    NotFoundError("gone", status=404),
    ObjectChangedError("replaced", status=412),
    ArchivedObjectError("archived", status=403),
    InvalidInputError("closed", kind="StoreClosed"),
    UnsupportedError("no"),
]


def decide(
    error: ColdParquetError, *, effect: Effect = "read", failed: int = 1, most: int = 8, chance: float = 0.5
) -> Retry | GiveUp:
    return decide_retry(error, effect=effect, failed_in_a_row=failed, max_attempts=most, random=lambda: chance)


@pytest.mark.parametrize("error", TRANSIENT, ids=str)
def test_what_may_succeed_later_is_sent_again(error: ColdParquetError) -> None:
    assert isinstance(decide(error, effect="read"), Retry)
    assert isinstance(decide(error, effect="repeatable write"), Retry)


@pytest.mark.parametrize("error", LASTING, ids=str)
def test_what_stays_as_it_is_is_raised(error: ColdParquetError) -> None:
    assert decide(error) == GiveUp("not transient")


@pytest.mark.parametrize("error", TRANSIENT, ids=str)
def test_conditional_writes_only_where_nothing_can_have_been_written(error: ColdParquetError) -> None:
    proves = error.kind in {"SlowDown", "ExpiredToken"} or "was_sent" in error.details
    decision = decide(error, effect="conditional write")
    assert isinstance(decision, Retry) if proves else decision == GiveUp("outcome unknown")


def test_waits_quadruple_up_to_ten_seconds() -> None:
    error = StorageError("reset", kind="ConnectionFailed")
    waits_s = [decide(error, failed=failed, most=1000, chance=1.0) for failed in (1, 2, 3, 4, 5, 6, 999)]
    assert waits_s == [Retry(wait_s) for wait_s in (0.02, 0.08, 0.32, 1.28, 5.12, 10.0, 10.0)]
    assert decide(error, failed=4, chance=0.25) == Retry(0.32)


def test_attempts_are_bounded() -> None:
    error = StorageError("reset", kind="ConnectionFailed")
    assert isinstance(decide(error, failed=7, most=8), Retry)
    assert decide(error, failed=8, most=8) == GiveUp("failed too often")
    assert decide(error, failed=1, most=1) == GiveUp("failed too often")


def test_retry_after_is_honoured_up_to_a_minute() -> None:
    for asked_s, waited_s in ((2.0, 2.01), (0.0, 0.01), (3600.0, 60.01)):
        error = StorageError("slow down", kind="SlowDown", retry_after_s=asked_s)
        assert decide(error) == Retry(waited_s)


def test_new_credentials_are_used_at_once() -> None:
    assert decide(TRANSIENT[-1]) == Retry(0.0)


@given(st.sampled_from(TRANSIENT), st.integers(1, 10**6), st.floats(0, 1, exclude_max=True), st.floats(0, 1e12))
def test_every_wait_is_bounded(error: ColdParquetError, failed: int, chance: float, retry_after_s: float) -> None:
    again = type(error)(error.message, kind=error.kind, **error.details, retry_after_s=retry_after_s)
    decision = decide(again, failed=failed, most=10**7, chance=chance)
    assert isinstance(decision, Retry)
    assert 0 <= decision.wait_s <= 70


@pytest.mark.parametrize(
    ("value", "expected_s"),
    [
        (None, None),
        ("", None),
        ("soon", None),
        ("-1", None),
        ("1.5", None),
        ("٣", None),
        ("9" * 400, None),
        ("0", 0.0),
        (" 120 ", 120.0),
        ("Sun, 06 Nov 1994 08:49:47 GMT", 10.0),
        ("Sunday, 06-Nov-94 08:49:47 GMT", 10.0),
        ("Sun, 06 Nov 1994 08:49:27 GMT", 0.0),
        ("Sun, 06 Nov 1994 08:49:47 -0000", 10.0),
        ("Sun, 99 Nov 1994 08:49:47 GMT", None),
    ],
)
def test_retry_after_header(value: str | None, expected_s: float | None) -> None:
    assert parse_retry_after(value, now_s=784111777.0) == expected_s


@given(st.text(max_size=60))
def test_any_retry_after_header(value: str) -> None:
    seconds = parse_retry_after(value, now_s=0.0)
    assert seconds is None or seconds >= 0


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        ({"kind": "SlowDown"}, True),
        ({"kind": "ServerError", "status": 503}, True),
        ({"status": 429}, True),
        ({"kind": "ServerError", "status": 500}, False),
        ({"kind": "Timeout"}, False),
    ],
)
def test_what_asks_for_fewer_requests(details: dict[str, Any], expected: bool) -> None:
    assert is_throttled(StorageError("x", **details)) is expected
