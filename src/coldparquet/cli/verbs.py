"""The commands that keep tables and whole lakes in order, and copy them; with all processors of this machine or on Spark.

Each is one command for one table and for many. ``coldparquet pipeline`` has the same ones under their former name; there the
report is always that of many.
"""
# ruff: noqa: PLC0415 - each command imports what it needs, so that --help and --version answer at once

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from coldparquet.cli.failures import reported_failures
from coldparquet.cli.flags import (
    STORAGE_PANEL,
    DryRun,
    IndexPlace,
    LogFormat,
    Pack,
    PricesFlag,
    StoreFlags,
    byte_count,
    parse_storage_options,
    takes_flags,
)
from coldparquet.options import KIB, MIB

_ENGINE_PANEL = "Engine"

Lakes = Annotated[
    list[str],
    typer.Argument(
        metavar="LAKE...", help="Tables, directories of tables at any depth, or patterns: s3://bucket/db/trades_*."
    ),
]
To = Annotated[
    str,
    typer.Option(
        "--to", metavar="URL", help="Where the copies go: one table there itself, several each in a directory below it."
    ),
]
Partitions = Annotated[
    list[str] | None, typer.Option("--partition", "-p", metavar="NAME", help="Only this partition; may be repeated.")
]
Purge = Annotated[bool, typer.Option("--purge", help="Afterwards remove versions that were replaced long enough ago.")]
PurgeAfterHours = Annotated[
    float,
    typer.Option(
        min=0, metavar="HOURS", help="With --purge: how long readers may go on reading a version that was replaced."
    ),
]
StorageClassAfter = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-class-after",
        metavar="DAYSd=CLASS",
        help="Such as 30d=GLACIER_IR, for the data of partitions that old. May be repeated.",
    ),
]
DestinationOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--destination-option",
        metavar="KEY=VALUE",
        help="As --storage-option, for the destination.",
        rich_help_panel=STORAGE_PANEL,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFlags(StoreFlags):
    """What runs the work, how to reach the store, and how to report."""

    engine: Annotated[
        str | None,
        typer.Option(
            metavar="local|spark",
            help="What runs the work; local, the processors of this machine, if not given.",
            rich_help_panel=_ENGINE_PANEL,
        ),
    ] = None
    processes: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Worker processes of the engine local; one per processor if not given.",
            rich_help_panel=_ENGINE_PANEL,
        ),
    ] = None
    tasks: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Tasks of the engine spark; at most 3 per core if not given.",
            rich_help_panel=_ENGINE_PANEL,
        ),
    ] = None
    credentials: Annotated[
        str | None,
        typer.Option(
            metavar="env:NAME|file:PATH",
            help="Where executors of Spark find storage options, as a JSON object; their environment if not given.",
            rich_help_panel=_ENGINE_PANEL,
        ),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishFlags:
    """How to publish."""

    native: Annotated[
        str,
        typer.Option(
            metavar="convert|leave|refuse",
            help="Native partitions: write them as Parquet, leave them behind and exit with 1, or publish nothing.",
        ),
    ] = "convert"
    storage_class_after: StorageClassAfter = None
    dropped: Annotated[
        str,
        typer.Option(
            metavar="refuse|keep|remove",
            help="What to do about published partitions that the source has dropped; refuse publishes nothing.",
        ),
    ] = "refuse"
    purge: Purge = False
    purge_after_hours: PurgeAfterHours = 24.0
    pack: Pack = False
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Write nothing; say what would be written, and what that costs.")
    ] = False

    def job_options(self) -> dict[str, Any]:
        """Put together what the flags say."""
        return {
            "native": self.native,
            "storage_class_after": self.storage_class_after or (),
            "dropped": self.dropped,
            "purge": self.purge,
            "purge_after_hours": self.purge_after_hours,
            "pack": self.pack,
            "dry_run": self.dry_run,
        }


@takes_flags
def index(
    context: typer.Context,
    lakes: Lakes,
    *,
    no_pages: Annotated[
        bool,
        typer.Option(
            "--no-pages",
            help="Write no _pages, which say where single pages lie and what bounds them. With it only footers are read;"
            " without it, most of each file that has no page index.",
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Also rewrite sidecars and _pages that exist.")] = False,
    no_catalogue: Annotated[
        bool,
        typer.Option(
            "--no-catalogue",
            help="Make no _catalogue of tables on S3 of 4 partitions or more; one that exists is renewed.",
        ),
    ] = False,
    pack: Annotated[
        bool, typer.Option("--pack", help="Make the _catalogue of other tables as well: it serves copies on S3.")
    ] = False,
    inline_blooms_kib: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="KIB",
            help="Put bloom filters into sidecars that have at most this size with them, 64 if not given; other sidecars say"
            " where in the Parquet file they are.",
        ),
    ] = None,
    index: IndexPlace = None,
    format: LogFormat = None,  # noqa: A002 - named as the flag
    dry_run: DryRun = False,
    run: RunFlags,
) -> None:
    """Write the sidecars that are missing beside Parquet files, and renew those that are of another file.

    What else makes reads cheaper is written, too: small bloom filters go into the sidecars, where pages lie goes into _pages,
    and the sidecars of a table on S3 into its _catalogue. A table in another layout, such as Hive directories, gets a _catalogue
    alone, and so does any table with --index: at another place. --dry-run says what would be written, and how large it is.

    Examples:
        coldparquet index s3://lake/trades
        coldparquet index s3://theirs/trades --index s3://mine/indexes/trades
    """
    if no_catalogue and pack:
        raise typer.BadParameter("it contradicts --no-catalogue", param_hint="--pack")
    job = {
        "job": "index",
        "pages": not no_pages,
        "force": force,
        "pack": pack or (False if no_catalogue else None),
        "index": index,
        "format": format,
        "inline_bloom_bytes": None if inline_blooms_kib is None else inline_blooms_kib * KIB,
        "dry_run": dry_run,
    }
    _run(context, job, lakes, run)


@takes_flags
def migrate(
    context: typer.Context,
    lakes: Lakes,
    *,
    force: Annotated[
        bool, typer.Option("--force", help="Also rewrite sidecars that describe the committed Parquet file.")
    ] = False,
    pack: Pack = False,
    dry_run: DryRun = False,
    run: RunFlags,
) -> None:
    """Add missing sidecars to QuestDB tables, as their _txn commits the Parquet files.

    Sidecars that describe the committed file are kept, as QuestDB's own migration 940 keeps them; its migration 941
    replaces them all, as --force does. The tables' own files are never written.

    Examples:
        coldparquet migrate /var/lib/questdb/db --dry-run
    """
    _run(context, {"job": "migrate", "force": force, "pack": pack, "dry_run": dry_run}, lakes, run)


@takes_flags
def compact(
    context: typer.Context,
    lakes: Lakes,
    *,
    partition: Partitions = None,
    row_group_rows: Annotated[
        int, typer.Option("--row-group-rows", min=1, metavar="ROWS", help="Rows that a row group should have.")
    ] = 100_000,
    force: Annotated[bool, typer.Option("--force", help="Rewrite partitions even where that does not pay.")] = False,
    dry_run: DryRun = False,
    purge: Purge = False,
    purge_after_hours: PurgeAfterHours = 24.0,
    pack: Pack = False,
    run: RunFlags,
) -> None:
    """Rewrite partitions that have many dead bytes or small row groups.

    No QuestDB may have the tables open: it would not notice, and write over it. Stop the server first, or work on a copy.

    Examples:
        coldparquet compact s3://lake/trades --dry-run
        coldparquet compact s3://lake/trades --partition 2024-03-01 --purge
    """
    job = {
        "job": "compact",
        "partitions": partition or None,
        "row_group_rows": row_group_rows,
        "force": force,
        "purge": purge,
        "purge_after_hours": purge_after_hours,
        "pack": pack,
        "dry_run": dry_run,
    }
    _run(context, job, lakes, run)


@takes_flags
def pack(
    context: typer.Context,
    lakes: Lakes,
    *,
    bloom_limit_mib: Annotated[
        int, typer.Option(min=0, metavar="MIB", help="Leave bloom filters out if they are more than this; 0: always.")
    ] = 64,
    index: IndexPlace = None,
    parquet_metadata: Annotated[
        bool,
        typer.Option(
            "--parquet-metadata",
            help="Also write all footers into one object, _metadata, from which Arrow plans in Python, C++ and R:"
            " pyarrow.dataset.parquet_dataset(...). It is not checked by these readers.",
        ),
    ] = False,
    dry_run: DryRun = False,
    run: RunFlags,
) -> None:
    """Write all sidecars of a table into one object, its _catalogue, so that readers plan from one request.

    Readers find it by themselves and check every entry: an old one is of less use.

    Examples:
        coldparquet pack s3://lake/trades
    """
    job = {
        "job": "pack",
        "bloom_limit_bytes": bloom_limit_mib * MIB,
        "index": index,
        "parquet_metadata": parquet_metadata,
        "dry_run": dry_run,
    }
    _run(context, job, lakes, run)


@takes_flags
def verify(
    context: typer.Context,
    lakes: Lakes,
    *,
    partition: Partitions = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Read every byte, and compare checksums, row counts and statistics with it.")
    ] = False,
    index: IndexPlace = None,
    run: RunFlags,
) -> None:
    """Check sidecars against Parquet footers and _txn, and say what would make reads cheaper.

    Reads metadata only, about 2 requests per partition, or all data with --deep.

    Exits with 1 if anything is wrong; warnings and advice leave 0.

    Examples:
        coldparquet verify s3://lake/trades
        coldparquet verify s3://lake/trades --partition 2024-03-01 --deep
        coldparquet verify s3://theirs/trades --index s3://mine/indexes/trades
    """
    job = {"job": "verify", "partitions": partition or None, "deep": deep, "index": index}
    _run(context, job, lakes, run)


@takes_flags
def publish(
    context: typer.Context,
    places: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE... DESTINATION",
            help="A QuestDB table (a directory with a _txn), or lakes of them; then where it is or shall be: s3://bucket/path."
            " A lake's tables get places below that.",
        ),
    ],
    *,
    flags: PublishFlags,
    prices: PricesFlag = None,
    source_option: Annotated[
        list[str] | None,
        typer.Option(
            "--source-option",
            metavar="KEY=VALUE",
            help="As --storage-option, for the source: follow_links=true if partitions were attached by links.",
            rich_help_panel=STORAGE_PANEL,
        ),
    ] = None,
    run: RunFlags,
) -> None:
    """Copy QuestDB tables to object storage, as Parquet; readers see the old table or the new one.

    Only what changed is copied, and the next run continues one that was interrupted.

    Native partitions, as the newest one usually is, are written as Parquet. The table may be in use meanwhile; it is only
    read. Exits with 1 where rows stay behind (--native leave).

    Examples:
        coldparquet publish /var/lib/questdb/db/trades s3://lake/trades --dry-run
        coldparquet publish /var/lib/questdb/db s3://lake
    """
    *sources, destination = places
    if not sources:
        raise typer.BadParameter("name the table or lake, and then the destination", param_hint="DESTINATION")
    _run(
        context,
        {"job": "publish", "destination": destination, **flags.job_options()},
        sources,
        run,
        storage_options=parse_storage_options(source_option),
        destination_options=run.storage_options(),
        prices=prices,
    )


@takes_flags
def publish_lakes(
    context: typer.Context,
    lakes: Lakes,
    *,
    destination: To,
    flags: PublishFlags,
    destination_option: DestinationOptions = None,
    run: RunFlags,
) -> None:
    """Copy QuestDB tables to object storage, as Parquet; as 'coldparquet publish LAKE... URL' does.

    Examples:
        coldparquet pipeline publish /var/lib/questdb/db --to s3://lake
    """
    job = {"job": "publish", "destination": destination, **flags.job_options()}
    _run(context, job, lakes, run, destination_options=parse_storage_options(destination_option))


@takes_flags
def tier(
    context: typer.Context,
    lakes: Lakes,
    *,
    storage_class_after: StorageClassAfter = None,
    least_bytes: Annotated[
        int, typer.Option("--least-bytes", metavar="SIZE", parser=byte_count, help="Smaller files stay where they are.")
    ] = "128KiB",  # type: ignore[assignment] # typer parses defaults, too
    restore_within_days: Annotated[
        int | None,
        typer.Option(
            "--restore-within-days", min=0, metavar="DAYS", help="Restore archived partitions that are no older."
        ),
    ] = None,
    restore_tier: Annotated[
        str,
        typer.Option(
            "--restore-tier", metavar="Expedited|Standard|Bulk", help="How fast restores are, and at which price."
        ),
    ] = "Standard",
    restore_days: Annotated[
        int, typer.Option("--restore-days", min=1, metavar="DAYS", help="How long restored copies stay.")
    ] = 1,
    dry_run: DryRun = False,
    run: RunFlags,
) -> None:
    """Move the data of old partitions to other storage classes, and restore that of young ones; --dry-run shows dollars.

    Examples:
        coldparquet tier s3://lake/trades --storage-class-after 90d=GLACIER_IR --dry-run
    """
    job = {
        "job": "tier",
        "storage_class_after": storage_class_after or (),
        "least_bytes": least_bytes,
        "restore_within_days": restore_within_days,
        "restore_tier": restore_tier,
        "restore_days": restore_days,
        "dry_run": dry_run,
    }
    _run(context, job, lakes, run)


@takes_flags
def convert(
    context: typer.Context,
    lakes: Lakes,
    *,
    destination: To,
    source_format: Annotated[
        str,
        typer.Option("--from-format", metavar="FORMAT", help="coldparquet, parquet, or on Spark any that it reads."),
    ] = "coldparquet",
    destination_format: Annotated[
        str, typer.Option("--to-format", metavar="FORMAT", help="coldparquet, parquet, or on Spark any that it writes.")
    ] = "parquet",
    timestamp: Annotated[
        str | None, typer.Option("--timestamp", metavar="COLUMN", help="Designated timestamp of new tables.")
    ] = None,
    partition_by: Annotated[
        str | None,
        typer.Option(
            "--partition-by", metavar="HOUR|DAY|WEEK|MONTH|YEAR", help="Partitions of new tables; DAY if not given."
        ),
    ] = None,
    symbol: Annotated[
        list[str] | None,
        typer.Option(
            "--symbol", metavar="COLUMN", help="Text column of new tables that becomes SYMBOL; may be repeated."
        ),
    ] = None,
    dry_run: DryRun = False,
    destination_option: DestinationOptions = None,
    run: RunFlags,
) -> None:
    r"""Turn datasets into tables of cold partitions, or such tables into plain Parquet or what Spark writes.

    Examples:
        coldparquet convert s3://lake/raw --to s3://lake/trades --timestamp ts \
            --from-format parquet --to-format coldparquet
    """
    job = {
        "job": "convert",
        "destination": destination,
        "source_format": source_format,
        "destination_format": destination_format,
        "timestamp": timestamp,
        "partition_by": partition_by,
        "symbols": symbol or (),
        "dry_run": dry_run,
    }
    _run(context, job, lakes, run, destination_options=parse_storage_options(destination_option))


def _run(
    context: typer.Context,
    job: dict[str, Any],
    lakes: list[str],
    run: RunFlags,
    *,
    storage_options: dict[str, Any] | None = None,
    destination_options: dict[str, Any] | None = None,
    prices: str | None = None,
) -> None:
    with reported_failures(as_json=run.as_json):
        from coldparquet.cli.verb_run import EngineChoice, VerbRun
        from coldparquet.pipelines.model import job_from_dict

        verb_run = VerbRun(
            job=job_from_dict(job),
            lakes=lakes,
            engine=EngineChoice(name=run.engine, processes=run.processes, tasks=run.tasks, credentials=run.credentials),
            storage_options=run.storage_options() if storage_options is None else storage_options,
            destination_options=destination_options or {},
            prices=prices,
            as_json=run.as_json,
        )
        is_former_name = context.parent is not None and context.parent.info_name == "pipeline"
        exit_code = verb_run.on_lakes() if is_former_name else verb_run.on_one_or_many()
    raise typer.Exit(exit_code)
