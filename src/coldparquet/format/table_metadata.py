"""Reads and writes `_meta`, the columns and partitioning of a table, and `_name`, the name of a table.

    header      128 bytes
    slots       32 bytes per column that the table ever had, in the order in which they were added
    names       per slot: number of UTF-16 units as i32, then the units
    trailer     nothing in QuestDB 9.3.4; newer versions put more there

A column is identified permanently by its *writer index*, the position of its slot. A dropped column keeps its slot with
a negative type. A change of type makes a new slot that names the slot it replaces. It takes the place of that one in
the *dense* order, the order that users see. All integers are little-endian.

The encoding word of a slot in `_meta` says how to write the column to Parquet:

bits 0-7 encoding, 8-15 codec, 16-23 compression level + 1, 24 set for this column, 25 bloom filter

`_name` holds the name of a table, which may differ from that of its directory, since RENAME changes only this file.

The file is the number of UTF-16 units as i32, the units, and one zero byte.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

from msgspec import Struct

from coldparquet.errors import ColdParquetError, FormatError, InvalidInputError, UnsupportedError
from coldparquet.format.binary import Record, encode_name, invalid, parse_name, truncated
from coldparquet.format.partition_names import PartitionInterval
from coldparquet.format.type_codes import TypeTag, is_nanosecond

if TYPE_CHECKING:
    from collections.abc import Sequence


class ParquetEncoding(IntEnum):
    """Encodings that a column can ask for when its partitions become Parquet."""

    DEFAULT = 0
    PLAIN = 1
    RLE_DICTIONARY = 2
    DELTA_LENGTH_BYTE_ARRAY = 3
    DELTA_BINARY_PACKED = 4
    BYTE_STREAM_SPLIT = 5


class ParquetCodec(IntEnum):
    """Codecs that a column can ask for when its partitions become Parquet."""

    DEFAULT = 0
    UNCOMPRESSED = 1
    SNAPPY = 2
    GZIP = 3
    BROTLI = 4
    ZSTD = 5
    LZ4_RAW = 6


class EncodingConfig(Struct, frozen=True, kw_only=True):
    """How to write a column to Parquet; it says nothing about existing files."""

    encoding: int = ParquetEncoding.DEFAULT
    """A `ParquetEncoding`, or a number that a newer version knows."""
    codec: int = ParquetCodec.DEFAULT
    """A `ParquetCodec`, or a number that a newer version knows."""
    level: int | None = None
    """Compression level; None for the codec's default."""
    is_explicit: bool = False
    """Set for this column, not inherited from the server."""
    has_bloom_filter: bool = False


def parse_encoding_word(word: int) -> EncodingConfig | None:
    """Decode the encoding word of a slot; None for 0, which requests nothing."""
    if word == 0:
        return None
    stored_level = word >> 16 & 0xFF
    return EncodingConfig(
        encoding=word & 0xFF,
        codec=word >> 8 & 0xFF,
        level=stored_level - 1 if stored_level else None,
        is_explicit=bool(word >> 24 & 1),
        has_bloom_filter=bool(word >> 25 & 1),
    )


def format_encoding_word(config: EncodingConfig | None) -> int:
    """Encode the encoding word of a slot."""
    if config is None:
        return 0
    stored_level = 0 if config.level is None else config.level + 1
    for what, value in (("encoding", config.encoding), ("codec", config.codec), ("level + 1", stored_level)):
        if not 0 <= value <= 0xFF:
            raise InvalidInputError(f"{what} of an encoding config is {value}; expected 0 to 255")
    return (
        config.encoding
        | config.codec << 8
        | stored_level << 16
        | config.is_explicit << 24
        | config.has_bloom_filter << 25
    )


TABLE_VERSION = 426
"""The only version of the table format that QuestDB 9 opens."""

HEADER = Record(
    slot_count="i4",
    interval="i4",
    designated_timestamp="i4",
    version="i4",
    table_id="i4",
    max_uncommitted_rows="i4",
    o3_max_lag_us="i8",
    metadata_version="i8",
    wal_enabled="b1",
    minor_version_word="i4",
    ttl="i4",
    reserved="S79",
)
SLOT = Record(
    type_code="i4",  # negative: dropped
    flags="i8",
    index_block_capacity="i4",
    symbol_capacity="i4",
    encoding_word="i4",
    replaced_slot="i4",  # its index + 1
    reserved="i4",
)

INDEXED_FLAG = 1 << 0
SYMBOL_CACHE_FLAG = 1 << 2
DEDUP_KEY_FLAG = 1 << 3

NO_DESIGNATED_TIMESTAMP = -1
LONGEST_NAME_UNITS = 255
FIRST_MINOR_VERSION_WITH_ENCODINGS = 1

_INSTEAD_OF_ZERO = -1337 & 0xFFFF
"""Replaces a checksum of 0, which every file without a minor version would contain."""


def slot_offset(index: int) -> int:
    """Return the offset of a slot in the file."""
    return HEADER.size + SLOT.size * index


def minor_version_checksum(metadata_version: int, slot_count: int) -> int:
    """Return the low 16 bits of the minor version word, as an unsigned integer; they prove that it was written."""
    folded = 13 * ((metadata_version ^ metadata_version >> 32) & 0xFFFF_FFFF) + 37 * slot_count
    checksum = (folded ^ folded >> 16) & 0xFFFF
    return checksum or _INSTEAD_OF_ZERO


def minor_version_of(word: int, metadata_version: int, slot_count: int) -> int | None:
    """Return the minor version from its word; None where the checksum shows another content."""
    if word & 0xFFFF != minor_version_checksum(metadata_version, slot_count):
        return None
    return word >> 16 & 0xFFFF


class MetadataSlot(Struct, frozen=True, kw_only=True):
    """One slot as stored: a present or former column of the table."""

    name: str
    type_code: int
    """Without the sign that marks dropped columns."""
    is_dropped: bool = False
    """Dropped, or superseded by a slot of another type."""
    flags: int = 0
    index_block_capacity: int = 0
    symbol_capacity: int = 0
    encoding_word: int = 0
    """See `parse_encoding_word`; valid only with the table's minor version."""
    replaced_index: int | None = None
    """Slot that this one replaces; None for an original column."""
    reserved: int = 0


class SupersededColumn(Struct, frozen=True, kw_only=True):
    """What a column was before its type was changed: older files hold it under this id with this type."""

    writer_index: int
    type_code: int


class MetadataColumn(Struct, frozen=True, kw_only=True):
    """One column of the table as users see it."""

    name: str
    writer_index: int
    """Position of its slot: the id of the column in Parquet files."""
    type_code: int
    is_indexed: bool
    is_dedup_key: bool
    symbol_capacity: int | None
    """Capacity of the symbol dictionary; None for all but SYMBOL."""
    is_symbol_cached: bool
    encoding_config: EncodingConfig | None
    """None where nothing was requested."""
    superseded: tuple[SupersededColumn, ...]
    """Older slots of the same column, newest first."""
    symbol_index: int | None
    """Dense symbol index: the column's place in `TableTransaction.symbol_counts`; None for all but SYMBOL."""

    @property
    def replaced_writer_indexes(self) -> tuple[int, ...]:
        """Writer indexes of the older slots, newest first."""
        return tuple(older.writer_index for older in self.superseded)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMetadata:
    """The content of `_meta`. `columns` follows from `slots`."""

    interval: PartitionInterval
    designated_timestamp: int | None
    """Writer index of the designated timestamp."""
    table_id: int
    metadata_version: int
    wal_enabled: bool
    slots: tuple[MetadataSlot, ...]
    """By writer index, dropped ones included."""
    max_uncommitted_rows: int = 500_000
    o3_max_lag_us: int = 600_000_000
    minor_version: int | None = 1
    """None where the file states none, and then has neither TTL nor encodings."""
    ttl: int = 0
    """How long rows are kept: hours, negative for months, 0 for ever."""
    reserved: bytes = bytes(79)
    """Header bytes 49 to 127, kept for versions that know them."""
    trailer: bytes = b""
    """All bytes behind the names, kept for versions that know them."""
    columns: tuple[MetadataColumn, ...] = field(init=False)
    """In dense order, the order that users see."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", _dense_columns(self.slots, has_encodings=self.has_encodings))

    @property
    def has_encodings(self) -> bool:
        """Whether the encoding words of the slots are valid."""
        return self.minor_version is not None and self.minor_version >= FIRST_MINOR_VERSION_WITH_ENCODINGS

    @property
    def is_nanosecond(self) -> bool:
        """Whether the designated timestamp, and with it `_txn` and `_cv`, counts nanoseconds, not microseconds."""
        return self.designated_timestamp is not None and is_nanosecond(self.slots[self.designated_timestamp].type_code)


def parse_table_metadata(data: bytes | memoryview, *, path: str | None) -> TableMetadata:
    """Parse a `_meta` file."""
    view = memoryview(data).cast("B")
    if len(view) < HEADER.size:
        raise truncated("header", HEADER.size, len(view), offset=0, path=path)
    header = HEADER.unpack(view)
    if header.version != TABLE_VERSION:
        raise UnsupportedError(
            f"the table has format version {header.version}; this library reads {TABLE_VERSION}, as QuestDB 9 writes it:"
            " open the table once with such a version, which migrates it",
            kind="UnsupportedVersion",
            path=path,
            offset=HEADER.offset("version"),
            field="version",
            expected=TABLE_VERSION,
        )
    try:
        interval = PartitionInterval(header.interval)
    except ValueError:
        message = f"interval {header.interval} is none of DAY 0, MONTH 1, YEAR 2, NONE 3, HOUR 4, WEEK 5"
        raise invalid(message, offset=HEADER.offset("interval"), field="interval", path=path) from None
    slots, names_stop = _parse_slots(view, header.slot_count, path)
    _check_designated(header.designated_timestamp, interval, slots, path)
    minor_version = minor_version_of(header.minor_version_word, header.metadata_version, header.slot_count)
    return TableMetadata(
        interval=interval,
        designated_timestamp=None
        if header.designated_timestamp == NO_DESIGNATED_TIMESTAMP
        else header.designated_timestamp,
        table_id=header.table_id,
        metadata_version=header.metadata_version,
        wal_enabled=header.wal_enabled,
        slots=slots,
        max_uncommitted_rows=header.max_uncommitted_rows,
        o3_max_lag_us=header.o3_max_lag_us,
        minor_version=minor_version,
        ttl=0 if minor_version is None else header.ttl,
        reserved=header.reserved,
        trailer=bytes(view[names_stop:]),
    )


def _parse_slots(view: memoryview, count: int, path: str | None) -> tuple[tuple[MetadataSlot, ...], int]:
    """Parse slots and names; return the end of the names."""
    if count < 0:
        raise invalid(f"{count} columns", offset=HEADER.offset("slot_count"), field="slot_count", path=path)
    names_start = slot_offset(count)
    if names_start > len(view):
        raise truncated(f"{count} columns", names_start, len(view), offset=HEADER.size, path=path)
    slots: list[MetadataSlot] = []
    cursor = names_start
    for index in range(count):
        slot = SLOT.unpack(view, slot_offset(index))
        name, name_stop = parse_name(view, cursor, longest_units=LONGEST_NAME_UNITS, field="column name", path=path)
        slots.append(
            MetadataSlot(
                name=name,
                type_code=abs(slot.type_code),
                is_dropped=slot.type_code < 0,
                flags=slot.flags,
                index_block_capacity=slot.index_block_capacity,
                symbol_capacity=slot.symbol_capacity,
                encoding_word=slot.encoding_word,
                replaced_index=slot.replaced_slot - 1 if slot.replaced_slot else None,
                reserved=slot.reserved,
            )
        )
        cursor = name_stop
    _check_live_slots(slots, path)
    return tuple(slots), cursor


def _check_live_slots(slots: list[MetadataSlot], path: str | None) -> None:
    """Check that live columns differ in name, and that no slot replaces one that is still live."""
    names_taken: set[str] = set()
    latest_holders: dict[int, int] = {}
    for index, (slot, place) in enumerate(zip(slots, _places(slots), strict=True)):
        replaced = latest_holders.get(place)
        latest_holders[place] = index
        if replaced is not None and not slots[replaced].is_dropped:
            message = f"column {slot.name!r} replaces column {slots[replaced].name!r}, which is still there"
            offset = slot_offset(index) + SLOT.offset("replaced_slot")
            raise invalid(message, offset=offset, field="replaced_index", path=path)
        if slot.is_dropped:
            continue
        if slot.name in names_taken:
            message = f"two columns are named {slot.name!r}"
            raise invalid(message, offset=slot_offset(index), field="column name", path=path)
        names_taken.add(slot.name)


def _check_designated(
    index: int, interval: PartitionInterval, slots: tuple[MetadataSlot, ...], path: str | None
) -> None:
    offset = HEADER.offset("designated_timestamp")
    if index == NO_DESIGNATED_TIMESTAMP:
        if interval is not PartitionInterval.NONE:
            message = f"no designated timestamp, but the table is partitioned by {interval.name}"
            raise invalid(message, offset=offset, field="designated_timestamp", path=path)
        return
    is_timestamp = (
        0 <= index < len(slots) and not slots[index].is_dropped and slots[index].type_code & 0xFF == TypeTag.TIMESTAMP
    )
    if not is_timestamp:
        message = f"the designated timestamp is column {index}, which is no TIMESTAMP column of the table"
        raise invalid(message, offset=offset, field="designated_timestamp", path=path)


def _places(slots: Sequence[MetadataSlot]) -> list[int]:
    """Return the slot whose place in the dense order each slot takes: its own, or that of its first ancestor."""
    places: list[int] = []
    for index, slot in enumerate(slots):
        replaced = slot.replaced_index
        # All other values are no replacements but leftovers of an old version in these bytes.
        is_replacement = replaced is not None and 0 <= replaced < index
        places.append(places[replaced] if replaced is not None and is_replacement else index)
    return places


def _dense_columns(slots: tuple[MetadataSlot, ...], *, has_encodings: bool) -> tuple[MetadataColumn, ...]:
    holders: dict[int, list[int]] = {}
    for index, place in enumerate(_places(slots)):
        holders.setdefault(place, []).append(index)
    live = [index for index, slot in enumerate(slots) if not slot.is_dropped]
    symbols = [index for index in live if slots[index].type_code == TypeTag.SYMBOL]
    symbol_indexes = {writer_index: dense_index for dense_index, writer_index in enumerate(symbols)}
    columns = []
    for place in sorted(holders):
        *superseded, newest = holders[place]
        slot = slots[newest]
        if slot.is_dropped:
            continue
        is_symbol = newest in symbol_indexes
        columns.append(
            MetadataColumn(
                name=slot.name,
                writer_index=newest,
                type_code=slot.type_code,
                is_indexed=bool(slot.flags & INDEXED_FLAG),
                is_dedup_key=bool(slot.flags & DEDUP_KEY_FLAG),
                symbol_capacity=slot.symbol_capacity if is_symbol else None,
                is_symbol_cached=is_symbol and bool(slot.flags & SYMBOL_CACHE_FLAG),
                encoding_config=parse_encoding_word(slot.encoding_word) if has_encodings else None,
                superseded=tuple(
                    SupersededColumn(writer_index=older, type_code=slots[older].type_code)
                    for older in reversed(superseded)
                ),
                symbol_index=symbol_indexes.get(newest),
            )
        )
    return tuple(columns)


def encode_table_metadata(metadata: TableMetadata) -> bytes:
    """Write a `_meta` file; what was parsed and not changed becomes the same bytes."""
    minor_version_word = 0
    if metadata.minor_version is not None:
        checksum = minor_version_checksum(metadata.metadata_version, len(metadata.slots))
        minor_version_word = metadata.minor_version << 16 | checksum
    designated = metadata.designated_timestamp
    try:
        header = HEADER.pack(
            "the table",
            slot_count=len(metadata.slots),
            interval=metadata.interval,
            designated_timestamp=NO_DESIGNATED_TIMESTAMP if designated is None else designated,
            version=TABLE_VERSION,
            table_id=metadata.table_id,
            max_uncommitted_rows=metadata.max_uncommitted_rows,
            o3_max_lag_us=metadata.o3_max_lag_us,
            metadata_version=metadata.metadata_version,
            wal_enabled=metadata.wal_enabled,
            minor_version_word=minor_version_word,
            ttl=metadata.ttl,
            reserved=metadata.reserved,
        )
        encoded = b"".join(
            [
                header,
                *(_encode_slot(slot) for slot in metadata.slots),
                *(encode_name(slot.name) for slot in metadata.slots),
                metadata.trailer,
            ]
        )
    except (InvalidInputError, UnicodeEncodeError) as error:
        raise InvalidInputError(f"this metadata does not fit a _meta file: {error}") from error
    try:
        parse_table_metadata(encoded, path=None)
    except ColdParquetError as error:
        raise InvalidInputError(f"this would not be a valid _meta file: {error.message}") from error
    return encoded


def _encode_slot(slot: MetadataSlot) -> bytes:
    return SLOT.pack(
        f"column {slot.name!r}",
        type_code=-slot.type_code if slot.is_dropped else slot.type_code,
        flags=slot.flags,
        index_block_capacity=slot.index_block_capacity,
        symbol_capacity=slot.symbol_capacity,
        encoding_word=slot.encoding_word,
        replaced_slot=0 if slot.replaced_index is None else slot.replaced_index + 1,
        reserved=slot.reserved,
    )


def parse_table_name(data: bytes | memoryview, *, path: str | None) -> str:
    """Parse a `_name` file; bytes behind the name are ignored."""
    name, _ = parse_name(memoryview(data).cast("B"), 0, longest_units=LONGEST_NAME_UNITS, field="table name", path=path)
    return name


def encode_table_name(name: str) -> bytes:
    """Write a `_name` file."""
    try:
        encoded = encode_name(name) + b"\0"
        parse_table_name(encoded, path=None)
    except (FormatError, UnicodeEncodeError) as error:
        raise InvalidInputError(f"{name!r} cannot be the name of a table: {error}") from error
    return encoded
