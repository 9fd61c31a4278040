"""How work gets at stores: settings that stay out of the pieces of work, and the open stores of one process."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self, TypeVar

from coldparquet.options import ReadOptions, StoreOptions
from coldparquet.storage.open_store import open_store
from coldparquet.storage.wrappers.store_stack import stack_store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Mapping
    from types import TracebackType

    from coldparquet.pipelines.work import WorkItem
    from coldparquet.storage.base import ObjectStore

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Settings of the stores. They may hold secrets, so that they are never shown, and never part of a piece of work."""

    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Of the lakes, as fsspec and s3fs take them. What they leave open is resolved where the work is done."""
    destination_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Of the place that ``publish`` and ``convert`` write to."""
    max_concurrency: int = ReadOptions().max_concurrency
    """Requests in flight at once, in each process."""
    store_options: StoreOptions = field(default_factory=StoreOptions)
    """How patient to be."""

    def as_dict(self) -> dict[str, Any]:
        """Return plain data that ``json.dumps`` takes: how it goes to a worker. It holds what it was given, secrets too."""
        return {
            "storage_options": dict(self.storage_options),
            "destination_options": dict(self.destination_options),
            "max_concurrency": self.max_concurrency,
            "store_options": asdict(self.store_options),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Make what :meth:`as_dict` has taken apart."""
        return cls(**{**data, "store_options": StoreOptions(**data["store_options"])})


class LakeStores:
    """The open stores of one process, one per lake, for whoever plans, works or finishes.

    It belongs to the event loop in which it is used. Leaving its block closes the stores.

    Args:
        access: Settings of the stores.
    """

    def __init__(self, access: Access) -> None:
        self.access = access
        self.read_options = ReadOptions(max_concurrency=access.max_concurrency)
        """How jobs read."""
        self._opened: dict[str, _Opened] = {}
        self._made: dict[Hashable, asyncio.Future[Any]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, error_class: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        opened, self._opened = list(self._opened.values()), {}
        for one in opened:
            await one.stacked.aclose()

    def lake(self, url: str) -> tuple[ObjectStore, str]:
        """Return the store of a lake, with retries and limits, and the lake's path in it. No request."""
        opened = self._open(url)
        return opened.stacked, opened.path

    def table(self, item: WorkItem) -> tuple[ObjectStore, str]:
        """Return the store of an item's table, with retries and limits, and the table's path in it. No request."""
        opened = self._open(item.lake)
        return opened.stacked, opened.below(item.table)

    def bare_table(self, item: WorkItem) -> tuple[ObjectStore, str]:
        """Return the same without retries and limits, for functions that bring their own."""
        opened = self._open(item.lake)
        return opened.bare, opened.below(item.table)

    async def once(self, key: Hashable, make: Callable[[], Awaitable[Value]]) -> Value:
        """Return what ``make`` returned when it was first called with this key; whoever comes meanwhile waits for it.

        A failure is everybody's who waits, and the next one tries again.
        """
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = asyncio.ensure_future(make())
            made.add_done_callback(lambda done: self._forget_failure(key, done))
        value: Value = await asyncio.shield(made)
        return value

    def _forget_failure(self, key: Hashable, done: asyncio.Future[Any]) -> None:
        if done.cancelled() or done.exception() is not None:
            self._made.pop(key, None)

    def _open(self, url: str) -> _Opened:
        opened = self._opened.get(url)
        if opened is None:
            store, path = open_store(
                url, storage_options=self.access.storage_options, store_options=self.access.store_options
            )
            stack = stack_store(
                store, store_options=self.access.store_options, max_concurrency=self.access.max_concurrency
            )
            opened = self._opened[url] = _Opened(bare=store, stacked=stack.store, path=path)
        return opened


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opened:
    """One open store."""

    bare: ObjectStore
    stacked: ObjectStore
    path: str
    """Of the lake."""

    def below(self, table: str) -> str:
        path = self.path.rstrip("/")
        return f"{path}/{table}" if table else path
