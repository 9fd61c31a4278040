"""Committing a new state of a table: a new `_txn` in the place of the one that it was made from.

Until `_txn` is replaced, nobody sees what was written; from then on everybody who opens or refreshes the table does. It
is replaced in one step, and only if it is still the `_txn` that the new state was made from. So of two writers that
started from the same state one commits, and the other gets an error and has changed nothing that anybody sees.

A running QuestDB is no such writer. It keeps `_txn` in memory, does not notice that the file was replaced, and writes its
own next transaction into the old one, where nobody reads it any more: what it took in since is lost. So the table must
not be open in a server. To make sure of that, stop the server, work on the table and start it again; or work on a copy of
the table that no server knows, such as a published one. What can be noticed is noticed: on a local disk a server that
runs on the database to which the directory belongs, work that a server left half done when it was killed, and every
commit that was made through this library since the state was read.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from coldparquet.catalog.table_files import TODO_FILE, TRANSACTION_FILE, TableFiles
from coldparquet.errors import FormatError, InvalidInputError, NotFoundError, ObjectChangedError
from coldparquet.format.txn import parse_txn
from coldparquet.format.txn_writer import encode_txn, replace_partitions
from coldparquet.ranges import ByteRange
from coldparquet.storage.requests import RangeRequest
from coldparquet.storage.whole_object import read_whole
from coldparquet.write.server_lock import no_server_at

if TYPE_CHECKING:
    from coldparquet.format.partition_records import PartitionRecords
    from coldparquet.format.txn import TableTransaction
    from coldparquet.storage.base import ObjectStore

_TODO_COUNT_RANGE = ByteRange(32, 40)
"""Number of steps of an unfinished change of the table (note section 4.7)."""


async def commit_partitions(  # noqa: PLR0913 - what can be told is told by name
    store: ObjectStore,
    path: str,
    *,
    started_from: TableFiles,
    partitions: PartitionRecords,
    time_bounds: tuple[int, int] | None = None,
    least_txn: int = 0,
) -> TableFiles:
    """Replace the partitions of a table by others, if nobody committed anything since its files were read.

    The partitions' directories and files must be complete, and on the disk, before this is called. Requests: 1 reads
    `_txn`, 1 replaces it.

    Args:
        store: Where the table lies; it must not pin versions.
        path: The table's directory.
        started_from: The state that the new one was made from.
        partitions: All partitions of the table from now on, at least one.
        time_bounds: Least and largest timestamp of the table's rows, in its unit; None if they are as before.
        least_txn: The new transaction's number is at least this; it is one more than before where that is larger.

    Returns:
        The new state, from which the next commit can start.

    Raises:
        ObjectChangedError: Somebody else committed since ``started_from`` was read (kind ``CommitConflict``). Nothing was
            changed.
        InvalidInputError: A server is running on the table (kind ``ServerRunning``), or the partitions are no valid
            state. Nothing was changed.
        NotFoundError: There is no `_txn` any more.
        StorageError: The store failed. If that was while `_txn` was being replaced, only reading it tells whether it
            was.
    """
    path = path.rstrip("/")
    before = started_from.transaction
    lower, upper = time_bounds or (before.min_timestamp, before.max_timestamp)
    following = replace_partitions(before, partitions, min_timestamp=lower, max_timestamp=upper)
    following = replace(following, txn=max(following.txn, least_txn))
    encoded = encode_txn(following)
    try:
        records = following.partitions_of(started_from.metadata.interval)
    except FormatError as error:
        raise InvalidInputError(f"this would be no valid state of the table: {error.message}") from error
    with no_server_at(store, path):
        answer = await read_whole(store, f"{path}/{TRANSACTION_FILE}")
        found = await asyncio.to_thread(parse_txn, answer.data, path=f"{path}/{TRANSACTION_FILE}")
        if encode_txn(found) != encode_txn(before):
            raise _conflict(path, before, found)
        try:
            await store.put(f"{path}/{TRANSACTION_FILE}", encoded, overwrite=True, if_match=answer.etag)
        except ObjectChangedError as error:
            raise _conflict(path, before, None) from error
    return replace(started_from, transaction=following, records=records)


async def check_nothing_unfinished(store: ObjectStore, path: str) -> None:
    """Make sure that no server was killed while it changed the table. 1 request.

    Raises:
        InvalidInputError: One was (kind ``UnfinishedChange``).
    """
    request = RangeRequest(
        path=f"{path}/{TODO_FILE}", byte_range=_TODO_COUNT_RANGE, reason="table files", may_be_short=True
    )
    try:
        count = (await store.get(request)).data
    except NotFoundError:
        return
    if any(count):
        raise InvalidInputError(
            "a QuestDB server was killed while it changed this table, and has not finished that yet; start it, let it"
            " recover the table, and stop it again",
            kind="UnfinishedChange",
            path=path,
        )


def _conflict(path: str, before: TableTransaction, found: TableTransaction | None) -> ObjectChangedError:
    now = "" if found is None else f", which is at transaction {found.txn:,} now"
    return ObjectChangedError(
        f"somebody else has committed to this table{now}: this commit was made from transaction {before.txn:,}; nothing"
        " of it is visible. Read the table again, and repeat it",
        kind="CommitConflict",
        path=f"{path}/{TRANSACTION_FILE}",
        started_from=before.txn,
    )
