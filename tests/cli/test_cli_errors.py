"""What people read when something is wrong: one sentence that says what, where, and what to do; never a traceback."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer

from coldparquet.cli.failures import reported_failures
from coldparquet.cli.flags import StoreFlags
from coldparquet.errors import (
    AccessError,
    ArchivedObjectError,
    BudgetExceededError,
    ColdParquetError,
    FormatError,
    InternalError,
    InvalidInputError,
    NotFoundError,
    ObjectChangedError,
    StorageError,
    UnsupportedError,
)
from coldparquet.ranges import ByteRange
from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreServer, FaultRule
from tests.support.command_line import Run, plain
from tests.support.small_tables import DAY, LOGS, write


@pytest.fixture
def table(tmp_path: Path) -> Path:
    directory = tmp_path / "bucket" / "trades" / "2024-03-01.1"
    directory.mkdir(parents=True)
    pq.write_table(pa.table({"price": [1.5, 2.5], "symbol": ["BTC", "ETH"]}), directory / "data.parquet")
    return directory.parent


COMMANDS = ["scan", "explain", "count"]


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_column_lists_the_near_matches(run: Run, table: Path, command: str) -> None:
    result = run(command, table, "--where", "prise > 2")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "'prise'" in result.stderr
    assert "'price'" in result.stderr
    as_json = json.loads(run(command, table, "--where", "prise > 2", "--json").stdout)
    assert as_json["error"]["kind"] == "UnknownColumn"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_bad_predicate_points_at_the_spot(run: Run, table: Path, command: str) -> None:
    result = run(command, table, "--where", "price > 2 and and symbol = 'BTC'")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert "symbol" in result.stderr


@pytest.mark.parametrize("command", [*COMMANDS, "index", "inspect"])
def test_nothing_there(run: Run, tmp_path: Path, command: str) -> None:
    missing = tmp_path / "missing"
    result = run(command, missing)
    assert result.exit_code == 3
    assert result.stderr.startswith(f"error: {missing}: ")
    assert json.loads(run(command, missing, "--json").stdout)["error"]["kind"] == "NotFound"


@pytest.mark.parametrize("command", [*COMMANDS, "index"])
def test_the_store_says_which(run: Run, table: Path, command: str) -> None:
    with ColdStoreServer(table.parents[1], ColdStoreOptions(secret_key="the right one")) as server:  # noqa: S106 - simulated

        def error(url: str, secret: str) -> dict[str, Any]:
            credentials = ("--storage-option", "key=cold-store", "--storage-option", f"secret={secret}")
            result = run(command, url, "--json", *credentials, "--endpoint-url", server.endpoint_url)
            assert result.exit_code == (4 if secret.startswith("a wrong") else 3)
            assert secret not in result.stdout
            found: dict[str, Any] = json.loads(result.stdout)["error"]
            return found

        assert error("s3://bukket/trades", "the right one")["kind"] == "NoSuchBucket"
        assert "bukket" in error("s3://bukket/trades", "the right one")["message"]
        assert error("s3://bucket/trados", "the right one")["kind"] == "NotFound"
        assert error("s3://bucket/trados", "the right one")["path"] == "s3://bucket/trados"
        assert error("s3://bucket/trades", "a wrong one")["path"].startswith("s3://bucket/trades")
        assert error("s3://bucket/trades", "a wrong one")["kind"] in {"AccessDenied", "SignatureDoesNotMatch"}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("scan",), "Missing argument"),
        (("frobnicate",), "No such command"),
        (("scan", "x", "--frobnicate"), "No such option"),
        (("scan", "x", "--limit", "-1"), "--limit"),
        (("scan", "x", "--output", "out.xlsx"), "--output"),
        (("scan", "x", "--output", "s3://bucket/out.parquet"), "--output"),
        (("scan", "x", "--storage-option", "secret"), "--storage-option"),
        (("inspect", "x", "--pm-size", "many"), "--pm-size"),
        (("demo", "--days", "0"), "--days"),
        (("demo", "x"), "unexpected extra argument(s) (x)"),
        (("count", "x", "--where", "device", "=", "a"), "double quotes"),
        (("scan", "x", "-w", "device", "=", "a", "--columns", "time"), "double quotes"),
        (("scan", "x", "--columns", "time", "device"), "by commas"),
    ],
)
def test_wrong_usage_is_another_exit_code(run: Run, arguments: tuple[str, ...], expected: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert expected in result.stderr


def test_wrong_usage_as_json(run: Run, table: Path) -> None:
    for arguments in (
        ("scan",),
        ("count", table, "--frobnicate"),
        ("count", table, "--where", "a", "=", "b"),
        ("nonsense",),
    ):
        result = run(*arguments, "--json")
        assert (result.exit_code, result.stderr) == (2, "")
        error = json.loads(result.stdout)["error"]
        assert error["kind"] == "WrongUsage"
        assert run(*arguments).stdout == ""
        assert error["message"].rstrip(".") in plain(run(*arguments).stderr)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotFoundError, 3),
        (AccessError, 4),
        (FormatError, 5),
        (ObjectChangedError, 5),
        (BudgetExceededError, 6),
        (ArchivedObjectError, 7),
        (InvalidInputError, 1),
        (StorageError, 1),
        (UnsupportedError, 1),
        (InternalError, 1),
    ],
)
def test_exit_codes_tell_scripts_what_to_do(run: Run, error: type[ColdParquetError], code: int) -> None:
    with pytest.raises(typer.Exit) as caught, reported_failures(as_json=False):
        raise error("it failed")
    assert caught.value.exit_code == code
    assert re.search(rf"\b{code} [a-z]", plain(run("--help").stdout).partition("Exit codes:")[2])


def test_a_plan_over_budget_and_a_stale_sidecar(run: Run, table: Path) -> None:
    assert run("index", table).exit_code == 0
    assert run("scan", table, "--max-requests", 0).exit_code == 6
    pq.write_table(pa.table({"price": [0.0] * 9, "symbol": ["BTC"] * 9}), next(table.glob("*/data.parquet")))
    assert run("scan", table).exit_code == 5


def test_json_about_a_table_has_shared_names(run: Run, table: Path, tmp_path: Path) -> None:
    for command in ("inspect", "explain", "count", "index", "verify", "pack", "compact"):
        facts = json.loads(run(command, table, "--json").stdout)
        assert facts["url"] == str(table)
        assert "table" not in facts
        if command in ("inspect", "explain", "verify", "compact"):
            assert facts["source"] == "directory listing, because there is no _txn"
    output = tmp_path / "rows.csv"
    written = json.loads(run("scan", table, "--output", output, "--json").stdout)
    assert written == {"url": str(table), "output": str(output), "rows": 2, "bytes": output.stat().st_size}
    assert json.loads(run("restore", table, "--all", "--json").stdout) == {
        "url": str(table),
        "archived": [],
        "offers": [],
    }


def test_storage_options() -> None:
    settings = [
        "profile=cold",
        "anon=true",
        "requester_pays=False",
        "port=9000",
        'client_kwargs={"region_name": "eu-west-1"}',
        'token="123"',
        "secret=a=b",
        "empty=",
    ]
    assert StoreFlags(storage_option=settings, endpoint_url="http://127.0.0.1:9000").storage_options() == {
        "profile": "cold",
        "anon": True,
        "requester_pays": False,
        "port": 9000,
        "client_kwargs": {"region_name": "eu-west-1"},
        "token": "123",
        "secret": "a=b",
        "empty": "",
        "endpoint_url": "http://127.0.0.1:9000",
    }
    assert StoreFlags(anon=True).storage_options() == {"anon": True}


@pytest.mark.parametrize("setting", ["secret", "=secret", 'client_kwargs={"secret'])
def test_bad_storage_options_are_not_repeated(setting: str) -> None:
    with pytest.raises(typer.BadParameter) as caught:
        StoreFlags(storage_option=[setting]).storage_options()
    assert "secret" not in caught.value.message


def test_details_become_json(capsys: pytest.CaptureFixture[str]) -> None:
    error = StorageError("it failed", path="bucket/key", byte_range=ByteRange(1, 9), attempts=3)
    with pytest.raises(typer.Exit) as caught, reported_failures(as_json=True):
        raise error
    assert caught.value.exit_code == 1
    assert json.loads(capsys.readouterr().out)["error"] == {
        "kind": "StorageFailed",
        "message": "it failed",
        "path": "bucket/key",
        "byte_range": "[1, 9)",
        "attempts": 3,
    }


def test_a_full_disk_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as caught, reported_failures(as_json=False):
        raise OSError(28, "No space left on device", "/data/out.csv")
    assert caught.value.exit_code == 1
    assert capsys.readouterr().err == "error: /data/out.csv: No space left on device\n"


def test_a_missing_package_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), reported_failures(as_json=False):
        raise ModuleNotFoundError("No module named 'aiohttp'", name="aiohttp")
    assert "needs the package aiohttp" in capsys.readouterr().err
    with pytest.raises(ModuleNotFoundError), reported_failures(as_json=False):
        raise ModuleNotFoundError("No module named 'coldparquet.typo'", name="coldparquet.typo")


def test_a_damaged_sidecar_says_the_ways_out(run: Run, table: Path) -> None:
    [rows] = run("count", table).stdout.split()
    assert run("index", "--force", table).exit_code == 0
    sidecar = next(table.glob("*/_pm"))
    damaged = bytearray(sidecar.read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    sidecar.write_bytes(damaged)
    for broken in (bytes(damaged), bytes(damaged[:100]), b"123"):
        sidecar.write_bytes(broken)
        result = run("count", table)
        assert result.exit_code == 5
        assert (
            "'coldparquet index --force' writes the sidecar anew, and --no-sidecars reads without it" in result.stderr
        )
        assert "fetch" not in result.stderr
        assert run("count", table, "--no-sidecars").stdout.split() == [rows]
        assert run("scan", table, "--no-sidecars").stdout.count("\n") == int(rows) + 1
        assert "footer" in run("explain", table, "--no-sidecars").stdout
    assert run("index", "--force", table).exit_code == 0
    assert run("count", table).stdout.split() == [rows]


@pytest.mark.parametrize("command", [*COMMANDS, "index", "inspect"])
def test_what_is_missing_and_what_is_there_instead(run: Run, table: Path, command: str) -> None:
    there = next(path.name for path in table.iterdir() if path.is_dir())
    message = run(command, table / f"{there}9").stderr
    assert f"{table} holds no '{there}9', but " in message
    assert there in message
    misspelt = table.with_name(f"{table.name}s")
    assert f"holds no '{misspelt.name}', but {table.name}" in run(command, misspelt).stderr


@pytest.mark.parametrize("name", ["date=2024-03-01/_part-0.parquet", "date=2024-03-01/rows.csv"])
def test_inspect_says_the_same_of_what_is_no_table_as_the_others(run: Run, tmp_path: Path, name: str) -> None:
    file = tmp_path / "lake" / name
    file.parent.mkdir(parents=True)
    pq.write_table(pa.table({"n": [1]}), file)
    message = run("count", tmp_path / "lake").stderr
    assert "convert" in message
    assert run("inspect", tmp_path / "lake").stderr == message


def test_a_refusal_names_the_table(run: Run, table: Path) -> None:
    with ColdStoreServer(table.parents[1]) as server:
        server.set_faults(FaultRule("forbidden", operation="*"))
        url = f"s3://{table.parent.name}/{table.name}"
        message = run("count", url, "--anon", "--endpoint-url", server.endpoint_url).stderr
    assert message.startswith(f"error: {url}: S3 answered 403 AccessDenied")


def test_advice_names_the_command_that_has_the_flag(run: Run, tmp_path: Path) -> None:
    table = write(tmp_path / "t", ["2023-01-01/data.parquet", "2023-01-02/data.parquet"])
    (table / "2023-01-02" / "_pm").write_bytes(b"x")
    assert "and --no-sidecars reads without it" in run("count", table).stderr
    assert "'coldparquet scan --no-sidecars' reads without it" in run("restore", table, "--all").stderr


def test_a_misspelt_column_is_no_column_of_older_partitions(run: Run, tmp_path: Path) -> None:
    table = write(tmp_path / "t", ["2023-01-01/data.parquet", "2023-01-02/data.parquet"])
    assert run("scan", table, "--columns", "xx").stderr.rstrip().endswith("did you mean 'x'?")
    assert "opened with the columns of its newest partition" in run("scan", table, "--columns", "other").stderr


def test_verify_fails_on_parquet_files_of_other_names(run: Run, tmp_path: Path) -> None:
    table = write(tmp_path / "t", ["2023-01-01/data.parquet", "2023-01-02/part-0.parquet"])
    result = run("verify", table)
    assert result.exit_code == 1
    told = " ".join(result.stdout.split())
    assert "it holds part-0.parquet, but no data.parquet, so that it cannot be read" in told
    assert "to do: rename it, or convert the lake" in told


# --- What the commands say of files that are not read, and of tables that keep a log of theirs ------------------------


def test_commands_tell_on_standard_error_and_by_their_exit_codes(run: Run, tmp_path: Path) -> None:
    table = write(tmp_path / "t", [DAY, "date=2023-01-02/a\x1b[31m.parquet", "b\x1b[31m.parquet"])
    for command in ("count", "scan", "explain"):
        refused = run(command, table)
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert "rows are missing: b" in refused.stderr
        assert "--unread skip reads the others alone" in refused.stderr
        allowed = run(command, table, "--unread", "skip")
        assert allowed.exit_code == 0
        assert allowed.stderr.startswith(f"warning: {table}: rows are missing: b")
        assert "\x1b" not in allowed.stderr
    for command, code in (("index", 1), ("verify", 1), ("inspect", 1)):
        found = run(command, table)
        assert found.exit_code == code
        assert "rows are missing: b" in " ".join(found.stdout.split())
        told = json.loads(run(command, table, "--json").stdout)
        findings = told["files"][0]["findings"] if "files" in told else told["findings"]
        assert findings[0]["kind"] == "UnreadFiles"
    piped = run("pipeline", "index", table, "--json")
    assert piped.exit_code == 1
    assert "UnreadFiles" in piped.stdout


@pytest.mark.parametrize("log", LOGS)
def test_inspect_says_that_a_table_keeps_a_log(run: Run, tmp_path: Path, log: str) -> None:
    result = run("inspect", write(tmp_path / "t", ["date=2023-01-02/part-0.parquet", LOGS[log]]))
    assert result.exit_code == 1
    assert f"--from-format {log}" in result.stderr


def test_searches_for_tables_pass_by_tables_that_keep_a_log(run: Run, tmp_path: Path) -> None:
    lake = write(tmp_path / "lake", [f"ours/{DAY}", "theirs/date=2023-01-02/data.parquet", f"theirs/{LOGS['delta']}"])
    indexed = run("pipeline", "index", lake, "--json")
    assert indexed.exit_code == 0
    assert sorted(path.relative_to(lake).as_posix() for path in lake.rglob("_pm")) == ["ours/2023-01-01/_pm"]
    refused = run("pipeline", "index", lake / "theirs")
    assert refused.exit_code == 1
    assert "--from-format delta" in refused.stderr
