"""Every knob of a read, with its default and the reason for it. Leaf functions take their knobs as arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from coldparquet.errors import InvalidInputError

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
    # of what parallel requests do at once. 8 MiB is the lower end of the 8-16 MiB that S3 names for throughput. Half a
    # megabyte is 6 ms of transfer: splitting further gains less than another request costs.
    "fast": Coalescing(gap_bytes=128 * KIB, max_request_bytes=8 * MIB, least_part_bytes=512 * KIB),
    # One GET of Standard-IA costs as much as retrieving about 100 KB of it. In Standard itself bytes are free within a
    # region: "few-requests" is the cheapest there.
    "cheap": Coalescing(gap_bytes=100 * KIB, max_request_bytes=64 * MIB, least_part_bytes=64 * MIB),
    "few-requests": Coalescing(gap_bytes=16 * MIB, max_request_bytes=64 * MIB, least_part_bytes=64 * MIB),
    "few-bytes": Coalescing(gap_bytes=0, max_request_bytes=8 * MIB, least_part_bytes=512 * KIB),
}
"""Gap and request length of each goal, with the reason for the numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How to read. Every switch has a default, and none changes the rows.

    What comes out:

    * ``symbols``: SYMBOL columns as ``"dictionary"``, ``"global"`` (one dictionary for all batches) or ``"string"``.
    * ``strings``: other text as ``"string"`` or ``"dictionary"``.
    * ``batch_rows``: most rows in a record batch.

    What is fetched, and in how many requests:

    * ``goal``: ``"fast"``, ``"cheap"``, ``"few-requests"`` or ``"few-bytes"``.
    * ``coalesce_gap_bytes``, ``max_request_bytes``: gaps read over and longest request, if not those of the goal.
    * ``max_concurrency``: requests in flight at once.
    * ``memory_limit_bytes``, ``decode_threads``: how much is held, and decoded at once.
    * ``sidecar_prefix_bytes``, ``footer_suffix_bytes``: length of the first request for metadata.

    What is left out, see "Reading less" in the README:

    * ``statistics``: row groups without a matching row (True or False).
    * ``make_constant_columns``: chunks with one value in every row (True or False).
    * ``bloom_filters``: row groups without the value of ``=`` or ``IN`` (True or False).
    * ``page_index``: pages without a matching row (``"auto"``, ``"always"`` or ``"never"``).
    * ``late_materialisation``: other columns where no row is left (``"auto"``, ``"always"`` or ``"never"``).

    Raises:
        InvalidInputError: A value is not one of these.
    """

    sidecar_prefix_bytes: int = 64 * KIB
    """First GET of a sidecar. 64 KiB holds 20 columns x 50 row groups, and up to about 512 KiB the size of a request
    hardly changes its latency. 32 is the strict protocol: the header alone, then exactly the committed size."""

    footer_suffix_bytes: int = 64 * KIB
    """First GET of a Parquet footer, taken only where a partition has no sidecar."""

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
    and what allocators keep of it. Row groups too large for it are read in runs of pages where their pages are known; the
    one that the consumer waits for always goes on, whatever it needs."""

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
        }
        optional = {"coalesce_gap_bytes", "max_request_bytes", "decode_threads"}
        for name, minimum in least.items():
            value = getattr(self, name)
            if value is None and name in optional:
                continue
            if not isinstance(value, int) or value < minimum:
                raise InvalidInputError(
                    f"ReadOptions.{name} is {value!r}; it must be a whole number, at least {minimum}"
                )
        if self.goal not in list(COALESCING_BY_GOAL):
            raise InvalidInputError(f"ReadOptions.goal is {self.goal!r}; use one of {', '.join(COALESCING_BY_GOAL)}")
        choices = {
            "symbols": ("dictionary", "global", "string"),
            "strings": ("dictionary", "string"),
            "page_index": ("auto", "always", "never"),
            "late_materialisation": ("auto", "always", "never"),
            "statistics": (True, False),
            "make_constant_columns": (True, False),
            "bloom_filters": (True, False),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise InvalidInputError(
                    f"ReadOptions.{name} is {getattr(self, name)!r}; use {' or '.join(map(repr, allowed))}"
                )

    @property
    def coalescing(self) -> Coalescing:
        """How chunk ranges become requests: by the goal, unless the options say otherwise."""
        by_goal = COALESCING_BY_GOAL[self.goal]
        gap, longest = self.coalesce_gap_bytes, self.max_request_bytes
        return Coalescing(
            gap_bytes=by_goal.gap_bytes if gap is None else gap,
            max_request_bytes=by_goal.max_request_bytes if longest is None else longest,
            least_part_bytes=by_goal.least_part_bytes if longest is None else longest,
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
