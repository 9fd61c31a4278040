"""When a GET is slow enough for a second one to be sent, and whether that may be: learned from the newest GETs.

Only the slowest twentieth is worth it, as AnyBlob found for S3 (https://www.vldb.org/pvldb/vol16/p2769-durner.pdf). In a
partial outage everything is slow, and a second request for everything would double what the store suffers from.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque

SIZE_CLASSES_BYTES = (64 * 1024, 512 * 1024, 2 * 1024 * 1024)
"""Upper ends of the classes of GETs that are compared with each other; what is longer is a class of its own."""

LEAST_SAMPLES = 3
"""Nothing is known of a class before so many of its GETs were answered: the median of three stands where one was slow."""

BUDGET_SHARE = 0.05
"""Second requests per first one, in the long run."""

OUTAGE_SHARE = 0.1
"""Where more of the newest GETs than this were slow, slowness is no accident of single ones."""

_CREDIT_TOKENS, _MOST_SAVED_TOKENS = 1.0, 10.0
"""Second requests that may be sent before the first ones have paid for them, and that a quiet time saves up for."""

_SAMPLES = 256
"""Newest durations of a class that its percentiles are made of."""

_UPDATE_SHARE = 4
"""The percentiles are computed again when a quarter of the durations are new."""

_RESERVED_TOKENS, _RESERVED_FACTOR = 3.0, 1.3
"""The last saved ones are for GETs that take so many times as long: a twentieth of all is beyond the 95th percentile by its
nature, and would otherwise spend what the few that hang are in need of."""

_NEWEST, _LEAST_NEWEST = 100, 20
"""GETs, of all classes, that tell an outage from an accident; where there were fewer, as if the others had been in time."""

_SHORTEST_WAIT_S = 0.005
"""Timers and the event loop are not more exact than this."""

_LEAST_FACTOR = 1.3
"""What takes hardly longer than the median is not slow, though it may be slower than 95 %: where all take about the same time,
the budget would be spent on nothing, and be gone when one hangs."""

_MOST_FACTOR = 4.0
"""What takes this many times the median is slow, though more than 5 % may be: a few slow ones among the first samples would
otherwise set the measure. On S3 the 95th percentile is about 3 times the median."""


class HedgePace:
    """Decides over the second requests of one store."""

    def __init__(self) -> None:
        self._classes = [_SizeClass() for _ in range(len(SIZE_CLASSES_BYTES) + 1)]
        self._were_slow: deque[bool] = deque(maxlen=_NEWEST)
        self._slow_count = 0
        self._tokens = _CREDIT_TOKENS

    def slow_after_s(self, size_bytes: int) -> float | None:
        """Count a GET for so many bytes, and return after how long it is slow; None while that is not known."""
        self._tokens = min(_MOST_SAVED_TOKENS, self._tokens + BUDGET_SHARE)
        slow_after_s = self._class_of(size_bytes).slow_after_s
        if slow_after_s is None or self._tokens >= _RESERVED_TOKENS:
            return slow_after_s
        return slow_after_s * _RESERVED_FACTOR

    def note_answer(self, size_bytes: int, duration_s: float) -> None:
        """Learn from a GET that was answered; one that was slow by then has been noted with :meth:`may_hedge` as well."""
        self._class_of(size_bytes).add(duration_s)

    def note_in_time(self) -> None:
        """Note a GET that was answered before it was slow."""
        self._note(slow=False)

    def may_hedge(self) -> bool:
        """Note a GET that is slow, and tell whether a second one may be sent for it; if so, it is paid for."""
        self._note(slow=True)
        if self._slow_count > OUTAGE_SHARE * max(len(self._were_slow), _LEAST_NEWEST) or self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def _note(self, *, slow: bool) -> None:
        if len(self._were_slow) == _NEWEST:
            self._slow_count -= self._were_slow[0]
        self._were_slow.append(slow)
        self._slow_count += slow

    def _class_of(self, size_bytes: int) -> _SizeClass:
        return self._classes[bisect_left(SIZE_CLASSES_BYTES, size_bytes)]


class _SizeClass:
    """The newest durations of GETs of about the same size."""

    __slots__ = ("_durations_s", "_since_update", "slow_after_s")

    def __init__(self) -> None:
        self._durations_s: deque[float] = deque(maxlen=_SAMPLES)
        self._since_update = 0
        self.slow_after_s: float | None = None
        """The 95th percentile of the durations, within bounds; None as long as there are too few."""

    def add(self, duration_s: float) -> None:
        self._durations_s.append(duration_s)
        self._since_update += 1
        wanted = LEAST_SAMPLES if self.slow_after_s is None else len(self._durations_s) // _UPDATE_SHARE
        if self._since_update >= wanted:
            self._since_update = 0
            ordered = sorted(self._durations_s)
            # The lower of two neighbours: the slowest one of a few dozen does not set the measure.
            percentile_s, median_s = ordered[(len(ordered) - 1) * 95 // 100], ordered[len(ordered) // 2]
            usual_s = min(max(percentile_s, _LEAST_FACTOR * median_s), _MOST_FACTOR * median_s)
            self.slow_after_s = max(usual_s, _SHORTEST_WAIT_S)
