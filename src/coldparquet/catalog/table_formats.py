"""Finds the live files of tables of Delta and Iceberg, whose logs alone tell which files count.

The packages ``deltalake`` and ``pyiceberg`` read the logs, with requests of their own that are in no request log of ours. What
they return is read as it lies; tables that need more than a list of files are refused: deletion vectors and delete files,
columns with other names in the files.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import unquote

import pyarrow as pa
from msgspec import Struct

from coldparquet.catalog.hive_keys import KeyColumn, KeyKind
from coldparquet.errors import (
    AccessError,
    ColdParquetError,
    FormatError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from coldparquet.storage.fsspec_store import without_secrets

if TYPE_CHECKING:
    from collections.abc import Mapping

TableFormat: TypeAlias = Literal["delta", "iceberg"]

_EPOCH_TYPES = {pa.date32(): KeyKind.DATE, pa.timestamp("us"): KeyKind.TIMESTAMP}
_KNOWN_DELTA_FEATURES = frozenset({"timestampNtz", "typeWidening", "v2Checkpoint", "vacuumProtocolCheck"})
"""Features for readers with which the live files are still the rows; all others are refused."""
_LATEST_DELTA_READER = 3
_LATEST_ICEBERG = 2
_DELTA_OPTIONS = {
    "key": "AWS_ACCESS_KEY_ID",
    "secret": "AWS_SECRET_ACCESS_KEY",
    "token": "AWS_SESSION_TOKEN",
    "endpoint_url": "AWS_ENDPOINT_URL",
    "region": "AWS_REGION",
}
_ICEBERG_OPTIONS = {
    "key": "s3.access-key-id",
    "secret": "s3.secret-access-key",
    "token": "s3.session-token",
    "endpoint_url": "s3.endpoint",
    "region": "s3.region",
}
"""Names of our storage options in the two packages; other options are the environment's."""


class LiveFiles(Struct, frozen=True, kw_only=True):
    """The files of one version of a table."""

    keys: Mapping[str, tuple[KeyColumn, ...]]
    """By the path of each file below the table: its partition values, where the file lacks them."""
    version: str
    """Which version it is, for people."""


def read_live_files(url: str, table_format: TableFormat, storage_options: Mapping[str, Any]) -> LiveFiles:
    """Read the log of a table. Blocks; requests are those of the package.

    Raises:
        InvalidInputError: The package is not installed.
        NotFoundError: There is no such table.
        UnsupportedError: Its files alone are not its rows.
    """
    package = {"delta": "deltalake", "iceberg": "pyiceberg"}[table_format]
    if find_spec(package) is None:
        raise InvalidInputError(
            f"the log of a {table_format} table is read with {package}, which is not installed: pip install"
            f" 'coldparquet[{table_format}]'",
            kind="MissingPackage",
            path=url,
        )
    read = _read_delta if table_format == "delta" else _read_iceberg
    place = url.rstrip("/") if "://" in url else os.path.realpath(url)
    try:
        return read(place, storage_options)
    except ColdParquetError:
        raise
    except PermissionError as error:
        raise AccessError(f"{package} may not read the log: {_reason(error)}", path=url) from None
    except ImportError as error:
        raise InvalidInputError(f"{package} lacks a package: {error}", kind="MissingPackage", path=url) from error
    except Exception as error:  # noqa: BLE001 - of two packages and the clients below them
        raise StorageError(f"{package} cannot read the log: {_reason(error)}", kind="UnreadableLog", path=url) from None


def _reason(error: Exception) -> str:
    """Return what a package says, up to an answer of a store, which may hold parts of a signature."""
    text = " ".join(without_secrets(str(error)).partition("<")[0].split())
    return f"{type(error).__name__}: {text[:_LONGEST_REASON]}"


_LONGEST_REASON = 300


def _given(storage_options: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, str]:
    nested = storage_options.get("client_kwargs") or {}
    given = {"endpoint_url": nested.get("endpoint_url"), "region": nested.get("region_name"), **storage_options}
    return {names[name]: str(value) for name, value in given.items() if name in names and value is not None}


def _read_delta(url: str, storage_options: Mapping[str, Any]) -> LiveFiles:
    deltalake = import_module("deltalake")
    options = _given(storage_options, _DELTA_OPTIONS)
    if options.get("AWS_ENDPOINT_URL", "").startswith("http://"):
        options["AWS_ALLOW_HTTP"] = "true"
    try:
        table = deltalake.DeltaTable(url, storage_options=options)
        protocol, configuration = table.protocol(), table.metadata().configuration
        uris, actions = table.file_uris(), pa.table(table.get_add_actions(flatten=True))
    except deltalake.exceptions.TableNotFoundError as error:
        raise NotFoundError("there is no Delta table here", path=url) from error
    unknown = {*(protocol.reader_features or ())} - _KNOWN_DELTA_FEATURES
    has_other_names = configuration.get("delta.columnMapping.mode", "none") != "none"
    if unknown or has_other_names or protocol.min_reader_version > _LATEST_DELTA_READER:
        why = f"features {', '.join(sorted(unknown))}" if unknown else "columns of other names, or a newer version"
        raise UnsupportedError(
            f"this Delta table has {why}, such as deletion vectors, so that its files may not be its rows; read it with a reader"
            " of Delta, or rewrite it without",
            kind="TableFeature",
            path=url,
        )
    columns = [name for name in actions.column_names if name.startswith("partition.")]
    paths: list[Any] = actions.column("path").to_pylist()
    numbers = {path: number for number, path in enumerate(paths)} | {
        unquote(path): number for number, path in enumerate(paths)
    }
    values = {
        name.removeprefix("partition."): _kind_and_values(actions.column(name), name.removeprefix("partition."), url)
        for name in columns
    }
    keys = {}
    for uri in uris:
        name = _below(uri, url)
        number = numbers.get(name)
        if number is None:
            raise FormatError(f"deltalake lists {name}, and tells nothing of it", kind="ContradictoryLog", path=url)
        keys[name] = tuple(KeyColumn(column, kind, of_column[number]) for column, (kind, of_column) in values.items())
    return LiveFiles(keys=keys, version=f"version {table.version():,} of a Delta table")


def _kind_and_values(column: pa.ChunkedArray[Any], name: str, url: str) -> tuple[KeyKind, list[int | bytes | None]]:
    type_ = column.type
    if pa.types.is_integer(type_):
        return KeyKind.LONG if type_.bit_width == 64 else KeyKind.INT, column.to_pylist()
    if pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return KeyKind.TEXT, [None if text is None else text.encode() for text in column.to_pylist()]
    kind = _EPOCH_TYPES.get(type_)
    if kind is None:
        raise UnsupportedError(
            f"its partition column {name!r} is of the type {type_}; only integers, text, dates and times without a zone are read",
            kind="PartitionType",
            path=url,
            column=name,
        )
    numbers: Any = column.cast(pa.int32() if kind is KeyKind.DATE else pa.int64())
    return kind, numbers.to_pylist()


def _read_iceberg(url: str, storage_options: Mapping[str, Any]) -> LiveFiles:
    tables, exceptions = import_module("pyiceberg.table"), import_module("pyiceberg.exceptions")
    properties = _given(storage_options, _ICEBERG_OPTIONS)
    location = _newest_metadata(url, storage_options)
    try:
        table = tables.StaticTable.from_metadata(location, properties)
    except (exceptions.NoSuchTableError, FileNotFoundError) as error:
        raise NotFoundError("there is no Iceberg table here", path=url) from error
    tasks = list(table.scan().plan_files())
    names: dict[int, set[str]] = {}
    for schema in table.schemas().values():
        for field_id in schema.field_ids:  # those inside structs, too
            names.setdefault(field_id, set()).add(schema.find_column_name(field_id))
    ids = Counter(name for of_field in names.values() for name in of_field)
    places = {task.file.spec_id: _identity_places(table.specs()[task.file.spec_id]) for task in tasks}
    mapping = json.loads(table.properties.get("schema.name-mapping.default", "[]"))
    types = import_module("pyiceberg.io.pyarrow").schema_to_pyarrow(table.schema())
    if (
        table.metadata.format_version > _LATEST_ICEBERG
        or any(task.delete_files for task in tasks)
        or any(len(found) > 1 for found in names.values())
        or any(count > 1 for count in ids.values())
        or any(len(entry["names"]) > 1 for entry in mapping)
        or len({frozenset(of_spec) for of_spec in places.values()}) > 1
        or any(
            table.schema().find_column_name(source) not in types.names
            for of_spec in places.values()
            for source in of_spec
        )
    ):
        raise UnsupportedError(
            "this Iceberg table has delete files, columns that were renamed or added again, partition columns by value that are nested or in some of its files only, or a newer"
            " format, so that its files may not be its rows; read it with a reader of Iceberg, or rewrite it",
            kind="TableFeature",
            path=url,
        )
    values = []
    for source_id in next(iter(places.values()), {}):
        name = table.schema().find_column_name(source_id)
        of_files = [task.file.partition[places[task.file.spec_id][source_id]] for task in tasks]
        values.append((name, *_kind_and_values(pa.chunked_array([of_files], types.field(name).type), name, url)))
    return LiveFiles(
        keys={
            _below(task.file.file_path, url): tuple(
                KeyColumn(name, kind, found[number]) for name, kind, found in values
            )
            for number, task in enumerate(tasks)
        },
        version=f"snapshot {table.metadata.current_snapshot_id} of an Iceberg table",
    )


def _identity_places(spec: Any) -> dict[int, int]:
    """Return where the partition of a file holds the values of columns, by their ids: files may lack these columns."""
    return {field.source_id: place for place, field in enumerate(spec.fields) if str(field.transform) == "identity"}


def _newest_metadata(url: str, storage_options: Mapping[str, Any]) -> str:
    """Return the metadata file that ``version-hint.text`` names, else the one with the largest number."""
    filesystems = import_module("fsspec.core")
    filesystem, path = filesystems.url_to_fs(f"{url}/metadata", **storage_options)
    try:
        names = [entry.rpartition("/")[2] for entry in filesystem.ls(path, detail=False)]
    except FileNotFoundError:
        names = []
    numbered = [name for name in names if name.endswith(".metadata.json") and _number(name) >= 0]
    if not numbered:
        raise NotFoundError("there is no metadata of Iceberg here: expected metadata/00001-....metadata.json", path=url)
    newest = max(map(_number, numbered))
    if "version-hint.text" in names:
        hint = filesystem.cat_file(f"{path}/version-hint.text").decode().strip()
        newest = int(hint) if hint.isdecimal() else newest
    found = [name for name in numbered if _number(name) == newest]
    if len(found) != 1:
        raise UnsupportedError(
            f"{len(found)} metadata files have the number {newest}, and only the table's catalog could tell which one counts; read it"
            " with a reader that asks the catalog",
            kind="AmbiguousMetadata",
            path=url,
        )
    return f"{url}/metadata/{found[0]}"


def _number(name: str) -> int:
    digits = name.removeprefix("v").split(".")[0].split("-")[0]
    return int(digits) if digits.isdecimal() else -1


def _below(uri: str, url: str) -> str:
    """Return the path of a file below its table."""
    file, table = (text.partition("://")[2] if "://" in text else text for text in (uri, url))
    name = file.removeprefix(f"{table.rstrip('/')}/")
    if name == file:
        raise UnsupportedError(
            f"its file {uri} does not lie below the table, so it is not read; open the table at the place that its log names",
            kind="FilesElsewhere",
            path=url,
        )
    return name
