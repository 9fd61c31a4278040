"""Parses and builds Parquet footers, with their writer's name and QuestDB's JSON in them.

The writer matters because some writers have known errors, as Arrow's readers know them:

- Arrow before 3.0 (ARROW-10353) compressed data pages of version 2 and marked them as not compressed. pyarrow decodes
them
  correctly if the footer names the writer, so every virtual footer contains the name.
- parquet-mr before 1.2.9 (PARQUET-816) left the header of the dictionary page out of the length of a chunk.
- Arrow before 4.0 (PARQUET-1655) compared all bytes of decimals as signed numbers, so its bounds of them mean nothing.

QuestDB's sidecar has no field for the name. Sidecars that this library makes for files of other writers hold it in a
SCRATCHPAD entry, which QuestDB carries along unread; empty where the footer has no name. A sidecar without the entry is
QuestDB's, or from an older version of this library.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from msgspec import Struct

from coldparquet.errors import FormatError, InvalidInputError, UnsupportedError
from coldparquet.format import parquet_thrift as thrift
from coldparquet.format import sidecar_layout as layout
from coldparquet.format.parquet_schema import LeafSpec, SchemaLeaf, encode_leaf, encode_stored, parse_schema
from coldparquet.format.sidecar_header import ScratchpadEntry
from coldparquet.format.thrift import ABSENT, structure_list_places
from coldparquet.format.type_codes import tag_of
from coldparquet.format.types import FOREIGN_ANNOTATIONS_CODE

if TYPE_CHECKING:
    import numpy.typing as npt


WRITER_CODE = 0x43505752
"""Code of the SCRATCHPAD entry: ``CPWR`` read as a big-endian number. Its content is the footer's ``created_by`` in UTF-8."""

DERIVED_CODES = frozenset({WRITER_CODE, FOREIGN_ANNOTATIONS_CODE})
"""SCRATCHPAD entries from the footer of the file, so a sidecar of a rewritten file has its own."""

DICTIONARY_HEADER_BYTES = 100
"""More than the header of a dictionary page without statistics; Arrow searches as many bytes for it."""

_LONGEST_NAME_BYTES = 1_000
"""Most bytes of the name, twice the usual; a SCRATCHPAD holds 1 MiB at most."""

_VERSION_WORD = re.compile(r"\sversion\b", re.IGNORECASE)
_VERSION = re.compile(r"\s*(\d{1,9}(?:\.\d{1,9}){0,2})")


def writer_entry(created_by: str | None) -> ScratchpadEntry:
    """Return the SCRATCHPAD entry with the writer of a file."""
    name = (created_by or "").encode("utf-8", "replace")[:_LONGEST_NAME_BYTES]
    return ScratchpadEntry(WRITER_CODE, name)


def leaves_out_dictionary_headers(created_by: str | None) -> bool:
    """Tell whether chunks may be longer than the footer states, by up to ``DICTIONARY_HEADER_BYTES``."""
    return _is_before(created_by, "parquet-mr", (1, 2, 9))


def misorders_decimals(created_by: str | None) -> bool:
    """Tell whether the bounds of decimals that are stored as bytes may be in no order."""
    return _is_before(created_by, "parquet-cpp", (2,)) or _is_before(created_by, "parquet-cpp-arrow", (4,))


def _is_before(created_by: str | None, application: str, version: tuple[int, ...]) -> bool:
    """Tell whether a writer is an older version of an application; an unknown version counts as the oldest."""
    # In steps: a single expression would take time quadratic in the name, which may have megabytes.
    name, *rest = _VERSION_WORD.split(created_by or "", maxsplit=1)
    if name.strip().lower() != application:
        return False
    found = _VERSION.match(rest[0]) if rest else None
    return (tuple(map(int, found[1].split("."))) if found else (0,)) < version


PARQUET_MAGIC = b"PAR1"
QUESTDB_KEY = "questdb"
"""Key of the footer's own metadata under which QuestDB keeps its JSON."""

_LARGE_BYTES = 4 * 1024 * 1024
"""From this size on, row groups are decoded one at a time, on access."""

_ENCODINGS = {bit: encoding for encoding, bit in layout.ENCODING_BITS.items()}
"""Parquet encoding of each bit of a sidecar's mask; of two with the same bit the newer one, which comes later."""


class SortOrder(Struct, frozen=True):
    """One column of a row group's declared sort order."""

    column: int
    """Index of the leaf."""
    descending: bool


class FooterRowGroup(Struct, frozen=True, kw_only=True):
    """One row group as the footer describes it."""

    row_count: int
    chunks: tuple[thrift.ColumnMetaData, ...]
    """One per leaf, in the order of the leaves, required fields present."""
    sorting: tuple[SortOrder, ...] | None
    """Declared sort order, most significant column first; None where nothing is declared."""
    offset_index_offsets: tuple[int, ...]
    """Start of each chunk's offset index, which lists its pages, in the file; 0 where it has none."""
    offset_index_lengths: tuple[int, ...]
    """Bytes of each chunk's offset index; 0 where it has none."""
    column_index_offsets: tuple[int, ...]
    """Start of each chunk's column index, which bounds its pages, in the file; 0 where it has none."""
    column_index_lengths: tuple[int, ...]
    """Bytes of each chunk's column index; 0 where it has none."""


class ParquetFooter(Struct, frozen=True, kw_only=True):
    """The footer of one Parquet file, checked for consistency."""

    path: str | None
    offset: int
    """Start of the Thrift bytes in the file."""
    length_bytes: int
    """Thrift bytes, without the length and magic behind them."""
    row_count: int
    created_by: str | None
    leaves: tuple[SchemaLeaf, ...]
    row_groups: Sequence[FooterRowGroup]
    questdb_json: str | None
    """QuestDB's own description of the columns; None in files that it did not write."""
    has_type_order: tuple[bool, ...]
    """Per leaf: the footer declares that min and max follow the order of the column's type."""
    sort_orders: frozenset[tuple[SortOrder, ...]]
    """The different orders that row groups declare."""
    has_bloom_filters: bool


@dataclass(frozen=True, slots=True)
class RowGroupsOnDemand(Sequence[FooterRowGroup]):
    """The row groups of a large footer, each decoded on access: decoded they take ten times the memory."""

    footer: bytes
    places: npt.NDArray[np.int64]
    """Start of each row group in the footer and, at the end, the stop of the last one."""
    leaves: tuple[SchemaLeaf, ...]
    path: str | None
    offset: int
    """Start of the footer in the file."""

    def __len__(self) -> int:
        return max(len(self.places) - 1, 0)

    @overload
    def __getitem__(self, index: int) -> FooterRowGroup: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[FooterRowGroup]: ...

    def __getitem__(self, index: int | slice) -> FooterRowGroup | Sequence[FooterRowGroup]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        number = range(len(self))[index]
        start, stop = self.places[number : number + 2].tolist()
        raw = thrift.RowGroup.decode(self.footer[start:stop], path=self.path, offset=self.offset + start)
        return _row_group(raw, number, self.leaves, self.path)


def parse_footer(footer: bytes, *, path: str | None, offset: int) -> ParquetFooter:
    """Parse the Thrift bytes of a Parquet footer."""
    is_large = len(footer) > _LARGE_BYTES
    kind = thrift.FileMetaDataAlone if is_large else thrift.FileMetaData
    metadata = kind.decode(footer, path=path, offset=offset)
    if metadata.encryption_algorithm is not None:
        raise UnsupportedError("the file is encrypted; decrypt it first", kind="Encrypted", path=path)
    leaves = parse_schema(metadata.schema, path=path)
    row_groups: Sequence[FooterRowGroup]
    if is_large:
        places = np.array(structure_list_places(footer, thrift.FileMetaData.number("row_groups")), dtype=np.int64)
        row_groups = RowGroupsOnDemand(footer, places, leaves, path, offset)
    else:
        row_groups = tuple(
            _row_group(row_group, index, leaves, path) for index, row_group in enumerate(metadata.row_groups)
        )
    row_count, sort_orders, has_bloom_filters = 0, set(), False
    for row_group in row_groups:
        row_count += row_group.row_count
        if row_group.sorting is not None:
            sort_orders.add(row_group.sorting)
        has_bloom_filters = has_bloom_filters or any(chunk.bloom_filter_offset for chunk in row_group.chunks)
    if metadata.num_rows not in {row_count, ABSENT}:
        raise FormatError(
            f"the footer counts {metadata.num_rows} rows, its row groups {row_count}: its writer contradicts itself, or the"
            " footer is damaged; rewrite the file",
            path=path,
            offset=offset,
            field="num_rows",
        )
    key_values = metadata.key_value_metadata or ()
    orders = [order.TYPE_ORDER is not None for order in metadata.column_orders or ()]
    return ParquetFooter(
        path=path,
        offset=offset,
        length_bytes=len(footer),
        row_count=row_count,
        created_by=metadata.created_by,
        leaves=leaves,
        row_groups=row_groups,
        questdb_json=next((entry.value or "" for entry in key_values if entry.key == QUESTDB_KEY), None),
        has_type_order=tuple(orders) if len(orders) == len(leaves) else (False,) * len(leaves),
        sort_orders=frozenset(sort_orders),
        has_bloom_filters=has_bloom_filters,
    )


def _row_group(
    row_group: thrift.RowGroup, index: int, leaves: tuple[SchemaLeaf, ...], path: str | None
) -> FooterRowGroup:
    if row_group.num_rows < 0:
        raise FormatError(
            f"row group {index} has no valid number of rows; the footer is damaged",
            path=path,
            field="num_rows",
            row_group=index,
        )
    if len(row_group.columns) != len(leaves):
        raise FormatError(
            f"row group {index} has {len(row_group.columns)} column chunks, the schema {len(leaves)} leaf columns;"
            " the footer is damaged",
            kind="SchemaMismatch",
            path=path,
            field="columns",
            row_group=index,
        )
    return FooterRowGroup(
        row_count=row_group.num_rows,
        chunks=tuple(_chunk(chunk, leaf, index, path) for chunk, leaf in zip(row_group.columns, leaves, strict=True)),
        sorting=_sorting(row_group, index, len(leaves), path),
        offset_index_offsets=tuple(chunk.offset_index_offset or 0 for chunk in row_group.columns),
        offset_index_lengths=tuple(chunk.offset_index_length or 0 for chunk in row_group.columns),
        column_index_offsets=tuple(chunk.column_index_offset or 0 for chunk in row_group.columns),
        column_index_lengths=tuple(chunk.column_index_length or 0 for chunk in row_group.columns),
    )


def _chunk(chunk: thrift.ColumnChunk, leaf: SchemaLeaf, row_group: int, path: str | None) -> thrift.ColumnMetaData:
    if chunk.file_path is not None:
        raise UnsupportedError(
            f"column {leaf.name!r} of row group {row_group} lies in another file, {chunk.file_path!r}",
            kind="ExternalChunk",
            path=path,
        )
    metadata = chunk.meta_data
    if metadata is None or ABSENT in {
        metadata.codec,
        metadata.num_values,
        metadata.total_compressed_size,
        metadata.data_page_offset,
    }:
        raise FormatError(
            f"column {leaf.name!r} of row group {row_group} lacks its codec, size, offset or number of values;"
            " the footer is damaged",
            path=path,
            field="meta_data",
            row_group=row_group,
        )
    if metadata.type != leaf.physical_type:
        raise FormatError(
            f"column {leaf.name!r} of row group {row_group} has the physical type {metadata.type}, in the schema"
            f" {leaf.physical_type.name} ({leaf.physical_type:d}); the footer is damaged",
            kind="SchemaMismatch",
            path=path,
            field="type",
            row_group=row_group,
        )
    return metadata


def _sorting(row_group: thrift.RowGroup, index: int, leaf_count: int, path: str | None) -> tuple[SortOrder, ...] | None:
    if not row_group.sorting_columns:
        return None
    for column in row_group.sorting_columns:
        if not 0 <= column.column_idx < leaf_count:
            raise FormatError(
                f"row group {index} is sorted by column {column.column_idx} of {leaf_count}; the footer is damaged",
                path=path,
                field="sorting_columns",
                row_group=index,
            )
    return tuple(SortOrder(column.column_idx, column.descending is True) for column in row_group.sorting_columns)


class VirtualChunk(Struct, frozen=True, kw_only=True):
    """The pages of one column in a virtual file, with the facts that a decoder needs."""

    start: int
    """First byte: of the dictionary page if there is one, else of the first data page."""
    length_bytes: int
    value_count: int
    """Values, nulls included; for lists the number of elements, with one for each empty or null list."""
    codec: int
    """Parquet compression codec."""
    encodings: int
    """Mask of a sidecar's ``ENCODING_*`` bits."""


class VirtualRowGroup(Struct, frozen=True, kw_only=True):
    """One row group of a virtual file."""

    row_count: int
    chunks: Sequence[VirtualChunk]
    """One per column."""


def encode_footer(
    columns: Sequence[LeafSpec], row_groups: Sequence[VirtualRowGroup], *, created_by: str | None
) -> bytes:
    """Build the footer of a virtual file of fetched chunks.

    The footer contains only what decoding needs. The data page offset is the start of the chunk, whatever page comes
    first there; readers find dictionary pages by their headers. The uncompressed size repeats the compressed one,
    because it is only a hint. There are no statistics, so no reader prunes on them.
    """
    schema = [thrift.SchemaElement(name="schema", num_children=sum(column.number == 0 for column in columns))]
    paths: list[list[str]] = []
    for column in columns:
        if column.number:
            continue
        if column.stored is None:
            elements, leaf_path = encode_leaf(column)
            leaf_paths = [leaf_path]
        else:
            elements, leaf_paths = encode_stored(column.name, column.stored)
        schema += elements
        paths += leaf_paths
    if len(paths) != len(columns):
        raise FormatError(
            f"{len(columns)} chunks were fetched of columns with {len(paths)} leaves: the sidecar is damaged; make it anew with"
            " 'coldparquet index --force'",
            kind="SchemaMismatch",
            field="foreign_annotations",
        )
    return thrift.FileMetaData(
        version=2,
        schema=schema,
        num_rows=sum(row_group.row_count for row_group in row_groups),
        row_groups=[_encode_row_group(row_group, columns, paths) for row_group in row_groups],
        created_by=created_by or "coldparquet",
    ).encode()


def _encode_row_group(
    row_group: VirtualRowGroup, columns: Sequence[LeafSpec], paths: Sequence[list[str]]
) -> thrift.RowGroup:
    return thrift.RowGroup(
        columns=[
            thrift.ColumnChunk(
                meta_data=thrift.ColumnMetaData(
                    type=column.physical_type,
                    encodings=[
                        layout.Encoding.RLE,
                        *(encoding for bit, encoding in _ENCODINGS.items() if chunk.encodings & bit),
                    ],
                    path_in_schema=leaf_path,
                    codec=chunk.codec,
                    num_values=chunk.value_count,
                    total_uncompressed_size=chunk.length_bytes,
                    total_compressed_size=chunk.length_bytes,
                    data_page_offset=chunk.start,
                )
            )
            for column, leaf_path, chunk in zip(columns, paths, row_group.chunks, strict=True)
        ],
        total_byte_size=sum(chunk.length_bytes for chunk in row_group.chunks),
        num_rows=row_group.row_count,
    )


def frame_footer(footer: bytes) -> bytes:
    """Return the end of a Parquet file: the footer, its length and the magic bytes."""
    return footer + len(footer).to_bytes(4, "little") + PARQUET_MAGIC


VERSION = 1
FORMAT_LOCAL_KEY_IS_GLOBAL = 1
"""The only ``format`` of a column: its dictionary page is indexed by the table-wide symbol keys."""

_I32 = range(-(1 << 31), 1 << 31)
_I64 = range(-(1 << 63), 1 << 63)
_U64 = range(1 << 64)
_UNSET = -1


class QuestdbColumn(Struct, frozen=True, kw_only=True):
    """One column, by its position in the file."""

    type_code: int
    id: int | None
    """Writer index of the column in its table; None where the writer did not state it."""
    local_key_is_global: bool
    """SYMBOL: entry k of the dictionary page is symbol k of the table."""
    is_ascii: bool | None
    """VARCHAR: whether every value is ASCII; None where the writer did not state it."""
    column_top: int = 0
    """Rows at the start that were written before the column was added; informational, their pages exist."""
    not_null: bool = False
    """The column is declared NOT NULL, whatever its repetition in the file."""


class QuestdbMetadata(Struct, frozen=True, kw_only=True):
    """The content of the JSON."""

    columns: tuple[QuestdbColumn, ...]
    unused_bytes: int
    """Dead bytes in the file, left by row groups that were replaced in place."""
    squash_tracker: int | None
    seq_txn: int | None


def encode_questdb_json(metadata: QuestdbMetadata) -> str:
    """Write the JSON as QuestDB does: its keys, in its order, without default values."""
    document: dict[str, Any] = {"version": VERSION, "schema": [_encode_column(column) for column in metadata.columns]}
    _check_range("unused_bytes", metadata.unused_bytes, _U64)
    if metadata.unused_bytes:
        document["unused_bytes"] = metadata.unused_bytes
    for key, value in (("squash_tracker", metadata.squash_tracker), ("seq_txn", metadata.seq_txn)):
        if value is not None and value != _UNSET:
            _check_range(key, value, _I64)
            document[key] = value
    return json.dumps(document, separators=(",", ":"))


def _encode_column(column: QuestdbColumn) -> dict[str, Any]:
    _check_range("column_type", column.type_code, _I32)
    _check_range("column_top", column.column_top, _U64)
    entry: dict[str, Any] = {"column_type": column.type_code, "column_top": column.column_top}
    if column.local_key_is_global:
        entry["format"] = FORMAT_LOCAL_KEY_IS_GLOBAL
    if column.is_ascii is not None:
        entry["ascii"] = column.is_ascii
    if column.id is not None:
        _check_range("id", column.id, _I32)
        entry["id"] = column.id
    if column.not_null:
        entry["not_null"] = True
    return entry


def _check_range(key: str, value: int, valid: range) -> None:
    if not valid.start <= value < valid.stop:
        raise InvalidInputError(
            f"{key} is {value}, expected {valid.start} to {valid.stop - 1}", kind="InvalidValue", field=key
        )


def parse_questdb_json(text: str, *, column_count: int, path: str | None = None) -> QuestdbMetadata:
    """Parse QuestDB's JSON. Unknown keys of later versions are ignored."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _conversion(f"it does not parse: {error}", path) from error
    if not isinstance(document, dict) or not isinstance(document.get("schema"), list):
        raise _conversion("it is not an object with a list named schema", path)
    if document.get("version") != VERSION:
        raise _conversion(f"its version is {document.get('version')!r}, expected {VERSION}", path)
    schema = document["schema"]
    if len(schema) != column_count:
        raise FormatError(
            f"the footer's questdb JSON describes {len(schema)} columns, the file has {column_count}",
            kind="SchemaMismatch",
            path=path,
            field="schema",
        )
    return QuestdbMetadata(
        columns=tuple(_column(entry, index, path) for index, entry in enumerate(schema)),
        unused_bytes=_integer(document, "unused_bytes", _U64, path) or 0,
        squash_tracker=_known(_integer(document, "squash_tracker", _I64, path)),
        seq_txn=_known(_integer(document, "seq_txn", _I64, path)),
    )


def _column(entry: Any, index: int, path: str | None) -> QuestdbColumn:
    if not isinstance(entry, dict):
        raise _conversion(f"column {index} is {entry!r}, expected an object", path)
    type_code = _integer(entry, "column_type", _I32, path)
    if type_code is None:
        raise _conversion(f"column {index} has no column_type", path)
    try:
        tag_of(type_code)
    except UnsupportedError as error:
        raise _conversion(f"column {index}: {error.message}", path) from error
    key_format = entry.get("format")
    if key_format not in {None, FORMAT_LOCAL_KEY_IS_GLOBAL}:
        raise _conversion(f"column {index} has the format {key_format!r}, expected {FORMAT_LOCAL_KEY_IS_GLOBAL}", path)
    column_id = _integer(entry, "id", _I32, path)
    return QuestdbColumn(
        type_code=type_code,
        id=column_id if column_id is not None and column_id >= 0 else None,
        local_key_is_global=key_format is not None,
        is_ascii=ascii_stated if isinstance(ascii_stated := entry.get("ascii"), bool) else None,
        column_top=_integer(entry, "column_top", _U64, path) or 0,
        not_null=entry.get("not_null") is True,
    )


def _integer(entry: dict[str, Any], key: str, valid: range, path: str | None) -> int | None:
    value = entry.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value not in valid:
        raise _conversion(f"{key} is {value!r}, expected an integer from {valid.start} to {valid.stop - 1}", path)
    return value


def _known(value: int | None) -> int | None:
    return None if value == _UNSET else value


def _conversion(message: str, path: str | None) -> FormatError:
    return FormatError(
        f"the footer's questdb JSON cannot be used: {message}", kind="Conversion", path=path, field="questdb"
    )
