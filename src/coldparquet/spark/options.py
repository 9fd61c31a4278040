"""The options of the data source: names, what they take, and the settings of the library that they stand for.

| option | meaning |
|---|---|
| ``path`` (the argument of ``load``) | table, or several with commas between them; ``*``, ``?`` and ``[ab]`` stand for names of directories |
| ``paths`` | a JSON list of such URLs, for names that hold a comma; Spark sets it where ``load`` gets a list |
| ``columns`` | names with commas between them, or a JSON list: only these are read; an empty one reads no column, but counts rows |
| ``where`` | SQL text; also what Spark does not push, such as OR, but no functions. NaN counts as the library has it, see ``coldparquet.plan.predicate`` |
| ``push_filters`` | ``true`` takes filters over from Spark, see :class:`coldparquet.spark.source.DefaultSource` for when that is safe; default ``false`` |
| ``nanoseconds`` | ``timestamp`` (default; cut to microseconds) or ``long``: what becomes of TIMESTAMP_NS |
| ``pieces`` | most tasks of a scan; by default one for each 128 MiB of compressed and decoded bytes, of more than 16 GiB fewer and larger ones (1 TiB: 1,024). ``coldparquet.spark.read`` makes at most 3 per core, which Spark does not let a data source know: 3 * spark.sparkContext.defaultParallelism does so here |
| ``goal`` | ``fast``, ``cheap``, ``few-requests`` or ``few-bytes`` |
| ``memory_limit`` | of a task: 256MiB |
| ``max_concurrency`` | requests in flight at once, in each task |
| ``batch_rows`` | most rows of a batch |
| ``max_bytes``, ``max_requests``, ``max_usd`` | a scan that needs more is refused on the driver |
| ``prices`` | JSON file with what the store charges, read on the driver |
| ``archived`` | ``refuse``, ``skip`` or ``restore`` partitions in an archive class |
| ``unread`` | ``refuse`` a table beside whose partitions lie Parquet files that are not read, or ``skip`` these files |
| ``columns_from`` | ``newest`` or ``all``: which partitions say what columns a table without ``_meta`` has |
| ``sidecars`` | ``false`` plans from Parquet footers, for tables with damaged sidecars; default ``true`` |
| ``restore_tier``, ``restore_days``, ``restore_wait`` | how to restore them |
| ``cache_directory`` | where the driver keeps sidecars between runs; tasks keep nothing |
| ``max_attempts`` | how often a request may fail in a row |
| ``credentials``, ``secret_options``, ``storage_options``, ``storage.KEY`` | see :mod:`coldparquet.spark.credentials` |

Names are the same in letters of any case; an unknown one is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from coldparquet.byte_sizes import parse_byte_count
from coldparquet.errors import InvalidInputError
from coldparquet.options import ReadOptions, RestoreTerms, StoreOptions
from coldparquet.prices import PriceTable
from coldparquet.spark.credentials import Credentials
from coldparquet.spark.option_reading import (
    OptionReading,
    column_names,
    list_of_texts,
    number,
    one_of,
    positive_count,
    truth,
    whole_number,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

NanosecondsAs: TypeAlias = Literal["timestamp", "long"]
"""TIMESTAMP_NS: as Spark's timestamp, cut to microseconds, or as nanoseconds since 1970."""

_ALTERNATIVES = re.compile(r"\{[^}]*,")
"""What shells and Spark's own readers take braces for; here the comma ends a URL."""

_OPTIONS = frozenset(
    """
    archived batch_rows cache_directory columns columns_from credentials goal max_attempts max_bytes max_concurrency
    max_requests max_usd memory_limit nanoseconds path paths pieces prices push_filters restore_days restore_tier restore_wait
    secret_options sidecars storage_options unread where
    """.split()  # noqa: SIM905 - twenty quoted words, one per line, would be harder to read
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What a person asked the data source for."""

    urls: tuple[str, ...]
    """Tables, and patterns of tables, as they were given."""
    columns: tuple[str, ...] | None
    """None for all; an empty tuple for none."""
    where: str | None
    push_filters: bool
    nanoseconds: NanosecondsAs
    most_pieces: int | None
    """None leaves it to the size of the scan."""
    read_options: ReadOptions
    store_options: StoreOptions
    credentials: Credentials

    @classmethod
    def parse(cls, options: Mapping[str, str], *, also: frozenset[str] = frozenset()) -> SourceOptions:
        """Understand the options of a data source. Nothing is opened but the file of ``prices``.

        Args:
            options: As Spark hands them over.
            also: Names, in lower case, that somebody else understands.

        Raises:
            InvalidInputError: No table is named, an option is unknown, or its value is none that it takes (kind
                ``InvalidOption``).
            NotFoundError: There is no such price table.
        """
        read = OptionReading(options)
        read.refuse_unknown(_OPTIONS | also)
        restore = RestoreTerms(
            **read.keywords(
                tier=("restore_tier", str), days=("restore_days", whole_number), wait=("restore_wait", truth)
            )
        )
        return cls(
            urls=table_urls(read),
            columns=read.one("columns", column_names),
            where=read.one("where", str),
            push_filters=read.one("push_filters", truth) or False,
            nanoseconds=read.one("nanoseconds", one_of(*get_args(NanosecondsAs))) or "timestamp",
            most_pieces=read.one("pieces", positive_count),
            read_options=ReadOptions(
                # Spark's strings are no dictionaries: making some of the pages' would be work for nothing.
                symbols="string",
                restore=restore,
                **read.keywords(
                    goal=("goal", str),
                    memory_limit_bytes=("memory_limit", parse_byte_count),
                    max_concurrency=("max_concurrency", whole_number),
                    batch_rows=("batch_rows", whole_number),
                    max_bytes=("max_bytes", parse_byte_count),
                    max_requests=("max_requests", whole_number),
                    max_usd=("max_usd", number),
                    prices=("prices", PriceTable.read),
                    archived=("archived", str),
                    unread=("unread", str),
                    columns_from=("columns_from", str),
                    sidecars=("sidecars", truth),
                ),
            ),
            store_options=StoreOptions(
                **read.keywords(cache_directory=("cache_directory", str), max_attempts=("max_attempts", whole_number))
            ),
            credentials=Credentials.parse(read.given),
        )


def table_urls(read: OptionReading) -> tuple[str, ...]:
    """Return the tables that are named by the options ``path`` (commas between them) and ``paths`` (a JSON list).

    Raises:
        InvalidInputError: There is none, ``path`` holds alternatives in braces, or ``paths`` is no list of texts (kind
            ``InvalidOption``).
    """
    path = read.given.get("path", "")
    if _ALTERNATIVES.search(path):
        raise InvalidInputError(
            "a path such as {trades,quotes} names no tables: commas stand between URLs; write each of them out, or use *, ? and"
            " [ab]. A URL with braces and a comma in it goes into the option paths, a JSON list",
            kind="InvalidOption",
            option="path",
        )
    urls = [part.strip() for part in path.split(",")]
    urls += read.one("paths", list_of_texts) or ()
    found = tuple(dict.fromkeys(url for url in urls if url))
    if not found:
        raise InvalidInputError(
            'no table is named: spark.read.format("coldparquet").load("s3://bucket/db/trades")', kind="InvalidOption"
        )
    return found
