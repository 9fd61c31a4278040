"""Which storage class a partition's data is written to, by its age."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coldparquet.errors import InvalidInputError
from coldparquet.prices import PriceTable

if TYPE_CHECKING:
    from collections.abc import Sequence

_RULE = re.compile(r"(?P<days>\d{1,6})d=(?P<storage_class>[A-Z_]{1,30})", re.ASCII)
_DAY_S = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageClassRule:
    """Partitions that ended so long ago are written to this class."""

    after_days: int
    storage_class: str
    """One of those in the library's price table that answer a GET at once."""

    def __post_init__(self) -> None:
        known = [prices.name for prices in PriceTable.default().classes if not prices.must_be_restored]
        if self.storage_class not in known:
            raise InvalidInputError(
                f"storage class {self.storage_class!r} is none of {', '.join(known)}; partitions in archive classes"
                " could not be read without restoring them first, so move them there by a lifecycle rule if you want to",
                kind="UnknownStorageClass",
            )
        if self.after_days < 0:
            raise InvalidInputError(f"an age of {self.after_days} days; expected 0 or more")


def parse_storage_class_rule(text: str) -> StorageClassRule:
    """Parse a rule such as ``30d=GLACIER_IR``.

    Raises:
        InvalidInputError: It does not read so, or the class is unknown.
    """
    match = _RULE.fullmatch(text)
    if match is None:
        raise InvalidInputError(f"{text!r} is no rule for a storage class; write it as 30d=GLACIER_IR")
    return StorageClassRule(after_days=int(match["days"]), storage_class=match["storage_class"])


def storage_class_of(ended_s: float, rules: Sequence[StorageClassRule], *, now_s: float) -> str | None:
    """Return the class of the rule with the largest age that a partition has reached; None for the bucket's own.

    Args:
        ended_s: End of the partition, in seconds since 1970.
        rules: In any order.
        now_s: The present, in seconds since 1970.
    """
    reached = [rule for rule in rules if now_s - ended_s >= rule.after_days * _DAY_S]
    return max(reached, key=_after_days).storage_class if reached else None


def _after_days(rule: StorageClassRule) -> int:
    return rule.after_days
