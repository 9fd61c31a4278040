"""A piece as bytes: small, checked to the last bit, without pickle and without secrets."""

from __future__ import annotations

import contextlib
import io
import pickle
import pickletools
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import coldparquet as cp
from coldparquet.pieces.encode import decode_piece
from coldparquet.pieces.frame import SectionReader, SectionWriter, frame_content, unframe_content
from coldparquet.storage.memory import MemoryStore
from coldparquet.write import WriteOptions, write_partition
from coldparquet_bench.trades import DAY_COLUMNS, day_name, trades
from coldparquet_testing.simulator import ColdStoreServer
from tests.support.read_pieces import read_logged
from tests.support.small_tables import data_path, day_file, store_of_days


@pytest.fixture
async def piece() -> cp.pieces.ScanPiece:
    options = cp.ReadOptions(late_materialisation="always", page_index="always", batch_rows=77)
    async with cp.open_table("db/trades", store=await store_of_days(), options=options) as table:
        pieces = await table.scan(["ts", "payload", "always", "nothing"], "key < 9000 or symbol = 'BTC'").pieces(2)
    return pieces.pieces[0]


async def test_a_piece_survives_its_bytes(piece: cp.pieces.ScanPiece) -> None:
    again = cp.pieces.ScanPiece.from_bytes(piece.to_bytes())
    assert again == piece
    assert again.explain() == piece.explain()
    assert again.schema.equals(piece.schema, check_metadata=True)
    assert again.table == "db/trades"
    assert pickle.loads(pickle.dumps(piece)) == piece  # noqa: S301 - made above
    content = piece.content()
    assert content.options.batch_rows == 77
    assert repr(piece.to_bytes()) not in repr(piece)


def test_every_flipped_bit_is_noticed(piece: cp.pieces.ScanPiece) -> None:
    data = piece.to_bytes()
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 1 << position % 8
        with pytest.raises(cp.errors.FormatError, match="hand them over unchanged"):
            cp.pieces.ScanPiece.from_bytes(bytes(flipped))


def test_every_truncation_is_noticed(piece: cp.pieces.ScanPiece) -> None:
    data = piece.to_bytes()
    for length in range(len(data)):
        with pytest.raises(cp.errors.FormatError):
            cp.pieces.read_piece(data[:length])
    with pytest.raises(cp.errors.FormatError):
        cp.pieces.ScanPiece.from_bytes(data + b"\0")


def test_another_version_says_what_to_install(piece: cp.pieces.ScanPiece) -> None:
    data = bytearray(piece.to_bytes())
    behind = data[12:]
    struct.pack_into("<H", behind, 0, 99)
    behind[3:8] = b"9.9.9"
    newer = bytes(data[:8]) + struct.pack("<I", zlib.crc32(behind)) + bytes(behind)
    with pytest.raises(cp.errors.UnsupportedError, match=r"coldparquet 9\.9\.9 \(piece format 99\)") as caught:
        cp.pieces.ScanPiece.from_bytes(newer)
    assert caught.value.kind == "UnknownPieceVersion"
    assert "install the same release on the driver and on all executors" in str(caught.value)
    assert pickle.loads(pickle.dumps(caught.value)).kind == "UnknownPieceVersion"  # noqa: S301 - made above


@given(position=st.integers(0, 1 << 30), value=st.integers(0, 255))
def test_content_that_makes_no_sense_is_no_piece(position: int, value: int) -> None:
    content = bytearray(unframe_content(_small_piece()))
    content[position % len(content)] = value
    with contextlib.suppress(cp.errors.FormatError, cp.errors.InvalidInputError):
        decode_piece(frame_content(bytes(content)))


_SMALL: list[bytes] = []


def _small_piece() -> bytes:
    if not _SMALL:
        sink = io.BytesIO()
        pq.write_table(pa.table({"a": [1, 2, 3], "b": ["x", None, "z"]}), sink, row_group_size=2)
        store = MemoryStore({"t/data.parquet": sink.getvalue()})
        with cp.sync.open_partition("t", store=store) as table:
            _SMALL.append(table.scan(where="a > 1 and b in ('x', 'z')").pieces(1).pieces[0].to_bytes())
    return _SMALL[0]


@pytest.mark.parametrize(("row_groups_per_piece", "most_bytes"), [(1, 1_024), (10, 256), (100, 160)])
async def test_a_row_group_of_ten_columns_takes_less_than_a_kilobyte(
    tmp_path: Path, row_groups_per_piece: int, most_bytes: int
) -> None:
    row_groups, rows = 100, 200
    of_day = trades(0, row_groups * rows, columns=DAY_COLUMNS)
    assert of_day.num_columns == 10
    url = "market-data-lake/db/trades"
    options = WriteOptions(row_group_rows=rows)
    await write_partition(tmp_path / url / day_name(0), of_day, timestamp="ts", options=options)
    with ColdStoreServer(tmp_path) as server:  # whose objects have ETags as long as those of S3
        async with cp.open_table(f"s3://{url}", storage_options=server.storage_options) as table:
            pieces = await table.scan(where="price > 1 and symbol is not null").pieces(
                row_groups // row_groups_per_piece
            )
    assert {piece.row_group_count for piece in pieces} == {row_groups_per_piece}
    assert all(share.etag for piece in pieces for share in piece.content().shares)
    assert max(len(piece.to_bytes()) for piece in pieces) < most_bytes * row_groups_per_piece


async def test_no_secret_is_in_a_piece_nor_in_what_it_says(tmp_path: Path) -> None:
    planted = "PLANTED-where-it-must-not-be-seen"
    file = tmp_path / "bucket" / data_path(0)
    file.parent.mkdir(parents=True)
    file.write_bytes(day_file(0))
    with ColdStoreServer(tmp_path) as server:
        options: dict[str, Any] = {**server.storage_options, "secret": planted, "token": planted}
        async with cp.open_table("s3://bucket/db/trades", storage_options=options) as table:
            pieces = await table.scan(["price"]).pieces(2)
        for piece in pieces:
            told = [unframe_content(piece.to_bytes()), pickle.dumps(piece), repr(piece).encode()]
            told += [piece.explain().encode(), repr(piece.plan()).encode(), repr(pieces).encode()]
            assert not any(planted.encode() in text for text in told)
            await read_logged(piece.to_bytes(), storage_options=options)


async def test_a_signed_url_is_not_in_a_piece() -> None:
    store = await store_of_days()
    async with cp.open_table("db/trades", store=store) as table:
        pieces = await table.scan(["price"]).pieces(1)
    [batch, *_], _ = await read_logged(pieces.pieces[0].to_bytes(), store=store, url="https://host/x?Signature=SECRET")
    assert batch.num_rows


def test_no_object_is_pickled(piece: cp.pieces.ScanPiece) -> None:
    content = unframe_content(piece.to_bytes())
    assert b"coldparquet." not in content
    with pytest.raises((ValueError, pickle.UnpicklingError)):
        list(pickletools.genops(content))


def test_reading_loads_no_heavy_library(tmp_path: Path) -> None:
    directory = tmp_path / "t"
    directory.mkdir()
    (directory / "data.parquet").write_bytes(day_file(0))
    with cp.sync.open_partition(directory) as table:
        data = table.scan(where="price > 0 and symbol = 'BTC'").pieces(1).pieces[0].to_bytes()
    heavy = ("pyspark", "pandas", "sqlglot", "s3fs", "botocore", "aiohttp", "typer", "rich")
    script = (
        "import sys; from coldparquet.pieces import read_piece_batches;"
        "rows = sum(batch.num_rows for batch in read_piece_batches(sys.stdin.buffer.read()));"
        f"print(rows > 0, [name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], input=data, capture_output=True, check=True)
    assert done.stdout.decode().strip() == "True []"
    assert done.stderr == b""


@given(st.lists(st.lists(st.integers(-(1 << 63), (1 << 63) - 1))))
def test_numbers_survive_their_sections(lists: list[list[int]]) -> None:
    writer = SectionWriter()
    writer.add_numbers([len(numbers) for numbers in lists])
    writer.add_numbers([number for numbers in lists for number in numbers])
    reader = SectionReader(writer.finish())
    assert [numbers.tolist() for numbers in reader.lists()] == lists
    reader.finish()
