"""The commands that ask a table something."""
# ruff: noqa: PLC0415 - each command imports what it needs, so that --help and --version answer at once

from __future__ import annotations

from typing import Annotated

import typer

from coldparquet.cli.flags import (
    Anonymous,
    ArchivedFlag,
    CacheDirectory,
    Columns,
    ColumnsFromFlag,
    EndpointUrl,
    GoalFlag,
    Json,
    Limit,
    MaxBytesFlag,
    MaxRequestsFlag,
    MaxUsdFlag,
    NoSidecarsFlag,
    PricesFlag,
    StorageOptions,
    TableUrl,
    UnreadFlag,
    Where,
    parse_storage_options,
    read_options_of,
    store_options_of,
)
from coldparquet.cli.output import reported_failures


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
        typer.Option("--sidecars", help="Of a table: look for every partition's sidecar, with 1 request for each."),
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
    storage_option: StorageOptions = None,
    endpoint_url: EndpointUrl = None,
    anon: Anonymous = False,
) -> None:
    """Show what a sidecar says, and check every byte of it; or list the partitions of a table."""
    storage_options = parse_storage_options(storage_option, endpoint_url=endpoint_url, anonymous=anon)
    with reported_failures(as_json=as_json):
        from coldparquet.cli.inspect import SnapshotChoice, inspect_files

        choice = SnapshotChoice(parquet_size_bytes=parquet_size, sidecar_size_bytes=pm_size)
        exit_code = inspect_files(
            files, storage_options=storage_options, choice=choice, look_for_sidecars=sidecars, as_json=as_json
        )
    raise typer.Exit(exit_code)


def explain(
    url: TableUrl,
    *,
    columns: Columns = None,
    where: Where = None,
    limit: Limit = None,
    goal: GoalFlag = "fast",
    max_usd: MaxUsdFlag = None,
    max_bytes: MaxBytesFlag = None,
    max_requests: MaxRequestsFlag = None,
    prices: PricesFlag = None,
    archived: ArchivedFlag = "refuse",
    unread: UnreadFlag = "refuse",
    columns_from: ColumnsFromFlag = "newest",
    no_sidecars: NoSidecarsFlag = False,
    as_json: Json = False,
    storage_option: StorageOptions = None,
    endpoint_url: EndpointUrl = None,
    anon: Anonymous = False,
    cache_dir: CacheDirectory = None,
) -> None:
    """Show which bytes a scan would read, why, and what that costs."""
    storage_options = parse_storage_options(storage_option, endpoint_url=endpoint_url, anonymous=anon)
    store_options = store_options_of(cache_directory=cache_dir)
    with reported_failures(as_json=as_json, reads=True):
        from coldparquet.cli import scan_command

        options = read_options_of(
            goal=goal,
            max_usd=max_usd,
            max_bytes=max_bytes,
            max_requests=max_requests,
            prices=prices,
            archived=archived,
            unread=unread,
            columns_from=columns_from,
            no_sidecars=no_sidecars,
        )
        question = scan_command.question_about(
            url,
            storage_options=storage_options,
            store_options=store_options,
            options=options,
            columns=columns,
            where=where,
            limit=limit,
        )
        scan_command.explain(question, as_json=as_json)


def scan(
    url: TableUrl,
    *,
    columns: Columns = None,
    where: Where = None,
    limit: Limit = None,
    tail: Annotated[
        int | None, typer.Option("--tail", min=0, metavar="ROWS", help="Only the last so many rows, read from the end.")
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
    goal: GoalFlag = "fast",
    max_usd: MaxUsdFlag = None,
    max_bytes: MaxBytesFlag = None,
    max_requests: MaxRequestsFlag = None,
    prices: PricesFlag = None,
    archived: ArchivedFlag = "refuse",
    unread: UnreadFlag = "refuse",
    columns_from: ColumnsFromFlag = "newest",
    no_sidecars: NoSidecarsFlag = False,
    as_json: Json = False,
    storage_option: StorageOptions = None,
    endpoint_url: EndpointUrl = None,
    anon: Anonymous = False,
    cache_dir: CacheDirectory = None,
) -> None:
    """Read the rows that satisfy a condition."""
    storage_options = parse_storage_options(storage_option, endpoint_url=endpoint_url, anonymous=anon)
    store_options = store_options_of(cache_directory=cache_dir)
    with reported_failures(as_json=as_json, reads=True):
        from coldparquet.cli import scan_command
        from coldparquet.cli.profile import scan_profile

        options = read_options_of(
            goal=goal,
            max_usd=max_usd,
            max_bytes=max_bytes,
            max_requests=max_requests,
            prices=prices,
            archived=archived,
            unread=unread,
            columns_from=columns_from,
            no_sidecars=no_sidecars,
        )
        question = scan_command.question_about(
            url,
            storage_options=storage_options,
            store_options=store_options,
            options=options,
            columns=columns,
            where=where,
            limit=limit,
            tail=tail,
        )
        scan_command.scan(
            question, output=output, as_json=as_json, profile=scan_profile(profile=profile, report=report)
        )


def count(
    url: TableUrl,
    *,
    where: Where = None,
    limit: Limit = None,
    goal: GoalFlag = "fast",
    max_usd: MaxUsdFlag = None,
    max_bytes: MaxBytesFlag = None,
    max_requests: MaxRequestsFlag = None,
    prices: PricesFlag = None,
    archived: ArchivedFlag = "refuse",
    unread: UnreadFlag = "refuse",
    columns_from: ColumnsFromFlag = "newest",
    no_sidecars: NoSidecarsFlag = False,
    as_json: Json = False,
    storage_option: StorageOptions = None,
    endpoint_url: EndpointUrl = None,
    anon: Anonymous = False,
    cache_dir: CacheDirectory = None,
) -> None:
    """Count the rows that satisfy a condition, without data where that is exact."""
    storage_options = parse_storage_options(storage_option, endpoint_url=endpoint_url, anonymous=anon)
    store_options = store_options_of(cache_directory=cache_dir)
    with reported_failures(as_json=as_json, reads=True):
        from coldparquet.cli import scan_command

        options = read_options_of(
            goal=goal,
            max_usd=max_usd,
            max_bytes=max_bytes,
            max_requests=max_requests,
            prices=prices,
            archived=archived,
            unread=unread,
            columns_from=columns_from,
            no_sidecars=no_sidecars,
        )
        question = scan_command.question_about(
            url,
            storage_options=storage_options,
            store_options=store_options,
            options=options,
            where=where,
            limit=limit,
        )
        scan_command.count(question, as_json=as_json)
