"""A piece as bytes: small, checked to the last bit, without pickle and without secrets."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import pickle
import pickletools
import random
import re
import resource
import struct
import subprocess
import sys
import time
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

import coldparquet as cp
from coldparquet.errors import FormatError, InvalidInputError, NotFoundError, ObjectChangedError, UnsupportedError
from coldparquet.pieces.encode import decode_piece, encode_piece
from coldparquet.pieces.frame import SectionReader, SectionWriter, frame_content, unframe_content
from coldparquet.records import field_names, replace
from coldparquet.storage.base import ObjectStore
from coldparquet.storage.memory import MemoryStore
from coldparquet.write import WriteOptions, write_partition
from coldparquet_bench.trades import DAY_COLUMNS, day_name, trades
from coldparquet_testing.simulator import ColdStoreServer
from tests.support.parquet_footers import parquet_bytes
from tests.support.questdb_tables import GOLDEN
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
        store = MemoryStore(
            {"t/data.parquet": parquet_bytes(pa.table({"a": [1, 2, 3], "b": ["x", None, "z"]}), row_group_size=2)}
        )
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


# --- Altered pieces, with the right checksum: they give rows or an error of ours, quickly and in little memory --------


FEW, MANY = 30, 400
"""Altered copies of each piece."""

_ROOM_BYTES = 1 << 30
"""More than libraries and threads reserve, and less than a length that was made up takes."""

_LONGEST_READ_S = 120.0
"""A piece may well ask for requests of one byte each."""

_NUMBERS = (b"0", b"1", b"-1", b"7", b"2147483648", b"9223372036854775807", b"18446744073709551616", b"1e400", b"0.5")
_TOKEN = re.compile(rb'null|true|false|"[^"]{0,60}"|-?\d+')

NATIVE = GOLDEN / "o3_in_place"
SCANS: dict[str, tuple[list[str] | None, str | None, dict[str, Any]]] = {
    "whole chunks": (None, None, {}),
    "pages and late columns": (
        ["ts", "payload", "always", "nothing", "list"],
        "key < 900 and symbol = 'BTC'",
        {"late_materialisation": "always", "page_index": "always"},
    ),
    "texts": (["symbol", "word"], "word is not null", {"symbols": "global", "strings": "dictionary"}),
    "conditions": (["ts"], "not (price > 0.5 or small in (1, 2)) and payload >= 'payload'", {}),
}


@cache
def pieces() -> dict[str, tuple[bytes, ObjectStore | None]]:
    """Make the pieces, and say where each is read."""

    async def made() -> dict[str, tuple[bytes, ObjectStore | None]]:
        found: dict[str, tuple[bytes, ObjectStore | None]] = {}
        store = await store_of_days()
        for name, (columns, where, options) in SCANS.items():
            async with cp.open_table("db/trades", store=store, options=cp.ReadOptions(**options)) as table:
                of_scan = await table.scan(columns, where).pieces(3)
            found[name] = of_scan.pieces[0].to_bytes(), store
        async with cp.open_table(NATIVE / "table") as table:
            assert any(partition.format == "native" for partition in table.partitions)
            of_scan = await table.scan().pieces(1)
        return found | {"native rows": (of_scan.pieces[0].to_bytes(), None)}

    return asyncio.run(made())


def altered(content: bytes, draw: random.Random) -> bytes:
    """Change one to three places of a content."""
    data = bytearray(content)
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(len(data))
        match draw.randrange(8):
            case 0 | 1:
                data[at] = draw.randrange(256)
            case 2:
                data[at] ^= 1 << draw.randrange(8)
            case 3:
                data[at] = draw.choice((0, 0x7F, 0x80, 0xFF))
            case 4:
                del data[at : at + draw.choice((1, 8))]
            case 5:
                data[at:at] = data[(begin := draw.randrange(len(data))) : begin + draw.choice((1, 8))]
            case _:
                tokens = list(_TOKEN.finditer(data))
                token, other = draw.choice(tokens), draw.choice(tokens)[0]
                data[token.start() : token.end()] = draw.choice((other, draw.choice(_NUMBERS), b"null", b"[]"))
    return bytes(data)


MADE_FROM_OTHERS = ("depth", "search")
"""Fields of predicates that are no arguments."""


def otherwise(value: Any, draw: random.Random) -> Any:  # noqa: PLR0911 - one per kind
    """Change one value somewhere inside of another one, whatever it is made of; return it if there is none."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return draw.choice((0, 1, -1, value + 1, value - 1, value * 2, 1 << 31, 1 << 40, (1 << 63) - 1))
    if isinstance(value, str):
        return draw.choice(("", "x", value + "x", value[:-1], value[1:], "../" + value, "/" + value))
    if isinstance(value, bytes):
        return value[: draw.randrange(len(value) + 1)]
    if isinstance(value, np.ndarray):
        changed: Any = np.array(value)
        if not len(changed):
            return np.append(changed, changed.dtype.type(1))
        changed[draw.randrange(len(changed))] = otherwise(int(draw.choice(changed.tolist())), draw) % (1 << 31)
        return draw.choice((changed, value[1:], value[::-1], np.append(value, value[-1])))
    if isinstance(value, tuple) and type(value) is tuple:
        if not value or draw.random() < 0.2:
            return draw.choice((value[1:], value[::-1], value * 2))
        at = draw.randrange(len(value))
        return (*value[:at], otherwise(value[at], draw), *value[at + 1 :])
    if isinstance(value, Struct) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        name = draw.choice([name for name in field_names(type(value)) if name not in MADE_FROM_OTHERS])
        return replace(value, **{name: otherwise(getattr(value, name), draw)})
    return None if draw.random() < 0.1 else value


def rewritten(data: bytes, draw: random.Random) -> bytes | None:
    """Change what a piece says in one or two places and write it again, as long as it can be written."""
    piece = cp.pieces.ScanPiece.from_bytes(data)
    content = piece.content()
    try:
        for _ in range(draw.randint(1, 2)):
            content = otherwise(content, draw)
        return encode_piece(content, piece.numbers)
    except Exception:  # noqa: BLE001 - values that no writer knows
        return None


@contextmanager
def little_memory() -> Iterator[None]:
    """Let allocations of more than there is any reason for fail."""
    reserved_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (reserved_bytes + _ROOM_BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def check(data: bytes, store: ObjectStore | None) -> str:
    """Use a piece in every way; say what became of it."""
    try:
        piece = cp.pieces.ScanPiece.from_bytes(data)
        _ = piece.schema
        piece.explain()
    except (FormatError, UnsupportedError):
        return "refused"
    try:
        asyncio.run(read_logged(data, store=store, decode_threads=1))
    except (FormatError, UnsupportedError, NotFoundError, ObjectChangedError) as error:
        return type(error).__name__
    except InvalidInputError as error:
        assert "the URL is empty" in str(error)  # noqa: PT017 - of a table that could not be opened either
        return "no URL"
    return "rows"


def check_altered(name: str, seeds: range) -> None:
    data, store = pieces()[name]
    content = unframe_content(data)
    outcomes = set()
    with little_memory():
        assert check(data, store) == "rows"
        for seed in seeds:
            draw = random.Random(seed)
            made = frame_content(altered(content, draw)) if seed % 2 else rewritten(data, draw)
            if made is None:
                continue
            started_s = time.monotonic()
            try:
                outcomes.add(check(made, store))
            except BaseException as error:
                error.add_note(f"seed {seed} of {name!r}")
                raise
            assert time.monotonic() - started_s < _LONGEST_READ_S, f"seed {seed} of {name!r}"
    assert {"refused", "rows"} <= outcomes, "nothing was altered, or everything was noticed before it was read"


@pytest.mark.parametrize("name", [*SCANS, "native rows"])
def test_altered_pieces(name: str) -> None:
    check_altered(name, range(FEW))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SCANS, "native rows"])
def test_many_altered_pieces(name: str) -> None:
    check_altered(name, range(FEW, MANY))


async def test_a_table_at_the_root_of_an_archive_has_pieces(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "table.zip", "w") as archive:
        archive.writestr("2024-03-01/data.parquet", day_file(0))
    async with cp.open_table(f"zip://::file://{tmp_path}/table.zip") as table:
        rows = (await table.scan(["price"]).to_arrow()).num_rows
        [piece] = (await table.scan(["price"]).pieces(1)).pieces
    batches, _ = await read_logged(piece.to_bytes())
    assert sum(batch.num_rows for batch in batches) == rows > 0


async def test_a_piece_reads_nothing_outside_of_its_table(tmp_path: Path) -> None:
    for name in ("mine", "mine-too"):
        partition = tmp_path / name / "2024-03-01"
        partition.mkdir(parents=True)
        (partition / "data.parquet").write_bytes(day_file(0))
    async with cp.open_table(tmp_path / "mine") as table:
        [piece] = (await table.scan(["price"]).pieces(1)).pieces
    content = piece.content()
    for path in (
        f"{tmp_path}/mine-too/2024-03-01/data.parquet",
        f"{tmp_path}/mine/../mine-too/2024-03-01/data.parquet",
    ):
        [share] = content.shares
        moved = replace(share, data=replace(share.data, path=path))
        elsewhere = replace(content, shares=(moved,))
        made = encode_piece(elsewhere, piece.numbers)
        with pytest.raises(FormatError, match="which is not in the table"):
            await read_logged(made)
        with pytest.raises(FormatError, match="which is not in the table"):
            list(cp.pieces.read_piece_batches(made))
    assert (await read_logged(piece.to_bytes()))[0]
