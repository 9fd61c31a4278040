"""Tickets: what they say, that they survive a file, that damaged ones are refused, and waiting on them."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import coldparquet as cp
from coldparquet.archive.objects import ArchivedObject, needs_restore, restore_offers
from coldparquet.archive.restore import RestoreProgress, RestoreTicket, request_restores
from coldparquet.errors import AccessError, ArchivedObjectError, InvalidInputError, NotFoundError, UnsupportedError
from coldparquet.maintenance.index import index_table
from coldparquet.options import RestoreTerms
from coldparquet.plan.cost import describe_offer
from coldparquet.prices import PriceTable, RestoreTier
from coldparquet.records import replace
from coldparquet.storage.requests import ObjectInfo, RestoreState
from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreServer
from tests.support.archive_store import ArchiveStore
from tests.support.questdb_tables import copy_parquet_partitions

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
TICKET = RestoreTicket(
    url="s3://bucket/trades",
    paths=("bucket/trades/a", "bucket/trades/b"),
    tier="Bulk",
    days=2,
    requested_at=NOW,
    expected_ready_at=NOW + timedelta(hours=8),
    dollars=0.25,
)


def archived(path: str, storage_class: str = "GLACIER", *, gigabytes: int = 1, **more: Any) -> ArchivedObject:
    facts = {"archive_status": None, "is_being_restored": False, **more}
    return ArchivedObject(partition=path, path=path, size_bytes=gigabytes * 10**9, storage_class=storage_class, **facts)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"storage_class": "GLACIER"}, True),
        ({"storage_class": "DEEP_ARCHIVE"}, True),
        ({"storage_class": "GLACIER", "restore": RestoreState(is_ongoing=True)}, True),
        ({"storage_class": "GLACIER", "restore": RestoreState(is_ongoing=False, expires_s=2e9)}, False),
        ({"storage_class": "INTELLIGENT_TIERING"}, False),
        ({"storage_class": "INTELLIGENT_TIERING", "archive_status": "ARCHIVE_ACCESS"}, True),
        ({"storage_class": "INTELLIGENT_TIERING", "archive_status": "DEEP_ARCHIVE_ACCESS"}, True),
        ({"storage_class": "GLACIER_IR"}, False),
        ({"storage_class": "ONEZONE_IA"}, False),
        ({"storage_class": None}, False),
    ],
)
def test_which_objects_need_a_restore(facts: dict[str, Any], expected: bool) -> None:
    assert needs_restore(ObjectInfo(path="a", size_bytes=1, etag=None, **facts)) is expected


def test_a_ticket_survives_a_file() -> None:
    assert RestoreTicket.from_json(TICKET.to_json()) == TICKET
    unknown = RestoreTicket.from_json(json.dumps({**TICKET.as_dict(), "expected_ready_at": None, "dollars": None}))
    assert (unknown.expected_ready_at, unknown.dollars) == (None, None)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("coldparquet_restore_ticket", 2),
        ("coldparquet_restore_ticket", True),
        ("url", None),
        ("paths", "bucket/a"),
        ("paths", [1]),
        ("tier", "bulk"),
        ("days", 0),
        ("days", "1"),
        ("dollars", "1"),
        ("requested_at", None),
        ("requested_at", "yesterday"),
        ("requested_at", "2026-11-21T12:00:00"),
        ("expected_ready_at", 7),
        ("expected_ready_at", "9999-12-31T23:59:59+00:00"),
        ("url", ""),
        ("url", "s3://bucket/\ud800"),
        ("paths", []),
        ("paths", ["bucket/a", ""]),
        ("paths", ["bucket/trades/../../a"]),
        ("paths", ["bucket/trades/a", "bucket/trades-of-others/a"]),
        ("paths", ["others/trades/a"]),
        ("paths", ["/etc/passwd"]),
        ("url", "ftp://127.0.0.1/bucket/trades"),
        ("url", "https://127.0.0.1/bucket/trades"),
        ("url", "file:///bucket/trades"),
        ("url", "simplecache::s3://bucket/trades"),
        ("paths", ["bucket/\0"]),
        ("tier", []),
        ("days", True),
        ("days", 10**12),
        ("dollars", True),
        ("dollars", -1),
        ("dollars", float("inf")),
        ("dollars", float("nan")),
        ("dollars", 10**400),
    ],
)
def test_a_ticket_with_a_wrong_field_is_refused(field: str, value: object) -> None:
    with pytest.raises(InvalidInputError, match="no restore ticket") as caught:
        RestoreTicket.from_json(json.dumps({**TICKET.as_dict(), field: value}))
    assert (caught.value.kind, caught.value.details["field"]) == ("NoTicket", field)


@pytest.mark.parametrize(
    ("url", "paths"),
    [
        ("s3a://bucket", ("bucket/a",)),
        ("s3://bucket/trades/", ("bucket/trades/a",)),
        ("s3://bucket/a.parquet?versionId=v1", ("bucket/a.parquet",)),
        ("db/trades", ("db/trades/a",)),  # in a store of the caller's own
    ],
)
def test_a_ticket_of_any_table_is_read(url: str, paths: tuple[str, ...]) -> None:
    ticket = replace(TICKET, url=url, paths=paths)
    assert RestoreTicket.from_json(ticket.to_json()) == ticket


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("ftp://127.0.0.1:1/trades", "trades/a"),
        ("https://127.0.0.1:1/trades", "trades/a"),
        ("/trades", "/trades/a"),
        ("s3://bucket/trades", "bucket/others/a"),
    ],
)
async def test_nothing_is_asked_for_a_ticket_that_was_made_up(
    url: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("a store was opened")

    monkeypatch.setattr("coldparquet.storage.open.open_store", never)
    with pytest.raises(InvalidInputError, match="no restore ticket") as caught:
        await replace(TICKET, url=url, paths=(path,)).wait()
    assert caught.value.kind == "NoTicket"


@given(
    st.binary(max_size=40) | st.text(max_size=40) | st.recursive(st.none() | st.integers(), st.lists).map(json.dumps)
)
def test_any_other_text_is_refused(text: str | bytes) -> None:
    with pytest.raises(InvalidInputError, match="no restore ticket"):
        RestoreTicket.from_json(text)


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="it is no JSON") as caught:
        RestoreTicket.from_json("[" * 100_000)
    assert caught.value.__context__ is None


def test_offers_add_up_over_classes_and_leave_out_what_is_under_way() -> None:
    prices = PriceTable.default()
    both = [archived("a"), archived("b", "DEEP_ARCHIVE", gigabytes=2), archived("c", is_being_restored=True)]
    standard, bulk = restore_offers(both, days=1, prices=prices)
    assert (standard.tier, bulk.tier) == ("Standard", "Bulk")
    assert standard.dollars == pytest.approx(
        prices.restore_dollars("GLACIER", "Standard", object_count=1, object_bytes=10**9, days=1)
        + prices.restore_dollars("DEEP_ARCHIVE", "Standard", object_count=1, object_bytes=2 * 10**9, days=1)
    )
    assert standard.hours_most == prices.restore_price("DEEP_ARCHIVE", "Standard").hours_most
    expedited, *_ = restore_offers([archived("a")], days=1, prices=prices)
    assert describe_offer(expedited).startswith("Expedited: 3 to 5 minutes, $0.04")
    in_tier = archived("a", "INTELLIGENT_TIERING", archive_status="DEEP_ARCHIVE_ACCESS")
    in_tiers = restore_offers([in_tier], days=30, prices=prices)
    assert [(offer.tier, offer.dollars) for offer in in_tiers] == [("Standard", 0), ("Bulk", 0)]
    assert restore_offers([archived("a", "UNHEARD_OF")], days=1, prices=prices) == ()


async def store_with(*paths: str, storage_class: str = "GLACIER", looks_until_restored: int = 1) -> ArchiveStore:
    store = ArchiveStore(looks_until_restored=looks_until_restored)
    for path in paths:
        await store.put(path, b"data", overwrite=False)
    store.archive(*paths, storage_class=storage_class)
    return store


async def ask(store: ArchiveStore, *objects: ArchivedObject, tier: RestoreTier = "Standard") -> RestoreTicket:
    terms = RestoreTerms(tier=tier, days=5)
    return await request_restores(store, objects, terms, url="", prices=PriceTable.default())


async def test_only_what_is_not_under_way_is_asked_for() -> None:
    store = await store_with("a", "b")
    ticket = await ask(store, archived("a"), archived("b", is_being_restored=True))
    assert store.restores == [("a", 5, "Standard")]
    assert ticket.paths == ("a", "b")


async def test_intelligent_tiering_takes_no_days() -> None:
    store = await store_with("a", storage_class="INTELLIGENT_TIERING ARCHIVE_ACCESS")
    await ask(store, archived("a", "INTELLIGENT_TIERING", archive_status="ARCHIVE_ACCESS"))
    assert store.restores == [("a", 0, "Standard")]


async def test_a_tier_that_does_not_exist_is_refused_before_anything_is_asked_for() -> None:
    store = await store_with("a", "b")
    with pytest.raises(UnsupportedError, match="DEEP_ARCHIVE is not restored in tier Expedited") as caught:
        await ask(store, archived("a"), archived("b", "DEEP_ARCHIVE"), tier="Expedited")
    assert caught.value.kind == "NoSuchTier"
    assert store.restores == []


async def test_what_another_process_has_restored_meanwhile_is_fine() -> None:
    store = await store_with("a", looks_until_restored=0)
    await ask(store, archived("a"))
    await ask(store, archived("a"))
    assert len(store.restores) == 1


class ForgetfulStore(ArchiveStore):
    """Refuses the restore of one object."""

    async def restore(self, path: str, *, days: int, tier: RestoreTier) -> None:
        if path == "b":
            raise AccessError("no", path=path)
        await super().restore(path, days=days, tier=tier)


async def test_one_refusal_does_not_stop_the_others_and_is_raised() -> None:
    store = ForgetfulStore()
    for path in "abc":
        await store.put(path, b"data", overwrite=False)
    store.archive("a", "b", "c")
    with pytest.raises(AccessError):
        await ask(store, archived("a"), archived("b"), archived("c"))
    assert [path for path, _, _ in store.restores] == ["a", "c"]


async def test_waiting_tells_how_far_it_is_and_looks_only_at_what_is_missing() -> None:
    store = await store_with("a", "b", looks_until_restored=2)
    ticket = await ask(store, archived("a"), archived("b"))
    await store.info("a")  # so that it is ready earlier
    told: list[RestoreProgress] = []
    await ticket.wait(store=store, first_pause_s=0.001, on_progress=told.append)
    assert [(state.ready_objects, state.total_objects) for state in told] == [(0, 2), (1, 2), (2, 2)]
    assert told[-1].pause_s == 0
    assert told[1].pause_s == pytest.approx(0.0015)


async def test_waiting_ends_when_time_is_up() -> None:
    store = await store_with("a", looks_until_restored=10**6)
    ticket = await ask(store, archived("a"))
    assert 3_600 < ticket.patience_s < 24 * 3_600
    with pytest.raises(ArchivedObjectError, match="the restore goes on") as caught:
        await ticket.wait(store=store, timeout_s=0.0)
    assert (caught.value.kind, caught.value.details["paths"]) == ("RestoreNotFinished", ["a"])


async def test_waiting_for_a_copy_that_has_expired_does_not_hang() -> None:
    store = await store_with("a", "b")
    ticket = await ask(store, archived("a"), archived("b"))
    store.archive("b")
    with pytest.raises(ArchivedObjectError, match="no restore of 1 object is under way: b") as caught:
        await ticket.wait(store=store, first_pause_s=0.001)
    assert caught.value.kind == "RestoreExpired"
    await store.delete(["a"])
    with pytest.raises(NotFoundError):
        await ticket.wait(store=store, first_pause_s=0.001)


# --- The whole life of a restore over S3's protocol, on the simulated store: asked for, ongoing, ready, expired -------


HOUR_S = 3_600.0
URL = "s3://bucket/trades"


@pytest.fixture
async def root(tmp_path: Path) -> Path:
    copied = copy_parquet_partitions("interval_day", tmp_path / "table")
    await index_table(copied, pages=False, pack=False)
    (tmp_path / "root" / "bucket").mkdir(parents=True)
    copied.rename(tmp_path / "root" / "bucket" / "trades")
    return tmp_path / "root"


@pytest.mark.parametrize(
    ("storage_class", "hours", "stays"),
    [("GLACIER", 12, False), ("DEEP_ARCHIVE", 48, False), ("INTELLIGENT_TIERING/ARCHIVE_ACCESS", 12, True)],
)
async def test_the_life_of_a_restore(root: Path, storage_class: str, hours: float, stays: bool) -> None:
    options = ColdStoreOptions(storage_classes={"*/data.parquet": storage_class})
    with ColdStoreServer(root, options) as server:
        async with cp.open_table(URL, storage_options=server.storage_options) as table:
            scan = table.scan(["ts"])
            with pytest.raises(ArchivedObjectError) as refused:
                await scan.to_arrow()
            assert refused.value.details["storage_classes"] == [storage_class.replace("/", " ")]
            ticket = await scan.restore(cp.RestoreTerms(tier="Bulk", days=2))
            assert len(ticket.paths) == len(table.partitions)
            assert all(archived.is_being_restored for archived in await scan.archived())
            with pytest.raises(ArchivedObjectError, match="A restore of all of them is under way"):
                await scan.to_arrow()
            assert not [
                served for served in server.requests if served.method == "GET" and served.path.endswith("data.parquet")
            ]

            waiting = asyncio.create_task(ticket.wait(storage_options=server.storage_options, first_pause_s=0.01))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            server.advance_clock(hours * HOUR_S + 60)
            await waiting
            rows = await scan.to_arrow()
            assert rows.num_rows == await scan.count()

        server.advance_clock(4 * 24 * HOUR_S)
        async with cp.open_table(URL, storage_options=server.storage_options) as table:
            assert bool(await table.scan(["ts"]).archived()) is not stays
            if not stays:
                with pytest.raises(ArchivedObjectError) as expired:
                    await ticket.wait(storage_options=server.storage_options)
                assert expired.value.kind == "RestoreExpired"
