"""Whether a request that failed is sent again, and when: a pure function, so that every case can be tested.

The waits are "full jitter": evenly spread between nothing and a bound that grows with every failure, so that clients
which failed together do not come back together. Source:
https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Literal, TypeAlias

from coldparquet.errors import ColdParquetError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST_WAIT_S, GROWTH = 0.02, 4.0
"""Longest wait behind a first failure, and how it grows with each further one: a single failure is an accident, over which
nobody has to wait longer than for an answer; what fails again and again needs time."""

LONGEST_WAIT_S = 10.0
"""Where the growth ends."""

LONGEST_RETRY_AFTER_S = 60.0
"""A server that wants more than this is asked again after so long all the same."""

_TRANSIENT_KINDS = frozenset({"ConnectionFailed", "ShortRead", "SlowDown", "Timeout"})
_TRANSIENT_STATUSES = frozenset({408, 429, 500, 502, 503, 504})
"""501 and 505 stay what they are, however often one asks."""

_SECONDS = re.compile(r"\d{1,9}", re.ASCII)

Effect: TypeAlias = Literal["read", "repeatable write", "conditional write"]
"""What sending a request twice does: nothing; the same as sending it once; or the second one finds what the first one wrote
and calls it somebody else's."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Send the request again."""

    wait_s: float
    """After so long."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Raise the error."""

    reason: Literal["not transient", "failed too often", "outcome unknown"]
    """``outcome unknown``: a write with a condition may have been done; a second one could not tell."""


def decide_retry(
    error: ColdParquetError,
    *,
    effect: Effect,
    failed_in_a_row: int,
    max_attempts: int,
    random: Callable[[], float],
) -> Retry | GiveUp:
    """Decide what follows on a failure.

    Args:
        error: What the store raised.
        effect: What it would do to send the request twice.
        failed_in_a_row: Failures without progress, this one included.
        max_attempts: So many of them are the end.
        random: Evenly spread numbers in [0, 1).
    """
    if not is_transient(error):
        return GiveUp("not transient")
    if effect == "conditional write" and not _proves_that_nothing_was_written(error):
        return GiveUp("outcome unknown")
    if failed_in_a_row >= max_attempts:
        return GiveUp("failed too often")
    if _has_new_credentials(error):
        return Retry(0.0)
    # The exponent is bounded, so that many attempts make no number that is none any more.
    jitter_s = random() * min(LONGEST_WAIT_S, FIRST_WAIT_S * GROWTH ** min(failed_in_a_row - 1, 16))
    asked_for_s = error.details.get("retry_after_s") or 0.0
    return Retry(min(asked_for_s, LONGEST_RETRY_AFTER_S) + jitter_s)


def is_transient(error: ColdParquetError) -> bool:
    """Tell whether the same request may succeed later."""
    if _has_new_credentials(error):
        return True
    if not isinstance(error, StorageError):
        return False
    return error.kind in _TRANSIENT_KINDS or error.details.get("status") in _TRANSIENT_STATUSES


def is_throttled(error: ColdParquetError) -> bool:
    """Tell whether the store wants fewer requests at once."""
    return error.kind == "SlowDown" or error.details.get("status") in (429, 503)


def parse_retry_after(value: str | None, *, now_s: float) -> float | None:
    """Return the seconds that a ``Retry-After`` header asks for; None where it is absent or says nothing.

    Args:
        value: Seconds, or an HTTP date.
        now_s: Seconds since 1970.

    Source: https://www.rfc-editor.org/rfc/rfc9110#section-10.2.3
    """
    text = (value or "").strip()
    if _SECONDS.fullmatch(text):
        return float(text)
    try:
        at = parsedate_to_datetime(text)
    except (TypeError, ValueError, OverflowError):
        return None
    aware = at if at.tzinfo else at.replace(tzinfo=UTC)
    return max(0.0, aware.timestamp() - now_s)


def _proves_that_nothing_was_written(error: ColdParquetError) -> bool:
    """Tell whether the server refused before it did anything, or was never reached."""
    # A 503 without the store's own word for it may come from a proxy, behind which the write was done.
    return _has_new_credentials(error) or error.kind == "SlowDown" or error.details.get("was_sent") is False


def _has_new_credentials(error: ColdParquetError) -> bool:
    """Tell whether the request was refused for credentials in the place of which there are others now."""
    return error.details.get("credentials_renewed") is True
