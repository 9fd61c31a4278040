"""``coldparquet scan``, ``explain`` and ``count``: the rows are those that QuestDB answers, in every format."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.cli import rows as row_files
from coldparquet.cli.output import wrap_long_lines
from coldparquet.cli.rows import ParquetSink, json_rows
from coldparquet.plan.predicate import format_instant
from tests.support.command_line import Run
from tests.support.questdb_tables import PARTITIONS, as_questdb_shows, plain

TABLES = ["types_all", "interval_day", "symbols", "row_groups"]


def answer(name: str) -> pa.Table:
    """The rows of the table's Parquet partitions, as QuestDB answers them."""
    return plain(pa.concat_tables([partition.expected() for partition in PARTITIONS if partition.table == name]))


def shown(rows: pa.Table) -> pa.Table:
    return plain(as_questdb_shows(rows))


@pytest.mark.parametrize("name", TABLES)
def test_parquet_output(run: Run, questdb_table: Callable[[str], Path], tmp_path: Path, name: str) -> None:
    output = tmp_path / "out.parquet"
    result = run("scan", questdb_table(name), "--output", output)
    assert result.exit_code == 0
    assert result.stdout == f"{answer(name).num_rows:,} rows in {output}\n"
    assert shown(pq.read_table(output)).equals(answer(name))


@pytest.mark.parametrize("suffix", ["arrow", "feather"])
@pytest.mark.parametrize("name", TABLES)
def test_arrow_output(run: Run, questdb_table: Callable[[str], Path], tmp_path: Path, name: str, suffix: str) -> None:
    output = tmp_path / f"out.{suffix}"
    assert run("scan", questdb_table(name), "--output", output).exit_code == 0
    with pa.memory_map(str(output)) as source:
        assert shown(pa.ipc.open_file(source).read_all()).equals(answer(name))


def iso(column: pa.ChunkedArray[Any]) -> list[str | None]:
    """Timestamps as plans write them, one by one in Python."""
    steps = column.cast(pa.int64()).to_pylist()
    return [None if step is None else format_instant(step, column.type.unit) for step in steps]


def test_csv_output(run: Run, questdb_table: Callable[[str], Path], tmp_path: Path) -> None:
    output = tmp_path / "out.csv"
    assert run("scan", questdb_table("types_all"), "-o", output).exit_code == 0
    with output.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    expected = answer("types_all")
    assert list(rows[0]) == expected.schema.names
    for name in ("day", "at", "at_ns", "ts"):
        assert [row[name] or None for row in rows] == iso(expected[name])
    for name in ("hash", "blob", "id"):
        assert [bytes.fromhex(row[name]) for row in rows] == [value or b"" for value in expected[name].to_pylist()]
    assert [row["num"] for row in rows] == ["" if n is None else str(n) for n in expected["num"].to_pylist()]
    assert [row["dec64"] for row in rows] == ["" if d is None else str(d) for d in expected["dec64"].to_pylist()]
    grids = [json.loads(row["grid"]) if row["grid"] else None for row in rows]
    assert grids == [nan_as_none(grid) for grid in expected["grid"].to_pylist()]


def nan_as_none(value: Any) -> Any:
    if isinstance(value, list):
        return [nan_as_none(item) for item in value]
    return None if value != value else value  # noqa: PLR0124 - only NaN differs from itself


def test_csv_on_standard_output(run: Run, questdb_table: Callable[[str], Path], tmp_path: Path) -> None:
    table, output = questdb_table("interval_day"), tmp_path / "out.csv"
    run("scan", table, "-o", output)
    assert run("scan", table).stdout == output.read_text(encoding="utf-8")


def test_json_lines(run: Run, questdb_table: Callable[[str], Path]) -> None:
    result = run("scan", questdb_table("types_all"), "--json")
    rows = [json.loads(line, parse_constant=pytest.fail) for line in result.stdout.splitlines()]
    expected = answer("types_all")
    assert len(rows) == expected.num_rows
    for name in ("flag", "num", "big", "price", "text", "sym", "label"):
        assert [row[name] for row in rows] == expected[name].to_pylist()
    for name in ("day", "at", "at_ns", "ts"):
        assert [row[name] for row in rows] == iso(expected[name])
    assert [row["arr"] for row in rows] == [nan_as_none(array) for array in expected["arr"].to_pylist()]


def test_columns_where_and_limit(run: Run, questdb_table: Callable[[str], Path]) -> None:
    table = questdb_table("types_all")
    expected = answer("types_all").filter(pc.field("price") > 0).select(["ts", "price"])
    assert expected.num_rows > 10
    everything = run("scan", table, "--columns", "ts,price", "--where", "price > 0", "--json").stdout.splitlines()
    assert [json.loads(line)["price"] for line in everything] == expected["price"].to_pylist()
    assert list(json.loads(everything[0])) == ["ts", "price"]
    limited = run("scan", table, "-c", "ts", "-c", "price", "-w", "price > 0", "-n", 10, "--json").stdout.splitlines()
    assert limited == everything[:10]
    last = run("scan", table, "-c", "ts,price", "-w", "price > 0", "--tail", 10, "--json").stdout.splitlines()
    assert last == everything[-10:]
    assert run("count", table, "--where", "price > 0").stdout == f"{expected.num_rows}\n"
    assert json.loads(run("count", table, "--json").stdout) == {"url": str(table), "rows": answer("types_all").num_rows}


def test_a_column_name_with_a_comma(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a,b": [1, 2], "c": [3, 4]}), path)
    assert run("scan", path, "--columns", '"a,b", c').stdout == '"a,b","c"\n1,3\n2,4\n'


def test_explain(run: Run, questdb_table: Callable[[str], Path]) -> None:
    arguments = (questdb_table("row_groups"), "--columns", "ts", "--where", "ts < '2024-01-01T01'")
    text = run("explain", *arguments)
    assert text.exit_code == 0
    assert text.stdout.startswith("Read plan for ")
    assert "pruned" in text.stdout
    plan = json.loads(run("explain", *arguments, "--json").stdout)
    assert plan["columns"] == ["ts"]
    assert plan["request_count"] == len(plan["requests"])


def test_many_small_batches_become_few_row_groups(tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int64())])
    with (tmp_path / "out.parquet").open("wb") as file:
        sink = ParquetSink(file, schema)
        for number in range(100):
            sink.write(pa.RecordBatch.from_pydict({"n": [number]}, schema=schema))
        sink.close()
    assert pq.read_metadata(tmp_path / "out.parquet").num_row_groups == 1
    assert pq.read_table(tmp_path / "out.parquet")["n"].to_pylist() == list(range(100))


def test_row_groups_end_when_memory_would_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_files, "_ROW_GROUP_BYTES", 16)
    schema = pa.schema([("n", pa.int64())])
    with (tmp_path / "out.parquet").open("wb") as file:
        sink = ParquetSink(file, schema)
        for number in range(6):
            sink.write(pa.RecordBatch.from_pydict({"n": [number]}, schema=schema))
        sink.close()
    assert pq.read_metadata(tmp_path / "out.parquet").num_row_groups == 3


def test_no_rows(run: Run, questdb_table: Callable[[str], Path], tmp_path: Path) -> None:
    table = questdb_table("interval_day")
    nothing = ("--columns", "ts,price", "--where", "price > 1e300")
    assert run("scan", table, *nothing).stdout == '"ts","price"\n'
    assert run("scan", table, *nothing, "--json").stdout == ""
    output = tmp_path / "out.parquet"
    assert run("scan", table, *nothing, "-o", output).stdout == f"0 rows in {output}\n"
    assert pq.read_table(output).schema.names == ["ts", "price"]


def test_a_failed_scan_leaves_the_old_output_and_nothing_else(
    run: Run, questdb_table: Callable[[str], Path], tmp_path: Path
) -> None:
    table = questdb_table("interval_day")
    last = max(table.iterdir()) / "data.parquet"
    whole = last.read_bytes()
    last.write_bytes(bytes(len(whole) - 2000) + whole[-2000:])  # the footer is there, the pages are not
    directory = tmp_path / "out"
    directory.mkdir()
    for name in ("rows.parquet", "rows.csv", "rows.arrow"):
        (directory / name).write_text("older")
        result = run("scan", table, "-o", directory / name)
        assert result.exit_code == 5
        assert result.stderr.startswith("error: ")
    assert {path.name: path.read_text() for path in directory.iterdir()} == {
        "rows.parquet": "older",
        "rows.csv": "older",
        "rows.arrow": "older",
    }


def test_a_scan_that_fails_at_its_first_rows_prints_no_header(run: Run, questdb_table: Callable[[str], Path]) -> None:
    table = questdb_table("interval_day")
    first = min(table.iterdir()) / "data.parquet"
    whole = first.read_bytes()
    first.write_bytes(bytes(len(whole) - 2000) + whole[-2000:])  # the footer is there, the pages are not
    for flags in ((), ("--tail", "10000")):
        result = run("scan", table, *flags)
        assert (result.exit_code, result.stdout) == (5, "")
        assert result.stderr.startswith("error: ")


def test_csv_null_and_empty_text_differ() -> None:
    text = io.BytesIO()
    sink = row_files.CsvSink(text, pa.schema([("s", pa.string())]))
    sink.write(pa.RecordBatch.from_pydict({"s": [None, "", 'a"b', "line\nbreak"]}))
    assert text.getvalue() == b'"s"\n\n""\n"a""b"\n"line\nbreak"\n'


def test_times_that_iso_text_cannot_hold_are_numbers() -> None:
    limits = [
        -(2**63),
        -62_135_596_800_000_001,
        -62_135_596_800_000_000,
        253_402_300_799_999_999,
        253_402_300_800_000_000,
    ]
    times = pa.array([*limits, None], pa.timestamp("us"))
    days = pa.array([-719_163, -719_162, 0, 2_932_896, 2_932_897, None], pa.date32())
    rows = json_rows(pa.RecordBatch.from_pydict({"at": times, "day": days}))
    assert [row["at"] for row in rows] == [
        str(-(2**63)),
        "-62135596800000001",
        "0001-01-01T00:00:00.000000",
        "9999-12-31T23:59:59.999999",
        "253402300800000000",
        None,
    ]
    assert [row["day"] for row in rows] == ["-719163", "0001-01-01", "1970-01-01", "9999-12-31", "2932897", None]


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_nothing_is_printed_before_the_question_is_understood(
    run: Run, questdb_table: Callable[[str], Path], flags: tuple[str, ...]
) -> None:
    result = run("scan", questdb_table("interval_day"), "--tail", 3, "--limit", 2, *flags)
    assert result.exit_code == 1
    assert "a scan with a limit has only its first ones" in result.stdout + result.stderr
    if flags:
        assert json.loads(result.stdout)["error"]["kind"] == "LimitNotAllowed"
    else:
        assert result.stdout == ""


def test_columns_of_all_partitions_are_asked_for_by_a_flag(run: Run, tmp_path: Path) -> None:
    for day, rows in enumerate(
        (pa.table({"x": [2**40], "old": ["a"]}), pa.table({"x": pa.array([1], pa.int32())})), start=1
    ):
        (tmp_path / f"t/2024-03-0{day}").mkdir(parents=True)
        pq.write_table(rows, tmp_path / f"t/2024-03-0{day}/data.parquet")
    refused = run("scan", tmp_path / "t", "--output", "-")
    assert refused.exit_code == 1
    assert "open it with --columns-from all to read both as LONG" in refused.stderr.replace("\n", " ")
    printed = run("scan", tmp_path / "t", "--output", "-", "--columns-from", "all").stdout
    assert printed.split() == ['"x","old"', f'{2**40},"a"', "1,"]
    assert run("count", tmp_path / "t", "--where", "x > 5", "--columns-from", "all").stdout == "1\n"
    assert "snapshot" in run("explain", tmp_path / "t", "--columns-from", "all").stdout


# --- Aligned text on terminals that are narrower than it --------------------------------------------------------------


PLAN = """\
price         $1.60 for a million reads like this, data requests only, in the region
              as S3 Standard would charge

request  partition     first byte   length  for
      1  2024-02-27.4           4  2.8 KiB  row group 0: id, sym, side, price +3 more"""


def test_lines_are_broken_between_words_and_go_on_below_the_facts() -> None:
    assert (
        wrap_long_lines(PLAN, 60)
        == """\
price         $1.60 for a million reads like this, data
              requests only, in the region
              as S3 Standard would charge

request  partition     first byte   length  for
      1  2024-02-27.4           4  2.8 KiB  row group 0: id,
              sym, side, price +3 more"""
    )


def test_what_fits_stays_as_it_is() -> None:
    assert wrap_long_lines(PLAN, 100) == PLAN


@given(text=st.text(alphabet="ab ,-\n"), width=st.integers(1, 40))
def test_no_word_is_lost_or_broken(text: str, width: int) -> None:
    wrapped = wrap_long_lines(text, width)
    assert wrapped.split() == text.split()
    assert all(len(line) <= max(width, 14 + max(map(len, text.split()), default=0)) for line in wrapped.split("\n"))
