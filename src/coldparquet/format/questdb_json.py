"""What QuestDB writes about its columns into the footer of its Parquet files: JSON under the key ``questdb``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from coldparquet.errors import FormatError, InvalidInputError, UnsupportedError
from coldparquet.format.type_codes import tag_of

VERSION = 1
FORMAT_LOCAL_KEY_IS_GLOBAL = 1
"""The only ``format`` of a column: its dictionary page is indexed by the table-wide symbol keys."""

_I32 = range(-(1 << 31), 1 << 31)
_I64 = range(-(1 << 63), 1 << 63)
_U64 = range(1 << 64)
_UNSET = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestdbColumn:
    """One column, by its position in the file."""

    type_code: int
    id: int | None
    """Writer index of the column in its table; None where the writer did not tell."""
    local_key_is_global: bool
    """SYMBOL: entry k of the dictionary page is symbol k of the table."""
    is_ascii: bool | None
    """VARCHAR: whether every value is ASCII; None where the writer did not tell."""
    column_top: int = 0
    """Rows at the start that were written before the column was added; only a remark, their pages are there."""
    not_null: bool = False
    """The column is declared NOT NULL, whatever its repetition in the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestdbMetadata:
    """What the JSON says."""

    columns: tuple[QuestdbColumn, ...]
    unused_bytes: int
    """Dead bytes in the file, left by row groups that were replaced in place."""
    squash_tracker: int | None
    seq_txn: int | None


def encode_questdb_json(metadata: QuestdbMetadata) -> str:
    """Write the JSON as QuestDB writes it: its keys, in its order, without those that say nothing.

    Raises:
        InvalidInputError: A number is out of its range (kind ``InvalidValue``).
    """
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
    """Parse QuestDB's JSON. Keys that it may get in later versions are ignored.

    Args:
        text: The value under the key ``questdb``.
        column_count: Number of leaf columns of the file, which the JSON must describe one by one.
        path: The file, for error messages.

    Raises:
        FormatError: It is not JSON of version 1, or a column has an unknown type (kind ``Conversion``), or it
            describes another number of columns (kind ``SchemaMismatch``).
    """
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
