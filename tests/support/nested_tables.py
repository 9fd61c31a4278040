"""Random tables with nested columns and odd types, and the many ways in which writers lay them out."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import string
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

CODECS = ("none", "snappy", "gzip", "brotli", "zstd", "lz4")
_FLAT: tuple[Any, ...] = (
    pa.int8(),
    pa.int64(),
    pa.uint16(),
    pa.uint64(),
    pa.float16(),
    pa.float64(),
    pa.bool_(),
    pa.string(),
    pa.binary(),
    pa.binary(5),
    pa.binary(16),
    pa.decimal128(9, 2),
    pa.decimal128(30, 10),
    pa.decimal256(60, 5),
    pa.date32(),
    pa.timestamp("us", "UTC"),
    pa.timestamp("ms"),
    pa.time64("us"),
)


def random_type(random: Random, depth: int) -> Any:
    """Draw a type that is nested at most ``depth`` times."""
    if depth == 0 or random.random() < 0.25:
        return random.choice(_FLAT)
    inner = random_type(random, depth - 1)
    match random.choice(("list", "struct", "struct", "map")):
        case "list":
            return pa.list_(pa.field("element", inner, nullable=random.random() < 0.7))
        case "struct":
            others = [random_type(random, depth - 1) for _ in range(random.randrange(3))]
            return pa.struct(
                [
                    pa.field(name, type_, random.random() < 0.7)
                    for name, type_ in zip("xyz", [inner, *others], strict=False)
                ]
            )
    return pa.map_(random.choice((pa.string(), pa.int32())), inner)


_NARROWER: dict[Any, tuple[Any, ...]] = {
    pa.int64(): (pa.int8(), pa.int64()),
    pa.uint16(): (pa.int8(), pa.uint16()),
    pa.float64(): (pa.int8(), pa.float32()),
    pa.binary(): (pa.string(),),
    pa.decimal128(30, 10): (pa.decimal128(9, 2),),
    pa.timestamp("us", "UTC"): (pa.timestamp("ms", "UTC"),),
    pa.time64("us"): (pa.time32("ms"),),
}


def earlier_type(random: Random, type_: Any) -> Any:
    """Draw what a type may have been in an older file: structs of other fields in another order, narrower leaves."""
    if pa.types.is_struct(type_):
        fields = [field.with_type(earlier_type(random, field.type)) for field in type_ if random.random() < 0.7]
        fields.append(pa.field("older", random.choice(_FLAT)))
        return pa.struct(random.sample(fields, len(fields)))
    if pa.types.is_map(type_):
        return pa.map_(type_.key_type, earlier_type(random, type_.item_type))
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(earlier_type(random, type_.value_type)))
    return random.choice(_NARROWER.get(type_, (type_,)))


def nullable(type_: Any) -> Any:
    """Return a type with nulls allowed at all levels."""
    if pa.types.is_struct(type_):
        return pa.struct([(field.name, nullable(field.type)) for field in type_])
    if pa.types.is_map(type_):
        return pa.map_(nullable(type_.key_type), nullable(type_.item_type))
    if pa.types.is_list(type_):
        return pa.list_(pa.field(type_.value_field.name, nullable(type_.value_type)))
    return type_


def random_value(random: Random, type_: Any, *, nullable: bool = True) -> Any:  # noqa: C901, PLR0911, PLR0912 - one per type
    """Draw a value as Arrow takes it, often null where that may be."""
    if nullable and random.random() < 0.2:
        return None
    if pa.types.is_map(type_):
        keys = [random_value(random, type_.key_type, nullable=False) for _ in range(random.randrange(3))]
        return [(key, random_value(random, type_.item_type)) for key in dict.fromkeys(keys)]
    if pa.types.is_list(type_):
        field = type_.value_field
        return [
            random_value(random, field.type, nullable=field.nullable) for _ in range(random.choice((0, 0, 1, 2, 5)))
        ]
    if pa.types.is_struct(type_):
        return {field.name: random_value(random, field.type, nullable=field.nullable) for field in type_}
    if pa.types.is_boolean(type_):
        return random.random() < 0.5
    if pa.types.is_integer(type_):
        bits = type_.bit_width - pa.types.is_signed_integer(type_)
        return random.choice((0, 1, random.getrandbits(bits)))
    if pa.types.is_floating(type_):
        return random.choice((0.0, -0.0, 1.5, float("nan"), float("-inf"), random.randrange(100)))
    if pa.types.is_decimal(type_):
        return decimal.Decimal(random.randrange(-(10**7), 10**7)).scaleb(-2)
    if pa.types.is_string(type_):
        return "".join(random.choices(string.ascii_letters + "äß€😀", k=random.randrange(6)))
    if pa.types.is_fixed_size_binary(type_):
        return random.randbytes(type_.byte_width)
    if pa.types.is_binary(type_):
        return random.randbytes(random.randrange(4))
    if pa.types.is_date(type_):
        return dt.date(1970, 1, 1) + dt.timedelta(days=random.randrange(-40_000, 40_000))
    if pa.types.is_time(type_):
        return dt.time(random.randrange(24), random.randrange(60), 0, random.randrange(10**6))
    zone = dt.UTC if type_.tz else None
    return dt.datetime(2024, 1, 1, tzinfo=zone) + dt.timedelta(milliseconds=random.randrange(10**12))


def random_nested_rows(random: Random, row_count: int, types: dict[str, Any]) -> pa.Table:
    """Draw the rows of a table: flat columns ``id``, ascending, and ``name``, and others of given types."""
    columns: dict[str, Any] = {
        "id": pa.array(range(row_count), pa.int64()),
        "name": pa.array([random.choice(("a", "b", "c", None)) for _ in range(row_count)], pa.string()),
    }
    for name, type_ in types.items():
        columns[name] = pa.array([random_value(random, type_) for _ in range(row_count)], type_)
    names = list(columns)
    Random(str(types)).shuffle(names)
    return pa.table({name: columns[name] for name in names})


def nested_types(random: Random) -> dict[str, Any]:
    """Draw one to three columns; one has a name that looks like a path into another."""
    return {name: random_type(random, 3) for name in ("n", "n.x", "half")[: random.randint(1, 3)]}


def written_somehow(random: Random, rows: pa.Table) -> bytes:
    """Write rows in one of many layouts: row groups, pages of both versions, codecs, with and without dictionaries."""
    file = io.BytesIO()
    options: dict[str, Any] = {
        "row_group_size": random.choice((7, 40, 1000)),
        "data_page_size": random.choice((1, 64, 1024 * 1024)),
        "data_page_version": random.choice(("1.0", "2.0")),
        "use_dictionary": random.random() < 0.5,
        "compression": random.choice(CODECS),
        "write_page_index": random.random() < 0.5,
        "write_statistics": random.random() < 0.8,
        "use_compliant_nested_type": random.random() < 0.8,
        "store_schema": random.random() < 0.5,
        "write_page_checksum": random.random() < 0.5,
    }
    pq.write_table(rows, file, write_batch_size=random.choice((3, 1024)), **options)
    return file.getvalue()
