"""``coldparquet publish``: what it prints. What it does is tested with ``publish_table``."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import coldparquet.prices
from coldparquet_testing.simulator import ColdStoreServer
from tests.support.command_line import Run, plain
from tests.support.table_copies import TABLE, copy_table, put_in_state


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return copy_table(TABLE, tmp_path, snapshot="0_converted")


def words(text: str) -> list[str]:
    """Return the words of each line, without the time that a run took."""
    return [re.sub(r" in [\d.,]+ m?s:", ":", " ".join(line.split())) for line in text.splitlines()]


def test_dry_run_then_first_then_update_then_nothing(run: Run, table: Path, tmp_path: Path) -> None:
    target = tmp_path / "published"
    planned = run("publish", table, target, "--dry-run")
    assert (planned.exit_code, planned.stderr) == (0, "")
    assert words(planned.stdout) == [
        "partition published as rows Parquet",
        "2024-01-01.2 would publish 2024-01-01.2 1,000 46.2 KiB",
        "2024-01-02.1 would publish 2024-01-02.1 1,000 45.5 KiB",
        "2024-01-03 would convert 2024-01-03 1,000 from 62.3 KiB",
        "",
        "publish: 3 partitions: 2 would publish (91.7 KiB), 1 would convert (62.3 KiB)",
        "transaction 3: would publish, 3,000 rows; would send about 159 KiB in 22 writes and 1 read",
    ]
    assert not target.exists()

    first = run("publish", table, target)
    assert words(first.stdout) == [
        "partition published as rows Parquet",
        "2024-01-01.2 published 2024-01-01.2 1,000 46.2 KiB",
        "2024-01-02.1 published 2024-01-02.1 1,000 45.5 KiB",
        "2024-01-03 converted 2024-01-03 1,000 23.9 KiB",
        "",
        "publish: 3 partitions: 2 published (91.7 KiB), 1 converted (23.9 KiB)",
        "transaction 3: published, 3,000 rows; sent 122 KiB in 22 writes and 1 read",
    ]

    put_in_state(table, "1_one_late_row")
    update = run("publish", table, target)
    assert "2024-01-01.2  published  2024-01-01.4  1,001" in update.stdout
    assert "transaction 4, after 3: published, 3,001 rows; sent " in update.stdout

    nothing = run("publish", table, target)
    assert words(nothing.stdout) == [
        "publish: 3 partitions: 3 unchanged",
        "transaction 4, after 4: unchanged, 3,001 rows; sent 0 B in 0 writes and 5 reads",
    ]

    purged = run("publish", table, target, "--purge", "--purge-after-hours", "0")
    assert "2 old versions removed: 2024-01-01.2, _published.v3-" in purged.stdout


@pytest.mark.slow
def test_rows_that_stay_behind_are_told_by_exit_status_and_copy(run: Run, table: Path, tmp_path: Path) -> None:
    target = tmp_path / "published"
    for flags in (("--dry-run",), (), ("--json",)):
        assert run("publish", table, target, "--native", "leave", *flags).exit_code == 1
    left = run("publish", table, target, "--native", "leave")
    assert "1,000 rows in native partitions stay behind" in left.stdout
    command = [sys.executable, "-m", "coldparquet", "count", str(target), "--where", "ts >= '2024-01-03'"]
    count = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (count.returncode, count.stdout) == (0, "0\n")
    assert "rows are missing: 1,000 rows in 1 native partition were left behind" in count.stderr
    assert "rows are missing: 1,000 rows" in plain(run("inspect", target).stdout)

    assert run("publish", table, target).exit_code == 0
    count = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (count.returncode, count.stdout, count.stderr) == (0, "1000\n", "")


def test_native_partitions_are_refused(run: Run, table: Path, tmp_path: Path) -> None:
    result = run("publish", table, tmp_path / "published", "--native", "refuse", "--json")
    assert (result.exit_code, json.loads(result.stdout)["error"]["kind"]) == (1, "NativePartitions")
    assert not (tmp_path / "published").exists()


def test_prices_of_ones_own(run: Run, table: Path, tmp_path: Path) -> None:
    prices = tmp_path / "prices.json"
    classes = {"STANDARD": {"million_puts": 1_000_000, "million_gets": 0, "million_lists": 0, "gb_month": 0}}
    prices.write_text(json.dumps({"based_on": "default", "name": "ours", "as_of": "2026-11", "classes": classes}))
    told = json.loads(run("publish", table, tmp_path / "published", "--prices", prices, "--dry-run", "--json").stdout)
    assert told["cost"]["dollars"] == pytest.approx(told["cost"]["write_count"])
    assert told["cost"]["dollars_per_month"] == 0


def test_prices_that_lack_a_class_are_refused_before_anything_is_written(run: Run, table: Path, tmp_path: Path) -> None:
    whole = json.loads(Path(coldparquet.prices.__file__).with_name("prices.json").read_text())
    del whole["classes"]["GLACIER_IR"]
    prices = tmp_path / "prices.json"
    prices.write_text(json.dumps(whole))
    flags = ("--prices", prices, "--storage-class-after", "30d=GLACIER_IR")
    result = run("publish", table, tmp_path / "published", *flags)
    assert result.exit_code == 1
    assert "no price known for storage class 'GLACIER_IR'" in plain(result.stderr)
    assert not (tmp_path / "published").exists()


def test_json(run: Run, table: Path, tmp_path: Path) -> None:
    report = json.loads(run("publish", table, tmp_path / "published", "--json").stdout)
    assert report["counts"] == {"published": 2, "converted": 1}
    assert (report["txn"], report["previous_txn"], report["is_committed"]) == (3, None, True)
    assert (report["rows"], report["rows_left_behind"]) == (3000, 0)
    assert report["table_files"][-1] == "_txn"
    assert [partition["published_name"] for partition in report["partitions"]] == [
        "2024-01-01.2",
        "2024-01-02.1",
        "2024-01-03",
    ]


def test_to_s3_with_storage_classes_and_prices(run: Run, table: Path, tmp_path: Path) -> None:
    (tmp_path / "store" / "bucket").mkdir(parents=True)
    with ColdStoreServer(tmp_path / "store") as server:
        options = server.storage_options
        result = run(
            "publish",
            table,
            "s3://bucket/t",
            "--endpoint-url",
            server.endpoint_url,
            *("--storage-option", f"key={options['key']}", "--storage-option", f"secret={options['secret']}"),
            *("--storage-class-after", "30d=GLACIER_IR", "--storage-class-after", "9999d=STANDARD_IA"),
        )
    assert (result.exit_code, result.stderr) == (0, "")
    assert "GLACIER_IR" in result.stdout
    assert result.stdout.splitlines()[-1] == (
        "transaction 3: published, 3,000 rows; sent 122 KiB in 22 writes and 2 reads: $0.00016, +$0.00000062 a month"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--storage-class-after", "30d=GLACIER"], "storage class 'GLACIER' is none of STANDARD"),
        (["--storage-class-after", "soon"], "write it as 30d=GLACIER_IR"),
        (["--dropped", "maybe"], "use one of refuse, keep, remove"),
        (["--native", "maybe"], "use one of convert, leave, refuse"),
    ],
)
def test_wrong_flags(run: Run, table: Path, tmp_path: Path, arguments: list[str], message: str) -> None:
    result = run("publish", table, tmp_path / "published", *arguments)
    assert result.exit_code == 1
    assert message in " ".join(result.stderr.split())
    assert not (tmp_path / "published").exists()


def test_failures(run: Run, table: Path, tmp_path: Path) -> None:
    nothing = run("publish", tmp_path / "absent", tmp_path / "published")
    assert (nothing.exit_code, nothing.stderr.startswith("error: ")) == (3, True)
    other = copy_table("interval_day", tmp_path)
    assert run("publish", other, tmp_path / "published").exit_code == 0
    result = run("publish", table, tmp_path / "published", "--json")
    assert (result.exit_code, json.loads(result.stdout)["error"]["kind"]) == (1, "OtherTable")
