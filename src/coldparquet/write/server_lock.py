"""Keeping a QuestDB server away from a table directory, as far as files can.

A running QuestDB holds the lock of `tables.d.lock` in its database directory, the parent of its table directories, and
will not start while somebody else has it (seen with 9.3.4). A copy of a table elsewhere has no such file beside it, and
no server.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING

from coldparquet.errors import InvalidInputError
from coldparquet.storage.local.errors import translated_errors
from coldparquet.storage.local.store import LocalStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from coldparquet.storage.base import ObjectStore

_LOCK_FILE = "tables.d.lock"


@contextlib.contextmanager
def no_server(table_directory: str) -> Iterator[None]:
    """Make sure that no QuestDB has the table open, and that none opens it until the block ends.

    Several users of this lock do not keep each other out. A server on another machine, to which the directory is
    mounted, may go unnoticed.

    Raises:
        InvalidInputError: A server is running on the table's database (kind ``ServerRunning``).
        AccessError: The lock file must not be opened.
    """
    with contextlib.ExitStack() as held:
        # The table may be a symbolic link in the database directory, or be named by one elsewhere.
        for directory in dict.fromkeys((Path(table_directory), Path(os.path.realpath(table_directory)))):
            _hold(str(directory.parent / _LOCK_FILE), table_directory, held)
        yield


def no_server_at(store: ObjectStore, path: str) -> AbstractContextManager[None]:
    """Do the same for a table directory in a store, whatever wrappers it has; nothing where it is no local disk."""
    return no_server(path) if store.label == LocalStore.label else contextlib.nullcontext()


def _hold(path: str, table_directory: str, held: contextlib.ExitStack) -> None:
    if not Path(path).exists():
        return
    with translated_errors(path, None):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    held.callback(os.close, descriptor)  # which also unlocks
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InvalidInputError(
            "a QuestDB server is running on this database: it would not notice that its table was changed, and would"
            " write over it; stop the server, or work on a copy of the table",
            kind="ServerRunning",
            path=table_directory,
        ) from None
