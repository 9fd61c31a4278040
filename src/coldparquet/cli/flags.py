"""The flags that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

STORAGE_PANEL = "Storage"
TableUrl = Annotated[str, typer.Argument(metavar="URL", help="A table, a partition directory or a Parquet file.")]
Columns = Annotated[
    list[str] | None, typer.Option("--columns", "-c", metavar="A,B", help="Columns of the result; all if not given.")
]
Where = Annotated[
    str | None,
    typer.Option("--where", "-w", metavar="CONDITION", help="Such as: ts >= '2024-03-01' and symbol in ('BTC', 'ETH')"),
]
Limit = Annotated[int | None, typer.Option("--limit", "-n", min=0, metavar="ROWS", help="At most so many rows.")]
Pack = Annotated[
    bool,
    typer.Option("--pack", help="Make the table's _catalogue if there is none; one that exists is renewed anyway."),
]
Partitions = Annotated[
    list[str] | None,
    typer.Option("--partition", "-p", metavar="NAME", help="Only this partition; may be repeated."),
]
Pages = Annotated[bool, typer.Option("--pages", help="Also write _pages: where single pages lie and what bounds them.")]
Deep = Annotated[
    bool, typer.Option("--deep", help="Read every byte, and compare checksums, row counts and statistics with it.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Write nothing; say what would be done.")]
Purge = Annotated[bool, typer.Option("--purge", help="Afterwards remove versions that were replaced long enough ago.")]
PurgeAfterHours = Annotated[
    float, typer.Option(min=0, metavar="HOURS", help="How long readers may go on reading a version that was replaced.")
]
Native = Annotated[
    str,
    typer.Option(
        metavar="convert|leave|refuse",
        help="Native partitions: write them as Parquet, leave them behind and exit with 1, or publish nothing.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
StorageOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="KEY=VALUE",
        help="As for s3fs or another fsspec filesystem; may be repeated. Credentials are better left to the environment.",
        rich_help_panel=STORAGE_PANEL,
    ),
]
EndpointUrl = Annotated[
    str | None,
    typer.Option("--endpoint-url", metavar="URL", help="A store that speaks S3.", rich_help_panel=STORAGE_PANEL),
]
Anonymous = Annotated[
    bool, typer.Option("--anon", help="Without credentials: public data.", rich_help_panel=STORAGE_PANEL)
]

CacheDirectory = Annotated[
    str | None,
    typer.Option(
        "--cache-dir",
        metavar="DIRECTORY",
        help="Keep what is fetched there for the next run; private to you.",
        rich_help_panel=STORAGE_PANEL,
    ),
]
