"""Chunks as pyarrow sees them: a virtual file of the fetched pages, arrays as they are stored, damaged pages."""

from __future__ import annotations

import itertools
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from coldparquet.decode.arrow import decode_raw_arrays
from coldparquet.decode.parquet_reader import ChunkLabel
from coldparquet.decode.virtual_file import RowGroupBuffer, VirtualFile, new_row_group_buffer
from coldparquet.errors import FormatError, InternalError, UnsupportedError
from coldparquet.format.type_codes import TypeTag
from coldparquet.format.types import canonical_type
from coldparquet.plan.model import Read
from coldparquet.plan.selection import RowSelection
from coldparquet.records import replace
from tests.support.parquet_footers import parquet_bytes

# --- Buffers of row groups: filled in any order, exactly once, and never read too early -------------------------------


FILES = [
    VirtualFile(columns=(), rows=None, end=b"footer" + (6).to_bytes(4, "little") + b"PAR1"),
    VirtualFile(columns=(), rows=RowSelection.of_range(0, 1), end=b"other" + (5).to_bytes(4, "little") + b"PAR1"),
]


@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=6), st.randoms())
def test_any_order_of_any_pieces_gives_the_file(payload: bytes, cuts: list[int], random: Any) -> None:
    buffer = RowGroupBuffer(len(payload), FILES)
    edges = sorted({0, len(payload), *(cut for cut in cuts if cut < len(payload))})
    pieces = list(itertools.pairwise(edges))
    random.shuffle(pieces)
    missing = len(payload)
    for start, stop in pieces:
        assert not buffer.complete
        assert buffer.missing_bytes == missing
        buffer.place(4 + start, memoryview(payload)[start:stop])
        missing -= stop - start
    assert buffer.complete
    first, second = (file.end for file in FILES)
    assert buffer.parquet_file(0).to_pybytes() == b"PAR1" + payload + first
    assert buffer.parquet_file(1).to_pybytes() == b"PAR1" + payload + first + second
    assert buffer.size_bytes == 4 + len(payload) + len(first) + len(second)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=12))
def test_overlaps_are_found_whatever_came_before(pieces: list[tuple[int, int]]) -> None:
    buffer = RowGroupBuffer(20, FILES)
    placed: set[int] = set()
    for one, other in pieces:
        start, stop = sorted((one, other))
        wanted = set(range(start, stop))
        if wanted & placed:
            with pytest.raises(InternalError, match="twice"):
                buffer.place(4 + start, memoryview(bytes(stop - start)))
        else:
            buffer.place(4 + start, memoryview(bytes(stop - start)))
            placed |= wanted
        assert buffer.missing_bytes == 20 - len(placed)


@pytest.mark.parametrize(("offset", "length"), [(3, 1), (0, 4), (4, 11), (14, 1), (-1, 2)])
def test_bytes_outside_the_chunks_are_refused(offset: int, length: int) -> None:
    buffer = RowGroupBuffer(10, FILES)
    with pytest.raises(InternalError, match="outside the chunks"):
        buffer.place(offset, memoryview(bytes(length)))


def test_an_incomplete_buffer_cannot_be_decoded() -> None:
    buffer = RowGroupBuffer(10, FILES)
    buffer.place(4, memoryview(bytes(9)))
    with pytest.raises(InternalError, match="1 of its bytes"):
        buffer.parquet_file(0)


def written() -> bytes:
    return parquet_bytes(pa.table({"n": [1, 2, 3], "m": [0.5, 1.5, 2.5]}), compression="none")


def with_codec(read: Read, codec: int) -> Read:
    chunks = read.chunks.copy()
    chunks["codec"] = codec
    return replace(read, chunks=chunks)


def test_lzo_is_refused_before_anything_is_fetched(sparse_file: Any) -> None:
    file = sparse_file(written())
    with pytest.raises(UnsupportedError, match="row group 0, column 'n': compressed with LZO") as caught:
        new_row_group_buffer(with_codec(file.plan(["n"])[0], 3))
    assert caught.value.kind == "UnsupportedCodec"
    assert caught.value.path == "data.parquet"


def test_an_unknown_codec_is_damage(sparse_file: Any) -> None:
    file = sparse_file(written())
    with pytest.raises(FormatError, match="there is no compression codec 9"):
        new_row_group_buffer(with_codec(file.plan(["n"])[0], 9))


def test_a_column_that_was_not_planned_is_a_bug_of_ours(sparse_file: Any) -> None:
    file = sparse_file(written())
    with pytest.raises(InternalError, match="without column 'm'"):
        file.decode(file.plan(["n"])[0], ["m"])


def test_a_type_that_the_column_cannot_have_had_is_a_bug_of_ours(sparse_file: Any) -> None:
    file = sparse_file(written())
    (n,) = file.outputs(["n"])
    file.outputs = lambda _names: [replace(n, type=canonical_type(TypeTag.UUID))]
    with pytest.raises(InternalError, match="values of LONG were planned to become UUID"):
        file.decode(file.plan(["n"])[0], ["n"])


def test_fewer_rows_than_promised_are_an_error(sparse_file: Any) -> None:
    file = sparse_file(written())
    read = replace(file.plan(["n", "m"])[0], row_group_rows=4)
    with pytest.raises(FormatError, match=r"row group 0, column 'n': .*expected 4"):
        file.decode(read, ["n", "m"])


# --- Whatever bytes arrive in the place of pages: a table of the promised shape, or an error that names the column ----


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
    content = bytearray(
        parquet_bytes(
            pa.table({"n": list(range(1000))}), compression="none", use_dictionary=False, write_page_checksum=True
        )
    )
    file = sparse_file(bytes(content))
    content[200] ^= 1
    read = file.plan(["n"])[0]
    with pytest.raises(FormatError, match=r"column 'n'.*could not verify page integrity"):
        file.decode(read, ["n"], content=bytes(content))
    unnoticed = file.decode(read, ["n"], content=bytes(content), check_page_checksums=False)
    assert unnoticed["n"].to_pylist() != list(range(1000))


def test_text_with_a_dictionary_is_verified_page_by_page(sparse_file: Any) -> None:
    table = pa.table({"s": [f"symbol {row % 50:02}" for row in range(1000)]})
    good = parquet_bytes(table, compression="none", write_page_checksum=True)
    file = sparse_file(good)
    read = file.plan(["s"])[0]
    for place in (good.index(b"symbol 07"), int(read.piece_stops[0]) - 5):  # in the dictionary page, among the indices
        content = bytearray(good)
        content[place] ^= 1
        with pytest.raises(FormatError, match=r"column 's'.*could not verify page integrity"):
            file.decode(read, ["s"], content=bytes(content))


def file_of(array: Any) -> bytes:
    return parquet_bytes(pa.table({"x": array}), use_dictionary=False, compression="none", store_schema=False)


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


# --- QuestDB's byte strings of arrays decode to the arrays that numpy packs, and damaged ones are refused -------------


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
