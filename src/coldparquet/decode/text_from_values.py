"""Numbers, instants and the like -> text, as QuestDB writes them when a column becomes STRING, SYMBOL or VARCHAR.

| from | text |
|---|---|
| BOOLEAN | `true`, `false` |
| BYTE, SHORT, INT, LONG | decimal digits |
| DATE, TIMESTAMP, TIMESTAMP_NS | `2024-02-29T12:30:45.123Z` with 3, 6 or 9 digits |
| FLOAT, DOUBLE | as Java: the shortest digits that mean the number, `0.001` to `9999999.0` plain, others `1.0E7`; infinities null |
| CHAR | the character; 0 is null |
| IPv4 | `192.168.0.1` |
| UUID | `11111111-2222-3333-4444-555555555555` |

FLOAT from 2**24 on has its own rule, see ``_digits_of_large_floats``. Refused, because QuestDB writes something odd:
instants before the year 1 or after 9999, in nanoseconds before 1678; FLOAT below 2**-126; CHAR that is half of a character.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from coldparquet.decode.conversion_problem import not_convertible
from coldparquet.decode.numpy_bridge import numbers_to_arrow, numbers_to_numpy
from coldparquet.decode.untyped_compute import compute, only_where
from coldparquet.plan.instant import NANOSECONDS_PER_UNIT

if TYPE_CHECKING:
    from coldparquet.decode.chunk_label import ChunkLabel
    from coldparquet.decode.untyped_compute import Values

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
    """Write values as text.

    Args:
        values: Of the Arrow type of BOOLEAN, a number, an instant, CHAR (uint16), IPv4 (uint32) or UUID.
        table_type: Name of the text type, for error messages.
        label: Where the values come from, for error messages.

    Returns:
        As many strings, null where the value is or where QuestDB takes it for null.

    Raises:
        UnsupportedError: QuestDB writes the value in a way that is not reproduced here.
    """
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
    # The two ways overlap in no number, and each is computed for all of them.
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
    """Bring decimal numbers of any form into the form ``-1.25E-7``."""
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

    QuestDB writes the exact number here, rounded to the digits that 24 bits can tell apart, which may be more than the
    shortest that mean the number.
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
    """Raise for the first value that does not fulfil a condition; null is none."""
    if compute.any(compute.invert(holds)).as_py():
        raise not_convertible(label, table_type, values[compute.index(holds, False).as_py()].as_py(), why)
