"""Questions about tables of which some partitions lie in an archive: exact requests, errors, restores, what is left out."""

from __future__ import annotations

import asyncio
import json
import pickle
import re
from collections.abc import Awaitable
from pathlib import Path

import pytest

import coldparquet as cp
from coldparquet.archive.restore import RestoreTicket
from coldparquet.errors import (
    AccessError,
    ArchivedObjectError,
    BudgetExceededError,
    InvalidInputError,
    ObjectChangedError,
)
from coldparquet.maintenance.migrate import migrate_table
from coldparquet.prices import PriceTable
from coldparquet.records import replace
from coldparquet.storage.requests import FetchedRange, ObjectInfo, RangeRequest
from coldparquet.table import Table
from tests.support.archive_store import (
    DAYS,
    ROWS,
    ArchiveStore,
    data_path,
    fill,
    make_day,
    make_store,
    opened,
)
from tests.support.small_tables import FIRST_DAY_US
from tests.support.table_copies import copy_table


def data_log(table: Table) -> list[str]:
    """What was asked of data objects, in order."""
    return [
        f"{record.operation} {record.path.split('/')[1]}"
        for record in table.request_log
        if record.path.endswith("data.parquet")
    ]


async def test_each_surviving_partition_is_looked_at_once_beside_its_sidecar() -> None:
    async with opened(await make_store()) as table:
        scan = table.scan(["price"], "ts >= '2024-03-03'")
        plan = await scan.plan()
        assert data_log(table) == ["info 2024-03-03.1", "info 2024-03-04.1"]
        assert [read.storage_class for read in plan.partitions] == ["STANDARD", "STANDARD"]
        looks = [request for request in plan.metadata_requests if request.operation == "info"]
        assert [request.path for request in looks] == [data_path(DAYS[2]), data_path(DAYS[3])]
        assert (await scan.to_arrow()).num_rows == 2 * ROWS
        await table.scan(["day"], "ts >= '2024-03-04'").to_arrow()
        assert data_log(table).count("info 2024-03-04.1") == 1, "it was seen already"


class MeetingStore(ArchiveStore):
    """Answers neither sidecars nor looks before both were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.begin()
        self.asked["get"].set()
        self.asked["info"].set()

    def begin(self) -> None:
        self.asked = {"get": asyncio.Event(), "info": asyncio.Event()}

    async def get(self, request: RangeRequest) -> FetchedRange:
        if request.path.endswith("2024-03-01.1/_pm"):
            self.asked["get"].set()
            await asyncio.wait_for(self.asked["info"].wait(), timeout=60)
        return await super().get(request)

    async def info(self, path: str) -> ObjectInfo:
        self.asked["info"].set()
        await asyncio.wait_for(self.asked["get"].wait(), timeout=60)
        return await super().info(path)


async def test_looks_are_in_the_same_round_trip_as_the_sidecars() -> None:
    store = MeetingStore()
    await fill(store)
    async with opened(store, page_index="never") as table:
        store.begin()
        assert (await table.scan(["price"]).to_arrow()).num_rows == 4 * ROWS


async def test_metadata_answers_look_at_nothing_and_need_no_restore() -> None:
    async with opened(await make_store(*DAYS)) as table:
        scan = table.scan()
        assert await scan.count() == 4 * ROWS
        assert (await scan.min("day"), await scan.max("day")) == (0, 3)
        assert await scan.null_count("price") == 0
        assert (await scan.first_timestamp()).timestamp() * 1e6 == FIRST_DAY_US
        assert await scan.any()
        assert data_log(table) == []


async def test_a_count_that_goes_on_to_read_looks_first_and_only_where_it_reads() -> None:
    async with opened(await make_store(DAYS[2])) as table:
        assert await table.scan(where="ts < '2024-03-02T00:01'").count() == ROWS + 2
        assert data_log(table) == ["info 2024-03-02.1", "get 2024-03-02.1"]
        with pytest.raises(ArchivedObjectError, match=r"1 partition \(2024-03-03\.1\) lies in GLACIER"):
            await table.scan(where="ts < '2024-03-03T00:01'").count()
        assert "get 2024-03-03.1" not in data_log(table)


async def test_stores_without_classes_and_the_switch_ask_nothing() -> None:
    store = await make_store()
    async with opened(store, check_storage_classes=False) as table:
        plan = await table.scan(["price"]).plan()
        assert [read.storage_class for read in plan.partitions] == [None] * 4
        assert data_log(table) == []


@pytest.mark.parametrize("storage_class", ["GLACIER_IR", "STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING"])
async def test_classes_that_need_no_restore_are_read(storage_class: str) -> None:
    async with opened(await make_store(*DAYS, storage_class=storage_class)) as table:
        scan = table.scan(["price"])
        assert (await scan.to_arrow()).num_rows == 4 * ROWS
        assert {read.storage_class for read in (await scan.plan()).partitions} == {storage_class}
        assert not await scan.archived()


async def test_one_error_lists_everything_before_any_data_is_fetched() -> None:
    store = await make_store(DAYS[0], DAYS[2])
    store.archive(data_path(DAYS[1]), storage_class="DEEP_ARCHIVE")
    async with opened(store) as table:
        scan = table.scan(["price"], "ts < '2024-03-04'")
        plan = await scan.plan()  # for which nothing has to be restored
        assert [read.is_archived for read in plan.partitions] == [True, True, True]
        with pytest.raises(ArchivedObjectError) as caught:
            await scan.to_arrow()
        assert not [line for line in data_log(table) if line.startswith("get")]
    error = caught.value
    size = sum(len(make_day(day)) for day in range(3))
    assert error.kind == "ObjectArchived"
    assert error.details["partitions"] == DAYS[:3]
    assert error.details["archived_bytes"] == size
    assert error.details["storage_classes"] == ["DEEP_ARCHIVE", "GLACIER"]
    assert [offer.tier for offer in error.details["tiers"]] == ["Standard", "Bulk"], "DEEP_ARCHIVE knows no Expedited"
    message = str(error)
    assert message.startswith(
        "trades: 3 partitions (2024-03-01.1, 2024-03-02.1, 2024-03-03.1) lie in DEEP_ARCHIVE and GLACIER"
    )
    assert "Standard: 9 to 12 hours, $" in message
    assert "coldparquet restore trades --where" in message
    assert pickle.loads(pickle.dumps(error)).details == error.details  # noqa: S301 - our own
    assert json.loads(json.dumps(error.as_dict()))["tiers"][0]["tier"] == "Standard"


async def test_partitions_whose_row_groups_are_pruned_matter_to_nobody() -> None:
    async with opened(await make_store(DAYS[0], DAYS[1])) as table:
        rows = await table.scan(["price", "day"], "day = 2").to_arrow()
        assert rows.num_rows == ROWS


async def test_tail_and_latest_rows_need_only_their_own_partitions() -> None:
    async with opened(await make_store(DAYS[0], DAYS[1])) as table:
        assert (await table.scan(["day"]).tail(5))["day"].to_pylist() == [3] * 5
        assert (await table.scan(["day"]).top_k(3))["day"].to_pylist() == [3] * 3
        assert (await table.scan(["ts", "day"], "day > 1").latest_by("day")).num_rows == 2
        with pytest.raises(ArchivedObjectError):
            await table.scan(["price"]).head(1)
        assert (await table.scan(["day"]).head(1))["day"].to_pylist() == [0], "the sidecar says that all rows are equal"


async def test_the_advice_is_about_the_question() -> None:
    async with opened(await make_store(*DAYS)) as table:

        async def advice(answer: Awaitable[object]) -> str:
            with pytest.raises(ArchivedObjectError) as caught:
                await answer
            return str(caught.value)

        price = table.scan(["price"])
        last = await advice(price.tail(1))
        assert "1 partition (2024-03-04.1) lies in GLACIER" in last
        assert "before it can be read" in last
        assert "'coldparquet restore trades --all'" in await advice(price.to_arrow())
        of_day = table.scan(["price"], "day = 2").to_arrow()
        assert "'coldparquet restore trades --where \"day = 2\"'" in await advice(of_day)


async def test_skip_leaves_them_out_of_every_answer_and_says_so() -> None:
    async with opened(await make_store(DAYS[1], DAYS[3]), archived="skip") as table:
        scan = table.scan(["day", "price"])
        plan = await scan.plan()
        assert [(left.name, left.storage_class) for left in plan.partitions_skipped] == [
            (DAYS[1], "GLACIER"),
            (DAYS[3], "GLACIER"),
        ]
        assert plan.partitions_skipped[0].size_bytes == len(make_day(1))
        rows = await scan.to_arrow()
        assert set(rows["day"].to_pylist()) == {0, 2}
        assert await scan.count() == rows.num_rows == 2 * ROWS
        assert await scan.max("day") == 2
        assert (await scan.last_timestamp()).day == 3
        assert (await scan.tail(1))["day"].to_pylist() == [2]
        assert (await table.scan(["day"], limit=ROWS + 1).to_arrow())["day"].to_pylist() == [0] * ROWS + [2]
        pruned = await table.scan(["day"], "day = 0").plan()
        assert pruned.partitions_skipped == (), "no row of them could have matched"


async def test_restore_requests_and_hands_over_a_ticket() -> None:
    store = await make_store(DAYS[0], DAYS[1])
    terms = cp.RestoreTerms(tier="Bulk", days=3)
    async with opened(store, archived="restore", restore=terms) as table:
        scan = table.scan(["price"], "ts < '2024-03-04'")
        await scan.plan()
        assert store.restores == [], "planning restores nothing"
        with pytest.raises(ArchivedObjectError) as caught:
            await scan.to_arrow()
        error = caught.value
        assert error.kind == "RestoreRequested"
        assert store.restores == [(data_path(DAYS[0]), 3, "Bulk"), (data_path(DAYS[1]), 3, "Bulk")]
        ticket = error.details["ticket"]
        assert isinstance(ticket, RestoreTicket)
        assert (ticket.paths, ticket.tier, ticket.days) == ((data_path(DAYS[0]), data_path(DAYS[1])), "Bulk", 3)
        assert ticket.expected_ready_at is not None
        assert (ticket.expected_ready_at - ticket.requested_at).total_seconds() >= 3600
        assert RestoreTicket.from_json(json.dumps(error.as_dict()["ticket"])) == ticket
        await ticket.wait(store=store, first_pause_s=0.001)
        assert (await scan.to_arrow()).num_rows == 3 * ROWS, "the same scan sees that they can be read now"
        assert len(store.restores) == 2


async def test_restore_and_wait_reads_on(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("coldparquet.scan.admission.FIRST_PAUSE_S", 0.001)
    caplog.set_level("INFO", logger="coldparquet")
    store = await make_store(DAYS[0], looks_until_restored=3)
    terms = cp.RestoreTerms(tier="Expedited", wait=True)
    async with opened(store, archived="restore", restore=terms) as table:
        rows = await table.scan(["price"], "ts < '2024-03-03'").to_arrow()
        assert rows.num_rows == 2 * ROWS
        assert store.restores == [(data_path(DAYS[0]), 1, "Expedited")]
        assert "trades: 0 of 1 archived objects can be read after" in caplog.messages[0]
        assert "; the next look is in" in caplog.messages[0]
        assert "trades: 1 of 1 archived objects" in caplog.messages[-1]
        assert "next look" not in caplog.messages[-1]
        looks = len(data_log(table))
        assert (await table.scan(["ts"], "ts < '2024-03-02'").to_arrow()).num_rows == ROWS
        assert data_log(table)[looks:] == ["get 2024-03-01.1"], "a restored copy was seen, and is not asked for again"


async def test_without_a_sidecar_the_plan_itself_needs_the_object() -> None:
    store = await make_store(DAYS[1])
    await store.delete([f"trades/{DAYS[1]}/_pm", f"trades/{DAYS[1]}/_pages"])
    async with opened(store) as table:
        with pytest.raises(ArchivedObjectError, match=r"1 partition \(2024-03-02\.1\) lies in GLACIER"):
            await table.scan(["price"]).plan()
        [archived] = await table.scan(["price"]).archived()
        assert archived.path == data_path(DAYS[1])
    async with opened(store, archived="skip") as table:
        rows = await table.scan(["day"]).to_arrow()
        assert set(rows["day"].to_pylist()) == {0, 2, 3}
    terms = cp.RestoreTerms()
    async with opened(store, archived="restore", restore=terms) as table:
        with pytest.raises(ArchivedObjectError) as caught:
            await table.scan(["day"]).to_arrow()
        await caught.value.details["ticket"].wait(store=store, first_pause_s=0.001)
        assert (await table.scan(["day"]).to_arrow()).num_rows == 4 * ROWS


async def test_an_object_that_was_archived_after_the_look_is_the_same_class_of_error() -> None:
    store = await make_store()
    async with opened(store) as table:
        scan = table.scan(["price"])
        await scan.plan()
        store.archive(data_path(DAYS[2]))
        with pytest.raises(ArchivedObjectError, match=r"2024-03-03\.1"):
            await scan.to_arrow()


async def test_a_data_object_that_is_too_small_is_found_by_the_look() -> None:
    store = await make_store()
    await store.put(data_path(DAYS[1]), make_day(1)[:-1], overwrite=True)
    async with opened(store) as table:
        with pytest.raises(ObjectChangedError, match="but at least"):
            await table.scan(["price"], "day = 9").plan()
        assert not [line for line in data_log(table) if line.startswith("get")]


async def test_a_data_object_that_is_replaced_after_the_look_is_never_mixed() -> None:
    store = await make_store()
    async with opened(store) as table:
        scan = table.scan(["price"])
        await scan.plan()
        await store.put(data_path(DAYS[1]), make_day(1) + b"more", overwrite=True)
        with pytest.raises(ObjectChangedError):
            await scan.to_arrow()


async def test_questions_at_the_same_time_share_one_look() -> None:
    async with opened(await make_store()) as table:
        scans = [table.scan([name], "ts >= '2024-03-04'") for name in ("price", "ts")]
        await asyncio.gather(*(scan.to_arrow() for scan in scans))
        assert data_log(table).count("info 2024-03-04.1") == 1


class SecretiveStore(ArchiveStore):
    """Refuses looks at objects."""

    async def info(self, path: str) -> ObjectInfo:
        if self.is_secretive and path.endswith("data.parquet"):
            raise AccessError("no", path=path)
        return await super().info(path)

    is_secretive = False


async def test_who_may_not_look_can_still_read() -> None:
    store = SecretiveStore()
    await fill(store)
    store.is_secretive = True
    async with opened(store) as table:
        scan = table.scan(["price"])
        assert (await scan.to_arrow()).num_rows == 4 * ROWS
        assert [read.storage_class for read in (await scan.plan()).partitions] == [None] * 4
        store.archive(data_path(DAYS[1]))
        with pytest.raises(ArchivedObjectError):
            await table.scan(["ts", "price"]).to_arrow()


async def test_a_partition_that_is_gone_is_told_as_ever() -> None:
    store = await make_store()
    async with opened(store) as table:
        await store.delete([data_path(DAYS[0])])
        with pytest.raises(cp.errors.NotFoundError) as caught:
            await table.scan(["price"]).to_arrow()
        assert caught.value.kind == "PartitionMissing"


async def test_what_did_not_change_is_not_looked_at_again_after_a_refresh(tmp_path: Path) -> None:
    copied = copy_table("interval_day", tmp_path)
    await migrate_table(copied)
    store = ArchiveStore()
    for file in sorted(path for path in copied.rglob("*") if path.is_file()):
        await store.put(f"t/{file.relative_to(copied)}", file.read_bytes(), overwrite=False)
    async with cp.open_table("t", store=store) as table:
        rows = await table.scan().to_arrow()
        looks = [line for line in data_log(table) if line.startswith("info")]
        assert len(looks) == len([partition for partition in table.partitions if partition.format == "parquet"])
        await table.refresh()
        assert (await table.scan().to_arrow()).equals(rows)
        assert [line for line in data_log(table) if line.startswith("info")] == looks


# --- What restoring archived partitions costs, within what a question may cost ----------------------------------------


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


async def test_where_nothing_is_restored_that_costs_nothing() -> None:
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
