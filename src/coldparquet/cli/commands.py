"""The commands and their flags. What a command does is in the module that it imports."""
# ruff: noqa: PLC0415 - each command imports what it needs, so that --help and --version answer at once

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path  # noqa: TC003 - typer reads the annotations of commands
from typing import Annotated

import typer

from coldparquet.cli.failures import reported_failures
from coldparquet.cli.read_flags import (
    GoalFlag,
    MaxBytesFlag,
    MaxRequestsFlag,
    MaxUsdFlag,
    PricesFlag,
    read_options_of,
)
from coldparquet.cli.storage_flags import parse_storage_options, store_options_of

app = typer.Typer(
    help="Selective questions over cold Parquet partitions, with the fewest requests, bytes and dollars.",
    epilog="URLs are local paths, s3://bucket/path or anything else that fsspec knows.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_STORAGE = "Storage"
_TableUrl = Annotated[str, typer.Argument(metavar="URL", help="A table, a partition directory or a Parquet file.")]
_Columns = Annotated[
    list[str] | None, typer.Option("--columns", "-c", metavar="A,B", help="Columns of the result; all if not given.")
]
_Where = Annotated[
    str | None,
    typer.Option("--where", "-w", metavar="CONDITION", help="Such as: ts >= '2024-03-01' and symbol in ('BTC', 'ETH')"),
]
_Limit = Annotated[int | None, typer.Option("--limit", "-n", min=0, metavar="ROWS", help="At most so many rows.")]
_Pack = Annotated[
    bool,
    typer.Option("--pack", help="Make the table's _catalogue if there is none; one that exists is renewed anyway."),
]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
_StorageOption = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="KEY=VALUE",
        help="As for s3fs or another fsspec filesystem; may be repeated. Credentials are better left to the environment.",
        rich_help_panel=_STORAGE,
    ),
]
_EndpointUrl = Annotated[
    str | None,
    typer.Option("--endpoint-url", metavar="URL", help="A store that speaks S3.", rich_help_panel=_STORAGE),
]
_Anonymous = Annotated[bool, typer.Option("--anon", help="Without credentials: public data.", rich_help_panel=_STORAGE)]

_CacheDirectory = Annotated[
    str | None,
    typer.Option(
        "--cache-dir",
        metavar="DIRECTORY",
        help="Keep what is fetched there for the next run; private to you.",
        rich_help_panel=_STORAGE,
    ),
]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"coldparquet {version('coldparquet')}")
        raise typer.Exit


@app.callback()
def coldparquet(
    _version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version."),
    ] = False,
) -> None:
    """Selective questions over cold Parquet partitions, with the fewest requests, bytes and dollars."""


@app.command()
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
    as_json: _Json = False,
    storage_option: _StorageOption = None,
    endpoint_url: _EndpointUrl = None,
    anon: _Anonymous = False,
) -> None:
    """Show what a sidecar says, and check every byte of it; or list the partitions of a table."""
    storage_options = parse_storage_options(storage_option, endpoint_url=endpoint_url, anonymous=anon)
    with reported_failures(as_json=as_json):
        from coldparquet.cli.inspect_command import SnapshotChoice, inspect_files

        choice = SnapshotChoice(parquet_size_bytes=parquet_size, sidecar_size_bytes=pm_size)
        exit_code = inspect_files(
            files, storage_options=storage_options, choice=choice, look_for_sidecars=sidecars, as_json=as_json
        )
    raise typer.Exit(exit_code)


@app.command()
def explain(
    url: _TableUrl,
    *,
    columns: _Columns = None,
    where: _Where = None,
    limit: _Limit = None,
    goal: GoalFlag = "fast",
    max_usd: MaxUsdFlag = None,
    max_bytes: MaxBytesFlag = None,
    max_requests: MaxRequestsFlag = None,
    prices: PricesFlag = None,
    as_json: _Json = False,
    storage_option: _StorageOption = None,
    endpoint_url: _EndpointUrl = None,
    anon: _Anonymous = False,
    cache_dir: _CacheDirectory = None,
) -> None:
    """Show which bytes a scan would read, why, and what that costs."""
    storage_options = parse_storage_options(storage_option, endpoint_url=endpoint_url, anonymous=anon)
    store_options = store_options_of(cache_directory=cache_dir)
    with reported_failures(as_json=as_json):
        from coldparquet.cli import scan_command

        options = read_options_of(
            goal=goal, max_usd=max_usd, max_bytes=max_bytes, max_requests=max_requests, prices=prices
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


@app.command()
def scan(
    url: _TableUrl,
    *,
    columns: _Columns = None,
    where: _Where = None,
    limit: _Limit = None,
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
    as_json: _Json = False,
    storage_option: _StorageOption = None,
    endpoint_url: _EndpointUrl = None,
    anon: _Anonymous = False,
    cache_dir: _CacheDirectory = None,
) -> None:
    """Read the rows that satisfy a condition."""
    storage_options = parse_storage_options(storage_option, endpoint_url=endpoint_url, anonymous=anon)
    store_options = store_options_of(cache_directory=cache_dir)
    with reported_failures(as_json=as_json):
        from coldparquet.cli import scan_command
        from coldparquet.cli.scan_profile import scan_profile

        options = read_options_of(
            goal=goal, max_usd=max_usd, max_bytes=max_bytes, max_requests=max_requests, prices=prices
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


@app.command()
def count(
    url: _TableUrl,
    *,
    where: _Where = None,
    limit: _Limit = None,
    goal: GoalFlag = "fast",
    max_usd: MaxUsdFlag = None,
    max_bytes: MaxBytesFlag = None,
    max_requests: MaxRequestsFlag = None,
    prices: PricesFlag = None,
    as_json: _Json = False,
    storage_option: _StorageOption = None,
    endpoint_url: _EndpointUrl = None,
    anon: _Anonymous = False,
    cache_dir: _CacheDirectory = None,
) -> None:
    """Count the rows that satisfy a condition, without data where that is exact."""
    storage_options = parse_storage_options(storage_option, endpoint_url=endpoint_url, anonymous=anon)
    store_options = store_options_of(cache_directory=cache_dir)
    with reported_failures(as_json=as_json):
        from coldparquet.cli import scan_command

        options = read_options_of(
            goal=goal, max_usd=max_usd, max_bytes=max_bytes, max_requests=max_requests, prices=prices
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


@app.command()
def index(
    url: _TableUrl,
    *,
    pages: Annotated[
        bool, typer.Option("--pages", help="Also write _pages: where single pages lie and what bounds them.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Also write sidecars and _pages anew that exist.")] = False,
    pack: _Pack = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing; say what would be written.")] = False,
    as_json: _Json = False,
    storage_option: _StorageOption = None,
    endpoint_url: _EndpointUrl = None,
    anon: _Anonymous = False,
) -> None:
    """Write the sidecars that are missing beside Parquet files."""
    storage_options = parse_storage_options(storage_option, endpoint_url=endpoint_url, anonymous=anon)
    with reported_failures(as_json=as_json):
        from coldparquet.cli.index_command import index_and_report

        exit_code = index_and_report(
            url, storage_options=storage_options, pages=pages, force=force, pack=pack, dry_run=dry_run, as_json=as_json
        )
    raise typer.Exit(exit_code)


@app.command()
def migrate(
    url: Annotated[str, typer.Argument(metavar="URL", help="A QuestDB table: a directory with a _txn.")],
    *,
    force: Annotated[
        bool, typer.Option("--force", help="Also write sidecars anew that describe the committed Parquet file.")
    ] = False,
    pack: _Pack = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing; say what would be written.")] = False,
    as_json: _Json = False,
    storage_option: _StorageOption = None,
    endpoint_url: _EndpointUrl = None,
    anon: _Anonymous = False,
) -> None:
    """Write the sidecars of a QuestDB table from before there were any, as its _txn commits its Parquet files.

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


@app.command()
def compact(
    url: Annotated[str, typer.Argument(metavar="URL", help="A table: its directory.")],
    *,
    partition: Annotated[
        list[str] | None,
        typer.Option("--partition", "-p", metavar="NAME", help="Only this partition; may be repeated."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write partitions anew even if that is not worth it.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing; say what would be written.")] = False,
    purge: Annotated[
        bool, typer.Option("--purge", help="Afterwards remove versions that were replaced long enough ago.")
    ] = False,
    purge_after_hours: Annotated[
        float,
        typer.Option(min=0, metavar="HOURS", help="How long readers may go on reading a version that was replaced."),
    ] = 24.0,
    pack: _Pack = False,
    as_json: _Json = False,
    storage_option: _StorageOption = None,
    endpoint_url: _EndpointUrl = None,
    anon: _Anonymous = False,
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


@app.command()
def pack(
    url: Annotated[str, typer.Argument(metavar="URL", help="A table: its directory.")],
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing; say what would be written.")] = False,
    as_json: _Json = False,
    storage_option: _StorageOption = None,
    endpoint_url: _EndpointUrl = None,
    anon: _Anonymous = False,
) -> None:
    """Write all sidecars of a table into one object, its _catalogue, so that readers plan from one request.

    Readers find it by themselves and check every entry: an old one is never wrong, only of less use.
    """
    storage_options = parse_storage_options(storage_option, endpoint_url=endpoint_url, anonymous=anon)
    with reported_failures(as_json=as_json):
        from coldparquet.cli.pack_command import pack_and_report

        exit_code = pack_and_report(url, storage_options=storage_options, dry_run=dry_run, as_json=as_json)
    raise typer.Exit(exit_code)


@app.command()
def verify(
    url: _TableUrl,
    *,
    partition: Annotated[
        list[str] | None,
        typer.Option("--partition", "-p", metavar="NAME", help="Only this partition; may be repeated."),
    ] = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Read every byte, and compare checksums, row counts and statistics with it.")
    ] = False,
    as_json: _Json = False,
    storage_option: _StorageOption = None,
    endpoint_url: _EndpointUrl = None,
    anon: _Anonymous = False,
) -> None:
    """Check sidecars against Parquet footers and _txn, and say what would make reads cheaper.

    Reads metadata only, about 2 requests per partition, or all data with --deep. Exits with 1 if anything is wrong;
    warnings and advice leave 0.
    """
    storage_options = parse_storage_options(storage_option, endpoint_url=endpoint_url, anonymous=anon)
    with reported_failures(as_json=as_json):
        from coldparquet.cli.verify_command import verify_and_report

        exit_code = verify_and_report(
            url, partitions=partition, deep=deep, storage_options=storage_options, as_json=as_json
        )
    raise typer.Exit(exit_code)


@app.command()
def restore(
    url: _TableUrl,
    *,
    where: _Where = None,
    tier: Annotated[
        str, typer.Option("--tier", metavar="TIER", help="Expedited, Standard or Bulk: how fast, and at which price.")
    ] = "Standard",
    days: Annotated[int, typer.Option("--days", min=1, metavar="DAYS", help="How long the copies stay.")] = 1,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until everything can be read.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Restore nothing; say what would be restored, and what that costs.")
    ] = False,
    ticket: Annotated[
        Path | None,
        typer.Option(
            "--ticket", metavar="FILE", help="Keep the ticket here; if it exists, go on with the restore that it is of."
        ),
    ] = None,
    as_json: _Json = False,
    storage_option: _StorageOption = None,
    endpoint_url: _EndpointUrl = None,
    anon: _Anonymous = False,
) -> None:
    """Restore the archived partitions that hold rows of a condition, so that they can be read for some days.

    Only partitions that may hold such rows are restored. Asking again costs nothing while a restore is under way.
    """
    storage_options = parse_storage_options(storage_option, endpoint_url=endpoint_url, anonymous=anon)
    with reported_failures(as_json=as_json):
        from coldparquet.cli.restore_command import RestoreQuestion, restore_and_report, restore_tier

        question = RestoreQuestion(
            url=url,
            storage_options=storage_options,
            where=where,
            tier=restore_tier(tier),
            days=days,
            wait=wait,
            dry_run=dry_run,
            ticket_file=ticket,
        )
        restore_and_report(question, as_json=as_json)


@app.command()
def publish(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The directory of a QuestDB table, with its _txn.")],
    destination: Annotated[
        str, typer.Argument(metavar="DESTINATION", help="Where the published table is or shall be: s3://bucket/path.")
    ],
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Write nothing; say what would be written, and what that costs.")
    ] = False,
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
        typer.Option(metavar="keep|remove", help="What to do about published partitions that the source has dropped."),
    ] = "refuse",
    purge: Annotated[
        bool, typer.Option("--purge", help="Afterwards remove versions that were replaced long enough ago.")
    ] = False,
    purge_after_hours: Annotated[
        float,
        typer.Option(min=0, metavar="HOURS", help="How long readers may go on reading a version that was replaced."),
    ] = 24.0,
    pack: _Pack = False,
    as_json: _Json = False,
    source_option: Annotated[
        list[str] | None,
        typer.Option(
            "--source-option",
            metavar="KEY=VALUE",
            help="As --storage-option, for the source: follow_links=true if partitions were attached by links.",
            rich_help_panel=_STORAGE,
        ),
    ] = None,
    storage_option: _StorageOption = None,
    endpoint_url: _EndpointUrl = None,
    anon: _Anonymous = False,
) -> None:
    """Copy the Parquet partitions of a QuestDB table to object storage; readers see the old table or the new one.

    Only what changed is copied, and a run that was interrupted is continued by the next one. Native partitions stay
    behind. The table may be in use meanwhile; it is only read.
    """
    storage_options = parse_storage_options(storage_option, endpoint_url=endpoint_url, anonymous=anon)
    source_options = parse_storage_options(source_option, endpoint_url=None, anonymous=False)
    with reported_failures(as_json=as_json):
        from coldparquet.cli.publish_command import publish_and_report, publish_options

        options = publish_options(
            dry_run=dry_run,
            storage_class_after=storage_class_after,
            dropped=dropped,
            pack=pack,
            purge=purge,
            purge_after_hours=purge_after_hours,
        )
        publish_and_report(
            source,
            destination,
            options=options,
            source_options=source_options,
            storage_options=storage_options,
            as_json=as_json,
        )


@app.command()
def demo(
    days: Annotated[int, typer.Option(min=1, max=366, metavar="DAYS", help="Days of trades to make.")] = 365,
    as_json: _Json = False,
) -> None:
    """See it work on a year of trades, side by side with pyarrow."""
    with reported_failures(as_json=as_json):
        from coldparquet.cli.demo import run_demo

        run_demo(days=days, as_json=as_json)


@app.command()
def bench(
    workloads: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[WORKLOAD...]",
            help="day, year, needle, scan, wide, faults, prices, row-groups, late; all if not given.",
        ),
    ] = None,
    *,
    rounds: Annotated[int, typer.Option(min=1, metavar="N", help="Fresh processes per reader.")] = 3,
    small: Annotated[bool, typer.Option("--small", help="Less data: seconds, but nothing to quote.")] = False,
    data: Annotated[
        str | None, typer.Option(metavar="DIRECTORY", help="Keep the data there, up to 3 GB, for the next run.")
    ] = None,
    pictures: Annotated[str | None, typer.Option(metavar="DIRECTORY", help="Draw the results there, as SVG.")] = None,
    output: Annotated[str | None, typer.Option("--output", "-o", metavar="FILE", help="Results as JSON.")] = None,
    as_json: _Json = False,
) -> None:
    """Measure this library and every other reader that is installed, in turn, on a simulated cold store."""
    with reported_failures(as_json=as_json):
        from coldparquet.cli.bench_command import bench_and_report

        bench_and_report(
            workloads,
            rounds=rounds,
            is_small=small,
            data_directory=data,
            pictures_directory=pictures,
            output=output,
            as_json=as_json,
        )
