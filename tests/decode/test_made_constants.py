"""Chunks whose statistics prove that every row holds one value are made; the rows are those of the file all the same."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coldparquet.errors import FormatError
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.format.sidecar_writer import encode_sidecar
from coldparquet.format.type_codes import TypeTag
from coldparquet.format.types import canonical_type
from coldparquet.plan.model import RowSelection
from tests.support.questdb_tables import plain

ROWS = 100

CONSTANTS: dict[str, Any] = {
    "long": pa.array([-(2**63)] * ROWS, pa.int64()),
    "int": pa.array([-7] * ROWS, pa.int32()),
    "short": pa.array([-3] * ROWS, pa.int16()),
    "byte": pa.array([127] * ROWS, pa.int8()),
    "day": pa.array([date(1969, 12, 31)] * ROWS),
    "ms": pa.array([-1] * ROWS, pa.timestamp("ms", tz="UTC")),
    "us": pa.array([1] * ROWS, pa.timestamp("us")),
    "clock": pa.array([5] * ROWS, pa.time64("ns")),
    "text": pa.array(["é🚀ab"] * ROWS),
    "blob": pa.array([b"\0\xff"] * ROWS, pa.binary()),
    "id": pa.array([bytes(range(16))] * ROWS, pa.binary(16)),
    "hash": pa.array([b"\x80" * 32] * ROWS, pa.binary(32)),
    "money": pa.array([Decimal("-1.250")] * ROWS, pa.decimal128(18, 3)),
    "cents": pa.array([Decimal("0.05")] * ROWS, pa.decimal128(4, 2)),
}
FETCHED: dict[str, Any] = {
    "ratio": pa.array([0.5] * ROWS),
    "single": pa.array([0.5] * ROWS, pa.float32()),
    "zeros": pa.array([0.0, -0.0] * (ROWS // 2)),
    "nan": pa.array([1.0] + [float("nan")] * (ROWS - 1)),
    "flag": pa.array([True] * ROWS),
    "long_text": pa.array(["123456789"] * ROWS),
    "empty": pa.array([""] * ROWS),
    "some_null": pa.array([1] * (ROWS - 1) + [None]),
    "two": pa.array([1] * (ROWS - 1) + [2]),
    "two_ids": pa.array([bytes(16)] * (ROWS - 1) + [bytes(15) + b"\1"], pa.binary(16)),
    "wide": pa.array([Decimal(1)] * ROWS, pa.decimal128(38, 0)),
    "unsigned": pa.array([5] * ROWS, pa.uint32()),
    "list": pa.array([[1.0]] * ROWS),
}


def written(columns: dict[str, Any], *, required: bool = False, **options: Any) -> bytes:
    table = pa.table(columns)
    if required:
        table = table.cast(pa.schema([field.with_nullable(False) for field in table.schema]))
    output = pa.BufferOutputStream()
    pq.write_table(table, output, **options)
    content: bytes = output.getvalue().to_pybytes()
    return content


def made_names(file: Any, read: Any) -> set[str]:
    return {file.names[column] for column in read.made_columns}


@pytest.mark.parametrize("required", [False, True])
@pytest.mark.parametrize("use_dictionary", [False, True])
def test_one_value_in_every_row_is_made(sparse_file: Any, required: bool, use_dictionary: bool) -> None:
    columns = CONSTANTS | FETCHED
    if required:
        del columns["some_null"]
    content = written(columns, required=required, use_dictionary=use_dictionary, store_decimal_as_integer=required)
    file = sparse_file(content)
    (fetched,), (made,) = (file.plan(file.names, make_constant_columns=make).values() for make in (False, True))
    assert made_names(file, fetched) == set()
    assert made_names(file, made) == set(CONSTANTS)
    for strings in ("string", "dictionary"):
        expected = file.decode(fetched, file.names, strings=strings)
        decoded = file.decode(made, file.names, strings=strings)
        decoded.validate(full=True)
        assert decoded.schema == expected.schema
        assert repr(decoded.to_pylist()) == repr(expected.to_pylist())


def test_golden_rows_are_the_same(golden_partition: Any, sparse_file: Any) -> None:
    file = sparse_file(golden_partition.file.read_bytes())
    fetched, made = (file.plan(file.names, make_constant_columns=make) for make in (False, True))
    for row_group, read in made.items():
        if read.made_columns != fetched[row_group].made_columns:
            expected, decoded = (file.decode(plan[row_group], file.names) for plan in (fetched, made))
            assert decoded.schema == expected.schema
            assert plain(decoded).equals(plain(expected))


def test_designated_timestamps_are_always_fetched(sparse_file: Any) -> None:
    """Their bounds may be just the first and the last value, whether or not the rows are in order."""
    file = sparse_file(written({"ts": pa.array([5] * ROWS, pa.timestamp("us", tz="UTC")), "n": [1] * ROWS}))
    content = replace(file.content_of_sidecar(), designated_timestamp=0)
    file.sidecar = parse_sidecar(encode_sidecar(content), path=None)
    (read,) = file.plan(["ts", "n"], make_constant_columns=True).values()
    assert made_names(file, read) == {"n"}


def test_null_chunks_are_made_whatever_is_asked(sparse_file: Any) -> None:
    file = sparse_file(written({"n": pa.nulls(5, pa.int64()), "m": [1] * 5}))
    (read,) = file.plan(["n", "m"]).values()
    assert made_names(file, read) == {"n"}
    (read,) = file.plan(["n", "m"], make_constant_columns=True).values()
    assert made_names(file, read) == {"n", "m"}
    assert file.decode(read, ["n", "m"]).to_pylist() == [{"n": None, "m": 1}] * 5


@pytest.mark.parametrize("flag", ["min", "max", "null_count"])
def test_what_is_not_certain_is_fetched(sparse_file: Any, flag: str) -> None:
    """Bounds that may be cut, and chunks of which it is not known how many nulls they hold."""
    file = sparse_file(written({"n": [7] * 5}))
    content = file.content_of_sidecar()
    row_group = content.row_groups[0]
    chunk = row_group.chunks[0]
    if flag == "null_count":
        changed = replace(chunk, null_count=None)
    else:
        bound = getattr(chunk, flag)
        changed = replace(chunk, **{flag: replace(bound, exact=False)})
    content = replace(content, row_groups=(replace(row_group, chunks=(changed,)),))
    file.sidecar = parse_sidecar(encode_sidecar(content), path=None)
    (read,) = file.plan(["n"], make_constant_columns=True).values()
    assert read.made_columns == ()


def test_a_selection_of_a_constant(sparse_file: Any) -> None:
    file = sparse_file(written({"n": [7] * 200_000, "m": range(200_000)}))
    (read,) = file.plan(["n", "m"], make_constant_columns=True).values()
    assert made_names(file, read) == {"n"}
    assert file.decode(read, ["n"])["n"].get_total_buffer_size() < 1_000_000, "one block of values is repeated"
    selected = replace(read, selection=RowSelection.of_ranges(np.array([5, 100_000]), np.array([6, 180_000])))
    decoded = file.decode(selected, ["n", "m"])
    assert decoded["m"].to_pylist() == [5, *range(100_000, 180_000)]
    assert decoded["n"].to_pylist() == [7] * 80_001


@pytest.mark.parametrize(("tag", "expected"), [(TypeTag.VARCHAR, "7"), (TypeTag.LONG, 7), (TypeTag.DOUBLE, 7.0)])
@pytest.mark.parametrize("strings", ["string", "dictionary"])
def test_constants_become_the_type_that_their_column_has_now(
    sparse_file: Any, tag: TypeTag, expected: Any, strings: Any
) -> None:
    file = sparse_file(written({"n": pa.array([7] * 3, pa.int32())}))
    (n,) = file.outputs(["n"])
    file.outputs = lambda _names: [replace(n, type=canonical_type(tag))]
    (read,) = file.plan(["n"], make_constant_columns=True).values()
    assert made_names(file, read) == {"n"}
    assert file.decode(read, ["n"], strings=strings)["n"].to_pylist() == [expected] * 3


def test_a_constant_that_is_not_text_is_damage(sparse_file: Any) -> None:
    content = written({"t": ["abcdefg"] * 5}, use_dictionary=False, compression="none")
    file = sparse_file(content.replace(b"abcdefg", b"abcdef\xff"))
    (read,) = file.plan(["t"], make_constant_columns=True).values()
    assert made_names(file, read) == {"t"}
    with pytest.raises(FormatError, match="row group 0, column 't'"):
        file.decode(read, ["t"])
