"""Where statistics come from: columns that a partition lacks or holds as another type, and names of directories."""

from __future__ import annotations

import struct

import numpy as np

from coldparquet.format.sidecar import Sidecar, parse_sidecar
from coldparquet.format.sidecar_layout import PhysicalType, Repetition, column_flags
from coldparquet.format.sidecar_writer import (
    BoundSpec,
    ChunkSpec,
    ColumnSpec,
    RowGroupSpec,
    SidecarContent,
    encode_sidecar,
)
from coldparquet.format.types import canonical_type, resolve_type
from coldparquet.plan.bind import BoundField, bind
from coldparquet.plan.prune import prune
from coldparquet.plan.statistics import IntervalStatistics, SidecarStatistics
from coldparquet.plan.where import parse_predicate

INT32, INT64, DOUBLE, BYTES = PhysicalType.INT32, PhysicalType.INT64, PhysicalType.DOUBLE, PhysicalType.BYTE_ARRAY


def packed(value: int) -> bytes:
    return struct.pack("<q", value)


def one_column(type_code: int, physical_type: PhysicalType, low: bytes, high: bytes) -> Sidecar:
    flags = column_flags(repetition=Repetition.OPTIONAL)
    chunk = ChunkSpec(
        codec=0,
        encodings=1,
        num_values=10,
        byte_range_start=4,
        total_compressed_bytes=1,
        null_count=0,
        min=BoundSpec(low),
        max=BoundSpec(high),
    )
    content = SidecarContent(
        columns=[ColumnSpec(name="x", type_code=type_code, physical_type=physical_type, flags=flags, max_def_level=1)],
        row_groups=[RowGroupSpec(row_count=10, chunks=[chunk])],
        parquet_footer_offset=1000,
        parquet_footer_length=100,
    )
    return parse_sidecar(encode_sidecar(content))


def test_column_that_a_partition_lacks() -> None:
    sidecar = one_column(6, INT64, packed(1), packed(9))
    number = BoundField("n", 7, resolve_type(6, INT64, 0, 0))
    short = BoundField("s", 8, resolve_type(3, INT32, 0, 0))
    flag = BoundField("f", 9, resolve_type(1, PhysicalType.BOOLEAN, 0, 0))
    other = BoundField("o", 10, number.type)
    statistics = SidecarStatistics(sidecar, {7: None, 8: None, 9: None})
    outcomes = {}
    for where in ("n = 1", "n is null", "s = 0", "s > 0", "f", "not f", "f = false", "o = 1", "o is null"):
        predicate = parse_predicate(where)
        assert predicate is not None
        bound = bind(predicate, {"n": number, "s": short, "f": flag, "o": other})
        outcomes[where] = bool(prune(bound, statistics, 1)[0].survives[0])
    assert outcomes == {
        "n = 1": False, "n is null": True, "s = 0": True, "s > 0": False, "f": False, "not f": True,
        "f = false": True, "o = 1": True, "o is null": True,
    }  # fmt: skip


def test_statistics_of_a_type_with_another_order_say_nothing() -> None:
    sidecar = one_column(131_080, INT64, packed(1), packed(9))
    for type_code in (7, 3, 26):
        field = BoundField("x", 0, canonical_type(type_code))
        assert SidecarStatistics(sidecar).bounds(field) is None
    texts = one_column(26, BYTES, b"a", b"b")
    assert SidecarStatistics(texts).bounds(BoundField("x", 0, resolve_type(12, BYTES, 0, 0))) is not None


def test_column_of_an_unreadable_type_says_nothing() -> None:
    sidecar = one_column(-1, INT64, packed(1), packed(9))
    assert SidecarStatistics(sidecar).bounds(BoundField("x", 0, resolve_type(6, INT64, 0, 0))) is None


def test_intervals_of_partitions() -> None:
    timestamp = BoundField("ts", 2, resolve_type(131_080, INT64, 0, 0))
    price = BoundField("price", 3, resolve_type(10, DOUBLE, 0, 0))
    day_us = 86_400_000_000
    lower = np.arange(3, dtype=np.int64) * day_us
    known = np.array([True, True, False])
    statistics = IntervalStatistics(column=2, lower=lower, upper=lower + day_us - 1, known=known)
    outcomes = {}
    for where in ("ts < '1970-01-02'", "ts >= '1970-01-01' and ts < '1970-01-03'", "ts is null", "price > 3"):
        predicate = parse_predicate(where)
        assert predicate is not None
        verdict, report = prune(bind(predicate, {"ts": timestamp, "price": price}), statistics, 3)
        outcomes[where] = (verdict.survives.tolist(), verdict.all_rows_match.tolist())
        assert report.row_groups == 3
    assert outcomes == {
        "ts < '1970-01-02'": ([True, False, True], [True, False, False]),
        "ts >= '1970-01-01' and ts < '1970-01-03'": ([True, True, True], [True, True, False]),
        "ts is null": ([False, False, False], [False, False, False]),
        "price > 3": ([True, True, True], [False, False, False]),
    }
