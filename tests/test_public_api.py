"""What users see: names, errors, options, sizes in words; and what importing them costs."""

from __future__ import annotations

import inspect
import json
import pickle
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import coldparquet as cp
from coldparquet import errors
from coldparquet.errors import InvalidInputError
from coldparquet.options import COALESCING_BY_GOAL, MAX_RESTORE_DAYS, MIB, ReadOptions, RestoreTerms, parse_byte_count
from coldparquet.ranges import ByteRange

# --- The front door has just these names, and all of them are documented ----------------------------------------------


NAMES = [
    "ColdParquetError",
    "Predicate",
    "ReadOptions",
    "ReadPlan",
    "RestoreTerms",
    "RestoreTicket",
    "Scan",
    "Sidecar",
    "StoreOptions",
    "Table",
    "clear_caches",
    "col",
    "errors",
    "open_partition",
    "open_partitions",
    "open_table",
    "parse_sidecar",
    "pieces",
    "sync",
    "write_table",
]


def test_public_names() -> None:
    assert cp.__all__ == NAMES


def test_everything_public_is_documented() -> None:
    for name in NAMES:
        item = getattr(cp, name)
        assert inspect.getdoc(item), name
        if inspect.isclass(item):
            for member_name, member in inspect.getmembers(item, inspect.isfunction):
                if not member_name.startswith("_"):
                    assert inspect.getdoc(member), f"{name}.{member_name}"


def test_every_name_is_listed() -> None:
    assert set(NAMES) <= set(dir(cp))


def test_other_names_are_unknown() -> None:
    with pytest.raises(AttributeError, match="module 'coldparquet' has no attribute 'open_tabel'"):
        cp.open_tabel  # type: ignore[attr-defined]  # noqa: B018 - looking it up is the test


@pytest.mark.parametrize(
    ("module", "not_loaded"),
    [
        ("coldparquet", "numpy pyarrow fsspec asyncio"),
        ("coldparquet.pieces", "pandas pyspark aiohttp s3fs botocore sqlglot coldparquet.table coldparquet.table_scan"),
        ("pyspark_coldparquet", "pandas aiohttp s3fs botocore sqlglot coldparquet.table coldparquet.pieces"),
        ("coldparquet.spark.task", "pandas aiohttp s3fs botocore sqlglot coldparquet.table coldparquet.table_scan"),
    ],
)
def test_imports_are_light(module: str, not_loaded: str) -> None:
    """Engines import these in processes of their own, some of which do nothing else."""
    script = f"import sys, {module}; print([name for name in {not_loaded.split()!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


async def test_tables_are_written_through_the_front_door(tmp_path: Path) -> None:
    rows = pa.table({"ts": pa.array([3, 1, 2], pa.timestamp("us", "UTC")), "price": [0.3, 0.1, 0.2]})
    written = await cp.write_table(tmp_path / "a", rows, timestamp="ts")
    assert written.is_new
    assert cp.sync.write_table(tmp_path / "b", rows, timestamp="ts", mode="ignore").is_written
    for name in ("a", "b"):
        async with cp.open_table(tmp_path / name) as table:
            assert (await table.scan(["price"]).to_arrow())["price"].to_pylist() == [0.1, 0.2, 0.3]


# --- Errors are part of the interface: their tree, what they carry, and that they survive pickling --------------------


TREE = {
    errors.InvalidInputError: ValueError,
    errors.NotFoundError: FileNotFoundError,
    errors.AccessError: PermissionError,
    errors.StorageError: OSError,
    errors.ObjectChangedError: OSError,
    errors.ArchivedObjectError: OSError,
    errors.FormatError: ValueError,
    errors.UnsupportedError: NotImplementedError,
    errors.BudgetExceededError: ValueError,
    errors.InternalError: RuntimeError,
}


def test_the_tree_is_complete() -> None:
    direct = errors.ColdParquetError.__subclasses__()
    assert {of_tree for of_tree in direct if getattr(errors, of_tree.__name__, None) is of_tree} == set(TREE)


@pytest.mark.parametrize(("error_class", "builtin"), TREE.items())
def test_each_error_is_also_the_builtin_that_people_catch(
    error_class: type[errors.ColdParquetError], builtin: type[Exception]
) -> None:
    assert issubclass(error_class, builtin)
    assert issubclass(error_class, errors.ColdParquetError)


@pytest.mark.parametrize("error_class", TREE)
def test_each_error_pickles_with_everything_it_carries(error_class: type[errors.ColdParquetError]) -> None:
    error = error_class("is too short", kind="Truncated", path="bucket/_pm", offset=4, field="FOOTER_LENGTH")
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(error, protocol))  # noqa: S301 - our own bytes
        assert type(again) is error_class
        assert (str(again), again.kind, again.path, again.details) == (
            "bucket/_pm: is too short",
            "Truncated",
            "bucket/_pm",
            {"offset": 4, "field": "FOOTER_LENGTH"},
        )


def test_kinds_of_the_classes_differ() -> None:
    kinds = {error_class("x").kind for error_class in TREE}
    assert len(kinds) == len(TREE)


def test_an_error_is_plain_data_too() -> None:
    error = errors.FormatError("is too short", kind="Truncated", path="_pm", offset=4, asked=[ByteRange(0, 8)])
    assert json.loads(json.dumps(error.as_dict())) == {
        "kind": "Truncated",
        "message": "is too short",
        "path": "_pm",
        "offset": 4,
        "asked": ["[0, 8)"],
    }


# --- Options: limits, goals and how they become request lengths -------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted_bytes", "part_bytes"),
    [(0, 3 * MIB // 4), (2 * MIB, 3 * MIB // 4), (64 * MIB, 2 * MIB), (10_000 * MIB, 4 * MIB)],
)
def test_fast_reads_use_all_connections_before_requests_grow(wanted_bytes: int, part_bytes: int) -> None:
    assert COALESCING_BY_GOAL[ReadOptions().goal].part_bytes(wanted_bytes, max_concurrency=32) == part_bytes


@pytest.mark.parametrize(
    "wrong",
    [
        {"sidecar_prefix_bytes": 31},
        {"coalesce_gap_bytes": -1},
        {"max_request_bytes": 0},
        {"max_concurrency": 0},
        {"memory_limit_bytes": 0},
        {"batch_rows": 1.5},
        {"max_concurrency": "3"},
        {"memory_limit_bytes": None},
        {"decode_threads": 0},
        {"symbols": "categories"},
        {"goal": "best"},
        {"goal": []},
        {"max_bytes": -1},
        {"max_requests": 1.5},
        {"max_usd": float("nan")},
        {"max_usd": "1"},
        {"prices": {"STANDARD": 1}},
        {"archived": "skip", "check_storage_classes": False},
        {"archived": "restore", "check_storage_classes": False},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_an_option_out_of_its_range_is_named(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError, match=f"ReadOptions.{next(iter(wrong))} is"):
        ReadOptions(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("days", [0, True, 1.5, MAX_RESTORE_DAYS + 1, 2**31, 10**12])
def test_a_copy_is_restored_for_a_number_of_days_that_can_be_meant(days: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"RestoreTerms\.days is"):
        RestoreTerms(days=days)
    assert RestoreTerms(days=MAX_RESTORE_DAYS).days == 3_650


def test_help_names_every_switch() -> None:
    text = inspect.getdoc(ReadOptions) or ""
    assert [field.name for field in fields(ReadOptions) if f"``{field.name}``" not in text] == []


def test_options_of_another_type_are_refused() -> None:
    wrong: list[Any] = [{"goal": "cheap"}, {}, "fast", ReadOptions]
    for options in wrong:
        for open_ in (cp.open_table, cp.open_partition, cp.sync.open_table):
            with pytest.raises(InvalidInputError, match=r"it must be ReadOptions, such as .*ReadOptions\(goal="):
                open_("nowhere", options=options)


# --- Sizes as people write them ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0),
        ("1000000", 10**6),
        ("250MB", 250 * 10**6),
        ("250M", 250 * 10**6),
        ("1.5GiB", 1_610_612_736),
        ("1.5 gib", 1_610_612_736),
        ("12 B", 12),
    ],
)
def test_sizes(text: str, count: int) -> None:
    assert parse_byte_count(text) == count


@pytest.mark.parametrize("text", ["", "MB", "-1", "1e6", "1.2.3", "5XB", "1,000", "٣", "nan"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="it must be a number of bytes, such as"):
        parse_byte_count(text)
