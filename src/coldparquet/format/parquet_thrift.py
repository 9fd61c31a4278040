"""Declares the Thrift structures of Parquet footers, page headers, page indexes and bloom filters, as far as used.

Field numbers and names are those of parquet.thrift in apache/parquet-format. Unused fields are skipped when decoding.
`parquet_footer` detects missing fields, see `coldparquet.format.thrift`.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import field

from coldparquet.format.thrift import (
    ABSENT,
    I8,
    I32,
    I64,
    Empty,
    Structure,
)


class DecimalAnnotation(Structure):
    """DecimalType."""

    scale: Annotated[int | None, 1, I32] = None
    precision: Annotated[int | None, 2, I32] = None


class UnitAnnotation(Structure):
    """TimeUnit, a union."""

    MILLIS: Annotated[Empty | None, 1] = None
    MICROS: Annotated[Empty | None, 2] = None
    NANOS: Annotated[Empty | None, 3] = None


class TimeAnnotation(Structure):
    """TimeType and TimestampType, which have the same fields."""

    isAdjustedToUTC: Annotated[bool | None, 1] = None  # noqa: N815  # the name in parquet.thrift
    unit: Annotated[UnitAnnotation | None, 2] = None


class IntegerAnnotation(Structure):
    """IntType."""

    bitWidth: Annotated[int | None, 1, I8] = None  # noqa: N815  # the name in parquet.thrift
    isSigned: Annotated[bool | None, 2] = None  # noqa: N815  # the name in parquet.thrift


class Annotation(Structure):
    """LogicalType, a union; later members decode to an empty one, and fields of those after INTEGER are left out."""

    STRING: Annotated[Empty | None, 1] = None
    MAP: Annotated[Empty | None, 2] = None
    LIST: Annotated[Empty | None, 3] = None
    ENUM: Annotated[Empty | None, 4] = None
    DECIMAL: Annotated[DecimalAnnotation | None, 5] = None
    DATE: Annotated[Empty | None, 6] = None
    TIME: Annotated[TimeAnnotation | None, 7] = None
    TIMESTAMP: Annotated[TimeAnnotation | None, 8] = None
    INTEGER: Annotated[IntegerAnnotation | None, 10] = None
    UNKNOWN: Annotated[Empty | None, 11] = None
    JSON: Annotated[Empty | None, 12] = None
    BSON: Annotated[Empty | None, 13] = None
    UUID: Annotated[Empty | None, 14] = None
    FLOAT16: Annotated[Empty | None, 15] = None
    VARIANT: Annotated[Empty | None, 16] = None
    GEOMETRY: Annotated[Empty | None, 17] = None
    GEOGRAPHY: Annotated[Empty | None, 18] = None


class SchemaElement(Structure):
    """One node of the schema tree; the tree is a list in depth-first order."""

    type: Annotated[int | None, 1, I32] = None
    type_length: Annotated[int | None, 2, I32] = None
    repetition_type: Annotated[int | None, 3, I32] = None
    name: Annotated[str, 4] = ""
    num_children: Annotated[int | None, 5, I32] = None
    converted_type: Annotated[int | None, 6, I32] = None
    scale: Annotated[int | None, 7, I32] = None
    precision: Annotated[int | None, 8, I32] = None
    field_id: Annotated[int | None, 9, I32] = None
    logicalType: Annotated[Annotation | None, 10] = None  # noqa: N815  # the name in parquet.thrift


class Statistics(Structure):
    """Statistics of a chunk, without the deprecated min and max (fields 1 and 2), whose order is undefined."""

    null_count: Annotated[int | None, 3, I64] = None
    distinct_count: Annotated[int | None, 4, I64] = None
    max_value: Annotated[bytes | None, 5] = None
    min_value: Annotated[bytes | None, 6] = None
    is_max_value_exact: Annotated[bool | None, 7] = None
    is_min_value_exact: Annotated[bool | None, 8] = None


class ColumnMetaData(Structure):
    """Places and contents of the pages of a chunk."""

    type: Annotated[int, 1, I32] = ABSENT
    encodings: Annotated[list[int], 2, I32] = field(default_factory=list)
    path_in_schema: Annotated[list[str], 3] = field(default_factory=list)
    codec: Annotated[int, 4, I32] = ABSENT
    num_values: Annotated[int, 5, I64] = ABSENT
    total_uncompressed_size: Annotated[int | None, 6, I64] = None
    total_compressed_size: Annotated[int, 7, I64] = ABSENT
    data_page_offset: Annotated[int, 9, I64] = ABSENT
    dictionary_page_offset: Annotated[int | None, 11, I64] = None
    statistics: Annotated[Statistics | None, 12] = None
    bloom_filter_offset: Annotated[int | None, 14, I64] = None
    bloom_filter_length: Annotated[int | None, 15, I32] = None

    @property
    def byte_range(self) -> tuple[int, int]:
        """Start and stop in the file: the chunk begins with its dictionary page, if it has one before the others."""
        dictionary = self.dictionary_page_offset
        start = dictionary if dictionary and 0 < dictionary < self.data_page_offset else self.data_page_offset
        return start, start + self.total_compressed_size


class ColumnChunk(Structure):
    """One column of one row group."""

    file_path: Annotated[str | None, 1] = None
    file_offset: Annotated[int, 2, I64] = 0
    meta_data: Annotated[ColumnMetaData | None, 3] = None
    offset_index_offset: Annotated[int | None, 4, I64] = None
    offset_index_length: Annotated[int | None, 5, I32] = None
    column_index_offset: Annotated[int | None, 6, I64] = None
    column_index_length: Annotated[int | None, 7, I32] = None


class SortingColumn(Structure):
    """One column of a declared sort order."""

    column_idx: Annotated[int, 1, I32] = ABSENT
    descending: Annotated[bool | None, 2] = None


class RowGroup(Structure):
    """One row group."""

    columns: Annotated[list[ColumnChunk], 1] = field(default_factory=list)
    total_byte_size: Annotated[int | None, 2, I64] = None
    num_rows: Annotated[int, 3, I64] = ABSENT
    sorting_columns: Annotated[list[SortingColumn] | None, 4] = None


class KeyValue(Structure):
    """One entry of the file's own metadata."""

    key: Annotated[str, 1] = ""
    value: Annotated[str | None, 2] = None


class ColumnOrder(Structure):
    """How the min and max values of one column were ordered, a union; newer orders decode to an empty one."""

    TYPE_ORDER: Annotated[Empty | None, 1] = None


class FileMetaData(Structure):
    """The footer."""

    version: Annotated[int, 1, I32] = 1
    schema: Annotated[list[SchemaElement], 2] = field(default_factory=list)
    num_rows: Annotated[int, 3, I64] = ABSENT
    row_groups: Annotated[list[RowGroup], 4] = field(default_factory=list)
    key_value_metadata: Annotated[list[KeyValue] | None, 5] = None
    created_by: Annotated[str | None, 6] = None
    column_orders: Annotated[list[ColumnOrder] | None, 7] = None
    encryption_algorithm: Annotated[Empty | None, 8] = None
    """Present where columns are encrypted behind a readable footer."""


class FileMetaDataAlone(FileMetaData):
    """The footer without its row groups, which are skipped."""


FileMetaDataAlone.thrift_spec = tuple(
    None if declared is None or declared[2] == "row_groups" else declared for declared in FileMetaData.thrift_spec
)


class BloomAlgorithm(Structure):
    """BloomFilterAlgorithm, a union; unknown members decode to an empty one."""

    BLOCK: Annotated[Empty | None, 1] = None


class BloomHash(Structure):
    """BloomFilterHash, a union; unknown members decode to an empty one."""

    XXHASH: Annotated[Empty | None, 1] = None


class BloomCompression(Structure):
    """BloomFilterCompression, a union; unknown members decode to an empty one."""

    UNCOMPRESSED: Annotated[Empty | None, 1] = None


class BloomFilterHeader(Structure):
    """The header before the bitset of a bloom filter."""

    numBytes: Annotated[int, 1, I32] = ABSENT  # noqa: N815  # the name in parquet.thrift
    algorithm: Annotated[BloomAlgorithm | None, 2] = None
    hash: Annotated[BloomHash | None, 3] = None
    compression: Annotated[BloomCompression | None, 4] = None


class DataPageHeader(Structure):
    """DataPageHeader."""

    num_values: Annotated[int | None, 1, I32] = None
    encoding: Annotated[int | None, 2, I32] = None
    definition_level_encoding: Annotated[int | None, 3, I32] = None
    repetition_level_encoding: Annotated[int | None, 4, I32] = None
    statistics: Annotated[Statistics | None, 5] = None


class DictionaryPageHeader(Structure):
    """DictionaryPageHeader."""

    num_values: Annotated[int | None, 1, I32] = None
    encoding: Annotated[int | None, 2, I32] = None


class DataPageHeaderV2(Structure):
    """DataPageHeaderV2."""

    num_values: Annotated[int | None, 1, I32] = None
    num_nulls: Annotated[int | None, 2, I32] = None
    num_rows: Annotated[int | None, 3, I32] = None
    encoding: Annotated[int | None, 4, I32] = None
    definition_levels_byte_length: Annotated[int | None, 5, I32] = None
    repetition_levels_byte_length: Annotated[int | None, 6, I32] = None
    is_compressed: Annotated[bool | None, 7] = None
    """Of the values; the levels never are. None means true."""
    statistics: Annotated[Statistics | None, 8] = None


class PageHeader(Structure):
    """PageHeader: sizes of the body, and the header of the page's own type."""

    type: Annotated[int | None, 1, I32] = None
    uncompressed_page_size: Annotated[int | None, 2, I32] = None
    compressed_page_size: Annotated[int | None, 3, I32] = None
    crc: Annotated[int | None, 4, I32] = None
    data_page_header: Annotated[DataPageHeader | None, 5] = None
    dictionary_page_header: Annotated[DictionaryPageHeader | None, 7] = None
    data_page_header_v2: Annotated[DataPageHeaderV2 | None, 8] = None


class PageLocation(Structure):
    """PageLocation: one data page; the dictionary page is not listed."""

    offset: Annotated[int, 1, I64] = ABSENT
    compressed_page_size: Annotated[int, 2, I32] = ABSENT
    """Bytes in the file, header included."""
    first_row_index: Annotated[int, 3, I64] = ABSENT


class OffsetIndex(Structure):
    """OffsetIndex: the places and rows of the data pages of a chunk."""

    page_locations: Annotated[list[PageLocation], 1] = field(default_factory=list)


class ColumnIndex(Structure):
    """ColumnIndex: the bounds of the data pages of a chunk, without their order, which is not checked."""

    null_pages: Annotated[list[bool], 1] = field(default_factory=list)
    min_values: Annotated[list[bytes], 2] = field(default_factory=list)
    max_values: Annotated[list[bytes], 3] = field(default_factory=list)
    null_counts: Annotated[list[int] | None, 5, I64] = None
