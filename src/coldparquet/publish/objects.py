"""Small objects, written so that what is there already is recognised."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coldparquet.errors import InvalidInputError, ObjectChangedError
from coldparquet.storage.whole_object import read_whole

if TYPE_CHECKING:
    from coldparquet.storage.base import ObjectStore


async def put_once(store: ObjectStore, path: str, data: bytes) -> None:
    """Write a small object that never changes; one with the same bytes may be there already. 1 or 2 requests.

    Raises:
        InvalidInputError: ``kind="AlreadyExists"``: it exists with other bytes.
    """
    try:
        await store.put(path, data, overwrite=False)
    except InvalidInputError as error:
        if error.kind != "AlreadyExists":
            raise
        if (await read_whole(store, path)).data != data:
            raise InvalidInputError(
                "the object exists with other contents, although its name stands for one version of the table: it"
                " belongs to another table, or this one was restored from a backup; publish to an empty place",
                kind="AlreadyExists",
                path=path,
            ) from None


def publisher_conflict(path: str) -> ObjectChangedError:
    """Make the error for the one of two publishers that comes second."""
    return ObjectChangedError(
        "another publisher is writing to this table; readers see nothing of this run. Wait until it is done and publish"
        " again: what has been copied so far is not copied twice",
        kind="PublisherConflict",
        path=path,
    )
