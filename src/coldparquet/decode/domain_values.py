"""Single values in the terms of plans -> Arrow, and back; see ``plan.literals.DomainValue``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from coldparquet.decode.missing_values import zero
from coldparquet.decode.numpy_bridge import byte_strings_to_arrow, numbers_to_arrow
from coldparquet.errors import FormatError

if TYPE_CHECKING:
    from coldparquet.plan.literals import DomainValue


def to_arrow_value(value: DomainValue, type_: Any, *, path: str | None, column: str) -> Any:
    """Return a value of a column's domain as an Arrow array of length 1, without importing pandas.

    Args:
        value: An integer in the column's own unit (unscaled for decimals), a float, or bytes; it fits the type.
        type_: Arrow type of the column, not a dictionary nor a list.
        path: Where the value was found, for error messages.
        column: Name of the column, for error messages.

    Raises:
        FormatError: Text is not UTF-8.
    """
    if isinstance(value, bytes):
        if pa.types.is_string(type_):
            _check_text(value, path=path, column=column)
        array: Any = byte_strings_to_arrow([value], pa.binary() if pa.types.is_string(type_) else type_)
        return array.cast(type_) if pa.types.is_string(type_) else array
    if pa.types.is_floating(type_):
        return numbers_to_arrow(
            np.array([value], dtype=np.float32 if pa.types.is_float32(type_) else np.float64), type_
        )
    if pa.types.is_boolean(type_):
        false = pa.repeat(zero(type_), 1)
        return false if not value else false.is_valid()
    number = int(value).to_bytes(type_.bit_width // 8, "little", signed=value < 0)
    return pa.Array.from_buffers(type_, 1, [None, pa.py_buffer(number)])


def to_domain_value(scalar: Any) -> DomainValue | None:
    """Return an Arrow scalar in the terms of a column's domain; None for null."""
    array: Any = pa.repeat(scalar, 1)
    type_ = array.type
    if array.null_count:
        return None
    if pa.types.is_string(type_):
        array, type_ = array.cast(pa.binary()), pa.binary()
    is_plain = pa.types.is_binary(type_) or pa.types.is_fixed_size_binary(type_)
    if is_plain or pa.types.is_floating(type_) or pa.types.is_boolean(type_):
        value: DomainValue = array[0].as_py()
        return value
    is_signed = not pa.types.is_unsigned_integer(type_)
    return int.from_bytes(memoryview(array.buffers()[1])[: type_.bit_width // 8], "little", signed=is_signed)


def _check_text(value: bytes, *, path: str | None, column: str) -> None:
    try:
        value.decode()
    except UnicodeDecodeError as error:
        raise FormatError(
            f"a bound of column {column!r} is not UTF-8, and so no text of it; make the sidecar anew with"
            " 'coldparquet index --force'",
            path=path,
            field="MIN/MAX",
            column=column,
        ) from error
