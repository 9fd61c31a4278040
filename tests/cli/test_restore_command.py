"""``coldparquet restore`` against moto, an S3 server of others that plays GLACIER and restores."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

import coldparquet as cp
from coldparquet.archive.restore import RestoreTicket
from coldparquet.errors import ArchivedObjectError
from coldparquet.maintenance.index import index_table
from tests.support.command_line import CommandResult, Run, plain
from tests.support.questdb_tables import PARTITIONS, copy_parquet_partitions
from tests.support.s3_servers import MOTO_KEYS, boto3_client, moto_server

URL = "s3://bucket/trades"
SECRET = MOTO_KEYS["secret"]
INTERVALS = sorted(
    (partition for partition in PARTITIONS if partition.table == "interval_day"),
    key=lambda partition: partition.directory.name,
)
NAMES = [partition.directory.name for partition in INTERVALS]


class RunAtMoto(Protocol):
    """Runs a command with the flags that lead to moto."""

    def __call__(self, *arguments: str | int | Path) -> CommandResult: ...


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Any]:
    """A client of a bucket whose table lies in GLACIER, but for its sidecars and its newest partition."""
    copied = copy_parquet_partitions("interval_day", tmp_path)
    asyncio.run(index_table(copied, pages=False, pack=False))
    with moto_server() as endpoint_url, boto3_client(endpoint_url) as client:
        client.create_bucket(Bucket="bucket")
        for file in sorted(copied.glob("*/*")):
            is_archived = file.name == "data.parquet" and file.parent.name != NAMES[-1]
            client.put_object(
                Bucket="bucket",
                Key=f"trades/{file.parent.name}/{file.name}",
                Body=file.read_bytes(),
                StorageClass="GLACIER" if is_archived else "STANDARD",
            )
        yield client


@pytest.fixture
def run_at_moto(run: Run, archive: Any) -> RunAtMoto:
    def run_command(*arguments: str | int | Path) -> CommandResult:
        options = [f"--storage-option={key}={value}" for key, value in MOTO_KEYS.items()]
        result = run(*arguments, "--endpoint-url", archive.meta.endpoint_url, *options)
        assert SECRET not in result.stderr.replace("--storage-option", "")
        return result

    return run_command


def restores(archive: Any) -> dict[str, str]:
    heads = {name: archive.head_object(Bucket="bucket", Key=f"trades/{name}/data.parquet") for name in NAMES}
    return {name: head["Restore"] for name, head in heads.items() if "Restore" in head}


def test_a_scan_is_refused_and_says_what_to_do(run_at_moto: RunAtMoto, archive: Any) -> None:
    result = run_at_moto("scan", URL, "--json")
    assert result.exit_code == 7
    error = json.loads(result.stdout)["error"]
    assert (error["kind"], error["partitions"]) == ("ObjectArchived", NAMES[:-1])
    assert {offer["tier"] for offer in error["tiers"]} == {"Expedited", "Standard", "Bulk"}
    assert f"coldparquet restore {URL} --where \"ts < '" in error["message"]
    assert "; --archived skip leaves them out" in error["message"]
    first = json.loads(run_at_moto("scan", URL, "--limit", 1, "--json").stdout)["error"]
    assert first["partitions"] == NAMES[:1]
    assert "--where \"ts < '2024-02-28'\"'" in first["message"], "not the whole table for one row"
    assert run_at_moto("count", URL).exit_code == 0, "metadata answers need no restore"
    assert restores(archive) == {}


def test_a_dry_run_tells_the_price_and_restores_nothing(run_at_moto: RunAtMoto, archive: Any) -> None:
    shown = run_at_moto("restore", URL, "--dry-run", "--days", 7)
    assert shown.exit_code == 0
    assert all(f"{name}  GLACIER" in shown.stdout for name in NAMES[:-1])
    assert NAMES[-1] not in shown.stdout
    assert "to restore for 7 days:" in shown.stdout
    assert "Bulk: 8 to 12 hours, " in shown.stdout
    told = json.loads(run_at_moto("restore", URL, "--dry-run", "--json").stdout)
    assert [each["partition"] for each in told["archived"]] == NAMES[:-1]
    assert len(told["offers"]) == 3
    assert restores(archive) == {}


def test_prices_and_a_limit_of_ones_own(run_at_moto: RunAtMoto, archive: Any, tmp_path: Path) -> None:
    prices = tmp_path / "prices.json"
    bulk = {"million_requests": 5_000_000, "gb": 0, "hours_typical": 1, "hours_most": 2}
    classes = {"GLACIER": {"restores": {"Bulk": bulk}}, "STANDARD": {"gb_month": 0}}
    prices.write_text(json.dumps({"based_on": "default", "name": "ours", "as_of": "2026-11", "classes": classes}))
    usual = json.loads(run_at_moto("restore", URL, "--dry-run", "--json").stdout)["offers"][-1]
    ours = json.loads(run_at_moto("restore", URL, "--dry-run", "--json", "--prices", prices).stdout)["offers"][-1]
    assert usual["dollars"] < ours["dollars"] == pytest.approx(5.0 * len(NAMES[:-1]))

    flags = ("restore", URL, "--all", "--tier", "bulk", "--prices", prices)
    refused = run_at_moto(*flags, "--max-usd", 5 * len(NAMES[:-1]) - 1)
    assert refused.exit_code == 6
    assert "max_usd is $" in plain(refused.stderr)
    assert "restore in a cheaper tier (--tier)" in plain(refused.stderr)
    assert restores(archive) == {}
    assert f"${5 * len(NAMES[:-1])}" in run_at_moto(*flags).stdout
    assert len(restores(archive)) == len(NAMES[:-1])


def test_restore_keep_the_ticket_wait_with_it_and_read(run_at_moto: RunAtMoto, archive: Any, tmp_path: Path) -> None:
    file = tmp_path / "ticket.json"
    where = f"ts < '{NAMES[1].partition('.')[0]}'"
    result = run_at_moto("restore", URL, "--where", where, "--tier", "bulk", "--days", 2, "--ticket", file, "--json")
    assert result.exit_code == 0, result.stdout
    ticket = RestoreTicket.from_json(file.read_text())
    assert (ticket.url, ticket.tier, ticket.days) == (URL, "Bulk", 2)
    assert ticket.paths == (f"bucket/trades/{NAMES[0]}/data.parquet",), "the others hold no such rows"
    assert json.loads(result.stdout)["ticket"] == ticket.as_dict()
    assert SECRET not in file.read_text()
    assert list(restores(archive)) == [NAMES[0]]

    said_twice = run_at_moto("restore", URL, "--ticket", file, "--where", where)
    assert said_twice.exit_code == 2
    assert "leave out --where, --all, --tier and --days" in plain(said_twice.stderr)

    waited = run_at_moto("restore", URL, "--ticket", file, "--wait")
    assert waited.exit_code == 0, waited.stderr
    assert waited.stdout.startswith("1 partition: restore requested (Bulk, 2 days, $")
    assert waited.stdout.endswith("all can be read now\n")
    rows = run_at_moto("scan", URL, "--where", where, "--json")
    assert len(rows.stdout.splitlines()) == INTERVALS[0].row_count

    again = run_at_moto("restore", URL, "--where", where)
    assert again.stdout == "nothing has to be restored\n"
    other = tmp_path / "other.json"
    again = run_at_moto("restore", URL, "--where", where, "--ticket", other)
    assert again.stdout == "nothing has to be restored; no ticket was written\n"
    assert not other.exists()


def test_a_ticket_of_another_table_is_refused(run_at_moto: RunAtMoto, tmp_path: Path) -> None:
    file = tmp_path / "ticket.json"
    assert run_at_moto("restore", URL, "--all", "--ticket", file).exit_code == 0
    result = run_at_moto("restore", "s3://bucket/others", "--ticket", file)
    assert result.exit_code == 1
    assert "is of s3://bucket/trades, not of s3://bucket/others" in result.stderr


def test_a_ticket_that_cannot_be_kept_costs_nothing(run_at_moto: RunAtMoto, archive: Any, tmp_path: Path) -> None:
    result = run_at_moto("restore", URL, "--all", "--ticket", tmp_path / "missing" / "ticket.json")
    assert result.exit_code == 1
    assert restores(archive) == {}


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--all", "--tier", "overnight"], "use one of Expedited, Standard, Bulk"),
        ([], "say what is to be restored: --where CONDITION, or --all"),
        (["--wait", "--ticket", "missing.json"], "there is no ticket missing.json"),
        (["--all", "--where", "ts > '2020'"], "give one of --where and --all"),
    ],
)
def test_flags_that_do_not_say_what_to_restore_cost_nothing(
    run_at_moto: RunAtMoto, archive: Any, flags: list[str], said: str
) -> None:
    result = run_at_moto("restore", URL, *flags)
    assert result.exit_code == 2
    assert said in plain(result.stderr)
    assert restores(archive) == {}


def test_the_plan_says_that_a_restore_comes_first(run_at_moto: RunAtMoto) -> None:
    told = run_at_moto("explain", URL).stdout
    assert "time          a restore first, for 1 day: Expedited 3 to 5 minutes, Standard 4 to 5 hours" in told
    assert "price         a restore first, for 1 day: Expedited $" in told
    offers = json.loads(run_at_moto("explain", URL, "--json").stdout)["estimate"]["restores"]
    assert [offer["tier"] for offer in offers] == ["Expedited", "Standard", "Bulk"]


def test_a_scan_never_orders_a_restore(run_at_moto: RunAtMoto, archive: Any) -> None:
    result = run_at_moto("scan", URL, "--archived", "restore")
    assert result.exit_code == 2
    assert "use one of refuse, skip; 'coldparquet restore' makes archived partitions readable" in plain(result.stderr)
    assert restores(archive) == {}


async def test_restore_and_read_in_python(archive: Any) -> None:
    options = {"endpoint_url": archive.meta.endpoint_url, **MOTO_KEYS}
    async with cp.open_table(URL, storage_options=options) as table:
        scan = table.scan(["ts"])
        with pytest.raises(ArchivedObjectError):
            await scan.to_arrow()
        assert [each.partition for each in await scan.archived()] == NAMES[:-1]
        ticket = await scan.restore(cp.RestoreTerms(tier="Expedited", wait=True))
        assert len(ticket.paths) == len(NAMES) - 1
        assert (await scan.to_arrow()).num_rows == sum(partition.row_count for partition in INTERVALS)


def test_restore_and_read_without_an_event_loop(archive: Any) -> None:
    options = {"endpoint_url": archive.meta.endpoint_url, **MOTO_KEYS}
    with cp.sync.open_table(URL, storage_options=options) as table:
        scan = table.scan(["ts"])
        assert len(scan.archived()) == len(NAMES) - 1
        scan.restore(cp.RestoreTerms(wait=True))
        assert scan.to_arrow().num_rows == sum(partition.row_count for partition in INTERVALS)


def test_skipping_archived_partitions_says_which_rows_are_missing(run_at_moto: RunAtMoto) -> None:
    refused = run_at_moto("count", URL, "--where", "ts >= '1970-01-01'", "--archived", "refuse")
    assert refused.exit_code == 0, "metadata decides"
    counted = run_at_moto("count", URL, "--archived", "skip")
    assert counted.exit_code == 0
    assert int(counted.stdout) < int(refused.stdout)
    for result in (counted, run_at_moto("scan", URL, "--archived", "skip", "--json")):
        assert f"{len(NAMES) - 1} archived partition" in result.stderr
        assert NAMES[0] in result.stderr
