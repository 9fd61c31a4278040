"""Converts values to text and text to values, as QuestDB does when the type of a column is changed.

| from | text |
|---|---|
| BOOLEAN | `true`, `false` |
| BYTE, SHORT, INT, LONG | decimal digits |
| DATE, TIMESTAMP, TIMESTAMP_NS | `2024-02-29T12:30:45.123Z` with 3, 6 or 9 digits |
| FLOAT, DOUBLE | as Java: the shortest digits that mean the number, `0.001` to `9999999.0` plain, others `1.0E7`; infinities null |
| CHAR | the character; 0 is null |
| IPv4 | `192.168.0.1` |
| UUID | `11111111-2222-3333-4444-555555555555` |

FLOAT from 2**24 on has its own rule, see ``_digits_of_large_floats``. Some values are refused because QuestDB writes
something odd: instants before the year 1 or after 9999, in nanoseconds before 1678; FLOAT below 2**-126; CHAR that is
half of a character.

Text becomes numbers, instants and so on as QuestDB reads it when a STRING, SYMBOL or VARCHAR column is converted. Text
without exactly this form becomes null (false or 0 in types without null):

| to | form |
|---|---|
| BOOLEAN | `true` in any case is true, all else false |
| INT | digits with an optional sign, single underscores between them; null if the number does not fit |
| BYTE, SHORT | as INT, then its low bits |
| LONG | as INT, but no `+`, and an optional `L` behind |
| FLOAT, DOUBLE | a decimal number, or `Infinity`; `f` behind a FLOAT, `d` behind a DOUBLE; blanks and control |
| | characters around; null if the number is too large, or too small for another number than 0 |
| DATE, TIMESTAMP, | `2024`, `2024-02`, `2024-02-29`; then `T` or a space and `12`, `12:30`, `12:30:45`; then up to 9 |
| TIMESTAMP_NS | digits of a second, and `Z`, `+01:00`, `+0100` or `+01`; digits beyond the unit are cut off |
| CHAR | the first UTF-16 unit (9.3.4 takes a wrong one of VARCHAR beyond ASCII, later versions do not) |
| IPv4 | four numbers up to 255, with dots between them |
| UUID | `11111111-2222-3333-4444-555555555555` |

Some text is refused because QuestDB converts it to something odd: signs and underscores inside of times and addresses,
dots around addresses, a point without digits in times, years before 1, nanoseconds before 1678 or after 2261,
hexadecimal floats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from coldparquet.decode.arrow import compute, numbers_to_arrow, numbers_to_numpy, only_where
from coldparquet.decode.parquet_reader import not_convertible
from coldparquet.format.types import TypeTag
from coldparquet.plan.predicate import NANOSECONDS_PER_UNIT

if TYPE_CHECKING:
    import numpy.typing as npt

    from coldparquet.decode.arrow import Values
    from coldparquet.decode.parquet_reader import ChunkLabel
    from coldparquet.format.types import ColumnType


_YEAR_1_S = -62_135_596_800
_YEAR_1678_S = -9_214_560_000
_YEAR_10000_S = 253_402_300_800
_SURROGATES = range(0xD800, 0xE000)
_LEAST_NORMAL_FLOAT = 2.0**-126
_FLOAT_DIGITS_FROM = 2.0**24
_FLOAT_DIGITS_TO = 2.0**63

_UUID_DASHES = (8, 13, 18, 23)
_UUID_LENGTH = 36
_UUID_BYTES = 16
_HEX_DIGITS = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)


def text_from_values(values: Values, table_type: str, label: ChunkLabel) -> Values:
    """Write values as text."""
    type_ = values.type
    if pa.types.is_timestamp(type_):
        return _instants(values, table_type, label)
    if pa.types.is_floating(type_):
        return _floats(values, table_type, label)
    if pa.types.is_uint16(type_):
        return _characters(values, table_type, label)
    if pa.types.is_uint32(type_):
        return _addresses(values)
    if pa.types.is_fixed_size_binary(type_):
        return _uuids(values)
    return values.cast(pa.string())


def _instants(values: Values, table_type: str, label: ChunkLabel) -> Values:
    unit: Any = values.type.unit
    counts = values.cast(pa.int64())
    units_per_s = NANOSECONDS_PER_UNIT["s"] // NANOSECONDS_PER_UNIT[unit]
    first = (_YEAR_1678_S if unit == "ns" else _YEAR_1_S) * units_per_s
    last = min(_YEAR_10000_S * units_per_s - 1, (1 << 63) - 1)
    in_range = compute.and_(compute.greater_equal(counts, first), compute.less_equal(counts, last))
    _check(in_range, counts, table_type, label, "QuestDB writes times of that age or future in another form")
    text = counts.cast(pa.timestamp(unit)).cast(pa.string())
    return compute.binary_join_element_wise(compute.replace_substring(text, " ", "T", max_replacements=1), "Z", "")


def _floats(values: Values, table_type: str, label: ChunkLabel) -> Values:
    values = only_where(values, compute.is_finite(values))
    sizes = compute.abs(values.cast(pa.float64()))
    is_zero = compute.equal(sizes, 0.0)
    # The two ways have no number in common, and each is computed for all of them.
    plain = _plain(values)
    scientific = _scientific(values.cast(pa.string()))
    if pa.types.is_float32(values.type):
        is_normal = compute.or_(is_zero, compute.greater_equal(sizes, _LEAST_NORMAL_FLOAT))
        _check(is_normal, values, table_type, label, "QuestDB writes numbers that small with other digits")
        is_large = compute.and_(compute.greater_equal(sizes, _FLOAT_DIGITS_FROM), compute.less(sizes, _FLOAT_DIGITS_TO))
        if compute.any(is_large).as_py():
            exact = only_where(values.cast(pa.float64()), is_large).cast(pa.int64())
            scientific = compute.if_else(is_large, _scientific(_digits_of_large_floats(exact)), scientific)
    is_plain = compute.or_(is_zero, compute.and_(compute.greater_equal(sizes, 1e-3), compute.less(sizes, 1e7)))
    return compute.if_else(is_plain, plain, scientific)


def _plain(values: Values) -> Values:
    text = values.cast(pa.string())
    return compute.replace_substring_regex(text, pattern=r"^(-?[0-9]+)$", replacement=r"\1.0")


def _scientific(text: Values) -> Values:
    """Normalise decimal numbers of any form to ``-1.25E-7``."""
    parts = compute.extract_regex(
        text, r"^(?P<sign>-?)(?P<whole>[0-9]+)\.?(?P<fraction>[0-9]*)(?:e(?P<exponent>[+-]?[0-9]+))?$"
    )
    sign, whole, fraction, exponent = (
        compute.struct_field(parts, [name]) for name in ("sign", "whole", "fraction", "exponent")
    )
    digits = compute.binary_join_element_wise(whole, fraction, "")
    significant = compute.utf8_ltrim(digits, "0")
    leading_zeros = compute.subtract(compute.utf8_length(digits), compute.utf8_length(significant))
    stated = compute.if_else(compute.equal(exponent, ""), "0", compute.utf8_ltrim(exponent, "+")).cast(pa.int32())
    power = compute.add(compute.subtract(compute.subtract(compute.utf8_length(whole), leading_zeros), 1), stated)
    rest = compute.utf8_rtrim(compute.utf8_slice_codeunits(significant, 1), "0")
    rest = compute.if_else(compute.equal(rest, ""), "0", rest)
    first = compute.utf8_slice_codeunits(significant, 0, 1)
    return compute.binary_join_element_wise(sign, first, ".", rest, "E", power.cast(pa.string()), "")


def _digits_of_large_floats(whole: Values) -> Values:
    """Write FLOATs that are whole numbers of 25 to 63 bits.

    QuestDB writes the exact number here, rounded to the digits that 24 bits can distinguish. That may be more digits
    than the shortest form has.
    """
    known = whole.is_valid()
    numbers = numbers_to_numpy(compute.fill_null(whole, 1 << 24), np.int64)
    sizes = np.abs(numbers)
    bits_beyond = np.frexp(sizes.astype(np.float64))[1] - 1 - 24
    dropped_digits = np.maximum(np.floor((bits_beyond - 1) * np.log10(2.0)), 0).astype(np.int64)
    powers = 10**dropped_digits
    rounded = (sizes + powers // 2) // powers * powers
    text = numbers_to_arrow(np.where(numbers < 0, -rounded, rounded), pa.int64()).cast(pa.string())
    return only_where(text, known)


def _characters(values: Values, table_type: str, label: ChunkLabel) -> Values:
    encoded = values.dictionary_encode()
    units = encoded.dictionary.to_pylist()
    for unit in units:
        if unit in _SURROGATES:
            raise not_convertible(label, table_type, unit, "it is half of a character")
    text = pa.array([chr(unit) if unit else None for unit in units], pa.string())
    return text.take(encoded.indices)


def _addresses(values: Values) -> Values:
    values = only_where(values, compute.not_equal(values, 0))
    octets = [
        compute.bit_wise_and(compute.shift_right(values, pa.scalar(bits, pa.uint32())), pa.scalar(255, pa.uint32()))
        for bits in (24, 16, 8, 0)
    ]
    return compute.binary_join_element_wise(*(octet.cast(pa.string()) for octet in octets), ".")


def _uuids(values: Values) -> Values:
    data = values.buffers()[1]
    start = values.offset * _UUID_BYTES
    raw = np.frombuffer(data or b"", dtype=np.uint8, count=len(values) * _UUID_BYTES, offset=start)
    digits = np.empty((len(values), 2 * _UUID_BYTES), dtype=np.uint8)
    digits[:, 0::2] = _HEX_DIGITS[raw >> 4].reshape(-1, _UUID_BYTES)
    digits[:, 1::2] = _HEX_DIGITS[raw & 15].reshape(-1, _UUID_BYTES)
    text = np.full((len(values), _UUID_LENGTH), ord("-"), dtype=np.uint8)
    is_digit = np.ones(_UUID_LENGTH, dtype=bool)
    is_digit[list(_UUID_DASHES)] = False
    text[:, is_digit] = digits
    offsets = np.arange(len(values) + 1, dtype=np.int32) * _UUID_LENGTH
    written = pa.Array.from_buffers(
        pa.string(), len(values), [None, pa.py_buffer(offsets.data), pa.py_buffer(text.data)]
    )
    return only_where(written, values.is_valid())


def _check(holds: Values, values: Values, table_type: str, label: ChunkLabel, why: str) -> None:
    """Raise for the first value that violates a condition; null does not."""
    if compute.any(compute.invert(holds)).as_py():
        raise not_convertible(label, table_type, values[compute.index(holds, False).as_py()].as_py(), why)


_INT_TEXT = r"^[+-]?[0-9]+(_[0-9]+)*$"
_LONG_TEXT = r"^-?[0-9]+(_[0-9]+)*[lL]?$"
_GREATEST_LONG = str((1 << 63) - 1)
_GREATEST_INT = (1 << 31) - 1

_INTEGER_TYPES = {TypeTag.BYTE: pa.int8(), TypeTag.SHORT: pa.int16(), TypeTag.INT: pa.int32()}

_FLOAT_SUFFIXES = {TypeTag.FLOAT: "[fF]", TypeTag.DOUBLE: "[dD]"}
_HEXADECIMAL_FLOAT = r"^[+-]?0[xX].*[pP]"
_BLANKS = "".join(map(chr, range(33)))

_UUID_TEXT = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
_NULL_UUID = bytes.fromhex("80000000000000008000000000000000")

_ADDRESS = r"^0*(?P<a>[0-9]{1,3})\.0*(?P<b>[0-9]{1,3})\.0*(?P<c>[0-9]{1,3})\.0*(?P<d>[0-9]{1,3})$"
_ODD_ADDRESS = r"^(\.+[0-9].*|[0-9].*\.+|.*[+_-].*)$"
_NEARLY_ADDRESS = r"^\.*[+-]?[0-9][0-9_]*(\.[+-]?[0-9][0-9_]*){3}\.*$"

_S_PER_DAY = 86_400
_NANOSECOND_YEARS = (1678, 2261)
_DAYS_OF_MONTHS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])


def values_from_text(text: Values, wanted: ColumnType, label: ChunkLabel) -> Values:
    """Read text as values of another type."""
    match wanted.tag:
        case TypeTag.BOOLEAN:
            values = compute.equal(compute.ascii_lower(text), "true")
        case TypeTag.BYTE | TypeTag.SHORT | TypeTag.INT:
            values = _whole_numbers(only_where(text, compute.match_substring_regex(text, pattern=_INT_TEXT)))
            values = only_where(values, compute.less_equal(compute.abs(values), _GREATEST_INT))
            values = values.cast(_INTEGER_TYPES[wanted.tag], safe=False)
        case TypeTag.LONG:
            values = _whole_numbers(only_where(text, compute.match_substring_regex(text, pattern=_LONG_TEXT)))
        case TypeTag.FLOAT | TypeTag.DOUBLE:
            values = _floats_of_text(text, wanted, label)
        case TypeTag.CHAR:
            values = _first_units(text)
        case TypeTag.IPV4:
            values = _addresses_of_text(text, wanted, label)
        case TypeTag.UUID:
            values = _uuids_of_text(text)
        case _:
            values = _instants_of_text(text, wanted, label)
    return values


def _whole_numbers(text: Values) -> Values:
    """Read numbers in valid form; null if they exceed 64 bits."""
    is_negative = compute.starts_with(text, "-")
    digits = compute.replace_substring_regex(text, pattern="[^0-9]", replacement="")
    digits = compute.utf8_ltrim(digits, "0")
    length = compute.utf8_length(digits)
    is_short = compute.less(length, len(_GREATEST_LONG))
    as_long_and_fits = compute.and_(
        compute.equal(length, len(_GREATEST_LONG)), compute.less_equal(digits, _GREATEST_LONG)
    )
    digits = only_where(digits, compute.or_(is_short, as_long_and_fits))
    numbers = compute.if_else(compute.equal(digits, ""), "0", digits).cast(pa.int64())
    return compute.if_else(is_negative, compute.negate(numbers), numbers)


def _floats_of_text(text: Values, wanted: ColumnType, label: ChunkLabel) -> Values:
    text = compute.utf8_trim(text, _BLANKS)
    _refuse(text, compute.match_substring_regex(text, pattern=_HEXADECIMAL_FLOAT), wanted, label)
    suffix = _FLOAT_SUFFIXES[wanted.tag]
    form = rf"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?{suffix}?$"
    numerals = only_where(text, compute.match_substring_regex(text, pattern=form))
    numerals = compute.replace_substring_regex(numerals, pattern=f"{suffix}$", replacement="")
    is_zero = compute.invert(compute.match_substring_regex(numerals, pattern="^[^eE]*[1-9]"))
    type_ = pa.float32() if wanted.tag is TypeTag.FLOAT else pa.float64()
    numbers = numerals.cast(type_)
    in_range = compute.and_(compute.is_finite(numbers), compute.or_(is_zero, compute.not_equal(numbers, 0.0)))
    numbers = only_where(numbers, in_range)
    is_infinity = compute.match_substring_regex(text, pattern=r"^[+-]?Infinity$")
    infinities = only_where(text, is_infinity).cast(type_)
    return compute.coalesce(numbers, infinities)


def _first_units(text: Values) -> Values:
    encoded = compute.utf8_slice_codeunits(text, 0, 1).dictionary_encode()
    units = [int.from_bytes(first.encode("utf-16-le")[:2], "little") for first in encoded.dictionary.to_pylist()]
    return pa.array(units, pa.uint16()).take(encoded.indices)


def _addresses_of_text(text: Values, wanted: ColumnType, label: ChunkLabel) -> Values:
    is_odd = compute.and_(
        compute.match_substring_regex(text, pattern=_NEARLY_ADDRESS),
        compute.match_substring_regex(text, pattern=_ODD_ADDRESS),
    )
    _refuse(text, is_odd, wanted, label)
    parts = compute.extract_regex(text, _ADDRESS)
    octets = [compute.struct_field(parts, [name]).cast(pa.uint32()) for name in "abcd"]
    address: Any = None
    for octet in octets:
        fitting = only_where(octet, compute.less_equal(octet, 255))
        address = (
            fitting if address is None else compute.add(compute.multiply(address, pa.scalar(256, pa.uint32())), fitting)
        )
    return only_where(address, compute.not_equal(address, 0))


def _uuids_of_text(text: Values) -> Values:
    has_form = compute.fill_null(compute.match_substring_regex(text, pattern=_UUID_TEXT), False)
    digits = compute.replace_substring(text.filter(has_form), "-", "")
    raw = bytes.fromhex(b"".join(digits.cast(pa.binary()).to_pylist()).decode("ascii"))
    values = pa.Array.from_buffers(pa.binary(_UUID_BYTES), len(digits), [None, pa.py_buffer(raw)])
    values = only_where(values, compute.not_equal(values, pa.scalar(_NULL_UUID, values.type)))
    rows = compute.subtract(compute.cumulative_sum(has_form.cast(pa.int32())), 1)
    return values.take(only_where(rows, has_form))


def _instants_of_text(text: Values, wanted: ColumnType, label: ChunkLabel) -> Values:
    unit = str(wanted.arrow.unit)
    parts = compute.extract_regex(text, _time_form("[0-9]", least_fraction_digits=1))
    has_form = parts.is_valid()
    is_odd = compute.match_substring_regex(text, pattern=_time_form("[0-9+_-]", least_fraction_digits=0))
    _refuse(text, compute.and_(is_odd, compute.invert(has_form)), wanted, label)
    year, month, day = (_field(parts, name, empty="1") for name in ("year", "month", "day"))
    hour, minute, second, zone_hour, zone_minute = (
        _field(parts, name, empty="0") for name in ("hour", "minute", "second", "zone_hour", "zone_minute")
    )
    fraction_ns = _numbers(compute.utf8_rpad(compute.struct_field(parts, ["fraction"]), 9, "0"))
    is_leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    is_month = (month >= 1) & (month <= 12)
    days_of_month = _DAYS_OF_MONTHS[np.where(is_month, month, 1)] + (is_leap & (month == 2))
    is_time = is_month & (day >= 1) & (day <= days_of_month) & (hour <= 23) & (minute <= 59) & (second <= 59)
    is_time &= (zone_hour <= 23) & (zone_minute <= 59)
    first_year, last_year = _NANOSECOND_YEARS if unit == "ns" else (1, 9999)
    in_range = _booleans((year >= first_year) & (year <= last_year) | ~is_time)
    _refuse(text, compute.and_(has_form, compute.invert(in_range)), wanted, label)
    is_ahead = _numbers(compute.if_else(compute.equal(compute.struct_field(parts, ["zone_sign"]), "-"), "-1", "1"))
    seconds = _days_since_1970(year, month, day) * _S_PER_DAY + hour * 3600 + minute * 60 + second
    seconds -= is_ahead * (zone_hour * 3600 + zone_minute * 60)
    unit_ns = NANOSECONDS_PER_UNIT[unit]
    # Where this overflows, the text was refused or is not a time.
    counts = seconds * (NANOSECONDS_PER_UNIT["s"] // unit_ns) + fraction_ns // unit_ns
    found = numbers_to_arrow(counts, pa.int64())
    return only_where(found, compute.and_(has_form, _booleans(is_time)))


def _time_form(digit: str, *, least_fraction_digits: int) -> str:
    """Return the pattern of times; ``digit`` matches one of their digits."""
    two = f"{digit}{{2}}"
    fraction = rf"(?:\.(?P<fraction>[0-9]{{{least_fraction_digits},9}}))?"
    zone = rf"(?:Z|(?P<zone_sign>[+-])(?P<zone_hour>{two})(?::?(?P<zone_minute>{two}))?)?"
    clock = rf"(?:[T ](?P<hour>{two})(?::(?P<minute>{two})(?::(?P<second>{two}){fraction}{zone})?)?)?"
    return rf"^(?P<year>{digit}{{4}})(?:-(?P<month>{two})(?:-(?P<day>{two}){clock})?)?$"


def _days_since_1970(
    year: npt.NDArray[np.int64], month: npt.NDArray[np.int64], day: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Count days in the Gregorian calendar. Years begin in March here, so that the leap day is the last day."""
    year = year - (month <= 2)
    days_before_month = (153 * ((month + 9) % 12) + 2) // 5
    days: npt.NDArray[np.int64] = 365 * year + year // 4 - year // 100 + year // 400 + days_before_month + day - 719_469
    return days


def _field(parts: Values, name: str, *, empty: str) -> npt.NDArray[np.int64]:
    """Return one number per row; ``empty`` if the text ends before the field, or has another form."""
    digits = compute.struct_field(parts, [name])
    return _numbers(compute.if_else(compute.equal(digits, ""), empty, digits))


def _numbers(digits: Values) -> npt.NDArray[np.int64]:
    return numbers_to_numpy(compute.fill_null(digits, "1").cast(pa.int64()), np.int64)


def _booleans(values: npt.NDArray[np.bool_]) -> Values:
    bits = pa.py_buffer(np.packbits(values, bitorder="little").data)
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, bits])


def _refuse(text: Values, where: Values, wanted: ColumnType, label: ChunkLabel) -> None:
    """Raise for the first text marked in ``where``."""
    if compute.any(where).as_py():
        first = text[compute.index(where, True).as_py()].as_py()
        raise not_convertible(label, wanted.name, first, "QuestDB reads text of this form in a way of its own")
