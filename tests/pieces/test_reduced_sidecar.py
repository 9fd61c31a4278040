"""A reduced sidecar is a sidecar like any other: it says of its chunks what the whole one says, and nothing more."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coldparquet.format.blooms import sidecar_in_memory
from coldparquet.format.parquet_footer import parse_footer
from coldparquet.format.sidecar import Sidecar, parse_sidecar
from coldparquet.pieces.encode import SidecarReducer

COLUMNS, ROW_GROUPS = (0, 2, 3), np.array([1, 2, 4])


@pytest.fixture(scope="module")
def whole() -> Sidecar:
    rows = pa.table(
        {
            "number": range(50),
            "dropped": range(50),
            "text": [f"a text of more than eight bytes {number // 10}" for number in range(50)],
            "unsigned": pa.array(range(50), pa.uint8()),
        }
    )
    sink = io.BytesIO()
    pq.write_table(rows, sink, row_group_size=10, bloom_filter_options={"text": {"ndv": 9, "fpp": 0.1}})
    data = sink.getvalue()
    length = int.from_bytes(data[-8:-4], "little")
    return sidecar_in_memory(parse_footer(data[-8 - length : -8], path=None, offset=len(data) - 8 - length))


def reduced(whole: Sidecar, keeps_bounds: np.ndarray) -> Sidecar:
    reducer = SidecarReducer()
    first = reducer.reduce(whole, columns=COLUMNS, row_groups=ROW_GROUPS, keeps_bounds=keeps_bounds)
    assert reducer.reduce(whole, columns=COLUMNS, row_groups=ROW_GROUPS, keeps_bounds=keeps_bounds) == first
    return parse_sidecar(first)


def test_columns_and_chunks_are_those_of_the_whole_one(whole: Sidecar) -> None:
    sidecar = reduced(whole, np.zeros((3, 3), dtype=bool))
    assert sidecar.parquet_size_bytes == whole.parquet_size_bytes
    assert sidecar.row_counts.tolist() == whole.row_counts[ROW_GROUPS].tolist()
    assert not sidecar.bloom_columns
    for new, old in enumerate(COLUMNS):
        assert sidecar.column(new).name == whole.column(old).name
        assert sidecar.column_type(new) == whole.column_type(old)
        found, expected = sidecar.chunks(new), whole.chunks(old)
        for name in ("codec", "encodings", "num_values", "byte_range_start", "total_compressed_bytes", "null_count"):
            assert getattr(found, name).tolist() == getattr(expected, name)[ROW_GROUPS].tolist(), name
        assert not found.min.present.any()
        assert not found.max.present.any()
        assert {found.max.bytes_at(row_group) for row_group in range(3)} == {None}


def test_bounds_are_kept_where_they_are_wanted(whole: Sidecar) -> None:
    keeps = np.array([[True, True, False], [False, False, False], [False, True, True]])
    sidecar = reduced(whole, keeps)
    for new, old in enumerate(COLUMNS):
        for number, row_group in enumerate(ROW_GROUPS.tolist()):
            wanted = whole.chunks(old).min.bytes_at(row_group), whole.chunks(old).max.bytes_at(row_group)
            found = sidecar.chunks(new).min.bytes_at(number), sidecar.chunks(new).max.bytes_at(number)
            assert found == (wanted if keeps[number, new] else (None, None))
    assert sidecar.chunks(1).min.bytes_at(0) == b"a text of more than eight bytes 1"
