"""Every golden sidecar: what the reference implementation says of it, and its bytes written again from its content."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from coldparquet.cli.sidecar_dump import describe_sidecar
from coldparquet.errors import ColdParquetError, FormatError, InvalidInputError, UnsupportedError
from coldparquet.format import sidecar_layout
from coldparquet.format.sidecar import Sidecar, parse_sidecar
from coldparquet.format.sidecar_writer import encode_sidecar
from coldparquet.ranges import ByteRange
from tests.support.sidecar_specs import content_from_spec

GOLDEN = Path(__file__).parents[1] / "golden" / "pm"
CASES = sorted(path.stem for path in GOLDEN.glob("*.pm"))
REJECTS = json.loads((GOLDEN / "writer_rejects.json").read_text())


def load(name: str) -> tuple[bytes, dict[str, Any]]:
    return (GOLDEN / f"{name}.pm").read_bytes(), json.loads((GOLDEN / f"{name}.json").read_text())


def of_kind(*kinds: str) -> list[str]:
    return [name for name in CASES if load(name)[1]["kind"] in kinds]


def expected_description(dump: dict[str, Any]) -> dict[str, Any]:
    """The dump's parts, with each bound reduced to what `inspect` shows."""
    for row_group in dump["row_groups"]:
        for chunk in row_group["chunks"]:
            for side in ("min", "max"):
                bound = chunk[side] or {"present": False, "exact": False, "hex": None}
                chunk[side] = {key: bound[key] for key in ("present", "exact", "hex")}
    return {key: dump[key] for key in ("header", "columns", "row_groups", "footer", "chain")}


def test_every_golden_file_is_here() -> None:
    assert len(CASES) == 38
    for name in CASES:
        data, case = load(name)
        assert hashlib.sha256(data).hexdigest() == case["sha256"]


@pytest.mark.parametrize("name", of_kind("good", "accepted", "newer"))
def test_description_equals_reference_dump(name: str) -> None:
    data, case = load(name)
    assert describe_sidecar(data) == expected_description(case["dump"])


@pytest.mark.parametrize("name", of_kind("good", "accepted", "newer"))
def test_older_snapshots_equal_reference_dump(name: str) -> None:
    data, case = load(name)
    for size, dump in case.get("pinned", {}).items():
        assert describe_sidecar(data, sidecar_size_bytes=int(size)) == expected_description(dump)
        # What an earlier reader fetched, before the file grew, is enough.
        assert describe_sidecar(data[: int(size)], sidecar_size_bytes=int(size)) == expected_description(dump)


@pytest.mark.parametrize("name", CASES)
def test_lookups_by_parquet_size_find_the_reference_footer(name: str) -> None:
    data, case = load(name)
    for dump in (case["dump"], *case.get("pinned", {}).values()):
        for lookup in dump.get("lookups", ()):
            wanted, opened_at = lookup["parquet_size_wanted"], dump["opened_at_size"]
            if "error" in lookup:
                with pytest.raises(FormatError) as caught:
                    parse_sidecar(data, parquet_size_bytes=wanted, sidecar_size_bytes=opened_at)
                assert caught.value.kind == lookup["error"]
                continue
            # Checksum and blocks are not what the lookup is about: two bad cases find their footer all the same.
            if {error["stage"] for error in case["errors"]} & {"checksum", "row_group"}:
                continue
            footer = parse_sidecar(data, parquet_size_bytes=wanted, sidecar_size_bytes=opened_at).footer
            assert footer.parquet_size_bytes == wanted
            assert footer.offset == lookup["offset"]
            assert footer.size_bytes == lookup["crc_file_offset"] + 8
            assert footer.seq_txn == lookup["seq_txn"]
            assert footer.block_offsets.tolist() == lookup["block_offsets"]


@pytest.mark.parametrize("name", of_kind("good", "accepted", "newer"))
def test_model_equals_reference_dump(name: str) -> None:
    data, case = load(name)
    dump = case["dump"]
    sidecar = parse_sidecar(data)
    assert sidecar.size_bytes == dump["declared_size"]
    assert sidecar.parquet_size_bytes == dump["footer"]["parquet_size"]
    assert sidecar.designated_timestamp == dump["header"]["designated_timestamp"]
    assert list(sidecar.sorting_columns) == dump["header"]["sorting_columns"]
    assert [column.name for column in sidecar.columns] == [column["name"] for column in dump["columns"]]
    assert [column.physical_type for column in sidecar.columns] == [c["physical_type"] for c in dump["columns"]]
    assert [column.repetition.name.capitalize() for column in sidecar.columns] == [
        column["repetition"] for column in dump["columns"]
    ]
    for column in dump["columns"]:
        first = min(c["index"] for c in dump["columns"] if c["name"] == column["name"])
        assert sidecar.column_index(column["name"]) == first
    assert sidecar.column_index("no such column") is None
    assert sidecar.row_counts.tolist() == [row_group["num_rows"] for row_group in dump["row_groups"]]
    assert sidecar.total_rows == sum(row_group["num_rows"] for row_group in dump["row_groups"])
    assert [footer.size_bytes for footer in sidecar.chain()] == [entry["pm_size"] for entry in dump["chain"]]
    assert_chunks_equal(sidecar, dump)
    assert_blooms_equal(sidecar, dump)


def assert_chunks_equal(sidecar: Sidecar, dump: dict[str, Any]) -> None:
    for column_index in range(sidecar.column_count):
        expected = [row_group["chunks"][column_index] for row_group in dump["row_groups"]]
        chunks = sidecar.chunks(column_index)
        for name in sidecar_layout.COLUMN_CHUNK.dtype.names or ():
            if name not in {"min", "max"}:
                key = f"{name}_raw" if name in {"null_count", "distinct_count"} else name
                assert chunks.stored[name].tolist() == [chunk[key] for chunk in expected], name
        assert chunks.has_null_count.tolist() == [chunk["null_count"] is not None for chunk in expected]
        assert chunks.has_distinct_count.tolist() == [chunk["distinct_count"] is not None for chunk in expected]
        for side in ("min", "max"):
            bounds = getattr(chunks, side)
            stored = [chunk[side] for chunk in expected]
            assert bounds.present.tolist() == [bound is not None for bound in stored]
            assert bounds.exact.tolist() == [bound is not None and bound["exact"] for bound in stored]
            assert bounds.inlined.tolist() == [bound is not None and bound["place"] == "inline" for bound in stored]
            for row_group, bound in enumerate(stored):
                if bound is not None:
                    assert int(bounds.raw[row_group]) == bound["raw"]


def assert_blooms_equal(sidecar: Sidecar, dump: dict[str, Any]) -> None:
    assert list(sidecar.bloom_columns) == dump["header"]["bloom_filter_columns"]
    for row_group in dump["row_groups"]:
        for bloom in row_group.get("blooms", ()):
            location = sidecar.bloom_location(row_group["index"], bloom["column"])
            bitset = sidecar.bloom_bitset(row_group["index"], bloom["column"])
            if sidecar.blooms_external:
                start, length = bloom["parquet_offset"], bloom["parquet_length"]
                assert location == (ByteRange(start, start + length) if length else None)
                assert bitset is None
            else:
                assert (bitset.hex() if bitset is not None else None) == bloom["hex"]
                if bitset is not None:
                    assert location == ByteRange(bloom["offset"] + 4, bloom["offset"] + 4 + bloom["length"])


@pytest.mark.parametrize("name", of_kind("bad"))
def test_bad_files_fail_with_the_reference_error(name: str) -> None:
    data, case = load(name)
    first = case["errors"][0]
    expected_class = UnsupportedError if first["error"] == "UnsupportedFeature" else FormatError
    with pytest.raises(expected_class) as caught:
        describe_sidecar(data, path="bucket/_pm")
    assert caught.value.kind == first["error"]
    assert caught.value.path == "bucket/_pm"
    assert {"offset", "field"} <= caught.value.details.keys()
    for detail in ("stored", "computed", "flags", "row_group"):
        if detail in first:
            assert caught.value.details[detail] == first[detail]


@pytest.mark.parametrize("name", of_kind("bad"))
def test_bad_files_fail_at_the_reference_stage(name: str) -> None:
    data, case = load(name)
    stage = case["errors"][0]["stage"]
    if stage == "lookup":
        parse_sidecar(data)  # the newest snapshot opens; test_lookups shows that the older one does not
        return
    with pytest.raises(ColdParquetError):
        parse_sidecar(data)
    if stage == "checksum":
        parse_sidecar(data, verify_checksum=False)
    else:
        with pytest.raises(ColdParquetError):
            parse_sidecar(data, verify_checksum=False)


@pytest.mark.parametrize("name", of_kind("good"))
def test_writer_makes_the_reference_bytes(name: str) -> None:
    data, case = load(name)
    created = encode_sidecar(content_from_spec(case["spec"]["create"]))
    size = case["snapshot_sizes"][0]
    assert len(created) == size
    # An update rewrites the first 8 bytes, the committed size, and leaves the rest of the first snapshot alone.
    assert created[8:] == data[8:size]
    assert created[:8] == size.to_bytes(8, "little")


@pytest.mark.parametrize("name", [name for name in of_kind("bad", "accepted") if load(name)[1]["edits"]])
def test_files_were_edited_from_what_the_writer_makes(name: str) -> None:
    _, case = load(name)
    created = encode_sidecar(content_from_spec(case["spec"]["create"]))
    assert len(created) == case["snapshot_sizes"][0]
    parse_sidecar(created)


@pytest.mark.parametrize("reject", [r for r in REJECTS if "updates" not in r["spec"]], ids=lambda r: r["about"])
def test_writer_refuses_what_the_reference_refuses(reject: dict[str, Any]) -> None:
    def write() -> None:
        encode_sidecar(content_from_spec(reject["spec"]["create"]))

    if reject["error"] == "Conversion":
        with pytest.raises(FormatError) as caught:
            write()
        assert caught.value.kind == "Conversion"
    else:
        with pytest.raises(InvalidInputError) as refused:
            write()
        assert refused.value.kind == reject["error"]
