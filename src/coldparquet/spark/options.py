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
| ``columns_from`` | ``auto``, ``newest`` or ``all``: which partitions define the columns of a table without ``_meta`` |
| ``merge_schema`` | as of Spark's own reader: ``true`` is ``columns_from=all``, ``false`` is ``columns_from=newest`` |
| ``timestamp`` | the column that says when a row happened, for files that do not name one |
| ``table_format`` | ``delta`` or ``iceberg``: which log says what files the table has |
| ``index`` | directory with the index of a table that is not ours to write to, such as ``s3://mine/indexes/events`` |
| ``keys`` | ``inferred``, ``text`` or ``zip=text,year=int32``: types of the columns that directories such as ``date=2024-03-01`` state |
| ``sidecars`` | ``false`` plans from Parquet footers, for tables with damaged sidecars; default ``true`` |
| ``restore_tier``, ``restore_days``, ``restore_wait`` | how to restore them |
| ``cache_directory`` | where the driver caches sidecars between runs; tasks cache nothing |
| ``max_attempts`` | how many attempts of a request may fail in a row |
| ``credentials``, ``secret_options``, ``storage_options``, ``storage.KEY`` | see :mod:`coldparquet.spark.credentials` |

Names are case-insensitive and may leave out their underscores: ``maxBytes`` is ``max_bytes``. An unknown one is refused.

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
from coldparquet.options import ReadOptions, RestoreTerms, StoreOptions, parse_byte_count, parse_key_types
from coldparquet.prices import PriceTable
from coldparquet.spark.credentials import STORAGE_PREFIX, Credentials, option_key

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from coldparquet.follow.progress import OnChange
    from coldparquet.spark.pushed import Pushed


_OF_CATALOG_TABLES = frozenset({"location", "owner"})
"""Properties that Spark's catalog adds to its tables: no option of the library has such a name."""


PUSHED = "coldparquet.pushed"
"""What the class in ``coldparquet.jar`` says of each scan; no option of users."""

CATALOG = "coldparquet.catalog"
"""Set by the catalog in ``coldparquet.jar``, whose settings are options of readers and of writers."""

Options: TypeAlias = "Mapping[str, tuple[str, Callable[[str], Any]]]"
"""By the name of an option: group and field of the library that it sets, as in ``read.goal``, and how its text is read.
Those of the group ``credentials`` are read by :class:`~coldparquet.spark.credentials.Credentials`."""


def given_fields(
    given: Mapping[str, str], options: Options, *, also: frozenset[str] | None = frozenset()
) -> dict[str, dict[str, Any]]:
    """Read the given options, and return the fields that they set by group. ``max_bytes`` may be written ``maxBytes``.

    ``also`` are more names that are known, None allows any; an unknown one is refused.
    """
    if also is not None:
        _refuse_unknown({name.lower() for name in given}, also | {name.lower() for name in options})
    texts: dict[str, str] = {}
    for name, text in given.items():
        if texts.setdefault(option_key(name), text) != text:
            raise InvalidInputError(
                f"the option {name} is given twice, in two spellings", kind="InvalidOption", option=name
            )
    fields: dict[str, dict[str, Any]] = {place.partition(".")[0]: {} for place, _ in options.values()}
    for name, (place, convert) in options.items():
        asked = texts.get(option_key(name))
        if asked is not None:
            group, _, field_name = place.partition(".")
            value = _converted(name, asked, convert)
            if fields[group].setdefault(field_name, value) != value:
                other = next(one for one, (same, _) in options.items() if same == place and option_key(one) in texts)
                raise InvalidInputError(
                    f"the options {other} and {name} say different things of {field_name}; give one of them",
                    kind="InvalidOption",
                    option=name,
                )
    return fields


def _refuse_unknown(given: Collection[str], known: frozenset[str]) -> None:
    """Check that all names are known, and that the caller is not Spark's catalog."""
    if not _OF_CATALOG_TABLES.isdisjoint(given):
        raise UnsupportedError(
            "Spark's catalog keeps no coldparquet tables, only temporary views: CREATE TEMPORARY VIEW trades USING coldparquet"
            " OPTIONS (path 's3://bucket/db/trades'); to write, coldparquet.spark.write(df, url). With coldparquet's jar there is a"
            " catalog of our own: spark.sql.catalog.cold=coldparquet.Catalog and spark.sql.catalog.cold.url=s3://bucket",
            kind="CatalogTable",
        )
    keys = set(map(option_key, known))
    for name in given:
        if option_key(name) in keys or name.startswith(STORAGE_PREFIX) or name in {PUSHED, CATALOG}:
            continue
        near = difflib.get_close_matches(name, known, n=1)
        advice = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(known))} and storage.KEY"
        raise InvalidInputError(f"there is no option {name!r}; {advice}", kind="InvalidOption", option=name)


def _converted(name: str, text: str, convert: Callable[[str], Any]) -> Any:
    try:
        return convert(text)
    except InvalidInputError:
        raise
    except ValueError as error:
        raise InvalidInputError(f"the option {name} is {text!r}; {error}", kind="InvalidOption", option=name) from None


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

OPTIONS_OF_EVERY_KIND: Options = {
    "path": ("tables.path", str),
    "paths": ("tables.paths", list_of_texts),
    "max_attempts": ("store.max_attempts", whole_number),
    "credentials": ("credentials.credentials", str),
    "secret_options": ("credentials.secret_options", str),
    "storage_options": ("credentials.storage_options", str),
}
"""Those of reading and of writing."""

_OPTIONS: Options = {
    **OPTIONS_OF_EVERY_KIND,
    "columns": ("source.columns", column_names),
    "where": ("source.where", str),
    "push_filters": ("source.push_filters", truth),
    "nanoseconds": ("source.nanoseconds", one_of(*get_args(NanosecondsAs))),
    "pieces": ("source.most_pieces", positive_count),
    "goal": ("read.goal", str),
    "memory_limit": ("read.memory_limit_bytes", parse_byte_count),
    "max_concurrency": ("read.max_concurrency", whole_number),
    "batch_rows": ("read.batch_rows", whole_number),
    "max_bytes": ("read.max_bytes", parse_byte_count),
    "max_requests": ("read.max_requests", whole_number),
    "max_usd": ("read.max_usd", number),
    "prices": ("read.prices", PriceTable.read),
    "archived": ("read.archived", str),
    "unread": ("read.unread", str),
    "columns_from": ("read.columns_from", str),
    "merge_schema": ("read.columns_from", lambda text: "all" if truth(text) else "newest"),
    "timestamp": ("read.timestamp", str),
    "keys": ("read.keys", parse_key_types),
    "index": ("read.index", str),
    "table_format": ("read.format", str),
    "sidecars": ("read.sidecars", truth),
    "restore_tier": ("restore.tier", str),
    "restore_days": ("restore.days", whole_number),
    "restore_wait": ("restore.wait", truth),
    "cache_directory": ("store.cache_directory", str),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of the data source, parsed."""

    urls: tuple[str, ...]
    """Tables, and patterns of tables, as given."""
    read_options: ReadOptions
    store_options: StoreOptions
    credentials: Credentials
    columns: tuple[str, ...] | None = None
    """None for all; an empty tuple for none."""
    where: str | None = None
    push_filters: bool = False
    nanoseconds: NanosecondsAs = "timestamp"
    most_pieces: int | None = None
    """None chooses it by the size of the scan."""
    pushed: Pushed | None = None
    """What Spark asks of this scan; None without coldparquet's jar."""

    @property
    def names_its_rows(self) -> bool:
        """Whether anything tells a scan that it need not read whole tables."""
        return self.pushed is not None or self.push_filters or (self.columns, self.where) != (None, None)

    @classmethod
    def parse(cls, options: Mapping[str, str], *, also: frozenset[str] = frozenset()) -> SourceOptions:
        """Parse the options of a data source. Opens nothing but the file of ``prices``."""
        given = given_fields(options, _OPTIONS, also=also | _of_writers(options))
        # Spark's strings are not dictionaries, so keeping those of the pages would be wasted work.
        read_options = ReadOptions(symbols="string", restore=RestoreTerms(**given["restore"]), **given["read"])
        return cls(
            urls=table_urls(**given["tables"]),
            read_options=read_options,
            store_options=StoreOptions(**given["store"]),
            credentials=Credentials.parse(options),
            pushed=pushed_of(options),
            **given["source"],
        )


def _of_writers(options: Mapping[str, str]) -> frozenset[str]:
    if CATALOG not in map(str.lower, options):
        return frozenset()
    from coldparquet.spark.writer import WRITER_OPTIONS  # noqa: PLC0415 - tables of a catalog alone

    return frozenset(WRITER_OPTIONS)


def pushed_of(options: Mapping[str, str]) -> Pushed | None:
    """Return what coldparquet's jar says of a scan; None without it."""
    texts = [text for name, text in options.items() if name.lower() == PUSHED]
    if not texts:
        return None
    from coldparquet.spark.pushed import Pushed  # noqa: PLC0415 - tasks do not need it

    return Pushed.parse(texts[0])


def table_urls(path: str = "", paths: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the tables in the options ``path`` (separated by commas) and ``paths`` (a JSON list)."""
    if _ALTERNATIVES.search(path):
        raise InvalidInputError(
            "a path such as {trades,quotes} names no tables: commas stand between URLs; write each of them out, or use *, ? and"
            " [ab]. A URL with braces and a comma in it goes into the option paths, a JSON list",
            kind="InvalidOption",
            option="path",
        )
    urls = [*(part.strip() for part in path.split(",")), *paths]
    found = tuple(dict.fromkeys(url for url in urls if url))
    if not found:
        raise InvalidInputError(
            'no table is named: spark.read.format("coldparquet").load("s3://bucket/db/trades")', kind="InvalidOption"
        )
    return found


StartingFrom: TypeAlias = Literal["earliest", "latest"]


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


READER_OPTIONS = frozenset(_OPTIONS)

_STREAM_OPTIONS: Options = {
    "on_change": ("stream.on_change", one_of(*ON_CHANGE)),
    "starting_from": ("stream.starting_from", one_of(*get_args(StartingFrom))),
    "poll_seconds": ("stream.poll_s", _seconds),
    "maxPartitionsPerTrigger": ("limit.partitions", positive_count),
    "maxRowsPerTrigger": ("limit.rows", positive_count),
    "maxBytesPerTrigger": ("limit.compressed_bytes", _byte_limit),
}
STREAM_OPTIONS = frozenset(name.lower() for name in _STREAM_OPTIONS)
"""Names in lower case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """How a stream continues."""

    limit: StepLimit
    """Limits of one batch."""
    on_change: OnChange = "error"
    starting_from: StartingFrom = "earliest"
    poll_s: float = 1.0
    """Least time between two refreshes of the table."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Parse the options of a stream; ignore others."""
        given = given_fields(options, _STREAM_OPTIONS, also=None)
        return cls(limit=StepLimit(**given["limit"]), **given["stream"])
