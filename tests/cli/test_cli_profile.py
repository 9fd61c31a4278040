"""``coldparquet scan --profile`` and ``--report``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from rich.console import Console

import coldparquet as cp
from coldparquet.cli.profile import waterfall
from coldparquet.maintenance.index import index_table
from coldparquet.ranges import ByteRange
from coldparquet.storage.log import RequestRecord
from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreServer
from tests.support.command_line import Run
from tests.support.questdb_tables import PARTITIONS

GOLDEN = next(partition for partition in PARTITIONS if partition.table == "row_groups")
SECRETS = {"AWS_ACCESS_KEY_ID": "AKIAPLANTEDKEY123456", "AWS_SECRET_ACCESS_KEY": "planted/secret+key"}
QUESTION = ("--columns", "id", "--where", "id >= 500 and id < 700")


@pytest.fixture
async def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in {**SECRETS, "AWS_SESSION_TOKEN": "planted-token", "AWS_REGION": "us-east-1"}.items():
        monkeypatch.setenv(name, value)
    partition = GOLDEN.copied_to(tmp_path / "root" / "bucket" / "db")
    await index_table(partition, pages=False, pack=False)
    return partition


@pytest.fixture
def server(table: Path) -> Iterator[ColdStoreServer]:
    with ColdStoreServer(table.parents[2], ColdStoreOptions()) as server:
        yield server


def assert_free_of_secrets(text: str) -> None:
    for secret in (*SECRETS.values(), "planted", "Signature", "X-Amz"):
        assert secret not in text


def test_the_profile_goes_to_standard_error(run: Run, table: Path) -> None:
    plain = run("scan", table, *QUESTION)
    profiled = run("scan", table, *QUESTION, "--profile")
    assert profiled.exit_code == 0
    assert profiled.stdout == plain.stdout
    for told in ("sidecar", "row groups", "1 round trip", "wanted", "rows      200", "opening the table not counted"):
        assert told in profiled.stderr
    assert "least possible" not in profiled.stderr, "no network limits local files"
    assert "sidecar" not in plain.stderr


def test_reports_of_s3_hold_no_secret(run: Run, server: ColdStoreServer, table: Path, tmp_path: Path) -> None:
    url = f"s3://bucket/db/{table.name}"
    for suffix in ("html", "svg"):
        report = tmp_path / f"report.{suffix}"
        cp.clear_caches()  # so that both ask the store
        result = run("scan", url, *QUESTION, "--endpoint-url", server.endpoint_url, "--profile", "--report", report)
        assert result.exit_code == 0
        assert "x the least possible" in " ".join(result.stderr.split())
        text = report.read_text(encoding="utf-8")
        assert "row groups" in text
        assert url in text or suffix == "svg"
        assert_free_of_secrets(text + result.stderr + result.stdout)
    assert "206" in report.read_text(encoding="utf-8")
    assert "first byte after" in report.read_text(encoding="utf-8")


def test_the_report_shows_the_plan_and_what_opened_the_table(run: Run, table: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    output = tmp_path / "rows.parquet"
    assert run("scan", table.parent, *QUESTION, "--output", output, "--report", report).exit_code == 0
    assert pq.read_metadata(output).num_rows == 200
    text = report.read_text(encoding="utf-8")
    for told in ("Read plan for", "listing", "to open the table"):
        assert told in text


def test_the_last_rows_have_a_report_without_a_plan(run: Run, table: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    assert run("scan", table, "--columns", "id", "--tail", 5, "--report", report).exit_code == 0
    assert "Read plan for" not in report.read_text(encoding="utf-8")


def test_a_scan_that_fails_is_told_of_as_well(run: Run, table: Path, tmp_path: Path) -> None:
    data = table / "data.parquet"
    data.write_bytes(data.read_bytes()[:-100])
    report = tmp_path / "report.html"
    result = run("scan", table, *QUESTION, "--profile", "--report", report)
    assert result.exit_code == 5
    assert "error:" in result.stderr
    assert "sidecar" in result.stderr
    assert "sidecar" in report.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["report.pdf", "report", "s3://bucket/report.html"])
def test_a_report_of_another_kind_is_refused_before_anything_is_read(run: Run, table: Path, name: str) -> None:
    result = run("scan", table, "--report", name, "--profile")
    assert result.exit_code == 2
    assert "--report" in result.stderr
    assert "sidecar" not in result.stderr


def request(started_s: float, finished_s: float, **changes: object) -> RequestRecord:
    fields: dict[str, object] = {"waited_s": 0.0, "first_byte_s": None, "status": "ok", "role": "data", **changes}
    return RequestRecord(
        operation="get",
        path="t/2024-01-01/data.parquet",
        byte_range=ByteRange(0, 10),
        reason="row group 0: ts",
        started_s=started_s,
        finished_s=finished_s,
        fetched_bytes=10,
        etag=None,
        **fields,  # type: ignore[arg-type]
    )


def lines_of(records: list[RequestRecord]) -> list[str]:
    console = Console(width=120, file=None, color_system=None)
    with console.capture() as capture:
        console.print(waterfall(records, width=120, max_lines=4))
    return capture.get().splitlines()[1:]


def test_bars_tell_waiting_latency_and_transfer() -> None:
    [first, second] = lines_of([request(0.0, 1.0), request(0.5, 1.0, waited_s=0.25, first_byte_s=0.75)])
    bar = 42  # characters of a line of 120
    assert first.count("█") == bar
    assert (second.count("·"), second.count("░"), second.count("█")) == (11, 10, 11)


def test_lines_say_what_is_unusual() -> None:
    records = [
        request(0, 1, attempt=2, status="SlowDown"),
        request(0, 1, is_hedge=True, status="cancelled"),
        request(0, 1, status="NotFound", role="metadata"),
        *(request(0, 1) for _ in range(9)),
    ]
    told = " ".join(line[74:].strip() for line in lines_of(records) if not line.startswith("     ..."))
    purpose = "2024-01-01  row group 0: ts"
    assert told == f"{purpose}  attempt 2, SlowDown {purpose}  hedge, cancelled {purpose}  not there"
    assert "9 more requests" in lines_of(records)[-1]
