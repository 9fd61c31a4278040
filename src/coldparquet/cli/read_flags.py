"""The flags of every command that reads rows: what to aim at, and what it may cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from coldparquet.byte_sizes import parse_byte_count

if TYPE_CHECKING:
    from collections.abc import Callable

    from coldparquet.options import Goal, ReadOptions
    from coldparquet.prices import PriceTable, RestoreTier

COST_PANEL = "Cost"


def byte_count(text: str) -> int:
    """Take a flag's number of bytes, with or without a unit.

    Raises:
        typer.BadParameter: It is none.
    """
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
    """Read the price table that the flag names; None where it names none.

    Raises:
        InvalidInputError: It is none.
        NotFoundError: There is no such file.
    """
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
    """Put together what the flags say.

    Raises:
        InvalidInputError: The price table is none.
        NotFoundError: There is no such price table.
    """
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
