"""Defines every option of a read, with its default and the reason for it. Leaf functions take these as arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, get_args, get_origin, get_type_hints

from coldparquet.errors import InvalidInputError
from coldparquet.prices import PriceTable, RestoreTier

if TYPE_CHECKING:
    from collections.abc import Hashable

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}
"""With or without a B at the end, in any case."""

_SIZE = re.compile(r"(?P<number>\d{1,15}(\.\d{1,6})?) ?(?P<unit>[A-Za-z]{0,3})", re.ASCII)


def parse_byte_count(text: str) -> int:
    """Parse a number of bytes, such as ``1000000``, ``250MB`` or ``1.5GiB``.

    Raises:
        ValueError: It is not a number of bytes. The message gives the form, without an option's name.
    """
    match = _SIZE.fullmatch(text.strip())
    unit = None if match is None else _UNITS.get(match["unit"].upper().removesuffix("B"))
    if match is None or unit is None:
        raise ValueError("it must be a number of bytes, such as 1000000, 250MB or 1.5GiB")
    return int(float(match["number"]) * unit)


KIB = 1024
MIB = 1024 * KIB

Goal: TypeAlias = Literal["fast", "cheap", "few-requests", "few-bytes"]
When: TypeAlias = Literal["auto", "always", "never"]
"""``auto``: if it pays by the cost model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coalescing:
    """How chunk ranges become requests."""

    gap_bytes: int
    """Ranges at most this far apart become one request."""
    max_request_bytes: int
    """Longer requests are split."""
    least_part_bytes: int
    """Requests are split further, down to about this length, while connections are idle."""

    def part_bytes(self, wanted_bytes: int, max_concurrency: int) -> int:
        """Return the length of requests with which small reads use all connections and large ones have long requests.

        Args:
            wanted_bytes: All that the read needs.
            max_concurrency: Requests that may be in flight at once.
        """
        even_share_bytes = -(-wanted_bytes // max_concurrency)
        return min(max(even_share_bytes, self.least_part_bytes), self.max_request_bytes)


COALESCING_BY_GOAL: dict[Goal, Coalescing] = {
    # Reading over 128 KiB takes 1.5 ms at 90 MB/s, less than a request costs. Wider gaps would turn parallel requests
    # into one long transfer. 4 MiB take 47 ms, longer than the first byte. Requests of twice that length would use a
    # connection at 76 % instead of 61 %, but a scan's memory holds only half as many, so all together would deliver
    # less. Three quarters of a megabyte are 9 ms of transfer. Splitting them gains half of that, which is as much as
    # the further requests cost in processor time.
    "fast": Coalescing(gap_bytes=128 * KIB, max_request_bytes=4 * MIB, least_part_bytes=768 * KIB),
    # The gap is at most this. The prices of the storage class tell how many bytes a GET is worth.
    "cheap": Coalescing(gap_bytes=16 * MIB, max_request_bytes=64 * MIB, least_part_bytes=64 * MIB),
    "few-requests": Coalescing(gap_bytes=16 * MIB, max_request_bytes=64 * MIB, least_part_bytes=64 * MIB),
    "few-bytes": Coalescing(gap_bytes=0, max_request_bytes=8 * MIB, least_part_bytes=768 * KIB),
}
"""Gap and request length of each goal without measurements, with the reasons. Prices and a measured speed adapt them:
:mod:`coldparquet.plan.coalescing`."""


def _refuse_less(name: str, value: object, minimum: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise InvalidInputError(f"{name} is {value!r}; it must be a whole number, at least {minimum}")


def _refuse_other_choices(options: Any) -> None:
    """Check the fields that have a few values, by their types: flags, and literals but for the goal."""
    kind = type(options)
    for name, allowed in _choices(cast("Hashable", kind)).items():
        value = getattr(options, name)
        if value not in allowed:
            raise InvalidInputError(f"{kind.__name__}.{name} is {value!r}; use {' or '.join(map(repr, allowed))}")


@cache
def _choices(kind: Hashable) -> dict[str, tuple[object, ...]]:
    hints = {name: hint for name, hint in get_type_hints(kind).items() if hint is not Goal}
    return {
        name: (True, False) if hint is bool else get_args(hint)
        for name, hint in hints.items()
        if hint is bool or get_origin(hint) is Literal
    }


KeyType: TypeAlias = Literal["date", "timestamp", "int32", "int64", "text"]
KEY_TYPES = get_args(KeyType)
KeyTypes: TypeAlias = Literal["inferred", "text"] | Mapping[str, KeyType]
"""See :attr:`ReadOptions.keys`."""

MAX_RESTORE_DAYS = 3_650
"""Ten years. A copy is paid for as long as it stays, so a slip of the hand must not order one forever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreTerms:
    """How to restore archived objects."""

    tier: RestoreTier = "Standard"
    days: int = 1
    """How long the restored copy stays; it is paid for as S3 Standard storage."""
    wait: bool = False
    """Whether a scan waits for the restore: minutes (Expedited) to two days (Bulk from DEEP_ARCHIVE). Otherwise it ends
    with an ``ArchivedObjectError`` (kind ``RestoreRequested``) that carries a ticket. The logger ``coldparquet``
    reports the progress at level ``INFO``; ``Scan.restore`` takes a callback."""

    def __post_init__(self) -> None:
        _refuse_other_choices(self)
        _refuse_less("RestoreTerms.days", self.days, 1)
        if self.days > MAX_RESTORE_DAYS:
            raise InvalidInputError(
                f"RestoreTerms.days is {self.days:,}; it must be at most {MAX_RESTORE_DAYS:,}, ten years: to keep the data"
                " readable for longer, copy it to a class that needs no restore"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """How to access a store, and what to cache of it. They apply to everything that is read from an open table.

    Raises:
        InvalidInputError: A value is invalid.
    """

    max_attempts: int = 8
    """Times in a row that a request may fail before it is given up; 1 never retries. A broken transfer resumes after
    the bytes that arrived. Once a 32nd of the range has arrived, the count begins again."""

    connect_timeout_s: float = 5.0
    """Longest wait for a connection to S3 or a web server, name lookup included; other stores have timeouts of their
    own."""

    stall_timeout_s: float = 20.0
    """Longest wait for the head of an answer, and for the next 16 KiB of its body or its end, for the same stores.
    Answers to writes may take 30 times as long. There is no limit for a whole transfer: one that makes progress is not
    aborted."""

    hedging: bool = True
    """Whether a GET slower than 95 % of its size class is sent a second time, at most 5 % more requests in total."""

    cache_limit_bytes: int | None = None
    """Memory for fetched ranges, so that a repeated question fetches no data. None: 128 MiB that all tables share which the
    process opens by S3 and web URLs, also when a table is opened anew, and 64 MiB for a table in another store. A number is
    the table's own memory, which ends with it; 0 keeps nothing. A table that is opened anew uses what is kept of an object
    only after the store has answered a request of its own about that object, with the same version. Scans larger than the
    memory bypass it. It comes on top of ``ReadOptions.memory_limit_bytes``; :func:`coldparquet.clear_caches` frees it. Local
    files are never kept."""

    cache_directory: str | None = None
    """Directory that keeps sidecars and fetched ranges between runs, shared by all processes; None keeps nothing. Only
    the owner can read its file; it should lie on a local disk. Only for tables on S3 and web servers that are opened by
    their URLs: another store, such as one of your own (``store=``), has no unique name."""

    cache_directory_limit_bytes: int = 1024 * MIB
    """Largest size of the file in it; the least recently used bytes are removed first."""

    sidecar_trust_s: float = 0.0
    """How long a kept sidecar is used before the store is asked for a newer one (one GET with If-None-Match). Above 0, what
    metadata alone answers is answered without the store: also for other credentials of this process."""

    use_catalogue: bool = True
    """Whether to use the table's catalogue (``coldparquet pack``), which holds all its sidecars. It is requested only
    from stores that list versions, as S3 does."""

    def __post_init__(self) -> None:
        _refuse_less("StoreOptions.max_attempts", self.max_attempts, 1)
        if self.cache_limit_bytes is not None:
            _refuse_less("StoreOptions.cache_limit_bytes", self.cache_limit_bytes, 0)
        _refuse_less("StoreOptions.cache_directory_limit_bytes", self.cache_directory_limit_bytes, 0)
        for name in ("connect_timeout_s", "stall_timeout_s", "sidecar_trust_s"):
            value = getattr(self, name)
            least_is_fine = value == 0 and name == "sidecar_trust_s"
            if isinstance(value, bool) or not isinstance(value, int | float) or not (value > 0 or least_is_fine):
                raise InvalidInputError(f"StoreOptions.{name} is {value!r}; it must be a number of seconds above 0")
        _refuse_other_choices(self)
        if not isinstance(self.cache_directory, str | None) or self.cache_directory == "":
            raise InvalidInputError(
                f"StoreOptions.cache_directory is {self.cache_directory!r}; it must be a path, or None for no cache"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How to read. Every switch has a default. What the rows say depends on ``columns_from``, ``format`` and ``keys`` alone.

    The result:

    * ``symbols``: SYMBOL columns as ``"dictionary"``, ``"global"`` (one dictionary for all batches) or ``"string"``.
    * ``strings``: other text as ``"string"``, ``"dictionary"`` or ``"view"``.
    * ``batch_rows``: most rows in a record batch.
    * ``columns_from``: without ``_meta``, the table has the columns of its ``"newest"`` partition, or of ``"all"``; ``"auto"``
      is all of a lake with an index, else the newest.
    * ``timestamp``: the column that says when a row happened, for files that do not name one.
    * ``format``: ``"delta"`` or ``"iceberg"`` for a table with such a log.
    * ``index``: where the index of a table lies that is not ours to write to.
    * ``keys``: types of the columns that directories such as ``date=2024-03-01`` state: ``"inferred"``, ``"text"``, or some
      by name, as in ``{"zip": "text"}``.

    Requests and memory:

    * ``goal``: ``"fast"``, ``"cheap"``, ``"few-requests"`` or ``"few-bytes"``.
    * ``coalesce_gap_bytes``, ``max_request_bytes``: gaps read over and longest request, if not those of the goal.
    * ``max_concurrency``: requests in flight at once.
    * ``memory_limit_bytes``, ``decode_threads``: how much is held, and decoded at once.
    * ``sidecars``: whether plans use sidecars or Parquet footers (True or False).
    * ``sidecar_prefix_bytes``, ``footer_suffix_bytes``: length of the first request for metadata.

    What is skipped, see "Reading less" in the documentation:

    * ``statistics``: row groups without a matching row (True or False).
    * ``make_constant_columns``: chunks with one value in every row (True or False).
    * ``bloom_filters``: row groups without the value of ``=`` or ``IN`` (True or False).
    * ``page_index``: pages without a matching row (``"auto"``, ``"always"`` or ``"never"``).
    * ``late_materialisation``: other columns where no row remains (``"auto"``, ``"always"`` or ``"never"``).

    Limits, and archived objects:

    * ``max_bytes``, ``max_requests``, ``max_usd``: a plan above one of these is refused before its first data request.
    * ``prices``: prices of requests and bytes; None uses the library's table.
    * ``check_storage_classes``: whether the storage class of every partition is requested before its data.
    * ``archived``, ``restore``: ``"refuse"``, ``"skip"`` or ``"restore"`` partitions in an archive class, and how.
    * ``unread``: ``"refuse"`` a table with files beside its partitions that would not be read, or ``"skip"`` these
      files.
    * ``check_page_checksums``: whether to compare the checksums of pages, if the writer left any.

    Raises:
        InvalidInputError: A value is invalid.
    """

    sidecar_prefix_bytes: int = 64 * KIB
    """First GET of a sidecar. 64 KiB holds 20 columns x 50 row groups, and up to about 512 KiB the size of a request
    hardly changes its latency. 32 is the strict protocol: the header alone, then exactly the committed size."""

    footer_suffix_bytes: int = 64 * KIB
    """First GET of a Parquet footer; only for a partition without sidecar."""

    sidecars: bool = True
    """Whether to use sidecars and the catalogue; False plans from the Parquet footers, for tables with damaged
    sidecars."""

    goal: Goal = "fast"
    """What coalescing aims at; see :data:`COALESCING_BY_GOAL`."""

    coalesce_gap_bytes: int | None = None
    """Chunk ranges at most this far apart become one request; None leaves it to the goal."""

    max_request_bytes: int | None = None
    """Longer requests are split and fetched in parallel; None leaves it to the goal."""

    max_concurrency: int = 32
    """Requests in flight at once. One connection delivers 55-90 MB/s, so 32 saturate a 20 Gbit/s network."""

    memory_limit_bytes: int = 256 * MIB
    """What a scan may add to the memory of the process: requests in flight, fetched bytes, decoded rows not yet
    consumed, and what allocators keep of it. For the latter 160 MiB are reserved: below 256 MiB a scan may add up to
    160 MiB and three eighths of the limit. The plan is extra, about 2 KiB for each row group to read. Row groups too
    large for the limit are read in runs of pages if their pages are known; the one that the consumer waits for always
    proceeds. Text whose pages repeat few long values stays dictionary-encoded until delivery. Its batches take at most
    an eighth of the limit (never below 4 MiB), unless one row takes more. Pages are refused (``BudgetExceededError``,
    kind ``MemoryLimit``) if they claim to decompress to more than the limit, more than 64 MiB and more than 256 times
    their bytes. The same holds if their byte strings take that much once decoded."""

    decode_threads: int | None = None
    """Threads that decode row groups; None means one per processor. Arrow's own threads share the columns of each."""

    batch_rows: int = 65_536
    """Largest number of rows in one record batch."""

    symbols: Literal["dictionary", "global", "string"] = "dictionary"
    """Arrow type of SYMBOL columns: dictionary-encoded as QuestDB stores them, or plain strings. ``dictionary`` uses
    the dictionary of each row group as it is. ``global`` numbers the symbols of all batches alike: a batch's dictionary
    begins with that of the previous batch. With it, opening a QuestDB table costs one request more, and each requested
    SYMBOL column two: for the table's symbols, which all batches then share without recoding."""

    strings: Literal["dictionary", "string", "view"] = "string"
    """Arrow type of other text columns. ``dictionary`` keeps what the pages hold: each distinct value once per row
    group. ``view`` is ``pyarrow.string_view()``, the form in which Polars holds text: ``to_polars()`` and
    :mod:`coldparquet.polars` use it in place of ``string``. It is made in less time than strings, and pandas and DuckDB's
    ``from_arrow`` take it. But pyarrow 26 cannot filter, take or sort views, nor write them as CSV, and writes the text of the
    whole row group with each batch that it sends over IPC. So it is not the default, and datasets (DuckDB, Ray, Dask) have
    strings."""

    columns_from: Literal["auto", "newest", "all"] = "auto"
    """Which partitions define the columns of a table without ``_meta`` when it is opened. ``all`` reads the metadata of all
    of them. ``auto`` takes the newest and, in a lake whose index tells the columns of its files, all files in it, for no
    request more where the index is shorter than 512 KiB, else for one. Columns that only some have are null in the others. Types are unified by Arrow, as
    ``pyarrow.unify_schemas`` does with ``promote_options="permissive"``. Columns are found by their names alone. Named
    partitions always use all, except for columns with ids, which QuestDB may have dropped."""

    timestamp: str | None = None
    """Name of the column by which ``latest_by``, ``top_k`` and ``time_range`` go in a table whose files name none, such as
    a directory of files of other tools. The rows need not be in its order. Rows whose time is NULL come last, in either order."""

    index: str | None = None
    """URL of a directory in the same kind of store, such as ``s3://mine/indexes/events``, with the catalogue of the table
    (``coldparquet index LAKE --index URL`` writes it). None is the directory of the table itself."""

    format: Literal["delta", "iceberg"] | None = None
    """Which log says what files the table has: that of Delta Lake, read with ``deltalake``, or of Apache Iceberg, read with
    ``pyiceberg`` (extras ``delta`` and ``iceberg``). None is a table without a log; one that has a log is then refused."""

    keys: KeyTypes = field(default="inferred", hash=False)
    """Types of the columns that Hive directories state: the first of DATE, TIMESTAMP, LONG and text that all values have, as
    in DuckDB and Spark; or always text; or, by name, one of ``"date"``, ``"timestamp"``, ``"int32"``, ``"int64"`` and
    ``"text"``, the others inferred."""

    statistics: bool = True
    """Whether minima, maxima and null counts prune row groups; False for files with wrong statistics."""

    make_constant_columns: bool = True
    """Whether chunks whose statistics prove a single value in every row are made instead of fetched."""

    bloom_filters: bool = True
    """Whether bloom filters are probed if minima and maxima do not decide ``=`` and ``IN``."""

    page_index: When = "auto"
    """Whether pages that provably hold no matching row are skipped, by the page index of the file or our ``_pages``."""

    late_materialisation: When = "auto"
    """Whether the predicate's columns are read first, and the result's other columns only where rows remain."""

    max_bytes: int | None = None
    """Most bytes that the data requests of a plan may fetch; a plan above it is refused. None allows any number."""

    max_requests: int | None = None
    """Most data requests of a plan; None allows any number."""

    max_usd: float | None = None
    """Most dollars that the data requests of a plan, and the restores before them, may cost, by ``prices``; None allows
    any sum."""

    prices: PriceTable | None = None
    """Prices of requests and bytes, see :class:`coldparquet.prices.PriceTable`; None uses the library's table."""

    check_storage_classes: bool = True
    """Whether stores with storage classes are asked for class, restore state, size and version of data objects: one
    HEAD per remaining partition, in parallel with its sidecar. So archived objects are known before any data request,
    the price is that of the class, and a sidecar of another file is detected."""

    archived: Literal["refuse", "skip", "restore"] = "refuse"
    """What to do about partitions in an archive class: raise an error, skip them and say so, or restore them."""

    restore: RestoreTerms = RestoreTerms()
    """How to restore, if ``archived`` is ``"restore"``."""

    unread: Literal["refuse", "skip"] = "refuse"
    """What to do about Parquet files beside the partitions of a table without ``_txn``, whose rows would be missing:
    refuse to open it, or log a warning (logger ``coldparquet``) and skip them."""

    check_page_checksums: bool = True
    """Whether to compare the CRC-32 of pages, if the file has any: 3 % of the time of decoding zstd pages, 12 % of that
    of uncompressed ones, and nothing without them."""

    def __post_init__(self) -> None:
        least = {
            "sidecar_prefix_bytes": 32,
            "footer_suffix_bytes": 8,
            "coalesce_gap_bytes": 0,
            "max_request_bytes": 1,
            "max_concurrency": 1,
            "memory_limit_bytes": 1,
            "decode_threads": 1,
            "batch_rows": 1,
            "max_bytes": 0,
            "max_requests": 0,
        }
        optional = {"coalesce_gap_bytes", "max_request_bytes", "decode_threads", "max_bytes", "max_requests"}
        for name, minimum in least.items():
            value = getattr(self, name)
            if value is not None or name not in optional:
                _refuse_less(f"ReadOptions.{name}", value, minimum)
        is_number = isinstance(self.max_usd, int | float) and not isinstance(self.max_usd, bool)
        if self.max_usd is not None and not (is_number and self.max_usd >= 0):
            raise InvalidInputError(
                f"ReadOptions.max_usd is {self.max_usd!r}; it must be a number of dollars, at least 0"
            )
        if self.prices is not None and not isinstance(self.prices, PriceTable):
            raise InvalidInputError(
                f"ReadOptions.prices is a {type(self.prices).__name__}; it must be a PriceTable, such as"
                " coldparquet.prices.PriceTable.read('prices.json')"
            )
        self._check_place()
        if not isinstance(self.restore, RestoreTerms):
            raise InvalidInputError(f"ReadOptions.restore is {self.restore!r}; it must be RestoreTerms")
        if self.goal not in list(COALESCING_BY_GOAL):
            raise InvalidInputError(f"ReadOptions.goal is {self.goal!r}; use one of {', '.join(COALESCING_BY_GOAL)}")
        _refuse_other_choices(self)
        if self.archived != "refuse" and not self.check_storage_classes:
            raise InvalidInputError(
                f"ReadOptions.archived is {self.archived!r}, but check_storage_classes is False: nobody would know which"
                " partitions are archived; leave check_storage_classes at True, or archived at 'refuse'"
            )

    def _check_place(self) -> None:
        """Check what says how a table of others lies."""
        for name, what in (("timestamp", "name of a column"), ("index", "URL of a directory")):
            value = getattr(self, name)
            if not isinstance(value, str | None) or value == "":
                raise InvalidInputError(f"ReadOptions.{name} is {value!r}; it must be the {what}, or None")
        if self.format not in {None, "delta", "iceberg"}:
            raise InvalidInputError(f"ReadOptions.format is {self.format!r}; use 'delta', 'iceberg' or None")
        if self.keys not in {"inferred", "text"} if isinstance(self.keys, str) else not _are_key_types(self.keys):
            raise InvalidInputError(
                f"ReadOptions.keys is {self.keys!r}; use 'inferred', 'text', or types of keys by their names, such as"
                f" {{'zip': 'text'}}, each one of {', '.join(KEY_TYPES)}"
            )


def _are_key_types(keys: object) -> bool:
    return isinstance(keys, Mapping) and all(isinstance(name, str) and keys[name] in KEY_TYPES for name in keys)


def parse_key_types(text: str) -> KeyTypes:
    """Parse ``inferred``, ``text``, or types of keys such as ``zip=text,year=int32``; ``ValueError`` says what it must be."""
    if text in {"inferred", "text"}:
        return cast("KeyTypes", text)
    pairs = [pair.strip().rpartition("=") for pair in text.split(",")]
    types = {name: type_ for name, _, type_ in pairs}
    if not all(types) or not _are_key_types(types):
        raise ValueError(f"use inferred, text, or KEY=TYPE,..., each TYPE one of {', '.join(KEY_TYPES)}")
    return cast("KeyTypes", types)


def checked_options(options: ReadOptions | None) -> ReadOptions | None:
    """Return options unchanged.

    Raises:
        InvalidInputError: They are of another type.
    """
    if options is None or isinstance(options, ReadOptions):
        return options
    kind = type(options).__name__
    raise InvalidInputError(
        f"options is a {kind}; it must be ReadOptions, such as coldparquet.ReadOptions(goal='cheap', batch_rows=10_000)"
    )


def checked_store_options(store_options: StoreOptions | None) -> StoreOptions:
    """Return options of a store unchanged; the defaults for None.

    Raises:
        InvalidInputError: They are of another type.
    """
    if store_options is None:
        return StoreOptions()
    if isinstance(store_options, StoreOptions):
        return store_options
    kind = type(store_options).__name__
    raise InvalidInputError(
        f"store_options is a {kind}; it must be StoreOptions, such as coldparquet.StoreOptions(max_attempts=3);"
        " credentials and endpoint go into storage_options"
    )
