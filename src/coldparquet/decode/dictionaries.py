"""Decodes text chunks to dictionary arrays: each distinct string is decoded once, and no row's string is ever made.

pyarrow can read dictionaries itself (``read_dictionary``), but it drops repeated entries without renumbering the
indices, and then returns wrong strings. QuestDB's symbol dictionaries do repeat: entry ``k`` is the table's symbol
``k``, or an empty string if the chunk does not use it. So a chunk is decoded in up to three parts, each a virtual file
of its own:

* its dictionary page, as a page of plain strings. Equal entries get one number, the position of the string in the result;
* its pages of indices, as integers. Their dictionary page holds the number of each entry, so pyarrow decodes directly to
  the indices of the result, at no further cost per row;
* the later pages with strings, where a writer gave up its dictionary because it had grown too large.

pyarrow reads some dictionaries itself, along with the other columns of their file. That takes half the time. Chunks
of QuestDB, or of an unknown writer, that may have an empty entry are excluded: only empty entries repeat in QuestDB's
files, and other writers' do not repeat. The result is only used if it has as many values as there are entries; then all of
them are distinct.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from msgspec import Struct

from coldparquet.decode.arrow import (
    DICTIONARY_TYPE,
    byte_strings_to_arrow,
    check_values,
    compute,
    numbers_to_arrow,
    numbers_to_numpy,
)
from coldparquet.decode.parquet_reader import read_columns
from coldparquet.decode.virtual_file import CODECS, one_column_file
from coldparquet.errors import FormatError, UnsupportedError
from coldparquet.format.page_headers import FetchedPages, Page, PageType
from coldparquet.format.parquet_schema import LeafSpec
from coldparquet.format.parquet_thrift import DataPageHeader, DictionaryPageHeader, PageHeader
from coldparquet.format.sidecar_layout import Encoding, PhysicalType
from coldparquet.format.types import LogicalKind, LogicalType

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import numpy.typing as npt

    from coldparquet.decode.parquet_reader import ChunkLabel


SEPARABLE_CODECS = frozenset({"uncompressed", "snappy", "gzip", "brotli", "zstd", "lz4_raw"})
"""Codecs in which Arrow compresses bytes exactly as a page holds them; the old LZ4 has a frame of its own."""

_INDEX_ENCODINGS = frozenset({Encoding.RLE_DICTIONARY, Encoding.PLAIN_DICTIONARY})
_ENTRY_ENCODINGS = frozenset({Encoding.PLAIN, Encoding.PLAIN_DICTIONARY})
_SMALLEST_ENTRY_BYTES = 4
"""A plain string begins with its length."""


class DictionaryParts(Struct, frozen=True, kw_only=True):
    """The pages of a flat text chunk by content, in this order."""

    dictionary: Page | None
    """None if there are no pages of indices."""
    index_pages: Sequence[Page]
    text_pages: Sequence[Page]

    @property
    def row_count(self) -> int:
        """Number of rows in the data pages, by their headers."""
        return count_rows(self.index_pages) + count_rows(self.text_pages)


def take_apart(pages: FetchedPages, codec: int) -> DictionaryParts | None:
    """Classify the pages of a chunk by content."""
    found = pages.headers
    if not found:
        return None
    dictionary = found[0] if found[0].header.type == PageType.DICTIONARY else None
    data_pages = found if dictionary is None else found[1:]
    encodings = [page_encoding(page) for page in data_pages]
    if not encodings or None in encodings:
        return None
    index_count = sum(encoding in _INDEX_ENCODINGS for encoding in encodings)
    if any(encoding in _INDEX_ENCODINGS for encoding in encodings[index_count:]):
        return None
    if index_count and (dictionary is None or not _is_readable(dictionary, codec)):
        return None
    return DictionaryParts(
        dictionary=dictionary if index_count else None,
        index_pages=data_pages[:index_count],
        text_pages=data_pages[index_count:],
    )


def page_encoding(page: Page) -> int | None:
    """Return the encoding of a data page's values; None if it is not a data page."""
    header = page.header
    data_page = header.data_page_header_v2 if header.type == PageType.DATA_V2 else header.data_page_header
    is_data = header.type in {PageType.DATA, PageType.DATA_V2} and data_page is not None
    return data_page.encoding if is_data and data_page is not None and (data_page.num_values or 0) >= 0 else None


def count_rows(pages: Sequence[Page]) -> int:
    """Return the number of rows in data pages, by their headers."""
    headers = (page.header.data_page_header_v2 or page.header.data_page_header for page in pages)
    return sum((header.num_values or 0) for header in headers if header is not None)


def count_entries(page: Page) -> int:
    """Return the number of entries in a dictionary page, by its header."""
    dictionary = page.header.dictionary_page_header
    return (dictionary.num_values or 0) if dictionary is not None else 0


def _is_readable(page: Page, codec: int) -> bool:
    dictionary, page_bytes = page.header.dictionary_page_header, page.header.uncompressed_page_size or 0
    return (
        dictionary is not None
        and CODECS[codec] in SEPARABLE_CODECS
        and dictionary.encoding in _ENTRY_ENCODINGS
        and 0 < count_entries(page) <= page_bytes // _SMALLEST_ENTRY_BYTES
    )


def without_unused_values(array: pa.DictionaryArray[Any, Any]) -> pa.DictionaryArray[Any, Any]:
    """Drop the values that no row uses; the others keep their order."""
    is_used = np.zeros(len(array.dictionary), dtype=bool)
    is_used[numbers_to_numpy(array.indices.drop_null(), np.int32)] = True
    if is_used.all():
        return array
    numbers = numbers_to_arrow(np.cumsum(is_used, dtype=np.int32) - np.int32(1), pa.int32())
    used = numbers_to_arrow(np.flatnonzero(is_used), pa.int64())
    return pa.DictionaryArray.from_arrays(numbers.take(array.indices), array.dictionary.take(used), safe=False)


def shorten_dictionaries(table: pa.Table, *, untouched: Collection[str]) -> pa.Table:
    """Drop unused values of dictionaries longer than the table, so that few rows do not keep a large one."""
    for position, name in enumerate(table.schema.names):
        column: Any = table.column(position)
        if not pa.types.is_dictionary(column.type) or name in untouched:
            continue
        if any(len(chunk.dictionary) > len(column) for chunk in column.chunks):
            chunks: list[Any] = [without_unused_values(chunk) for chunk in column.chunks]
            shortened = pa.chunked_array(chunks, type=DICTIONARY_TYPE)
            table = table.set_column(position, table.schema.field(position), shortened)
    return table


class SharedDictionaries:
    """One growing dictionary per column, for consecutive tables of a stream.

    A number always means the same string in every table. Each table's dictionary is that of the previous table,
    followed by new strings: writers of Arrow streams send only these, as deltas.

    Args:
        known: By column, the distinct strings to begin with. If no others occur, every table has exactly this
            dictionary.
    """

    def __init__(self, known: Mapping[str, pa.Array[Any]]) -> None:
        self._dictionaries = dict(known)

    def share(self, table: pa.Table) -> pa.Table:
        """Give the columns the shared dictionaries, and add new strings to these.

        Rows are rewritten only if their dictionary numbers its strings differently.
        """
        for position, name in enumerate(table.schema.names):
            if name in self._dictionaries:
                column: Any = table.column(position)
                table = table.set_column(position, table.schema.field(position), self._shared(name, column))
        return table

    def _shared(self, name: str, column: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any]:
        parts: list[Any] = column.chunks
        indices = []
        for part in parts:
            dictionary = self._dictionaries[name]
            if _begins_with(dictionary, part.dictionary):
                indices.append(part.indices)
            elif _begins_with(part.dictionary, dictionary):
                self._dictionaries[name] = part.dictionary
                indices.append(part.indices)
            else:
                used = without_unused_values(part)
                self._dictionaries[name], numbers = numbered(used.dictionary, dictionary)
                indices.append(numbers.take(used.indices))
        shared = [pa.DictionaryArray.from_arrays(part, self._dictionaries[name], safe=False) for part in indices]
        return pa.chunked_array(shared, type=column.type)


def numbered(strings: pa.Array[Any], known: pa.Array[Any]) -> tuple[pa.Array[Any], pa.Array[Any]]:
    """Find strings in a dictionary, and append those that it lacks."""
    numbers = compute.index_in(strings, value_set=known)
    if numbers.null_count:
        known = pa.concat_arrays([known, strings.filter(numbers.is_null()).unique()])
        numbers = compute.index_in(strings, value_set=known)
    return known, numbers


def _begins_with(dictionary: pa.Array[Any], other: pa.Array[Any]) -> bool:
    return len(dictionary) >= len(other) and dictionary.slice(0, len(other)).equals(other)


_TEXT = LogicalType(kind=LogicalKind.STRING)


def decode_dictionary_chunk(  # noqa: PLR0913 - a chunk, and what its pages do not say themselves
    pages: FetchedPages,
    *,
    codec: int,
    created_by: str | None,
    row_count: int,
    max_def_level: int,
    label: ChunkLabel,
    known: pa.Array[Any] | None = None,
    check_page_checksums: bool,
) -> pa.ChunkedArray[Any] | None:
    """Decode the pages of a flat text column by their parts."""
    parts = take_apart(pages, codec)
    if parts is None or parts.row_count != row_count:
        return None
    chunk = _Chunk(
        content=pages.content,
        codec=codec,
        created_by=created_by,
        max_def_level=max_def_level,
        label=label,
        check_page_checksums=check_page_checksums,
    )
    arrays: list[Any] = []
    if parts.dictionary is not None:
        arrays += _decode_indices(chunk, parts.dictionary, parts.index_pages, known)
    elif known is not None:
        arrays.append(pa.DictionaryArray.from_arrays(numbers_to_arrow(np.empty(0, np.int32), pa.int32()), known))
    if parts.text_pages:
        arrays += _decode_text(chunk, parts.text_pages)
    decoded: pa.ChunkedArray[Any] = pa.chunked_array(arrays, type=DICTIONARY_TYPE)
    return decoded if len(arrays) == 1 else decoded.unify_dictionaries()


def longest_text(pages: FetchedPages, *, codec: int, label: ChunkLabel, check_page_checksums: bool) -> int:
    """Return the length of the longest string in the dictionary of a flat text chunk."""
    parts = take_apart(pages, codec)
    if parts is None or parts.dictionary is None:
        return 0
    chunk = _Chunk(
        content=pages.content,
        codec=codec,
        created_by=None,
        max_def_level=0,
        label=label,
        check_page_checksums=check_page_checksums,
    )
    try:
        entries = _read_entries(chunk, parts.dictionary)
    except (FormatError, UnsupportedError):
        return 0
    return int(compute.max(compute.binary_length(entries)).as_py())


def dictionary_value_bytes(  # noqa: PLR0913 - a chunk, and what its pages do not say themselves
    pages: FetchedPages, *, codec: int, value_count: int, levels: LeafSpec, label: ChunkLabel, enough_bytes: int
) -> int:
    """Return the size of a chunk's byte strings that are stored as indices into a dictionary.

    ``levels`` is a column of INT32 that has the levels of the chunk.
    """
    parts = take_apart(pages, codec)
    if parts is None or parts.dictionary is None or parts.row_count != value_count:
        return 0
    if (parts.dictionary.header.uncompressed_page_size or 0) * value_count <= enough_bytes:
        return 0
    chunk = _Chunk(
        content=pages.content,
        codec=codec,
        created_by=None,
        max_def_level=levels.max_def_level,
        label=label,
        check_page_checksums=False,
    )
    try:
        lengths = numbers_to_numpy(compute.binary_length(_read_entries(chunk, parts.dictionary, None)), np.int32)
        if int(lengths.max()) * value_count <= enough_bytes:
            return 0
        of_values = _read_numbers(chunk, lengths, parts.index_pages, levels)
    except (FormatError, UnsupportedError):
        return 0
    size_bytes = sum(compute.sum(_innermost(chunk)).as_py() or 0 for chunk in of_values.chunks)
    return size_bytes if size_bytes > enough_bytes else 0


def _innermost(values: Any) -> Any:
    """Return the numbers in an array of lists and structs of one field."""
    while pa.types.is_nested(values.type):
        values = values.flatten()
        values = values[0] if isinstance(values, list) else values
    return values


class _Chunk(Struct, frozen=True, kw_only=True):
    """What all parts of a chunk share."""

    content: memoryview
    codec: int
    created_by: str | None
    max_def_level: int
    label: ChunkLabel
    check_page_checksums: bool


def _decode_indices(
    chunk: _Chunk, dictionary_page: Page, index_pages: Sequence[Page], known: pa.Array[Any] | None
) -> list[pa.Array[Any]]:
    """Decode pages of indices into arrays that share one dictionary."""
    entries = _read_entries(chunk, dictionary_page)
    entry_numbers = _number_entries(entries, known)
    indices = _read_numbers(chunk, entry_numbers.numbers, index_pages)
    dictionary = entry_numbers.dictionary
    if entry_numbers.empty_is_last and compute.max(indices).as_py() != len(dictionary) - 1:
        dictionary = dictionary[:-1]  # no row has it: it represents the table's unused symbols
    # Indices decoded from the page of numbers are entry numbers: checking them would only cost time.
    return [pa.DictionaryArray.from_arrays(positions, dictionary, safe=False) for positions in indices.chunks]


def _read_numbers(
    chunk: _Chunk, numbers: npt.NDArray[np.int32], index_pages: Sequence[Page], leaf: LeafSpec | None = None
) -> pa.ChunkedArray[Any]:
    """Decode pages of indices to the entry number of each row, or of each value of another leaf."""
    pages: list[bytes | memoryview] = [
        _number_page(numbers, chunk.codec),
        chunk.content[index_pages[0].start : index_pages[-1].stop],
    ]
    if leaf is None:
        leaf = LeafSpec(name="numbers", physical_type=PhysicalType.INT32, max_def_level=chunk.max_def_level)
    row_count = count_rows(index_pages)
    file = one_column_file(pages, leaf, value_count=row_count, codec=chunk.codec, created_by=chunk.created_by)
    [decoded] = read_columns(file, {leaf.name: chunk.label}, check_page_checksums=chunk.check_page_checksums)
    return decoded


def _read_entries(chunk: _Chunk, page: Page, logical: LogicalType | None = _TEXT) -> pa.Array[Any]:
    """Decode a dictionary page as a data page: a required column has no levels, so both have the same form."""
    entry_count = count_entries(page)
    header = PageHeader(
        type=PageType.DATA,
        uncompressed_page_size=page.header.uncompressed_page_size,
        compressed_page_size=page.header.compressed_page_size,
        crc=page.header.crc,
        data_page_header=DataPageHeader(
            num_values=entry_count,
            encoding=Encoding.PLAIN,
            definition_level_encoding=Encoding.RLE,
            repetition_level_encoding=Encoding.RLE,
        ),
    )
    leaf = LeafSpec(name="entries", physical_type=PhysicalType.BYTE_ARRAY, max_def_level=0, logical=logical)
    data_page: list[bytes | memoryview] = [header.encode(), chunk.content[page.body_start : page.stop]]
    file = one_column_file(data_page, leaf, value_count=entry_count, codec=chunk.codec)
    [entries] = read_columns(file, {leaf.name: chunk.label}, check_page_checksums=chunk.check_page_checksums)
    check_values(entries, chunk.label)
    if len(entries) != entry_count:
        raise chunk.label.damaged(
            f"its dictionary has {len(entries)} entries, expected {entry_count}", field="dictionary"
        )
    return entries.combine_chunks()


class _EntryNumbers(Struct, frozen=True, kw_only=True):
    """The entries of a dictionary page by their number in the result's dictionary."""

    numbers: npt.NDArray[np.int32]
    """Shape ``(entries,)``."""
    dictionary: pa.Array[Any]
    """Distinct strings, each at the position of its number."""
    empty_is_last: bool
    """Whether the last of them is the empty string, which may represent entries that no row uses."""


def _number_entries(entries: pa.Array[Any], known: pa.Array[Any] | None) -> _EntryNumbers:
    """Give equal entries one number. Empty entries get a number beyond all others, unless ``known`` has one."""
    is_empty = numbers_to_numpy(compute.binary_length(entries), np.int32) == 0
    numbers, dictionary = _numbers_of_text(entries, is_empty, known)
    if not is_empty.any():
        return _EntryNumbers(numbers=numbers, dictionary=dictionary, empty_is_last=False)
    empty = byte_strings_to_arrow([b""], pa.binary()).view(pa.string())
    known_place = -1 if known is None else compute.index(known, empty[0]).as_py()
    if known_place >= 0:
        numbers[is_empty] = known_place
        return _EntryNumbers(numbers=numbers, dictionary=dictionary, empty_is_last=False)
    numbers[is_empty] = len(dictionary)
    return _EntryNumbers(numbers=numbers, dictionary=pa.concat_arrays([dictionary, empty]), empty_is_last=True)


def _numbers_of_text(
    entries: pa.Array[Any], is_empty: npt.NDArray[np.bool_], known: pa.Array[Any] | None
) -> tuple[npt.NDArray[np.int32], pa.Array[Any]]:
    """Number the non-empty entries, and return the strings by their numbers; empty entries get any number."""
    if known is not None and _are_at_their_places(entries, is_empty, known):
        return np.arange(len(entries), dtype=np.int32), known
    numbers = np.zeros(len(entries), dtype=np.int32)
    places = np.flatnonzero(~is_empty)
    text = entries.take(numbers_to_arrow(places, pa.int64())) if len(places) < len(entries) else entries
    if known is None:
        encoded: Any = text.dictionary_encode()
        numbers[places] = numbers_to_numpy(encoded.indices, np.int32)
        return numbers, encoded.dictionary
    dictionary, found = numbered(text, known)
    numbers[places] = numbers_to_numpy(found, np.int32)
    return numbers, dictionary


def _are_at_their_places(entries: pa.Array[Any], is_empty: npt.NDArray[np.bool_], known: pa.Array[Any]) -> bool:
    if len(entries) > len(known):
        return False
    differs = compute.not_equal(entries, known.slice(0, len(entries)))
    return bool(is_empty[numbers_to_numpy(compute.indices_nonzero(differs), np.uint64)].all())


def _number_page(numbers: npt.NDArray[np.int32], codec: int) -> bytes:
    """Return a dictionary page of integers: the number of each entry."""
    body = numbers.astype("<i4").tobytes()
    name: Any = CODECS[codec]  # the stubs list Arrow's names
    compressed = pa.compress(body, name, asbytes=True) if codec else body
    header = PageHeader(
        type=PageType.DICTIONARY,
        uncompressed_page_size=len(body),
        compressed_page_size=len(compressed),
        dictionary_page_header=DictionaryPageHeader(num_values=len(numbers), encoding=Encoding.PLAIN),
    )
    return header.encode() + compressed


def _decode_text(chunk: _Chunk, pages: Sequence[Page]) -> list[pa.Array[Any]]:
    """Decode pages of strings into dictionary arrays."""
    leaf = LeafSpec(
        name="text", physical_type=PhysicalType.BYTE_ARRAY, max_def_level=chunk.max_def_level, logical=_TEXT
    )
    content = chunk.content[pages[0].start : pages[-1].stop]
    row_count = count_rows(pages)
    file = one_column_file([content], leaf, value_count=row_count, codec=chunk.codec, created_by=chunk.created_by)
    # Without a dictionary page no entry repeats. pyarrow dictionary-encodes plain pages during decoding, others not.
    is_plain = all(page_encoding(page) == Encoding.PLAIN for page in pages)
    [text] = read_columns(
        file,
        {leaf.name: chunk.label},
        as_dictionary=("text",) if is_plain else (),
        check_page_checksums=chunk.check_page_checksums,
    )
    check_values(text, chunk.label)
    arrays: list[Any] = text.chunks if is_plain else [strings.dictionary_encode() for strings in text.chunks]
    return arrays


_EMPTY_ENTRY = bytes(4)
"""A plain string begins with its length. Lengths below 16 million end with a zero byte, but not with four."""

_LARGEST_SEARCHED_BYTES = 1 << 20
"""Longer dictionaries are decoded in parts: searching them, after another decompression, would take too long."""


def distinct_entries(pages: FetchedPages, codec: int, *, row_count: int, created_by: str | None = None) -> int | None:
    """Return the number of entries in a flat text chunk's dictionary if pyarrow may read it itself."""
    parts = take_apart(pages, codec)
    if parts is None or parts.dictionary is None or parts.text_pages or parts.row_count != row_count:
        return None
    may_repeat = not created_by or "QuestDB" in created_by
    if may_repeat and _may_have_empty_entry(pages.content, parts.dictionary, codec):
        return None
    return count_entries(parts.dictionary)


def is_as_stored(
    array: pa.ChunkedArray[Any], entry_counts: Sequence[int], row_counts: Sequence[int], label: ChunkLabel
) -> bool:
    """Tell whether pyarrow read what was written: entries of dictionaries, and rows, per row group."""
    if array.type != DICTIONARY_TYPE:
        return False
    first_row = 0
    for entry_count, row_count in zip(entry_counts, row_counts, strict=True):
        chunks: list[Any] = array.slice(first_row, row_count).chunks
        if any(len(chunk.dictionary) != entry_count for chunk in chunks):
            return False
        first_row += row_count
    check_values(array, label)
    return True


def _may_have_empty_entry(pages: memoryview, dictionary: Page, codec: int) -> bool:
    body = pages[dictionary.body_start : dictionary.stop]
    size_bytes = dictionary.header.uncompressed_page_size or 0
    if size_bytes > _LARGEST_SEARCHED_BYTES:
        return True
    name: Any = CODECS[codec]  # the stubs list Arrow's names
    try:
        entries = pa.decompress(body, decompressed_size=size_bytes, codec=name, asbytes=True) if codec else bytes(body)
    except (pa.ArrowException, OSError):
        return True  # decoding in parts reports the damage
    return _EMPTY_ENTRY in entries
