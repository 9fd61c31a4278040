"""The options of the data source: names, what they take, and the settings of the library that they stand for.

| option | meaning |
|---|---|
| ``path`` (the argument of ``load``) | table, or several with commas between them; ``*``, ``?`` and ``[ab]`` stand for names of directories |
| ``paths`` | a JSON list of such URLs, for names that hold a comma; Spark sets it where ``load`` gets a list |
| ``columns`` | names with commas between them, or a JSON list: only these are read; an empty one reads no column, but counts rows |
| ``where`` | SQL text; what Spark does not push (OR, functions) can be said here. NaN counts as the library has it, see ``coldparquet.plan.predicate`` |
| ``push_filters`` | ``true`` takes filters over from Spark, see :class:`coldparquet.spark.source.DefaultSource` for when that is safe; default ``false`` |
| ``nanoseconds`` | ``timestamp`` (default; cut to microseconds) or ``long``: what becomes of TIMESTAMP_NS |
| ``pieces`` | most tasks of a scan; by default one for each 64 MiB of compressed and decoded bytes |
| ``goal`` | ``fast``, ``cheap``, ``few-requests`` or ``few-bytes`` |
| ``memory_limit`` | of a task: 256MiB |
| ``max_concurrency`` | requests in flight at once, in each task |
| ``batch_rows`` | most rows of a batch |
| ``max_bytes``, ``max_requests``, ``max_usd`` | a scan that needs more is refused on the driver |
| ``prices`` | JSON file with what the store charges, read on the driver |
| ``archived`` | ``refuse``, ``skip`` or ``restore`` partitions in an archive class |
| ``restore_tier``, ``restore_days``, ``restore_wait`` | how to restore them |
| ``cache_directory`` | where each machine keeps sidecars and fetched ranges between runs |
| ``max_attempts`` | how often a request may fail in a row |
| ``credentials``, ``storage_options``, ``storage.KEY`` | see :mod:`coldparquet.spark.credentials` |

Names are the same in letters of any case; an unknown one is refused.
"""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from coldparquet.errors import InvalidInputError
from coldparquet.options import ReadOptions, RestoreTerms, StoreOptions
from coldparquet.prices import PriceTable
from coldparquet.spark.credentials import STORAGE_PREFIX, Credentials

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

NanosecondsAs: TypeAlias = Literal["timestamp", "long"]
"""TIMESTAMP_NS: as Spark's timestamp, cut to microseconds, or as nanoseconds since 1970."""

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}
_SIZE = re.compile(r"(?P<number>\d{1,15}(\.\d{1,6})?) ?(?P<unit>[A-Za-z]{0,3})", re.ASCII)


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
        lowered = {name.lower(): value for name, value in options.items()}
        _refuse_unknown(lowered, also)
        read = OptionReading(lowered)
        restore = RestoreTerms(
            **read.given(tier=("restore_tier", str), days=("restore_days", _whole), wait=("restore_wait", _truth))
        )
        return cls(
            urls=table_urls(lowered),
            columns=read.one("columns", _names),
            where=read.one("where", str),
            push_filters=read.one("push_filters", _truth) or False,
            nanoseconds=read.one("nanoseconds", _nanoseconds) or "timestamp",
            most_pieces=read.one("pieces", positive_count),
            read_options=ReadOptions(
                # Spark's strings are no dictionaries: making some of the pages' would be work for nothing.
                symbols="string",
                restore=restore,
                **read.given(
                    goal=("goal", str),
                    memory_limit_bytes=("memory_limit", byte_count),
                    max_concurrency=("max_concurrency", _whole),
                    batch_rows=("batch_rows", _whole),
                    max_bytes=("max_bytes", byte_count),
                    max_requests=("max_requests", _whole),
                    max_usd=("max_usd", _number),
                    prices=("prices", PriceTable.read),
                    archived=("archived", str),
                ),
            ),
            store_options=StoreOptions(
                **read.given(cache_directory=("cache_directory", str), max_attempts=("max_attempts", _whole))
            ),
            credentials=Credentials.parse(lowered),
        )


def table_urls(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the tables that are named by the options ``path`` (commas between them) and ``paths`` (a JSON list).

    Args:
        options: With names in lower case.

    Raises:
        InvalidInputError: There is none, or ``paths`` is no list of texts (kind ``InvalidOption``).
    """
    urls = [part.strip() for part in options.get("path", "").split(",")]
    if "paths" in options:
        urls += _list_of_texts(options["paths"])
    found = tuple(dict.fromkeys(url for url in urls if url))
    if not found:
        raise InvalidInputError(
            'no table is named: spark.read.format("coldparquet").load("s3://bucket/db/trades")', kind="InvalidOption"
        )
    return found


class OptionReading:
    """The options that are given, each turned into the value that it stands for."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    def one(self, name: str, convert: Callable[[str], Any]) -> Any:
        """Return the value of one option, None where it is not given."""
        if name not in self._options:
            return None
        text = self._options[name]
        try:
            return convert(text)
        except ValueError as error:
            if isinstance(error, InvalidInputError):
                raise
            raise InvalidInputError(f"the option {name} is {text!r}; {error}", kind="InvalidOption") from None

    def given(self, **wanted: tuple[str, Callable[[str], Any]]) -> dict[str, Any]:
        """Return the values of those options that are given, by the names that the library has for them."""
        return {field: self.one(name, convert) for field, (name, convert) in wanted.items() if name in self._options}


_OPTIONS = frozenset(
    """
    archived batch_rows cache_directory columns credentials goal max_attempts max_bytes max_concurrency max_requests max_usd
    memory_limit nanoseconds path paths pieces prices push_filters restore_days restore_tier restore_wait storage_options where
    """.split()  # noqa: SIM905 - twenty quoted words, one per line, would be harder to read
)


def _refuse_unknown(options: Mapping[str, str], also: frozenset[str]) -> None:
    known = _OPTIONS | also
    for name in options:
        if name in known or name.startswith(STORAGE_PREFIX):
            continue
        near = difflib.get_close_matches(name, known, n=1)
        advice = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(known))} and storage.KEY"
        raise InvalidInputError(f"there is no option {name!r}; {advice}", kind="InvalidOption", option=name)


def _names(text: str) -> tuple[str, ...]:
    if text.lstrip().startswith("["):
        return tuple(_list_of_texts(text))
    return tuple(name for part in text.split(",") if (name := part.strip()))


def _list_of_texts(text: str) -> list[str]:
    try:
        values = json.loads(text)
    except ValueError:
        values = None
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise InvalidInputError(f'{text!r} is no JSON list of texts; write it as ["ts", "price"]', kind="InvalidOption")
    return values


def _nanoseconds(text: str) -> str:
    if text not in ("timestamp", "long"):
        raise ValueError("it must be 'timestamp' or 'long'")
    return text


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("it must be a whole number") from None


def positive_count(text: str) -> int:
    """Read a whole number that is at least 1; ``ValueError`` says what it must be."""
    count = _whole(text)
    if count < 1:
        raise ValueError("it must be at least 1")
    return count


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("it must be a number") from None


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("it must be true or false")
    return text.lower() == "true"


def byte_count(text: str) -> int:
    """Read a number of bytes, with or without a unit; ``ValueError`` says what it must be."""
    match = _SIZE.fullmatch(text.strip())
    unit = None if match is None else _UNITS.get(match["unit"].upper().removesuffix("B"))
    if match is None or unit is None:
        raise ValueError("it must be a number of bytes, such as 1000000, 250MB or 1.5GiB")
    return int(float(match["number"]) * unit)
