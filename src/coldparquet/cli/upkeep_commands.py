"""The commands that keep a table in order, and the one that publishes it: thin fronts of what Python users call."""
# ruff: noqa: PLC0415 - each command imports what it needs, so that --help and --version answer at once

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from coldparquet.cli.flags import (
    COST_PANEL,
    STORAGE_PANEL,
    Deep,
    DryRun,
    Json,
    Native,
    Pack,
    Pages,
    Partitions,
    PricesFlag,
    Purge,
    PurgeAfterHours,
    StoreFlags,
    TableUrl,
    TierFlag,
    Where,
    parse_storage_options,
    price_table,
    restore_tier,
    takes_flags,
)
from coldparquet.cli.output import reported_failures
from coldparquet.options import KIB, MAX_RESTORE_DAYS, MIB, ReadOptions

_HOUR_S = 3600


@takes_flags
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
    store: StoreFlags,
) -> None:
    """Write the sidecars that are missing beside Parquet files, and renew those that are of another file."""
    storage_options = store.storage_options()
    with reported_failures(as_json=as_json):
        from coldparquet.cli.upkeep_output import counted, print_index_report
        from coldparquet.maintenance.index import index_table

        with counted("indexing") as advance:
            indexing = index_table(
                url,
                storage_options=storage_options,
                pages=pages,
                force=force,
                pack=pack,
                inline_bloom_bytes=None if inline_blooms_kib is None else inline_blooms_kib * KIB,
                dry_run=dry_run,
                on_progress=advance,
            )
            report = asyncio.run(indexing)
        exit_code = print_index_report(report, as_json=as_json)
    raise typer.Exit(exit_code)


@takes_flags
def migrate(
    url: Annotated[str, typer.Argument(metavar="URL", help="A QuestDB table: a directory with a _txn.")],
    *,
    force: Annotated[
        bool, typer.Option("--force", help="Also write sidecars anew that describe the committed Parquet file.")
    ] = False,
    pack: Pack = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    store: StoreFlags,
) -> None:
    """Add missing sidecars to a QuestDB table, as its _txn commits its Parquet files.

    Sidecars that describe the committed file are kept, as QuestDB's own migration 940 keeps them; its migration 941
    replaces them all, as --force does. The table's own files are never written.
    """
    storage_options = store.storage_options()
    with reported_failures(as_json=as_json):
        from coldparquet.cli.upkeep_output import counted, print_index_report
        from coldparquet.maintenance.migrate import migrate_table

        with counted("migrating") as advance:
            migrating = migrate_table(
                url, storage_options=storage_options, force=force, pack=pack, dry_run=dry_run, on_progress=advance
            )
            report = asyncio.run(migrating)
        exit_code = print_index_report(report, as_json=as_json)
    raise typer.Exit(exit_code)


@takes_flags
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
    store: StoreFlags,
) -> None:
    """Write partitions anew that have many dead bytes or small row groups.

    No QuestDB may have the table open: it would not notice, and write over it. Stop the server first, or work on a copy.
    """
    storage_options = store.storage_options()
    with reported_failures(as_json=as_json):
        from coldparquet.cli.upkeep_output import counted_rows, print_compaction_report
        from coldparquet.write.compact import CompactionOptions, compact_table

        with counted_rows("compacting") as advance:
            compacting = compact_table(
                url,
                partitions=partition,
                force=force,
                dry_run=dry_run,
                purge=purge,
                pack=pack,
                options=CompactionOptions(purge_after_s=purge_after_hours * _HOUR_S),
                storage_options=storage_options,
                on_progress=advance,
            )
            report = asyncio.run(compacting)
        exit_code = print_compaction_report(report, as_json=as_json)
    raise typer.Exit(exit_code)


@takes_flags
def pack(
    url: Annotated[str, typer.Argument(metavar="URL", help="A table: its directory.")],
    *,
    bloom_limit_mib: Annotated[
        int, typer.Option(min=0, metavar="MIB", help="Leave bloom filters out if they are more than this; 0: always.")
    ] = 64,
    dry_run: DryRun = False,
    as_json: Json = False,
    store: StoreFlags,
) -> None:
    """Write all sidecars of a table into one object, its _catalogue, so that readers plan from one request.

    Readers find it by themselves and check every entry: an old one is never wrong, only of less use.
    """
    storage_options = store.storage_options()
    with reported_failures(as_json=as_json):
        from coldparquet.cli.upkeep_output import counted, print_pack_report
        from coldparquet.maintenance.pack import pack_table

        with counted("packing") as advance:
            packing = pack_table(
                url,
                storage_options=storage_options,
                bloom_limit_bytes=bloom_limit_mib * MIB,
                dry_run=dry_run,
                on_progress=advance,
            )
            report = asyncio.run(packing)
        exit_code = print_pack_report(report, as_json=as_json)
    raise typer.Exit(exit_code)


@takes_flags
def verify(
    url: TableUrl,
    *,
    partition: Partitions = None,
    deep: Deep = False,
    as_json: Json = False,
    store: StoreFlags,
) -> None:
    """Check sidecars against Parquet footers and _txn, and say what would make reads cheaper.

    Reads metadata only, about 2 requests per partition, or all data with --deep.

    Exits with 1 if anything is wrong; warnings and advice leave 0.
    """
    storage_options = store.storage_options()
    with reported_failures(as_json=as_json):
        from coldparquet.cli.upkeep_output import counted, print_verify_report
        from coldparquet.maintenance.verify import verify_table

        with counted("verifying") as advance:
            verifying = verify_table(
                url, partitions=partition, deep=deep, storage_options=storage_options, on_progress=advance
            )
            report = asyncio.run(verifying)
        exit_code = print_verify_report(report, as_json=as_json)
    raise typer.Exit(exit_code)


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


@takes_flags
def publish(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The directory of a QuestDB table, with its _txn.")],
    destination: Annotated[
        str, typer.Argument(metavar="DESTINATION", help="Where the published table is or shall be: s3://bucket/path.")
    ],
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Write nothing; say what would be written, and what that costs.")
    ] = False,
    native: Native = "convert",
    storage_class_after: Annotated[
        list[str] | None,
        typer.Option(
            "--storage-class-after",
            metavar="DAYSd=CLASS",
            help="Such as 30d=GLACIER_IR: write the data of partitions that old to this class. May be repeated.",
        ),
    ] = None,
    dropped: Annotated[
        str,
        typer.Option(
            metavar="refuse|keep|remove",
            help="What to do about published partitions that the source has dropped; refuse publishes nothing.",
        ),
    ] = "refuse",
    purge: Purge = False,
    purge_after_hours: PurgeAfterHours = 24.0,
    pack: Pack = False,
    prices: PricesFlag = None,
    as_json: Json = False,
    source_option: Annotated[
        list[str] | None,
        typer.Option(
            "--source-option",
            metavar="KEY=VALUE",
            help="As --storage-option, for the source: follow_links=true if partitions were attached by links.",
            rich_help_panel=STORAGE_PANEL,
        ),
    ] = None,
    store: StoreFlags,
) -> None:
    """Copy a QuestDB table to object storage, as Parquet; readers see the old table or the new one.

    Only what changed is copied, and the next run continues one that was interrupted.

    Native partitions, as the newest one usually is, are written as Parquet. The table may be in use meanwhile; it is only
    read. Exits with 1 where rows stay behind (--native leave).
    """
    storage_options = store.storage_options()
    source_options = parse_storage_options(source_option)
    with reported_failures(as_json=as_json):
        from coldparquet.cli.upkeep_output import counted_bytes, print_publish_report
        from coldparquet.publish import PublishOptions, parse_storage_class_rule, publish_table

        options = PublishOptions(
            dry_run=dry_run,
            native=native,  # type: ignore[arg-type] # anything else is refused there, with the choices
            dropped=dropped,  # type: ignore[arg-type] # anything else is refused there, with the choices
            storage_classes=tuple(map(parse_storage_class_rule, storage_class_after or ())),
            pack=pack,
            purge=purge,
            purge_after_s=purge_after_hours * _HOUR_S,
            prices=price_table(prices),
        )
        with counted_bytes("publishing") as advance:
            publishing = publish_table(
                source,
                destination,
                options=options,
                source_options=source_options,
                storage_options=storage_options,
                on_progress=advance,
            )
            report = asyncio.run(publishing)
        exit_code = print_publish_report(report, as_json=as_json)
    raise typer.Exit(exit_code)
