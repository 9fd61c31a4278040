"""Places to which a table must not be published, because somebody else's files lie there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from coldparquet.catalog.discovery import PUBLISHING_FILE
from coldparquet.errors import InvalidInputError
from coldparquet.format.partition_names import parse_partition_directory
from coldparquet.plan.wording import few_names
from coldparquet.storage.local.store import LocalStore

if TYPE_CHECKING:
    from coldparquet.publish.published import PublishedTable
    from coldparquet.publish.source import SourceTable

_DATABASE_FILE = "_todo_"
"""Every table directory of a QuestDB has it, and no published table: it is not copied."""


def check_destination(source: SourceTable, published: PublishedTable) -> None:
    """Refuse to publish a table onto itself, or over a table that a database writes to.

    The published `_txn` names no native partitions: in the place of the source's own it would lose their rows. No
    request; the paths of local files are looked up.

    Raises:
        InvalidInputError: The destination is the source, lies inside of it or around it (kind ``SamePlace``), or is a
            table directory of a QuestDB on a local disk (kind ``DatabaseDirectory``), or holds native partitions or
            partitions of no table at all (kind ``NotPublished``).
    """
    is_local = published.store.label == LocalStore.label
    if source.store.label == published.store.label:
        places = [os.path.realpath(path) if is_local else path for path in (source.path, published.path)]
        inner, outer = sorted((f"{place.rstrip('/')}/" for place in places), key=len, reverse=True)
        if inner.startswith(outer):
            raise InvalidInputError(
                f"the table would be published to where it lies itself ({source.path}); publish to another place",
                kind="SamePlace",
                path=published.path,
            )
    # A copy in a bucket has this file too, but no database can write to it.
    if is_local and _DATABASE_FILE in published.objects:
        raise InvalidInputError(
            f"this is a table directory of a QuestDB (it has a file {_DATABASE_FILE}), and the rows of its native partitions"
            " would be lost; publish to another place. If no database uses this copy, remove the file",
            kind="DatabaseDirectory",
            path=published.path,
        )
    _check_contents(published)


def _check_contents(published: PublishedTable) -> None:
    """Refuse a destination with partitions that no publisher has brought there."""
    version = published.version
    if version is not None:
        if not version.transaction.partitions.is_parquet.all():
            raise InvalidInputError(
                "the table there has native partitions, so nobody has published it, and their rows would be lost; publish"
                " to another place",
                kind="NotPublished",
                path=published.path,
            )
        return
    foreign = sorted(name for name in published.directories if parse_partition_directory(name) is not None)
    if foreign and PUBLISHING_FILE not in published.objects:
        raise InvalidInputError(
            f"partitions lie there that belong to no published table ({few_names(foreign)}), and readers would no longer"
            " see them; publish to another place, or move them away",
            kind="NotPublished",
            path=published.path,
        )
