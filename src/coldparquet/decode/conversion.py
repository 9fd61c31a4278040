"""Converts stored values of a column to the type that the column has now.

The rules are those of QuestDB's ``ALTER COLUMN TYPE``. They were found by running QuestDB 9.3.4 for every pair of types
(the results are under ``tests/golden/conversions``) and by reading how later versions do it. Null stays null, except
that it becomes false or 0 in BOOLEAN, BYTE, SHORT and CHAR. ``coldparquet.plan.type_changes`` lists the pairs.

| from | to | a value becomes |
|---|---|---|
| integer, date, timestamp | narrower integer | its low bits; INT and LONG: null if they are those of null |
| integer | wider integer, date, timestamp | the same number, of the new unit |
| integer, date, timestamp | FLOAT, DOUBLE | the nearest one |
| date, timestamp | another unit | truncated towards zero; the low 64 bits of what does not fit |
| date, timestamp | LONG | its number of units since 1970 |
| BOOLEAN | any number | 1 or 0 |
| any number | BOOLEAN | whether it is another number than 0; infinities are |
| FLOAT, DOUBLE | integer, date, timestamp | truncated towards zero; null (or 0) if it does not fit |
| FLOAT, DOUBLE | DOUBLE, FLOAT | the nearest one; null if it is infinite or too large |
| integer, DECIMAL | DECIMAL | the same number; if it does not fit or loses digits QuestDB's statement fails, and so does reading |
| anything | text | see ``coldparquet.decode.convert_text`` |
| text | anything | see ``coldparquet.decode.convert_text``; null (or false, 0) if it has no valid form |

No statement has changed columns of foreign files. Their types are unified as by Arrow: each value stays the same, or it
is an error. See ``coldparquet.plan.type_changes``.

In newer files BYTE, SHORT and CHAR can mark rows from before the column existed; these become null, as in QuestDB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from coldparquet.decode.arrow import PLAIN_TEXT, arrow_type, compute, only_where, zero
from coldparquet.decode.convert_text import text_from_values, values_from_text
from coldparquet.decode.dictionaries import without_unused_values
from coldparquet.decode.parquet_reader import not_convertible
from coldparquet.decode.stored_types import widened
from coldparquet.errors import InternalError, UnsupportedError
from coldparquet.plan.predicate import NANOSECONDS_PER_UNIT
from coldparquet.plan.type_changes import Family, can_convert, family_of, widens

if TYPE_CHECKING:
    from coldparquet.decode.arrow import Values
    from coldparquet.decode.parquet_reader import ChunkLabel
    from coldparquet.format.types import ColumnType

_GREATEST_FLOAT = {"float32": (2 - 2.0**-23) * 2.0**127, "float64": (2 - 2.0**-52) * 2.0**1023}
_MS_PER_DAY = 86_400_000


def convert_values(values: Values, stored: ColumnType, wanted: ColumnType, *, result: Any, label: ChunkLabel) -> Values:
    """Convert values to the present type of their column."""
    if not can_convert(stored, wanted):
        raise InternalError(f"values of {stored.name} were planned to become {wanted.name}", path=label.path)
    if isinstance(values, pa.DictionaryArray):
        if values.type == result:
            return values  # text stays text
        # Each distinct value is converted once, and only values that some row has: others might not be convertible.
        used = without_unused_values(values)
        distinct = _convert(used.dictionary, stored, wanted, label)
        converted: Any = distinct.take(used.indices)
    else:
        converted = _convert(values, stored, wanted, label)
    if wanted.never_null and converted.null_count:
        converted = converted.fill_null(zero(converted.type))
    if pa.types.is_dictionary(result):
        return converted.dictionary_encode()
    # pyarrow makes an invalid array of a list of nulls, even for the type that it has.
    return converted if converted.type.equals(result, check_metadata=True) else converted.cast(result)


def _convert(values: Values, stored: ColumnType, wanted: ColumnType, label: ChunkLabel) -> Values:
    """Convert plain values; nulls stay nulls, whatever the type. Instants come as integers."""
    if wanted.is_unified and widens(stored, wanted):
        return _widen(values, wanted, label)
    if pa.types.is_date32(values.type):
        values = compute.multiply(values.cast(pa.int32()).cast(pa.int64()), _MS_PER_DAY).cast(pa.timestamp("ms", "UTC"))
    match family_of(stored), family_of(wanted):
        case Family.TEXT, Family.TEXT:
            converted = values
        case Family.TEXT, _:
            converted = values_from_text(values, wanted, label)
        case _, Family.TEXT:
            converted = text_from_values(values, wanted.name, label)
        case _, Family.DECIMAL:
            converted = _decimals(values, wanted, label)
        case Family.FLOAT, _:
            converted = _from_floats(values, wanted)
        case Family.INSTANT, Family.INSTANT:
            converted = _other_unit(values, str(wanted.arrow.unit))
        case _, Family.BOOLEAN:
            converted = values.cast(pa.int64()).cast(pa.bool_())
        case _:
            converted = _least_as_null(values.cast(pa.int64()).cast(_number_type(wanted), safe=False))
    return converted


def _widen(values: Values, wanted: ColumnType, label: ChunkLabel) -> Values:
    """Convert values to the type that Arrow unifies theirs with others to; each keeps its value."""
    try:
        return widened(values, arrow_type(wanted, text=PLAIN_TEXT))
    except pa.ArrowInvalid as error:
        raise UnsupportedError(
            f"{label}: other partitions make this column {wanted.name}, and a value of this one does not fit: {error};"
            " leave the column out, or read the partition by itself",
            kind="ChangedColumnType",
            path=label.path,
            columns=label.columns,
        ) from None


def _from_floats(values: Values, wanted: ColumnType) -> Values:
    doubles = values.cast(pa.float64())
    doubles = only_where(doubles, compute.invert(compute.is_nan(doubles)))
    type_ = _number_type(wanted)
    if pa.types.is_boolean(type_):
        return doubles.cast(type_)
    if pa.types.is_floating(type_):
        fits = compute.less_equal(compute.abs(doubles), _GREATEST_FLOAT[wanted.arrow.name])
        return only_where(doubles, fits).cast(type_, safe=False)
    limit = 2.0 ** (type_.bit_width - 1)
    # Below 64 bits the fraction counts: 127.5 does not fit into a BYTE.
    fits_above = compute.less(doubles, limit) if type_.bit_width == 64 else compute.less_equal(doubles, limit - 1)
    fits = compute.and_(fits_above, compute.greater_equal(doubles, -limit))
    return _least_as_null(only_where(doubles, fits).cast(type_, safe=False))


def _other_unit(instants: Values, unit: str) -> Values:
    counts = instants.cast(pa.int64())
    before_ns, after_ns = NANOSECONDS_PER_UNIT[instants.type.unit], NANOSECONDS_PER_UNIT[unit]
    if after_ns > before_ns:
        return compute.divide(counts, after_ns // before_ns)  # truncates towards zero
    return _least_as_null(compute.multiply(counts, before_ns // after_ns))  # wraps around


def _decimals(values: Values, wanted: ColumnType, label: ChunkLabel) -> Values:
    try:
        return widened(values, arrow_type(wanted, text=PLAIN_TEXT))
    except pa.ArrowInvalid as error:
        raise not_convertible(
            label, wanted.name, "one of its values", f"QuestDB refuses it as well ({error})"
        ) from None


def _number_type(column_type: ColumnType) -> Any:
    """Return the Arrow type of numbers and truth values: 64-bit integers for instants."""
    return pa.int64() if column_type.arrow.name == "timestamp" else arrow_type(column_type, text=PLAIN_TEXT)


def _least_as_null(numbers: Values) -> Values:
    """Turn the number that QuestDB stores for null into null; BYTE and SHORT have no null and keep theirs."""
    if not pa.types.is_integer(numbers.type) or numbers.type.bit_width < 32:
        return numbers
    least = pa.scalar(-(1 << (numbers.type.bit_width - 1)), numbers.type)
    return only_where(numbers, compute.not_equal(numbers, least))
