"""The Thrift structures of page headers and page indexes, as far as we read or write them.

Field numbers and names are those of parquet.thrift in apache/parquet-format, as in `coldparquet.format.parquet_thrift`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from thrift.Thrift import TType

from coldparquet.format.parquet_thrift import Statistics
from coldparquet.format.thrift_structure import (
    ABSENT,
    Structure,
    ThriftSpec,
    boolean,
    i32,
    i64,
    spec,
    structure,
    structures,
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
    """OffsetIndex: where the data pages of a chunk lie, and which rows they hold."""

    page_locations: list[PageLocation] = field(default_factory=list)
    thrift_spec: ClassVar[ThriftSpec] = spec(structures(1, "page_locations", PageLocation))


@dataclass(slots=True)
class ColumnIndex(Structure):
    """ColumnIndex: the bounds of the data pages of a chunk, without their order, which nobody checks."""

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
