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
| ``max_attempts``, ``credentials``, ``secret_options``, ``storage_options``, ``storage.KEY`` | as for reading |

Names are the same in letters of any case; an unknown one is refused, those of reading too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from coldparquet.errors import InvalidInputError
from coldparquet.options import StoreOptions, parse_byte_count
from coldparquet.spark.credentials import Credentials
from coldparquet.spark.options import OptionReading, column_names, one_of, table_urls, truth, whole_number
from coldparquet.write.begin import MEMORY_LIMIT_BYTES, WriteMode
from coldparquet.write.options import WriteOptions

if TYPE_CHECKING:
    from collections.abc import Mapping


_OPTIONS = frozenset(
    """
    bloom_columns clustered codec codec_level credentials if_exists max_attempts memory_limit page_rows pages partition_by path
    paths row_group_rows secret_options storage_options symbols timestamp types
    """.split()  # noqa: SIM905 - twenty quoted words, one per line, would be harder to read
)


_IF_EXISTS = tuple(mode for mode in get_args(WriteMode) if mode != "overwrite")
"""``overwrite`` is Spark's own mode."""


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
        """Understand the options of a write."""
        read = OptionReading(options)
        read.refuse_unknown(_OPTIONS)
        urls = table_urls(read)
        if len(urls) != 1:
            raise InvalidInputError(f"{len(urls)} tables are named; rows are written to one", kind="InvalidOption")
        if_exists: WriteMode = read.one("if_exists", one_of(*_IF_EXISTS)) or "append"
        return cls(
            url=urls[0],
            mode="overwrite" if overwrite else if_exists,
            timestamp=read.one("timestamp", str),
            partition_by=read.one("partition_by", str),
            symbols=read.one("symbols", column_names) or (),
            types=read.one("types", _types) or {},
            is_clustered=read.one("clustered", truth) or False,
            write_options=WriteOptions(
                **read.keywords(
                    codec=("codec", str),
                    codec_level=("codec_level", whole_number),
                    row_group_rows=("row_group_rows", whole_number),
                    page_rows=("page_rows", whole_number),
                    pages=("pages", truth),
                    bloom_columns=("bloom_columns", column_names),
                )
            ),
            memory_limit_bytes=read.one("memory_limit", parse_byte_count) or MEMORY_LIMIT_BYTES,
            store_options=StoreOptions(**read.keywords(max_attempts=("max_attempts", whole_number))),
            credentials=Credentials.parse(read.given),
        )

    def access(self) -> dict[str, Any]:
        """Return how to reach the store, resolved in this process, as the functions of the library take it."""
        return {"storage_options": self.credentials.storage_options(), "store_options": self.store_options}


def _types(text: str) -> dict[str, str]:
    try:
        types = json.loads(text)
    except ValueError:
        types = None
    if not isinstance(types, dict) or not all(isinstance(type_name, str) for type_name in types.values()):
        raise ValueError('it must be a JSON object such as {"id": "UUID"}')
    return types
