"""The commands that keep a table in order."""
# ruff: noqa: PLC0415 - each command imports what it needs, so that --help and --version answer at once

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coldparquet.cli.flags import (
    COST_PANEL,
    Anonymous,
    Deep,
    DryRun,
    EndpointUrl,
    Json,
    Pack,
    Pages,
    Partitions,
    PricesFlag,
    Purge,
    PurgeAfterHours,
    StorageOptions,
    TableUrl,
    TierFlag,
    Where,
    parse_storage_options,
    price_table,
    restore_tier,
)
from coldparquet.cli.output import reported_failures
from coldparquet.options import KIB, MAX_RESTORE_DAYS, MIB, ReadOptions


def index(
    url: TableUrl,
    *,
    pages: Pages = False,
    force: Annotated[bool, typer.Option("--force", help="Also write sidecars and _pages anew that exist.")] = False,
    pack: Pack = False,
    inline_blooms_kib: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="KIB",
            help="Put bloom filters into a sidecar if it then has at most this size, 64 if not given; otherwise it says where they are.",
        ),
    ] = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    storage_option: StorageOptions = None,
    endpoint_url: EndpointUrl = None,
    anon: Anonymous = False,
) -> None:
    """Write the sidecars that are missing beside Parquet files, and renew those that are of another file."""
    storage_options = parse_storage_options(storage_option, endpoint_url=endpoint_url, anonymous=anon)
    with reported_failures(as_json=as_json):
        from coldparquet.cli.index_command import index_and_report

        exit_code = index_and_report(
            url,
            storage_options=storage_options,
            pages=pages,
            force=force,
            pack=pack,
            inline_bloom_bytes=None if inline_blooms_kib is None else inline_blooms_kib * KIB,
            dry_run=dry_run,
            as_json=as_json,
        )
    raise typer.Exit(exit_code)


def migrate(
    url: Annotated[str, typer.Argument(metavar="URL", help="A QuestDB table: a directory with a _txn.")],
    *,
    force: Annotated[
        bool, typer.Option("--force", help="Also write sidecars anew that describe the committed Parquet file.")
    ] = False,
    pack: Pack = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    storage_option: StorageOptions = None,
    endpoint_url: EndpointUrl = None,
    anon: Anonymous = False,
) -> None:
    """Add missing sidecars to a QuestDB table, as its _txn commits its Parquet files.

    Sidecars that describe the committed file are kept, as QuestDB's own migration 940 keeps them; its migration 941
    replaces them all, as --force does. The table's own files are never written.
    """
    storage_options = parse_storage_options(storage_option, endpoint_url=endpoint_url, anonymous=anon)
    with reported_failures(as_json=as_json):
        from coldparquet.cli.migrate_command import migrate_and_report

        exit_code = migrate_and_report(
            url, storage_options=storage_options, force=force, pack=pack, dry_run=dry_run, as_json=as_json
        )
    raise typer.Exit(exit_code)


def compact(
    url: Annotated[str, typer.Argument(metavar="URL", help="A table: its directory.")],
    *,
    partition: Partitions = None,
    force: Annotated[bool, typer.Option("--force", help="Write partitions anew even if that is not worth it.")] = False,
    dry_run: DryRun = False,
    purge: Purge = False,
    purge_after_hours: PurgeAfterHours = 24.0,
    pack: Pack = False,
    as_json: Json = False,
    storage_option: StorageOptions = None,
    endpoint_url: EndpointUrl = None,
    anon: Anonymous = False,
) -> None:
    """Write partitions anew that have many dead bytes or small row groups.

    No QuestDB may have the table open: it would not notice, and write over it. Stop the server first, or work on a copy.
    """
    storage_options = parse_storage_options(storage_option, endpoint_url=endpoint_url, anonymous=anon)
    with reported_failures(as_json=as_json):
        from coldparquet.cli.compact_command import compact_and_report

        exit_code = compact_and_report(
            url,
            partitions=partition,
            storage_options=storage_options,
            force=force,
            dry_run=dry_run,
            purge=purge,
            pack=pack,
            purge_after_s=purge_after_hours * 3600,
            as_json=as_json,
        )
    raise typer.Exit(exit_code)


def pack(
    url: Annotated[str, typer.Argument(metavar="URL", help="A table: its directory.")],
    *,
    bloom_limit_mib: Annotated[
        int, typer.Option(min=0, metavar="MIB", help="Leave bloom filters out if they are more than this; 0: always.")
    ] = 64,
    dry_run: DryRun = False,
    as_json: Json = False,
    storage_option: StorageOptions = None,
    endpoint_url: EndpointUrl = None,
    anon: Anonymous = False,
) -> None:
    """Write all sidecars of a table into one object, its _catalogue, so that readers plan from one request.

    Readers find it by themselves and check every entry: an old one is never wrong, only of less use.
    """
    storage_options = parse_storage_options(storage_option, endpoint_url=endpoint_url, anonymous=anon)
    with reported_failures(as_json=as_json):
        from coldparquet.cli.pack_command import pack_and_report

        exit_code = pack_and_report(
            url,
            storage_options=storage_options,
            bloom_limit_bytes=bloom_limit_mib * MIB,
            dry_run=dry_run,
            as_json=as_json,
        )
    raise typer.Exit(exit_code)


def verify(
    url: TableUrl,
    *,
    partition: Partitions = None,
    deep: Deep = False,
    as_json: Json = False,
    storage_option: StorageOptions = None,
    endpoint_url: EndpointUrl = None,
    anon: Anonymous = False,
) -> None:
    """Check sidecars against Parquet footers and _txn, and say what would make reads cheaper.

    Reads metadata only, about 2 requests per partition, or all data with --deep.

    Exits with 1 if anything is wrong; warnings and advice leave 0.
    """
    storage_options = parse_storage_options(storage_option, endpoint_url=endpoint_url, anonymous=anon)
    with reported_failures(as_json=as_json):
        from coldparquet.cli.verify_command import verify_and_report

        exit_code = verify_and_report(
            url, partitions=partition, deep=deep, storage_options=storage_options, as_json=as_json
        )
    raise typer.Exit(exit_code)


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
    storage_option: StorageOptions = None,
    endpoint_url: EndpointUrl = None,
    anon: Anonymous = False,
) -> None:
    """Restore the archived partitions that hold rows of a condition, so that they can be read for some days.

    Only partitions that may hold such rows are restored, or all with --all. Asking again costs nothing while a restore
    is under way.
    """
    storage_options = parse_storage_options(storage_option, endpoint_url=endpoint_url, anonymous=anon)
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
