"""The verbs on one table: what they print, and their exit codes. What they do is tested with the functions of Python."""

from __future__ import annotations

import fcntl
import json
import os
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.command_line import Run
from tests.support.questdb_tables import copy_parquet_partitions
from tests.support.small_tables import TABLE, partitions_alone
from tests.support.table_copies import contents_of, copy_table
from tests.support.written_tables import directories


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table of QuestDB, with four Parquet partitions without sidecars and a native one."""
    return copy_table("interval_day", tmp_path)


@pytest.fixture
def dead_bytes(tmp_path: Path) -> Path:
    """A table of QuestDB that is worth compacting."""
    return copy_table("o3_in_place", tmp_path)


def words(text: str) -> str:
    """Put a text on one line, without the time that a run took."""
    return re.sub(r" in [\d.,]+ m?s:", ":", " ".join(text.split()))


def parquet_partitions(table: Path) -> list[Path]:
    return sorted(path.parent for path in table.glob("*/data.parquet"))


@pytest.mark.parametrize("verb", ["index", "migrate"])
def test_sidecars_are_planned_written_and_kept(run: Run, table: Path, verb: str) -> None:
    before = contents_of(table)
    planned = run(verb, table, "--dry-run")
    assert (planned.exit_code, planned.stderr) == (0, "")
    assert words(planned.stdout).rpartition(f" {verb}: ")[2].startswith("5 partitions: 4 would write (")
    assert contents_of(table) == before
    written = run(verb, table)
    assert (written.exit_code, written.stderr) == (0, "")
    assert words(written.stdout).rpartition(f" {verb}: ")[2].startswith("5 partitions: 4 written (")
    assert "2024-03-02  skipped  in QuestDB's native format" in written.stdout
    assert len(list(table.glob("*/_pm"))) == 4
    [unchanged] = [line for line in run(verb, table).stdout.splitlines() if line.startswith(f"{verb}: ")]
    assert words(unchanged) == f"{verb}: 5 partitions: 4 unchanged, 1 skipped"
    assert words(run(verb, table, "--force").stdout) == words(written.stdout)


@pytest.mark.parametrize(
    ("verb", "counts"),
    [
        ("index", {"written": 4, "skipped": 1}),
        ("migrate", {"written": 4, "skipped": 1}),
        ("compact", {"compacted": 1}),
        ("verify", {"error": 0, "warning": 4, "advice": 0}),
        ("pack", None),
    ],
)
def test_json(run: Run, table: Path, verb: str, counts: dict[str, int] | None) -> None:
    if verb == "pack":
        run("index", table)
    flags = ("--force", "-p", "2024-02-28") if verb == "compact" else ()
    done = run(verb, table, "--json", *flags)
    report: dict[str, Any] = json.loads(done.stdout)
    assert (done.exit_code, report["url"], report.get("counts")) == (0, str(table), counts)
    first, *_, last = [None, *report["partitions"]] if verb == "compact" else report["partitions"]
    if verb in {"index", "migrate"}:
        assert (first["action"], last["action"]) == ("written", "skipped")
        assert first["path"].endswith("/_pm")
        assert first["sidecar_bytes"] > 0
    elif verb == "compact":
        assert (report["source"], report["txn"]) == ("transaction 5 of _txn", 6)
        assert (last["name"], last["new_name"], last["rows"]) == ("2024-02-28.1", "2024-02-28.5", 48)
        assert (last["before"]["row_groups"], last["after"]["row_groups"]) == (1, 1)
    elif verb == "verify":
        assert (report["source"], report["findings"]) == ("transaction 5 of _txn", [])
        facts = ("name", "format", "sidecar", "rows", "row_groups", "unused_bytes")
        assert tuple(first[fact] for fact in facts) == ("2024-02-27.4", "parquet", "absent", 48, 1, 0)
        assert [finding["kind"] for finding in first["findings"]] == ["NoSidecar"]
        assert (first["findings"][0]["severity"], first["findings"][0]["remedy"]) == (
            "warning",
            "'coldparquet migrate' writes it",
        )
        assert (last["format"], last["sidecar"], last["row_groups"]) == ("native", None, None)
    else:
        assert (report["action"], report["packed"]) == ("written", 4)
        assert report["catalogue_bytes"] == (table / "_catalogue").stat().st_size
        assert (first["reason"], last["reason"]) == (None, "in QuestDB's native format")


@pytest.mark.parametrize(
    ("verb", "told"),
    [
        ("index", "failed data.parquet: it has 10 bytes"),
        ("migrate", "failed data.parquet: it has 10 bytes"),
        ("compact", "failed data.parquet: "),
    ],
)
def test_a_failure_is_told_and_decides_the_exit_code(run: Run, table: Path, verb: str, told: str) -> None:
    os.truncate(min(table.glob("*/data.parquet")), 10)
    result = run(verb, table)
    assert result.exit_code == 1
    assert f"2024-02-27.4 {told}" in words(result.stdout)
    assert words(result.stdout).partition(f" {verb}: 5 partitions: ")[2].count("1 failed") == 1


@pytest.mark.parametrize("verb", ["index", "migrate", "compact", "verify", "pack"])
def test_what_is_not_there(run: Run, tmp_path: Path, verb: str) -> None:
    missing = run(verb, tmp_path / "nothing")
    assert (missing.exit_code, missing.stdout) == (3, "")
    assert missing.stderr.startswith("error: ")
    empty = run(verb, tmp_path)
    assert empty.exit_code == 3
    assert "no partitions here" in words(empty.stderr)


@pytest.mark.parametrize("verb", ["compact", "verify"])
def test_some_partitions(run: Run, table: Path, verb: str) -> None:
    report = json.loads(run(verb, table, "--json", "-p", "2024-02-28", "-p", "2024-02-29.2").stdout)
    assert [partition["name"] for partition in report["partitions"]] == ["2024-02-28.1", "2024-02-29.2"]
    unknown = run(verb, table, "--partition", "2031-01-01")
    assert unknown.exit_code == 1
    assert "the table has no partition 2031-01-01" in unknown.stderr


def test_pages_are_told_beside_the_sidecars(run: Run, table: Path) -> None:
    assert "_pages" not in run("index", table, "--no-pages", "--dry-run").stdout
    written = run("index", table)
    assert written.exit_code == 0
    sidecars, pages = written.stdout.splitlines()[-2:]
    assert words(sidecars).startswith("index: 5 partitions: 4 written (")
    assert pages.startswith("_pages: 4 written (")
    assert pages.endswith("); 28 of 28 column chunks described")
    for flags, actions in (((), {"kept"}), (("--no-pages",), set[str]())):
        report = json.loads(run("index", table, *flags, "--json").stdout)
        assert {found["action"] for one in report["partitions"] if (found := one["pages"])} == actions


def test_files_of_another_name_are_told_and_fail(run: Run, tmp_path: Path) -> None:
    table = copy_parquet_partitions("interval_day", tmp_path)
    first, *others = sorted(table.iterdir())
    for partition in others:
        (partition / "data.parquet").rename(partition / "part-0.parquet")
    told = "holds part-0.parquet, but no data.parquet: rename it, or convert the lake with 'coldparquet convert'"
    mixed = run("index", table)
    assert mixed.exit_code == 1
    assert words(mixed.stdout).count(told) == 3
    assert run("index", table).exit_code == 1  # also when the other one has a sidecar
    (first / "_pm").unlink()
    (first / "data.parquet").rename(first / "part-0.parquet")
    (first / "part-1.parquet").touch()
    alone = run("index", table)
    assert alone.exit_code == 1
    assert "holds part-0.parquet, part-1.parquet, but no data.parquet: convert the lake" in words(alone.stdout)
    assert words(alone.stdout).endswith("4 partitions: 4 skipped")
    counted = run("count", table)
    assert (counted.exit_code, counted.stdout) == (3, "")
    expected = "there is no data.parquet in this directory, and a partition is one file of that name; it holds"
    first_told, _, second_told = counted.stderr.partition(" part-0.parquet, part-1.parquet: convert the lake")
    assert first_told.endswith(expected)
    assert "or the partition was removed or replaced since" in second_told


def test_stale_and_damaged_sidecars_are_told(run: Run, tmp_path: Path) -> None:
    table = copy_parquet_partitions("interval_day", tmp_path)
    run("index", table)
    first, second, third, _ = sorted(table.iterdir())
    (first / "_pm").write_bytes(b"garbage")
    pq.write_table(pq.read_table(second / "data.parquet").slice(0, 1), second / "data.parquet")
    (third / "_pm").unlink()
    result = run("index", table)
    assert result.exit_code == 1
    assert f"{first.name} failed" in words(result.stdout)
    assert f"{second.name} written stale: it described" in words(result.stdout)
    assert "1 failed" in words(result.stdout)


def test_compact_plans_then_compacts_then_purges(run: Run, dead_bytes: Path) -> None:
    before = contents_of(dead_bytes)
    planned = run("compact", dead_bytes, "--dry-run")
    assert (planned.exit_code, planned.stderr) == (0, "")
    assert "2024-01-01.2 69.8 KiB 6 6 row groups of 167 rows on average, where 1 would do" in words(planned.stdout)
    assert words(planned.stdout).endswith("compact: 3 partitions: 2 would compact (139 KiB), 1 skipped")
    assert contents_of(dead_bytes) == before
    done = run("compact", dead_bytes)
    assert (done.exit_code, done.stderr) == (0, "")
    assert "2024-01-01.2 -> 2024-01-01.7 69.8 KiB -> " in words(done.stdout)
    assert " 6 -> 1 unknown -> 7" in words(done.stdout)
    assert "2024-01-03 skipped in QuestDB's native format" in words(done.stdout)
    assert "compact: 3 partitions: 2 compacted (139 KiB -> " in words(done.stdout)
    again = run("compact", dead_bytes, "--purge")
    assert "compact: 3 partitions: 2 unchanged, 1 skipped" in words(again.stdout)
    planned = run("compact", dead_bytes, "--purge", "--purge-after-hours", 0, "--dry-run")
    assert "2 old versions would be removed: 2024-01-01.2, 2024-01-02.1" in planned.stdout
    assert len(directories(dead_bytes)) == 5
    purged = run("compact", dead_bytes, "--purge", "--purge-after-hours", 0)
    assert "2 old versions removed: 2024-01-01.2, 2024-01-02.1" in purged.stdout
    assert directories(dead_bytes) == ["2024-01-01.7", "2024-01-02.8", "2024-01-03"]


def test_a_running_server_is_an_error(run: Run, table: Path) -> None:
    with (table.parent / "tables.d.lock").open("w") as server:
        fcntl.flock(server, fcntl.LOCK_EX)
        result = run("compact", table)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "a QuestDB server is running on this database" in words(result.stderr)
        as_json = json.loads(run("compact", table, "--json").stdout)
        assert as_json["error"]["kind"] == "ServerRunning"


def test_migrate_without_a_transaction(run: Run, table: Path) -> None:
    (table / "_txn").unlink()
    result = run("migrate", table)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("note: skipped: there is no _txn here")


def last_line(text: str) -> str:
    """Return what is said of the catalogue, which is said last, in one line."""
    return " ".join(text[text.rindex("_catalogue: ") :].split())


def test_pack_and_pack_again(run: Run, table: Path) -> None:
    run("index", table)
    planned = run("pack", table, "--dry-run")
    assert (planned.exit_code, planned.stderr) == (0, "")
    assert last_line(planned.stdout).startswith("_catalogue: would write (")
    assert not (table / "_catalogue").exists()
    written = run("pack", table)
    assert written.exit_code == 0
    assert "2024-03-02  left out: in QuestDB's native format" in written.stdout
    assert last_line(written.stdout).startswith("_catalogue: written (")
    told = "), 4 of 5 partitions: readers use it in copies on S3, not here, where no listing tells versions"
    assert last_line(written.stdout).endswith(told)
    assert last_line(run("pack", table).stdout) == last_line(written.stdout).replace("written", "unchanged")
    assert "catalogue" not in run("explain", table).stdout


def test_where_there_is_nothing_to_pack_the_command_fails(run: Run, tmp_path: Path) -> None:
    for path, data in partitions_alone(15).items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    result = run("pack", tmp_path / TABLE)
    assert result.exit_code == 1
    assert "and 3 more" in words(result.stdout)
    assert "left out: without a _txn" in words(result.stdout)
    assert words(result.stdout).endswith("make it in the copy on S3")


@pytest.mark.parametrize("verb", ["index", "migrate", "compact", "publish"])
def test_other_verbs_make_and_renew_the_catalogue(run: Run, table: Path, tmp_path: Path, verb: str) -> None:
    run("migrate", table)
    arguments: list[str | Path] = [verb, table, *([tmp_path / "published"] if verb == "publish" else [])]
    if verb != "publish":
        assert "_catalogue" not in run(*arguments).stdout
    packed = run(*arguments, "--pack", *(["--force"] if verb == "compact" else []))
    assert (packed.exit_code, packed.stderr) == (0, "")
    assert "_catalogue: written (" in packed.stdout
    assert json.loads(run(*arguments, "--json").stdout)["catalogue"]["action"] == "unchanged"


def test_verify_groups_findings_from_the_worst_on(run: Run, table: Path) -> None:
    run("migrate", table)
    sound = run("verify", table)
    assert (sound.exit_code, sound.stderr) == (0, "")
    facts = "verify: 5 partitions (transaction 5 of _txn): 200 rows, 15.7 KiB of Parquet, 1 native (not checked): "
    assert words(sound.stdout) == f"{facts}nothing wrong"
    one, two, three, _ = parquet_partitions(table)
    (one / "_pm").unlink()
    (two / "_pm").unlink()
    warned = run("verify", table)
    assert (warned.exit_code, words(warned.stdout).endswith(f"{facts}2 warnings")) == (0, True)
    os.truncate(three / "data.parquet", 100)
    old = f"{one.name.partition('.')[0]}.0"
    (table / old).mkdir()
    result = run("verify", table)
    assert result.exit_code == 1
    blocks = [words(block) for block in result.stdout.split("\n\n")]
    assert blocks[0].startswith(f"error DataTooShort {three.name} data.parquet: it has 100 bytes")
    assert blocks[0].endswith("to do: copy the partition again")
    assert blocks[1].startswith(f"warning NoSidecar {one.name} there is no _pm")
    assert f" {two.name} there is no _pm" in blocks[1]
    assert blocks[1].endswith("to do: 'coldparquet migrate' writes it")
    assert blocks[2].startswith(f"advice StaleDirectories 1 old directory, not named by _txn: {old}")
    assert blocks[-1].endswith("1 error, 2 warnings, 1 suggestion")
    (table / "2024\x1b[31m").mkdir()
    assert "\x1b" not in run("verify", table).stdout


def test_verify_counts_many_findings_of_a_kind(run: Run, tmp_path: Path) -> None:
    for day in range(1, 31):
        (tmp_path / f"2024-03-{day:02}").mkdir()
    result = run("verify", tmp_path)
    assert result.exit_code == 0
    assert result.stdout.count("there is neither") == 1
    assert "30 partitions there is neither _pm nor data.parquet 2024-03-01 … 2024-03-30" in words(result.stdout)


def test_verify_says_once_what_is_advised_of_several_partitions_alike(run: Run, tmp_path: Path) -> None:
    for day, rows in enumerate([3_000, 6_000, 9_000], start=1):
        partition = tmp_path / f"2024-03-0{day}"
        partition.mkdir()
        pq.write_table(pa.table({"n": range(rows)}), partition / "data.parquet", row_group_size=rows // 10)
    run("index", tmp_path)
    text = words(run("verify", tmp_path).stdout)
    assert text.count("3 partitions 10 row groups of 300 rows on average") == 1
    assert "2024-03-01 … 2024-03-03, numbers of the first" in text


def test_verify_deep_reads_every_byte_and_finds_what_metadata_does_not_tell(run: Run, table: Path) -> None:
    run("migrate", table)
    result = run("verify", table, "--deep")
    assert result.exit_code == 0
    assert "200 rows, 15.7 KiB read and compared, 1 native" in words(result.stdout)
    partition = parquet_partitions(table)[0]
    content = bytearray((partition / "data.parquet").read_bytes())
    content[40:60] = bytes(20)  # in the pages of the first column
    (partition / "data.parquet").write_bytes(content)
    assert run("verify", table).exit_code == 0
    damaged = json.loads(run("verify", table, "--deep", "--json").stdout)
    assert damaged["counts"]["error"] >= 1
    assert damaged["partitions"][0]["read_bytes"] == len(content)
