"""Encodes rows in time order as row groups of a Parquet file; the caller writes the footer.

pyarrow encodes and compresses. It writes into a sink that passes the bytes on as they come, and keeps back the last of
them, the footer. A new file's footer needs corrections; a longer file's footer also needs the earlier row groups.

An array becomes one byte string per row: the length of each dimension as i32, zeros up to a multiple of 8 bytes, then
the elements as float64 in row-major order, null elements as NaN; everything little-endian.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from coldparquet.decode.arrow import numbers_to_numpy
from coldparquet.errors import ColdParquetError, InvalidInputError
from coldparquet.format.fetch import TAIL_BYTES
from coldparquet.format.parquet_footer import QUESTDB_KEY, QuestdbColumn, QuestdbMetadata, encode_questdb_json
from coldparquet.format.type_codes import TypeTag, array_dimensions, decimal_precision_scale, is_decimal
from coldparquet.write.columns import decimal_storage, exact_cast
from coldparquet.write.footer_edit import FooterBytes, with_decimal_precisions, with_null_counts
from coldparquet.write.rows import no_rows

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Sequence

    import numpy.typing as npt

    from coldparquet.write.columns import ColumnStorage
    from coldparquet.write.options import Encoding, WriteOptions


_FORWARD_BYTES = 4 * 1024 * 1024
"""The sink passes bytes on in pieces of about this size."""

_MADE_UP = bytes(1024 * 1024)

_PAGE_BYTES = 1024 * 1024
"""A page ends at this size if it does not have its number of rows yet."""

_DICTIONARY_BYTES = 1 << 30
"""Size limit of dictionaries. Beyond a limit Arrow stops using one, and QuestDB cannot read that as SYMBOL."""

_LEAST_REPEATS = 4
"""Strings get a dictionary if each value occurs this often on average: a reader of one page reads the whole
dictionary."""

_CODEC_NAMES = {"lz4_raw": "LZ4"}
_ENCODING_NAMES: dict[Encoding, str] = {
    "plain": "PLAIN",
    "delta": "DELTA_BINARY_PACKED",
    "delta_length": "DELTA_LENGTH_BYTE_ARRAY",
    "byte_stream_split": "BYTE_STREAM_SPLIT",
}
_TEXT = frozenset({TypeTag.STRING, TypeTag.VARCHAR})
_FLOATS = frozenset({TypeTag.FLOAT, TypeTag.DOUBLE})
_WIDE = frozenset({TypeTag.LONG128, TypeTag.LONG256, TypeTag.UUID})


def write_row_groups(  # noqa: PLR0913 - mostly keyword arguments
    pass_on: Callable[[bytes], None],
    row_groups: Iterable[pa.Table],
    *,
    columns: Sequence[ColumnStorage],
    options: WriteOptions,
    sorted_by: int | None,
    questdb_json: str,
    give_up: threading.Event,
    start: int = 0,
) -> FooterBytes:
    """Write row groups of ``stored_table`` one after the other, and return the footer that belongs behind them.

    ``pass_on`` receives the bytes in order; they begin at offset ``start`` of the file, which is 0 for a new one, magic
    bytes included. ``sorted_by`` is the index of the column by which the rows are sorted, as the file then records. Set
    ``give_up`` to end the call before the next row group.
    """
    check_options(columns, options)
    sink = _Sink(pass_on, start)
    file = pa.PythonFile(sink, mode="w")
    writer: pq.ParquetWriter | None = None
    array_nulls: list[dict[int, int]] = []
    arrays = [index for index, column in enumerate(columns) if column.tag is TypeTag.ARRAY]
    try:
        for rows in row_groups:
            if give_up.is_set():
                raise asyncio.CancelledError
            if writer is None:
                writer = pq.ParquetWriter(file, rows.schema, **_settings(rows, columns, options, sorted_by))
                _advance(file, start)
            _write_row_group(writer, rows)
            array_nulls.append({index: rows.column(index).null_count for index in arrays})
        if writer is None:
            raise no_rows()
        sink.keep_back()
        writer.add_key_value_metadata({QUESTDB_KEY: questdb_json})
        writer.close()
        written = sink.kept()
        footer_start = len(written) - TAIL_BYTES - int.from_bytes(written[-TAIL_BYTES:-4], "little")
        sink.pass_on(written[:footer_start])
        footer = _completed(written[footer_start:-TAIL_BYTES], columns, array_nulls)
        return FooterBytes(content=footer, offset=sink.passed_on)
    finally:  # what was not finished is discarded, and nothing more is passed on
        sink.drop()
        if writer is not None and writer.is_open:
            with contextlib.suppress(pa.ArrowException, OSError):
                writer.close()


def _write_row_group(writer: pq.ParquetWriter, rows: pa.Table) -> None:
    try:
        writer.write_table(rows, row_group_size=rows.num_rows)
    except ColdParquetError:  # raised by the sink
        raise
    except (pa.ArrowException, OSError) as error:
        raise InvalidInputError(
            f"these {rows.num_rows:,} rows cannot be one row group: {error}; write fewer rows per row group, or"
            " smaller values",
            kind="TooLarge",
        ) from error


def _advance(file: pa.PythonFile, start: int) -> None:
    """Make pyarrow count the existing bytes of the file as written.

    pyarrow derives offsets from its own byte count, which starts at 0 with the magic bytes. Placeholder bytes behind
    those raise the count to the file's size; the sink drops them, so nothing is copied.
    """
    while (missing_bytes := start - file.tell()) > 0:
        file.write(memoryview(_MADE_UP)[:missing_bytes])


def _completed(footer: bytes, columns: Sequence[ColumnStorage], array_nulls: Sequence[dict[int, int]]) -> bytes:
    """Correct what pyarrow cannot write: digits of decimals, and the nulls of arrays."""
    precisions = {
        index: decimal_precision_scale(column.type_code)[0]
        for index, column in enumerate(columns)
        if is_decimal(column.tag)
    }
    if precisions:
        footer = with_decimal_precisions(footer, precisions)
    return with_null_counts(footer, array_nulls) if any(array_nulls) else footer


def _settings(
    first_rows: pa.Table, columns: Sequence[ColumnStorage], options: WriteOptions, sorted_by: int | None
) -> dict[str, Any]:
    """Return the arguments of pyarrow's writer."""
    encodings = {
        column.name: options.column_encodings.get(column.name) or _usual_encoding(column, first_rows, index, sorted_by)
        for index, column in enumerate(columns)
    }
    names = list(encodings)
    levels = {name: level for name in names if (level := options.level_of(name)) is not None}
    codecs = {name: options.codec_of(name) for name in names}
    return {
        "version": "2.6",
        "store_schema": False,
        "compression": {name: _CODEC_NAMES.get(codec, codec.upper()) for name, codec in codecs.items()},
        "compression_level": levels or None,
        "use_dictionary": [name for name, encoding in encodings.items() if encoding == "dictionary"],
        "column_encoding": {
            name: _ENCODING_NAMES[encoding] for name, encoding in encodings.items() if encoding != "dictionary"
        },
        # Arrays have no order, so the bytes that hold them need no bounds.
        "write_statistics": [column.name for column in columns if column.tag is not TypeTag.ARRAY],
        "write_page_index": options.page_index,
        "max_rows_per_page": options.page_rows,
        "data_page_size": _PAGE_BYTES,
        "write_page_checksum": True,  # 4 bytes a page, which readers compare
        "write_batch_size": min(options.page_rows, 1024),
        "dictionary_pagesize_limit": _DICTIONARY_BYTES,
        "sorting_columns": None if sorted_by is None else [pq.SortingColumn(sorted_by)],
        # The number of values is only a limit: Arrow sizes filters by the actual number of distinct values.
        "bloom_filter_options": {
            name: {"ndv": max(options.row_group_rows, first_rows.num_rows), "fpp": options.bloom_fpp}
            for name in options.bloom_columns
        }
        or None,
    }


def questdb_json(columns: Sequence[ColumnStorage], *, ascii_columns: Sequence[int] = ()) -> str:
    """Describe columns as QuestDB does in the footer of its files."""
    return encode_questdb_json(
        QuestdbMetadata(
            columns=tuple(
                QuestdbColumn(
                    type_code=column.type_code,
                    id=column.id,
                    local_key_is_global=column.symbols is not None,
                    is_ascii=True if index in ascii_columns else None,
                )
                for index, column in enumerate(columns)
            ),
            unused_bytes=0,
            squash_tracker=None,
            seq_txn=None,
        )
    )


def check_options(columns: Sequence[ColumnStorage], options: WriteOptions) -> None:
    """Check that the options fit the columns."""
    by_name = {column.name: column for column in columns}
    for name in options.named_columns() - set(by_name):
        raise InvalidInputError(
            f"the options name a column {name!r}; there are {', '.join(by_name)}", kind="UnknownColumn", field=name
        )
    for name, encoding in options.column_encodings.items():
        allowed = _allowed_encodings(by_name[name].tag)
        if encoding not in allowed:
            raise InvalidInputError(
                f"column {name!r} of type {by_name[name].type_name} cannot be encoded as {encoding}; use one of"
                f" {', '.join(allowed)}",
                kind="InvalidEncoding",
                field=name,
            )
    for name in options.bloom_columns:
        if by_name[name].tag in {TypeTag.BOOLEAN, TypeTag.ARRAY}:
            raise InvalidInputError(
                f"column {name!r} of type {by_name[name].type_name} cannot have a bloom filter", field=name
            )


def _allowed_encodings(tag: TypeTag) -> tuple[Encoding, ...]:
    """Return the encodings of a type, those that QuestDB reads too first."""
    if tag is TypeTag.SYMBOL:
        return ("dictionary",)
    if tag in {TypeTag.BOOLEAN, TypeTag.ARRAY}:
        return ("plain",)
    if tag in _TEXT or tag is TypeTag.BINARY:
        return ("plain", "dictionary", "delta_length")
    if tag in _FLOATS or tag in _WIDE or is_decimal(tag):
        return ("plain", "dictionary", "byte_stream_split")
    return ("plain", "dictionary", "delta", "byte_stream_split")


def _usual_encoding(column: ColumnStorage, first_rows: pa.Table, index: int, sorted_by: int | None) -> Encoding:
    if column.tag is TypeTag.SYMBOL:
        return "dictionary"
    if index == sorted_by:
        return "delta"
    if column.tag in _TEXT:
        distinct: int = pc.count_distinct(first_rows.column(index)).as_py()
        return "dictionary" if distinct * _LEAST_REPEATS <= first_rows.num_rows else "delta_length"
    return "delta_length" if column.tag is TypeTag.BINARY else "plain"


class _Sink(io.RawIOBase):
    """Receives what pyarrow writes; its first ``ignored_bytes`` are in the file already."""

    def __init__(self, pass_on: Callable[[bytes], None], ignored_bytes: int) -> None:
        super().__init__()
        self._receiver = pass_on
        self._ignored_bytes = ignored_bytes
        self._waiting = bytearray()
        self._kept: bytearray | None = None
        self.passed_on = ignored_bytes
        """Offset in the file of the next byte that is passed on."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        written_bytes: int = memoryview(data).nbytes
        if self._ignored_bytes:
            self._ignored_bytes -= written_bytes
        elif self._kept is not None:
            self._kept += data
        else:
            self._waiting += data
            if len(self._waiting) >= _FORWARD_BYTES:
                self._forward()
        return written_bytes

    def keep_back(self) -> None:
        """Pass on the waiting bytes, and keep back what is written from now on."""
        self._forward()
        self._kept = bytearray()

    def drop(self) -> None:
        """Discard the waiting bytes and what is written from now on."""
        self._waiting.clear()
        self._kept = bytearray()

    def kept(self) -> bytes:
        """Return what was kept back."""
        return bytes(self._kept or b"")

    def pass_on(self, data: bytes) -> None:
        """Pass on bytes that were kept back."""
        self._receiver(data)
        self.passed_on += len(data)

    def _forward(self) -> None:
        if self._waiting:
            data, self._waiting = bytes(self._waiting), bytearray()
            self.pass_on(data)


_WORD_BYTES = 8
_LARGEST_BYTES = (1 << 31) - 1
"""Largest offset in one Arrow array."""


def encode_raw_arrays(lists: pa.ListArray[Any], *, dimensions: int, column: str) -> pa.BinaryArray:
    """Encode the arrays of one row group."""
    is_null = _bits(lists.is_null())
    rows = np.flatnonzero(~is_null)
    nested: Any = lists.drop_null()
    shapes = np.zeros((len(rows), dimensions), dtype=np.int64)
    counts = np.ones(len(rows), dtype=np.int64)  # lists of each row at the current depth; finally elements
    for dimension in range(dimensions):
        if nested.null_count:
            row = np.repeat(rows, counts)[np.argmax(_bits(nested.is_null()))]
            raise _ragged(column, int(row), "one of its lists is null")
        lengths = numbers_to_numpy(pc.list_value_length(nested), np.int32).astype(np.int64)
        has_lists = counts > 0
        first = np.cumsum(counts) - counts
        shapes[has_lists, dimension] = lengths[first[has_lists]]
        differs = lengths != np.repeat(shapes[:, dimension], counts)
        if differs.any():
            raise _ragged(column, int(np.repeat(rows, counts)[np.argmax(differs)]), "its lists differ in length")
        counts = counts * shapes[:, dimension]
        nested = nested.flatten()
    elements = numbers_to_numpy(nested.fill_null(float("nan")), np.float64)
    return _byte_strings(shapes, counts, elements, is_null, column)


def _byte_strings(
    shapes: npt.NDArray[np.int64],
    element_counts: npt.NDArray[np.int64],
    elements: npt.NDArray[np.float64],
    is_null: npt.NDArray[np.bool_],
    column: str,
) -> pa.BinaryArray:
    dimensions = shapes.shape[1]
    header_words = (dimensions + 1) // 2
    word_lengths = header_words + element_counts
    header_positions = (np.cumsum(word_lengths) - word_lengths)[:, None] + np.arange(header_words)
    words = np.empty(int(word_lengths.sum()), dtype="<u8")
    if words.nbytes > _LARGEST_BYTES:
        raise InvalidInputError(
            f"the arrays of column {column!r} take {words.nbytes:,} bytes in one row group, more than Arrow can hold in"
            " one piece; write fewer rows per row group",
            kind="TooLarge",
            field=column,
        )
    headers = np.zeros((len(shapes), 2 * header_words), dtype="<i4")
    headers[:, :dimensions] = shapes
    is_element = np.ones(len(words), dtype=bool)
    is_element[header_positions] = False
    words[header_positions] = headers.view("<u8")
    words[is_element] = elements.view("<u8")
    offsets = np.zeros(len(is_null) + 1, dtype=np.int32)
    row_bytes = np.zeros(len(is_null), dtype=np.int64)
    row_bytes[~is_null] = word_lengths * _WORD_BYTES
    np.cumsum(row_bytes, out=offsets[1:])
    validity = pa.py_buffer(np.packbits(~is_null, bitorder="little").data) if is_null.any() else None
    buffers = [validity, pa.py_buffer(offsets.data), pa.py_buffer(words.data)]
    byte_strings: pa.BinaryArray = pa.Array.from_buffers(pa.binary(), len(is_null), buffers)  # type: ignore[assignment]
    return byte_strings


def _bits(flags: pa.BooleanArray) -> npt.NDArray[np.bool_]:
    return np.asarray(flags.to_numpy(zero_copy_only=False), dtype=bool)


def _ragged(column: str, row: int, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"row {row} of its row group holds no array in column {column!r}: {why}",
        kind="RaggedArray",
        field=column,
        row=row,
    )


def stored_table(rows: pa.Table, columns: Sequence[ColumnStorage]) -> pa.Table:
    """Convert the rows of one row group for the Parquet writer."""
    arrays = [_stored_array(rows.column(column.name), column) for column in columns]
    return pa.Table.from_arrays(arrays, schema=pa.schema([column.arrow_field() for column in columns]))


def _stored_array(values: pa.ChunkedArray[Any], column: ColumnStorage) -> Any:
    try:
        values.validate(full=True)  # text that is not UTF-8 would be stored unchanged and be unreadable
        array = _converted(_in_one_piece(values), column)
    except pa.ArrowException as error:
        raise InvalidInputError(
            f"column {column.name!r} of Arrow type {values.type} cannot be stored as {column.type_name}: {error}",
            kind="DoesNotFit",
            field=column.name,
        ) from error
    if column.is_required and array.null_count:  # only known now: the null may be in a dictionary
        why = "the designated timestamp is never null" if column.tag is TypeTag.TIMESTAMP else "it is never null"
        raise InvalidInputError(
            f"column {column.name!r} of type {column.type_name} has {array.null_count:,} nulls, but {why}; fill them or"
            " drop their rows first",
            kind="NullValue",
            field=column.name,
        )
    return array


def _converted(array: Any, column: ColumnStorage) -> Any:
    if column.tag is TypeTag.ARRAY:
        dimensions = array_dimensions(column.type_code)
        return encode_raw_arrays(exact_cast(array, _list_type(dimensions)), dimensions=dimensions, column=column.name)
    if pa.types.is_dictionary(column.storage):
        return _symbols(exact_cast(array, pa.string()), column)
    if isinstance(column.storage, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(column.storage, exact_cast(array, column.storage.storage_type))
    if is_decimal(column.tag):  # the storage type has more digits than the type
        array = exact_cast(array, decimal_storage(*decimal_precision_scale(column.type_code)))
    return exact_cast(array, column.storage)


def _symbols(values: Any, column: ColumnStorage) -> Any:
    """Encode strings with a dictionary: of the distinct values, or of the table's symbols up to the last used one."""
    if column.symbols is None:
        # Encode again even if they have a dictionary: it may hold one value twice, or values that no row has.
        return values.dictionary_encode()
    keys: Any = pc.index_in(values, value_set=column.symbols)
    if keys.null_count > values.null_count:
        unknown = values.filter(pc.and_(keys.is_null(), values.is_valid()))[0].as_py()
        raise InvalidInputError(
            f"column {column.name!r} holds {unknown!r}, which is none of the {len(column.symbols):,} symbols of the table",
            kind="UnknownSymbol",
            field=column.name,
        )
    last_key = pc.max(keys).as_py()
    return pa.DictionaryArray.from_arrays(keys, column.symbols.slice(0, 0 if last_key is None else last_key + 1))


def _in_one_piece(values: pa.ChunkedArray[Any]) -> Any:
    if isinstance(values.type, pa.BaseExtensionType):
        chunks: Any = values.chunks
        storage: Any = values.type.storage_type
        return pa.chunked_array([chunk.storage for chunk in chunks], storage).combine_chunks()
    if pa.types.is_dictionary(values.type):
        # Together the dictionaries may have more values than their keys can count.
        dictionaries: list[Any] = values.chunks
        values = pa.chunked_array([chunk.dictionary_decode() for chunk in dictionaries], values.type.value_type)
    return values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()


def _list_type(dimensions: int) -> pa.DataType:
    list_type: pa.DataType = pa.float64()
    for _ in range(dimensions):
        list_type = pa.list_(list_type)
    return list_type
