"""``coldparquet inspect``: all that a sidecar says, checked; of a table its partitions, of ``_pages`` a summary."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rich.text import Text

from coldparquet.catalog.discovery import discover_any
from coldparquet.catalog.partition import look_up_sidecar
from coldparquet.catalog.table_files import DATA_FILE, SIDECAR_FILE
from coldparquet.cli.failures import FAILED, exit_code_of, report
from coldparquet.cli.output import Name, facts_table, lines_table, output_console, print_findings, print_json
from coldparquet.cli.sidecar_dump import describe_sidecar
from coldparquet.concurrency import map_or_cancel
from coldparquet.errors import ColdParquetError, FormatError, InvalidInputError, NotFoundError
from coldparquet.format.fetch import ENCRYPTED_MAGIC, SidecarFetch
from coldparquet.format.page_index import ENVELOPE, LARGEST_PAGES_FILE_BYTES, describe_pages_file, stated_size_bytes
from coldparquet.format.parquet_footer import PARQUET_MAGIC
from coldparquet.format.partition_names import EARLIEST_NS, LATEST_NS, SECOND_NS
from coldparquet.format.type_codes import TypeTag, timestamp_unit, type_name
from coldparquet.options import ReadOptions
from coldparquet.pipelines.model import Place
from coldparquet.plan.predicate import Instant, format_instant, parse_instant
from coldparquet.ranges import ByteRange
from coldparquet.storage.checked import CheckedStore
from coldparquet.storage.requests import RangeRequest
from coldparquet.text import human_bytes, plural, visible

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from rich.console import Console, RenderableType
    from rich.table import Table

    from coldparquet.catalog.discovery import Discovery
    from coldparquet.catalog.partition import SidecarLookup
    from coldparquet.catalog.table_files import PartitionLocation
    from coldparquet.storage.base import ObjectStore


_LISTED_AT_EACH_END = 50
"""Of more than twice as many partitions the text lists the oldest and the newest."""

_NOT_FETCHED = "not looked at"
_SIDECAR_STYLES = {"present": "green", "absent": "yellow", "stale": "red", "damaged": "red", _NOT_FETCHED: "dim"}


async def describe_table(
    url: str, store: ObjectStore, path: str, *, with_sidecars: bool, options: ReadOptions
) -> dict[str, Any]:
    """List the partitions of the table at ``url``, which is ``path`` in the store.

    Requests: the listing, ``_txn`` and ``_meta``, at the same time, and ``_cv`` after them if there are native partitions;
    with ``with_sidecars`` 1 more for each Parquet partition, 2 for a large sidecar, and without a ``_txn`` listings of
    what lies beside them.
    """
    discovery = await discover_any(store, path, options, ask_inside=with_sidecars)
    lookups: Sequence[SidecarLookup | None] = [None] * len(discovery.locations)
    if with_sidecars:
        lookups = await _sidecars_of(store, discovery.locations, options)
    partitions = [
        _describe_partition(location, lookup) for location, lookup in zip(discovery.locations, lookups, strict=True)
    ]
    return {
        "url": url,
        **_describe_files(discovery),
        "notes": list(discovery.other_notes),
        "findings": [asdict(finding) for finding in discovery.unread],
        "partitions": partitions,
    }


def print_table(console: Console, path: str, description: Mapping[str, Any]) -> None:
    """Print what :func:`describe_table` returned."""
    console.print(Text(path, style="bold"), soft_wrap=True)
    console.print()
    console.print(_facts(description))
    console.print()
    console.print(_partition_table(description["partitions"]))
    console.print()
    print_findings(console, description["findings"])
    for note in description["notes"]:
        console.print(Text(f"note: {visible(note)}", style="dim"))


async def _sidecars_of(
    store: ObjectStore, locations: Sequence[PartitionLocation], options: ReadOptions
) -> list[SidecarLookup | None]:
    pinned = CheckedStore(store)

    async def look_up(location: PartitionLocation) -> SidecarLookup | None:
        return None if location.is_native else await look_up_sidecar(pinned, location, options)

    return await map_or_cancel(look_up, locations, at_once=options.max_concurrency)


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
    size_bytes = location.committed_size_bytes or location.listed_size_bytes
    if lookup is not None and lookup.sidecar is not None:
        rows = lookup.sidecar.total_rows if rows is None else rows
        size_bytes = lookup.sidecar.parquet_size_bytes if size_bytes is None else size_bytes
    state = None if location.is_native or location.sidecar_path is None else _NOT_FETCHED
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
    if _NOT_FETCHED in states:
        requests = plural(states[_NOT_FETCHED], "request")
        return Text(f"use --sidecars to look at them, with {requests}", style="dim")
    counts = [Text(f"{count:,} {state}", style=_SIDECAR_STYLES[state]) for state, count in states.items()]
    return Text(", ").join(counts) if counts else Text("none beside such files", style="dim")


def _partition_table(partitions: Sequence[Mapping[str, Any]]) -> Table:
    with_sidecars = any(partition["sidecar"] not in {None, _NOT_FETCHED} for partition in partitions)
    left_out = len(partitions) - 2 * _LISTED_AT_EACH_END
    listed = partitions if left_out <= 0 else (*partitions[:_LISTED_AT_EACH_END], *partitions[-_LISTED_AT_EACH_END:])
    cells_of = [_cells(partition) for partition in listed]
    headers = ("directory", "rows", "from (UTC)", "before", "format", "Parquet", "sidecar")
    shown = [
        number
        for number, header in enumerate(headers)
        if (with_sidecars if header == "sidecar" else number == 0 or any(cells[number] for cells in cells_of))
    ]
    numbers = {"rows", "Parquet"}
    table = lines_table(*(headers[number] for number in shown), right=numbers, no_wrap={*numbers, "format", "sidecar"})
    for index, cells in enumerate(cells_of):
        if left_out > 0 and index == _LISTED_AT_EACH_END:
            table.add_row("...", f"{left_out:,} more")
        table.add_row(*(cells[number] for number in shown))
    return table


def _cells(partition: Mapping[str, Any]) -> list[str | Text | Name]:
    rows, size, sidecar = partition["rows"], partition["parquet_size_bytes"], partition["sidecar"] or ""
    return [
        Name(partition["directory"]),
        "" if rows is None else f"{rows:,}",
        _short_time(partition["from"], round_up=False),
        _short_time(partition["to"], round_up=True),
        partition["format"] or "",
        "" if size is None else human_bytes(size),
        Text(sidecar, style=_SIDECAR_STYLES.get(sidecar, "")),
    ]


def _short_time(text: str | None, *, round_up: bool) -> str:
    """Write one end of a time range to the second, rounded so that the range stays right; midnight as the date."""
    instant = parse_instant(text) if text is not None else None
    if instant is None:
        return ""
    seconds, rest = divmod(instant.nanoseconds, SECOND_NS)
    whole = str(Instant((seconds + (round_up and rest > 0)) * SECOND_NS))
    return _spaced(whole).removesuffix(" 00:00:00")


def _spaced(time: str) -> str:
    """Write a time in UTC so that a narrow terminal breaks it, if at all, between date and clock."""
    return time.removesuffix("Z").replace("T", " ")


_LISTED_ROW_GROUPS = 100
"""Row groups that the text lists before it says how many more there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotChoice:
    """Which snapshot of a sidecar to show; the newest one where neither size is given."""

    parquet_size_bytes: int | None
    """Size of the Parquet file that the snapshot describes."""
    sidecar_size_bytes: int | None
    """Committed size of the sidecar at which the snapshot was the newest one."""


def inspect_files(
    urls: Sequence[str],
    *,
    storage_options: Mapping[str, Any],
    choice: SnapshotChoice,
    with_sidecars: bool,
    as_json: bool,
) -> int:
    """Show sidecars and tables, one after the other. A wrong one does not keep the others from being shown."""
    console = output_console()
    codes: list[int] = []
    for url in urls:
        try:
            path, description = asyncio.run(
                _describe(url, storage_options=storage_options, choice=choice, with_sidecars=with_sidecars)
            )
        except ColdParquetError as error:
            report(error, as_json=as_json)
            codes.append(exit_code_of(error))
            continue
        if any(finding["severity"] == "error" for finding in description.get("findings", ())):
            codes.append(FAILED)
        if as_json:
            print_json(description)
        elif "partitions" in description:
            print_table(console, path, description)
        elif "pages_file" in description:
            _print_pages_file(console, path, description["pages_file"])
        else:
            _print_description(console, path, description)
    return next(iter({*codes}), 0) if len({*codes}) < 2 else FAILED


async def _describe(
    url: str, *, storage_options: Mapping[str, Any], choice: SnapshotChoice, with_sidecars: bool
) -> tuple[str, dict[str, Any]]:
    """Describe what lies at ``url``: first it is taken for a sidecar or for what has one beside it, then for a table."""
    options = ReadOptions()
    async with Place(url, storage_options).opened(max_concurrency=options.max_concurrency) as opened:
        stacked, path = opened.stack.store, opened.path
        try:
            path, sidecar = await _find_sidecar(CheckedStore(stacked), path, choice)
        except NotFoundError as no_sidecar:
            try:
                return path, await describe_table(url, stacked, path, with_sidecars=with_sidecars, options=options)
            except NotFoundError as no_table:
                # It says what else a path may be; of a bucket that is missing both say the same.
                is_about_path = no_sidecar.kind in ("IsADirectory", NotFoundError.default_kind)
                raise (no_table if is_about_path else no_sidecar) from None
    if bytes(sidecar[: len(ENVELOPE.magic)]) == ENVELOPE.magic:
        return path, describe_pages_file(bytes(sidecar), path=path)
    description = describe_sidecar(
        sidecar,
        parquet_size_bytes=choice.parquet_size_bytes,
        sidecar_size_bytes=choice.sidecar_size_bytes,
        path=path,
    )
    return path, description


async def _find_sidecar(store: ObjectStore, path: str, choice: SnapshotChoice) -> tuple[str, bytes | memoryview]:
    """Fetch the sidecar, or the ``_pages``, at ``path``; or the sidecar of the directory or the Parquet file ``path``."""
    directory, _, name = path.rpartition("/")
    if name == DATA_FILE:
        path = f"{directory}/{SIDECAR_FILE}"
    try:
        return path, await _fetch_sidecar(store, path, choice)
    except NotFoundError as error:
        if path.endswith(f"/{SIDECAR_FILE}"):
            raise
        of_directory = f"{path}/{SIDECAR_FILE}"
        try:
            return of_directory, await _fetch_sidecar(store, of_directory, choice)
        except NotFoundError:
            raise error from None


async def _fetch_sidecar(store: ObjectStore, path: str, choice: SnapshotChoice) -> bytes | memoryview:
    """Fetch the bytes that hold the snapshot: up to the committed size, or up to the size asked for."""

    async def fetch(byte_range: ByteRange) -> bytes:
        request = RangeRequest(path=path, byte_range=byte_range, reason="sidecar", may_be_short=True)
        return (await store.get(request)).data

    if choice.sidecar_size_bytes is not None:
        return await fetch(ByteRange(0, choice.sidecar_size_bytes))
    state = SidecarFetch(path, prefix_bytes=ReadOptions().sidecar_prefix_bytes)
    while wanted := state.wanted():
        for byte_range in wanted:
            data = await fetch(byte_range)
            # No sidecar has a committed size that reads as the magic of a _pages.
            if byte_range.start == 0 and stated_size_bytes(data) is not None:
                return await _whole_pages_file(fetch, path, data, byte_range)
            _check_not_parquet(data, byte_range, path)
            try:
                state.receive(byte_range, data)
            except FormatError as error:
                if path.rpartition("/")[2] == SIDECAR_FILE:
                    raise
                raise FormatError(
                    f"this is no sidecar, or one that was cut off; give a {SIDECAR_FILE}, or the directory of a partition"
                    " or table",
                    kind=error.kind,
                    path=path,
                    **error.details,
                ) from None
    return state.committed_bytes()


def _check_not_parquet(data: bytes, fetched: ByteRange, path: str) -> None:
    """Refuse a Parquet file: its magic, read as the beginning of a committed size, makes a size that no sidecar has."""
    if fetched.start == 0 and data[: len(PARQUET_MAGIC)] in {PARQUET_MAGIC, ENCRYPTED_MAGIC}:
        raise InvalidInputError(
            "this is a Parquet file, and no sidecar describes it; 'coldparquet scan' reads it as it is, and 'coldparquet"
            f" index TABLE' writes the sidecar once it lies at TABLE/2024-03-01/{DATA_FILE}",
            kind="NoSidecar",
            path=path,
        )


async def _whole_pages_file(
    fetch: Callable[[ByteRange], Awaitable[bytes]], path: str, beginning: bytes, fetched: ByteRange
) -> bytes:
    """Fetch what follows the beginning of a ``_pages`` file, as far as the file says that it goes."""
    size_bytes = stated_size_bytes(beginning) or 0
    if size_bytes > LARGEST_PAGES_FILE_BYTES:
        raise FormatError(
            f"a _pages file that says it has {size_bytes:,} bytes, but none has more than {LARGEST_PAGES_FILE_BYTES:,};"
            " 'coldparquet index' writes it anew",
            kind="InvalidValue",
            path=path,
            offset=16,
            field="file_bytes",
        )
    is_all = len(beginning) < fetched.length_bytes or len(beginning) >= size_bytes
    return beginning if is_all else beginning + await fetch(ByteRange(len(beginning), size_bytes))


def _print_pages_file(console: Console, path: str, description: Mapping[str, Any]) -> None:
    console.print(Text(path, style="bold"), soft_wrap=True)
    console.print()
    facts = facts_table()
    facts.add_row("file", f"{_exactly(description['bytes'])}: where single pages lie and what bounds them (_pages)")
    row_groups = plural(description["row_groups"], "row group")
    facts.add_row(
        "describes",
        f"{plural(description['pages'], 'page')} in {row_groups} of {plural(description['columns'], 'column')}",
    )
    facts.add_row("Parquet file", _exactly(description["parquet_size"]))
    if description["parquet_etag"] is not None:
        facts.add_row("its version", visible(description["parquet_etag"]))
    facts.add_row("checksum", f"{description['checksum_stored']:#010x}, correct")
    console.print(facts)
    console.print()


def _print_description(console: Console, path: str, description: Mapping[str, Any]) -> None:
    console.print(Text(path, style="bold"), soft_wrap=True)
    console.print()
    for section in (
        _sidecar_facts(description),
        _column_table(description),
        _row_group_table(description),
        *_chain_table(description),
    ):
        console.print(section)
        console.print()


def _sidecar_facts(description: Mapping[str, Any]) -> RenderableType:
    header, footer = description["header"], description["footer"]
    snapshot_bytes, sidecar_bytes = footer["crc_file_offset"] + 8, header["parquet_meta_file_size"]
    older = f", {_exactly(sidecar_bytes)} in the newest one" if snapshot_bytes != sidecar_bytes else ""
    rows = sum(row_group["num_rows"] for row_group in description["row_groups"])
    facts = facts_table()
    facts.add_row("snapshot", f"{_exactly(snapshot_bytes)}{older}")
    facts.add_row("Parquet file", _exactly(footer["parquet_size"]))
    facts.add_row("Parquet footer", f"{footer['parquet_footer_length']:,} bytes at {footer['parquet_footer_offset']:,}")
    if footer["unused_bytes"]:
        facts.add_row("unused", f"{_exactly(footer['unused_bytes'])} of replaced row groups in the Parquet file")
    facts.add_row("rows", f"{rows:,} in {plural(len(description['row_groups']), 'row group')}")
    if header["designated_timestamp"] is not None:
        facts.add_row("timestamp", _names(description, [header["designated_timestamp"]]))
    if header["sorting_columns"]:
        facts.add_row("sorted by", _names(description, header["sorting_columns"]))
    if header["bloom_filter_columns"]:
        place = "in the Parquet file" if header["bloom_filters_external"] else "in the sidecar"
        facts.add_row("bloom filter", f"{_names(description, header['bloom_filter_columns'])} ({place})")
    if header["squash_tracker"] is not None:
        facts.add_row("squash tracker", str(header["squash_tracker"]))
    if footer["seq_txn"] is not None:
        facts.add_row("transaction", f"{footer['seq_txn']:,}")
    if footer["scratchpad"]:
        facts.add_row("scratchpad", plural(len(footer["scratchpad"]), "note"))
    facts.add_row("checksum", f"{footer['checksum_stored']:#010x}, correct")
    return facts


def _names(description: Mapping[str, Any], indexes: Sequence[int]) -> str:
    """Name columns by their indexes, which the file may state wrongly."""
    columns = description["columns"]
    return ", ".join(
        visible(columns[index]["name"]) + (" descending" if columns[index]["descending"] else "")
        if 0 <= index < len(columns)
        else f"column {index}, which does not exist"
        for index in indexes
    )


def _column_table(description: Mapping[str, Any]) -> RenderableType:
    table = lines_table("column", "type", "id", "flags", right={"id"})
    for column in description["columns"]:
        flags = [column["repetition"].lower()]
        flags += ["descending"] if column["descending"] else []
        flags += ["ascii"] if column["is_ascii"] else []
        flags += ["keys are global"] if column["local_key_is_global"] else []
        type_ = visible(column.get("noted_type") or type_name(column["type"]))
        table.add_row(visible(column["name"]), type_, str(column["id"]), ", ".join(flags))
    return table


def _row_group_table(description: Mapping[str, Any]) -> RenderableType:
    row_groups = description["row_groups"]
    if not row_groups:
        return Text("no row groups", style="dim")
    numbers = ("row group", "rows", "Parquet bytes")
    table = lines_table(*numbers, "from (UTC)", "to", right=numbers, no_wrap=numbers)
    for row_group in row_groups[:_LISTED_ROW_GROUPS]:
        compressed = sum(chunk["total_compressed"] for chunk in row_group["chunks"])
        table.add_row(
            str(row_group["index"]), f"{row_group['num_rows']:,}", f"{compressed:,}", *_times(description, row_group)
        )
    if len(row_groups) > _LISTED_ROW_GROUPS:
        table.add_row("...", f"{len(row_groups) - _LISTED_ROW_GROUPS:,} more; --json shows all")
    return table


def _times(description: Mapping[str, Any], row_group: Mapping[str, Any]) -> tuple[str, str]:
    """Return the least and greatest designated timestamp of a row group, as far as it is known."""
    designated = description["header"]["designated_timestamp"]
    if designated is None or not 0 <= designated < len(description["columns"]):
        return "", ""
    type_code = description["columns"][designated]["type"]
    chunk = row_group["chunks"][designated]
    return _sidecar_time(chunk["min"], type_code), _sidecar_time(chunk["max"], type_code)


def _sidecar_time(bound: Mapping[str, Any], type_code: int) -> str:
    value = bytes.fromhex(bound["hex"] or "")
    if len(value) != 8:
        return "unknown"
    unit = timestamp_unit(type_code) if type_code & 0xFF == TypeTag.TIMESTAMP else "ms"
    return _spaced(format_instant(int.from_bytes(value, "little", signed=True), unit))


def _chain_table(description: Mapping[str, Any]) -> list[RenderableType]:
    """List the snapshots, newest first; nothing where there is only one."""
    chain = description["chain"]
    if len(chain) < 2:
        return []
    headers = ("snapshot", "sidecar bytes", "Parquet bytes", "row groups", "transaction")
    table = lines_table(*headers, right=headers)
    for age, entry in enumerate(chain):
        footer = entry["footer"]
        table.add_row(
            "shown" if age == 0 else f"-{age}",
            f"{entry['pm_size']:,}",
            f"{footer['parquet_size']:,}",
            f"{footer['row_group_count']:,}",
            "" if footer["seq_txn"] is None else f"{footer['seq_txn']:,}",
        )
    return [table]


def _exactly(count: int) -> str:
    """Write a number of bytes exactly and, where that is long, also in short."""
    return f"{count:,} bytes ({human_bytes(count)})" if count >= 10_000 else f"{count:,} bytes"
