"""Costs and budgets: goals side by side, what is refused, what is said of it, and what several plans spend together."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.errors import BudgetExceededError, InvalidInputError
from coldparquet.options import COALESCING_BY_GOAL, ReadOptions
from coldparquet.plan.budget import Budget, compare_goals
from coldparquet.plan.cost import estimate_seconds
from coldparquet.plan.model import MetadataRequest, Read, ReadPlan, SkippedPartition, StoreSpeed
from coldparquet.records import replace
from tests.support.plan_pieces import SPEED, plan_of, read_of

KB = 1_000


def plan_with(*, partitions: int = 1, classes: list[str | None] | None = None, **limits: Any) -> ReadPlan:
    """Per partition two ranges of 100 KB, 400 KB apart: two requests, or one of 600 KB."""
    reads = [read_of([(0, 100 * KB), (500 * KB, 600 * KB)], partition_index=index) for index in range(partitions)]
    return plan_of(reads, ReadOptions(**limits), classes=classes or [None] * partitions)


def refused(plan: ReadPlan, budget: Budget | None = None) -> BudgetExceededError:
    with pytest.raises(BudgetExceededError) as raised:
        (budget or Budget()).admit(plan)
    return raised.value


@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"max_requests": 2},
        {"max_bytes": 200 * KB},
        {"max_usd": 0.8e-6},
        {"max_requests": 2, "max_bytes": 200 * KB, "max_usd": 1},
    ],
)
def test_a_plan_within_its_limits_is_admitted(limits: dict[str, Any]) -> None:
    Budget().admit(plan_with(**limits))


def test_the_error_names_figures_limit_and_the_goal_that_fits() -> None:
    error = refused(plan_with(max_requests=1))
    assert str(error) == (
        "s3://bucket/t: the plan takes 2 requests, 195 KiB and $0.00000080, but max_requests is 1; nothing of it was"
        " fetched. Goal 'cheap' would fit with 1 request, 586 KiB and $0.00000040; goal 'few-requests' would fit with 1"
        " request, 586 KiB and $0.00000040"
    )
    assert error.kind == "BudgetExceeded"
    assert error.details["planned_requests"] == 2
    assert error.details["planned_bytes"] == 200 * KB
    assert error.details["max_requests"] == 1
    assert error.details["fitting_goals"] == ["cheap", "few-requests"]
    assert pickle.loads(pickle.dumps(error)).details == error.details  # noqa: S301 - our own bytes
    assert error.as_dict()["max_requests"] == 1


def test_every_limit_that_is_exceeded_is_named() -> None:
    message = str(refused(plan_with(max_requests=1, max_bytes=100 * KB, max_usd=1e-9)))
    assert "max_requests is 1 and max_bytes is 100,000 (97.7 KiB) and max_usd is $0.0000000010" in message
    assert message.endswith("Ask for fewer columns or a narrower condition, or raise the limit")


def test_partitions_that_would_fit() -> None:
    message = str(refused(plan_with(partitions=3, max_bytes=450 * KB)))
    assert message.endswith("Of 3 partitions the first 2 would fit, 2024-03-01 to 2024-03-02: narrow the time range")
    message = str(refused(plan_with(partitions=3, max_bytes=200 * KB)))
    assert message.endswith("Of 3 partitions the first would fit, 2024-03-01: narrow the time range")


def test_dollars_are_those_of_the_class() -> None:
    Budget().admit(plan_with(max_usd=1e-6, classes=["STANDARD"]))
    error = refused(plan_with(max_usd=1e-6, classes=["GLACIER_IR"]))
    assert error.details["planned_usd"] == pytest.approx(2 * 10e-6 + 0.2e-3 * 0.03)


def test_a_budget_in_dollars_needs_prices() -> None:
    with pytest.raises(InvalidInputError, match="no price is known for storage class SNOW") as raised:
        Budget().admit(plan_with(max_usd=1, classes=["SNOW"]))
    assert raised.value.kind == "UnknownStorageClass"
    Budget().admit(plan_with(max_requests=5, classes=["SNOW"]))


def test_plans_of_one_answer_share_a_budget() -> None:
    budget = Budget()
    plan = plan_with(max_requests=5)
    budget.admit(plan)
    budget.admit(plan)
    error = refused(plan, budget)
    assert "2 requests, 195 KiB and $0.00000080, after 4 requests, 391 KiB and $0.0000016 for the same" in str(error)
    # What was refused was not spent.
    budget.admit(plan_of([read_of([(0, 10)])], ReadOptions(max_requests=5)))
    Budget().admit(plan)


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"max_requests": 2}, "budget        within the budget of 2 requests"),
        ({"max_requests": 1}, "budget        exceeded, so that nothing would be read: max_requests is 1\n"),
    ],
)
def test_explain_tells_and_never_refuses(limits: dict[str, Any], said: str) -> None:
    plan = plan_with(**limits)
    assert said in plan.explain()
    assert plan.as_dict()["options"]["max_requests"] == limits["max_requests"]
    assert plan.as_dict()["estimate"]["exceeded"] == (["max_requests is 1"] if limits["max_requests"] == 1 else [])
    assert "budget" not in plan_with().explain()


def test_requests_bytes_and_dollars_of_each_goal() -> None:
    """Ten ranges of 10 KB, 200 KB apart, in an infrequent-access class: there a request costs as much as 100 KB."""
    ranges = [(number * 210 * KB, number * 210 * KB + 10 * KB) for number in range(10)]
    plan = plan_of([read_of(ranges)], classes=["STANDARD_IA"])
    found = {cost.goal: (cost.request_count, cost.bytes_fetched) for cost in compare_goals(plan)}
    assert found == {
        "fast": (10, 100 * KB),
        "cheap": (10, 100 * KB),
        "few-requests": (1, 9 * 210 * KB + 10 * KB),
        "few-bytes": (10, 100 * KB),
    }
    dollars = {cost.goal: cost.dollars.amount for cost in compare_goals(plan)}
    assert dollars["cheap"] == pytest.approx(10 / 1e6 + 1e-4 * 0.01)
    assert dollars["few-requests"] == pytest.approx(1 / 1e6 + 1.9e-3 * 0.01)
    standard = {cost.goal: cost.dollars.amount for cost in compare_goals(plan_of([read_of(ranges)]))}
    assert standard["cheap"] == standard["few-requests"] == pytest.approx(0.40e-6)


def test_few_requests_take_one_round_trip() -> None:
    late = read_of([(0, 1000)], deferred=read_of([(2000, 3000)]))
    trips = {cost.goal: (cost.round_trips, cost.request_count) for cost in compare_goals(plan_of([late]))}
    assert trips == {"fast": (2, 2), "cheap": (2, 2), "few-requests": (1, 1), "few-bytes": (2, 2)}


@st.composite
def some_reads(draw: st.DrawFn) -> list[Read]:
    reads = []
    for partition in range(draw(st.integers(1, 3))):
        for row_group in range(draw(st.integers(0, 3))):
            starts = draw(st.lists(st.integers(0, 3_000_000), min_size=1, max_size=5))
            ranges = [(start, start + draw(st.integers(1, 900_000))) for start in starts]
            reads.append(read_of(ranges, partition_index=partition, row_group=row_group))
    return reads


@given(some_reads(), st.lists(st.sampled_from([None, "STANDARD_IA", "GLACIER_IR", "SNOW"]), min_size=3, max_size=3))
def test_a_goal_costs_what_a_plan_with_that_goal_costs(reads: list[Read], classes: list[str | None]) -> None:
    compared = {cost.goal: cost for cost in compare_goals(plan_of(reads, classes=classes))}
    for goal in COALESCING_BY_GOAL:
        planned = plan_of(reads, ReadOptions(goal=goal), classes=classes)
        cost = compared[goal]
        assert cost.request_count == planned.request_count
        assert cost.bytes_fetched == planned.bytes_fetched
        [as_planned] = [own for own in compare_goals(planned) if own.goal == goal]
        assert cost.dollars.amount == pytest.approx(as_planned.dollars.amount)
        assert cost.dollars.unpriced_classes == as_planned.dollars.unpriced_classes


def test_explain_shows_the_goals_and_the_class() -> None:
    ranges = [(number * 210 * KB, number * 210 * KB + 10 * KB) for number in range(10)]
    text = plan_of([read_of(ranges)], ReadOptions(goal="cheap"), classes=["GLACIER_IR"]).explain()
    assert "cheap *              1   1.8 MiB            1  63 ms              $67.00" in text
    assert "10 requests, 97.7 KiB in GLACIER_IR" not in text
    assert "1 request, 1.8 MiB in GLACIER_IR (price unverified)" in text
    assert "in other classes" not in text


def test_explain_says_which_speed_was_measured() -> None:
    read = read_of([(0, 1000)])
    measured = replace(SPEED, first_byte_s=0.25, is_first_byte_measured=True)
    assert (
        "30 ms to each first byte, then 55 MiB/s each (published for S3; not measured yet)"
        in plan_of([read], speed=replace(SPEED, is_remote=True)).explain()
    )
    assert (
        "250 ms to each first byte (measured), then 55 MiB/s each (published for S3)"
        in plan_of([read], speed=measured).explain()
    )
    both = replace(measured, connection_bytes_per_s=2e6, is_throughput_measured=True)
    assert (
        "250 ms to each first byte, then 1.9 MiB/s each (measured at this store)"
        in plan_of([read], speed=both).explain()
    )
    estimate = plan_of([read], speed=both).as_dict()["estimate"]
    assert (estimate["is_first_byte_measured"], estimate["is_throughput_measured"]) == (True, True)


def test_classes_without_a_price_are_named_not_guessed() -> None:
    reads = [read_of([(0, 1000)], partition_index=index) for index in range(2)]
    plan = plan_of(reads, classes=["SNOW", "STANDARD"])
    assert "$0.40 and what SNOW costs for a million reads like this" in plan.explain()
    assert plan.as_dict()["estimate"]["unpriced_classes"] == ["SNOW"]


def test_metadata_in_a_dear_class_is_priced_there() -> None:
    """Footers are read from the data objects; sidecars and tables lie in STANDARD."""
    plan = replace(
        plan_of([read_of([(0, 1000)])], classes=["GLACIER_IR"]),
        metadata_requests=(
            MetadataRequest(path="t/2024-03-01/data.parquet", byte_range=None, reason="", fetched_bytes=0, operation="info"),
            MetadataRequest(path="t/2024-03-01/data.parquet", byte_range=None, reason="", fetched_bytes=10**6),
            MetadataRequest(path="t/2024-03-01/_pm", byte_range=None, reason="", fetched_bytes=10**6),
            MetadataRequest(path="t", byte_range=None, reason="", fetched_bytes=0, operation="list"),
        ),
    )  # fmt: skip
    dollars = plan.as_dict()["estimate"]["metadata_dollars"]
    assert dollars == pytest.approx((10 + 10 + 0.40 + 5) / 1e6 + 0.001 * 0.03)
    assert "2 GETs, 1 HEAD and 1 LIST: $55.40 for a million plans like this" in plan.explain()


def test_archived_partitions_are_named() -> None:
    plan = plan_of([read_of([(0, 1000)])], classes=["GLACIER", None])
    archived = replace(plan.partitions[0], is_archived=True)
    skipped = SkippedPartition(name="2024-02-01", storage_class="DEEP_ARCHIVE", size_bytes=3 << 30)
    plan = replace(plan, partitions=(archived, *plan.partitions[1:]), partitions_skipped=(skipped,))
    text = plan.explain()
    assert "1 archived partition (DEEP_ARCHIVE), 3 GiB, skipped, so that rows are missing: 2024-02-01" in text
    assert "1 archived partition (GLACIER), 954 MiB: to be restored first, see 'coldparquet restore'" in text
    data = json.loads(json.dumps(plan.as_dict()))
    assert data["partitions_skipped"] == [
        {"name": "2024-02-01", "storage_class": "DEEP_ARCHIVE", "size_bytes": 3 << 30}
    ]
    assert [(partition["storage_class"], partition["is_archived"]) for partition in data["partitions"]] == [
        ("GLACIER", True),
        (None, False),
    ]


@pytest.mark.parametrize(
    ("stages", "concurrency", "expected_s"),
    [
        ([], 4, 0),
        ([[]], 4, 0),
        ([[100]], 4, 2),
        ([[100, 100, 100, 100]], 4, 2),
        ([[100, 100, 100, 100]], 2, 4),
        ([[300, 0, 0, 0]], 2, 4),
        ([[100], [0, 200]], 4, 2 + 3),
    ],
)
def test_seconds(stages: list[list[int]], concurrency: int, expected_s: float) -> None:
    speed = StoreSpeed(connections=concurrency, first_byte_s=1, connection_bytes_per_s=100)
    assert estimate_seconds(stages, speed=speed) == pytest.approx(expected_s)
