"""Enforces the budget: refuses a plan that costs too much before a byte of data is fetched, and says what would fit."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from coldparquet.errors import BudgetExceededError, InvalidInputError
from coldparquet.options import COALESCING_BY_GOAL
from coldparquet.plan.coalescing import by_goal, widened
from coldparquet.plan.cost import (
    ClassReads,
    Dollars,
    archived_reads,
    dollars_of,
    estimate_seconds,
    plan_seconds,
    prices_of,
    reads_by_class,
    restore_offers_of,
)
from coldparquet.plan.requests import ReadRanges
from coldparquet.prices import STANDARD
from coldparquet.records import replace
from coldparquet.text import human_bytes, human_dollars, plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from coldparquet.options import Goal, ReadOptions
    from coldparquet.plan.model import Read, ReadPlan
    from coldparquet.prices import RestoreTier


class GoalCost(Struct, frozen=True, kw_only=True):
    """Requests, bytes, time and price of fetching a plan's rows with one goal."""

    goal: Goal
    request_count: int
    bytes_fetched: int
    round_trips: int
    seconds: float
    dollars: Dollars


def compare_goals(plan: ReadPlan) -> tuple[GoalCost, ...]:
    """Estimate what each goal would make of the row groups and pages of a plan.

    Each goal gets its own gap and lengths; those that the options state apply to the plan's goal. Which bloom filters
    and pages are used also depends on the goal, but is left as planned. Only ``few-requests`` never reads in two
    stages.
    """
    others = replace(plan.options, coalesce_gap_bytes=None, max_request_bytes=None)
    costs = [
        _as_planned(plan) if goal == plan.options.goal else _cost(plan, replace(others, goal=goal))
        for goal in COALESCING_BY_GOAL
    ]
    return tuple(cost for cost in costs if cost is not None)


def _as_planned(plan: ReadPlan) -> GoalCost:
    return GoalCost(
        goal=plan.options.goal,
        request_count=plan.request_count,
        bytes_fetched=plan.bytes_fetched,
        round_trips=plan.round_trips,
        seconds=plan_seconds(plan),
        dollars=dollars_of(reads_by_class(plan), prices_of(plan.options)),
    )


def _cost(plan: ReadPlan, options: ReadOptions) -> GoalCost | None:
    lengths: dict[int, list[npt.NDArray[np.int64]]] = {}
    found_by_class: list[ClassReads] = []
    wanted_bytes = plan.bytes_wanted
    for storage_class, reads in _by_class(plan):
        coalescing = by_goal(options, plan.speed, storage_class)
        of_class = [np.empty(0, np.int64)]
        for stage, ranges in _stages(reads, options.goal):
            if ranges is None:
                return None
            chosen = coalescing
            if stage == 1:
                chosen = widened(coalescing, ranges, wanted_bytes=wanted_bytes, options=options, speed=plan.speed)
            part_bytes = chosen.part_bytes(wanted_bytes, plan.speed.connections)
            of_class.append(ranges.request_lengths(chosen, part_bytes=part_bytes))
            lengths.setdefault(stage, []).append(of_class[-1])
        of_all_stages = np.concatenate(of_class)
        found_by_class.append(
            ClassReads(
                storage_class=storage_class,
                request_count=len(of_all_stages),
                fetched_bytes=int(of_all_stages.sum()),
            )
        )
    stages = [lengths_bytes for of_stage in lengths.values() if (lengths_bytes := np.concatenate(of_stage).tolist())]
    return GoalCost(
        goal=options.goal,
        request_count=sum(found.request_count for found in found_by_class),
        bytes_fetched=sum(found.fetched_bytes for found in found_by_class),
        round_trips=len(stages),
        seconds=estimate_seconds(stages, speed=plan.speed),
        dollars=dollars_of(found_by_class, prices_of(options)),
    )


def _by_class(plan: ReadPlan) -> list[tuple[str, list[Read]]]:
    """Group the reads by the storage class of their partition; those of a partition stay together."""
    by_class: dict[str, list[Read]] = {}
    for index, reads in groupby(plan.row_groups, key=lambda read: read.partition_index):
        by_class.setdefault(plan.partitions[index].storage_class or STANDARD, []).extend(reads)
    return list(by_class.items())


def _stages(reads: Sequence[Read], goal: Goal) -> list[tuple[int, ReadRanges | None]]:
    """Return what is fetched in each stage. With few requests as goal, deferred columns join the others."""
    deferred = [read.deferred for read in reads if read.deferred is not None]
    if goal != "few-requests":
        return [(1, ReadRanges.of(reads)), (2, ReadRanges.of_each(deferred))]
    with_deferred: list[Read] = []
    for read in reads:
        with_deferred.append(read)
        if read.deferred is not None:
            with_deferred.append(read.deferred)
    return [(1, ReadRanges.of(with_deferred))]


_ROUNDING = 1e-9
"""Relative tolerance when comparing sums of money: the order of addition changes them."""


class Spending(Struct, frozen=True, kw_only=True):
    """The total cost of requests for data."""

    request_count: int = 0
    fetched_bytes: int = 0
    dollars: float = 0.0

    def __add__(self, other: Spending) -> Spending:
        return Spending(
            request_count=self.request_count + other.request_count,
            fetched_bytes=self.fetched_bytes + other.fetched_bytes,
            dollars=self.dollars + other.dollars,
        )

    def __str__(self) -> str:
        requests = plural(self.request_count, "request")
        return f"{requests}, {human_bytes(self.fetched_bytes)} and {human_dollars(self.dollars)}"

    def breaches(self, options: ReadOptions) -> list[str]:
        """Return the limits of the options that this exceeds, as text."""
        breaches = []
        if options.max_requests is not None and self.request_count > options.max_requests:
            breaches.append(f"max_requests is {options.max_requests:,}")
        if options.max_bytes is not None and self.fetched_bytes > options.max_bytes:
            breaches.append(f"max_bytes is {options.max_bytes:,} ({human_bytes(options.max_bytes)})")
        if options.max_usd is not None and self.dollars > options.max_usd * (1 + _ROUNDING):
            breaches.append(f"max_usd is {human_dollars(options.max_usd)}")
        return breaches


class RestoreCost(Struct, frozen=True, kw_only=True):
    """The cost of restoring archived objects before they are read."""

    object_count: int
    tier: RestoreTier
    dollars: float | None
    """None if no price is known."""

    def spending(self, options: ReadOptions, *, table: str) -> Spending:
        """Return what the restores add to the data requests; they are not data requests themselves."""
        if options.max_usd is not None and self.dollars is None:
            raise InvalidInputError(
                f"max_usd cannot be kept: no price is known for restoring {plural(self.object_count, 'object')} in tier"
                f" {self.tier}; give ReadOptions.prices a table that has one (PriceTable.read), or leave max_usd out",
                kind="UnknownRestorePrice",
                path=table,
            )
        return Spending(dollars=self.dollars or 0.0)

    def __str__(self) -> str:
        price = "" if self.dollars is None else f" for {human_dollars(self.dollars)}"
        return f"a restore of {plural(self.object_count, 'object')} in tier {self.tier}{price}"


def planned_spending(plan: ReadPlan) -> Spending:
    """Sum the cost of a plan's data requests, each sent once."""
    options = plan.options
    dollars = dollars_of(reads_by_class(plan), prices_of(options))
    if options.max_usd is not None and dollars.unpriced_classes:
        raise InvalidInputError(
            f"max_usd cannot be kept: no price is known for storage class {', '.join(dollars.unpriced_classes)}; give"
            " ReadOptions.prices a table that has one (PriceTable.read), or leave max_usd out",
            kind="UnknownStorageClass",
            path=plan.table,
        )
    return Spending(request_count=plan.request_count, fetched_bytes=plan.bytes_fetched, dollars=dollars.amount)


def planned_restores(plan: ReadPlan) -> RestoreCost | None:
    """Price the restores that a plan needs. None if it needs none: they are not wanted, or already in progress."""
    object_count = sum(not partition.is_being_restored for partition in archived_reads(plan))
    if plan.options.archived != "restore" or not object_count:
        return None
    tier = plan.options.restore.tier
    dollars = next((offer.dollars for offer in restore_offers_of(plan) or () if offer.tier == tier), None)
    return RestoreCost(object_count=object_count, tier=tier, dollars=dollars)


def exceeded_limits(plan: ReadPlan) -> list[str]:
    """Return the limits that the execution of a plan would exceed, as text."""
    if not has_budget(plan.options):
        return []
    restores = planned_restores(plan)
    return (planned_spending(plan) + _restoring(plan, restores)).breaches(plan.options)


def has_budget(options: ReadOptions) -> bool:
    """Tell whether any limit is set."""
    return options.max_bytes is not None or options.max_requests is not None or options.max_usd is not None


class Budget:
    """The budget of all plans of one answer: rows may be searched in several waves, each with its own plan."""

    def __init__(self) -> None:
        self._spent = Spending()

    def admit(self, plan: ReadPlan, *, restores: RestoreCost | None = None) -> None:
        """Admit a plan, and count its cost."""
        if not has_budget(plan.options):
            return
        planned = planned_spending(plan)
        total = self._spent + planned + _restoring(plan, restores)
        breaches = total.breaches(plan.options)
        if breaches:
            raise _exceeded(plan, planned, self._spent, breaches, restores)
        self._spent = total

    def admit_restores(self, restores: RestoreCost, options: ReadOptions, *, table: str) -> None:
        """Admit restores that planning itself needs, and count their cost."""
        total = self._spent + restores.spending(options, table=table)
        breaches = total.breaches(options)
        if breaches:
            before = f", after {self._spent} for the same answer" if self._spent.request_count else ""
            raise BudgetExceededError(
                f"planning takes {restores}{before}, but {' and '.join(breaches)}; no restore was asked"
                f" for. {_FEWER_RESTORES}",
                path=table,
                restore_usd=restores.dollars,
                spent_usd=self._spent.dollars,
                max_usd=options.max_usd,
            )
        self._spent = total


_FEWER_RESTORES = "Narrow the time range, restore in a cheaper tier (RestoreTerms.tier), or raise the limit"


def _restoring(plan: ReadPlan, restores: RestoreCost | None) -> Spending:
    return Spending() if restores is None else restores.spending(plan.options, table=plan.table)


def _exceeded(
    plan: ReadPlan, planned: Spending, spent: Spending, breaches: list[str], restores: RestoreCost | None
) -> BudgetExceededError:
    options = plan.options
    restoring = _restoring(plan, restores)
    what_first = "" if restores is None else f" and {restores}"
    before = f", after {spent} for the same answer" if spent.request_count else ""
    return BudgetExceededError(
        f"the plan takes {planned}{what_first}{before}, but {' and '.join(breaches)}; nothing of it was fetched"
        f"{'' if restores is None else ', and no restore asked for'}."
        f" {what_would_fit(plan, spent, restores=restores)}",
        path=plan.table,
        planned_requests=planned.request_count,
        planned_bytes=planned.fetched_bytes,
        planned_usd=planned.dollars,
        restore_usd=restoring.dollars,
        spent_requests=spent.request_count,
        spent_bytes=spent.fetched_bytes,
        spent_usd=spent.dollars,
        max_requests=options.max_requests,
        max_bytes=options.max_bytes,
        max_usd=options.max_usd,
        goal=options.goal,
        fitting_goals=list(_fitting_goals(plan, spent + restoring)),
    )


def what_would_fit(plan: ReadPlan, spent: Spending, *, restores: RestoreCost | None) -> str:
    """Say how to ask for less, or differently."""
    spent += _restoring(plan, restores)
    if restores is not None and spent.breaches(plan.options):
        return _FEWER_RESTORES
    goals = _fitting_goals(plan, spent)
    if goals:
        first, *others = [f"goal {goal!r} would fit with {cost}" for goal, cost in goals.items()]
        return "; ".join([first[0].upper() + first[1:], *others])
    count = _fitting_partitions(plan, spent)
    if count:
        first, last = plan.partitions[0].name, plan.partitions[count - 1].name
        fitting = f"first would fit, {first}" if count == 1 else f"first {count:,} would fit, {first} to {last}"
        return f"Of {len(plan.partitions):,} partitions the {fitting}: narrow the time range"
    return "Ask for fewer columns or a narrower condition, or raise the limit"


def _fitting_goals(plan: ReadPlan, spent: Spending) -> dict[str, Spending]:
    found: dict[str, Spending] = {}
    for cost in compare_goals(plan):
        spending = Spending(
            request_count=cost.request_count, fetched_bytes=cost.bytes_fetched, dollars=cost.dollars.amount
        )
        if cost.goal != plan.options.goal and not (spent + spending).breaches(plan.options):
            found[cost.goal] = spending
    return found


def _fitting_partitions(plan: ReadPlan, spent: Spending) -> int:
    """Count the first partitions that together stay within the limits, if any of their data is read."""
    prices = prices_of(plan.options)
    total, fitting, has_data = spent, 0, False
    for index, partition in enumerate(plan.partitions):
        numbers = plan.numbers_of(index)
        dollars = prices.request_dollars(
            "get",
            storage_class=partition.storage_class or STANDARD,
            retrieved_bytes=numbers.bytes_fetched,
            count=numbers.request_count,
        )
        total += Spending(
            request_count=numbers.request_count, fetched_bytes=numbers.bytes_fetched, dollars=dollars or 0.0
        )
        if total.breaches(plan.options):
            break
        fitting, has_data = index + 1, has_data or numbers.request_count > 0
    return fitting if has_data else 0
