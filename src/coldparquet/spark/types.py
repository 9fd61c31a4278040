"""Maps column types of a table to Spark's.

| column | Spark | note |
|---|---|---|
| BOOLEAN | boolean | |
| BYTE, SHORT, INT, LONG | tinyint, smallint, int, bigint | |
| FLOAT, DOUBLE | float, double | |
| STRING, VARCHAR, SYMBOL | string | |
| CHAR | string | one character; null for 0; half of a character becomes U+FFFD |
| TIMESTAMP | timestamp | microseconds, UTC |
| TIMESTAMP_NS | timestamp | cut to microseconds; with the option ``nanoseconds=long`` bigint, nanoseconds since 1970 |
| DATE | timestamp | milliseconds |
| UUID | string | ``11111111-2222-3333-4444-555555555555`` |
| IPv4 | string | ``192.168.0.1`` |
| LONG128, LONG256 | string | ``0x1f`` |
| GEOHASH | string | ``u33d8b`` where it counts characters, ``0110`` where it counts bits |
| DECIMAL(p,s) | decimal(p,s) up to 38 digits, else string | |
| BINARY | binary | |
| DOUBLE[], DOUBLE[][] ... | array<double>, array<array<double>> ... | |
| unsigned integers of 8, 16, 32, 64 bits in foreign files | smallint, int, bigint, decimal(20,0) | |
| timestamps without time zone in foreign files | timestamp_ntz | |
| times of day in foreign files | bigint | in the unit of the file |
| dates in foreign files | date | |

Every column may be null for Spark, because its Arrow contract has no other option.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from coldparquet.errors import InvalidInputError
from coldparquet.spark.conversion import is_written_as_text, questdb_type

if TYPE_CHECKING:
    from coldparquet.spark.options import NanosecondsAs


_PLAIN_TYPES: dict[pa.DataType, DataType] = {
    pa.bool_(): BooleanType(),
    pa.int8(): ByteType(),
    pa.int16(): ShortType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.uint8(): ShortType(),
    pa.uint16(): IntegerType(),
    pa.uint32(): LongType(),
    pa.uint64(): DecimalType(20, 0),
    pa.float16(): FloatType(),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
    pa.date32(): DateType(),
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    pa.null(): StringType(),
}


def spark_schema(schema: pa.Schema, *, nanoseconds: NanosecondsAs = "timestamp") -> StructType:
    """Return the schema that Spark sees."""
    return StructType([StructField(field.name, spark_type(field, nanoseconds=nanoseconds)) for field in schema])


def spark_type(field: pa.Field[Any], *, nanoseconds: NanosecondsAs = "timestamp") -> DataType:
    """Return the type that a column has in Spark."""
    if is_written_as_text(field):
        return StringType()
    return _arrow_as_spark(field.type, nanoseconds)


def _arrow_as_spark(source: Any, nanoseconds: NanosecondsAs) -> DataType:  # noqa: PLR0911 - a table, read from the top
    if pa.types.is_timestamp(source):
        if source.unit == "ns" and nanoseconds == "long":
            return LongType()
        return TimestampNTZType() if source.tz is None else TimestampType()
    if pa.types.is_decimal128(source):
        return DecimalType(source.precision, source.scale)
    if pa.types.is_decimal256(source):
        return StringType()
    if pa.types.is_time(source):
        return LongType()
    if pa.types.is_list(source):
        return ArrayType(_arrow_as_spark(source.value_type, nanoseconds))
    if pa.types.is_map(source):
        return MapType(_arrow_as_spark(source.key_type, nanoseconds), _arrow_as_spark(source.item_type, nanoseconds))
    if pa.types.is_struct(source):
        return StructType([StructField(field.name, _arrow_as_spark(field.type, nanoseconds)) for field in source])
    if pa.types.is_fixed_size_binary(source):
        return BinaryType()
    return _PLAIN_TYPES[source]


def check_requested(requested: StructType, schema: pa.Schema) -> None:
    """Check that columns have the requested types."""
    for wanted, field in zip(requested, schema, strict=True):
        if not wanted.nullable:
            raise InvalidInputError(
                f"the schema says that column {field.name!r} is never null; leave NOT NULL out, because Spark would answer IS"
                " NULL without a look at the rows",
                kind="SchemaMismatch",
                column=field.name,
            )
        possible = [spark_type(field), spark_type(field, nanoseconds="long")]
        if wanted.dataType in possible:
            continue
        raise InvalidInputError(
            f"column {field.name!r} is {questdb_type(field)}, which Spark reads as {possible[0].simpleString()}, but the schema"
            f" says {wanted.dataType.simpleString()}; correct the schema, or leave it out and cast the column",
            kind="SchemaMismatch",
            column=field.name,
            type=questdb_type(field),
            requested=wanted.dataType.simpleString(),
        )
