"""Keys of a SYMBOL column and the table's dictionary -> dictionary arrays, or plain strings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from coldparquet.decode.native_fixed import validity
from coldparquet.decode.numpy_bridge import numbers_to_arrow, strings_to_arrow

if TYPE_CHECKING:
    import numpy.typing as npt

    from coldparquet.decode.rows_label import RowsLabel
    from coldparquet.format.native_layout import FixedLayout
    from coldparquet.format.utf16 import Utf8Strings


def decode_symbol_keys(
    stored: npt.NDArray[np.uint8],
    layout: FixedLayout,
    type_: Any,
    *,
    dictionary: Utf8Strings,
    label: RowsLabel,
) -> pa.Array[Any]:
    """Decode the symbols of a slice.

    Args:
        stored: The keys.
        layout: How they are stored.
        type_: Arrow type of the result: dictionary or string.
        dictionary: All symbols of the column, each at the place of its key.
        label: The keys, for error messages.

    Returns:
        One symbol or null per row; a dictionary that holds just the symbols that occur, in the order of their keys.

    Raises:
        FormatError: A key has no symbol.
    """
    keys = stored.view(layout.word)
    is_null = layout.is_null(keys[:, None])
    present = keys if is_null is None else keys[~is_null]
    label.check(
        keys < len(dictionary),
        f"has a symbol key outside of the dictionary, which has {len(dictionary):,} symbols",
        field="SYMBOL",
    )
    is_used = np.zeros(len(dictionary), dtype=bool)
    is_used[present] = True
    renumbered = np.cumsum(is_used, dtype=np.int32) - np.int32(1)
    positions = np.zeros(len(keys), dtype=np.int32)
    positions[keys >= 0] = renumbered[present]
    indices: Any = pa.Array.from_buffers(pa.int32(), len(keys), [validity(is_null), pa.py_buffer(positions.tobytes())])
    used: pa.Array[Any] = strings_to_arrow(dictionary).take(
        numbers_to_arrow(np.flatnonzero(is_used).astype(np.int32), pa.int32())
    )
    if pa.types.is_dictionary(type_):
        return pa.DictionaryArray.from_arrays(indices, used)
    plain: pa.Array[Any] = used.take(indices)
    return plain
