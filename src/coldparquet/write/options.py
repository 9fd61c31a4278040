"""Defines the options of writing, with their defaults and the reasons."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from coldparquet.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Mapping

Codec: TypeAlias = Literal["zstd", "lz4_raw", "snappy", "gzip", "brotli", "none"]
Encoding: TypeAlias = Literal["plain", "dictionary", "delta", "delta_length", "byte_stream_split"]

_LEVELS: dict[Codec, range] = {"zstd": range(1, 23), "gzip": range(1, 10), "brotli": range(12)}
"""Levels of the codecs that have them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """How to store rows. The defaults are for cold data: written once, kept for years, read by time range."""

    codec: Codec = "zstd"
    """Of all columns but those in ``column_codecs``. A day of the demo's trades (8 columns, a million rows) takes 31.9
    MB in LZ4_RAW, 31.3 MB in SNAPPY, 26.1 MB in ZSTD at level 1 and 22.3 MB at level 3. LZ4_RAW and SNAPPY are written
    and decoded up to twice as fast. But an object store delivers bytes more slowly than either decodes them."""

    codec_level: int | None = None
    """Level of the codec where it has levels; None means 3 for ZSTD, and Arrow's default for GZIP and BROTLI. ZSTD at
    level 6 saves another 2 % and takes three times as long."""

    column_codecs: Mapping[str, Codec] = field(default_factory=lambda: MappingProxyType({}))
    """Codec by column name; these use their default level."""

    column_encodings: Mapping[str, Encoding] = field(default_factory=lambda: MappingProxyType({}))
    """Encoding by column name. Default: a dictionary for SYMBOL, and for STRING and VARCHAR if the first row group
    repeats its values. Delta for the designated timestamp (in the trades 2.4 bytes a value, 2.9 without). Delta length
    for other strings; plain for everything else. Dictionaries and byte stream split made the trades' prices larger.
    QuestDB reads all of them but ``byte_stream_split``."""

    row_group_rows: int = 100_000
    """QuestDB's own default. All of a row group's rows are in memory while it is written."""

    page_rows: int = 20_000
    """Most rows in a page; a page also ends at 1 MiB. QuestDB's default makes each chunk one page, so readers must
    fetch whole chunks; five pages cost some 0.1 % more bytes."""

    page_index: bool = True
    """Whether to write bounds and offsets of all pages, which readers need to fetch single pages."""

    pages: bool = False
    """Whether to also write the page index into a ``_pages`` beside the sidecar. Readers fetch both at once, which
    saves a round trip to find the pages. A compaction also writes one where the old version had one."""

    bloom_columns: tuple[str, ...] = ()
    """Columns with a bloom filter per row group: those queried by ``=`` whose values are many and unsorted. A filter
    takes up to 1.3 bytes per distinct value."""

    bloom_fpp: float = 0.01
    """False positive rate of the bloom filters; QuestDB's own default."""

    sort: bool = False
    """Whether to sort rows that are not in the order of the designated timestamp, stably. All rows must then fit into
    memory. Without it, unsorted rows are an error."""

    def __post_init__(self) -> None:
        for codec in (self.codec, *self.column_codecs.values()):
            _check_choice("codec", codec, get_args(Codec))
        for encoding in self.column_encodings.values():
            _check_choice("column_encodings", encoding, get_args(Encoding))
        levels = _LEVELS.get(self.codec, range(0))
        if self.codec_level is not None and self.codec_level not in levels:
            allowed = f"from {levels.start} to {levels.stop - 1}" if levels else "None: it has no levels"
            raise InvalidInputError(
                f"WriteOptions.codec_level is {self.codec_level!r}; for {self.codec} it must be {allowed}"
            )
        for name in ("row_group_rows", "page_rows"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST_ROWS:
                raise InvalidInputError(
                    f"WriteOptions.{name} is {value!r}; it must be a whole number from 1 to {_MOST_ROWS:,}"
                )
        if self.pages and not self.page_index:
            raise InvalidInputError("WriteOptions.pages needs page_index: that is where the pages are taken from")
        if not 0 < self.bloom_fpp < 1:
            raise InvalidInputError(f"WriteOptions.bloom_fpp is {self.bloom_fpp!r}; it must lie between 0 and 1")
        if isinstance(self.bloom_columns, str):
            raise InvalidInputError(
                f"WriteOptions.bloom_columns is the text {self.bloom_columns!r}; give a tuple of column names"
            )

    def codec_of(self, column: str) -> Codec:
        """Return the codec of a column."""
        return self.column_codecs.get(column, self.codec)

    def level_of(self, column: str) -> int | None:
        """Return the level of a column's codec; None leaves it to Arrow."""
        codec = self.codec_of(column)
        if column not in self.column_codecs and self.codec_level is not None:
            return self.codec_level
        return _ZSTD_LEVEL if codec == "zstd" else None

    def named_columns(self) -> frozenset[str]:
        """Return all columns that the options name."""
        return frozenset(self.column_codecs) | frozenset(self.column_encodings) | frozenset(self.bloom_columns)


_ZSTD_LEVEL = 3
_MOST_ROWS = (1 << 31) - 1
"""What Parquet can count in a page, and Arrow in a bloom filter."""


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InvalidInputError(f"WriteOptions.{name} is {value!r}; use one of {', '.join(choices)}")
