"""Corrections of a footer change what they say and nothing else."""

from __future__ import annotations

import io
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coldparquet.errors import FormatError, InternalError
from coldparquet.format.footer_edit import with_decimal_precisions, with_null_counts, with_schema_of
from coldparquet.format.parquet_footer import frame_footer


def file_of(rows: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows, sink, row_group_size=2, store_schema=False, write_page_index=True, **options)
    return sink.getvalue()


def footer_of(file: bytes) -> bytes:
    return file[-8 - int.from_bytes(file[-8:-4], "little") : -8]


def with_footer(file: bytes, footer: bytes) -> pq.ParquetFile:
    return pq.ParquetFile(io.BytesIO(file[: -8 - len(footer_of(file))] + frame_footer(footer)))


ROWS = pa.table({"a": pa.array([1, None, 3], pa.int32()), "d": pa.array([Decimal(1)] * 3, pa.decimal128(9, 2))})


def test_decimals_get_their_digits() -> None:
    file = file_of(ROWS)
    changed = with_footer(file, with_decimal_precisions(footer_of(file), {1: 5}))
    assert changed.schema_arrow.field("d").type == pa.decimal128(5, 2)
    assert changed.read().equals(ROWS.cast(pa.schema([ROWS.schema.field("a"), pa.field("d", pa.decimal128(5, 2))])))
    assert with_decimal_precisions(footer_of(file), {}) == footer_of(file)


def test_null_counts_where_there_were_no_statistics() -> None:
    file = file_of(ROWS, write_statistics=["d"])
    changed = with_footer(file, with_null_counts(footer_of(file), [{0: 1}, {0: 0}])).metadata
    for group, nulls in ((0, 1), (1, 0)):
        column: Any = changed.row_group(group).column(0)
        assert column.statistics.null_count == nulls
        assert not column.statistics.has_min_max
        others: Any = changed.row_group(group).column(1).statistics
        assert others.min == Decimal(1)
        assert column.has_offset_index
    assert changed.num_rows == 3


def test_schema_of_another_file() -> None:
    file = file_of(ROWS)
    other = file_of(ROWS.rename_columns(["x", "y"]))
    changed = with_schema_of(footer_of(file), footer_of(other))
    assert with_footer(file, changed).schema_arrow.names == ["x", "y"]
    assert with_schema_of(changed, footer_of(file)) == footer_of(file)


def test_schema_of_a_file_that_is_stored_otherwise() -> None:
    other = file_of(ROWS.set_column(0, "a", pa.array([1, 2, 3], pa.int64())))
    with pytest.raises(InternalError, match="not stored as the schema"):
        with_schema_of(footer_of(file_of(ROWS)), footer_of(other))


def test_what_is_no_footer() -> None:
    with pytest.raises(FormatError, match="field 2"):
        with_decimal_precisions(b"\0", {1: 5})
