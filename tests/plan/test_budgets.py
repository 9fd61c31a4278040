"""Budgets: what is refused, what is said of it, and what several plans spend together."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest

from coldparquet.errors import BudgetExceededError, InvalidInputError
from coldparquet.options import ReadOptions
from coldparquet.plan.budget import Budget
from tests.support.plan_pieces import plan_of, read_of

if TYPE_CHECKING:
    from coldparquet.plan.model import ReadPlan

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
