"""Casting values to the type of a column without losing any of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def exact_cast(array: Any, type_: pa.DataType) -> Any:
    """Cast values; what does not fit is an error.

    Arrow's own safe cast checks whole numbers, times and decimals, but makes numbers infinite that are too large: doubles and
    decimals for 32 bits, and text for 64 bits, too.

    Args:
        array: Values, perhaps nulls among them.
        type_: What they shall be.

    Raises:
        pa.ArrowException: A value does not fit.
    """
    if array.type == type_:
        return array
    cast = pc.cast(array, type_, safe=True)
    if pa.types.is_floating(type_):
        made_infinite = array.filter(pc.is_inf(cast))
        too_large = made_infinite.filter(pc.invert(_are_infinite(made_infinite)))
        if len(too_large):
            raise pa.ArrowInvalid(f"the number {too_large[0].as_py()!r} is too large for {type_}")
    return cast


def _are_infinite(array: Any) -> Any:
    """Tell which values are infinite in the type that they come in, shape ``(values,)``; none is null."""
    if pa.types.is_dictionary(array.type):
        array = pc.cast(array, array.type.value_type)
    if pa.types.is_floating(array.type):
        return pc.is_inf(array)
    return pc.match_substring(pc.cast(array, pa.string()), "inf", ignore_case=True)
