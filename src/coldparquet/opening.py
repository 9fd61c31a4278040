"""Open tables without holding up the event loop: what takes hundreds of milliseconds to import is imported in a thread.

This module imports nothing of that itself, because it may be imported in the event loop.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING, Any, NoReturn

from coldparquet.errors import InvalidInputError
from coldparquet.format.partition_names import ITSELF, has_parquet_suffix, is_partition_name
from coldparquet.options import ReadOptions, StoreOptions, checked_options, checked_store_options

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from types import TracebackType

    from coldparquet.storage.base import ObjectStore
    from coldparquet.table import Table


_MOST_SHOWN_LETTERS = 80

_imported: set[str] = set()
"""The schemes of URLs for which everything is imported."""


async def _import_elsewhere(url: str | None) -> None:
    """Import in a thread what opening and scanning need; once for each kind of store.

    Args:
        url: What is opened; None where there is a store already.
    """
    scheme = "file"
    if url is None:
        scheme = ""
    elif "://" in url:
        scheme = url.partition("://")[0]  # with all links of a chained URL
    if not _imported:
        # Parses conditions in Table.scan, which is not asynchronous. Opening does not wait for it, nor does the end of a program.
        Thread(target=import_module, args=("sqlglot",), name="coldparquet-imports", daemon=True).start()
    if scheme not in _imported:
        await asyncio.to_thread(_import_all, url)
        _imported.add(scheme)


def _import_all(url: str | None) -> None:
    import_module("coldparquet.table")
    import_module("coldparquet.plan.explain")  # ReadPlan.explain is not asynchronous
    if url is not None:
        import_module("coldparquet.storage.open").import_store(url)


class Opening:
    """A table that is about to be opened: ``async with`` it, or ``await`` it and close the table yourself."""

    def __init__(  # noqa: PLR0913 - those of open_table
        self,
        url: str,
        *,
        storage_options: Mapping[str, Any] | None,
        options: ReadOptions | None,
        store_options: StoreOptions | None,
        store: ObjectStore | None,
        partitions: tuple[str, ...] = (),
    ) -> None:
        self._url = url
        self._storage_options = storage_options
        self._options = checked_options(options) or ReadOptions()
        self._store_options = checked_store_options(store_options)
        self._store = store
        self._partitions = partitions
        self._table: Table | None = None

    def __await__(self) -> Generator[Any, None, Table]:
        return self._open().__await__()

    if not TYPE_CHECKING:  # type checkers know which attributes there are

        def __getattr__(self, name: str) -> NoReturn:
            text = f"'{type(self).__name__}' object has no attribute {name!r}"
            from coldparquet.table import Table  # noqa: PLC0415 - for a mistake alone

            if hasattr(Table, name):
                text = (
                    f"the table is not open yet, so it has no {name!r}: use 'async with coldparquet.open_table(...) as table'"
                    " or 'table = await coldparquet.open_table(...)', or coldparquet.sync without an event loop"
                )
            raise AttributeError(text, name=name, obj=self)

    def __enter__(self) -> NoReturn:
        raise InvalidInputError("use 'async with', or coldparquet.sync without an event loop", kind="NotAwaited")

    def __exit__(self, *_: object) -> None:
        """Never called, but ``with`` requires it before it calls ``__enter__``."""

    async def __aenter__(self) -> Table:
        self._table = await self._open()
        return self._table

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._table is not None:
            await self._table.__aexit__(kind, error, traceback)

    async def _open(self) -> Table:
        await _import_elsewhere(self._url if self._store is None else None)
        from coldparquet.table import open_now  # noqa: PLC0415 - imported above, without blocking the event loop

        return await open_now(
            self._url,
            storage_options=self._storage_options,
            options=self._options,
            store_options=self._store_options,
            store=self._store,
            partitions=self._partitions,
        )


def open_table(
    url: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    options: ReadOptions | None = None,
    store_options: StoreOptions | None = None,
    store: ObjectStore | None = None,
) -> Opening:
    """Open a directory of partitions, one partition directory, or one Parquet file.

    In the directory of a QuestDB table, ``_txn`` says which partitions exist and how large they are: one transaction is
    read, whatever is written later. Without a ``_txn`` the newest version of each partition directory is taken.

    Requests: the listing, ``_txn``, ``_meta`` and the catalogue at the same time, and ``_cv`` after them if there are native partitions.
    Without a ``_txn``, the newest partition's metadata (1 or 2) and 1 for its ``_pages`` after them. For a Parquet file those of
    :func:`open_partition`.

    Args:
        url: Any fsspec URL, or a local path.
        storage_options: Credentials, endpoint and so on, as fsspec and s3fs take them.
        options: How to read.
        store_options: How patient to be with the store, and what to remember of it.
        store: A store of your own, which stays open; ``url`` is then a path in it.

    Returns:
        To be used as ``async with open_table(...) as table`` or ``table = await open_table(...)``.

    Raises:
        NotFoundError: There is nothing at ``url``, or nothing that is a partition.
        AccessError: The store refused the credentials.
        FormatError: A table file, or the metadata of the newest partition, is damaged.
        StorageError: The table files kept changing while they were read.
    """
    return Opening(
        _path_of(url),
        storage_options=storage_options,
        options=options,
        store_options=store_options,
        store=store,
    )


def open_partition(
    url: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    options: ReadOptions | None = None,
    store_options: StoreOptions | None = None,
    store: ObjectStore | None = None,
) -> Opening:
    """Open one partition: its directory or its Parquet file.

    Requests: no listing. Its metadata (1 or 2), 1 for its ``_pages`` and, on stores with storage classes, 1 HEAD of its data, all at
    the same time. Where there is no such partition, 1 listing more tells whether the directory is that of a table.

    A directory or file inside a table of Delta, Iceberg or Hudi is refused on a disk (``UnsupportedError``, kind ``LoggedTable``),
    because the log of that table may no longer count it. In an object store the log is not searched for, because that takes listings.

    Args and errors are those of :func:`open_table`.
    """
    return Opening(
        _path_of(url),
        storage_options=storage_options,
        options=options,
        store_options=store_options,
        store=store,
        partitions=(ITSELF,),
    )


def open_partitions(  # noqa: PLR0913 - those of open_table, and names
    url: str | os.PathLike[str],
    names: Iterable[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    options: ReadOptions | None = None,
    store_options: StoreOptions | None = None,
    store: ObjectStore | None = None,
) -> Opening:
    """Open some partitions of a table, or some files, and no others: for when it is known which ones hold the answer.

    They are read as their sidecars describe them, whatever ``_txn`` and ``_meta`` say; :func:`open_table` reads one transaction.
    The columns are those of the newest of them, and those that others alone have, unless these are QuestDB's and were dropped
    (``columns_from="all"`` reads them, too). One that was dropped and added again, or whose type was changed, is null in those
    from before; types of foreign files are read as Arrow unifies them.

    Requests: no listing. The metadata of each (1 or 2), on stores with storage classes 1 HEAD of the data of each, and 1 for the
    ``_pages`` of the newest, all at the same time. Scans with a condition may ask for the ``_pages`` of the others.

    Args:
        url: Directory of the table, as for :func:`open_table`.
        names: Of the partitions' directories in it, with the version suffix, such as ``2024-03-01.12``; in any order. Or paths of
            Parquet files in it, such as ``date=2024-03-01/part-0.parquet``, whose keys become columns as in :func:`open_table`.
        storage_options: Credentials, endpoint and so on, as fsspec and s3fs take them.
        options: How to read.
        store_options: How patient to be with the store, and what to remember of it.
        store: A store of your own, which stays open; ``url`` is then a path in it.

    Returns:
        As :func:`open_table`.

    Raises:
        InvalidInputError: No name is given, one is not the name of a partition (kind ``NotAPartition``), or two begin at the same
            time (kind ``SamePartition``).
        FormatError: Rows of one are of times before its name's, or after the beginning of the next one (kind
            ``TimeRangeMismatch``).
        NotFoundError: One is not there, or is not in Parquet: native partitions are only read by :func:`open_table`. Other errors
            are those of :func:`open_table`.
    """
    return Opening(
        _path_of(url),
        storage_options=storage_options,
        options=options,
        store_options=store_options,
        store=store,
        partitions=_checked_names(names),
    )


def _path_of(url: object) -> str:
    if isinstance(url, str | os.PathLike):
        return os.fspath(url)
    several = (
        "; for several partitions of one table there is open_partitions(url, names)"
        if isinstance(url, Iterable)
        else ""
    )
    raise InvalidInputError(f"url is a {type(url).__name__}; needed: one path or URL of a table{several}")


def _checked_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of some partitions of a table.

    Raises:
        InvalidInputError: There are none, or one is not the name of a partition's directory (kind ``NotAPartition``).
    """
    if isinstance(names, (str, bytes)) or not isinstance(names, Iterable):
        raise InvalidInputError(
            f"names is a {type(names).__name__}; needed: a list of names such as ['2024-03-01', '2024-03-02.12']"
        )
    listed = tuple(names)
    if not listed:
        raise InvalidInputError("no partition was named; open_table opens all of a table")
    for name in listed:
        if isinstance(name, str) and has_parquet_suffix(name) and not {"", ".", ".."} & set(name.split("/")):
            continue
        if isinstance(name, str) and "/" in name:  # perhaps a URL, which may hold a secret
            raise InvalidInputError(
                "a name holds a slash, and is not the path of a Parquet file in the table; needed: names of directories, such as"
                " '2024-03-01.12', or of files, such as 'date=2024-03-01/part-0.parquet'",
                kind="NotAPartition",
            )
        if not isinstance(name, str) or not is_partition_name(name):
            raise InvalidInputError(
                f"{repr(name)[:_MOST_SHOWN_LETTERS]} is no name of a partition's directory, such as '2024-03-01' or"
                " '2024-03-01.12'; one file is opened with open_partition",
                kind="NotAPartition",
            )
    files = sum(map(has_parquet_suffix, listed))
    if 0 < files < len(listed) or (len(set(listed)) < len(listed) and files):
        raise InvalidInputError(
            "names are those of files and of directories, or one is there twice, so rows would be read twice; name files or"
            " directories, each once",
            kind="NotAPartition",
        )
    return listed
