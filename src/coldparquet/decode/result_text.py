"""Gives decoded text the form of the result: dictionaries, plain strings or views.

While rows are decoded and filtered, text stays dictionary-encoded where its pages are: each string is checked and compared
once. Rows that repeat few long strings stay so even if plain strings are wanted: a page of a few KB can expand to GB. They
become plain strings in batches no larger than the memory allows.

Views are made last, for pyarrow cannot filter them (see ``ReadOptions.strings``). A view takes 16 bytes; the text itself stays
where it is, in the dictionary if there is one. Polars takes views over as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
from msgspec import Struct

from coldparquet.decode.arrow import DICTIONARY_TYPE, VIEW_TYPE, TextAs, arrow_type, compute, numbers_to_numpy
from coldparquet.decode.dictionaries import without_unused_values
from coldparquet.errors import InternalError
from coldparquet.options import MIB
from coldparquet.records import replace

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    import numpy.typing as npt

    from coldparquet.options import ReadOptions
    from coldparquet.plan.columns import TableColumn


_VIEW = np.dtype("V16")
"""A view: length and text of a short string; length, first bytes and place of a long one."""


def most_expanded_bytes(memory_limit_bytes: int) -> int:
    """Return how much text may be plain strings at once; larger text stays dictionary-encoded until delivery."""
    return max(memory_limit_bytes // 8, 4 * MIB)


class ResultText(Struct, frozen=True, kw_only=True):
    """The names of the text columns of a result by their form; the others are dictionary-encoded."""

    plain: frozenset[str]
    views: frozenset[str]

    @classmethod
    def of(cls, columns: Iterable[TableColumn], options: ReadOptions) -> Self:
        """Return the forms that the options of a read ask for."""
        text = TextAs.of(options)
        types = {column.name: arrow_type(column.readable_type, text=text) for column in columns}
        return cls(
            plain=frozenset(name for name, type_ in types.items() if type_ == pa.string()),
            views=frozenset(name for name, type_ in types.items() if type_ == VIEW_TYPE),
        )


def columns_to_expand(schema: pa.Schema, plain: Collection[str]) -> list[int]:
    """Return the positions of dictionary-encoded columns that must become plain strings: those named in ``plain``."""
    return [place for place, field in enumerate(schema) if field.type == DICTIONARY_TYPE and field.name in plain]


def expanded_if_small(table: pa.Table, plain: Collection[str], most_bytes: int) -> pa.Table:
    """Convert dictionary-encoded text of the columns ``plain`` to plain strings, except columns that could be larger."""
    for place in columns_to_expand(table.schema, plain):
        encoded: Any = table.column(place).combine_chunks()  # pyarrow decodes dictionaries in chunks of 65,536 rows
        longest_bytes = compute.max(compute.binary_length(encoded.dictionary)).as_py() or 0
        if len(encoded) * longest_bytes <= most_bytes:
            field = table.schema.field(place).with_type(pa.string())
            table = table.set_column(place, field, encoded.cast(pa.string()))
    return table


def first_expanded(
    batch: pa.RecordBatch, places: Sequence[int], most_bytes: int
) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
    """Take as many rows of a batch as fit, at least one, and convert their text to plain strings."""
    row_bytes = _expanded_row_bytes(batch, places)
    rows = max(int(row_bytes.cumsum().searchsorted(most_bytes, side="right")), 1)
    first: Any = batch.slice(0, rows)
    for place in places:
        field = first.schema.field(place)
        first = first.set_column(place, field.with_type(pa.string()), first.column(place).cast(pa.string()))
    return first, batch.slice(rows) if rows < batch.num_rows else None


def text_bytes(table: pa.Table, plain: Collection[str]) -> int:
    """Return the size, as plain strings, of dictionary-encoded text in the columns ``plain``."""
    places = columns_to_expand(table.schema, plain)
    return sum(int(_expanded_row_bytes(batch, places).sum()) for batch in table.to_batches())


def _expanded_row_bytes(batch: pa.RecordBatch, places: Sequence[int]) -> npt.NDArray[np.int64]:
    row_bytes = np.zeros(batch.num_rows, dtype=np.int64)
    for place in places:
        array: Any = batch.column(place)
        lengths = numbers_to_numpy(compute.binary_length(array.dictionary), np.int32)
        indices = numbers_to_numpy(array.indices.fill_null(len(lengths)), np.int32)
        row_bytes += np.append(lengths, np.int32(0))[indices]
    return row_bytes


def expanded_table(table: pa.Table, plain: Collection[str], *, most_bytes: int = 1024 * MIB) -> pa.Table:
    """Convert dictionary-encoded text of the columns ``plain`` to plain strings, in chunks of at most 2 GiB."""
    places = columns_to_expand(table.schema, plain)
    if not places:
        return table
    batches: list[pa.RecordBatch] = []
    for batch in table.to_batches():
        left: pa.RecordBatch | None = batch
        while left is not None:
            first, left = first_expanded(left, places, most_bytes)
            batches.append(first)
    schema = table.schema
    for place in places:
        schema = schema.set(place, schema.field(place).with_type(pa.string()))
    return pa.Table.from_batches(batches, schema)


def options_without_views(options: ReadOptions) -> ReadOptions:
    """Return options by which text that is to become views is plain strings, for Arrow's functions."""
    return replace(options, strings="string") if options.strings == "view" else options


def options_with_views(options: ReadOptions) -> ReadOptions:
    """Return options by which text becomes views where it would be strings, which Polars would make views of."""
    return replace(options, strings="view") if options.strings == "string" else options


def text_to_views(table: pa.Table, names: Collection[str]) -> pa.Table:
    """Convert text columns, dictionary-encoded or not, to views of their strings."""
    for place, field in enumerate(table.schema):
        if field.name in names:
            column: Any = table.column(place)
            # pyarrow decodes dictionaries in chunks of 65,536 rows, and each chunk would be a batch of its own.
            chunks = [column.combine_chunks()] if field.type == DICTIONARY_TYPE else column.chunks
            places = list(map(_place_in_memory, chunks))
            # Values that are made, such as those of a missing column, repeat one chunk.
            made = {of_chunk: _views(chunk) for of_chunk, chunk in dict(zip(places, chunks, strict=True)).items()}
            views = pa.chunked_array([made[of_chunk] for of_chunk in places], type=VIEW_TYPE)
            table = table.set_column(place, field.with_type(VIEW_TYPE), views)
    return table


def _place_in_memory(array: pa.Array[Any]) -> tuple[int, ...]:
    return array.offset, len(array), *(0 if buffer is None else buffer.address for buffer in array.buffers())


def _views(array: Any) -> Any:
    """Return views of the strings of an array; each row of a dictionary array gets a copy of the view of its entry."""
    if not pa.types.is_dictionary(array.type):
        return array.cast(VIEW_TYPE)
    if array.dictionary.nbytes > _VIEW.itemsize * len(array):
        array = without_unused_values(array)  # text that no row has would be kept
    indices, entries = array.indices, array.dictionary.cast(VIEW_TYPE)
    if not len(entries):
        return pa.nulls(len(array), VIEW_TYPE)
    if entries.null_count:
        raise InternalError("a dictionary page has a null, which Parquet does not know there")
    _, views, *texts = entries.buffers()
    validity = indices.is_valid().buffers()[1] if indices.null_count else None
    # Arrow leaves the index of a null open: it may lie outside of the dictionary.
    of_rows = np.frombuffer(views, _VIEW)[entries.offset :].take(numbers_to_numpy(indices, np.int32), mode="clip")
    buffers = [validity, pa.py_buffer(of_rows.view(np.uint8).data), *texts]
    return pa.Array.from_buffers(VIEW_TYPE, len(array), buffers)


def copied(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Copy a batch out of the memory of a larger one; dictionaries are shared with other batches and not copied."""
    return pa.RecordBatch.from_arrays([_copied(column) for column in batch.columns], schema=batch.schema)


def _copied(array: Any) -> Any:
    if pa.types.is_dictionary(array.type):
        return pa.DictionaryArray.from_arrays(pa.concat_arrays([array.indices]), array.dictionary, safe=False)
    if array.type == VIEW_TYPE and _view_lengths(array).sum(dtype=np.int64) < array.get_total_buffer_size():
        return array.cast(pa.string()).cast(VIEW_TYPE)  # a copy of the views alone would keep the text of all rows
    return pa.concat_arrays([array])


def _view_lengths(array: Any) -> npt.NDArray[np.int32]:
    """Return the lengths of texts in bytes: a view has four numbers, of which the length is the first."""
    views = np.frombuffer(memoryview(array.buffers()[1]), np.int32).reshape(-1, 4)
    return views[array.offset : array.offset + len(array), 0]
