"""How fast the store was believed to be when a question was first asked."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from coldparquet.plan.store_speed import StoreSpeed

QuestionKey: TypeAlias = tuple[object, ...]
"""What makes two questions the same, such as columns, condition and limit."""

_LIMIT = 1024
"""Questions that are remembered; of a question that is asked more rarely, the ranges are gone from the caches as well."""


class RememberedSpeeds:
    """Plan a repeated question as it was planned the first time, so that it asks for the ranges that are held by then.

    What a plan reads over, and whether it looks closer first, depends on the store's speed, which every request measures
    anew. Without this, the second plan would ask for bytes that the first one did not need.
    """

    def __init__(self) -> None:
        self._speeds: OrderedDict[QuestionKey, StoreSpeed] = OrderedDict()

    def speed_for(self, question: QuestionKey, measured: StoreSpeed) -> StoreSpeed:
        """Return the speed with which a question was planned first; of a new one, what was measured by now."""
        speed = self._speeds.setdefault(question, measured)
        self._speeds.move_to_end(question)
        if len(self._speeds) > _LIMIT:
            self._speeds.popitem(last=False)
        return speed
