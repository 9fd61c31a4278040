"""Characters, geohashes and wide integers as the text that QuestDB shows: Spark has no types for them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from coldparquet.decode.numpy_bridge import byte_strings_to_arrow, numbers_to_arrow
from coldparquet.decode.untyped_compute import compute, only_where

if TYPE_CHECKING:
    import numpy.typing as npt

    from coldparquet.decode.untyped_compute import Values

_GEOHASH = re.compile(r"GEOHASH\((?P<count>\d{1,2})(?P<unit>[bc])\)")
_BASE32 = np.frombuffer(b"0123456789bcdefghjkmnpqrstuvwxyz", dtype=np.uint8)
_HEX = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
_SURROGATES = range(0xD800, 0xE000)
_REPLACEMENT = "\ufffd"
_BITS_PER_CHARACTER = {"b": 1, "c": 5}


def is_geohash(type_name: str) -> bool:
    """Tell whether a type, as ``SHOW COLUMNS`` prints it, is a geohash."""
    return _GEOHASH.fullmatch(type_name) is not None


def geohash_text(values: Values, type_name: str) -> Values:
    """Write geohashes as QuestDB shows them: ``u33d8b`` where they count characters, ``0110`` where they count bits.

    Args:
        values: Integers, shape ``(n,)``.
        type_name: ``GEOHASH(6c)`` or ``GEOHASH(4b)``.

    Returns:
        As many strings, null where the value is.
    """
    match = _GEOHASH.fullmatch(type_name)
    if match is None:
        raise ValueError(f"{type_name} is no geohash")
    length, bits = int(match["count"]), _BITS_PER_CHARACTER[match["unit"]]
    numbers = _numbers(values.cast(pa.int64()), np.dtype(np.int64))
    shifts = np.arange(length - 1, -1, -1, dtype=np.int64) * bits
    digits = (numbers[:, None] >> shifts) & ((1 << bits) - 1)
    return _text(_BASE32[digits], values)


def character_text(values: Values) -> Values:
    """Write CHAR, which is one unit of UTF-16, as a string of one character.

    Half of a character, which QuestDB can store and UTF-8 cannot, becomes U+FFFD.

    Args:
        values: Of uint16, shape ``(n,)``.

    Returns:
        As many strings; null where the value is, and for 0, QuestDB's null.
    """
    units, places = np.unique(_numbers(values, np.dtype(np.uint16)), return_inverse=True)
    characters = [(_REPLACEMENT if unit in _SURROGATES else chr(unit)).encode() for unit in units.tolist()]
    dictionary = byte_strings_to_arrow(characters, pa.binary()).cast(pa.string())
    text = dictionary.take(numbers_to_arrow(places.astype(np.int32), pa.int32()))
    has_character = compute.and_(values.is_valid(), compute.not_equal(values, 0))
    return only_where(text, has_character)


def wide_integer_text(values: Values) -> Values:
    """Write LONG128 and LONG256 as QuestDB shows them: ``0x1f``, without zeros in front.

    Args:
        values: Little-endian integers as fixed-size binary, shape ``(n,)``.

    Returns:
        As many strings, null where the value is.
    """
    width = values.type.byte_width
    raw = _numbers(values, np.dtype((np.void, width))).view(np.uint8).reshape(-1, width)[:, ::-1]
    digits = np.empty((len(raw), 2 * width), dtype=np.uint8)
    digits[:, 0::2] = _HEX[raw >> 4]
    digits[:, 1::2] = _HEX[raw & 15]
    significant = compute.utf8_ltrim(_text(digits, values), "0")
    significant = compute.if_else(compute.equal(significant, ""), "0", significant)
    return compute.binary_join_element_wise("0x", significant, "")


def _numbers(values: Values, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return the values, whatever stands in place of nulls."""
    data = values.buffers()[1]
    if data is None:
        return np.zeros(len(values), dtype=dtype)
    return np.frombuffer(memoryview(data), dtype=dtype, count=values.offset + len(values))[values.offset :]


def _text(characters: npt.NDArray[np.uint8], like: Values) -> Values:
    """Make strings of one length each from ASCII characters, null where ``like`` is.

    Args:
        characters: Shape ``(n, length)``.
        like: Shape ``(n,)``.
    """
    count, length = characters.shape
    offsets = np.arange(count + 1, dtype=np.int64) * length
    written = pa.Array.from_buffers(
        pa.large_string(),
        count,
        [None, pa.py_buffer(offsets.data), pa.py_buffer(np.ascontiguousarray(characters).data)],
    ).cast(pa.string())
    return only_where(written, like.is_valid())
