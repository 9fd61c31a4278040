"""Decides which request meets which fault in a simulated cold store, the same in every run.

    FaultRule("slow-down", operation="*", probability=0.02)
    FaultRule("reset-body", path="bucket/trades/*/data.parquet", skip=3, times=1)

A rule is plain data, and fits into one argument of a command line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from fnmatch import translate
from random import Random
from typing import TYPE_CHECKING, Literal, Self, TypeAlias, get_args

from coldparquet.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

FaultKind: TypeAlias = Literal[
    "slow-down",
    "too-many-requests",
    "server-error",
    "not-found",
    "forbidden",
    "expired-token",
    "redirect",
    "hang",
    "reset",
    "half-answer",
    "cut-body",
    "reset-body",
    "stall-body",
    "trickle",
    "damaged-body",
    "wrong-range",
    "wrong-etag",
    "whole-object",
]
"""Faults that a request may meet.

* Refusals, for every operation: ``slow-down`` (503), ``too-many-requests`` (429), ``server-error`` (500), ``not-found``,
  ``forbidden``, ``expired-token``, ``redirect`` (307 to ``FaultRule.location``).
* Broken connections, for every operation: ``hang`` (no answer ever), ``reset`` before any answer, ``half-answer``, which
  ends within the headers.
* Bodies, for GETs of objects alone: ``cut-body`` (half of it, then the connection is closed), ``reset-body`` (half, then
  reset), ``stall-body`` (half, then silence), ``trickle`` (the bytes come one by one, ``FaultRule.pause_s`` apart),
  ``damaged-body`` (one bit is flipped, which only checksums can detect).
* Headers, for GETs of objects alone: ``wrong-range`` (``Content-Range`` names other bytes), ``wrong-etag``,
  ``whole-object`` (200 and everything in place of the range).
"""

REFUSALS: frozenset[FaultKind] = frozenset({
    "slow-down", "too-many-requests", "server-error", "not-found", "forbidden", "expired-token", "redirect",
})  # fmt: skip
"""Faults with an error document as the answer."""

BROKEN_CONNECTIONS: frozenset[FaultKind] = frozenset({"hang", "reset", "half-answer"})
"""Faults without an answer."""


@dataclass(frozen=True, slots=True)
class FaultRule:
    """Which requests meet a fault.

    Raises:
        InvalidInputError: A value is invalid.
    """

    kind: FaultKind
    path: str = field(default="*", kw_only=True)
    """Shell pattern of ``bucket/key``; ``*`` matches ``/`` too."""
    operation: str = field(default="GetObject", kw_only=True)
    """S3's name of the requests, ``*`` for all."""
    probability: float = field(default=1.0, kw_only=True)
    """Share of the matching requests."""
    skip: int = field(default=0, kw_only=True)
    """Number of matching requests that pass untouched first."""
    times: int | None = field(default=None, kw_only=True)
    """How often it strikes; None is for ever."""
    retry_after_s: int | None = field(default=None, kw_only=True)
    """The Retry-After header of refusals."""
    pause_s: float = field(default=1.0, kw_only=True)
    """Time between two bytes of a ``trickle``."""
    location: str | None = field(default=None, kw_only=True)
    """Target of a ``redirect``."""

    def __post_init__(self) -> None:
        if self.kind not in get_args(FaultKind):
            raise InvalidInputError(f"{self.kind!r} is no fault; use one of {', '.join(get_args(FaultKind))}")
        if not 0 <= self.probability <= 1:
            raise InvalidInputError(f"FaultRule.probability is {self.probability}; it must lie in [0, 1]")
        if self.skip < 0 or (self.times is not None and self.times < 0) or self.pause_s < 0:
            raise InvalidInputError("FaultRule.skip, times and pause_s must not be negative")
        if (self.kind == "redirect") != (self.location is not None):
            raise InvalidInputError("FaultRule.location belongs to redirects, which need it")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the rule that :meth:`as_text` wrote, such as ``slow-down,operation=*,probability=0.02``.

        Raises:
            InvalidInputError: The text is not a rule.
        """
        kind, *settings = text.split(",")
        types = {"probability": float, "skip": int, "times": int, "retry_after_s": int, "pause_s": float}
        try:
            named = dict(setting.split("=", 1) for setting in settings)
            return cls(kind, **{name: types.get(name, str)(value) for name, value in named.items()})  # type: ignore[arg-type]
        except (TypeError, ValueError) as error:
            raise InvalidInputError(
                f"{text!r} is no rule for faults ({error}); write it as slow-down,path=bucket/*,probability=0.02"
            ) from error

    def as_text(self) -> str:
        """Return the rule as one argument of a command line; paths must not contain a comma."""
        settings = [
            f"{part.name}={value}"
            for part in fields(self)[1:]
            if (value := getattr(self, part.name)) is not None and value != part.default
        ]
        return ",".join([self.kind, *settings])


@dataclass(slots=True)
class _Entry:
    rule: FaultRule
    pattern: re.Pattern[str]
    random: Random
    seen_count: int = 0
    struck_count: int = 0


class FaultDice:
    """Chooses the faults of requests.

    Args:
        rules: The first one that strikes counts.
        seed: Every rule has its own random numbers. Whether it strikes its n-th matching request depends only on the
            seed, on n and on its position among the rules.
    """

    def __init__(self, rules: Sequence[FaultRule], *, seed: int) -> None:
        self._entries = [
            _Entry(rule=rule, pattern=re.compile(translate(rule.path), re.DOTALL), random=Random(f"{seed}/{number}"))  # noqa: S311 - repeatable faults, not secrets
            for number, rule in enumerate(rules)
        ]

    def roll(self, operation: str, path: str) -> FaultRule | None:
        """Return the fault of the next request, None for none.

        Args:
            operation: S3's name of the request.
            path: ``bucket/key``.
        """
        chosen: FaultRule | None = None
        for entry in self._entries:
            rule = entry.rule
            if rule.operation not in ("*", operation) or not entry.pattern.match(path):
                continue
            entry.seen_count += 1
            # Drawn even if another rule has already struck, so that rules do not change each other's numbers.
            strikes = entry.random.random() < rule.probability
            exhausted = rule.times is not None and entry.struck_count >= rule.times
            if chosen is None and strikes and not exhausted and entry.seen_count > rule.skip:
                entry.struck_count += 1
                chosen = rule
        return chosen
