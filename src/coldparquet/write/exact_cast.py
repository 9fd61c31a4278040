"""Casting values to the type of a column without losing any of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def exact_cast(array: Any, type_: pa.DataType) -> Any:
    """Cast values; what does not fit is an error.

    Arrow's own safe cast checks whole numbers, times and decimals, but makes numbers infinite that are too large for 32 bits.

    Args:
        array: Values, perhaps nulls among them.
        type_: What they shall be.

    Raises:
        pa.ArrowException: A value does not fit.
    """
    if array.type == type_:
        return array
    cast = pc.cast(array, type_, safe=True)
    if pa.types.is_floating(type_) and pa.types.is_floating(array.type):
        too_large = pc.and_(pc.is_inf(cast), pc.is_finite(array))
        if pc.any(too_large).as_py():
            first = array.filter(too_large)[0].as_py()
            raise pa.ArrowInvalid(f"the number {first!r} is too large for {type_}")
    return cast
