"""``coldparquet inspect`` of a table: its partitions, as the transaction or the directory listing says."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from coldparquet.catalog.discovery import discover
from coldparquet.catalog.sidecar_lookup import look_up_sidecar
from coldparquet.cli.output import facts_table, print_findings
from coldparquet.concurrency import gather_or_cancel
from coldparquet.format.partition_intervals import EARLIEST_NS, LATEST_NS, SECOND_NS
from coldparquet.plan.instant import Instant, parse_instant
from coldparquet.plan.wording import human_bytes, plural
from coldparquet.storage.wrappers.checked import CheckedStore
from coldparquet.visible_text import visible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from coldparquet.catalog.discovery import Discovery
    from coldparquet.catalog.partition_location import PartitionLocation
    from coldparquet.catalog.sidecar_lookup import SidecarLookup
    from coldparquet.options import ReadOptions
    from coldparquet.storage.base import ObjectStore

_LISTED_AT_EACH_END = 50
"""Of more than twice as many partitions the text lists the oldest and the newest."""

_NOT_LOOKED_AT = "not looked at"
_SIDECAR_STYLES = {"present": "green", "absent": "yellow", "stale": "red", "damaged": "red", _NOT_LOOKED_AT: "dim"}


async def describe_table(
    store: ObjectStore, path: str, *, look_for_sidecars: bool, options: ReadOptions
) -> dict[str, Any]:
    """List the partitions of a table.

    Requests: the listing, ``_txn`` and ``_meta``, at the same time, and ``_cv`` after them if there are native partitions;
    with ``look_for_sidecars`` 1 more for each Parquet partition, 2 for a large sidecar, and without a ``_txn`` listings of
    what lies beside them.

    Returns:
        What ``--json`` prints. Unknown numbers are None: without ``_txn`` only sidecars know rows and sizes.

    Raises:
        NotFoundError: Nothing at ``path`` is a table or a partition.
    """
    discovery = await discover(store, path, look_inside=look_for_sidecars)
    lookups: Sequence[SidecarLookup | None] = [None] * len(discovery.locations)
    if look_for_sidecars:
        lookups = await _look_for_sidecars(store, discovery.locations, options)
    partitions = [
        _describe_partition(location, lookup) for location, lookup in zip(discovery.locations, lookups, strict=True)
    ]
    return {
        "table": path,
        **_describe_files(discovery),
        "notes": list(discovery.other_notes),
        "findings": [asdict(finding) for finding in discovery.unread],
        "partitions": partitions,
    }


def print_table(console: Console, description: Mapping[str, Any]) -> None:
    """Print what :func:`describe_table` returned."""
    console.print(Text(description["table"], style="bold"), soft_wrap=True)
    console.print()
    console.print(_facts(description))
    console.print()
    console.print(_partition_table(description["partitions"]))
    console.print()
    print_findings(console, description["findings"])
    for note in description["notes"]:
        console.print(Text(f"note: {visible(note)}", style="dim"))


async def _look_for_sidecars(
    store: ObjectStore, locations: Sequence[PartitionLocation], options: ReadOptions
) -> list[SidecarLookup | None]:
    pinned = CheckedStore(store)
    slots = asyncio.Semaphore(options.max_concurrency)

    async def look(location: PartitionLocation) -> SidecarLookup | None:
        if location.is_native:
            return None
        async with slots:
            return await look_up_sidecar(pinned, location, options)

    return await gather_or_cancel([look(location) for location in locations])


def _describe_files(discovery: Discovery) -> dict[str, Any]:
    files = discovery.files
    if files is None:
        return {"source": discovery.source}
    columns = {column.writer_index: column.name for column in files.metadata.columns}
    timestamp = files.metadata.designated_timestamp
    return {
        "source": discovery.source,
        "transaction": files.transaction.txn,
        "partitioned_by": files.metadata.interval.name,
        "columns": len(columns),
        "designated_timestamp": None if timestamp is None else columns.get(timestamp),
    }


def _describe_partition(location: PartitionLocation, lookup: SidecarLookup | None) -> dict[str, Any]:
    directory = location.directory
    rows = None if location.record is None else location.record.row_count
    size_bytes = location.committed_size_bytes
    if lookup is not None and lookup.sidecar is not None:
        rows = lookup.sidecar.total_rows if rows is None else rows
        size_bytes = lookup.sidecar.parquet_size_bytes if size_bytes is None else size_bytes
    state = None if location.is_native else _NOT_LOOKED_AT
    return {
        "name": location.name if directory is None else directory.base_name,
        "directory": location.name,
        "rows": rows,
        "from": None if directory is None else _time(directory.start_ns),
        "to": None if directory is None else _time(directory.stop_ns),
        "format": _format(location, lookup),
        "parquet_size_bytes": size_bytes,
        "name_txn": -1 if directory is None else directory.name_txn,
        "sidecar": state if lookup is None else lookup.state,
        "sidecar_problem": None if lookup is None or lookup.problem is None else lookup.problem.message,
    }


def _format(location: PartitionLocation, lookup: SidecarLookup | None) -> str | None:
    """Say how a partition is stored; None where neither a transaction nor a sidecar tells."""
    if location.record is not None:
        return "parquet" if location.record.is_parquet else "native"
    return "parquet" if lookup is not None and lookup.state != "absent" else None


def _time(nanoseconds: int) -> str | None:
    """Write one end of a time range; None where it is open."""
    return None if nanoseconds in {EARLIEST_NS, LATEST_NS} else str(Instant(nanoseconds))


def _facts(description: Mapping[str, Any]) -> Table:
    partitions = description["partitions"]
    known_rows = [partition["rows"] for partition in partitions if partition["rows"] is not None]
    sizes = [partition["parquet_size_bytes"] for partition in partitions if partition["parquet_size_bytes"] is not None]
    native = sum(partition["format"] == "native" for partition in partitions)
    facts = facts_table()
    facts.add_row("source", description["source"])
    if "transaction" in description:
        timestamp = description["designated_timestamp"]
        named = f", ordered by {visible(timestamp)}" if timestamp is not None else ""
        facts.add_row("columns", f"{description['columns']:,}{named}")
        facts.add_row("partitions", f"{len(partitions):,} (PARTITION BY {description['partitioned_by']})")
    else:
        facts.add_row("partitions", f"{len(partitions):,}")
    if known_rows:
        unknown = len(partitions) - len(known_rows)
        facts.add_row("rows", f"{sum(known_rows):,}" + (f", not counting {unknown:,} unknown" if unknown else ""))
    if sizes:
        facts.add_row("Parquet", f"{human_bytes(sum(sizes))} in {plural(len(sizes), 'partition')}")
    if native:
        facts.add_row("native", plural(native, "partition"))
    if native < len(partitions):
        facts.add_row("sidecars", _sidecar_summary(partitions))
    return facts


def _sidecar_summary(partitions: Sequence[Mapping[str, Any]]) -> Text:
    states = Counter(partition["sidecar"] for partition in partitions if partition["sidecar"] is not None)
    if _NOT_LOOKED_AT in states:
        requests = plural(states[_NOT_LOOKED_AT], "request")
        return Text(f"use --sidecars to look at them, with {requests}", style="dim")
    counts = [Text(f"{count:,} {state}", style=_SIDECAR_STYLES[state]) for state, count in states.items()]
    return Text(", ").join(counts)


def _partition_table(partitions: Sequence[Mapping[str, Any]]) -> Table:
    with_sidecars = any(partition["sidecar"] not in {None, _NOT_LOOKED_AT} for partition in partitions)
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for header in ("directory", "rows", "from (UTC)", "before", "format", "Parquet", "sidecar")[
        : 7 if with_sidecars else 6
    ]:
        table.add_column(header, justify="right" if header in {"rows", "Parquet"} else "left", overflow="fold")
    left_out = len(partitions) - 2 * _LISTED_AT_EACH_END
    for index, partition in enumerate(partitions):
        if left_out > 0 and _LISTED_AT_EACH_END <= index < len(partitions) - _LISTED_AT_EACH_END:
            if index == _LISTED_AT_EACH_END:
                table.add_row("...", f"{left_out:,} more")
            continue
        rows, size, sidecar = partition["rows"], partition["parquet_size_bytes"], partition["sidecar"] or ""
        cells = [
            partition["directory"],
            "" if rows is None else f"{rows:,}",
            _short_time(partition["from"], round_up=False),
            _short_time(partition["to"], round_up=True),
            partition["format"] or "",
            "" if size is None else human_bytes(size),
            Text(sidecar, style=_SIDECAR_STYLES.get(sidecar, "")),
        ]
        table.add_row(*cells[: len(table.columns)])
    return table


def _short_time(text: str | None, *, round_up: bool) -> str:
    """Write one end of a time range to the second, rounded so that the range stays right; midnight as the date."""
    instant = parse_instant(text) if text is not None else None
    if instant is None:
        return ""
    seconds, rest = divmod(instant.nanoseconds, SECOND_NS)
    whole = str(Instant((seconds + (round_up and rest > 0)) * SECOND_NS))
    return whole.removesuffix("Z").removesuffix("T00:00:00")
