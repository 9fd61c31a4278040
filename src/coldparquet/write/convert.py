"""The job that turns whole datasets into tables of cold partitions, and such tables into plain Parquet.

On one machine it knows Parquet files and tables. On Spark every format that Spark reads or writes, see
:mod:`coldparquet.spark.convert`: there a conversion is itself a Spark job.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from coldparquet.catalog.other_layouts import (
    LOGGED_FORMATS,
    is_parquet_name,
    logged_format,
    logged_table_error,
    names_part,
    refuse_logged_table,
)
from coldparquet.catalog.table_files import TRANSACTION_FILE
from coldparquet.concurrency import gather_or_cancel
from coldparquet.errors import ColdParquetError, InvalidInputError, NotFoundError, UnsupportedError
from coldparquet.format.partition_names import PartitionInterval, parse_partition_directory
from coldparquet.opening import open_table
from coldparquet.options import MIB, ReadOptions
from coldparquet.pipelines.lakes import TablesToPlan, tables_of
from coldparquet.pipelines.model import Place, WorkItem, WorkPlan, WorkResult, failure, join_url
from coldparquet.storage.checked import CheckedStore
from coldparquet.storage.local import LocalStore
from coldparquet.text import few_names
from coldparquet.write.columns import new_table_metadata
from coldparquet.write.table import write_table
from coldparquet.write.upload import MemoryBudget, StoreSource, upload_object

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    import pyarrow as pa
    from pyarrow import dataset

    from coldparquet.pipelines.model import Access, Lake, LakeStores
    from coldparquet.storage.base import ObjectStore


def parquet_files(url: str, stores: LakeStores, *, check_all: bool = True) -> dataset.Dataset:
    """Find a directory of Parquet files, or one, by pyarrow; ``key=value`` in the names of directories are columns."""
    import fsspec  # noqa: PLC0415 - other jobs need no Arrow
    from pyarrow import dataset  # noqa: PLC0415

    filesystem, path = fsspec.url_to_fs(url, **stores.access.storage_options)
    found: dataset.Dataset = dataset.dataset(path, filesystem=filesystem, format="parquet", partitioning="hive")
    if [fragment.path for fragment in found.get_fragments()] != [path]:
        _check_plain(path, [name.removeprefix(path) for name in filesystem.find(path)])
    for fragment in found.get_fragments() if check_all else ():
        others = sorted(set(fragment.physical_schema.names) - set(found.schema.names))
        if others:
            raise InvalidInputError(
                f"it has the columns {few_names(others)}, which the first file lacks; convert files of one schema, or use the"
                " engine spark",
                kind="SchemaMismatch",
                path=fragment.path,
            )
    return found


async def refuse_part_of_logged_table(url: str, stores: LakeStores) -> None:
    """Refuse what is a table of Delta, Iceberg or Hudi, or a part of one. 1 listing for each level that is looked at.

    These are the directory, and those above it as long as the names are those of parts: ``name=value`` and ``data``.
    """
    for level in _levels(url):
        store, path = stores.lake(level)  # one of its own for each, because those of disks keep to their directory
        await refuse_logged_table(store, path, await store.list(path))


def _levels(url: str) -> Iterator[str]:
    url = (url if "://" in url else str(Path(url).absolute())).rstrip("/")
    if is_parquet_name(url.rpartition("/")[2]):
        url = url.rpartition("/")[0]
    while url and not url.endswith(":/"):
        yield url
        url, _, name = url.rpartition("/")
        if not names_part(name):
            return


def _check_plain(path: str, names: Sequence[str]) -> None:
    """Make sure that all Parquet files below a directory count, given the names of all files below it."""
    found = logged_format(names)
    if found is not None:
        raise logged_table_error(found, path)
    if any(name.rpartition("/")[2] == TRANSACTION_FILE for name in names):
        raise InvalidInputError(
            f"there is a {TRANSACTION_FILE}: this is a table of QuestDB, or holds one, and that file alone tells which partitions"
            " count; 'coldparquet publish' copies such a table, and --from-format coldparquet makes plain Parquet of it",
            kind="NotPlainFiles",
            path=path,
        )
    versions: dict[str, str] = {}
    for directory in {name.rpartition("/")[0] for name in names if name.endswith(".parquet")}:
        parsed = parse_partition_directory(directory.rpartition("/")[2])
        if parsed is None:
            continue
        other = versions.setdefault(f"{directory.rpartition('/')[0]}/{parsed.base_name}", directory)
        if other != directory:
            twice = sorted(one.rpartition("/")[2] for one in (other, directory))
            raise InvalidInputError(
                f"{few_names(twice)} are versions of one partition, of which only the newest counts; move the older ones away",
                kind="NotPlainFiles",
                path=path,
            )


COLDPARQUET = "coldparquet"
PARQUET = "parquet"

DONE_MARKER = "_SUCCESS"
"""What Spark writes last into a directory of Parquet files, and what tells here that one is complete."""

_OF_A_RUN = re.compile(r"[._]*(part-|temporary|SUCCESS|started_|committed_|spark-staging)")
"""How the names begin of what Spark, or this job, writes into a directory of files."""

_PART_ROWS = 4_000_000
"""Rows of a Parquet file that is written; the last one has less."""

_UPLOAD_MEMORY_BYTES = 128 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertJob:
    """Write each source to a place of its own below the destination; a place that is complete already is left alone.

    A table of cold partitions appears at once, or not at all (:func:`coldparquet.write.table.write_table`), and so do
    those of Delta and Iceberg. A directory of Parquet files is complete when it has a ``_SUCCESS``, as those that Spark
    writes; one that a killed run left is written anew. A directory that holds anything else is refused (kind ``NotEmpty``),
    and a table with other columns than the source's, too (``OtherTable``).

    Raises:
        InvalidInputError: There is no destination, not exactly one side is a table of cold partitions, or a new one would
            have no designated timestamp.
    """

    name: ClassVar[str] = "convert"
    items_at_once: ClassVar[int] = 1

    destination: str = ""
    """URL below which every table gets the path that it has below its lake; a single source goes right there. On Spark a
    single source may go to a table of Spark's catalog, such as ``lake.sales.trades``: what has no slash is taken for a name."""
    source_format: str = COLDPARQUET
    """``coldparquet``, ``parquet``, or on Spark any format that it reads (``delta``, ``iceberg``, ``csv``)."""
    destination_format: str = PARQUET
    """``coldparquet``, ``parquet``, or on Spark any format that it writes."""
    timestamp: str | None = None
    """Designated timestamp of new tables."""
    partition_by: str | None = None
    """``HOUR``, ``DAY``, ``WEEK``, ``MONTH`` or ``YEAR`` for new tables; None is ``DAY``."""
    symbols: tuple[str, ...] = ()
    """Text columns of new tables that become SYMBOL."""
    dry_run: bool = False
    """Find the sources, look whether Parquet files among them can be converted, and convert none."""

    def __post_init__(self) -> None:
        if not self.destination:
            raise InvalidInputError(
                "convert needs a destination (--to), such as s3://bucket/converted", field="destination"
            )
        if (self.source_format, self.destination_format).count(COLDPARQUET) != 1:
            raise InvalidInputError(
                f"one side of a conversion, and only one, is a table of cold partitions: give {COLDPARQUET!r} as source_format"
                " (--from-format) or as destination_format (--to-format); to copy such a table, publish it",
                field="destination_format",
            )
        if self.destination_format == COLDPARQUET and self.timestamp is None:
            raise InvalidInputError(
                "tables of cold partitions have a designated timestamp: name its column (--timestamp)",
                field="timestamp",
            )

    async def plan(self, lakes: Sequence[Lake], stores: LakeStores) -> WorkPlan:
        """Find the sources: all tables of the lakes, or each lake as it stands where that is of another format.

        Tables of Delta, Iceberg and Hudi are refused, unless that is the format which was named. Requests for each other source: 1
        or 2 listings; a dry run reads the footer of one Parquet file as well.
        """
        found = TablesToPlan(tables=(), failures=())
        if self.source_format == COLDPARQUET:
            found = await tables_of(lakes, stores)
            items = [table.item for table in found.tables]
        else:
            items = [WorkItem(lake=lake.full_url, table="") for lake in lakes]
        # A table goes to the same place whether or not what was named beside it can be opened today.
        places = self._places(items, is_only_source=len(items) == 1 and not found.failures)
        items = [
            WorkItem(lake=item.lake, table=item.table, work={"destination": place})
            for item, place in zip(items, places, strict=True)
        ]
        refusals = await gather_or_cancel([self._refusal(item, stores) for item in items])
        failures = (*found.failures, *(refused for refused in refusals if refused is not None))
        items = [item for item, refused in zip(items, refusals, strict=True) if refused is None]
        if not self.dry_run:
            return WorkPlan(items=tuple(items), settled=failures)
        return WorkPlan(items=(), settled=(*failures, *map(_would_convert, items)))

    async def _refusal(self, item: WorkItem, stores: LakeStores) -> WorkResult | None:
        """Return why a source cannot be converted, as far as that is known without reading it."""
        if self.source_format == COLDPARQUET or self.source_format in LOGGED_FORMATS:
            return None
        try:
            await refuse_part_of_logged_table(item.table_url, stores)
        except UnsupportedError as error:
            if error.kind == "LoggedTable":
                return failure(item, error)
        except ColdParquetError:
            pass  # Spark may know the name, or have credentials that we have not; otherwise the conversion itself says so
        if not self.dry_run or self.source_format != PARQUET:
            return None
        try:
            await asyncio.to_thread(self._check_files, item.table_url, stores)
        except (ColdParquetError, FileNotFoundError) as error:
            return failure(item, error)
        except Exception:  # noqa: BLE001 - as above
            return None
        return None

    def _check_files(self, url: str, stores: LakeStores) -> None:
        """Refuse files of which no table can be made, by the schema of the first one."""
        schema = parquet_files(url, stores, check_all=False).schema
        if self.destination_format == COLDPARQUET and self.timestamp is not None:
            new_table_metadata(
                schema,
                timestamp=self.timestamp,
                interval=PartitionInterval.DAY,
                symbols=self.symbols,
                table_id=1,
                metadata_version=0,
            )

    async def run(self, item: WorkItem, stores: LakeStores) -> WorkResult:
        """Convert one source on this machine.

        Raises:
            UnsupportedError: One of the formats is known to Spark alone (kind ``NeedsSpark``).
        """
        unknown = {self.source_format, self.destination_format} - {COLDPARQUET, PARQUET}
        if unknown:
            raise UnsupportedError(
                f"{unknown.pop()} is read and written by Spark: run this with the engine spark", kind="NeedsSpark"
            )
        if self.destination_format == COLDPARQUET:
            return await self._write_table(item, stores)
        return await self._write_files(item, stores)

    async def finish(self, results: Sequence[WorkResult], plan: WorkPlan, stores: LakeStores) -> tuple[WorkResult, ...]:  # noqa: ARG002 - every job has this step
        """Do nothing: each destination was completed by itself."""
        return ()

    def _places(self, items: Sequence[WorkItem], *, is_only_source: bool) -> list[str]:
        """Return where each source goes."""
        if is_only_source:
            return [join_url(self.destination, items[0].table)]
        names = [item.table or item.lake.rstrip("/").rpartition("/")[2] for item in items]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InvalidInputError(
                f"several sources are called {twice[0]!r} and would go to the same place; convert them one by one",
                kind="SamePlace",
                path=join_url(self.destination, twice[0]),
            )
        return [join_url(self.destination, name) for name in names]

    async def _write_table(self, item: WorkItem, stores: LakeStores) -> WorkResult:
        url = item.work["destination"]
        terms: dict[str, Any] = {
            "timestamp": self.timestamp,
            "partition_by": self.partition_by,
            "mode": "ignore",
            "symbols": self.symbols,
            "storage_options": stores.access.destination_options,
            "store_options": stores.access.store_options,
        }
        files = await asyncio.to_thread(parquet_files, item.table_url, stores)
        written = await write_table(url, files.to_batches(), **terms)
        if not written.is_written:
            terms = {name: terms[name] for name in ("storage_options", "store_options")}
            async with open_table(url, **terms) as table:
                check_same_columns(table.schema.names, files.schema.names, url)
                check_same_rows(await table.scan().count(), await asyncio.to_thread(files.count_rows), url)
        return _result(item, is_written=written.is_written, rows=written.new_rows)

    async def _write_files(self, item: WorkItem, stores: LakeStores) -> WorkResult:
        url, access = item.work["destination"], stores.access
        place = Place(url, access.destination_options, access.store_options)
        async with place.opened(max_concurrency=access.max_concurrency) as opened:
            store, path = opened.stack.store, opened.path
            old = await left_overs(store, path)
            options = ReadOptions(symbols="string")
            async with open_table(
                item.table_url,
                storage_options=access.storage_options,
                store_options=access.store_options,
                options=options,
            ) as table:
                scan = table.scan()
                if old is None:
                    check_same_rows(await asyncio.to_thread(_rows_of_files, url, access), await scan.count(), url)
                    return _result(item, is_written=False)
                async with scan.batches() as batches:
                    new, rows = await _write_parts(store, path, scan.schema, batches)
            await store.delete(sorted(old - new))
            await store.put(f"{path}/{DONE_MARKER}", b"", overwrite=True)
        return _result(item, is_written=True, rows=rows)


async def left_overs(store: ObjectStore, path: str) -> set[str] | None:
    """Return what killed runs have left of a directory of files; None if it is complete. 1 listing."""
    try:
        listing = await store.list(path)
    except NotFoundError:
        return set()
    objects = {info.path for info in listing.objects}
    if f"{path}/{DONE_MARKER}" in objects:
        return None
    names = (found.rpartition("/")[2] for found in (*objects, *listing.directories))
    others = sorted(name for name in names if not _OF_A_RUN.match(name))
    if others:
        raise InvalidInputError(
            f"there is something already that no conversion has left: {few_names(others)}; name an empty directory as"
            " destination",
            kind="NotEmpty",
            path=path,
        )
    return objects


async def _write_parts(
    store: ObjectStore, path: str, schema: pa.Schema, batches: AsyncIterator[pa.RecordBatch]
) -> tuple[set[str], int]:
    """Write Parquet files of some million rows each; return their paths and the number of all rows."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - other jobs need no writer

    written: set[str] = set()
    rows, memory, local = 0, MemoryBudget(_UPLOAD_MEMORY_BYTES), CheckedStore(LocalStore())
    with tempfile.TemporaryDirectory(prefix="coldparquet-") as directory:
        more = True
        while more:
            name = f"part-{len(written):05}.parquet"
            file = Path(directory) / name
            in_file = 0
            with pq.ParquetWriter(file, schema, compression="zstd", write_page_checksum=True) as writer:
                more = False
                async for batch in batches:
                    await asyncio.to_thread(writer.write_batch, batch)
                    in_file += batch.num_rows
                    if in_file >= _PART_ROWS:
                        more = True
                        break
            if in_file or not written:
                source = StoreSource(local, str(file), size_bytes=file.stat().st_size)
                await upload_object(store, f"{path}/{name}", source, overwrite=True, memory=memory)
                written.add(f"{path}/{name}")
            file.unlink()
            rows += in_file
    return written, rows


def check_same_columns(found: Sequence[str], source: Sequence[str], place: str) -> None:
    """Make sure that a table that is there already may be what the source was converted to."""
    if found != source:
        raise InvalidInputError(
            f"there is a table already that has not the columns of the source: {few_names(found)} instead of"
            f" {few_names(source)}; name another destination",
            kind="OtherTable",
            path=place,
        )


def check_same_rows(found: int, source: int, place: str) -> None:
    """Make sure that what is there already was not converted from another state of the source."""
    if found != source:
        raise InvalidInputError(
            f"this is complete with {found:,} rows, but the source has {source:,}: one of them changed since it was converted;"
            " convert to a new destination, or remove this one first",
            kind="SourceChanged",
            path=place,
        )


def _rows_of_files(url: str, access: Access) -> int:
    import fsspec  # noqa: PLC0415 - other jobs need no Arrow
    from pyarrow import dataset  # noqa: PLC0415

    filesystem, path = fsspec.url_to_fs(url, **(access.destination_options or {}))
    rows: int = dataset.dataset(path, filesystem=filesystem, format="parquet").count_rows()
    return rows


def _would_convert(item: WorkItem) -> WorkResult:
    return WorkResult(
        table=item.table_url, outcome="done", action="would convert", details={"destination": item.work["destination"]}
    )


def _result(item: WorkItem, *, is_written: bool, rows: int | None = None) -> WorkResult:
    return WorkResult(
        table=item.table_url,
        outcome="done" if is_written else "nothing to do",
        action="converted" if is_written else "kept",
        reason=None if is_written else "the destination is complete already",
        rows=rows,
        details={"destination": item.work["destination"]},
    )
