"""Buffers of row groups: filled in any order, exactly once, and never read too early."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.decode.virtual_file import RowGroupBuffer, VirtualFile, new_row_group_buffer
from coldparquet.errors import FormatError, InternalError, UnsupportedError
from coldparquet.format.type_codes import TypeTag
from coldparquet.format.types import canonical_type
from coldparquet.plan.model import RowSelection

if TYPE_CHECKING:
    from coldparquet.plan.model import Read

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
    output = pa.BufferOutputStream()
    pq.write_table(pa.table({"n": [1, 2, 3], "m": [0.5, 1.5, 2.5]}), output, compression="none")
    content: bytes = output.getvalue().to_pybytes()
    return content


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
