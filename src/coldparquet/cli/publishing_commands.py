"""The command that moves a table to object storage."""
# ruff: noqa: PLC0415 - each command imports what it needs, so that --help and --version answer at once

from __future__ import annotations

from typing import Annotated

import typer

from coldparquet.cli.flags import (
    STORAGE_PANEL,
    Anonymous,
    EndpointUrl,
    Json,
    Native,
    Pack,
    PricesFlag,
    Purge,
    PurgeAfterHours,
    StorageOptions,
    parse_storage_options,
)
from coldparquet.cli.output import reported_failures


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
    storage_option: StorageOptions = None,
    endpoint_url: EndpointUrl = None,
    anon: Anonymous = False,
) -> None:
    """Copy a QuestDB table to object storage, as Parquet; readers see the old table or the new one.

    Only what changed is copied, and the next run continues one that was interrupted.

    Native partitions, as the newest one usually is, are written as Parquet. The table may be in use meanwhile; it is only
    read. Exits with 1 where rows stay behind (--native leave).
    """
    storage_options = parse_storage_options(storage_option, endpoint_url=endpoint_url, anonymous=anon)
    source_options = parse_storage_options(source_option, endpoint_url=None, anonymous=False)
    with reported_failures(as_json=as_json):
        from coldparquet.cli.publish_command import publish_and_report, publish_options

        options = publish_options(
            dry_run=dry_run,
            native=native,
            storage_class_after=storage_class_after,
            dropped=dropped,
            pack=pack,
            purge=purge,
            purge_after_hours=purge_after_hours,
            prices=prices,
        )
        exit_code = publish_and_report(
            source,
            destination,
            options=options,
            source_options=source_options,
            storage_options=storage_options,
            as_json=as_json,
        )
    raise typer.Exit(exit_code)
