"""Every knob of a read, with its default and the reason for it. Leaf functions take their knobs as arguments."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from coldparquet.errors import InvalidInputError
from coldparquet.prices import PriceTable, RestoreTier

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}
"""Written with or without a B behind them, in letters of any case."""

_SIZE = re.compile(r"(?P<number>\d{1,15}(\.\d{1,6})?) ?(?P<unit>[A-Za-z]{0,3})", re.ASCII)


def parse_byte_count(text: str) -> int:
    """Parse a number of bytes, such as ``1000000``, ``250MB`` or ``1.5GiB``.

    Raises:
        ValueError: It does not read so. The message says what it must be, and is about no name.
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
"""``auto``: where the cost model says that it pays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coalescing:
    """How chunk ranges become requests."""

    gap_bytes: int
    """Ranges at most this far apart are fetched as one."""
    max_request_bytes: int
    """Longer requests are split."""
    least_part_bytes: int
    """Requests are split further, down to about this length, as long as fewer are in flight than may be."""

    def part_bytes(self, wanted_bytes: int, max_concurrency: int) -> int:
        """Return how long requests should be, so that a small read uses all connections and a large one long requests.

        Args:
            wanted_bytes: All that the read needs.
            max_concurrency: Requests that may be in flight at once.
        """
        even_share_bytes = -(-wanted_bytes // max_concurrency)
        return min(max(even_share_bytes, self.least_part_bytes), self.max_request_bytes)


COALESCING_BY_GOAL: dict[Goal, Coalescing] = {
    # Reading over 128 KiB takes 1.5 ms at 90 MB/s, less than a request costs; wider gaps would make one long transfer
    # of what parallel requests do at once. 4 MiB take 47 ms, longer than the first byte does. Twice as long they would
    # fill a connection by 76 % instead of 61 %, but the memory of a scan holds only half as many, so that all of them
    # together would bring less. Three quarters of a megabyte are 9 ms of transfer: the half of that, which is what splitting
    # them gains, is as much as the further requests cost in processor time.
    "fast": Coalescing(gap_bytes=128 * KIB, max_request_bytes=4 * MIB, least_part_bytes=768 * KIB),
    # The gap is at most this: how wide a GET is worth in bytes follows from the prices of the storage class.
    "cheap": Coalescing(gap_bytes=16 * MIB, max_request_bytes=64 * MIB, least_part_bytes=64 * MIB),
    "few-requests": Coalescing(gap_bytes=16 * MIB, max_request_bytes=64 * MIB, least_part_bytes=64 * MIB),
    "few-bytes": Coalescing(gap_bytes=0, max_request_bytes=8 * MIB, least_part_bytes=768 * KIB),
}
"""Gap and request length of each goal where nothing was measured, with the reason for the numbers. What prices and a measured
speed make of them: :mod:`coldparquet.plan.coalescing`."""


def _refuse_less(name: str, value: object, minimum: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise InvalidInputError(f"{name} is {value!r}; it must be a whole number, at least {minimum}")


def _refuse_other(name: str, value: object, allowed: tuple[object, ...]) -> None:
    if value not in allowed:
        raise InvalidInputError(f"{name} is {value!r}; use {' or '.join(map(repr, allowed))}")


MAX_RESTORE_DAYS = 3_650
"""Ten years. A copy is paid for as long as it stays, so that a slip of the hand must not order one for ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreTerms:
    """How to restore archived objects."""

    tier: RestoreTier = "Standard"
    days: int = 1
    """How long the restored copy stays; it is paid for as S3 Standard storage."""
    wait: bool = False
    """Whether a scan waits for the restore: minutes (Expedited) to two days (Bulk from DEEP_ARCHIVE). Otherwise it ends with
    an ``ArchivedObjectError`` (kind ``RestoreRequested``) that carries a ticket. How far it is says the logger
    ``coldparquet`` at level ``INFO``; ``Scan.restore`` takes a callback."""

    def __post_init__(self) -> None:
        _refuse_other("RestoreTerms.tier", self.tier, ("Expedited", "Standard", "Bulk"))
        _refuse_other("RestoreTerms.wait", self.wait, (True, False))
        _refuse_less("RestoreTerms.days", self.days, 1)
        if self.days > MAX_RESTORE_DAYS:
            raise InvalidInputError(
                f"RestoreTerms.days is {self.days:,}; it must be at most {MAX_RESTORE_DAYS:,}, ten years: to keep the data"
                " readable for longer, copy it to a class that needs no restore"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """How to talk to a store, and what to remember of it. They hold for everything that is read from an open table.

    Raises:
        InvalidInputError: A value is not one of these.
    """

    max_attempts: int = 8
    """Times in a row that a request may fail before it is given up; 1 never retries. A broken transfer goes on behind the bytes
    that arrived, and once a 32nd of the range is there the count begins anew."""

    connect_timeout_s: float = 5.0
    """Longest wait for a connection to S3 or a web server, finding its address included; other stores have timeouts of their own."""

    stall_timeout_s: float = 20.0
    """Longest wait for the head of an answer, and for the next 16 KiB of its body or its end, for the same stores. Answers to
    writes may take 30 times as long. There is no limit for a whole transfer: one that makes progress is not cut."""

    hedging: bool = True
    """Whether a GET that is slower than 95 % of its size class is sent a second time, at most 5 % more requests in all."""

    cache_limit_bytes: int = 64 * MIB
    """Fetched ranges that an open table keeps in memory, so that a repeated question sends no request; 0 keeps none. Scans
    that fetch more than this pass by. It comes on top of ``ReadOptions.memory_limit_bytes``. Local files are never kept."""

    cache_directory: str | None = None
    """Directory in which sidecars and fetched ranges are kept between runs, shared by all processes; None keeps nothing. Its
    files are readable by their owner alone. Only for tables on S3 and web servers that are opened by their URLs: another
    store, such as one of your own (``store=``), has no name that tells it from the next."""

    cache_directory_limit_bytes: int = 1024 * MIB
    """Most that the directory holds; what was used longest ago goes first."""

    sidecar_trust_s: float = 0.0
    """How long a kept sidecar is used without asking the store whether it is still the newest (one GET with If-None-Match)."""

    use_catalogue: bool = True
    """Whether the table's catalogue (``coldparquet pack``), which holds all its sidecars, is looked for; only stores that list
    versions, as S3 does, are asked for one."""

    def __post_init__(self) -> None:
        _refuse_less("StoreOptions.max_attempts", self.max_attempts, 1)
        _refuse_less("StoreOptions.cache_limit_bytes", self.cache_limit_bytes, 0)
        _refuse_less("StoreOptions.cache_directory_limit_bytes", self.cache_directory_limit_bytes, 0)
        for name in ("connect_timeout_s", "stall_timeout_s", "sidecar_trust_s"):
            value = getattr(self, name)
            least_is_fine = value == 0 and name == "sidecar_trust_s"
            if isinstance(value, bool) or not isinstance(value, int | float) or not (value > 0 or least_is_fine):
                raise InvalidInputError(f"StoreOptions.{name} is {value!r}; it must be a number of seconds above 0")
        for name in ("hedging", "use_catalogue"):
            _refuse_other(f"StoreOptions.{name}", getattr(self, name), (True, False))
        if not isinstance(self.cache_directory, str | None) or self.cache_directory == "":
            raise InvalidInputError(
                f"StoreOptions.cache_directory is {self.cache_directory!r}; it must be a path, or None for no cache"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How to read. Every switch has a default, and none but ``columns_from`` changes what the rows say.

    What comes out:

    * ``symbols``: SYMBOL columns as ``"dictionary"``, ``"global"`` (one dictionary for all batches) or ``"string"``.
    * ``strings``: other text as ``"string"`` or ``"dictionary"``.
    * ``batch_rows``: most rows in a record batch.
    * ``columns_from``: where there is no ``_meta``, the table has the columns of its ``"newest"`` partition, or of ``"all"``.

    What is fetched, and in how many requests:

    * ``goal``: ``"fast"``, ``"cheap"``, ``"few-requests"`` or ``"few-bytes"``.
    * ``coalesce_gap_bytes``, ``max_request_bytes``: gaps read over and longest request, if not those of the goal.
    * ``max_concurrency``: requests in flight at once.
    * ``memory_limit_bytes``, ``decode_threads``: how much is held, and decoded at once.
    * ``sidecars``: whether plans are made from sidecars or from Parquet footers (True or False).
    * ``sidecar_prefix_bytes``, ``footer_suffix_bytes``: length of the first request for metadata.

    What is left out, see "Reading less" in the README:

    * ``statistics``: row groups without a matching row (True or False).
    * ``make_constant_columns``: chunks with one value in every row (True or False).
    * ``bloom_filters``: row groups without the value of ``=`` or ``IN`` (True or False).
    * ``page_index``: pages without a matching row (``"auto"``, ``"always"`` or ``"never"``).
    * ``late_materialisation``: other columns where no row is left (``"auto"``, ``"always"`` or ``"never"``).

    What it may cost, and what to do about archived objects:

    * ``max_bytes``, ``max_requests``, ``max_usd``: a plan above one of these is refused before its first data request.
    * ``prices``: what requests and bytes cost; None takes the table that comes with the library.
    * ``check_storage_classes``: whether the storage class of every partition is asked for before its data is.
    * ``archived``, ``restore``: ``"refuse"``, ``"skip"`` or ``"restore"`` partitions in an archive class, and how.
    * ``unread``: ``"refuse"`` a table beside whose partitions lie files that would not be read, or ``"skip"`` these files.
    * ``check_page_checksums``: whether the checksums of pages are compared where the writer left any.

    Raises:
        InvalidInputError: A value is not one of these.
    """

    sidecar_prefix_bytes: int = 64 * KIB
    """First GET of a sidecar. 64 KiB holds 20 columns x 50 row groups, and up to about 512 KiB the size of a request
    hardly changes its latency. 32 is the strict protocol: the header alone, then exactly the committed size."""

    footer_suffix_bytes: int = 64 * KIB
    """First GET of a Parquet footer, taken only where a partition has no sidecar."""

    sidecars: bool = True
    """Whether sidecars and the catalogue are used; False plans from the Parquet footers, for tables with damaged sidecars."""

    goal: Goal = "fast"
    """What coalescing aims at; see :data:`COALESCING_BY_GOAL`."""

    coalesce_gap_bytes: int | None = None
    """Chunk ranges at most this far apart become one request; None leaves it to the goal."""

    max_request_bytes: int | None = None
    """Longer requests are split and fetched in parallel; None leaves it to the goal."""

    max_concurrency: int = 32
    """Requests in flight at once. One connection brings 55-90 MB/s, so 32 saturate a 20 Gbit/s network."""

    memory_limit_bytes: int = 256 * MIB
    """What a scan may add to the memory of the process: requests in flight, fetched bytes, rows decoded and not yet taken,
    and what allocators keep of it, for which 160 MiB are set aside: below 256 MiB a scan may add up to 160 MiB and three
    eighths of the limit. Beyond it comes the plan, about 2 KiB for each row group that is read. Row groups too large for the
    limit are read in runs of pages where their pages are known; the one that the consumer waits for always goes on. Text
    whose pages repeat few long values stays dictionary-encoded until it is handed over, in batches of at most an eighth of
    the limit (never below 4 MiB) if one row does not take more. Pages that claim to decompress to more than the limit, more
    than 64 MiB and more than 256 times their bytes are refused (``BudgetExceededError``, kind ``MemoryLimit``), as are pages
    whose byte strings take so much once they are decoded."""

    decode_threads: int | None = None
    """Threads that decode row groups; None means one per processor. Arrow's own threads share the columns of each."""

    batch_rows: int = 65_536
    """Largest number of rows in one record batch."""

    symbols: Literal["dictionary", "global", "string"] = "dictionary"
    """Arrow type of SYMBOL columns: dictionary-encoded as QuestDB stores them, or plain strings. ``dictionary`` takes the
    dictionary of each row group as it comes. ``global`` numbers the symbols of all batches alike: a batch's dictionary
    begins with that of the batch before. Opened with it, a QuestDB table costs one request more, and each SYMBOL column
    that is asked for two: for the table's symbols, which all batches then share without any re-coding."""

    strings: Literal["dictionary", "string"] = "string"
    """Arrow type of other text columns. ``dictionary`` keeps what the pages hold: each distinct value once per row group."""

    columns_from: Literal["newest", "all"] = "newest"
    """Which partitions say what columns a table without ``_meta`` has, when it is opened. ``all`` reads the metadata of all of
    them then: columns that only some have are null in the others, and types are those that Arrow unifies theirs to, as
    ``pyarrow.unify_schemas`` does with ``promote_options="permissive"``, and columns are found by their names alone. Partitions
    that are named always count all, but for columns with ids, which QuestDB may have dropped."""

    statistics: bool = True
    """Whether minima, maxima and null counts decide which row groups are read; False for files that lie about them."""

    make_constant_columns: bool = True
    """Whether chunks of which the statistics prove that every row holds one value are made instead of fetched."""

    bloom_filters: bool = True
    """Whether bloom filters are asked where ``=`` and ``IN`` are not decided by minima and maxima."""

    page_index: When = "auto"
    """Whether pages that provably hold no matching row are left out, by the page index of the file or our ``_pages``."""

    late_materialisation: When = "auto"
    """Whether the columns of the result are fetched only where the predicate's columns, read first, have left rows."""

    max_bytes: int | None = None
    """Most bytes that the data requests of a plan may fetch; a plan above it is refused. None allows any number."""

    max_requests: int | None = None
    """Most data requests of a plan; None allows any number."""

    max_usd: float | None = None
    """Most dollars that the data requests of a plan, and the restores before them, may cost, by ``prices``; None allows any
    sum."""

    prices: PriceTable | None = None
    """What requests and bytes cost, see :class:`coldparquet.prices.PriceTable`; None takes the table of the library."""

    check_storage_classes: bool = True
    """Whether stores with storage classes are asked (one HEAD per partition that is left, beside its sidecar) for class,
    restore state, size and version of its data, so that archived objects are known before any data request, the price is that
    of the class, and a sidecar of another file is found out."""

    archived: Literal["refuse", "skip", "restore"] = "refuse"
    """What to do about partitions in an archive class: end with an error, leave them out and say so, or restore them."""

    restore: RestoreTerms = RestoreTerms()
    """How to restore, if ``archived`` is ``"restore"``."""

    unread: Literal["refuse", "skip"] = "refuse"
    """What to do where Parquet files lie beside the partitions of a table without ``_txn``, so that rows would be missing: do not
    open it, or log a warning (logger ``coldparquet``) and leave them out."""

    check_page_checksums: bool = True
    """Whether the CRC-32 of pages is compared where the file has any: 3 % of the time of decoding zstd pages, 12 % of that of
    uncompressed ones, and nothing where the writer left none."""

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
        if not isinstance(self.restore, RestoreTerms):
            raise InvalidInputError(f"ReadOptions.restore is {self.restore!r}; it must be RestoreTerms")
        if self.goal not in list(COALESCING_BY_GOAL):
            raise InvalidInputError(f"ReadOptions.goal is {self.goal!r}; use one of {', '.join(COALESCING_BY_GOAL)}")
        choices = {
            "symbols": ("dictionary", "global", "string"),
            "strings": ("dictionary", "string"),
            "page_index": ("auto", "always", "never"),
            "late_materialisation": ("auto", "always", "never"),
            "columns_from": ("newest", "all"),
            "sidecars": (True, False),
            "statistics": (True, False),
            "make_constant_columns": (True, False),
            "bloom_filters": (True, False),
            "check_storage_classes": (True, False),
            "archived": ("refuse", "skip", "restore"),
            "unread": ("refuse", "skip"),
            "check_page_checksums": (True, False),
        }
        for name, allowed in choices.items():
            _refuse_other(f"ReadOptions.{name}", getattr(self, name), allowed)
        if self.archived != "refuse" and not self.check_storage_classes:
            raise InvalidInputError(
                f"ReadOptions.archived is {self.archived!r}, but check_storage_classes is False: nobody would know which"
                " partitions are archived; leave check_storage_classes at True, or archived at 'refuse'"
            )


def checked_options(options: ReadOptions | None) -> ReadOptions | None:
    """Return options as they are.

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
    """Return options of a store as they are; the defaults for None.

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
