"""Requests that are sent again where another attempt may succeed; a broken body goes on where it ended.

Whether and when one is sent again, a pure function decides, so that every case can be tested. Failures are counted, not
time: a transfer that makes progress may take as long as it wants.

The waits are "full jitter": evenly spread between nothing and a bound that grows with every failure, so that clients
which failed together do not come back together. Source:
https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
"""

from __future__ import annotations

import asyncio
import logging
import math
import random as random_numbers
import re
import time
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, field

from coldparquet.errors import ColdParquetError, ObjectChangedError, StorageError
from coldparquet.ranges import ByteRange
from coldparquet.records import replace
from coldparquet.storage.base import StoreWrapper
from coldparquet.storage.log import SlotWait
from coldparquet.storage.refusals import BrokenBodyError, object_changed
from coldparquet.storage.requests import FetchedRange, clipped, is_lasting_etag

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from coldparquet.storage.base import Answer, Call, Effect, ObjectStore
    from coldparquet.storage.requests import RangeRequest


FIRST_WAIT_S, GROWTH = 0.02, 4.0
"""Longest wait behind a first failure, and how it grows with each further one: a single failure is an accident, over which
no caller has to wait longer than for an answer; what fails again and again needs time."""

LONGEST_WAIT_S = 10.0
"""Where the growth ends."""

LONGEST_RETRY_AFTER_S = 60.0
"""A server that wants more than this is asked again after so long all the same."""

_TRANSIENT_KINDS = frozenset({"ConnectionFailed", "ShortRead", "SlowDown", "Timeout"})
_TRANSIENT_STATUSES = frozenset({408, 429, 500, 502, 503, 504})
"""501 and 505 stay what they are, however often one asks."""

_SECONDS = re.compile(r"\d{1,9}", re.ASCII)


class Retry(Struct, frozen=True):
    """Send the request again."""

    wait_s: float
    """After so long."""


class GiveUp(Struct, frozen=True):
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
    """Decide what follows on a failure."""
    if not is_transient(error):
        return GiveUp("not transient")
    if effect == "conditional write" and not _proves_that_nothing_was_written(error):
        return GiveUp("outcome unknown")
    if failed_in_a_row >= max_attempts:
        return GiveUp("failed too often")
    if _has_new_credentials(error):
        return Retry(0.0)
    # The exponent is bounded: the power of many attempts would overflow.
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
    """Tell whether the refused credentials have been renewed since."""
    return error.details.get("credentials_renewed") is True


_LOGGER = logging.getLogger("coldparquet")
_SILENT_S = 1.0
"""Seconds before the first warning that a store does not answer, and between warnings."""
_PROGRESS_SHARE = 32
"""Failures are counted anew once a 32nd of the range has arrived since the count began. If single bytes were enough, a
broken server could make one GET last for millions of requests."""


class RetryStore(StoreWrapper):
    """Repeat what failed for the moment, with growing and random waits in between.

    Writes with a condition (``overwrite=False``, ``if_match``, and the end of every upload) are repeated only where the
    failure proves that nothing was written: the second attempt would take what the first one wrote for another process's.

    An error that is given up keeps its class and kind; its details tell ``attempts`` and ``elapsed_s`` of all of them.

    Args:
        store: Where the requests go. Closing this store closes it.
        max_attempts: Failures in a row without progress that are the end; 1 never repeats.
        sleep: How to wait.
        clock: Seconds that only grow.
        random: Evenly spread numbers in [0, 1).
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        max_attempts: int,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
        random: Callable[[], float] = random_numbers.random,
    ) -> None:
        super().__init__(store)
        self._max_attempts = max_attempts
        self._sleep = sleep
        self._clock = clock
        self._random = random
        self._silent_until_s = -math.inf
        self.retry_count = 0
        """Requests that were sent again."""

    async def get(self, request: RangeRequest) -> FetchedRange:
        """Fetch one range, if need be piece by piece. 1 request, more after failures.

        All pieces come from one version of the object: those after the first are asked for with its ETag.
        """
        failures = _Failures(self._clock())
        body = _Body(request)
        began_again = False
        with SlotWait():
            while True:
                try:
                    return body.joined(await self._store.get(body.remaining(failures.attempt)))
                except ObjectChangedError:
                    if began_again or not body.pieces or request.if_match is not None:
                        raise
                    # The caller would have taken any version, so the new one is as good; once, or it might never end.
                    began_again, body = True, _Body(request)
                    failures.attempt += 1
                    self.retry_count += 1
                except ColdParquetError as error:
                    made_progress = body.keep(error)
                    await self._next_attempt(
                        error, failures, effect="read", made_progress=made_progress, request=request
                    )

    async def send(self, call: Call[Answer]) -> Answer:
        """Make a call until there is an answer; a listing of several pages begins at its first one again."""
        failures = _Failures(self._clock())
        with SlotWait():
            while True:
                try:
                    return await call.make(self._store)
                except ColdParquetError as error:
                    await self._next_attempt(error, failures, effect=call.effect)

    async def _next_attempt(
        self,
        error: ColdParquetError,
        failures: _Failures,
        *,
        effect: Effect,
        made_progress: bool = False,
        request: RangeRequest | None = None,
    ) -> None:
        """Wait until it is time for another attempt, or raise the error."""
        failures.in_a_row = 1 if made_progress else failures.in_a_row + 1
        decision = decide_retry(
            error,
            effect=effect,
            failed_in_a_row=failures.in_a_row,
            max_attempts=self._max_attempts,
            random=self._random,
        )
        if isinstance(decision, GiveUp):
            if is_transient(error):
                self._describe(error, failures, decision, request)
            raise error
        self._tell(error, failures, decision.wait_s)
        await self._sleep(decision.wait_s)
        failures.attempt += 1
        self.retry_count += 1

    def _tell(self, error: ColdParquetError, failures: _Failures, wait_s: float) -> None:
        """Say that a store cannot be reached, which may be a misspelt name, before the caller has waited for long."""
        now_s = self._clock()
        is_long = now_s + wait_s - failures.started_s >= _SILENT_S
        if error.details.get("was_sent") is False and is_long and now_s >= self._silent_until_s:
            self._silent_until_s = now_s + _SILENT_S
            _LOGGER.warning("%s; retrying (%d of %d)", error, failures.attempt + 1, self._max_attempts)

    def _describe(
        self, error: ColdParquetError, failures: _Failures, decision: GiveUp, request: RangeRequest | None
    ) -> None:
        """Let an error say what was tried. It is our own, and no caller has seen it yet."""
        elapsed_s = self._clock() - failures.started_s
        error.details |= {"attempts": failures.attempt, "elapsed_s": elapsed_s}
        if request is not None:
            error.details["byte_range"] = request.byte_range
        if isinstance(error, BrokenBodyError):
            error.received = None
        if decision.reason == "outcome unknown":
            error.message += "; whether it was written before the failure is not known, so it was not tried again"
        elif failures.attempt > 1:
            error.message += f"; given up after {failures.attempt} attempts in {elapsed_s:.1f} s"


class _Failures(Struct):
    """What one request has been through."""

    started_s: float
    attempt: int = 1
    """Number of the attempt that is made."""
    in_a_row: int = 0
    """Failures without progress between them."""


class _Body(Struct):
    """The bytes of one GET, which may come in several answers."""

    request: RangeRequest
    pieces: list[FetchedRange] = field(default_factory=list)
    """One behind the other, all of one version; only what is followed by more is in here."""
    unrewarded_bytes: int = 0
    """Arrived since the count of failures began."""

    def remaining(self, attempt: int) -> RangeRequest:
        """Return the request for what is missing."""
        if not self.pieces:
            return self.request if attempt == 1 else replace(self.request, attempt=attempt)
        last = self.pieces[-1]
        return replace(
            self.request,
            byte_range=ByteRange(last.start + len(last.data), self._end(last)),
            if_match=last.etag,
            if_none_match=None,
            may_be_short=False,
            wants_whole=False,
            attempt=attempt,
        )

    def keep(self, error: ColdParquetError) -> bool:
        """Keep what arrived before a failure, if more of the same version can follow; tell whether that is progress."""
        received = error.received if isinstance(error, BrokenBodyError) else None
        if received is None or not received.data or not is_lasting_etag(received.etag) or not self._fits(received):
            return False
        end = self._end(received)
        if end <= received.start + len(received.data):  # a request for the nothing that is missing cannot be made
            return False
        self.pieces.append(received)
        self.unrewarded_bytes += len(received.data)
        if self.unrewarded_bytes * _PROGRESS_SHARE < end - self.pieces[0].start:
            return False
        self.unrewarded_bytes = 0
        return True

    def joined(self, fetched: FetchedRange) -> FetchedRange:
        """Return the whole answer, of which ``fetched`` is the end."""
        if not self.pieces:
            return fetched
        first = self.pieces[0]
        if not self._fits(fetched):
            raise object_changed(replace(self.request, if_match=first.etag), found_etag=fetched.etag)
        return replace(first, data=b"".join([*(piece.data for piece in self.pieces), fetched.data]))

    def _fits(self, answer: FetchedRange) -> bool:
        """Tell whether an answer continues the bytes that are there: the store may have ignored the condition."""
        if not self.pieces:
            return True
        last = self.pieces[-1]
        return answer.etag == last.etag and answer.start == last.start + len(last.data)

    def _end(self, piece: FetchedRange) -> int:
        """Where the answer to the whole request ends in the object."""
        asked = self.request.byte_range
        if piece.object_size_bytes is not None:
            return clipped(asked, object_size_bytes=piece.object_size_bytes).stop
        return asked.stop if isinstance(asked, ByteRange) else 0
