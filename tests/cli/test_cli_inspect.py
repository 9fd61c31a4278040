"""``coldparquet inspect`` over every golden sidecar: the reference implementation's dump, or its error."""

from __future__ import annotations

import asyncio
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coldparquet.maintenance.index import index_table
from coldparquet_testing.simulator import ColdStoreServer
from tests.support.command_line import Run

GOLDEN = Path(__file__).parents[1] / "golden" / "pm"
CASES = {path.stem: json.loads(path.with_suffix(".json").read_text()) for path in sorted(GOLDEN.glob("*.pm"))}
PARTS = ("header", "columns", "row_groups", "footer", "chain")


def of_kind(*kinds: str) -> list[str]:
    return [name for name, case in CASES.items() if case["kind"] in kinds]


def expected(dump: dict[str, Any]) -> dict[str, Any]:
    """The parts of a dump that ``inspect`` prints, with each bound reduced to what it shows."""
    row_groups = [
        {**row_group, "chunks": [{**chunk, **shown_bounds(chunk)} for chunk in row_group["chunks"]]}
        for row_group in dump["row_groups"]
    ]
    return {**{part: dump[part] for part in PARTS}, "row_groups": row_groups}


def shown_bounds(chunk: dict[str, Any]) -> dict[str, Any]:
    absent = {"present": False, "exact": False, "hex": None}
    return {side: {key: (chunk[side] or absent)[key] for key in absent} for side in ("min", "max")}


@pytest.mark.parametrize("name", of_kind("good", "accepted", "newer"))
def test_json_equals_the_reference_dump(run: Run, name: str) -> None:
    result = run("inspect", "--json", GOLDEN / f"{name}.pm")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == expected(CASES[name]["dump"])


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name].get("pinned")])
def test_pm_size_shows_an_older_snapshot(run: Run, name: str) -> None:
    for size, dump in CASES[name]["pinned"].items():
        result = run("inspect", "--json", "--pm-size", size, GOLDEN / f"{name}.pm")
        assert json.loads(result.stdout) == expected(dump)


@pytest.mark.parametrize("name", of_kind("good", "accepted", "newer"))
def test_parquet_size_finds_the_footer_that_the_reference_finds(run: Run, name: str) -> None:
    for lookup in CASES[name]["dump"]["lookups"]:
        result = run("inspect", "--json", "--parquet-size", lookup["parquet_size_wanted"], GOLDEN / f"{name}.pm")
        if "error" in lookup:
            assert json.loads(result.stdout)["error"]["kind"] == lookup["error"]
            continue
        footer = json.loads(result.stdout)["footer"]
        assert footer["offset"] == lookup["offset"]
        assert footer["parquet_size"] == lookup["parquet_size_wanted"]
        assert footer["block_offsets"] == lookup["block_offsets"]


def test_parquet_size_that_no_snapshot_has(run: Run) -> None:
    result = run("inspect", "--json", "--parquet-size", 12345, GOLDEN / "20_chain_3.pm")
    assert result.exit_code == 5
    assert set(json.loads(result.stdout)) == {"error"}


@pytest.mark.parametrize("name", of_kind("bad"))
def test_bad_files_are_refused_with_the_reference_error(run: Run, name: str) -> None:
    path = GOLDEN / f"{name}.pm"
    result = run("inspect", "--json", path)
    error = json.loads(result.stdout)["error"]
    code = 1 if error["kind"] == "UnsupportedFeature" else 5
    assert result.exit_code == code
    assert error["kind"] == CASES[name]["errors"][0]["error"]
    assert error["path"] == str(path)
    assert error["message"]

    as_text = run("inspect", path)
    assert as_text.exit_code == code
    assert as_text.stderr.startswith(f"error: {path}: ")
    assert as_text.stdout == ""


def test_one_line_per_file_and_a_bad_one_does_not_hide_the_others(run: Run) -> None:
    names = ["03_sample_a", "40_bad_cut_last_byte", "04_sample_b"]
    result = run("inspect", "--json", *(GOLDEN / f"{name}.pm" for name in names))
    first, second, third = map(json.loads, result.stdout.splitlines())
    assert result.exit_code == 5
    assert first == expected(CASES["03_sample_a"]["dump"])
    assert second["error"]["kind"] == "Truncated"
    assert third == expected(CASES["04_sample_b"]["dump"])


@pytest.mark.parametrize("name", of_kind("good", "accepted", "newer"))
def test_text_names_every_column_and_row_group(run: Run, name: str) -> None:
    result = run("inspect", GOLDEN / f"{name}.pm")
    assert result.exit_code == 0
    dump = CASES[name]["dump"]
    for row_group in dump["row_groups"]:
        assert f"{row_group['num_rows']:,}" in result.stdout
    if name != "07_names":  # its names hold line breaks and what else names can hold
        for column in dump["columns"]:
            assert column["name"] in result.stdout


def test_text_says_what_people_look_for(run: Run) -> None:
    text = run("inspect", GOLDEN / "20_chain_3.pm").stdout
    for fact in ("5,018 bytes", "32 in 3 row groups", "TIMESTAMP", "1970-01-01 00:00:00.000300", "correct"):
        assert fact in text
    assert [line.split()[0] for line in text.splitlines()[-4:-1]] == ["shown", "-1", "-2"]


@pytest.mark.parametrize("form", ["directory", "directory/", "data.parquet", "_pm"])
def test_the_sidecar_of_a_partition(run: Run, tmp_path: Path, form: str) -> None:
    partition = tmp_path / "2024-03-01.12"
    partition.mkdir()
    (partition / "_pm").write_bytes((GOLDEN / "03_sample_a.pm").read_bytes())
    argument = {"directory": str(partition), "directory/": f"{partition}/"}.get(form, str(partition / form))
    assert json.loads(run("inspect", "--json", argument).stdout) == expected(CASES["03_sample_a"]["dump"])


def test_a_directory_without_sidecar(run: Run, tmp_path: Path) -> None:
    result = run("inspect", tmp_path)
    assert result.exit_code == 3
    assert result.stderr == run("count", tmp_path).stderr


@pytest.mark.parametrize("magic", [b"PAR1", b"PARE"])
def test_a_parquet_file_without_sidecar_is_named_as_one(run: Run, tmp_path: Path, magic: bytes) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": [1, 2]}), path)
    path.write_bytes(magic + path.read_bytes()[4:])
    result = run("inspect", path)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {path}: this is a Parquet file, and no sidecar describes it;")
    assert "'coldparquet scan'" in result.stderr
    assert json.loads(run("inspect", "--json", path).stdout)["error"]["kind"] == "NoSidecar"


@pytest.mark.parametrize("content", [b"", b"short", b"# Some notes, and nothing that a sidecar begins with."])
def test_only_what_is_named_a_sidecar_is_said_to_be_a_damaged_one(run: Run, tmp_path: Path, content: bytes) -> None:
    notes, sidecar = tmp_path / "notes.md", tmp_path / "_pm"
    notes.write_bytes(content)
    sidecar.write_bytes(content)
    result = run("inspect", notes)
    assert result.exit_code == 5
    assert result.stderr.startswith(f"error: {notes}: this is no sidecar, or one that was cut off; give a _pm")
    assert "it is no sidecar" in (of_sidecar := run("inspect", sidecar).stderr) or "index --force" in of_sidecar


def test_from_an_object_store(run: Run, tmp_path: Path) -> None:
    partition = tmp_path / "bucket" / "trades" / "2024-03-01.12"
    partition.mkdir(parents=True)
    # Large enough for two requests, and followed by bytes that were never committed.
    (partition / "_pm").write_bytes((GOLDEN / "13_out_of_line.pm").read_bytes() + b"not committed")
    with ColdStoreServer(tmp_path) as server:
        credentials = ("--storage-option", "key=cold-store", "--storage-option", "secret=cold-store")
        store = (*credentials, "--endpoint-url", server.endpoint_url)
        result = run("inspect", "--json", "s3://bucket/trades/2024-03-01.12", *store)
        assert json.loads(result.stdout) == expected(CASES["13_out_of_line"]["dump"])

        missing = run("inspect", "s3://bucket/trades/2024-03-02", *store)
        assert missing.exit_code == 3
        assert missing.stderr.startswith("error: s3://bucket/trades/2024-03-02: ")


def test_text_of_a_file_whose_columns_are_numbered_wrongly(run: Run, tmp_path: Path) -> None:
    sidecar = bytearray((GOLDEN / "03_sample_a.pm").read_bytes())
    sidecar[16:20] = (77).to_bytes(4, "little")  # the designated timestamp
    footer = CASES["03_sample_a"]["dump"]["footer"]
    checksum = zlib.crc32(sidecar[8 : footer["crc_file_offset"]])
    sidecar[footer["crc_file_offset"] : footer["crc_file_offset"] + 4] = checksum.to_bytes(4, "little")
    path = tmp_path / "_pm"
    path.write_bytes(sidecar)
    result = run("inspect", path)
    assert result.exit_code == 0
    assert "column 77, which does not exist" in result.stdout


def test_control_characters_do_not_reach_the_terminal(run: Run) -> None:
    text = run("inspect", GOLDEN / "07_names.pm").stdout
    assert not set(text) & set(map(chr, [*range(9), *range(11, 32), *range(127, 160)]))


@pytest.fixture
def pages_path(tmp_path: Path) -> Path:
    """A ``_pages`` of 100 row groups of 1 column with 60 pages each, of more than 64 KiB."""
    directory = tmp_path / "2024-03-01"
    directory.mkdir()
    values = np.random.default_rng(1).integers(0, 2**62, 300_000)
    pq.write_table(
        pa.table({"x": values}), directory / "data.parquet", row_group_size=3_000, use_dictionary=False,
        write_page_index=True, write_batch_size=50, data_page_size=50,
    )  # fmt: skip
    asyncio.run(index_table(directory, pages=True, pack=False))
    return directory / "_pages"


def test_pages_are_summed_up(run: Run, pages_path: Path) -> None:
    size_bytes = pages_path.stat().st_size
    assert size_bytes > 65_536
    described = json.loads(run("inspect", "--json", pages_path).stdout)["pages_file"]
    assert {name: described[name] for name in ("row_groups", "columns", "pages", "bytes")} == {
        "row_groups": 100, "columns": 1, "pages": 6_000, "bytes": size_bytes,
    }  # fmt: skip
    assert described["parquet_size"] == (pages_path.parent / "data.parquet").stat().st_size
    text = run("inspect", pages_path).stdout
    assert "6,000 pages in 100 row groups of 1 column" in text
    # It is known by what it holds, not by its name.
    copy = pages_path.rename(pages_path.with_name("copy"))
    assert json.loads(run("inspect", "--json", copy).stdout)["pages_file"] == described


def test_damaged_pages_are_refused_as_such(run: Run, pages_path: Path) -> None:
    data = pages_path.read_bytes()
    for damaged, kind in (
        (data[:-1], "Truncated"),
        (data[:1_000], "Truncated"),
        (data[:-1] + bytes([data[-1] ^ 1]), "ChecksumMismatch"),
        (data[:16] + (2**40).to_bytes(8, "little") + data[24:], "InvalidValue"),
        (data[:16] + (1).to_bytes(8, "little") + data[24:], "Truncated"),
    ):
        pages_path.write_bytes(damaged)
        result = run("inspect", "--json", pages_path)
        assert (result.exit_code, json.loads(result.stdout)["error"]["kind"]) == (5, kind)
