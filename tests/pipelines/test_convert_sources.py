"""What is converted as plain Parquet files: only directories of which every file counts, with columns that fit."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import coldparquet as cp
from coldparquet.pipelines import ConvertJob, LocalEngine, run_pipeline
from coldparquet.pipelines.model import WorkResult
from tests.support.small_tables import LOGS
from tests.support.table_copies import copy_table

DRY_OR_NOT = pytest.mark.parametrize("dry_run", [False, True])


def write_rows(path: Path, *, rows: int = 10) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    times = pa.array(range(rows), pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"ts": times, "side": ["buy"] * rows}), path)
    return path


def mark(table: Path, log: str) -> None:
    path = table / LOGS[log]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")


async def converted(
    source: Path, destination: Path, *, dry_run: bool, timestamp: str = "ts", symbols: tuple[str, ...] = ()
) -> WorkResult:
    job = ConvertJob(
        destination=str(destination),
        source_format="parquet",
        destination_format="coldparquet",
        timestamp=timestamp,
        symbols=symbols,
        dry_run=dry_run,
    )
    [result] = (await run_pipeline(job, str(source), engine=LocalEngine(processes=1))).results
    return result


@DRY_OR_NOT
@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize(
    "source", ["", "ts_day=1970-01-01", "data", "data/ts_day=1970-01-01", "data/ts_day=1970-01-01/a.parquet"]
)
async def test_a_table_that_keeps_a_log_is_not_converted_as_plain_files(
    tmp_path: Path, log: str, source: str, *, dry_run: bool
) -> None:
    table = tmp_path / "table"
    for directory in ("data/ts_day=1970-01-01", "ts_day=1970-01-01"):
        write_rows(table / directory / "a.parquet")
        write_rows(table / directory / "removed.parquet")
    mark(table, log)
    result = await converted(table / source, tmp_path / "to", dry_run=dry_run)
    assert (result.outcome, result.kind) == ("failed", "LoggedTable")
    assert f"--from-format {log}" in (result.reason or "")
    assert not (tmp_path / "to").exists()


@DRY_OR_NOT
@pytest.mark.parametrize("log", LOGS)
async def test_a_table_that_keeps_a_log_is_found_among_plain_files(tmp_path: Path, log: str, *, dry_run: bool) -> None:
    write_rows(tmp_path / "files" / "a.parquet")
    write_rows(tmp_path / "files" / "deep" / "table" / "b.parquet")
    mark(tmp_path / "files" / "deep" / "table", log)
    result = await converted(tmp_path / "files", tmp_path / "to", dry_run=dry_run)
    assert (result.outcome, result.kind) == ("failed", "LoggedTable")
    alone = await converted(tmp_path / "files" / "a.parquet", tmp_path / "to", dry_run=dry_run)
    assert alone.outcome == "done"


@DRY_OR_NOT
async def test_partitions_that_do_not_count_are_not_converted_as_plain_files(tmp_path: Path, *, dry_run: bool) -> None:
    table = copy_table("interval_day", tmp_path)
    result = await converted(table, tmp_path / "to", dry_run=dry_run)
    assert (result.outcome, result.kind) == ("failed", "NotPlainFiles")
    assert "_txn" in (result.reason or "")

    for name in ("1970-01-01.2", "1970-01-01", "1970-01-02.2"):
        write_rows(tmp_path / "versions" / name / "data.parquet")
    result = await converted(tmp_path / "versions", tmp_path / "to", dry_run=dry_run)
    assert (result.outcome, result.kind) == ("failed", "NotPlainFiles")
    assert "1970-01-01, 1970-01-01.2 are versions of one partition" in (result.reason or "")
    assert not (tmp_path / "to").exists()


@pytest.mark.slow
async def test_a_dry_run_knows_what_a_table_cannot_be_made_of(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "files" / "a.parquet").parent
    wrong: list[tuple[str, tuple[str, ...], str]] = [
        ("tss", (), "UnknownColumn"),
        ("side", (), "NotATimestamp"),
        ("ts", ("price",), "UnknownColumn"),
    ]
    for timestamp, symbols, kind in wrong:
        for dry_run in (True, False):
            result = await converted(source, tmp_path / "to", dry_run=dry_run, timestamp=timestamp, symbols=symbols)
            assert (result.outcome, result.kind) == ("failed", kind)
    missing = await converted(tmp_path / "nowhere", tmp_path / "to", dry_run=True)
    assert missing.outcome == "failed"
    assert (await converted(source, tmp_path / "to", dry_run=True)).action == "would convert"
    assert not (tmp_path / "to").exists()
    assert (await converted(source, tmp_path / "to", dry_run=False)).rows == 10


async def test_the_advice_for_a_mix_of_layouts_makes_one_table_of_it(tmp_path: Path) -> None:
    mixed = tmp_path / "mixed"
    names = ["1970-01-01/data.parquet", "1970-01-01/part-1.parquet", "b.parquet", "19700103/c.parquet"]
    for name in names:
        write_rows(mixed / name)
    with pytest.raises(cp.errors.UnsupportedError, match="convert"):
        await cp.open_table(mixed)
    assert (await converted(mixed, tmp_path / "to", dry_run=False)).outcome == "done"
    async with cp.open_table(tmp_path / "to") as table:
        assert await table.scan().count() == 10 * len(names)
