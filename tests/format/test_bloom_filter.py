"""Bloom filters against those that QuestDB and Arrow write: a value that is there is never said to be absent."""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldparquet.format.blooms import (
    BLOCK_BYTES,
    MAX_HEADER_BYTES,
    BloomHeader,
    block_numbers,
    blocks_at,
    bloom_hashes,
    is_bitset_length,
    may_be_in_blocks,
    parse_bloom_header,
)
from coldparquet.format.parquet_thrift import BloomAlgorithm, BloomCompression, BloomHash
from coldparquet.format.sidecar import Sidecar
from coldparquet.format.sidecar_layout import PhysicalType
from coldparquet.format.type_codes import decimal_type_code
from coldparquet.format.types import resolve_type
from tests.support.blooms import (
    bitset_of,
    bitset_of_hashes,
    domain_values,
    encoded_header,
    file_with_blooms,
    sidecar_to_keep,
)
from tests.support.questdb_tables import PARTITIONS

LONG = resolve_type(6, PhysicalType.INT64, 0, 0)
INT = resolve_type(5, PhysicalType.INT32, 0, 0)
SHORT = resolve_type(3, PhysicalType.INT32, 0, 0)
IPV4 = resolve_type(25, PhysicalType.INT32, 0, 0)
FLOAT = resolve_type(9, PhysicalType.FLOAT, 0, 0)
DOUBLE = resolve_type(10, PhysicalType.DOUBLE, 0, 0)
VARCHAR = resolve_type(26, PhysicalType.BYTE_ARRAY, 0, 0)
BOOLEAN = resolve_type(1, PhysicalType.BOOLEAN, 0, 0)
UUID = resolve_type(19, PhysicalType.FIXED_LEN_BYTE_ARRAY, 16, 0)
GOLDEN_LONGS = bytes.fromhex("18821808860844060265800a4002264e7201402601c0c2984046002438794000")
GOLDEN_TEXTS = bytes.fromhex("c80150144044086d062504439050602008842b21000563410200e02c404e6004")


def probe(values: list[Any], column_type: Any, bitset: bytes) -> list[bool]:
    """Tell for each value whether one of its hashes may be in the filter."""
    hashes = bloom_hashes(values, column_type)
    assert hashes is not None
    blocks = block_numbers(hashes.hashes, np.array(len(bitset)))
    hits = may_be_in_blocks(hashes.hashes, blocks_at(np.frombuffer(bitset, np.uint8), BLOCK_BYTES * blocks))
    return [bool(hits[hashes.owners == owner].any()) for owner in range(len(values))]


def test_filters_of_the_reference_implementation() -> None:
    assert bitset_of(list(range(10)), LONG, 1) == GOLDEN_LONGS
    assert bitset_of([f"a{number}".encode() for number in range(10)], VARCHAR, 1) == GOLDEN_TEXTS
    assert probe(list(range(200)), LONG, GOLDEN_LONGS) == [number < 10 for number in range(200)]
    texts = [f"a{number}".encode() for number in range(200)]
    assert probe(texts, VARCHAR, GOLDEN_TEXTS) == [number < 10 for number in range(200)]


def test_values_of_a_genuine_file() -> None:
    (partition,) = [partition for partition in PARTITIONS if partition.table == "bloom"]
    sidecar = sidecar_to_keep((partition.directory / "data.parquet").read_bytes(), inline_bytes=1 << 20)
    assert len(sidecar.bloom_columns) == 13
    assert not sidecar.blooms_external
    assert_every_value_is_found(sidecar, partition.expected())


MOMENTS = st.integers(-(2**62), 2**62)
ORACLE_TYPES: dict[str, tuple[Any, Any]] = {
    **{
        f"i{bits}": (getattr(pa, f"int{bits}")(), st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1))
        for bits in (8, 16, 32, 64)
    },
    **{f"u{bits}": (getattr(pa, f"uint{bits}")(), st.integers(0, 2**bits - 1)) for bits in (8, 16, 32, 64)},
    "f32": (pa.float32(), st.floats(width=32, allow_nan=False)),
    "f64": (pa.float64(), st.floats(allow_nan=False)),
    "text": (pa.string(), st.text(max_size=20)),
    "blob": (pa.binary(), st.binary(max_size=20)),
    "fixed16": (pa.binary(16), st.binary(min_size=16, max_size=16)),
    "fixed32": (pa.binary(32), st.binary(min_size=32, max_size=32)),
    "day": (pa.date32(), st.integers(-(2**31), 2**31 - 1)),
    "ms": (pa.timestamp("ms", "UTC"), MOMENTS),
    "us": (pa.timestamp("us", "UTC"), MOMENTS),
    "ns": (pa.timestamp("ns", "UTC"), MOMENTS),
    "local": (pa.timestamp("us"), MOMENTS),
    "t_ms": (pa.time32("ms"), st.integers(0, 86_399_999)),
    "t_ns": (pa.time64("ns"), st.integers(0, 86_399_999_999_999)),
    "dec2": (pa.decimal128(2, 1), st.integers(-99, 99)),
    "dec9": (pa.decimal128(9, 2), st.integers(-999_999_999, 999_999_999)),
    "dec38": (pa.decimal128(38, 3), st.integers(-(10**38) + 1, 10**38 - 1)),
    "dec60": (pa.decimal256(60, 2), st.integers(-(10**60) + 1, 10**60 - 1)),
}


@pytest.mark.parametrize("name", ORACLE_TYPES)
def test_values_of_a_file_of_arrow(name: str) -> None:
    arrow_type, strategy = ORACLE_TYPES[name]

    @settings(max_examples=8)
    @given(st.lists(st.none() | strategy, min_size=1, max_size=30))
    def check(values: list[Any]) -> None:
        if name.startswith("dec"):
            scaled = [
                None
                if value is None
                else Decimal((int(value < 0), tuple(map(int, str(abs(value)))), -arrow_type.scale))
                for value in values
            ]
            column = pa.array(scaled, arrow_type)
        elif name in {"day", "t_ms"}:
            column = pa.array(values, pa.int32()).cast(arrow_type)
        elif name in {"ms", "us", "ns", "local", "t_ns"}:
            column = pa.array(values, pa.int64()).cast(arrow_type)
        else:
            column = pa.array(values, arrow_type)
        table = pa.table({"x": column})
        file = file_with_blooms(table, row_group_rows=7)
        assert_every_value_is_found(sidecar_to_keep(file, inline_bytes=1 << 20), table)

    check()


def assert_every_value_is_found(sidecar: Sidecar, rows: pa.Table) -> None:
    first_row = 0
    for row_group, row_count in enumerate(sidecar.row_counts.tolist()):
        for column in sidecar.bloom_columns:
            name, type_ = sidecar.column(column).name, sidecar.column_type(column)
            bitset = sidecar.bloom_bitset(row_group, column)
            values = domain_values(rows.column(name).slice(first_row, row_count), type_)
            assert bitset is not None
            assert all(probe(values, type_, bytes(bitset))), name
        first_row += row_count


def test_most_absent_values_are_denied() -> None:
    random = Random(5)
    present, absent = ([random.getrandbits(63) for _ in range(1000)] for _ in range(2))
    file = file_with_blooms(pa.table({"x": present}), row_group_rows=1000)
    bitset = sidecar_to_keep(file, inline_bytes=1 << 20).bloom_bitset(0, 0)
    assert bitset is not None
    assert sum(probe(absent, LONG, bytes(bitset))) < 20


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1), st.integers(1, 40))
def test_single_blocks_answer_like_the_whole_filter(hashes: list[int], block_count: int) -> None:
    bitset = bitset_of_hashes(hashes[::2], block_count)
    array, data = np.array(hashes, np.uint64), np.frombuffer(bitset, np.uint8)
    blocks = block_numbers(array, np.full(len(hashes), len(bitset)))
    assert blocks.tolist() == [(value >> 32) * block_count >> 32 for value in hashes]
    hits = may_be_in_blocks(array, blocks_at(data, 32 * blocks))
    assert hits[::2].all()
    # By the letter: a filter holds what adds no bit to it.
    assert hits.tolist() == [bitset_of_hashes([*hashes[::2], value], block_count) == bitset for value in hashes]


def test_both_zeros_are_looked_up() -> None:
    for column_type, code in ((FLOAT, "<f"), (DOUBLE, "<d")):
        hashes = bloom_hashes([1.0, -0.0], column_type)
        assert hashes is not None
        assert hashes.owners.tolist() == [0, 1, 1]
        for stored in (0.0, -0.0):
            stored_hash = bloom_hashes([struct.pack(code, stored)], VARCHAR)
            assert stored_hash is not None
            assert stored_hash.hashes[0] in hashes.hashes[1:]


def test_values_that_a_column_cannot_hold_have_no_hash() -> None:
    for value, column_type in (
        (0.1, FLOAT), (1e300, FLOAT), (2**31, INT), (-(2**63) - 1, LONG), (-1, IPV4), (b"short", UUID), (None, LONG),
    ):  # fmt: skip
        hashes = bloom_hashes([value], column_type)
        assert hashes is not None
        assert not len(hashes.hashes)
    narrow = resolve_type(decimal_type_code(2, 0), PhysicalType.FIXED_LEN_BYTE_ARRAY, 1, 0)
    assert [len(found.owners) for value in (127, 128) if (found := bloom_hashes([value], narrow)) is not None] == [1, 0]


def test_types_that_cannot_be_looked_up() -> None:
    padded = resolve_type(decimal_type_code(5, 0), PhysicalType.BYTE_ARRAY, 0, 0)
    array = resolve_type(2587, PhysicalType.BYTE_ARRAY, 0, 0)
    for value, column_type in ((True, BOOLEAN), (math.nan, DOUBLE), (5, padded), (b"", array)):
        assert bloom_hashes([value], column_type) is None


def test_narrow_integers_are_hashed_as_32_bits() -> None:
    def only_hash(value: Any, column_type: Any) -> int:
        found = bloom_hashes([value], column_type)
        assert found is not None
        return int(found.hashes[0])

    assert (
        only_hash(-2, SHORT)
        == only_hash(-2, INT)
        == only_hash(2**32 - 2, IPV4)
        == only_hash(b"\xfe\xff\xff\xff", VARCHAR)
    )


@pytest.mark.parametrize("bitset_bytes", [32, 64, 96, 1024, 1 << 20, (1 << 31) - 32])
def test_headers(bitset_bytes: int) -> None:
    encoded = encoded_header(bitset_bytes)
    assert len(encoded) <= MAX_HEADER_BYTES
    expected = BloomHeader(length_bytes=len(encoded), bitset_bytes=bitset_bytes)
    assert parse_bloom_header(encoded) == expected
    assert parse_bloom_header(encoded + bytes(100)) == expected
    for length in range(len(encoded)):
        assert parse_bloom_header(encoded[:length]) is None


@pytest.mark.parametrize(
    "header",
    [
        encoded_header(32, algorithm=BloomAlgorithm()),
        encoded_header(32, hash=BloomHash()),
        encoded_header(32, compression=BloomCompression()),
        encoded_header(32, algorithm=None),
        *(encoded_header(length) for length in (0, -32, 1, 31, 33, 48)),
    ],
)
def test_headers_of_filters_of_another_kind(header: bytes) -> None:
    assert parse_bloom_header(header) is None


@given(st.binary(max_size=80))
def test_any_bytes_are_a_header_or_none(data: bytes) -> None:
    header = parse_bloom_header(data)
    assert header is None or (is_bitset_length(header.bitset_bytes) and 0 < header.length_bytes <= MAX_HEADER_BYTES)
