"""QuestDB's byte strings of arrays decode to the arrays that numpy packs, and damaged ones are refused."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from coldparquet.decode.arrow import decode_raw_arrays
from coldparquet.decode.parquet_reader import ChunkLabel
from coldparquet.errors import FormatError

LABEL = ChunkLabel(path="data.parquet", row_group=3, columns=("book",))


def packed(array: np.ndarray[Any, Any]) -> bytes:
    shape = struct.pack(f"<{array.ndim}i", *array.shape)
    return shape + bytes(-len(shape) % 8) + array.astype("<f8").tobytes()


def as_lists(array: np.ndarray[Any, Any] | None) -> Any:
    """Nested lists; Arrow cannot say more about an empty array than numpy's own ``tolist``; NaN is null."""

    def nan_as_none(value: Any) -> Any:
        if isinstance(value, list):
            return [nan_as_none(item) for item in value]
        return None if value != value else value  # noqa: PLR0124 - NaN

    return None if array is None else nan_as_none(array.tolist())


def decode(payloads: list[bytes | None], dimensions: int) -> Any:
    return decode_raw_arrays(pa.array(payloads, pa.binary()), dimensions=dimensions, label=LABEL)


@st.composite
def columns(draw: st.DrawFn) -> tuple[int, list[np.ndarray[Any, Any] | None]]:
    dimensions = draw(st.integers(1, 5))
    shapes = hnp.array_shapes(min_dims=dimensions, max_dims=dimensions, min_side=0, max_side=3)
    arrays = shapes.flatmap(lambda shape: hnp.arrays(np.float64, shape))
    return dimensions, draw(st.lists(arrays | st.none(), max_size=8))


@given(columns(), st.integers(0, 8))
def test_decodes_what_was_packed(column: tuple[int, list[np.ndarray[Any, Any] | None]], start: int) -> None:
    dimensions, arrays = column
    payloads = pa.array([None if array is None else packed(array) for array in arrays], pa.binary())
    decoded = decode_raw_arrays(payloads.slice(start), dimensions=dimensions, label=LABEL)
    decoded.validate(full=True)
    assert decoded.to_pylist() == [as_lists(array) for array in arrays[start:]]


def test_type_is_nested_lists_of_doubles() -> None:
    assert decode([], 3).type == pa.list_(pa.list_(pa.list_(pa.float64())))


@pytest.mark.parametrize(
    ("payload", "dimensions", "message"),
    [
        (b"", 1, "begins with 8 bytes"),
        (b"\x01\x00\x00\x00", 1, "begins with 8 bytes"),
        (struct.pack("<ii", 1, 0) + bytes(9), 1, "words of 8"),
        (struct.pack("<iiii", 1, 1, 1, 0), 5, "begins with 24 bytes"),
        (struct.pack("<ii", -1, 0), 1, "negative"),
        (struct.pack("<ii", 2, 0) + bytes(8), 1, "another number of elements"),
        (struct.pack("<ii", 0, 3) + bytes(8), 2, "another number of elements"),
        (struct.pack("<iiii", *[2**31 - 1] * 4), 4, "another number of elements"),
        (struct.pack("<ii", 2**31 - 1, 0), 2, "claim 2147483647 lists"),
        (struct.pack("<iiii", 2**31 - 1, 2**31 - 1, 2**31 - 1, 0), 4, "claim .* lists"),
    ],
)
def test_damaged_arrays_are_refused_with_their_place(payload: bytes, dimensions: int, message: str) -> None:
    good = packed(np.ones((1,) * dimensions))
    with pytest.raises(FormatError, match=message) as caught:
        decode([good, None, payload, good], dimensions)
    assert str(caught.value).startswith("data.parquet: row group 3, column 'book': ")
    assert caught.value.details["row_group"] == 3
    if "claim" not in message:
        assert caught.value.details["row"] == 2


@given(st.integers(1, 32), st.lists(st.binary(max_size=80) | st.none(), max_size=4))
def test_any_bytes_decode_or_are_refused(dimensions: int, payloads: list[bytes | None]) -> None:
    try:
        decoded = decode(payloads, dimensions)
    except FormatError:
        return
    decoded.validate(full=True)
    assert len(decoded) == len(payloads)
