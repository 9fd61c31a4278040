"""Declares the Thrift structures of Parquet footers, page headers, page indexes and bloom filters, as far as used.

Field numbers and names are those of parquet.thrift in apache/parquet-format. Unused fields are skipped when decoding.
`parquet_footer` detects missing fields, see `coldparquet.format.thrift`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from thrift.Thrift import TType

from coldparquet.format.thrift import (
    ABSENT,
    Empty,
    Structure,
    ThriftSpec,
    binary,
    boolean,
    i8,
    i32,
    i64,
    spec,
    structure,
    structures,
    text,
)


@dataclass(slots=True)
class DecimalAnnotation(Structure):
    """DecimalType."""

    scale: int | None = None
    precision: int | None = None
    thrift_spec: ClassVar[ThriftSpec] = spec(i32(1, "scale"), i32(2, "precision"))


@dataclass(slots=True)
class UnitAnnotation(Structure):
    """TimeUnit, a union."""

    MILLIS: Empty | None = None
    MICROS: Empty | None = None
    NANOS: Empty | None = None
    thrift_spec: ClassVar[ThriftSpec] = spec(
        structure(1, "MILLIS", Empty), structure(2, "MICROS", Empty), structure(3, "NANOS", Empty)
    )


@dataclass(slots=True)
class TimeAnnotation(Structure):
    """TimeType and TimestampType, which have the same fields."""

    isAdjustedToUTC: bool | None = None  # noqa: N815  # the name in parquet.thrift
    unit: UnitAnnotation | None = None
    thrift_spec: ClassVar[ThriftSpec] = spec(boolean(1, "isAdjustedToUTC"), structure(2, "unit", UnitAnnotation))


@dataclass(slots=True)
class IntegerAnnotation(Structure):
    """IntType."""

    bitWidth: int | None = None  # noqa: N815  # the name in parquet.thrift
    isSigned: bool | None = None  # noqa: N815  # the name in parquet.thrift
    thrift_spec: ClassVar[ThriftSpec] = spec(i8(1, "bitWidth"), boolean(2, "isSigned"))


@dataclass(slots=True)
class Annotation(Structure):
    """LogicalType, a union; irrelevant members are not declared, so they decode to an empty one."""

    STRING: Empty | None = None
    LIST: Empty | None = None
    DECIMAL: DecimalAnnotation | None = None
    DATE: Empty | None = None
    TIME: TimeAnnotation | None = None
    TIMESTAMP: TimeAnnotation | None = None
    INTEGER: IntegerAnnotation | None = None
    UUID: Empty | None = None
    thrift_spec: ClassVar[ThriftSpec] = spec(
        structure(1, "STRING", Empty),
        structure(3, "LIST", Empty),
        structure(5, "DECIMAL", DecimalAnnotation),
        structure(6, "DATE", Empty),
        structure(7, "TIME", TimeAnnotation),
        structure(8, "TIMESTAMP", TimeAnnotation),
        structure(10, "INTEGER", IntegerAnnotation),
        structure(14, "UUID", Empty),
    )


@dataclass(slots=True)
class SchemaElement(Structure):
    """One node of the schema tree; the tree is a list in depth-first order."""

    type: int | None = None
    type_length: int | None = None
    repetition_type: int | None = None
    name: str = ""
    num_children: int | None = None
    converted_type: int | None = None
    scale: int | None = None
    precision: int | None = None
    field_id: int | None = None
    logicalType: Annotation | None = None  # noqa: N815  # the name in parquet.thrift
    thrift_spec: ClassVar[ThriftSpec] = spec(
        i32(1, "type"),
        i32(2, "type_length"),
        i32(3, "repetition_type"),
        text(4, "name"),
        i32(5, "num_children"),
        i32(6, "converted_type"),
        i32(7, "scale"),
        i32(8, "precision"),
        i32(9, "field_id"),
        structure(10, "logicalType", Annotation),
    )


@dataclass(slots=True)
class Statistics(Structure):
    """Statistics of a chunk, without the deprecated min and max (fields 1 and 2), whose order is undefined."""

    null_count: int | None = None
    distinct_count: int | None = None
    max_value: bytes | None = None
    min_value: bytes | None = None
    is_max_value_exact: bool | None = None
    is_min_value_exact: bool | None = None
    thrift_spec: ClassVar[ThriftSpec] = spec(
        i64(3, "null_count"),
        i64(4, "distinct_count"),
        binary(5, "max_value"),
        binary(6, "min_value"),
        boolean(7, "is_max_value_exact"),
        boolean(8, "is_min_value_exact"),
    )


@dataclass(slots=True)
class ColumnMetaData(Structure):
    """Places and contents of the pages of a chunk."""

    type: int = ABSENT
    encodings: list[int] = field(default_factory=list)
    path_in_schema: list[str] = field(default_factory=list)
    codec: int = ABSENT
    num_values: int = ABSENT
    total_uncompressed_size: int | None = None
    total_compressed_size: int = ABSENT
    data_page_offset: int = ABSENT
    dictionary_page_offset: int | None = None
    statistics: Statistics | None = None
    bloom_filter_offset: int | None = None
    bloom_filter_length: int | None = None
    thrift_spec: ClassVar[ThriftSpec] = spec(
        i32(1, "type"),
        (2, TType.LIST, "encodings", (TType.I32, None, False), None),
        (3, TType.LIST, "path_in_schema", (TType.STRING, "UTF8", False), None),
        i32(4, "codec"),
        i64(5, "num_values"),
        i64(6, "total_uncompressed_size"),
        i64(7, "total_compressed_size"),
        i64(9, "data_page_offset"),
        i64(11, "dictionary_page_offset"),
        structure(12, "statistics", Statistics),
        i64(14, "bloom_filter_offset"),
        i32(15, "bloom_filter_length"),
    )


@dataclass(slots=True)
class ColumnChunk(Structure):
    """One column of one row group."""

    file_path: str | None = None
    file_offset: int = 0
    meta_data: ColumnMetaData | None = None
    offset_index_offset: int | None = None
    offset_index_length: int | None = None
    column_index_offset: int | None = None
    column_index_length: int | None = None
    thrift_spec: ClassVar[ThriftSpec] = spec(
        text(1, "file_path"),
        i64(2, "file_offset"),
        structure(3, "meta_data", ColumnMetaData),
        i64(4, "offset_index_offset"),
        i32(5, "offset_index_length"),
        i64(6, "column_index_offset"),
        i32(7, "column_index_length"),
    )


@dataclass(slots=True)
class SortingColumn(Structure):
    """One column of a declared sort order."""

    column_idx: int = ABSENT
    descending: bool | None = None
    thrift_spec: ClassVar[ThriftSpec] = spec(i32(1, "column_idx"), boolean(2, "descending"))


@dataclass(slots=True)
class RowGroup(Structure):
    """One row group."""

    columns: list[ColumnChunk] = field(default_factory=list)
    total_byte_size: int | None = None
    num_rows: int = ABSENT
    sorting_columns: list[SortingColumn] | None = None
    thrift_spec: ClassVar[ThriftSpec] = spec(
        structures(1, "columns", ColumnChunk),
        i64(2, "total_byte_size"),
        i64(3, "num_rows"),
        structures(4, "sorting_columns", SortingColumn),
    )


@dataclass(slots=True)
class KeyValue(Structure):
    """One entry of the file's own metadata."""

    key: str = ""
    value: str | None = None
    thrift_spec: ClassVar[ThriftSpec] = spec(text(1, "key"), text(2, "value"))


@dataclass(slots=True)
class ColumnOrder(Structure):
    """How the min and max values of one column were ordered, a union; newer orders decode to an empty one."""

    TYPE_ORDER: Empty | None = None
    thrift_spec: ClassVar[ThriftSpec] = spec(structure(1, "TYPE_ORDER", Empty))


@dataclass(slots=True)
class FileMetaData(Structure):
    """The footer."""

    version: int = 1
    schema: list[SchemaElement] = field(default_factory=list)
    num_rows: int = ABSENT
    row_groups: list[RowGroup] = field(default_factory=list)
    key_value_metadata: list[KeyValue] | None = None
    created_by: str | None = None
    column_orders: list[ColumnOrder] | None = None
    encryption_algorithm: Empty | None = None
    """Present where columns are encrypted behind a readable footer."""
    thrift_spec: ClassVar[ThriftSpec] = spec(
        i32(1, "version"),
        structures(2, "schema", SchemaElement),
        i64(3, "num_rows"),
        structures(4, "row_groups", RowGroup),
        structures(5, "key_value_metadata", KeyValue),
        text(6, "created_by"),
        structures(7, "column_orders", ColumnOrder),
        structure(8, "encryption_algorithm", Empty),
    )


@dataclass(slots=True)
class FileMetaDataAlone(FileMetaData):
    """The footer without its row groups, which are skipped."""

    thrift_spec: ClassVar[ThriftSpec] = tuple(
        None if declared is None or declared[2] == "row_groups" else declared for declared in FileMetaData.thrift_spec
    )


ROW_GROUPS_FIELD = 4
"""Number of the footer's field that lists its row groups."""


@dataclass(slots=True)
class BloomAlgorithm(Structure):
    """BloomFilterAlgorithm, a union; unknown members decode to an empty one."""

    BLOCK: Empty | None = None
    thrift_spec: ClassVar[ThriftSpec] = spec(structure(1, "BLOCK", Empty))


@dataclass(slots=True)
class BloomHash(Structure):
    """BloomFilterHash, a union; unknown members decode to an empty one."""

    XXHASH: Empty | None = None
    thrift_spec: ClassVar[ThriftSpec] = spec(structure(1, "XXHASH", Empty))


@dataclass(slots=True)
class BloomCompression(Structure):
    """BloomFilterCompression, a union; unknown members decode to an empty one."""

    UNCOMPRESSED: Empty | None = None
    thrift_spec: ClassVar[ThriftSpec] = spec(structure(1, "UNCOMPRESSED", Empty))


@dataclass(slots=True)
class BloomFilterHeader(Structure):
    """The header before the bitset of a bloom filter."""

    numBytes: int = ABSENT  # noqa: N815  # the name in parquet.thrift
    algorithm: BloomAlgorithm | None = None
    hash: BloomHash | None = None
    compression: BloomCompression | None = None
    thrift_spec: ClassVar[ThriftSpec] = spec(
        i32(1, "numBytes"),
        structure(2, "algorithm", BloomAlgorithm),
        structure(3, "hash", BloomHash),
        structure(4, "compression", BloomCompression),
    )


@dataclass(slots=True)
class DataPageHeader(Structure):
    """DataPageHeader."""

    num_values: int | None = None
    encoding: int | None = None
    definition_level_encoding: int | None = None
    repetition_level_encoding: int | None = None
    statistics: Statistics | None = None
    thrift_spec: ClassVar[ThriftSpec] = spec(
        i32(1, "num_values"),
        i32(2, "encoding"),
        i32(3, "definition_level_encoding"),
        i32(4, "repetition_level_encoding"),
        structure(5, "statistics", Statistics),
    )


@dataclass(slots=True)
class DictionaryPageHeader(Structure):
    """DictionaryPageHeader."""

    num_values: int | None = None
    encoding: int | None = None
    thrift_spec: ClassVar[ThriftSpec] = spec(i32(1, "num_values"), i32(2, "encoding"))


@dataclass(slots=True)
class DataPageHeaderV2(Structure):
    """DataPageHeaderV2."""

    num_values: int | None = None
    num_nulls: int | None = None
    num_rows: int | None = None
    encoding: int | None = None
    definition_levels_byte_length: int | None = None
    repetition_levels_byte_length: int | None = None
    is_compressed: bool | None = None
    """Of the values; the levels never are. None means true."""
    statistics: Statistics | None = None
    thrift_spec: ClassVar[ThriftSpec] = spec(
        i32(1, "num_values"),
        i32(2, "num_nulls"),
        i32(3, "num_rows"),
        i32(4, "encoding"),
        i32(5, "definition_levels_byte_length"),
        i32(6, "repetition_levels_byte_length"),
        boolean(7, "is_compressed"),
        structure(8, "statistics", Statistics),
    )


@dataclass(slots=True)
class PageHeader(Structure):
    """PageHeader: sizes of the body, and the header of the page's own type."""

    type: int | None = None
    uncompressed_page_size: int | None = None
    compressed_page_size: int | None = None
    crc: int | None = None
    data_page_header: DataPageHeader | None = None
    dictionary_page_header: DictionaryPageHeader | None = None
    data_page_header_v2: DataPageHeaderV2 | None = None
    thrift_spec: ClassVar[ThriftSpec] = spec(
        i32(1, "type"),
        i32(2, "uncompressed_page_size"),
        i32(3, "compressed_page_size"),
        i32(4, "crc"),
        structure(5, "data_page_header", DataPageHeader),
        structure(7, "dictionary_page_header", DictionaryPageHeader),
        structure(8, "data_page_header_v2", DataPageHeaderV2),
    )


@dataclass(slots=True)
class PageLocation(Structure):
    """PageLocation: one data page; the dictionary page is not listed."""

    offset: int = ABSENT
    compressed_page_size: int = ABSENT
    """Bytes in the file, header included."""
    first_row_index: int = ABSENT
    thrift_spec: ClassVar[ThriftSpec] = spec(
        i64(1, "offset"), i32(2, "compressed_page_size"), i64(3, "first_row_index")
    )


@dataclass(slots=True)
class OffsetIndex(Structure):
    """OffsetIndex: the places and rows of the data pages of a chunk."""

    page_locations: list[PageLocation] = field(default_factory=list)
    thrift_spec: ClassVar[ThriftSpec] = spec(structures(1, "page_locations", PageLocation))


@dataclass(slots=True)
class ColumnIndex(Structure):
    """ColumnIndex: the bounds of the data pages of a chunk, without their order, which is not checked."""

    null_pages: list[bool] = field(default_factory=list)
    min_values: list[bytes] = field(default_factory=list)
    max_values: list[bytes] = field(default_factory=list)
    null_counts: list[int] | None = None
    thrift_spec: ClassVar[ThriftSpec] = spec(
        (1, TType.LIST, "null_pages", (TType.BOOL, None, False), None),
        (2, TType.LIST, "min_values", (TType.STRING, "BINARY", False), None),
        (3, TType.LIST, "max_values", (TType.STRING, "BINARY", False), None),
        (5, TType.LIST, "null_counts", (TType.I64, None, False), None),
    )
