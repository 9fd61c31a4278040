"""Values of one width, as native partitions store them -> Arrow arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from coldparquet.decode.parquet_reader import check_values
from coldparquet.errors import UnsupportedError
from coldparquet.format.type_codes import TypeTag, is_decimal

if TYPE_CHECKING:
    import numpy.typing as npt

    from coldparquet.decode.rows_label import RowsLabel
    from coldparquet.format.native_layout import FixedLayout, Mask

_WORD_BITS = 64


def decode_fixed(
    stored: npt.NDArray[np.uint8], layout: FixedLayout, type_: Any, *, tag: TypeTag, label: RowsLabel
) -> pa.Array[Any]:
    """Decode values of one width.

    Args:
        stored: Their bytes.
        layout: How they are stored.
        type_: Arrow type of the result.
        tag: Type of the column.
        label: The values, for error messages.

    Raises:
        FormatError: A boolean is neither 0 nor 1, or a decimal has more digits than its type.
        UnsupportedError: Decimals are stored wider than their type is (``kind="UnsupportedType"``).
    """
    values = stored.view(layout.word).reshape(-1, layout.words)
    is_null = layout.is_null(values)
    data: npt.NDArray[Any]
    if tag is TypeTag.BOOLEAN:
        label.check(values[:, 0] <= 1, "is neither true nor false", field="BOOLEAN")
        data = np.packbits(values[:, 0], bitorder="little")
    elif tag is TypeTag.UUID:
        # Low word first and each word little-endian: reversed, this is the byte order of RFC 4122.
        data = values[:, ::-1].byteswap()
    elif is_decimal(tag):
        data = _decimal_words(values, type_, tag, label)
    else:
        data = values
    array: pa.Array[Any] = pa.Array.from_buffers(type_, len(values), [validity(is_null), pa.py_buffer(data.tobytes())])
    if is_decimal(tag):
        check_values(pa.chunked_array([array]), label)
    return array


def validity(is_null: Mask | None) -> pa.Buffer | None:
    """Return Arrow's validity bitmap; None where nothing is null."""
    if is_null is None or not is_null.any():
        return None
    return pa.py_buffer(np.packbits(~is_null, bitorder="little").tobytes())


def _decimal_words(values: npt.NDArray[Any], type_: Any, tag: TypeTag, label: RowsLabel) -> npt.NDArray[np.int64]:
    """Return unscaled values as Arrow has them: two or four words of 64 bits, the lowest one first."""
    # The wide ones are stored highest word first; the others have one word or less.
    words = values[:, ::-1].astype(np.int64, copy=False)
    arrow_words = type_.bit_width // _WORD_BITS
    if words.shape[1] > arrow_words:
        raise UnsupportedError(
            f"{label}: stored as {tag.name}, which is wider than {type_}; leave the column out",
            kind="UnsupportedType",
            path=label.path,
            columns=label.columns,
        )
    sign = words[:, -1:] >> (_WORD_BITS - 1)
    return np.hstack([words, np.repeat(sign, arrow_words - words.shape[1], axis=1)])
