"""Parses the paths of foreign layouts: Hive directories such as ``date=2024-03-01`` or ``year=2024/month=3``.

A directory ``key=value`` states the value of a column, the key, for all rows below it. Values are URL-encoded.
``__HIVE_DEFAULT_PARTITION__`` and an empty value are NULL. A key has the first of these types that all of its values have:
DATE (``2024-03-01``), TIMESTAMP (``2024-03-01 12:00:00``), LONG (``7``, ``007``), text; so do DuckDB and Spark. Users may
give it another one, INT among them.

Keys become columns of the sidecar that describes a file: with chunks of no bytes, whose bounds are their one value. So
pruning, metadata answers and decoding need to know nothing of keys.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote_to_bytes

import numpy as np
from msgspec import Struct

from coldparquet.errors import FormatError, UnsupportedError
from coldparquet.format.partition_names import DAY_NS, HOUR_NS, day_start_ns
from coldparquet.format.sidecar_from_footer import split_annotations
from coldparquet.format.sidecar_header import ScratchpadEntry
from coldparquet.format.sidecar_layout import Codec, PhysicalType, Repetition, column_flags
from coldparquet.format.sidecar_writer import BoundSpec, ChunkSpec, ColumnSpec, RowGroupSpec
from coldparquet.format.type_codes import TypeTag
from coldparquet.format.types import (
    FOREIGN_ANNOTATIONS_CODE,
    ForeignAnnotation,
    encode_foreign_annotations,
    resolve_type,
)
from coldparquet.plan.bind import BoundField
from coldparquet.plan.statistics import SidecarStatistics
from coldparquet.records import replace

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coldparquet.format.sidecar import Sidecar
    from coldparquet.format.sidecar_writer import SidecarContent
    from coldparquet.format.types import ColumnType

KEY_CONTRADICTION = "KeyContradiction"
"""Kind of the error about a file with other values than its path states."""

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
_INTEGER = re.compile(r"-?\d{1,30}", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_HOUR = 23

KeyValue: TypeAlias = int | bytes | None
"""Days since 1970, microseconds since 1970, a number, UTF-8, or NULL."""


class KeyKind(StrEnum):
    """Type of the column that a key makes; see ``ReadOptions.keys``."""

    DATE = "date"
    TIMESTAMP = "timestamp"
    INT = "int32"
    LONG = "int64"
    TEXT = "text"


_INTEGERS = {KeyKind.INT: range(-(1 << 31), 1 << 31), KeyKind.LONG: range(-(1 << 63), 1 << 63)}


class KeyColumn(Struct, frozen=True):
    """One key of a file's path, as a column of one value."""

    name: str
    kind: KeyKind
    value: KeyValue


def key_as_data(key: KeyColumn) -> list[Any]:
    """Return a key as JSON can hold it."""
    value = key.value.decode() if isinstance(key.value, bytes) else key.value
    return [key.name, key.kind, value]


def key_from_data(data: Sequence[Any]) -> KeyColumn:
    """Return a key that :func:`key_as_data` has described."""
    name, kind, value = data
    return KeyColumn(name, KeyKind(kind), value.encode() if isinstance(value, str) else value)


def is_key_directory(name: str) -> bool:
    """Tell whether a directory's name is ``key=value``."""
    key, equals, _ = name.partition("=")
    return bool(key and equals) and not name.startswith(("_", "."))


def parse_keys(path: str) -> tuple[tuple[str, str | None], ...]:
    """Return keys and values of a file's path, relative to the table, in their order; None is NULL.

    Raises:
        UnsupportedError: A key occurs twice, or is not UTF-8.
    """
    found: dict[str, str | None] = {}
    for segment in path.split("/")[:-1]:
        if not is_key_directory(segment):
            continue
        key, _, value = segment.partition("=")
        key = _decoded(key, path)
        if key in found:
            raise UnsupportedError(
                f"the key {key!r} is twice in this path, so its value is not certain; open the directory below the first one",
                kind="RepeatedKey",
                path=path,
                key=key,
            )
        found[key] = None if value in {"", HIVE_NULL} else _decoded(value, path)
    return tuple(found.items())


def _decoded(text: str, path: str) -> str:
    try:
        return unquote_to_bytes(text.encode()).decode()
    except UnicodeError:
        raise UnsupportedError(
            f"the directory of this file states {text!r}, which is not UTF-8, so that its value is not known; rename it",
            kind="KeyEncoding",
            path=path,
        ) from None


def key_kind(values: Iterable[str | None]) -> KeyKind:
    """Return the type of a key that has these values, text if it has none."""
    known = [value for value in values if value is not None]
    kinds = (KeyKind.DATE, KeyKind.TIMESTAMP, KeyKind.LONG)
    fitting = [kind for kind in kinds if all(_parsed(kind, value) is not None for value in known)] if known else []
    is_mixed = fitting == [KeyKind.TIMESTAMP] and any(_DATE.fullmatch(value) for value in known)
    if fitting and not is_mixed:
        return fitting[0]
    return KeyKind.TEXT


def key_value(kind: KeyKind, value: str | None) -> KeyValue:
    """Return the value of a key of the type that :func:`key_kind` found."""
    return None if value is None else _parsed(kind, value)


def stated_day_ns(keys: Sequence[KeyColumn]) -> tuple[int, int] | None:
    """Return the day or hour that keys name, in nanoseconds since 1970; None where they name none. Rows may be of other times."""
    numbers = {key.name.lower(): key.value for key in keys if key.kind in _INTEGERS and isinstance(key.value, int)}
    days = [key.value for key in keys if key.kind is KeyKind.DATE and isinstance(key.value, int)]
    if days:
        start_ns = days[0] * DAY_NS
    elif {"year", "month", "day"} <= numbers.keys():
        try:
            start_ns = day_start_ns(date(numbers["year"], numbers["month"], numbers["day"]).toordinal())
        except (ValueError, OverflowError):
            return None
    else:
        return None
    hour = numbers.get("hour", -1)
    if not 0 <= hour <= _LAST_HOUR:
        return start_ns, start_ns + DAY_NS
    return start_ns + hour * HOUR_NS, start_ns + (hour + 1) * HOUR_NS


def _parsed(kind: KeyKind, value: str) -> KeyValue:
    """Return a value of a type, None if it is not of this type."""
    if kind is KeyKind.TEXT:
        return value.encode()
    if kind in _INTEGERS:
        return int(value) if _INTEGER.fullmatch(value) and int(value) in _INTEGERS[kind] else None
    try:
        if kind is KeyKind.DATE:
            return (date.fromisoformat(value) - _EPOCH.date()).days if _DATE.fullmatch(value) else None
        if not _TIMESTAMP.fullmatch(value):
            return None
        since = datetime.fromisoformat(value).replace(tzinfo=UTC) - _EPOCH
    except ValueError:
        return None
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


_STORED_AS = {
    KeyKind.DATE: (TypeTag.DATE, PhysicalType.INT32, 4),
    KeyKind.TIMESTAMP: (TypeTag.TIMESTAMP, PhysicalType.INT64, 8),
    KeyKind.INT: (TypeTag.INT, PhysicalType.INT32, 4),
    KeyKind.LONG: (TypeTag.LONG, PhysicalType.INT64, 8),
    KeyKind.TEXT: (TypeTag.VARCHAR, PhysicalType.BYTE_ARRAY, None),
}
"""Type code, physical type, and bytes of a number."""


def with_key_columns(content: SidecarContent, keys: Sequence[KeyColumn]) -> SidecarContent:
    """Append the keys that a file lacks to the description of it."""
    own = {column.name for column in content.columns}
    added = [key for key in keys if key.name not in own]
    if not added:
        return content
    columns = [*content.columns]
    annotations: dict[int, str] = {}
    for key in added:
        type_code, physical_type, _ = _STORED_AS[key.kind]
        if key.kind is KeyKind.TIMESTAMP:
            annotations[len(columns)] = ForeignAnnotation.TIMESTAMP_MICROS_LOCAL
        columns.append(
            ColumnSpec(
                name=key.name,
                type_code=type_code,
                physical_type=physical_type,
                id=-1,
                flags=column_flags(repetition=Repetition.OPTIONAL),
                max_def_level=1,
            )
        )
    row_groups = [
        RowGroupSpec(
            row_count=group.row_count, chunks=[*group.chunks, *(_chunk(key, group.row_count) for key in added)]
        )
        for group in content.row_groups
    ]
    return replace(
        content, columns=columns, row_groups=row_groups, scratchpad=_annotated(content.scratchpad, annotations)
    )


def has_type_of_key(column_type: ColumnType, kind: KeyKind) -> bool:
    """Tell whether a column has the type that keys of a kind make, so that it compares as they do."""
    type_code, physical_type, _ = _STORED_AS[kind]
    annotation = ForeignAnnotation.TIMESTAMP_MICROS_LOCAL if kind is KeyKind.TIMESTAMP else None
    return column_type.arrow == resolve_type(type_code, physical_type, 0, 0, annotation).arrow


def _compares_as_key(column_type: ColumnType, kind: KeyKind) -> bool:
    is_integer = kind in _INTEGERS and column_type.arrow.name in {"int8", "int16", "int32", "int64"}
    return is_integer or has_type_of_key(column_type, kind)


def keys_without_columns(sidecar: Sidecar, keys: Sequence[KeyColumn]) -> frozenset[str]:
    """Return the names of the keys that a file does not have as columns of its own."""
    found = set()
    for key in keys:
        place = sidecar.column_index(key.name)
        if place is not None and not sidecar.chunks(place).has_bytes:
            found.add(key.name)
    return frozenset(found)


def describes_keys(sidecar: Sidecar, keys: Sequence[KeyColumn]) -> bool:
    """Tell whether a sidecar has a column of each key, of the key's type or, in the file itself, of any."""
    for key in keys:
        place = sidecar.column_index(key.name)
        if place is None:
            return False
        has_bytes = sidecar.row_group_count and sidecar.chunks(place).has_bytes
        if not has_bytes and not has_type_of_key(sidecar.column_type(place), key.kind):
            return False
    return True


def refuse_contradiction(sidecar: Sidecar, key: KeyColumn) -> None:
    """Refuse a file whose own column of a key's name may hold other values than its path states: by the key it is pruned."""
    place = sidecar.column_index(key.name)
    if place is None:
        return
    value = key.value
    if not _compares_as_key(sidecar.column_type(place), key.kind):
        # Text may spell a number or a time in other ways than the path does.
        if key.kind is not KeyKind.DATE or not has_type_of_key(sidecar.column_type(place), KeyKind.TEXT):
            return
        value = None if value is None else _shown(key).encode()
    field = BoundField(name=key.name, index=place, type=sidecar.column_type(place))
    bounds = SidecarStatistics(sidecar).bounds(field)
    is_right = sidecar.row_counts == 0
    if bounds is not None and value is None:
        is_right |= ~bounds.may_hold_values
    elif bounds is not None and value is not None and bounds.lower is not None and bounds.upper is not None:
        lower, upper = bounds.lower, bounds.upper
        is_only = lower.known & lower.at_or_above(value) & upper.known & ~upper.above(value)
        is_right |= is_only & ~bounds.may_hold_nulls
    wrong = np.flatnonzero(~is_right)
    if len(wrong):
        raise FormatError(
            f"its directory states {key.name} = {_shown(key)}, but its own column {key.name} has, or may have, other values in row group"
            f" {wrong[0]}: such rows would be pruned by the directory; move the file to the directory of its values, or write it"
            " without that column",
            kind=KEY_CONTRADICTION,
            path=sidecar.path,
            column=key.name,
            row_group=int(wrong[0]),
        )


def _shown(key: KeyColumn) -> str:
    """Return the value of a key as a path states it."""
    if isinstance(key.value, int) and key.kind in {KeyKind.DATE, KeyKind.TIMESTAMP}:
        return str(np.array(key.value, "datetime64[D]" if key.kind is KeyKind.DATE else "datetime64[us]"))
    return "NULL" if key.value is None else key.value.decode() if isinstance(key.value, bytes) else str(key.value)


def _chunk(key: KeyColumn, row_count: int) -> ChunkSpec:
    width = _STORED_AS[key.kind][2]
    value = key.value.to_bytes(width or 0, "little", signed=True) if isinstance(key.value, int) else key.value
    bound = None if value is None else BoundSpec(value, exact=True)
    return ChunkSpec(
        codec=Codec.UNCOMPRESSED,
        encodings=0,
        num_values=row_count,
        byte_range_start=0,
        total_compressed_bytes=0,
        null_count=row_count if value is None else 0,
        min=bound,
        max=bound,
    )


def _annotated(scratchpad: Sequence[ScratchpadEntry], annotations: dict[int, str]) -> Sequence[ScratchpadEntry]:
    if not annotations:
        return scratchpad
    known, others = split_annotations(scratchpad)
    return [*others, ScratchpadEntry(FOREIGN_ANNOTATIONS_CODE, encode_foreign_annotations(known | annotations))]
