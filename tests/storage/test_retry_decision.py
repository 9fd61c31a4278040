from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
from coldparquet.storage.refusals import BrokenBodyError
from coldparquet.storage.retry import (
    GiveUp,
    Retry,
    decide_retry,
    is_throttled,
    parse_retry_after,
)

if TYPE_CHECKING:
    from coldparquet.storage.base import Effect

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
