"""The flags that several commands share, and what they become: options of reads and ``storage_options``."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from coldparquet.options import KEY_TYPES, ReadOptions, StoreOptions, parse_byte_count, parse_key_types

if TYPE_CHECKING:
    from collections.abc import Callable

    from coldparquet.options import Goal, KeyTypes
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
Limit = Annotated[int | None, typer.Option("--limit", "-n", min=0, metavar="ROWS", help="Maximum number of rows.")]
Pack = Annotated[
    bool,
    typer.Option("--pack", help="Make the table's _catalogue if there is none; one that exists is renewed anyway."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Write nothing; say what would be done.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
COST_PANEL = "Cost"


def byte_count(text: str) -> int:
    """Take a flag's number of bytes, with or without a unit."""
    try:
        return parse_byte_count(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r}; {error}") from None


def _key_types(text: str) -> KeyTypes:
    try:
        return parse_key_types(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r}: {error}") from None


def _one_of(*words: str, instead: str = "") -> Callable[[str], str]:
    """Make the parser of a flag that takes one of some words, in letters of any case."""

    def parse(text: str) -> str:
        for word in words:
            if word.lower() == text.lower():
                return word
        raise typer.BadParameter(f"{text!r} is not known; use one of {', '.join(words)}{instead}")

    return parse


_GOALS = ("fast", "cheap", "few-requests", "few-bytes")

PricesFlag = Annotated[
    str | None,
    typer.Option(
        "--prices",
        metavar="FILE",
        help="What your store charges, as JSON; without it Amazon S3 in us-east-1.",
        rich_help_panel=COST_PANEL,
    ),
]


TierFlag = Annotated[
    str | None,
    typer.Option(
        "--tier",
        metavar="Expedited|Standard|Bulk",
        parser=_one_of("Expedited", "Standard", "Bulk"),
        help="How fast, and at which price; Standard if not given.",
    ),
]


def restore_tier(tier: str | None) -> RestoreTier | None:
    """Take over what the flag has parsed."""
    return cast("RestoreTier | None", tier)


def price_table(file: str | None) -> PriceTable | None:
    """Read the price table that the flag names; None where it names none."""
    from coldparquet.prices import PriceTable  # noqa: PLC0415 - --help answers at once

    return None if file is None else PriceTable.read(file)


LogFormat = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="delta|iceberg",
        parser=_one_of("delta", "iceberg"),
        help="Which log says what files the table has; needs deltalake or pyiceberg.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFlags:
    """How to read: those of ``scan``, ``explain`` and ``count``."""

    goal: Annotated[
        str,
        typer.Option(
            metavar="GOAL",
            parser=_one_of(*_GOALS),
            autocompletion=lambda: list(_GOALS),
            help="What coalescing requests aims at: fast, cheap, few-requests or few-bytes; explain compares them.",
            rich_help_panel=COST_PANEL,
        ),
    ] = "fast"
    max_usd: Annotated[
        float | None,
        typer.Option(
            metavar="DOLLARS",
            min=0,
            help="Read nothing if the data requests would cost more.",
            rich_help_panel=COST_PANEL,
        ),
    ] = None
    max_bytes: Annotated[
        int | None,
        typer.Option(
            metavar="SIZE",
            parser=byte_count,
            help="Read nothing if more data would be fetched: 1000000, 250MB, 1.5GiB.",
            rich_help_panel=COST_PANEL,
        ),
    ] = None
    max_requests: Annotated[
        int | None,
        typer.Option(
            metavar="COUNT",
            min=0,
            help="Read nothing if it would take more data requests.",
            rich_help_panel=COST_PANEL,
        ),
    ] = None
    prices: PricesFlag = None
    archived: Annotated[
        str,
        typer.Option(
            metavar="refuse|skip",
            parser=_one_of("refuse", "skip", instead="; 'coldparquet restore' makes archived partitions readable"),
            help="Partitions that would have to be restored first ('coldparquet restore').",
            rich_help_panel=COST_PANEL,
        ),
    ] = "refuse"
    unread: Annotated[
        str,
        typer.Option(
            metavar="refuse|skip",
            parser=_one_of("refuse", "skip"),
            help="Parquet files beside the partitions of a table, which are not read: refuse the table, or skip them.",
        ),
    ] = "refuse"
    columns_from: Annotated[
        str,
        typer.Option(
            metavar="auto|newest|all",
            parser=_one_of("auto", "newest", "all"),
            help="Which partitions say what columns a table without _meta has; auto: all that its index knows, or the newest.",
        ),
    ] = "auto"
    timestamp: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="The column that says when a row happened, for files that do not name one."
        ),
    ] = None
    keys: Annotated[
        Any,
        typer.Option(
            metavar="inferred|text|KEY=TYPE,...",
            parser=_key_types,
            help=f"Types of the columns that directories such as date=2024-03-01 state: {', '.join(KEY_TYPES)}.",
        ),
    ] = "inferred"
    index: IndexPlace = None
    format: LogFormat = None
    no_sidecars: Annotated[
        bool, typer.Option("--no-sidecars", help="Plan from Parquet footers, as if no partition had a sidecar.")
    ] = False

    def read_options(self) -> ReadOptions:
        """Put together what the flags say."""
        return ReadOptions(
            goal=cast("Goal", self.goal),
            max_usd=self.max_usd,
            max_bytes=self.max_bytes,
            max_requests=self.max_requests,
            prices=price_table(self.prices),
            archived=cast("Literal['refuse', 'skip']", self.archived),
            unread=cast("Literal['refuse', 'skip']", self.unread),
            columns_from=cast("Literal['auto', 'newest', 'all']", self.columns_from),
            timestamp=self.timestamp,
            keys=self.keys,
            index=self.index,
            format=cast("Literal['delta', 'iceberg'] | None", self.format),
            sidecars=not self.no_sidecars,
        )


IndexPlace = Annotated[
    str | None,
    typer.Option("--index", metavar="URL", help="Directory with the index of a table that is not yours to write to."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFlags:
    """How to reach the store."""

    storage_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="As for s3fs or another fsspec filesystem; may be repeated. Credentials are better left to the environment.",
            rich_help_panel=STORAGE_PANEL,
        ),
    ] = None
    endpoint_url: Annotated[
        str | None, typer.Option(metavar="URL", help="A store that speaks S3.", rich_help_panel=STORAGE_PANEL)
    ] = None
    anon: Annotated[
        bool, typer.Option("--anon", help="Without credentials: public data.", rich_help_panel=STORAGE_PANEL)
    ] = False

    def storage_options(self) -> dict[str, Any]:
        """Put together what the flags say."""
        options = parse_storage_options(self.storage_option)
        if self.endpoint_url is not None:
            options["endpoint_url"] = self.endpoint_url
        if self.anon:
            options["anon"] = True
        return options


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedStoreFlags(StoreFlags):
    """How to reach the store, and what to keep of it."""

    cache_dir: Annotated[
        str | None,
        typer.Option(
            metavar="DIRECTORY",
            help="Keep what is fetched there for the next run; private to you.",
            rich_help_panel=STORAGE_PANEL,
        ),
    ] = None

    def store_options(self) -> StoreOptions:
        """Say what to remember of the store."""
        if self.cache_dir is None:
            return StoreOptions()
        if not self.cache_dir or "://" in self.cache_dir:
            raise typer.BadParameter("expected a local directory", param_hint="--cache-dir")
        return StoreOptions(cache_directory=self.cache_dir)


def takes_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Show typer the fields of parameters that are dataclasses of flags, and give the command the dataclasses."""
    own = signature(command, eval_str=True).parameters
    groups: dict[str, Any] = {
        name: parameter.annotation for name, parameter in own.items() if is_dataclass(parameter.annotation)
    }
    flags = {name: signature(group, eval_str=True).parameters for name, group in groups.items()}

    @wraps(command)
    def with_groups(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{flag: values.pop(flag) for flag in flags[name]})
        command(**values)

    shown: list[Parameter] = []
    for name, parameter in own.items():
        shown += flags[name].values() if name in flags else [parameter]
    vars(with_groups)["__signature__"] = Signature(shown)
    return with_groups


_WORDS = {"true": True, "false": False, "null": None}
_JSON_VALUE = re.compile(r'-?\d+|[\[{"].*', re.DOTALL)
"""Integers, and whatever begins like a JSON list, object or string; all else is a string as it stands."""


def parse_storage_options(settings: list[str] | None) -> dict[str, Any]:
    """Read the settings ``KEY=VALUE`` of a flag."""
    options: dict[str, Any] = {}
    for setting in settings or ():
        key, separator, value = setting.partition("=")
        if not key or not separator:
            # The setting itself is not repeated: it may be a secret.
            raise typer.BadParameter("expected KEY=VALUE", param_hint="--storage-option")
        options[key] = _parse_value(key, value)
    return options


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
