"""The options of the data source, and of its streams: names, what they take, and what they stand for.

| option | meaning |
|---|---|
| ``path`` (the argument of ``load``) | table, or several, separated by commas; ``*``, ``?`` and ``[ab]`` match names of directories |
| ``paths`` | a JSON list of such URLs, for names that hold a comma; Spark sets it where ``load`` gets a list |
| ``columns`` | names, separated by commas, or a JSON list: only these are read; an empty one reads no column, but counts rows |
| ``where`` | SQL text; also accepts what Spark does not push, such as OR, but no functions. NaN compares as in the library, see ``coldparquet.plan.predicate`` |
| ``push_filters`` | ``true`` accepts filters from Spark, see :class:`coldparquet.spark.source.DefaultSource` for when that is safe; default ``false`` |
| ``nanoseconds`` | ``timestamp`` (default; cut to microseconds) or ``long``: what becomes of TIMESTAMP_NS |
| ``pieces`` | most tasks of a scan; by default one for each 128 MiB of compressed and decoded bytes, of more than 16 GiB fewer and larger ones (1 TiB: 1,024). ``coldparquet.spark.read`` makes at most 3 per core. Spark does not tell a data source the number of cores: set 3 * spark.sparkContext.defaultParallelism for the same |
| ``goal`` | ``fast``, ``cheap``, ``few-requests`` or ``few-bytes`` |
| ``memory_limit`` | of a task: 256MiB |
| ``max_concurrency`` | requests in flight at once, in each task |
| ``batch_rows`` | most rows of a batch |
| ``max_bytes``, ``max_requests``, ``max_usd`` | a scan that needs more is refused on the driver |
| ``prices`` | JSON file with what the store charges, read on the driver |
| ``archived`` | ``refuse``, ``skip`` or ``restore`` partitions in an archive class |
| ``unread`` | ``refuse`` a table with Parquet files beside its partitions that are not read, or ``skip`` these files |
| ``columns_from`` | ``newest`` or ``all``: which partitions define the columns of a table without ``_meta`` |
| ``sidecars`` | ``false`` plans from Parquet footers, for tables with damaged sidecars; default ``true`` |
| ``restore_tier``, ``restore_days``, ``restore_wait`` | how to restore them |
| ``cache_directory`` | where the driver caches sidecars between runs; tasks cache nothing |
| ``max_attempts`` | how many attempts of a request may fail in a row |
| ``credentials``, ``secret_options``, ``storage_options``, ``storage.KEY`` | see :mod:`coldparquet.spark.credentials` |

Names are case-insensitive; an unknown one is refused.

The options of a stream, beside those of every scan (:mod:`coldparquet.spark.options`).

| option | meaning |
|---|---|
| ``on_change`` | ``error`` (default), ``ignore``, ``reread`` or ``append``: what to do about partitions that were rewritten after the stream had delivered their rows |
| ``starting_from`` | ``earliest`` (default): all rows of the table; ``latest``: only those that are added after the first start of the stream |
| ``maxPartitionsPerTrigger`` | most partitions of a batch |
| ``maxRowsPerTrigger`` | most rows of a batch, before ``where`` is applied; a partition may be spread over several batches |
| ``maxBytesPerTrigger`` | most bytes of Parquet files of a batch, such as ``500MB``, in proportion to the rows of a partition that is cut |
| ``poll_seconds`` | least time between two refreshes of the table, by default 1: Spark's default trigger polls 100 times a second, and a refresh takes 1 listing and 2 small requests |

Names are the same in letters of any case. Several limits hold together. Row groups that a limit cuts are fetched for both
batches, so that the first limit is the cheapest.
"""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, get_args

from coldparquet.errors import InvalidInputError, UnsupportedError
from coldparquet.follow.progress import ON_CHANGE, StepLimit
from coldparquet.options import ReadOptions, RestoreTerms, StoreOptions, parse_byte_count
from coldparquet.prices import PriceTable
from coldparquet.spark.credentials import STORAGE_PREFIX, Credentials

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coldparquet.follow.progress import OnChange


_OF_CATALOG_TABLES = frozenset({"location", "owner"})
"""Properties that Spark's catalog adds to its tables: no option of the library has such a name."""


class OptionReading:
    """The given options, each converted to its value.

    Args:
        options: As Spark passes them, with case-insensitive names.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self.given = {name.lower(): value for name, value in options.items()}
        """The texts, by names in lower case."""

    def refuse_unknown(self, known: frozenset[str]) -> None:
        """Check that all names are known, and that the caller is not Spark's catalog."""
        if not _OF_CATALOG_TABLES.isdisjoint(self.given):
            raise UnsupportedError(
                "Spark's catalog keeps no coldparquet tables, only temporary views: CREATE TEMPORARY VIEW trades USING coldparquet"
                " OPTIONS (path 's3://bucket/db/trades'); to write, coldparquet.spark.write(df, url)",
                kind="CatalogTable",
            )
        for name in self.given:
            if name in known or name.startswith(STORAGE_PREFIX):
                continue
            near = difflib.get_close_matches(name, known, n=1)
            advice = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(known))} and storage.KEY"
            raise InvalidInputError(f"there is no option {name!r}; {advice}", kind="InvalidOption", option=name)

    def one(self, name: str, convert: Callable[[str], Any]) -> Any:
        """Return the value of one option, None where it is not given."""
        text = self.given.get(name.lower())
        if text is None:
            return None
        try:
            return convert(text)
        except InvalidInputError:
            raise
        except ValueError as error:
            raise InvalidInputError(
                f"the option {name} is {text!r}; {error}", kind="InvalidOption", option=name
            ) from None

    def keywords(self, **wanted: tuple[str, Callable[[str], Any]]) -> dict[str, Any]:
        """Return the given options under the library's names."""
        values = {keyword: self.one(name, convert) for keyword, (name, convert) in wanted.items()}
        return {keyword: value for keyword, value in values.items() if value is not None}


def column_names(text: str) -> tuple[str, ...]:
    """Parse names separated by commas, or a JSON list of them."""
    if text.lstrip().startswith("["):
        return list_of_texts(text)
    return tuple(name for part in text.split(",") if (name := part.strip()))


def list_of_texts(text: str) -> tuple[str, ...]:
    """Read a JSON list of texts; ``ValueError`` says what it must be."""
    try:
        values = json.loads(text)
    except ValueError:
        values = None
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError('it must be a JSON list of texts such as ["ts", "price"]')
    return tuple(values)


def whole_number(text: str) -> int:
    """Read a whole number; ``ValueError`` says what it must be."""
    try:
        return int(text)
    except ValueError:
        raise ValueError("it must be a whole number") from None


def positive_count(text: str) -> int:
    """Read a whole number that is at least 1; ``ValueError`` says what it must be."""
    count = whole_number(text)
    if count < 1:
        raise ValueError("it must be at least 1")
    return count


def number(text: str) -> float:
    """Read a number; ``ValueError`` says what it must be."""
    try:
        return float(text)
    except ValueError:
        raise ValueError("it must be a number") from None


def truth(text: str) -> bool:
    """Read ``true`` or ``false``; ``ValueError`` says what it must be."""
    if text.lower() not in ("true", "false"):
        raise ValueError("it must be true or false")
    return text.lower() == "true"


def one_of(*words: str) -> Callable[[str], str]:
    """Make a parser for one of some lower-case words; its ``ValueError`` lists them."""

    def read(text: str) -> str:
        if text.lower() not in words:
            raise ValueError(f"it must be one of {', '.join(map(repr, words))}")
        return text.lower()

    return read


NanosecondsAs: TypeAlias = Literal["timestamp", "long"]
"""TIMESTAMP_NS: as Spark's timestamp, cut to microseconds, or as nanoseconds since 1970."""

_ALTERNATIVES = re.compile(r"\{[^}]*,")
"""Patterns of shells and Spark's own readers with braces; here a comma ends a URL."""

_OPTIONS = frozenset(
    """
    archived batch_rows cache_directory columns columns_from credentials goal max_attempts max_bytes max_concurrency
    max_requests max_usd memory_limit nanoseconds path paths pieces prices push_filters restore_days restore_tier restore_wait
    secret_options sidecars storage_options unread where
    """.split()  # noqa: SIM905 - twenty quoted words, one per line, would be harder to read
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of the data source, parsed."""

    urls: tuple[str, ...]
    """Tables, and patterns of tables, as given."""
    columns: tuple[str, ...] | None
    """None for all; an empty tuple for none."""
    where: str | None
    push_filters: bool
    nanoseconds: NanosecondsAs
    most_pieces: int | None
    """None chooses it by the size of the scan."""
    read_options: ReadOptions
    store_options: StoreOptions
    credentials: Credentials

    @classmethod
    def parse(cls, options: Mapping[str, str], *, also: frozenset[str] = frozenset()) -> SourceOptions:
        """Parse the options of a data source. Opens nothing but the file of ``prices``."""
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
                # Spark's strings are not dictionaries, so keeping those of the pages would be wasted work.
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
    """Return the tables in the options ``path`` (separated by commas) and ``paths`` (a JSON list)."""
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


StartingFrom: TypeAlias = Literal["earliest", "latest"]
_POLL_S = 1.0

MOST_PARTITIONS = "maxPartitionsPerTrigger"
MOST_ROWS = "maxRowsPerTrigger"
MOST_BYTES = "maxBytesPerTrigger"

STREAM_OPTIONS = frozenset(
    {"on_change", "starting_from", "poll_seconds", MOST_PARTITIONS.lower(), MOST_ROWS.lower(), MOST_BYTES.lower()}
)
"""Names in lower case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """How a stream continues."""

    on_change: OnChange
    starting_from: StartingFrom
    limit: StepLimit
    """Limits of one batch."""
    poll_s: float
    """Least time between two refreshes of the table."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Parse the options of a stream; ignore others."""
        read = OptionReading(options)
        poll_s = read.one("poll_seconds", _seconds)
        return cls(
            on_change=read.one("on_change", one_of(*ON_CHANGE)) or "error",
            starting_from=read.one("starting_from", one_of(*get_args(StartingFrom))) or "earliest",
            limit=StepLimit(
                partitions=read.one(MOST_PARTITIONS, positive_count),
                rows=read.one(MOST_ROWS, positive_count),
                compressed_bytes=read.one(MOST_BYTES, _byte_limit),
            ),
            poll_s=_POLL_S if poll_s is None else poll_s,
        )


def _seconds(text: str) -> float:
    message = "it must be a number of seconds, 0 or more"
    try:
        seconds = float(text)
    except ValueError:
        raise ValueError(message) from None
    if not 0 <= seconds < float("inf"):
        raise ValueError(message)
    return seconds


def _byte_limit(text: str) -> int:
    limit_bytes = parse_byte_count(text)
    if limit_bytes < 1:
        raise ValueError("it must be at least 1 byte")
    return limit_bytes
