"""Converts a Parquet footer to the sidecar that QuestDB would write for the file.

Four things differ from QuestDB's own conversion, all for safety. Bounds with an unknown order are left out, so no
reader prunes on them, nor on the bounds of pages (see ``ChunkPlaces.has_bounds``). Facts about foreign columns that
QuestDB's type codes cannot express go into the scratchpad, see ``foreign_annotations``; so does the writer of a foreign
file, see ``file_writer``. A dictionary page offset is used only where it is before the data pages: some writers store 0
there. And if a writer is known to leave out a part of its chunks, they extend to the next one.

One step is omitted: QuestDB decodes the first and last designated timestamp of chunks without bounds and stores them.
That needs the pages, and this module has only the footer, so such row groups are never pruned by time.

`values_as_stored` returns a sidecar under which every value of a file reads as it is stored, so that it can be
rewritten unchanged. Normal reads return the values of QuestDB's types: a BYTE that is marked null is 0, an array is a
nested list. A rewrite of these would lose the mark, which counts once the column becomes an INT, and the shape of an
array without elements. With other types the same chunks read as nullable numbers and as the byte strings that hold
arrays.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

from coldparquet.errors import FormatError, UnsupportedError
from coldparquet.format import sidecar_layout as layout
from coldparquet.format.parquet_footer import (
    DICTIONARY_HEADER_BYTES,
    RowGroupsOnDemand,
    SortOrder,
    leaves_out_dictionary_headers,
    misorders_decimals,
    parse_questdb_json,
    writer_entry,
)
from coldparquet.format.parquet_schema import annotation_of, list_optionals_of_levels
from coldparquet.format.sidecar_header import ScratchpadEntry
from coldparquet.format.sidecar_layout import PhysicalType, Repetition, column_flags
from coldparquet.format.sidecar_writer import BoundSpec, ChunkSpec, ColumnSpec, RowGroupSpec, SidecarContent
from coldparquet.format.type_codes import (
    DESCENDING_BIT,
    DESIGNATED_BIT,
    MAX_ARRAY_DIMENSIONS,
    NANOSECOND_BIT,
    UNKNOWN_TYPE_CODE,
    TypeTag,
    array_type_code,
    decimal_type_code,
    tag_of,
)
from coldparquet.format.types import (
    FOREIGN_ANNOTATIONS_CODE,
    ForeignAnnotation,
    LogicalKind,
    LogicalType,
    encode_foreign_annotations,
    is_of_nested,
    parse_foreign_annotations,
    part_annotation,
)
from coldparquet.records import replace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coldparquet.format.parquet_footer import ParquetFooter, QuestdbColumn, QuestdbMetadata
    from coldparquet.format.parquet_schema import SchemaLeaf
    from coldparquet.format.parquet_thrift import ColumnMetaData


_LAST_CODEC = max(layout.Codec)


def convert_chunk(  # noqa: PLR0913 - the fields of one Parquet structure, each by name
    *,
    codec: int,
    encodings: Iterable[int],
    num_values: int,
    total_compressed: int,
    dictionary_page_offset: int | None,
    data_page_offset: int,
    null_count: int | None,
    distinct_count: int | None,
    min_value: bytes | None,
    max_value: bytes | None,
    is_min_exact: bool | None,
    is_max_exact: bool | None,
) -> ChunkSpec:
    """Convert the fields of a Parquet `ColumnMetaData` as QuestDB does when it makes a sidecar from a footer.

    Negative counts and offsets become 0, negative null and distinct counts unknown. A dictionary offset takes
    precedence over the data page offset whenever the field is present. Do not pass the deprecated `min` and `max`:
    their order is undefined. A bound longer than 65,535 bytes, which the format cannot hold, is left out, and without
    it pruning merely keeps more row groups; QuestDB refuses such a file.
    """
    if not 0 <= codec <= _LAST_CODEC:
        raise FormatError(
            f"compression codec {codec} is none of Parquet's codecs 0 to {_LAST_CODEC:d}",
            kind="Conversion",
            field="codec",
        )
    encoding_mask = 0
    for encoding in encodings:
        # Unknown encodings, and those of levels, leave no bit.
        encoding_mask |= layout.ENCODING_BITS.get(encoding, 0)
    start = data_page_offset if dictionary_page_offset is None else dictionary_page_offset
    return ChunkSpec(
        codec=codec,
        encodings=encoding_mask,
        num_values=max(num_values, 0),
        byte_range_start=max(start, 0),
        total_compressed_bytes=max(total_compressed, 0),
        null_count=_known_count(null_count),
        distinct_count=_known_count(distinct_count),
        min=_bound(min_value, is_min_exact),
        max=_bound(max_value, is_max_exact),
    )


def _known_count(count: int | None) -> int | None:
    return None if count is None or count < 0 else count


def _bound(value: bytes | None, is_exact: bool | None) -> BoundSpec | None:
    if not value or len(value) > layout.MAX_OUT_OF_LINE_BYTES:
        return None
    return BoundSpec(value, exact=is_exact is not False)


Inferred = tuple[int, ForeignAnnotation | None]
"""Type code, and the annotation where the code alone would give another Arrow type."""

_NO_LOGICAL = LogicalType(kind=LogicalKind.OTHER)
_TIMESTAMPS: dict[str | None, tuple[int, ForeignAnnotation]] = {
    "ms": (TypeTag.DATE, ForeignAnnotation.TIMESTAMP_MILLIS_LOCAL),
    "us": (TypeTag.TIMESTAMP, ForeignAnnotation.TIMESTAMP_MICROS_LOCAL),
    "ns": (TypeTag.TIMESTAMP | NANOSECOND_BIT, ForeignAnnotation.TIMESTAMP_NANOS_LOCAL),
}
_TIMES: dict[tuple[PhysicalType, str | None], Inferred] = {
    (PhysicalType.INT32, "ms"): (TypeTag.INT, ForeignAnnotation.TIME_MILLIS),
    (PhysicalType.INT64, "us"): (TypeTag.LONG, ForeignAnnotation.TIME_MICROS),
    (PhysicalType.INT64, "ns"): (TypeTag.LONG, ForeignAnnotation.TIME_NANOS),
}
_INTEGERS: dict[tuple[PhysicalType, int, bool], Inferred] = {
    (PhysicalType.INT32, 8, True): (TypeTag.BYTE, None),
    (PhysicalType.INT32, 16, True): (TypeTag.SHORT, None),
    (PhysicalType.INT32, 32, True): (TypeTag.INT, None),
    (PhysicalType.INT64, 64, True): (TypeTag.LONG, None),
    (PhysicalType.INT32, 8, False): (TypeTag.INT, ForeignAnnotation.UINT_8),
    (PhysicalType.INT32, 16, False): (TypeTag.INT, ForeignAnnotation.UINT_16),
    (PhysicalType.INT32, 32, False): (TypeTag.INT, ForeignAnnotation.UINT_32),
    (PhysicalType.INT64, 64, False): (TypeTag.LONG, ForeignAnnotation.UINT_64),
}
_DEFAULTS: dict[PhysicalType, int] = {
    PhysicalType.BOOLEAN: TypeTag.BOOLEAN,
    PhysicalType.INT32: TypeTag.INT,
    PhysicalType.INT64: TypeTag.LONG,
    PhysicalType.FLOAT: TypeTag.FLOAT,
    PhysicalType.DOUBLE: TypeTag.DOUBLE,
    PhysicalType.BYTE_ARRAY: TypeTag.BINARY,
}
"""The type without a more specific annotation."""
_DECIMALS = frozenset(
    {PhysicalType.INT32, PhysicalType.INT64, PhysicalType.BYTE_ARRAY, PhysicalType.FIXED_LEN_BYTE_ARRAY}
)
_CONTRADICTION: Inferred = (UNKNOWN_TYPE_CODE, None)
"""The annotation is invalid for this physical type, such as a 64-bit integer in 32 bits, or tells no type: its meaning is unknown."""
_NULLABLE_TAGS = frozenset({TypeTag.BOOLEAN, TypeTag.BYTE, TypeTag.SHORT})
"""Types that QuestDB reads as 0 or false where the file has a null."""


def infer_type(leaf: SchemaLeaf) -> Inferred:
    """Infer the type of a foreign column as QuestDB does when it makes a sidecar for one; nested ones have none."""
    if leaf.depth > 1:
        is_array = leaf.list_optionals is not None and leaf.max_rep_level <= MAX_ARRAY_DIMENSIONS
        if is_array and leaf.physical_type is PhysicalType.DOUBLE and leaf.logical is None and _are_levels_enough(leaf):
            return array_type_code(leaf.max_rep_level), None
        return UNKNOWN_TYPE_CODE, None
    if leaf.max_rep_level:
        return UNKNOWN_TYPE_CODE, None
    type_code, annotation = _infer_flat(leaf, leaf.logical or _NO_LOGICAL)
    if type_code in _NULLABLE_TAGS and leaf.max_def_level:
        annotation = ForeignAnnotation.NULLABLE
    return type_code, annotation


def _infer_flat(leaf: SchemaLeaf, logical: LogicalType) -> Inferred:  # noqa: PLR0911  # a table, read from the top
    physical = leaf.physical_type
    match physical, logical.kind:
        case (PhysicalType.INT96, _):
            return (TypeTag.TIMESTAMP | NANOSECOND_BIT if leaf.logical is None else UNKNOWN_TYPE_CODE), None
        case (PhysicalType.FIXED_LEN_BYTE_ARRAY, kind) if kind is not LogicalKind.DECIMAL:
            return _fixed_length_code(leaf.fixed_byte_length, kind), None
        case (_, LogicalKind.OTHER):
            return _DEFAULTS[physical], None
        case (_, LogicalKind.DECIMAL) if physical in _DECIMALS:
            return decimal_type_code(logical.precision, logical.scale), None
        case (PhysicalType.BYTE_ARRAY, LogicalKind.STRING):
            return TypeTag.VARCHAR, None
        case (PhysicalType.INT32, LogicalKind.DATE):
            return TypeTag.DATE, None
        case (PhysicalType.INT64, LogicalKind.TIMESTAMP):
            type_code, local = _TIMESTAMPS[logical.unit]
            return type_code, None if logical.is_utc else local
        case (_, LogicalKind.TIME):
            return _TIMES.get((physical, logical.unit), _CONTRADICTION)
        case (_, LogicalKind.INTEGER):
            return _INTEGERS.get((physical, logical.bit_width, logical.is_signed), _CONTRADICTION)
    return _CONTRADICTION


def _fixed_length_code(length: int, kind: LogicalKind) -> int:
    if length == 16:
        return TypeTag.UUID if kind is LogicalKind.UUID else TypeTag.LONG128
    return TypeTag.LONG256 if length == 32 else UNKNOWN_TYPE_CODE


_UNSIGNED = frozenset(
    {ForeignAnnotation.UINT_8, ForeignAnnotation.UINT_16, ForeignAnnotation.UINT_32, ForeignAnnotation.UINT_64}
)

_BYTES = frozenset({PhysicalType.BYTE_ARRAY, PhysicalType.FIXED_LEN_BYTE_ARRAY})


def sidecar_content_from_footer(footer: ParquetFooter) -> SidecarContent:
    """Describe a Parquet footer as sidecar content.

    Bloom filters are left out; ``footer_blooms`` adds them.
    """
    if footer.questdb_json is None:
        questdb = None
        type_codes, annotations = _infer_types(footer)
    else:
        questdb = parse_questdb_json(footer.questdb_json, column_count=len(footer.leaves), path=footer.path)
        pairs = zip(questdb.columns, footer.leaves, strict=True)
        type_codes, annotations = [_stated_type(column, leaf) for column, leaf in pairs], {}
        for leaf in footer.leaves:
            _check_nesting(leaf, footer)
    designated, sorting = _order(footer, questdb)
    descending = {order.column for order in sorting if order.descending}
    return SidecarContent(
        columns=[
            ColumnSpec(
                name=".".join(leaf.path) if leaf.number else leaf.name,
                type_code=type_codes[index],
                physical_type=leaf.physical_type,
                id=_column_id(leaf, questdb.columns[index] if questdb else None),
                flags=column_flags(
                    repetition=leaf.repetition,
                    descending=index in descending,
                    is_ascii=questdb is not None and questdb.columns[index].is_ascii is True,
                    local_key_is_global=questdb is not None and questdb.columns[index].local_key_is_global,
                ),
                fixed_byte_length=leaf.fixed_byte_length,
                max_rep_level=leaf.max_rep_level,
                max_def_level=leaf.max_def_level,
            )
            for index, leaf in enumerate(footer.leaves)
        ],
        row_groups=_row_groups(footer, annotations),
        parquet_footer_offset=footer.offset,
        parquet_footer_length=footer.length_bytes,
        designated_timestamp=designated,
        sorting_columns=[order.column for order in sorting],
        squash_tracker=questdb.squash_tracker if questdb else None,
        seq_txn=questdb.seq_txn if questdb else None,
        scratchpad=_notes(footer, annotations) if questdb is None else [],
    )


def _notes(footer: ParquetFooter, annotations: dict[int, str]) -> list[ScratchpadEntry]:
    notes = [writer_entry(footer.created_by)]
    if annotations:
        notes.append(ScratchpadEntry(FOREIGN_ANNOTATIONS_CODE, encode_foreign_annotations(annotations)))
    return notes


def _check_nesting(leaf: SchemaLeaf, footer: ParquetFooter) -> None:
    """Refuse lists of QuestDB's that could not be decoded from the sidecar, which keeps levels but not the tree."""
    if leaf.max_rep_level and leaf.list_optionals is not None and not _are_levels_enough(leaf):
        raise _unsupported_nesting(leaf, footer, "only some of its nested lists are optional")


def _are_levels_enough(leaf: SchemaLeaf) -> bool:
    """Tell whether the levels of a leaf of lists, which a sidecar keeps, say which lists are optional."""
    known = list_optionals_of_levels(
        is_outer_optional=leaf.repetition is Repetition.OPTIONAL,
        max_rep_level=leaf.max_rep_level,
        max_def_level=leaf.max_def_level,
    )
    return known == leaf.list_optionals


def _infer_types(footer: ParquetFooter) -> tuple[list[int], dict[int, str]]:
    """Return the type code of every column of a foreign file, and the annotations of those that need one."""
    type_codes: list[int] = []
    annotations: dict[int, str] = {}
    for index, leaf in enumerate(footer.leaves):
        type_code, annotation = infer_type(leaf)
        type_codes.append(type_code)
        if type_code == UNKNOWN_TYPE_CODE and _may_be_decoded(leaf):
            annotations[index] = (
                part_annotation(index - leaf.number, leaf.number) if leaf.number else annotation_of(leaf)
            )
        elif annotation is not None:
            annotations[index] = annotation
    return type_codes, annotations


def _may_be_decoded(leaf: SchemaLeaf) -> bool:
    """Tell whether pyarrow may read a column for which QuestDB has no type; not if its annotation contradicts it."""
    is_nested = leaf.depth > 1 or leaf.max_rep_level > 0
    is_null = leaf.logical is not None and leaf.logical.kind is LogicalKind.UNKNOWN
    return is_nested or is_null or leaf.physical_type is PhysicalType.FIXED_LEN_BYTE_ARRAY


def _stated_type(column: QuestdbColumn, leaf: SchemaLeaf) -> int:
    """Return the type code that QuestDB's JSON states.

    Some writers put the scale of decimals at bit 24. Readers of a sidecar expect it at bit 18 and have no annotation to
    correct it. So if the annotation shows the other form, the code is converted.
    """
    if leaf.logical is None or leaf.logical.kind is not LogicalKind.DECIMAL:
        return column.type_code
    usual = decimal_type_code(leaf.logical.precision, leaf.logical.scale)
    other = usual & 0xFFFF | leaf.logical.scale << 24
    return usual if column.type_code == other else column.type_code


def _column_id(leaf: SchemaLeaf, column: QuestdbColumn | None) -> int:
    if column is not None and column.id is not None:
        return column.id
    return -1 if leaf.field_id is None or leaf.number else leaf.field_id


def _order(footer: ParquetFooter, questdb: QuestdbMetadata | None) -> tuple[int | None, tuple[SortOrder, ...]]:
    """Return the designated timestamp and the sort order; QuestDB's JSON takes precedence over the row groups."""
    for index, column in enumerate(questdb.columns if questdb else ()):
        if tag_of(column.type_code) is TypeTag.TIMESTAMP and column.type_code & DESIGNATED_BIT:
            return index, (SortOrder(index, bool(column.type_code & DESCENDING_BIT)),)
    if len(footer.sort_orders) > 1:
        raise FormatError(
            "row groups declare different sort orders; rewrite the file with one, or with none",
            kind="SchemaMismatch",
            path=footer.path,
            field="sorting_columns",
        )
    sorting = next(iter(footer.sort_orders), ())
    if not sorting or sorting[0].descending:
        return None, sorting
    first = footer.leaves[sorting[0].column]
    is_timestamp = first.logical is not None and first.logical.kind is LogicalKind.TIMESTAMP
    is_designated = is_timestamp and first.repetition is Repetition.REQUIRED
    return (sorting[0].column if is_designated else None), sorting


def _row_groups(footer: ParquetFooter, annotations: dict[int, str]) -> Sequence[RowGroupSpec]:
    with_bounds = [
        _has_known_order(footer, index) and annotations.get(index) not in _UNSIGNED
        for index in range(len(footer.leaves))
    ]
    with_counts = [not is_of_nested(annotations.get(index, "")) for index in range(len(footer.leaves))]
    borders: list[int] | None = None
    if leaves_out_dictionary_headers(footer.created_by):
        starts = {chunk.byte_range[0] for row_group in footer.row_groups for chunk in row_group.chunks}
        borders = sorted(starts | {footer.offset})
    specs = _RowGroupSpecs(footer, with_bounds, with_counts, borders)
    return specs if isinstance(footer.row_groups, RowGroupsOnDemand) else list(specs)


def _has_known_order(footer: ParquetFooter, column: int) -> bool:
    """Tell whether a column's bounds are in the order of its type. QuestDB's are, although it declares none."""
    leaf = footer.leaves[column]
    if leaf.physical_type is PhysicalType.INT96:
        return False
    is_decimal = leaf.logical is not None and leaf.logical.kind is LogicalKind.DECIMAL
    if is_decimal and leaf.physical_type in _BYTES and misorders_decimals(footer.created_by):
        return False
    is_questdb = footer.questdb_json is not None or (footer.created_by or "").startswith("QuestDB")
    return is_questdb or footer.has_type_order[column]


@dataclass(frozen=True, slots=True)
class _RowGroupSpecs(Sequence[RowGroupSpec]):
    """The row groups of a footer in a sidecar's form, each converted on access."""

    footer: ParquetFooter
    with_bounds: list[bool]
    with_counts: list[bool]
    """Per column: its statistics are those of rows, which those of the leaves of a nested column are not."""
    borders: list[int] | None
    """Possible ends of chunks, for writers whose lengths leave out the dictionary's header."""

    def __len__(self) -> int:
        return len(self.footer.row_groups)

    @overload
    def __getitem__(self, index: int) -> RowGroupSpec: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[RowGroupSpec]: ...

    def __getitem__(self, index: int | slice) -> RowGroupSpec | Sequence[RowGroupSpec]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        row_group = self.footer.row_groups[index]
        chunks = zip(row_group.chunks, self.with_bounds, self.with_counts, strict=True)
        try:
            specs = [_chunk(*of_chunk, self.borders) for of_chunk in chunks]
            return RowGroupSpec(row_count=row_group.row_count, chunks=specs)
        except FormatError as error:
            raise FormatError(error.message, kind=error.kind, path=self.footer.path, **error.details) from error


def _chunk(chunk: ColumnMetaData, use_bounds: bool, use_counts: bool, borders: Sequence[int] | None) -> ChunkSpec:
    statistics = chunk.statistics if use_counts else None
    bounds = statistics if use_bounds else None
    return convert_chunk(
        codec=chunk.codec,
        encodings=chunk.encodings,
        num_values=chunk.num_values,
        total_compressed=chunk.total_compressed_size if borders is None else _bytes_to_border(chunk, borders),
        dictionary_page_offset=None,
        data_page_offset=chunk.byte_range[0],
        null_count=statistics.null_count if statistics else None,
        distinct_count=statistics.distinct_count if statistics else None,
        min_value=bounds.min_value if bounds else None,
        max_value=bounds.max_value if bounds else None,
        is_min_exact=bounds.is_min_value_exact if bounds else None,
        is_max_exact=bounds.is_max_value_exact if bounds else None,
    )


def _bytes_to_border(chunk: ColumnMetaData, borders: Sequence[int]) -> int:
    """Return the length of a chunk that lacks no more than a header before the next chunk, or the footer, begins."""
    (start, stop), length = chunk.byte_range, chunk.total_compressed_size
    place = bisect_left(borders, stop)
    if length <= 0 or place == len(borders) or borders[place] - stop > DICTIONARY_HEADER_BYTES:
        return length
    return borders[place] - start


def _unsupported_nesting(leaf: SchemaLeaf, footer: ParquetFooter, why: str) -> UnsupportedError:
    return UnsupportedError(
        f"column {leaf.name!r} cannot be read: {why}; rewrite the file without it",
        kind="UnsupportedNesting",
        path=footer.path,
        field=leaf.name,
    )


_NULLABLE = frozenset({TypeTag.BOOLEAN, TypeTag.BYTE, TypeTag.SHORT})


def split_annotations(scratchpad: Iterable[ScratchpadEntry]) -> tuple[dict[int, str], list[ScratchpadEntry]]:
    """Return the foreign annotations among notes, and the other notes."""
    annotations: dict[int, str] = {}
    others = []
    for entry in scratchpad:
        if entry.code == FOREIGN_ANNOTATIONS_CODE:
            annotations |= parse_foreign_annotations(entry.content)
        else:
            others.append(entry)
    return annotations, others


def values_as_stored(content: SidecarContent) -> SidecarContent:
    """Return a sidecar's content with other types for the columns that would not read as they are stored."""
    annotations, others = split_annotations(content.scratchpad)
    columns = list(content.columns)
    for index, column in enumerate(columns):
        tag = tag_of(column.type_code)
        if index in annotations:
            continue
        if _is_raw_array(column):
            columns[index] = replace(column, type_code=int(TypeTag.BINARY))
        elif tag in _NULLABLE and column.max_def_level:
            annotations[index] = ForeignAnnotation.NULLABLE
        elif tag is TypeTag.CHAR and column.max_def_level:
            columns[index] = replace(column, type_code=int(TypeTag.INT))
            annotations[index] = ForeignAnnotation.UINT_16
    if annotations:
        others.append(ScratchpadEntry(FOREIGN_ANNOTATIONS_CODE, encode_foreign_annotations(annotations)))
    return replace(content, columns=columns, scratchpad=others)


def _is_raw_array(column: ColumnSpec) -> bool:
    return tag_of(column.type_code) is TypeTag.ARRAY and column.physical_type is PhysicalType.BYTE_ARRAY
