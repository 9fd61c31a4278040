"""Stores that blocking reads of pieces share: connections of one piece serve the next one of the same table."""

from __future__ import annotations

import atexit
import hashlib
import os
from collections import OrderedDict
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coldparquet.concurrency import background
from coldparquet.pieces.piece_checks import check_paths
from coldparquet.storage.open_store import open_store
from coldparquet.storage.opened_store import opened_store
from coldparquet.storage.url_paths import errors_name_urls
from coldparquet.storage.wrappers.store_stack import stack_store

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from coldparquet.options import StoreOptions
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.wrappers.store_stack import StoreStack

_MOST_IDLE = 4
"""Stores that stay open although nobody reads from them: an executor rarely works on more tables at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreChoice:
    """Which store to read from, and how."""

    url: str
    """Where the table lies."""
    paths: Sequence[str]
    """What will be read; in the store of the URL nothing outside of the table is."""
    storage_options: Mapping[str, Any] | None
    """Credentials, endpoint and so on."""
    store_options: StoreOptions
    """How patient to be."""
    store: ObjectStore | None
    """A store of the caller's own, which stays open; None opens that of the URL."""
    max_concurrency: int
    """Requests in flight at once, at most."""


@dataclass(slots=True)
class _Shared:
    path: str
    stack: StoreStack
    users: int = 0


class OpenStores:
    """Keeps the stores of the background loop open. Used in that loop alone, so that nothing has to be locked."""

    def __init__(self) -> None:
        self._process_id = os.getpid()
        self._shared: OrderedDict[str, _Shared] = OrderedDict()

    @asynccontextmanager
    async def use(self, choice: StoreChoice) -> AsyncGenerator[StoreStack, None]:
        """Use a store, opened by the first one who chooses the same; one of the caller's own is not shared. No request."""
        if choice.store is not None:
            async with opened_stack(choice) as stack:
                yield stack
            return
        if self._process_id != os.getpid():  # connections cannot be taken along by a fork
            self._process_id, self._shared = os.getpid(), OrderedDict()
        # The options may be secrets: what is kept here is no place to find them.
        storage_options = sorted((choice.storage_options or {}).items(), key=repr)
        told = repr((choice.url, storage_options, choice.store_options, choice.max_concurrency))
        key = hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()
        shared = self._shared.get(key)
        if shared is None:
            store, path = open_store(
                choice.url, storage_options=choice.storage_options, store_options=choice.store_options
            )
            stack = stack_store(store, store_options=choice.store_options, max_concurrency=choice.max_concurrency)
            shared = self._shared[key] = _Shared(path, stack)
        self._shared.move_to_end(key)
        shared.users += 1
        try:
            check_paths(choice.paths, shared.path)
            with errors_name_urls(choice.url, shared.path):
                yield shared.stack
        finally:
            shared.users -= 1
            await self.close_idle(most_idle=_MOST_IDLE)

    async def close_idle(self, *, most_idle: int = 0) -> None:
        """Close the stores that nobody reads from, but for those that were used last."""
        idle = [key for key, shared in self._shared.items() if shared.users == 0]
        for key in idle[: max(len(idle) - most_idle, 0)]:
            await self._shared.pop(key).stack.store.aclose()

    @property
    def is_empty(self) -> bool:
        """Whether this process has opened none, or closed all of them."""
        return self._process_id != os.getpid() or not self._shared


@asynccontextmanager
async def opened_stack(choice: StoreChoice) -> AsyncGenerator[StoreStack, None]:
    """Open a store with everything that requests pass through on their way to it, and close it afterwards. No request."""
    async with opened_store(
        choice.url,
        storage_options=choice.storage_options,
        store_options=choice.store_options,
        store=choice.store,
        max_concurrency=choice.max_concurrency,
    ) as opened:
        if choice.store is None:
            check_paths(choice.paths, opened.path)
        yield opened.stack


open_stores = OpenStores()
"""Those of this process."""


def close_stores() -> None:
    """Close the stores that blocking reads of pieces have left open in this process. The next read opens them again."""
    if not open_stores.is_empty:
        background.run(open_stores.close_idle())


atexit.register(close_stores)
