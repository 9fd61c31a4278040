"""The Thrift structures of a Parquet footer, as far as we read or write them.

Field numbers and names are those of parquet.thrift in apache/parquet-format; fields that we do not use are skipped when
decoding. The classes only declare their fields: Apache Thrift's compact protocol does the work, in C where its
extension module is there (4 to 10 us per column chunk), in Python otherwise (about 20 times slower, same result).

Thrift enforces no "required": a required number that is missing decodes to `ABSENT`, a list or text to an empty one.
Enums are plain integers. `parquet_footer` checks both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from thrift.protocol.TBase import TBase
from thrift.protocol.TCompactProtocol import TCompactProtocolAccelerated
from thrift.Thrift import TType
from thrift.transport.TTransport import TMemoryBuffer

from coldparquet.errors import FormatError

ABSENT = -(1 << 63)
"""What a required number holds that is not in the file; no valid file stores it."""

ThriftField = tuple[int, int, str, Any, None]
ThriftSpec = tuple[ThriftField | None, ...]


class _CompactProtocol(TCompactProtocolAccelerated):  # type: ignore[misc]  # thrift has no type information
    """The compact protocol, cured of one flaw of its Python form: it takes every skipped byte string for UTF-8."""

    def skip(self, ttype: int, max_depth: int = 64) -> None:
        if ttype == TType.STRING:
            self.readBinary()
        else:
            super().skip(ttype, max_depth)


class Structure(TBase):  # type: ignore[misc]  # thrift has no type information
    """A Thrift structure; subclasses are dataclasses that declare ``thrift_spec``."""

    __slots__ = ()
    thrift_spec: ClassVar[ThriftSpec] = ()

    @classmethod
    def decode(cls, content: bytes, *, path: str | None, offset: int) -> Self:
        """Decode one structure from the start of ``content``; bytes behind it are ignored.

        Args:
            content: Compact protocol bytes.
            path: The object that they come from, for error messages.
            offset: Where they begin in it, for error messages.

        Raises:
            FormatError: The bytes are not such a structure. Lengths are checked against ``content`` before anything
                is allocated. Thrift limits nesting to 64 levels; before 0.25 its C extension did not, and crashed.
        """
        # Every element of a list and every character takes at least one byte, so the content bounds both.
        protocol = _CompactProtocol(
            TMemoryBuffer(content), string_length_limit=len(content), container_length_limit=len(content)
        )
        structure = cls()
        try:
            structure.read(protocol)
        except Exception as error:  # bad bytes raise a dozen unrelated classes, from EOFError to AssertionError
            raise FormatError(
                f"the {len(content)} bytes at {offset} are not a Thrift {cls.__name__}:"
                f" {type(error).__name__} {error}; the file is damaged or not Parquet",
                kind="InvalidThrift",
                path=path,
                offset=offset,
                field=cls.__name__,
            ) from error
        return structure

    def encode(self) -> bytes:
        """Encode the structure with the compact protocol; fields that are None are left out."""
        transport = TMemoryBuffer()
        self.write(_CompactProtocol(transport))
        return bytes(transport.getvalue())


def structure_stops(content: bytes, start: int, count: int) -> list[int]:
    """Find where each of ``count`` consecutive structures ends, whatever fields they have.

    Args:
        content: Compact protocol bytes.
        start: Where the first structure begins.
        count: Number of structures; each takes at least one byte.

    Raises:
        FormatError: The bytes are not that many structures (kind ``InvalidThrift``).
    """
    transport = TMemoryBuffer(content)
    protocol = _CompactProtocol(transport, string_length_limit=len(content), container_length_limit=len(content))
    transport.cstringio_buf.seek(start)
    # Empty knows no field, so its decoder skips all of them, in C where that is there, and stops behind the last.
    skipped = Empty()
    stops = []
    try:
        for _ in range(count):
            skipped.read(protocol)
            stops.append(transport.cstringio_buf.tell())
    except Exception as error:  # bad bytes raise a dozen unrelated classes, from EOFError to AssertionError
        raise FormatError(
            f"structure {len(stops)} of {count} from byte {start} does not end: {type(error).__name__} {error};"
            " the file is damaged",
            kind="InvalidThrift",
            offset=stops[-1] if stops else start,
            field="structure",
        ) from error
    return stops


def _spec(*fields: ThriftField) -> ThriftSpec:
    """Arrange fields by number, as Thrift wants them: the field with number n at index n."""
    by_number = {field[0]: field for field in fields}
    return tuple(by_number.get(number) for number in range(max(by_number, default=-1) + 1))


def _bool(number: int, name: str) -> ThriftField:
    return (number, TType.BOOL, name, None, None)


def _i8(number: int, name: str) -> ThriftField:
    return (number, TType.BYTE, name, None, None)


def _i32(number: int, name: str) -> ThriftField:
    return (number, TType.I32, name, None, None)


def _i64(number: int, name: str) -> ThriftField:
    return (number, TType.I64, name, None, None)


def _text(number: int, name: str) -> ThriftField:
    return (number, TType.STRING, name, "UTF8", None)


def _binary(number: int, name: str) -> ThriftField:
    return (number, TType.STRING, name, "BINARY", None)


def _structure(number: int, name: str, structure: type[Structure]) -> ThriftField:
    return (number, TType.STRUCT, name, [structure, structure.thrift_spec], None)


def _list(number: int, name: str, structure: type[Structure]) -> ThriftField:
    return (number, TType.LIST, name, (TType.STRUCT, [structure, structure.thrift_spec], False), None)


@dataclass(slots=True)
class Empty(Structure):
    """A structure whose presence is all it says, as in unions."""

    thrift_spec: ClassVar[ThriftSpec] = ()


@dataclass(slots=True)
class DecimalAnnotation(Structure):
    """DecimalType."""

    scale: int | None = None
    precision: int | None = None
    thrift_spec: ClassVar[ThriftSpec] = _spec(_i32(1, "scale"), _i32(2, "precision"))


@dataclass(slots=True)
class UnitAnnotation(Structure):
    """TimeUnit, a union."""

    MILLIS: Empty | None = None
    MICROS: Empty | None = None
    NANOS: Empty | None = None
    thrift_spec: ClassVar[ThriftSpec] = _spec(
        _structure(1, "MILLIS", Empty), _structure(2, "MICROS", Empty), _structure(3, "NANOS", Empty)
    )


@dataclass(slots=True)
class TimeAnnotation(Structure):
    """TimeType and TimestampType, which have the same fields."""

    isAdjustedToUTC: bool | None = None  # noqa: N815  # the name in parquet.thrift
    unit: UnitAnnotation | None = None
    thrift_spec: ClassVar[ThriftSpec] = _spec(_bool(1, "isAdjustedToUTC"), _structure(2, "unit", UnitAnnotation))


@dataclass(slots=True)
class IntegerAnnotation(Structure):
    """IntType."""

    bitWidth: int | None = None  # noqa: N815  # the name in parquet.thrift
    isSigned: bool | None = None  # noqa: N815  # the name in parquet.thrift
    thrift_spec: ClassVar[ThriftSpec] = _spec(_i8(1, "bitWidth"), _bool(2, "isSigned"))


@dataclass(slots=True)
class Annotation(Structure):
    """LogicalType, a union; members that change nothing for us are not declared, so they decode to an empty one."""

    STRING: Empty | None = None
    LIST: Empty | None = None
    DECIMAL: DecimalAnnotation | None = None
    DATE: Empty | None = None
    TIME: TimeAnnotation | None = None
    TIMESTAMP: TimeAnnotation | None = None
    INTEGER: IntegerAnnotation | None = None
    UUID: Empty | None = None
    thrift_spec: ClassVar[ThriftSpec] = _spec(
        _structure(1, "STRING", Empty),
        _structure(3, "LIST", Empty),
        _structure(5, "DECIMAL", DecimalAnnotation),
        _structure(6, "DATE", Empty),
        _structure(7, "TIME", TimeAnnotation),
        _structure(8, "TIMESTAMP", TimeAnnotation),
        _structure(10, "INTEGER", IntegerAnnotation),
        _structure(14, "UUID", Empty),
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
    thrift_spec: ClassVar[ThriftSpec] = _spec(
        _i32(1, "type"),
        _i32(2, "type_length"),
        _i32(3, "repetition_type"),
        _text(4, "name"),
        _i32(5, "num_children"),
        _i32(6, "converted_type"),
        _i32(7, "scale"),
        _i32(8, "precision"),
        _i32(9, "field_id"),
        _structure(10, "logicalType", Annotation),
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
    thrift_spec: ClassVar[ThriftSpec] = _spec(
        _i64(3, "null_count"),
        _i64(4, "distinct_count"),
        _binary(5, "max_value"),
        _binary(6, "min_value"),
        _bool(7, "is_max_value_exact"),
        _bool(8, "is_min_value_exact"),
    )


@dataclass(slots=True)
class ColumnMetaData(Structure):
    """Where the pages of a chunk lie and what they hold."""

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
    thrift_spec: ClassVar[ThriftSpec] = _spec(
        _i32(1, "type"),
        (2, TType.LIST, "encodings", (TType.I32, None, False), None),
        (3, TType.LIST, "path_in_schema", (TType.STRING, "UTF8", False), None),
        _i32(4, "codec"),
        _i64(5, "num_values"),
        _i64(6, "total_uncompressed_size"),
        _i64(7, "total_compressed_size"),
        _i64(9, "data_page_offset"),
        _i64(11, "dictionary_page_offset"),
        _structure(12, "statistics", Statistics),
        _i64(14, "bloom_filter_offset"),
        _i32(15, "bloom_filter_length"),
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
    thrift_spec: ClassVar[ThriftSpec] = _spec(
        _text(1, "file_path"),
        _i64(2, "file_offset"),
        _structure(3, "meta_data", ColumnMetaData),
        _i64(4, "offset_index_offset"),
        _i32(5, "offset_index_length"),
        _i64(6, "column_index_offset"),
        _i32(7, "column_index_length"),
    )


@dataclass(slots=True)
class SortingColumn(Structure):
    """One column of a declared sort order."""

    column_idx: int = ABSENT
    descending: bool | None = None
    thrift_spec: ClassVar[ThriftSpec] = _spec(_i32(1, "column_idx"), _bool(2, "descending"))


@dataclass(slots=True)
class RowGroup(Structure):
    """One row group."""

    columns: list[ColumnChunk] = field(default_factory=list)
    total_byte_size: int | None = None
    num_rows: int = ABSENT
    sorting_columns: list[SortingColumn] | None = None
    thrift_spec: ClassVar[ThriftSpec] = _spec(
        _list(1, "columns", ColumnChunk),
        _i64(2, "total_byte_size"),
        _i64(3, "num_rows"),
        _list(4, "sorting_columns", SortingColumn),
    )


@dataclass(slots=True)
class KeyValue(Structure):
    """One entry of the file's own metadata."""

    key: str = ""
    value: str | None = None
    thrift_spec: ClassVar[ThriftSpec] = _spec(_text(1, "key"), _text(2, "value"))


@dataclass(slots=True)
class ColumnOrder(Structure):
    """How the min and max values of one column were ordered, a union; newer orders decode to an empty one."""

    TYPE_ORDER: Empty | None = None
    thrift_spec: ClassVar[ThriftSpec] = _spec(_structure(1, "TYPE_ORDER", Empty))


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
    thrift_spec: ClassVar[ThriftSpec] = _spec(
        _i32(1, "version"),
        _list(2, "schema", SchemaElement),
        _i64(3, "num_rows"),
        _list(4, "row_groups", RowGroup),
        _list(5, "key_value_metadata", KeyValue),
        _text(6, "created_by"),
        _list(7, "column_orders", ColumnOrder),
        _structure(8, "encryption_algorithm", Empty),
    )


@dataclass(slots=True)
class BloomAlgorithm(Structure):
    """BloomFilterAlgorithm, a union; unknown members decode to an empty one."""

    BLOCK: Empty | None = None
    thrift_spec: ClassVar[ThriftSpec] = _spec(_structure(1, "BLOCK", Empty))


@dataclass(slots=True)
class BloomHash(Structure):
    """BloomFilterHash, a union; unknown members decode to an empty one."""

    XXHASH: Empty | None = None
    thrift_spec: ClassVar[ThriftSpec] = _spec(_structure(1, "XXHASH", Empty))


@dataclass(slots=True)
class BloomCompression(Structure):
    """BloomFilterCompression, a union; unknown members decode to an empty one."""

    UNCOMPRESSED: Empty | None = None
    thrift_spec: ClassVar[ThriftSpec] = _spec(_structure(1, "UNCOMPRESSED", Empty))


@dataclass(slots=True)
class BloomFilterHeader(Structure):
    """What stands in front of the bitset of a bloom filter."""

    numBytes: int = ABSENT  # noqa: N815  # the name in parquet.thrift
    algorithm: BloomAlgorithm | None = None
    hash: BloomHash | None = None
    compression: BloomCompression | None = None
    thrift_spec: ClassVar[ThriftSpec] = _spec(
        _i32(1, "numBytes"),
        _structure(2, "algorithm", BloomAlgorithm),
        _structure(3, "hash", BloomHash),
        _structure(4, "compression", BloomCompression),
    )


@dataclass(slots=True)
class DataPageHeader(Structure):
    """DataPageHeader."""

    num_values: int | None = None
    encoding: int | None = None
    definition_level_encoding: int | None = None
    repetition_level_encoding: int | None = None
    statistics: Statistics | None = None
    thrift_spec: ClassVar[ThriftSpec] = _spec(
        _i32(1, "num_values"),
        _i32(2, "encoding"),
        _i32(3, "definition_level_encoding"),
        _i32(4, "repetition_level_encoding"),
        _structure(5, "statistics", Statistics),
    )


@dataclass(slots=True)
class DictionaryPageHeader(Structure):
    """DictionaryPageHeader."""

    num_values: int | None = None
    encoding: int | None = None
    thrift_spec: ClassVar[ThriftSpec] = _spec(_i32(1, "num_values"), _i32(2, "encoding"))


@dataclass(slots=True)
class DataPageHeaderV2(Structure):
    """DataPageHeaderV2, as far as needed to know what the page is and which rows it holds."""

    num_values: int | None = None
    num_nulls: int | None = None
    num_rows: int | None = None
    encoding: int | None = None
    statistics: Statistics | None = None
    thrift_spec: ClassVar[ThriftSpec] = _spec(
        _i32(1, "num_values"),
        _i32(2, "num_nulls"),
        _i32(3, "num_rows"),
        _i32(4, "encoding"),
        _structure(8, "statistics", Statistics),
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
    thrift_spec: ClassVar[ThriftSpec] = _spec(
        _i32(1, "type"),
        _i32(2, "uncompressed_page_size"),
        _i32(3, "compressed_page_size"),
        _i32(4, "crc"),
        _structure(5, "data_page_header", DataPageHeader),
        _structure(7, "dictionary_page_header", DictionaryPageHeader),
        _structure(8, "data_page_header_v2", DataPageHeaderV2),
    )


@dataclass(slots=True)
class PageLocation(Structure):
    """PageLocation: one data page; the dictionary page is not listed."""

    offset: int = ABSENT
    compressed_page_size: int = ABSENT
    """Bytes in the file, header included."""
    first_row_index: int = ABSENT
    thrift_spec: ClassVar[ThriftSpec] = _spec(
        _i64(1, "offset"), _i32(2, "compressed_page_size"), _i64(3, "first_row_index")
    )


@dataclass(slots=True)
class OffsetIndex(Structure):
    """OffsetIndex: where the data pages of a chunk lie, and which rows they hold."""

    page_locations: list[PageLocation] = field(default_factory=list)
    thrift_spec: ClassVar[ThriftSpec] = _spec(_list(1, "page_locations", PageLocation))


@dataclass(slots=True)
class ColumnIndex(Structure):
    """ColumnIndex: the bounds of the data pages of a chunk, without their order, which nobody checks."""

    null_pages: list[bool] = field(default_factory=list)
    min_values: list[bytes] = field(default_factory=list)
    max_values: list[bytes] = field(default_factory=list)
    null_counts: list[int] | None = None
    thrift_spec: ClassVar[ThriftSpec] = _spec(
        (1, TType.LIST, "null_pages", (TType.BOOL, None, False), None),
        (2, TType.LIST, "min_values", (TType.STRING, "BINARY", False), None),
        (3, TType.LIST, "max_values", (TType.STRING, "BINARY", False), None),
        (5, TType.LIST, "null_counts", (TType.I64, None, False), None),
    )
