"""``coldparquet migrate``: write the sidecars of an older QuestDB table, and say what became of each partition."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from coldparquet.cli.index_command import print_index_report
from coldparquet.cli.output import progress_bar
from coldparquet.maintenance.migrate import migrate_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coldparquet.maintenance.index import IndexedPartition


def migrate_and_report(
    url: str, *, storage_options: Mapping[str, Any], force: bool, pack: bool, dry_run: bool, as_json: bool
) -> int:
    """Write the sidecars and print what happened."""
    with progress_bar() as progress:
        task = progress.add_task("migrating", total=None, unit="partitions")

        def advance(_done: IndexedPartition, total: int) -> None:
            progress.update(task, total=total, advance=1)

        report = asyncio.run(
            migrate_table(
                url, storage_options=storage_options, force=force, pack=pack, dry_run=dry_run, on_progress=advance
            )
        )
    return print_index_report(report, as_json=as_json)
