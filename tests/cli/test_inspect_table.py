"""``coldparquet inspect`` of a table directory: its partitions as text and as JSON."""

from __future__ import annotations

import json
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from coldparquet_testing.simulator import ColdStoreServer
from tests.support.command_line import Run
from tests.support.questdb_tables import GOLDEN
from tests.support.table_copies import copy_table, write_sidecar

TABLES = sorted(path.parent.name for path in GOLDEN.glob("*/table"))


def described(run: Run, *arguments: str | Path) -> dict[str, Any]:
    result = run("inspect", "--json", *arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    description: dict[str, Any] = json.loads(result.stdout)
    return description


@pytest.mark.parametrize("name", TABLES)
def test_partitions_are_those_that_questdb_lists(run: Run, name: str) -> None:
    expected = json.loads((GOLDEN / name / "expected" / "partitions.json").read_text())
    attached = [partition for partition in expected if partition["attached"]]
    description = described(run, GOLDEN / name / "table")
    listed = [
        (partition["name"], partition["rows"], partition["format"] == "parquet")
        for partition in description["partitions"]
    ]
    assert listed == [(entry["name"], entry["numRows"], entry["isParquet"]) for entry in attached]
    for partition in description["partitions"]:
        assert (GOLDEN / name / "table" / partition["directory"]).is_dir()
        if partition["format"] == "parquet":
            file = GOLDEN / name / "table" / partition["directory"] / "data.parquet"
            assert partition["parquet_size_bytes"] == file.stat().st_size
            assert partition["sidecar"] == "not looked at"
        else:
            assert (partition["parquet_size_bytes"], partition["sidecar"]) == (None, None)


def test_everything_about_one_partition(run: Run) -> None:
    description = described(run, GOLDEN / "o3_in_place" / "table")
    assert description["source"] == "transaction 7 of _txn"
    assert (description["transaction"], description["partitioned_by"]) == (7, "DAY")
    assert (description["columns"], description["designated_timestamp"]) == (7, "ts")
    assert description["partitions"][0] == {
        "name": "2024-01-01",
        "directory": "2024-01-01.2",
        "rows": 1003,
        "from": "2024-01-01T00:00:00Z",
        "to": "2024-01-02T00:00:00Z",
        "format": "parquet",
        "parquet_size_bytes": 71_470,
        "name_txn": 2,
        "sidecar": "not looked at",
        "sidecar_problem": None,
    }


def test_states_of_sidecars(run: Run, tmp_path: Path) -> None:
    table = copy_table("interval_day", tmp_path)
    run("migrate", table)
    present, absent, stale, damaged = sorted(path.parent for path in table.glob("*/data.parquet"))
    (absent / "_pm").unlink()
    write_sidecar(stale, parquet_footer_offset=100)
    (damaged / "_pm").write_bytes(b"garbage")
    description = described(run, table, "--sidecars")
    states = {partition["directory"]: partition["sidecar"] for partition in description["partitions"]}
    assert states == {
        present.name: "present",
        absent.name: "absent",
        stale.name: "stale",
        damaged.name: "damaged",
        "2024-03-02": None,
    }
    problems = [partition["sidecar_problem"] for partition in description["partitions"]]
    assert [problem is None for problem in problems] == [True, True, False, False, True]
    text = run("inspect", table, "--sidecars").stdout
    assert "1 present, 1 absent, 1 stale, 1 damaged" in text


def test_text(run: Run) -> None:
    lines = run("inspect", GOLDEN / "o3_in_place" / "table").stdout.splitlines()
    assert lines[0] == str(GOLDEN / "o3_in_place" / "table")
    facts = {line.split("  ")[0].strip(): " ".join(line.split("  ")[1:]).strip() for line in lines[2:9]}
    assert facts == {
        "source": "transaction 7 of _txn",
        "columns": "7, ordered by ts",
        "partitions": "3 (PARTITION BY DAY)",
        "rows": "3,044",
        "Parquet": "139 KiB in 2 partitions",
        "native": "1 partition",
        "sidecars": "use --sidecars to look at them, with 2 requests",
    }
    assert lines[10].split() == ["directory", "rows", "from", "(UTC)", "before", "format", "Parquet"]
    assert lines[11].split() == ["2024-01-01.2", "1,003", "2024-01-01", "2024-01-02", "parquet", "69.8", "KiB"]
    # The last partition ends behind its last row, here shown to the second and never too early.
    assert lines[13].split() == ["2024-01-03", "1,000", "2024-01-03", "2024-01-03", "23:58:34", "native"]


def test_a_directory_of_partitions_without_transaction(run: Run, tmp_path: Path) -> None:
    table = copy_table("interval_day", tmp_path)
    run("migrate", table)
    (table / "_txn").unlink()
    unknown = described(run, table)["partitions"][0]
    assert [unknown[key] for key in ("rows", "format", "parquet_size_bytes", "name_txn")] == [None, None, None, 4]
    description = described(run, table, "--sidecars")
    assert description["source"] == "directory listing, because there is no _txn"
    known, *_, native = description["partitions"]
    assert [known[key] for key in ("rows", "format", "parquet_size_bytes")] == [48, "parquet", 4194]
    assert (native["directory"], native["format"], native["sidecar"]) == ("2024-03-02", None, "absent")
    assert "192, not counting 1 unknown" in run("inspect", table, "--sidecars").stdout


def test_many_partitions_are_cut_in_the_middle(run: Run, tmp_path: Path) -> None:
    for day in range(1, 121):
        (tmp_path / f"{date(2024, 1, 1) + timedelta(day)}.{day}").mkdir()
    listed = described(run, tmp_path)["partitions"]
    lines = run("inspect", tmp_path).stdout.splitlines()
    rows = [line.split()[0] for line in lines if line.startswith(("2024-", "..."))]
    names = [partition["directory"] for partition in listed]
    assert len(names) > 100
    assert rows == [*names[:50], "...", *names[-50:]]


def test_leftovers_are_noted(run: Run, tmp_path: Path) -> None:
    table = copy_table("interval_day", tmp_path)
    (table / "2024-02-27.1").mkdir()
    assert described(run, table)["notes"] == ["not read, because _txn does not name them: 2024-02-27.1"]
    assert "note: not read, because _txn does not name them: 2024-02-27.1" in run("inspect", table).stdout


def test_tables_and_sidecars_in_one_call(run: Run, tmp_path: Path) -> None:
    table = copy_table("interval_day", tmp_path)
    run("migrate", table)
    sidecar, listing = run("inspect", "--json", table / "2024-02-27.4", table).stdout.splitlines()
    assert "row_groups" in json.loads(sidecar)
    assert "partitions" in json.loads(listing)


def test_from_an_object_store(run: Run, tmp_path: Path) -> None:
    copy_table("interval_day", tmp_path / "bucket")
    with ColdStoreServer(tmp_path) as server:
        credentials = ("--storage-option", "key=cold-store", "--storage-option", "secret=cold-store")
        result = run(
            "inspect", "--json", "s3://bucket/interval_day", *credentials, "--endpoint-url", server.endpoint_url
        )
    assert result.exit_code == 0
    assert [partition["rows"] for partition in json.loads(result.stdout)["partitions"]] == [48, 48, 48, 48, 8]
