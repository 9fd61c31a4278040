"""The commands that ask a table something."""
# ruff: noqa: PLC0415 - each command imports what it needs, so that --help and --version answer at once

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coldparquet.cli.failures import reported_failures
from coldparquet.cli.flags import (
    COST_PANEL,
    CachedStoreFlags,
    Columns,
    Json,
    Limit,
    PricesFlag,
    ReadFlags,
    StoreFlags,
    TableUrl,
    TierFlag,
    Where,
    price_table,
    restore_tier,
    takes_flags,
)
from coldparquet.options import MAX_RESTORE_DAYS, ReadOptions


@takes_flags
def inspect(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...", help="Sidecars (_pm), the partition directories in which they lie, or table directories."
        ),
    ],
    *,
    sidecars: Annotated[
        bool,
        typer.Option("--sidecars", help="Of a table: fetch every partition's sidecar, with 1 request for each."),
    ] = False,
    parquet_size: Annotated[
        int | None,
        typer.Option(min=0, metavar="BYTES", help="The snapshot of a Parquet file of this size, not the newest one."),
    ] = None,
    pm_size: Annotated[
        int | None,
        typer.Option(min=1, metavar="BYTES", help="The snapshot that was the newest when the sidecar had this size."),
    ] = None,
    as_json: Json = False,
    store: StoreFlags,
) -> None:
    """List the partitions of a table; or show what a sidecar says, and check every byte of it.

    Examples:
        coldparquet inspect s3://lake/trades --sidecars
        coldparquet inspect s3://lake/trades/2024-03-01.1
    """
    with reported_failures(as_json=as_json):
        from coldparquet.cli.inspect import SnapshotChoice, inspect_files

        choice = SnapshotChoice(parquet_size_bytes=parquet_size, sidecar_size_bytes=pm_size)
        exit_code = inspect_files(
            files, storage_options=store.storage_options(), choice=choice, with_sidecars=sidecars, as_json=as_json
        )
    raise typer.Exit(exit_code)


@takes_flags
def explain(
    url: TableUrl,
    *,
    columns: Columns = None,
    where: Where = None,
    limit: Limit = None,
    reads: ReadFlags,
    as_json: Json = False,
    store: CachedStoreFlags,
) -> None:
    """Show which bytes a scan would read, why, and what that costs.

    Examples:
        coldparquet explain s3://lake/trades -w "ts >= '2024-03-01'" -c ts,price
    """
    with reported_failures(as_json=as_json, reads=True):
        from coldparquet.cli import scan_command

        question = scan_command.question_about(url, store=store, reads=reads, columns=columns, where=where, limit=limit)
        scan_command.explain(question, as_json=as_json)


@takes_flags
def scan(
    url: TableUrl,
    *,
    columns: Columns = None,
    where: Where = None,
    limit: Limit = None,
    tail: Annotated[
        int | None, typer.Option("--tail", min=0, metavar="ROWS", help="Only the last rows, read from the end.")
    ] = None,
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", metavar="FILE", help="A .parquet, .csv or .arrow file; - is standard output, as CSV."
        ),
    ] = "-",
    profile: Annotated[
        bool, typer.Option("--profile", help="Print the requests over time, and what they cost, on standard error.")
    ] = False,
    report: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write a report of the requests: .html, or .svg for the picture alone."),
    ] = None,
    reads: ReadFlags,
    as_json: Json = False,
    store: CachedStoreFlags,
) -> None:
    """Read the rows that satisfy a condition.

    Examples:
        coldparquet scan s3://lake/trades -c ts,price -w "symbol = 'BTC'" -n 10
        coldparquet scan s3://lake/trades -w "ts >= '2024-03-01'" -o march.parquet
    """
    with reported_failures(as_json=as_json, reads=True):
        from coldparquet.cli import scan_command
        from coldparquet.cli.profile import scan_profile

        question = scan_command.question_about(
            url, store=store, reads=reads, columns=columns, where=where, limit=limit, tail=tail
        )
        scan_command.scan(
            question, output=output, as_json=as_json, profile=scan_profile(profile=profile, report=report)
        )


@takes_flags
def count(
    url: TableUrl,
    *,
    where: Where = None,
    limit: Limit = None,
    reads: ReadFlags,
    as_json: Json = False,
    store: CachedStoreFlags,
) -> None:
    """Count the rows that satisfy a condition, without data where that is exact.

    Examples:
        coldparquet count s3://lake/trades -w "ts >= '2024-03-01'"
    """
    with reported_failures(as_json=as_json, reads=True):
        from coldparquet.cli import scan_command

        question = scan_command.question_about(url, store=store, reads=reads, where=where, limit=limit)
        scan_command.count(question, as_json=as_json)


@takes_flags
def restore(
    url: TableUrl,
    *,
    where: Where = None,
    whole_table: Annotated[bool, typer.Option("--all", help="Restore every archived partition of the table.")] = False,
    tier: TierFlag = None,
    days: Annotated[
        int | None,
        typer.Option(
            "--days", min=1, max=MAX_RESTORE_DAYS, metavar="DAYS", help="How long the copies stay; 1 if not given."
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until everything can be read.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Restore nothing; say what would be restored, and what that costs.")
    ] = False,
    ticket: Annotated[
        Path | None,
        typer.Option(
            "--ticket",
            metavar="FILE",
            help="A new file, for the ticket of this restore; or the ticket of an earlier one, to look at or --wait for.",
        ),
    ] = None,
    max_usd: Annotated[
        float | None,
        typer.Option(
            "--max-usd",
            metavar="DOLLARS",
            min=0,
            help="Restore nothing if that, and reading what it is for, would cost more.",
            rich_help_panel=COST_PANEL,
        ),
    ] = None,
    prices: PricesFlag = None,
    as_json: Json = False,
    store: StoreFlags,
) -> None:
    """Restore the archived partitions that hold rows of a condition, so that they can be read for some days.

    Only partitions that may hold such rows are restored, or all with --all. Asking again costs nothing while a restore
    is under way.

    Examples:
        coldparquet restore s3://lake/trades -w "ts < '2020-02-01'" --dry-run
        coldparquet restore s3://lake/trades --all --tier Bulk --wait
    """
    storage_options = store.storage_options()
    with reported_failures(as_json=as_json):
        from coldparquet.cli.restore_command import RestoreQuestion, restore_and_report

        question = RestoreQuestion(
            url=url,
            storage_options=storage_options,
            where=where,
            is_whole_table=whole_table,
            tier=restore_tier(tier),
            days=days,
            wait=wait,
            dry_run=dry_run,
            ticket_file=ticket,
            options=ReadOptions(max_usd=max_usd, prices=price_table(prices)),
        )
        restore_and_report(question, as_json=as_json)
