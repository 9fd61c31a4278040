"""Generated files with the traps that public corpora hold: every encoding, codec and type, odd writers, damage."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from coldparquet.format.parquet_thrift import FileMetaData
from tests.support.parquet_footers import parquet_bytes, with_changed_footer

ROWS = 600
_NUMBERS = np.arange(ROWS, dtype=np.int64)
_CONVERTED_UTF8, _CONVERTED_INT_64, _CONVERTED_JSON = 0, 18, 19


def traps() -> Iterator[tuple[str, bytes, str]]:
    """Yield name, file, and what must become of it: see :class:`tests.corpora.comparison.Verdict`."""
    for name, table, options in _writable():
        yield name, parquet_bytes(table, **options), "equal"
    yield from _odd_writers()
    yield from _unreadable_columns()
    yield from _damaged()


def _writable() -> Iterator[tuple[str, pa.Table, dict[str, Any]]]:
    everything = _everything()
    for codec in ("none", "snappy", "gzip", "brotli", "zstd", "lz4"):
        for version in ("1.0", "2.0"):
            options: dict[str, Any] = {"compression": codec, "data_page_version": version}
            yield f"{codec}, pages of version {version}", everything, options
    yield "small pages with index and checksums", everything, {
        "data_page_size": 256, "write_batch_size": 16, "write_page_index": True, "write_page_checksum": True,
    }  # fmt: skip
    yield "dictionaries that overflow", everything, {"dictionary_pagesize_limit": 64, "data_page_size": 256}
    yield "no dictionaries, no statistics", everything, {"use_dictionary": False, "write_statistics": False}
    yield "INT96", _times("ns"), {"use_deprecated_int96_timestamps": True}
    yield "integer decimals", _decimals(5, 2), {"store_decimal_as_integer": True}
    for encoding, names in (
        ("DELTA_BINARY_PACKED", ("int32", "int64")),
        ("BYTE_STREAM_SPLIT", ("int32", "int64", "float", "double")),
        ("DELTA_LENGTH_BYTE_ARRAY", ("text",)),
        ("DELTA_BYTE_ARRAY", ("text",)),
    ):
        options = {"use_dictionary": False, "column_encoding": dict.fromkeys(names, encoding)}
        yield encoding, everything.select(names), options
    for digits, scale in ((9, 0), (18, 18), (38, 2), (76, 40)):
        yield f"decimals of {digits} digits", _decimals(digits, scale), {}
    for unit in ("ms", "us", "ns"):
        yield f"times in {unit}", _times(unit), {"version": "2.6"}
    yield "no rows", everything.slice(0, 0), {}
    yield "one row", everything.slice(7, 1), {}
    yield "nothing but nulls", pa.table({"n": pa.nulls(9), "i": pa.nulls(9, pa.int64())}), {}
    yield "never null", _required(), {}


def _everything() -> pa.Table:
    """Flat columns of many types, a fifth of each null; NaN, infinities, both zeros, and the ends of each range."""
    nulls = _NUMBERS % 5 == 3
    floats = (_NUMBERS - 300) * 1.5
    floats[:6] = [np.nan, np.inf, -np.inf, 0.0, -0.0, 5e-324]
    columns: dict[str, Any] = {}
    for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"):
        kind = np.dtype(name)
        values = (_NUMBERS % 100).astype(kind)
        values[:2] = np.iinfo(kind).min, np.iinfo(kind).max
        columns[name] = pa.array(values, mask=nulls)
    columns["float"] = pa.array(floats.astype(np.float32), mask=nulls)
    columns["double"] = pa.array(floats, mask=nulls)
    columns["bool"] = pa.array(_NUMBERS % 3 == 0, mask=nulls)
    texts = [f"{number % 40:x}" * (number % 7) + "\N{GREEK SMALL LETTER LAMDA}\0" for number in range(ROWS)]
    columns["text"] = pa.array(texts, pa.string(), mask=nulls)
    columns["bytes"] = pa.array([text.encode("utf-16") for text in texts], pa.binary(), mask=nulls)
    columns["label"] = columns["text"].dictionary_encode()
    columns["day"] = pa.array(_NUMBERS.astype(np.int32) - 300, pa.date32(), mask=nulls)
    columns["of_day"] = pa.array(_NUMBERS * 1_000_003, pa.time64("us"), mask=nulls)
    columns["uuid"] = pa.array([bytes([number % 256] * 16) for number in range(ROWS)], pa.binary(16), mask=nulls)
    return pa.table(columns)


def _required() -> pa.Table:
    fields: list[Any] = [pa.field("n", pa.int64(), nullable=False), pa.field("t", pa.string(), nullable=False)]
    return pa.table([pa.array(_NUMBERS), pa.array(map(str, _NUMBERS), pa.string())], schema=pa.schema(fields))


def _times(unit: Any) -> pa.Table:
    instants = pa.array(_NUMBERS * 86_399_999_983 - 10**15, pa.timestamp(unit))
    return pa.table({"local": instants, "utc": instants.cast(pa.timestamp(unit, "UTC"))})


def _decimals(digits: int, scale: int) -> pa.Table:
    type_ = pa.decimal128(digits, scale) if digits <= 38 else pa.decimal256(digits, scale)
    largest = Decimal((0, (9,) * digits, -scale))
    some = [Decimal((number % 2, (0,) * (digits - 1) + (number % 10,), -scale)) for number in range(50)]
    return pa.table({"d": pa.array([largest, largest.copy_negate(), None, *some], type_)})


def _odd_writers() -> Iterator[tuple[str, bytes, str]]:
    """Files that readers understand although their metadata says less, or other things, than the format asks for."""
    sorted_ = _required()

    def no_order(footer: FileMetaData) -> None:
        footer.column_orders = None

    def lie_without_order(footer: FileMetaData) -> None:
        footer.column_orders = None
        for row_group in footer.row_groups:
            statistics: Any = row_group.columns[0].meta_data.statistics  # type: ignore[union-attr]
            statistics.min_value, statistics.max_value = statistics.max_value, statistics.min_value

    def no_repetition(footer: FileMetaData) -> None:
        for element in footer.schema:
            element.repetition_type = None

    def no_writer(footer: FileMetaData) -> None:
        footer.created_by = None

    def count_rows(footer: FileMetaData) -> None:
        for row_group, row_count in zip(footer.row_groups, (4, 4, 1), strict=True):
            row_group.num_rows = row_count
        footer.num_rows = 9

    def to_json(footer: FileMetaData) -> None:
        footer.schema[1].converted_type = _CONVERTED_JSON

    yield "no column orders", with_changed_footer(parquet_bytes(sorted_, row_group_size=100), no_order), "equal"
    yield "bounds without order that lie", with_changed_footer(parquet_bytes(sorted_), lie_without_order), "equal"
    yield "no repetition", with_changed_footer(parquet_bytes(sorted_), no_repetition), "equal"
    yield "no writer", with_changed_footer(parquet_bytes(_everything()), no_writer), "equal"
    bare = parquet_bytes(pa.table({"": pa.nulls(9)}).select([]), row_group_size=4)
    yield "rows and no columns", with_changed_footer(bare, count_rows), "equal"
    outside = pa.array([-13_899_000, 5, None, 86_400_000], pa.int32())
    yield "times outside of a day", parquet_bytes(pa.table({"t": outside.view(pa.time32("ms"))})), "equal"
    yield "JSON", with_changed_footer(parquet_bytes(pa.table({"j": [b'{"a": 1}', b"2", None]})), to_json), "equal"


def _unreadable_columns() -> Iterator[tuple[str, bytes, str]]:
    """Files with columns of types that few writers use, or of which some are refused with a reason."""

    def claim(position: int, converted_type: int) -> Any:
        def change(footer: FileMetaData) -> None:
            footer.schema[position].converted_type = converted_type
            footer.schema[position].logicalType = None

        return change

    flat = pa.table({"n": pa.array(_NUMBERS.astype(np.int32)), "b": pa.array([b"\xff\xfe"] * ROWS, pa.binary())})
    halves = pa.table({"n": _NUMBERS, "half": pa.array(_NUMBERS.astype(np.float16))})
    twice = pa.table([_NUMBERS, _NUMBERS], names=["same", "same"])
    early = pa.table({"t": pa.array([-(10**18), 0], pa.timestamp("us"))})
    yield "half floats", parquet_bytes(halves), "equal"
    yield "half floats alone", parquet_bytes(halves.select(["half"])), "equal"
    yield (
        "fixed length of 5",
        parquet_bytes(pa.table({"f": pa.array([b"12345"] * 9, pa.binary(5)), "n": range(9)})),
        "equal",
    )
    yield "one name twice", parquet_bytes(twice), "refused"
    yield "nested beside flat", parquet_bytes(pa.table({"n": range(3), "s": [{"a": 1}, {"a": 2}, None]})), "equal"
    yield "64 bits in 32", with_changed_footer(parquet_bytes(flat), claim(1, _CONVERTED_INT_64)), "unreadable"
    yield "text that is not UTF-8", with_changed_footer(parquet_bytes(flat), claim(2, _CONVERTED_UTF8)), "unreadable"
    yield "INT96 long ago", parquet_bytes(early, use_deprecated_int96_timestamps=True), "refused"


def _damaged() -> Iterator[tuple[str, bytes, str]]:
    file = parquet_bytes(_required(), compression="none", use_dictionary=False, write_page_checksum=True)

    def other_rows(footer: FileMetaData) -> None:
        footer.num_rows += 1

    flipped = bytearray(file)
    flipped[len(file) // 3] ^= 0x10
    yield "a flipped bit under a checksum", bytes(flipped), "unreadable"
    yield "cut short", file[: len(file) // 2], "unreadable"
    yield "no footer", file[:-40] + bytes(40), "unreadable"
    yield "nothing", b"", "unreadable"
    yield "counts contradict", with_changed_footer(file, other_rows), "refused"
