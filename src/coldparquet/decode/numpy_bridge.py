"""Small Arrow arrays from numpy and bytes, and back, over shared memory.

``pyarrow.array``, ``pyarrow.scalar`` and ``to_numpy`` import pandas where it is installed, which takes half a second
in the first read of a process. Building arrays from buffers does not.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from coldparquet.format.utf16 import Utf8Strings


def numbers_to_arrow(values: npt.NDArray[Any], type_: pa.DataType) -> pa.Array[Any]:
    """Return numbers as an Arrow array without nulls.

    Args:
        values: Shape ``(n,)``, of the width of ``type_``.
        type_: An integer or floating-point type.
    """
    return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(np.ascontiguousarray(values).data)])


def byte_strings_to_arrow(values: Sequence[bytes], type_: pa.DataType) -> pa.Array[Any]:
    """Return byte strings as an Arrow array without nulls; ``type_`` is binary, fixed-size binary or, for UTF-8, string."""
    data = pa.py_buffer(b"".join(values))
    if pa.types.is_fixed_size_binary(type_):
        return pa.Array.from_buffers(type_, len(values), [None, data])
    offsets = np.fromiter(accumulate(map(len, values), initial=0), dtype=np.int32, count=len(values) + 1)
    return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(offsets.data), data])


def strings_to_arrow(strings: Utf8Strings) -> pa.StringArray:
    """Return strings as an Arrow array without nulls, which shares their memory."""
    buffers = [None, pa.py_buffer(np.ascontiguousarray(strings.offsets).data), pa.py_buffer(strings.utf8)]
    array: Any = pa.Array.from_buffers(pa.string(), len(strings), buffers)
    as_strings: pa.StringArray = array
    return as_strings


def text_to_arrow(texts: Sequence[str]) -> pa.Array[Any]:
    """Return texts as an Arrow array of strings without nulls."""
    return byte_strings_to_arrow([text.encode() for text in texts], pa.string())


def numbers_to_numpy(array: pa.Array[Any], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return the numbers of an array that has no nulls.

    Args:
        array: Of an integer or floating-point type.
        dtype: The same type in numpy.
    """
    data = array.buffers()[1]
    if data is None:
        return np.empty(0, dtype=dtype)
    return np.frombuffer(memoryview(data), dtype=dtype, count=array.offset + len(array))[array.offset :]


def mask_to_numpy(array: pa.BooleanArray) -> npt.NDArray[np.bool_]:
    """Return truth values that have no nulls; a copy, a byte each."""
    data = array.buffers()[1]
    if data is None or not len(array):
        return np.zeros(len(array), dtype=np.bool_)
    flags = np.unpackbits(np.frombuffer(memoryview(data), dtype=np.uint8), bitorder="little")
    return flags[array.offset : array.offset + len(array)].view(np.bool_)


def mask_to_arrow(mask: npt.NDArray[np.bool_]) -> pa.BooleanArray:
    """Return truth values as an Arrow array without nulls."""
    bits = np.packbits(mask, bitorder="little")
    array: Any = pa.Array.from_buffers(pa.bool_(), len(mask), [None, pa.py_buffer(bits.data)])
    as_mask: pa.BooleanArray = array
    return as_mask
