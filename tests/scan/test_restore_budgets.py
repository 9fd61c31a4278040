"""What restoring archived partitions costs, within what a question may cost."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import coldparquet as cp
from coldparquet.errors import ArchivedObjectError, BudgetExceededError, InvalidInputError
from coldparquet.prices import PriceTable
from tests.support.archive_store import DAYS, ROWS, make_store, opened


@pytest.mark.parametrize("limit", [{"max_usd": 0.0}, {"max_usd": 1e-4}, {"max_bytes": 0}, {"max_requests": 0}])
async def test_a_budget_is_checked_before_the_first_restore_and_counts_its_dollars(limit: dict[str, float]) -> None:
    store = await make_store(*DAYS[:2], storage_class="DEEP_ARCHIVE")  # 2 x $0.0001 and the bytes
    async with opened(store, archived="restore", **limit) as table:
        scan = table.scan(["price"])
        for refused in (scan.to_arrow, lambda: scan.head(ROWS + 1), scan.restore):
            with pytest.raises(
                BudgetExceededError, match=r"a restore of 2 objects in tier Standard for \$0\.0002"
            ) as caught:
                await refused()
            assert caught.value.details["restore_usd"] > 2e-4
    assert store.restores == []


async def test_a_restore_within_the_budget_is_asked_for_and_one_of_unknown_price_is_not() -> None:
    store = await make_store(*DAYS[:2])
    async with opened(store, archived="restore", max_usd=0.5, max_requests=10) as table:
        with pytest.raises(ArchivedObjectError, match="was requested"):
            await table.scan(["price"]).to_arrow()
    assert len(store.restores) == 2
    default = PriceTable.default()
    prices = replace(default, classes=tuple(replace(of_class, restores=()) for of_class in default.classes))
    store = await make_store(*DAYS[:2])
    async with opened(store, archived="restore", max_usd=0.5, prices=prices) as table:
        with pytest.raises(InvalidInputError, match="no price is known for restoring 2 objects in tier Standard"):
            await table.scan(["price"]).to_arrow()
    assert store.restores == []


async def test_explain_counts_restores_as_the_reading_does() -> None:
    store = await make_store(*DAYS[:2], storage_class="DEEP_ARCHIVE")
    bulk = cp.RestoreTerms(tier="Bulk")
    async with opened(store, archived="restore", restore=bulk, max_usd=1.0) as table:
        plan = await table.scan(["price"]).plan()
        told = r"budget +within the budget of \$1\.00, with a restore of 2 objects in tier Bulk for \$0\.0000"
        assert re.search(told, plan.explain())
        estimate = plan.as_dict()["estimate"]
    assert estimate["exceeded"] == []
    data_usd, restore_usd = estimate["dollars"], estimate["restore_dollars"]
    assert restore_usd > data_usd > 0
    for max_usd, is_kept in ((restore_usd / 2, False), (restore_usd, False), (restore_usd + data_usd, True)):
        async with opened(store, archived="restore", restore=bulk, max_usd=max_usd) as table:
            scan = table.scan(["price"])
            plan = await scan.plan()
            with pytest.raises(ArchivedObjectError if is_kept else BudgetExceededError):
                await scan.to_arrow()
        assert bool(plan.as_dict()["estimate"]["exceeded"]) is not is_kept
        advises_fewer = "Narrow the time range, restore in a cheaper tier" in plan.explain()
        assert advises_fewer is (max_usd < restore_usd)
    async with opened(store, archived="restore", restore=bulk, max_usd=data_usd) as table:
        plan = await table.scan(["price"]).plan()
    assert re.search(r"budget +within the budget of \$0\.\d+\n", plan.explain()), "both are under way"


async def test_where_nobody_restores_anything_that_costs_nothing() -> None:
    async with opened(await make_store(*DAYS[:2]), max_usd=1e-4) as table:
        estimate = (await table.scan(["price"]).plan()).as_dict()["estimate"]
    assert (estimate["restore_dollars"], estimate["exceeded"]) == (None, [])


async def test_a_budget_covers_the_restores_that_planning_needs() -> None:
    store = await make_store(DAYS[1])
    await store.delete([f"trades/{DAYS[1]}/_pm", f"trades/{DAYS[1]}/_pages"])
    async with opened(store, archived="restore", max_usd=0.0) as table:
        for refused in (table.scan(["price"]).plan, table.scan(["price"]).restore):
            with pytest.raises(BudgetExceededError, match="planning takes a restore of 1 object in tier Standard for"):
                await refused()
    assert store.restores == []
