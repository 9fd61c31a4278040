"""Any bytes in: a model or an error of ours, in little time and memory, with and without Thrift's C extension."""

from __future__ import annotations

import io
import sys
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from thrift import protocol

from coldparquet.errors import FormatError, UnsupportedError
from coldparquet.format.parquet_footer import parse_footer
from coldparquet.format.parquet_thrift import FileMetaData
from coldparquet.format.sidecar_from_footer import sidecar_content_from_footer
from coldparquet.format.sidecar_writer import encode_sidecar

GOLDEN = Path(__file__).parents[1] / "golden" / "questdb"


def _footer_of(file: bytes) -> bytes:
    return file[-8 - int.from_bytes(file[-8:-4], "little") : -8]


def _small_foreign_footer() -> bytes:
    sink = io.BytesIO()
    table = pa.table({"a": pa.array([1, None], pa.uint32()), "b": [[1.0], None], "c": ["x", "yy"]})
    pq.write_table(table, sink, store_schema=False)
    return _footer_of(sink.getvalue())


FOREIGN = _small_foreign_footer()
GENUINE = _footer_of(next(iter(sorted((GOLDEN / "symbols").glob("table/*/data.parquet")))).read_bytes())


def _read(footer: bytes) -> None:
    """Go all the way to a sidecar; only the errors of ours may come out."""
    try:
        encode_sidecar(sidecar_content_from_footer(parse_footer(footer, path="p", offset=4)))
    except (FormatError, UnsupportedError) as error:
        assert error.path == "p"  # noqa: PT017 - many inputs are fine, so nothing need be raised


@pytest.fixture
def without_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(protocol, "fastbinary", raising=False)
    monkeypatch.setitem(sys.modules, "thrift.protocol.fastbinary", None)


HOSTILE = {
    "list of 2^31 structures": b"\x29\xfc\xff\xff\xff\xff\x07",
    "list of 2^31 skipped integers": b"\xf9\xf5\xff\xff\xff\xff\x07",
    "string of 2^31 bytes": b"\x68\xff\xff\xff\xff\x07abc",
    "negative length": b"\x29\xfc\xff\xff\xff\xff\x0f",
    "structures nested a million deep": b"\xfc" + b"\x1c" * 1_000_000,
    "lists nested a million deep": b"\xf9" + b"\x19" * 1_000_000,
    "varint without end": b"\x15" + b"\xff" * 1_000_000,
    "map of 2^31 entries": b"\xfb\xff\xff\xff\xff\x07\x55",
}


@pytest.mark.parametrize("footer", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("extension", ["C", "Python"])
def test_hostile_lengths_allocate_nothing(footer: bytes, extension: str, request: pytest.FixtureRequest) -> None:
    if extension == "Python":
        request.getfixturevalue("without_extension")
    tracemalloc.start()
    try:
        with pytest.raises(FormatError) as caught:
            parse_footer(footer, path="p", offset=4)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert caught.value.kind == "InvalidThrift"
    assert peak_bytes < 8 * len(footer) + 500_000


@pytest.mark.usefixtures("without_extension")
def test_python_decodes_and_encodes_like_the_extension(request: pytest.FixtureRequest) -> None:
    for footer in (FOREIGN, GENUINE):
        decoded = FileMetaData.decode(footer, path=None, offset=0)
        encoded = decoded.encode()
        assert decoded.row_groups
        request.getfixturevalue("monkeypatch").undo()
        assert FileMetaData.decode(footer, path=None, offset=0) == decoded
        assert FileMetaData.decode(encoded, path=None, offset=0) == decoded
        assert decoded.encode() == encoded


@pytest.mark.usefixtures("without_extension")
def test_python_survives_flipped_bytes() -> None:
    for position in range(len(FOREIGN)):
        damaged = bytearray(FOREIGN)
        damaged[position] ^= 0xFF
        _read(bytes(damaged))
