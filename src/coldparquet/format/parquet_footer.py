"""Parquet footers: parse one that was fetched, and make one up for chunks that were fetched without theirs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

import numpy as np

from coldparquet.errors import FormatError, UnsupportedError
from coldparquet.format import parquet_thrift as thrift
from coldparquet.format import sidecar_layout as layout
from coldparquet.format.parquet_schema import LeafSpec, SchemaLeaf, encode_leaf, parse_schema
from coldparquet.format.thrift_fields import structure_list_places
from coldparquet.format.thrift_structure import ABSENT

if TYPE_CHECKING:
    import numpy.typing as npt

PARQUET_MAGIC = b"PAR1"
QUESTDB_KEY = "questdb"
"""Key of the footer's own metadata under which QuestDB keeps its JSON."""

_LARGE_BYTES = 4 * 1024 * 1024
"""From this size on, row groups are decoded one at a time, whenever somebody asks for one."""

_ENCODINGS = {bit: encoding for encoding, bit in layout.ENCODING_BITS.items()}
"""Parquet encoding of each bit of a sidecar's mask: of two with the same bit the newer, which comes later."""


@dataclass(frozen=True, slots=True)
class SortOrder:
    """One column by which the rows of a row group are said to be sorted."""

    column: int
    """Index of the leaf."""
    descending: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FooterRowGroup:
    """One row group as the footer tells it."""

    row_count: int
    chunks: tuple[thrift.ColumnMetaData, ...]
    """One per leaf, in the order of the leaves, required fields present."""
    sorting: tuple[SortOrder, ...] | None
    """Declared sort order, most significant column first; None where nothing is declared."""
    offset_index_offsets: tuple[int, ...]
    """Where each chunk's offset index, which lists its pages, lies in the file; 0 where it has none."""
    offset_index_lengths: tuple[int, ...]
    """Bytes of each chunk's offset index; 0 where it has none."""
    column_index_offsets: tuple[int, ...]
    """Where each chunk's column index, which bounds its pages, lies in the file; 0 where it has none."""
    column_index_lengths: tuple[int, ...]
    """Bytes of each chunk's column index; 0 where it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetFooter:
    """The footer of one Parquet file, checked for consistency."""

    path: str | None
    offset: int
    """Where the Thrift bytes begin in the file."""
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
    """The row groups of a large footer, each decoded when it is asked for: decoded they take ten times the memory."""

    footer: bytes
    places: npt.NDArray[np.int64]
    """Where each row group begins in the footer and, at the end, where the last one stops."""
    leaves: tuple[SchemaLeaf, ...]
    path: str | None
    offset: int
    """Where the footer begins in the file."""

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
    """Parse the Thrift bytes of a Parquet footer.

    Args:
        footer: The bytes between the last row group and the footer's length.
        path: The file, for error messages.
        offset: Where ``footer`` begins in the file.

    Raises:
        FormatError: The bytes are not a footer, or contradict themselves (kinds ``InvalidThrift``, ``InvalidSchema``,
            ``InvalidValue``, ``SchemaMismatch``).
        UnsupportedError: Columns are encrypted, or lie in other files.
    """
    is_large = len(footer) > _LARGE_BYTES
    kind = thrift.FileMetaDataAlone if is_large else thrift.FileMetaData
    metadata = kind.decode(footer, path=path, offset=offset)
    if metadata.encryption_algorithm is not None:
        raise UnsupportedError("the file is encrypted; decrypt it first", kind="Encrypted", path=path)
    leaves = parse_schema(metadata.schema, path=path)
    row_groups: Sequence[FooterRowGroup]
    if is_large:
        places = np.array(structure_list_places(footer, thrift.ROW_GROUPS_FIELD), dtype=np.int64)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualChunk:
    """Where the pages of one column lie in a virtual file, and the little that a decoder must know about them."""

    start: int
    """First byte: of the dictionary page if there is one, else of the first data page."""
    length_bytes: int
    value_count: int
    """Values, nulls included; for lists the number of elements, with one for each empty or null list."""
    codec: int
    """Parquet compression codec."""
    encodings: int
    """Mask of a sidecar's ``ENCODING_*`` bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualRowGroup:
    """One row group of a virtual file."""

    row_count: int
    chunks: Sequence[VirtualChunk]
    """One per column."""


def encode_footer(
    columns: Sequence[LeafSpec], row_groups: Sequence[VirtualRowGroup], *, created_by: str | None
) -> bytes:
    """Make up the footer of a virtual file that holds fetched chunks.

    The footer says just what decoding needs. The data page offset is the start of the chunk, whatever page comes first
    there; readers find dictionary pages by their headers. The uncompressed size repeats the compressed one, because it
    is only a hint. There are no statistics, so no reader prunes on them.

    Args:
        columns: What the chunks hold, in their order.
        row_groups: Where they lie.
        created_by: Who wrote the pages, as the footer of their file names it: some writers' pages decode otherwise. None
            where that is not known, or where we made them.

    Returns:
        The Thrift bytes; ``frame_footer`` completes them to the end of a file.

    Raises:
        UnsupportedError: The levels of a column do not determine its nesting; names the column.
    """
    schema = [thrift.SchemaElement(name="schema", num_children=len(columns))]
    paths: list[list[str]] = []
    for column in columns:
        elements, leaf_path = encode_leaf(column)
        schema += elements
        paths.append(leaf_path)
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
