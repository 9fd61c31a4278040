"""Parquet files as the source of a conversion: which ones they are, and whether all of them count."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from coldparquet.catalog.other_layouts import (
    is_parquet_name,
    logged_format,
    logged_table_error,
    names_part,
    refuse_logged_table,
)
from coldparquet.catalog.table_files import TRANSACTION_FILE
from coldparquet.errors import InvalidInputError
from coldparquet.format.partition_names import parse_partition_directory
from coldparquet.plan.wording import few_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyarrow import dataset

    from coldparquet.pipelines.access import LakeStores


def parquet_files(url: str, stores: LakeStores, *, check_all: bool = True) -> dataset.Dataset:
    """Find a directory of Parquet files, or one, by pyarrow; ``key=value`` in the names of directories are columns.

    Args:
        url: Where they lie.
        stores: With which settings.
        check_all: Whether to compare the columns of all files, for which their footers are read.

    Raises:
        InvalidInputError: The files do not have the same columns (kind ``SchemaMismatch``), of which pyarrow would leave
            out those that the first file lacks; or not all of them count (``NotPlainFiles``).
        UnsupportedError: Some belong to a table of Delta, Iceberg or Hudi (kind ``LoggedTable``).
    """
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

    Raises:
        UnsupportedError: It is (kind ``LoggedTable``).
        ColdParquetError: Nobody can say.
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
