"""The options of ``df.write.format("coldparquet")``: names, what they take, and what of the library they stand for.

| option | meaning |
|---|---|
| ``path`` (the argument of ``save``) | the table's directory |
| ``timestamp`` | the designated timestamp; needed for a new table |
| ``partition_by`` | ``HOUR``, ``DAY`` (default for a new table), ``WEEK``, ``MONTH`` or ``YEAR`` |
| ``symbols`` | names with commas between them: text columns of a new table that become SYMBOL |
| ``types`` | JSON object: QuestDB types of columns of a new table, where not the usual ones, as in ``{"id": "UUID"}`` |
| ``if_exists`` | ``append`` (default), ``error`` or ``ignore``; with ``mode("append")``, because Spark offers Python sources no other modes than that and ``overwrite`` |
| ``clustered`` | ``true``: all rows of a partition are in one task, so that nothing has to be joined; ``coldparquet.spark.write`` sees to that |
| ``codec``, ``codec_level``, ``row_group_rows``, ``page_rows``, ``pages``, ``bloom_columns`` | those of :class:`coldparquet.write.WriteOptions` |
| ``memory_limit`` | rows that wait to be sorted in each task: 256MiB |
| ``max_attempts``, ``credentials``, ``storage_options``, ``storage.KEY`` | as for reading |
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coldparquet.errors import InvalidInputError
from coldparquet.spark.options import SourceOptions
from coldparquet.write.options import WriteOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coldparquet.options import StoreOptions
    from coldparquet.spark.credentials import Credentials
    from coldparquet.write.begin_write import WriteMode

WRITER_OPTIONS = frozenset(
    {
        "bloom_columns",
        "clustered",
        "codec",
        "codec_level",
        "if_exists",
        "page_rows",
        "pages",
        "partition_by",
        "row_group_rows",
        "symbols",
        "timestamp",
        "types",
    }
)
"""Names in lower case; the others are those of :mod:`coldparquet.spark.options`."""

_IF_EXISTS: dict[str, WriteMode] = {"append": "append", "error": "error", "ignore": "ignore"}


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterOptions:
    """What a person asked the writer for."""

    url: str
    mode: WriteMode
    timestamp: str | None
    partition_by: str | None
    symbols: tuple[str, ...]
    types: Mapping[str, str]
    is_clustered: bool
    write_options: WriteOptions
    memory_limit_bytes: int
    store_options: StoreOptions
    credentials: Credentials

    @classmethod
    def parse(cls, options: Mapping[str, str], *, overwrite: bool) -> WriterOptions:
        """Understand the options of a write.

        Args:
            options: As Spark hands them over.
            overwrite: Whether the mode is ``overwrite``.

        Raises:
            InvalidInputError: No table or several are named, an option is unknown, or its value is none that it takes (kind
                ``InvalidOption``).
        """
        source = SourceOptions.parse(options, also=WRITER_OPTIONS)
        if len(source.urls) != 1:
            raise InvalidInputError(
                f"{len(source.urls)} tables are named; rows are written to one", kind="InvalidOption"
            )
        given = {name.lower(): value for name, value in options.items()}
        if_exists = given.get("if_exists", "append")
        if if_exists not in _IF_EXISTS:
            raise _wrong("if_exists", if_exists, f"use one of {', '.join(_IF_EXISTS)}")
        write_options: dict[str, Any] = {name: _whole(name, given[name]) for name in _WHOLE if name in given}
        if "codec" in given:
            write_options["codec"] = given["codec"]
        return cls(
            url=source.urls[0],
            mode="overwrite" if overwrite else _IF_EXISTS[if_exists],
            timestamp=given.get("timestamp"),
            partition_by=given.get("partition_by"),
            symbols=_names(given.get("symbols", "")),
            types=_types(given.get("types", "{}")),
            is_clustered=_truth("clustered", given.get("clustered", "false")),
            write_options=WriteOptions(
                pages=_truth("pages", given.get("pages", "false")),
                bloom_columns=_names(given.get("bloom_columns", "")),
                **write_options,
            ),
            memory_limit_bytes=source.read_options.memory_limit_bytes,
            store_options=source.store_options,
            credentials=source.credentials,
        )

    def access(self) -> dict[str, Any]:
        """Return how to reach the store, resolved in this process, as the functions of the library take it."""
        return {"storage_options": self.credentials.storage_options(), "store_options": self.store_options}


_WHOLE = ("codec_level", "row_group_rows", "page_rows")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for part in text.split(",") if (name := part.strip()))


def _whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise _wrong(name, text, "it must be a whole number") from None


def _truth(name: str, text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise _wrong(name, text, "it must be true or false")
    return text.lower() == "true"


def _types(text: str) -> dict[str, str]:
    try:
        types = json.loads(text)
    except ValueError:
        types = None
    if not isinstance(types, dict) or not all(isinstance(type_name, str) for type_name in types.values()):
        raise _wrong("types", text, 'it must be a JSON object such as {"id": "UUID"}')
    return types


def _wrong(name: str, text: str, advice: str) -> InvalidInputError:
    return InvalidInputError(f"the option {name} is {text!r}; {advice}", kind="InvalidOption", option=name)
