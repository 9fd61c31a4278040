"""What the verbs over one table share: its store is opened, and its partitions are worked on, some at a time."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from coldparquet.concurrency import map_or_cancel
from coldparquet.storage.open import opened_store
from coldparquet.storage.urls import shown_url

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from coldparquet.catalog.table_files import PartitionLocation
    from coldparquet.options import StoreOptions
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.open import OpenedStore

Done = TypeVar("Done")


@dataclass(frozen=True, slots=True, repr=False)  # it may hold secrets
class Place:
    """Where a table lies, as the caller said it."""

    url: str | os.PathLike[str]
    storage_options: Mapping[str, Any] | None = None
    store_options: StoreOptions | None = None
    store: ObjectStore | None = None
    """A store of the caller, in which ``url`` is a path; it stays open."""

    @property
    def label(self) -> str:
        """The URL as reports show it, without secrets."""
        return shown_url(os.fspath(self.url))

    def opened(self, *, max_concurrency: int) -> AbstractAsyncContextManager[OpenedStore]:
        """Open the store for a block, see :func:`~coldparquet.storage.open.opened_store`. No request."""
        return opened_store(
            os.fspath(self.url),
            storage_options=self.storage_options,
            store_options=self.store_options,
            store=self.store,
            max_concurrency=max_concurrency,
        )


async def work_on_partitions(
    locations: Sequence[PartitionLocation],
    work: Callable[[PartitionLocation], Awaitable[Done]],
    *,
    at_once: int,
    on_progress: Callable[[Done, int], None] | None,
) -> tuple[Done, ...]:
    """Work on partitions, ``at_once`` of them at a time; results in their order."""

    async def work_on(location: PartitionLocation) -> Done:
        done = await work(location)
        if on_progress is not None:
            on_progress(done, len(locations))
        return done

    return tuple(await map_or_cancel(work_on, locations, at_once=at_once))
