"""A question that is asked again is planned as it was the first time, whatever was measured since."""

from __future__ import annotations

from coldparquet.plan.model import StoreSpeed
from coldparquet.scan.model import RememberedSpeeds
from coldparquet.scan.work import KeptShare

SLOW, FAST = (StoreSpeed(connections=8, first_byte_s=first_byte_s) for first_byte_s in (0.5, 0.001))


def test_a_repeated_question_has_the_speed_of_the_first_time() -> None:
    speeds = RememberedSpeeds()
    assert speeds.speed_for(("price > 1",), SLOW) is SLOW
    assert speeds.speed_for(("price > 2",), FAST) is FAST
    assert speeds.speed_for(("price > 1",), FAST) is SLOW


def test_only_the_newest_questions_are_remembered() -> None:
    speeds = RememberedSpeeds()
    for number in range(2_000):
        speeds.speed_for((number,), SLOW)
    assert speeds.speed_for((0,), FAST) is FAST
    assert speeds.speed_for((1_999,), FAST) is SLOW


def test_a_scan_is_kept_as_a_whole_or_not_at_all() -> None:
    fitting = KeptShare(100, planned_bytes=100)
    assert [fitting.takes(50), fitting.takes(50)] == [True, True]
    too_large = KeptShare(100, planned_bytes=101)
    assert not too_large.takes(1)


def test_of_a_scan_with_an_unknown_end_the_beginning_is_kept() -> None:
    share = KeptShare(100, planned_bytes=None)
    assert [share.takes(60), share.takes(60), share.takes(1)] == [True, False, False]
