"""Hidden directories in which the files of a partition are made, before anybody may take them for a partition."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from coldparquet.catalog.page_lookup import PAGES_FILE
from coldparquet.catalog.partition_location import DATA_FILE, SIDECAR_FILE
from coldparquet.storage.local.errors import translated_errors
from coldparquet.storage.local.store import LocalStore
from coldparquet.storage.upload import StoreSource
from coldparquet.storage.wrappers.checked import CheckedStore
from coldparquet.write.local_files import exclusive_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from coldparquet.write.local_files import FileOperations

_PREFIX, _SUFFIX = ".", ".coldparquet"


def staged_name(name: str) -> str | None:
    """Return the name of the directory that is filled in one of this name; None for other names."""
    is_staging = name.startswith(_PREFIX) and name.endswith(_SUFFIX)
    return name.removeprefix(_PREFIX).removesuffix(_SUFFIX) if is_staging else None


@contextmanager
def staged_directory(path: str, files: FileOperations, *, check_is_free: Callable[[], None]) -> Iterator[str]:
    """Give a directory to fill, which is named ``path`` when the block ends without an error, else removed. Blocks.

    Args:
        path: Where it shall be, in a directory that exists.
        files: How to write to the disk.
        check_is_free: Raises where there is something at ``path``; called once nobody else can put it there.

    Raises:
        InvalidInputError: Another writer is making this directory (kind ``PartitionLocked``).
    """
    target = Path(path)
    staging = str(target.parent / f"{_PREFIX}{target.name}{_SUFFIX}")
    files.make_directory(staging)
    with exclusive_lock(staging):
        try:
            check_is_free()
            empty_directory(staging, files)  # of what a run left that was cut off
            yield staging
            files.flush_directory(staging)
            files.rename(staging, path)
        except (Exception, asyncio.CancelledError):
            empty_directory(staging, files)
            files.remove_directory(staging)
            raise
        files.flush_directory(str(target.parent))


def empty_directory(directory: str, files: FileOperations) -> None:
    """Remove the files of a directory that holds nothing else."""
    with translated_errors(directory, None):
        entries = list(Path(directory).iterdir())
    for entry in entries:
        files.unlink(str(entry))


class MadeFiles(Protocol):
    """The files that were made of a partition."""

    @property
    def parquet_size_bytes(self) -> int:
        """Size of the data file."""

    @property
    def pages_size_bytes(self) -> int | None:
        """Size of the ``_pages``; None if there is none."""

    @property
    def sidecar_size_bytes(self) -> int:
        """Size of the sidecar."""


def made_files(directory: str, written: MadeFiles) -> Iterator[tuple[str, StoreSource]]:
    """Yield name and content of what was made of a partition in a local directory, in the order in which it is uploaded."""
    local = CheckedStore(LocalStore())
    for name, size_bytes in (
        (DATA_FILE, written.parquet_size_bytes),
        (PAGES_FILE, written.pages_size_bytes),
        (SIDECAR_FILE, written.sidecar_size_bytes),
    ):
        if size_bytes is not None:
            yield name, StoreSource(local, f"{directory}/{name}", size_bytes=size_bytes)
