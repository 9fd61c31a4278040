"""The flags that several commands share, and what they become: options of reads and ``storage_options``."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from coldparquet.options import StoreOptions, parse_byte_count

if TYPE_CHECKING:
    from collections.abc import Callable

    from coldparquet.options import Goal, ReadOptions
    from coldparquet.prices import PriceTable, RestoreTier


STORAGE_PANEL = "Storage"
TableUrl = Annotated[str, typer.Argument(metavar="URL", help="A table, a partition directory or a Parquet file.")]
Columns = Annotated[
    list[str] | None, typer.Option("--columns", "-c", metavar="A,B", help="Columns of the result; all if not given.")
]
Where = Annotated[
    str | None,
    typer.Option("--where", "-w", metavar="CONDITION", help="Such as: ts >= '2024-03-01' and symbol in ('BTC', 'ETH')"),
]
Limit = Annotated[int | None, typer.Option("--limit", "-n", min=0, metavar="ROWS", help="At most so many rows.")]
Pack = Annotated[
    bool,
    typer.Option("--pack", help="Make the table's _catalogue if there is none; one that exists is renewed anyway."),
]
Partitions = Annotated[
    list[str] | None,
    typer.Option("--partition", "-p", metavar="NAME", help="Only this partition; may be repeated."),
]
Pages = Annotated[bool, typer.Option("--pages", help="Also write _pages: where single pages lie and what bounds them.")]
Deep = Annotated[
    bool, typer.Option("--deep", help="Read every byte, and compare checksums, row counts and statistics with it.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Write nothing; say what would be done.")]
Purge = Annotated[bool, typer.Option("--purge", help="Afterwards remove versions that were replaced long enough ago.")]
PurgeAfterHours = Annotated[
    float, typer.Option(min=0, metavar="HOURS", help="How long readers may go on reading a version that was replaced.")
]
Native = Annotated[
    str,
    typer.Option(
        metavar="convert|leave|refuse",
        help="Native partitions: write them as Parquet, leave them behind and exit with 1, or publish nothing.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
StorageOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="KEY=VALUE",
        help="As for s3fs or another fsspec filesystem; may be repeated. Credentials are better left to the environment.",
        rich_help_panel=STORAGE_PANEL,
    ),
]
EndpointUrl = Annotated[
    str | None,
    typer.Option("--endpoint-url", metavar="URL", help="A store that speaks S3.", rich_help_panel=STORAGE_PANEL),
]
Anonymous = Annotated[
    bool, typer.Option("--anon", help="Without credentials: public data.", rich_help_panel=STORAGE_PANEL)
]

CacheDirectory = Annotated[
    str | None,
    typer.Option(
        "--cache-dir",
        metavar="DIRECTORY",
        help="Keep what is fetched there for the next run; private to you.",
        rich_help_panel=STORAGE_PANEL,
    ),
]


COST_PANEL = "Cost"


def byte_count(text: str) -> int:
    """Take a flag's number of bytes, with or without a unit."""
    try:
        return parse_byte_count(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r}; {error}") from None


def _one_of(*words: str, instead: str = "") -> Callable[[str], str]:
    """Make the parser of a flag that takes one of some words, in letters of any case."""

    def parse(text: str) -> str:
        for word in words:
            if word.lower() == text.lower():
                return word
        raise typer.BadParameter(f"{text!r} is not known; use one of {', '.join(words)}{instead}")

    return parse


GoalFlag = Annotated[
    str,
    typer.Option(
        "--goal",
        metavar="GOAL",
        parser=_one_of("fast", "cheap", "few-requests", "few-bytes"),
        help="fast, cheap, few-requests or few-bytes: what coalescing requests aims at; explain compares them.",
        rich_help_panel=COST_PANEL,
    ),
]
MaxUsdFlag = Annotated[
    float | None,
    typer.Option(
        "--max-usd",
        metavar="DOLLARS",
        min=0,
        help="Read nothing if the data requests would cost more.",
        rich_help_panel=COST_PANEL,
    ),
]
MaxBytesFlag = Annotated[
    int | None,
    typer.Option(
        "--max-bytes",
        metavar="SIZE",
        parser=byte_count,
        help="Read nothing if more data would be fetched: 1000000, 250MB, 1.5GiB.",
        rich_help_panel=COST_PANEL,
    ),
]
MaxRequestsFlag = Annotated[
    int | None,
    typer.Option(
        "--max-requests",
        metavar="COUNT",
        min=0,
        help="Read nothing if it would take more data requests.",
        rich_help_panel=COST_PANEL,
    ),
]
PricesFlag = Annotated[
    str | None,
    typer.Option(
        "--prices",
        metavar="FILE",
        help="What your store charges, as JSON; without it Amazon S3 in us-east-1.",
        rich_help_panel=COST_PANEL,
    ),
]


ArchivedFlag = Annotated[
    str,
    typer.Option(
        "--archived",
        metavar="POLICY",
        parser=_one_of("refuse", "skip", instead="; 'coldparquet restore' makes archived partitions readable"),
        help="refuse, or skip partitions that would have to be restored first ('coldparquet restore').",
        rich_help_panel=COST_PANEL,
    ),
]
UnreadFlag = Annotated[
    str,
    typer.Option(
        "--unread",
        metavar="POLICY",
        parser=_one_of("refuse", "skip"),
        help="refuse a table beside whose partitions lie Parquet files that are not read, or skip these files.",
    ),
]
ColumnsFromFlag = Annotated[
    str,
    typer.Option(
        "--columns-from",
        metavar="PARTITIONS",
        parser=_one_of("newest", "all"),
        help="newest, or all: which partitions say what columns a table without _meta has.",
    ),
]
NoSidecarsFlag = Annotated[
    bool, typer.Option("--no-sidecars", help="Plan from Parquet footers, as if no partition had a sidecar.")
]
TierFlag = Annotated[
    str | None,
    typer.Option(
        "--tier",
        metavar="TIER",
        parser=_one_of("Expedited", "Standard", "Bulk"),
        help="Expedited, Standard or Bulk: how fast, and at which price; Standard if not given.",
    ),
]


def restore_tier(tier: str | None) -> RestoreTier | None:
    """Take over what the flag has parsed."""
    return cast("RestoreTier | None", tier)


def price_table(file: str | None) -> PriceTable | None:
    """Read the price table that the flag names; None where it names none."""
    from coldparquet.prices import PriceTable  # noqa: PLC0415 - --help answers at once

    return None if file is None else PriceTable.read(file)


def read_options_of(
    *,
    goal: str,
    max_usd: float | None,
    max_bytes: int | None,
    max_requests: int | None,
    prices: str | None,
    archived: str,
    unread: str,
    columns_from: str,
    no_sidecars: bool,
) -> ReadOptions:
    """Put together what the flags say."""
    from coldparquet.options import ReadOptions  # noqa: PLC0415 - --help answers at once

    return ReadOptions(
        goal=cast("Goal", goal),
        max_usd=max_usd,
        max_bytes=max_bytes,
        max_requests=max_requests,
        prices=price_table(prices),
        archived=cast("Literal['refuse', 'skip']", archived),
        unread=cast("Literal['refuse', 'skip']", unread),
        columns_from=cast("Literal['newest', 'all']", columns_from),
        sidecars=not no_sidecars,
    )


_WORDS = {"true": True, "false": False, "null": None}
_JSON_VALUE = re.compile(r'-?\d+|[\[{"].*', re.DOTALL)
"""Integers, and whatever begins like a JSON list, object or string; all else is a string as it stands."""


def parse_storage_options(settings: list[str] | None, *, endpoint_url: str | None, anonymous: bool) -> dict[str, Any]:
    """Collect the options of the store."""
    options: dict[str, Any] = {}
    for setting in settings or ():
        key, separator, value = setting.partition("=")
        if not key or not separator:
            # The setting itself is not repeated: it may be a secret.
            raise typer.BadParameter("expected KEY=VALUE", param_hint="--storage-option")
        options[key] = _parse_value(key, value)
    if endpoint_url is not None:
        options["endpoint_url"] = endpoint_url
    if anonymous:
        options["anon"] = True
    return options


def store_options_of(*, cache_directory: str | None) -> StoreOptions:
    """Say what to remember of the store."""
    if cache_directory is None:
        return StoreOptions()
    if not cache_directory or "://" in cache_directory:
        raise typer.BadParameter("expected a local directory", param_hint="--cache-dir")
    return StoreOptions(cache_directory=cache_directory)


def _parse_value(key: str, text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if not _JSON_VALUE.fullmatch(text):
        return text
    try:
        return json.loads(text)
    except ValueError:
        raise typer.BadParameter(
            f"the value of {key} looks like JSON but is none", param_hint="--storage-option"
        ) from None
