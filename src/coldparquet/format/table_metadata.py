"""`_meta`: the columns of a table and how it is partitioned.

    header      128 bytes
    slots       32 bytes per column that the table ever had, in the order in which they were added
    names       per slot: number of UTF-16 units as i32, then the units
    trailer     nothing in QuestDB 9.3.4; newer versions put more there

A column is known for ever by its *writer index*, the position of its slot. A dropped column keeps its slot with a
negative type. A change of type makes a new slot that says which slot it replaces and takes the place of that one in the
order that people see, the *dense* order. All integers are little-endian.
`coldparquet.format.table_metadata_writer` writes the file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from coldparquet.errors import UnsupportedError
from coldparquet.format import table_metadata_layout as layout
from coldparquet.format.encoding_config import EncodingConfig, parse_encoding_word
from coldparquet.format.partition_intervals import PartitionInterval
from coldparquet.format.table_file_errors import invalid, truncated
from coldparquet.format.type_codes import TypeTag, is_nanosecond
from coldparquet.format.utf16 import parse_name

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataSlot:
    """One slot as stored: a column of the table, or one that it had."""

    name: str
    type_code: int
    """Without the sign that marks dropped columns."""
    is_dropped: bool = False
    """Dropped, or superseded by a slot of another type."""
    flags: int = 0
    index_block_capacity: int = 0
    symbol_capacity: int = 0
    encoding_word: int = 0
    """See `parse_encoding_word`; means something only where the table's minor version says so."""
    replaced_index: int | None = None
    """Slot whose place this one takes; None where it is a column in its own right."""
    reserved: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SupersededColumn:
    """What a column was before its type was changed: older files hold it under this id with this type."""

    writer_index: int
    type_code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataColumn:
    """One column of the table as people see it."""

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
    """None where nothing was asked for."""
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
    """What `_meta` says. `columns` follows from `slots`."""

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
    """None where the file does not state one, which then has neither TTL nor encodings."""
    ttl: int = 0
    """How long rows are kept: hours, negative for months, 0 for ever."""
    reserved: bytes = bytes(79)
    """Header bytes 49 to 127, kept for versions that know them."""
    trailer: bytes = b""
    """Whatever follows the names, kept for versions that know it."""
    columns: tuple[MetadataColumn, ...] = field(init=False)
    """In dense order, the order that people see."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", _dense_columns(self.slots, has_encodings=self.has_encodings))

    @property
    def has_encodings(self) -> bool:
        """Whether the encoding words of the slots mean something."""
        return self.minor_version is not None and self.minor_version >= layout.FIRST_MINOR_VERSION_WITH_ENCODINGS

    @property
    def is_nanosecond(self) -> bool:
        """Whether the designated timestamp, and with it `_txn` and `_cv`, counts nanoseconds, not microseconds."""
        return self.designated_timestamp is not None and is_nanosecond(self.slots[self.designated_timestamp].type_code)


def parse_table_metadata(data: bytes | memoryview, *, path: str | None) -> TableMetadata:
    """Parse a `_meta` file.

    Args:
        data: The whole file.
        path: The file, for error messages.

    Raises:
        FormatError: `Truncated` or `InvalidValue`. Names that could lead out of the table's directory, such as
            `../x`, are such values: files are named after columns.
        UnsupportedError: Another version of the table format (kind `UnsupportedVersion`).
    """
    view = memoryview(data).cast("B")
    if len(view) < layout.HEADER.size:
        raise truncated("header", layout.HEADER.size, len(view), offset=0, path=path)
    (
        slot_count,
        interval_code,
        designated,
        version,
        table_id,
        max_uncommitted_rows,
        o3_max_lag_us,
        metadata_version,
        wal_enabled,
        minor_version_word,
        ttl,
        reserved,
    ) = layout.HEADER.unpack_from(view)
    if version != layout.TABLE_VERSION:
        raise UnsupportedError(
            f"the table has format version {version}; this library reads {layout.TABLE_VERSION}, as QuestDB 9 writes it:"
            " open the table once with such a version, which migrates it",
            kind="UnsupportedVersion",
            path=path,
            offset=layout.HEADER_OFFSETS["version"],
            field="version",
            expected=layout.TABLE_VERSION,
        )
    try:
        interval = PartitionInterval(interval_code)
    except ValueError:
        message = f"interval {interval_code} is none of DAY 0, MONTH 1, YEAR 2, NONE 3, HOUR 4, WEEK 5"
        raise invalid(message, offset=layout.HEADER_OFFSETS["interval"], field="interval", path=path) from None
    slots, names_stop = _parse_slots(view, slot_count, path)
    _check_designated(designated, interval, slots, path)
    minor_version = layout.minor_version_of(minor_version_word, metadata_version, slot_count)
    return TableMetadata(
        interval=interval,
        designated_timestamp=None if designated == layout.NO_DESIGNATED_TIMESTAMP else designated,
        table_id=table_id,
        metadata_version=metadata_version,
        wal_enabled=wal_enabled,
        slots=slots,
        max_uncommitted_rows=max_uncommitted_rows,
        o3_max_lag_us=o3_max_lag_us,
        minor_version=minor_version,
        ttl=0 if minor_version is None else ttl,
        reserved=reserved,
        trailer=bytes(view[names_stop:]),
    )


def _parse_slots(view: memoryview, count: int, path: str | None) -> tuple[tuple[MetadataSlot, ...], int]:
    """Parse slots and names; return where the names end."""
    if count < 0:
        raise invalid(f"{count} columns", offset=layout.HEADER_OFFSETS["slot_count"], field="slot_count", path=path)
    names_start = layout.slot_offset(count)
    if names_start > len(view):
        raise truncated(f"{count} columns", names_start, len(view), offset=layout.HEADER.size, path=path)
    slots: list[MetadataSlot] = []
    cursor = names_start
    for index in range(count):
        type_code, flags, block_capacity, symbol_capacity, encoding_word, replaced, reserved = layout.SLOT.unpack_from(
            view, layout.slot_offset(index)
        )
        name, name_stop = parse_name(
            view, cursor, longest_units=layout.LONGEST_NAME_UNITS, field="column name", path=path
        )
        slots.append(
            MetadataSlot(
                name=name,
                type_code=abs(type_code),
                is_dropped=type_code < 0,
                flags=flags,
                index_block_capacity=block_capacity,
                symbol_capacity=symbol_capacity,
                encoding_word=encoding_word,
                replaced_index=replaced - 1 if replaced else None,
                reserved=reserved,
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
            offset = layout.slot_offset(index) + layout.REPLACED_INDEX_OFFSET
            raise invalid(message, offset=offset, field="replaced_index", path=path)
        if slot.is_dropped:
            continue
        if slot.name in names_taken:
            message = f"two columns are named {slot.name!r}"
            raise invalid(message, offset=layout.slot_offset(index), field="column name", path=path)
        names_taken.add(slot.name)


def _check_designated(
    index: int, interval: PartitionInterval, slots: tuple[MetadataSlot, ...], path: str | None
) -> None:
    offset = layout.HEADER_OFFSETS["designated_timestamp"]
    if index == layout.NO_DESIGNATED_TIMESTAMP:
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
    """Return for every slot the slot whose place in the dense order it takes: its own, or that of its first ancestor."""
    places: list[int] = []
    for index, slot in enumerate(slots):
        replaced = slot.replaced_index
        # Anything else is no replacement but what an old version left in these bytes.
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
                is_indexed=bool(slot.flags & layout.INDEXED_FLAG),
                is_dedup_key=bool(slot.flags & layout.DEDUP_KEY_FLAG),
                symbol_capacity=slot.symbol_capacity if is_symbol else None,
                is_symbol_cached=is_symbol and bool(slot.flags & layout.SYMBOL_CACHE_FLAG),
                encoding_config=parse_encoding_word(slot.encoding_word) if has_encodings else None,
                superseded=tuple(
                    SupersededColumn(writer_index=older, type_code=slots[older].type_code)
                    for older in reversed(superseded)
                ),
                symbol_index=symbol_indexes.get(newest),
            )
        )
    return tuple(columns)
