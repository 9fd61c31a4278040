"""Whatever bytes arrive in the place of pages: a table of the promised shape, or an error that names the column."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coldparquet.errors import FormatError, UnsupportedError

GOLDEN = Path(__file__).parents[1] / "golden" / "questdb"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_flipped_bytes_decode_or_are_refused(sparse_file: Any, data: st.DataObject) -> None:
    path = next(GOLDEN.glob("types_all_groups/table/*/data.parquet"))
    file = sparse_file(path.read_bytes())
    name = data.draw(st.sampled_from(file.names))
    row_group, read = data.draw(st.sampled_from(sorted(file.plan([name]).items())))
    if not read.columns:
        return
    damaged = bytearray(file.content)
    start, stop = int(read.piece_starts[0]), int(read.piece_stops[0])
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(start, stop - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded = file.decode(read, [name], content=bytes(damaged))
    except (FormatError, UnsupportedError) as caught:
        error: FormatError | UnsupportedError = caught
    else:
        assert decoded.num_rows == read.row_count
        decoded.validate(full=True)
        return
    place = (error.path, error.details["row_group"], error.details["columns"])
    assert place == (file.path, row_group, (name,))


def test_the_error_names_the_column_that_is_damaged(sparse_file: Any) -> None:
    path = next(GOLDEN.glob("types_all_groups/table/*/data.parquet"))
    file = sparse_file(path.read_bytes())
    names = ["num", "big", "text", "ts"]
    read = file.plan(names)[2]
    position = [file.names[column] for column in read.columns].index("big")
    damaged = bytearray(file.content)
    start, stop = int(read.piece_starts[position]), int(read.piece_stops[position])
    damaged[start:stop] = b"\xff" * (stop - start)
    with pytest.raises(FormatError, match="row group 2, column 'big': the pages do not decode") as caught:
        file.decode(read, names, content=bytes(damaged))
    assert "\n" not in str(caught.value)


def test_a_page_checksum_is_verified_where_there_is_one(sparse_file: Any) -> None:
    output = pa.BufferOutputStream()
    pq.write_table(
        pa.table({"n": list(range(1000))}), output, compression="none", use_dictionary=False, write_page_checksum=True
    )
    content = bytearray(output.getvalue().to_pybytes())
    file = sparse_file(bytes(content))
    content[200] ^= 1
    read = file.plan(["n"])[0]
    with pytest.raises(FormatError, match=r"column 'n'.*could not verify page integrity"):
        file.decode(read, ["n"], content=bytes(content))
    unnoticed = file.decode(read, ["n"], content=bytes(content), check_page_checksums=False)
    assert unnoticed["n"].to_pylist() != list(range(1000))


def test_text_with_a_dictionary_is_verified_page_by_page(sparse_file: Any) -> None:
    output = pa.BufferOutputStream()
    table = pa.table({"s": [f"symbol {row % 50:02}" for row in range(1000)]})
    pq.write_table(table, output, compression="none", write_page_checksum=True)
    good = output.getvalue().to_pybytes()
    file = sparse_file(good)
    read = file.plan(["s"])[0]
    for place in (good.index(b"symbol 07"), int(read.piece_stops[0]) - 5):  # in the dictionary page, among the indices
        content = bytearray(good)
        content[place] ^= 1
        with pytest.raises(FormatError, match=r"column 's'.*could not verify page integrity"):
            file.decode(read, ["s"], content=bytes(content))


def file_of(array: Any) -> bytes:
    output = pa.BufferOutputStream()
    pq.write_table(pa.table({"x": array}), output, use_dictionary=False, compression="none", store_schema=False)
    content: bytes = output.getvalue().to_pybytes()
    return content


def test_text_that_is_not_utf8_is_refused(sparse_file: Any) -> None:
    stored: Any = pa.array([b"\xff\xfe", b"ok"], pa.binary())
    file = sparse_file(file_of(pa.Array.from_buffers(pa.string(), 2, stored.buffers())))
    with pytest.raises(FormatError, match="Invalid UTF8"):
        file.read(["x"])


def test_decimals_with_too_many_digits_are_refused(sparse_file: Any) -> None:
    stored: Any = pa.array([Decimal("123.45")], pa.decimal128(10, 2))
    file = sparse_file(file_of(pa.Array.from_buffers(pa.decimal128(3, 2), 1, stored.buffers())))
    with pytest.raises(FormatError, match="does not fit in precision"):
        file.read(["x"])
