"""The commands that work on whole lakes, with all processors of this machine or on Spark."""
# ruff: noqa: PLC0415 - each command imports what it needs, so that --help and --version answer at once

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coldparquet.cli.flags import (
    STORAGE_PANEL,
    Deep,
    DryRun,
    Json,
    Native,
    Pack,
    Pages,
    Purge,
    PurgeAfterHours,
    StoreFlags,
    byte_count,
    parse_storage_options,
    takes_flags,
)
from coldparquet.cli.output import reported_failures

if TYPE_CHECKING:
    from coldparquet.cli.pipeline_run import EngineChoice

ENGINE_PANEL = "Engine"

Lakes = Annotated[
    list[str],
    typer.Argument(
        metavar="LAKE...", help="Tables, directories of tables at any depth, or patterns: s3://bucket/db/trades_*."
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
Force = Annotated[bool, typer.Option("--force", help="Also do what is done already, or not worth it.")]
StorageClassAfter = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-class-after",
        metavar="DAYSd=CLASS",
        help="Such as 30d=GLACIER_IR, for the data of partitions that old. May be repeated.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFlags:
    """What runs the work of a pipeline."""

    engine: Annotated[
        str, typer.Option(metavar="local|spark", help="What runs the work.", rich_help_panel=ENGINE_PANEL)
    ] = "local"
    processes: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Of the engine local; one per processor.", rich_help_panel=ENGINE_PANEL),
    ] = None
    tasks: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Of the engine spark; at most 3 per core.", rich_help_panel=ENGINE_PANEL),
    ] = None
    credentials: Annotated[
        str | None,
        typer.Option(
            metavar="env:NAME|file:PATH",
            help="Where executors of Spark find storage options, as a JSON object; their environment if not given.",
            rich_help_panel=ENGINE_PANEL,
        ),
    ] = None

    def choice(self) -> EngineChoice:
        """Put together what the flags say."""
        from coldparquet.cli.pipeline_run import EngineChoice

        return EngineChoice(name=self.engine, processes=self.processes, tasks=self.tasks, credentials=self.credentials)


pipeline = typer.Typer(
    help="Keep whole lakes in order: every table below a directory, with all processors or on Spark.",
    epilog="Running one again does only what is left. Exits with 1 if anything failed.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
"""Below spark-submit: ``spark-submit .../pyspark_coldparquet/submit.py index s3://bucket/db``."""


@pipeline.command()
@takes_flags
def index(
    lakes: Lakes,
    *,
    pages: Pages = False,
    force: Force = False,
    pack: Pack = False,
    dry_run: DryRun = False,
    engine: EngineFlags,
    as_json: Json = False,
    store: StoreFlags,
) -> None:
    """Write the sidecars that are missing beside Parquet files."""
    _run(
        {"job": "index", "pages": pages, "force": force, "pack": pack, "dry_run": dry_run},
        lakes,
        engine=engine.choice(),
        storage_options=store.storage_options(),
        as_json=as_json,
    )


@pipeline.command()
@takes_flags
def verify(
    lakes: Lakes,
    *,
    deep: Deep = False,
    engine: EngineFlags,
    as_json: Json = False,
    store: StoreFlags,
) -> None:
    """Check sidecars against Parquet footers and _txn, or against all data."""
    _run(
        {"job": "verify", "deep": deep},
        lakes,
        engine=engine.choice(),
        storage_options=store.storage_options(),
        as_json=as_json,
    )


@pipeline.command()
@takes_flags
def migrate(
    lakes: Lakes,
    *,
    force: Force = False,
    pack: Pack = False,
    dry_run: DryRun = False,
    engine: EngineFlags,
    as_json: Json = False,
    store: StoreFlags,
) -> None:
    """Add missing sidecars to QuestDB tables, as _txn commits their Parquet files."""
    _run(
        {"job": "migrate", "force": force, "pack": pack, "dry_run": dry_run},
        lakes,
        engine=engine.choice(),
        storage_options=store.storage_options(),
        as_json=as_json,
    )


@pipeline.command()
@takes_flags
def compact(
    lakes: Lakes,
    *,
    row_group_rows: Annotated[
        int, typer.Option("--row-group-rows", min=1, metavar="ROWS", help="Rows that a row group should have.")
    ] = 100_000,
    force: Force = False,
    purge: Purge = False,
    purge_after_hours: PurgeAfterHours = 24.0,
    pack: Pack = False,
    dry_run: DryRun = False,
    engine: EngineFlags,
    as_json: Json = False,
    store: StoreFlags,
) -> None:
    """Write partitions anew that have many dead bytes or small row groups. No QuestDB may have the tables open."""
    job = {
        "job": "compact",
        "row_group_rows": row_group_rows,
        "force": force,
        "purge": purge,
        "purge_after_hours": purge_after_hours,
        "pack": pack,
        "dry_run": dry_run,
    }
    _run(
        job,
        lakes,
        engine=engine.choice(),
        storage_options=store.storage_options(),
        as_json=as_json,
    )


@pipeline.command()
@takes_flags
def publish(
    lakes: Lakes,
    *,
    destination: Annotated[
        str, typer.Option("--to", metavar="URL", help="Every table gets the path there that it has below its lake.")
    ],
    native: Native = "convert",
    storage_class_after: StorageClassAfter = None,
    dropped: Annotated[
        str, typer.Option(metavar="refuse|keep|remove", help="What to do about partitions that the source has dropped.")
    ] = "refuse",
    purge: Purge = False,
    purge_after_hours: PurgeAfterHours = 24.0,
    pack: Pack = False,
    dry_run: DryRun = False,
    engine: EngineFlags,
    as_json: Json = False,
    destination_option: DestinationOptions = None,
    store: StoreFlags,
) -> None:
    """Copy QuestDB tables to object storage, all partitions as Parquet."""
    job = {
        "job": "publish",
        "destination": destination,
        "native": native,
        "storage_class_after": storage_class_after or [],
        "dropped": dropped,
        "purge": purge,
        "purge_after_hours": purge_after_hours,
        "pack": pack,
        "dry_run": dry_run,
    }
    _run(
        job,
        lakes,
        engine=engine.choice(),
        storage_options=store.storage_options(),
        destination_options=parse_storage_options(destination_option),
        as_json=as_json,
    )


@pipeline.command()
@takes_flags
def tier(
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
        str, typer.Option("--restore-tier", metavar="Expedited|Standard|Bulk", help="How fast.")
    ] = "Standard",
    restore_days: Annotated[
        int, typer.Option("--restore-days", min=1, metavar="DAYS", help="How long restored copies stay.")
    ] = 1,
    dry_run: DryRun = False,
    engine: EngineFlags,
    as_json: Json = False,
    store: StoreFlags,
) -> None:
    """Move the data of old partitions to other storage classes, and restore that of young ones; --dry-run shows dollars."""
    job = {
        "job": "tier",
        "storage_class_after": storage_class_after or [],
        "least_bytes": least_bytes,
        "restore_within_days": restore_within_days,
        "restore_tier": restore_tier,
        "restore_days": restore_days,
        "dry_run": dry_run,
    }
    _run(
        job,
        lakes,
        engine=engine.choice(),
        storage_options=store.storage_options(),
        as_json=as_json,
    )


@pipeline.command()
@takes_flags
def convert(
    lakes: Lakes,
    *,
    destination: Annotated[
        str, typer.Option("--to", metavar="URL", help="Where it goes; of several sources each gets a place below it.")
    ],
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
        str | None, typer.Option("--partition-by", metavar="HOUR|DAY|WEEK|MONTH|YEAR", help="Of new tables; DAY.")
    ] = None,
    symbol: Annotated[
        list[str] | None,
        typer.Option(
            "--symbol", metavar="COLUMN", help="Text column of new tables that becomes SYMBOL; may be repeated."
        ),
    ] = None,
    dry_run: DryRun = False,
    engine: EngineFlags,
    as_json: Json = False,
    destination_option: DestinationOptions = None,
    store: StoreFlags,
) -> None:
    """Turn datasets into tables of cold partitions, or such tables into plain Parquet or what Spark writes."""
    job = {
        "job": "convert",
        "destination": destination,
        "source_format": source_format,
        "destination_format": destination_format,
        "timestamp": timestamp,
        "partition_by": partition_by,
        "symbols": symbol or [],
        "dry_run": dry_run,
    }
    _run(
        job,
        lakes,
        engine=engine.choice(),
        storage_options=store.storage_options(),
        destination_options=parse_storage_options(destination_option),
        as_json=as_json,
    )


def _run(
    job: dict[str, Any],
    lakes: list[str],
    *,
    engine: EngineChoice,
    storage_options: dict[str, Any],
    as_json: bool,
    destination_options: dict[str, Any] | None = None,
) -> None:
    with reported_failures(as_json=as_json):
        from coldparquet.cli.pipeline_run import run_and_report

        exit_code = run_and_report(
            job,
            lakes,
            engine=engine,
            storage_options=storage_options,
            destination_options=destination_options or {},
            as_json=as_json,
        )
    raise typer.Exit(exit_code)
