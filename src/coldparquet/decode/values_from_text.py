"""Text -> numbers, instants and the like, as QuestDB reads text when a STRING, SYMBOL or VARCHAR column becomes them.

What does not have exactly the form becomes null (false or 0 in types without null):

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

Refused, because QuestDB makes something odd of them: signs and underscores inside of times and addresses, dots around
addresses, a point without digits in times, years before 1, nanoseconds before 1678 or after 2261, hexadecimal floats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from coldparquet.decode.conversion_problem import not_convertible
from coldparquet.decode.numpy_bridge import numbers_to_arrow, numbers_to_numpy
from coldparquet.decode.untyped_compute import compute, only_where
from coldparquet.format.column_types import TypeTag
from coldparquet.plan.instant import NANOSECONDS_PER_UNIT

if TYPE_CHECKING:
    import numpy.typing as npt

    from coldparquet.decode.chunk_label import ChunkLabel
    from coldparquet.decode.untyped_compute import Values
    from coldparquet.format.column_types import ColumnType

_INT_TEXT = r"^[+-]?[0-9]+(_[0-9]+)*$"
_LONG_TEXT = r"^-?[0-9]+(_[0-9]+)*[lL]?$"
_GREATEST_LONG = str((1 << 63) - 1)
_GREATEST_INT = (1 << 31) - 1

_INTEGER_TYPES = {TypeTag.BYTE: pa.int8(), TypeTag.SHORT: pa.int16(), TypeTag.INT: pa.int32()}

_FLOAT_SUFFIXES = {TypeTag.FLOAT: "[fF]", TypeTag.DOUBLE: "[dD]"}
_HEXADECIMAL_FLOAT = r"^[+-]?0[xX].*[pP]"
_BLANKS = "".join(map(chr, range(33)))

_UUID_TEXT = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
_UUID_BYTES = 16
_NULL_UUID = bytes.fromhex("80000000000000008000000000000000")

_ADDRESS = r"^0*(?P<a>[0-9]{1,3})\.0*(?P<b>[0-9]{1,3})\.0*(?P<c>[0-9]{1,3})\.0*(?P<d>[0-9]{1,3})$"
_ODD_ADDRESS = r"^(\.+[0-9].*|[0-9].*\.+|.*[+_-].*)$"
_NEARLY_ADDRESS = r"^\.*[+-]?[0-9][0-9_]*(\.[+-]?[0-9][0-9_]*){3}\.*$"

_S_PER_DAY = 86_400
_NANOSECOND_YEARS = (1678, 2261)
_DAYS_OF_MONTHS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])


def values_from_text(text: Values, wanted: ColumnType, label: ChunkLabel) -> Values:
    """Read text as values of another type.

    Args:
        text: Strings.
        wanted: The type: BOOLEAN, a number, an instant, CHAR, IPv4 or UUID.
        label: Where the text comes from, for error messages.

    Returns:
        As many values, of the Arrow type of ``wanted`` or, for instants, their number of units since 1970. Null where
        the text is, and where it does not have the form.

    Raises:
        UnsupportedError: It is not established, or not reproduced here, what QuestDB makes of a text.
    """
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
            values = _floats(text, wanted, label)
        case TypeTag.CHAR:
            values = _first_units(text)
        case TypeTag.IPV4:
            values = _addresses(text, wanted, label)
        case TypeTag.UUID:
            values = _uuids(text)
        case _:
            values = _instants(text, wanted, label)
    return values


def _whole_numbers(text: Values) -> Values:
    """Read numbers that have the form of one; null where they exceed 64 bits."""
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


def _floats(text: Values, wanted: ColumnType, label: ChunkLabel) -> Values:
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


def _addresses(text: Values, wanted: ColumnType, label: ChunkLabel) -> Values:
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


def _uuids(text: Values) -> Values:
    has_form = compute.fill_null(compute.match_substring_regex(text, pattern=_UUID_TEXT), False)
    digits = compute.replace_substring(text.filter(has_form), "-", "")
    raw = bytes.fromhex(b"".join(digits.cast(pa.binary()).to_pylist()).decode("ascii"))
    values = pa.Array.from_buffers(pa.binary(_UUID_BYTES), len(digits), [None, pa.py_buffer(raw)])
    values = only_where(values, compute.not_equal(values, pa.scalar(_NULL_UUID, values.type)))
    rows = compute.subtract(compute.cumulative_sum(has_form.cast(pa.int32())), 1)
    return values.take(only_where(rows, has_form))


def _instants(text: Values, wanted: ColumnType, label: ChunkLabel) -> Values:
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
    # Where this overflows, the text was refused or is no time.
    counts = seconds * (NANOSECONDS_PER_UNIT["s"] // unit_ns) + fraction_ns // unit_ns
    found = numbers_to_arrow(counts, pa.int64())
    return only_where(found, compute.and_(has_form, _booleans(is_time)))


def _time_form(digit: str, *, least_fraction_digits: int) -> str:
    """Return the pattern of times; ``digit`` is what matches one of their digits."""
    two = f"{digit}{{2}}"
    fraction = rf"(?:\.(?P<fraction>[0-9]{{{least_fraction_digits},9}}))?"
    zone = rf"(?:Z|(?P<zone_sign>[+-])(?P<zone_hour>{two})(?::?(?P<zone_minute>{two}))?)?"
    clock = rf"(?:[T ](?P<hour>{two})(?::(?P<minute>{two})(?::(?P<second>{two}){fraction}{zone})?)?)?"
    return rf"^(?P<year>{digit}{{4}})(?:-(?P<month>{two})(?:-(?P<day>{two}){clock})?)?$"


def _days_since_1970(
    year: npt.NDArray[np.int64], month: npt.NDArray[np.int64], day: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Count days in the Gregorian calendar. Years begin in March here, so that the leap day is their last."""
    year = year - (month <= 2)
    days_before_month = (153 * ((month + 9) % 12) + 2) // 5
    days: npt.NDArray[np.int64] = 365 * year + year // 4 - year // 100 + year // 400 + days_before_month + day - 719_469
    return days


def _field(parts: Values, name: str, *, empty: str) -> npt.NDArray[np.int64]:
    """Return one number per row; ``empty`` where the text ends before it, or has another form."""
    digits = compute.struct_field(parts, [name])
    return _numbers(compute.if_else(compute.equal(digits, ""), empty, digits))


def _numbers(digits: Values) -> npt.NDArray[np.int64]:
    return numbers_to_numpy(compute.fill_null(digits, "1").cast(pa.int64()), np.int64)


def _booleans(values: npt.NDArray[np.bool_]) -> Values:
    bits = pa.py_buffer(np.packbits(values, bitorder="little").data)
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, bits])


def _refuse(text: Values, where: Values, wanted: ColumnType, label: ChunkLabel) -> None:
    """Raise for the first text that ``where`` is true for."""
    if compute.any(where).as_py():
        first = text[compute.index(where, True).as_py()].as_py()
        raise not_convertible(label, wanted.name, first, "QuestDB reads text of this form in a way of its own")
