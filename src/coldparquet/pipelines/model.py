"""What a job is: its items and their results as plain data, the stores it uses, the lake it is about, its report.

Pieces of work and what became of them: plain data that goes between processes and machines as JSON.

Nothing in here is an object of another module of the library, so that a driver and its executors need not have exactly
the same version, and nothing is a credential.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from dataclasses import asdict, dataclass, field, fields
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self, TypeAlias, TypeVar

from coldparquet.errors import ColdParquetError, InvalidInputError, UnsupportedError
from coldparquet.options import ReadOptions, StoreOptions
from coldparquet.prices import PriceTable
from coldparquet.scan.stats import ledger_dollars
from coldparquet.storage.open import OpenedStore, open_store, opened_store, path_beside, s3_path, stack_store
from coldparquet.storage.urls import shown_url

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from dataclasses import Field
    from types import TracebackType

    import pyarrow as pa

    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.log import Ledger


Value = TypeVar("Value")


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
    """The open stores of one process, one per lake: for planning, work and finishing.

    It belongs to the event loop in which it is used. Leaving its block closes the stores.

    Args:
        access: Settings of the stores.
    """

    def __init__(self, access: Access, *, read_options: ReadOptions | None = None) -> None:
        self.access = access
        self.read_options = read_options or ReadOptions(max_concurrency=access.max_concurrency)
        """How jobs read."""
        self.on_progress: Callable[..., None] | None = None
        """Called with how far an item has come, by jobs whose items take long; None where nothing listens."""
        self.prices: PriceTable | None = None
        """What the stores charge, if that is not the default; in this process."""
        self._opened: dict[str, OpenedStore] = {}
        self._made: dict[Hashable, asyncio.Future[Any]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, error_class: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        opened, self._opened = list(self._opened.values()), {}
        for one in opened:
            await one.stack.store.aclose()

    def adopt(self, url: str, opened: OpenedStore) -> None:
        """Take a store that is open already for a lake. The caller closes it, instead of a block of these stores."""
        self._opened[url] = opened

    def lake(self, url: str) -> tuple[ObjectStore, str]:
        """Return the store of a lake, with retries and limits, and the lake's path in it. No request."""
        opened = self._open(url)
        return opened.stack.store, opened.path

    def table(self, item: WorkItem) -> tuple[ObjectStore, str]:
        """Return the store of an item's table, with retries and limits, and the table's path in it. No request."""
        opened = self._open(item.lake)
        return opened.stack.store, join_url(opened.path.rstrip("/"), item.table)

    def path_of(self, url: str, item: WorkItem) -> str:
        """Return the path of another URL in the store of an item's table. No request."""
        opened = self._open(item.lake)
        is_path = s3_path(item.lake) is None and opened.bare.has_version_listings  # in a store of the caller's own
        return path_beside(url, opened.bare, None if is_path else item.lake)

    def bare_table(self, item: WorkItem) -> tuple[ObjectStore, str]:
        """Return the same without retries and limits, for functions that bring their own."""
        opened = self._open(item.lake)
        return opened.bare, join_url(opened.path.rstrip("/"), item.table)

    async def once(self, key: Hashable, make: Callable[[], Awaitable[Value]]) -> Value:
        """Return what ``make`` returned when it was first called with this key; calls meanwhile wait for it.

        A failure is everybody's who waits, and the next one tries again.
        """
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = asyncio.ensure_future(make())
            made.add_done_callback(lambda done: self._forget_failure(key, done))
        value: Value = await asyncio.shield(made)
        return value

    def remember(self, key: Hashable, value: Any) -> None:
        """Let :meth:`once` return this for a key."""
        made = self._made[key] = asyncio.get_running_loop().create_future()
        made.set_result(value)

    def take(self, key: Hashable) -> Any:
        """Return what :meth:`remember` was given for a key, and forget it; None where that is nothing."""
        made = self._made.pop(key, None)
        return None if made is None else made.result()

    def _forget_failure(self, key: Hashable, done: asyncio.Future[Any]) -> None:
        if done.cancelled() or done.exception() is not None:
            self._made.pop(key, None)

    def _open(self, url: str) -> OpenedStore:
        opened = self._opened.get(url)
        if opened is None:
            store, path = open_store(
                url, storage_options=self.access.storage_options, store_options=self.access.store_options
            )
            stack = stack_store(
                store, store_options=self.access.store_options, max_concurrency=self.access.max_concurrency
            )
            opened = self._opened[url] = OpenedStore(bare=store, stack=stack, path=path)
        return opened


class Job(Protocol):
    """One kind of work over a lake: plain data that says how, and three steps.

    A job keeps no state: what is left to do it finds in the tables. So it can be run again at any time, after it was
    killed too, and an item can be run twice, at the same time too, as engines do that retry and speculate.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def name(self) -> str:
        """As the command line calls it: ``index``."""
        ...

    @property
    def dry_run(self) -> bool:
        """Whether nothing is written, and the report says what would be done."""
        ...

    @property
    def items_at_once(self) -> int:
        """Items that one process should work on at the same time: many for work that waits, 1 for work that computes."""
        ...

    async def plan(self, lakes: Sequence[Lake], stores: LakeStores) -> WorkPlan:
        """Find out what is left to do, on the driver. Tables and lakes that cannot be planned are in the plan, not raised."""
        ...

    async def run(self, item: WorkItem, stores: LakeStores) -> WorkResult:
        """Do one piece of work, wherever that is. What it raises is the result of this item alone."""
        ...

    async def finish(self, results: Sequence[WorkResult], plan: WorkPlan, stores: LakeStores) -> tuple[WorkResult, ...]:
        """Do what is left once all items are done, on the driver; return what became of that."""
        ...


class Engine(Protocol):
    """Something that runs items."""

    @property
    def name(self) -> str:
        """For the report: ``local``, ``spark``."""
        ...

    async def execute(
        self, job: Job, items: Sequence[WorkItem], stores: LakeStores, on_result: Callable[[WorkResult], None]
    ) -> None:
        """Run all items in any order, and hand over one result for each."""
        ...


PATTERN_CHARACTERS = frozenset("*?[")
"""Where one is in the name of a directory, it is a pattern."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lake:
    """Where to look for tables."""

    url: str
    """A directory: everything before the first part with a pattern."""
    pattern: tuple[str, ...] = ()
    """Patterns of the names of the directories below it, one for each level; empty for all tables at any depth."""

    @property
    def full_url(self) -> str:
        """The directory and the pattern."""
        return "/".join((self.url.rstrip("/"), *self.pattern)) if self.pattern else self.url

    @classmethod
    def parse(cls, url: str) -> Lake:
        """Take a URL apart."""
        if shown_url(url) != url:
            raise InvalidInputError(
                "the URL of a lake becomes part of every piece of work, so that it must hold no password and no signature;"
                " pass them in storage_options, or leave them to the environment",
                path=shown_url(url),
            )
        scheme, separator, path = url.rpartition("://")
        parts = path.rstrip("/").split("/")
        plain = next((place for place, part in enumerate(parts) if PATTERN_CHARACTERS & set(part)), len(parts))
        base = "/".join(parts[:plain])
        if not url or (plain < len(parts) and not base and separator):
            raise InvalidInputError(f"{url!r} names no lake; needed: s3://bucket/path, or a local path", path=url)
        if not base:
            base = "/" if path.startswith("/") else "."
        return cls(url=f"{scheme}{separator}{base}", pattern=tuple(parts[plain:]))


JOBS = {
    "index": ("coldparquet.maintenance.index", "IndexJob"),
    "verify": ("coldparquet.maintenance.verify", "VerifyJob"),
    "migrate": ("coldparquet.maintenance.migrate", "MigrateJob"),
    "pack": ("coldparquet.maintenance.pack", "PackJob"),
    "compact": ("coldparquet.write.compact_job", "CompactJob"),
    "publish": ("coldparquet.publish.job", "PublishJob"),
    "tier": ("coldparquet.maintenance.tier", "TierJob"),
    "convert": ("coldparquet.write.convert", "ConvertJob"),
}
"""Module and class of each, in the order of the command line's help. Workers import the one that they run: all of them take a
second."""


def job_as_dict(job: Job) -> dict[str, Any]:
    """Return a job as plain data that ``json.dumps`` takes: its name as ``job``, and its fields."""
    return {"job": job.name, **asdict(job)}


def job_from_dict(data: Mapping[str, Any]) -> Job:
    """Make a job from plain data; what is left out has its default."""
    given = dict(data)
    name = given.pop("job", None)
    if not isinstance(name, str) or name not in JOBS:
        raise InvalidInputError(f"there is no job {name!r}; there are {', '.join(JOBS)}", kind="UnknownJob")
    module, class_name = JOBS[name]
    job_class: type[Job] = getattr(import_module(module), class_name)
    known = {one.name for one in fields(job_class)}
    unknown = sorted(given.keys() - known)
    if unknown:
        raise InvalidInputError(
            f"the job {name} has no option {unknown[0]!r}; it has {', '.join(sorted(known))}", kind="UnknownOption"
        )
    return job_class(**{key: tuple(value) if isinstance(value, list) else value for key, value in given.items()})


Outcome: TypeAlias = Literal["done", "nothing to do", "failed"]

NOT_OPENED = "not opened"
"""Action of a result that is about no table: a lake, or a directory of one, in which tables could not be looked for."""

FEW_AT_ONCE = 8
"""Work of which no more than so many items run at once computes, or moves much."""

FORMAT_VERSION = 2
"""Of the JSON of items and results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkItem:
    """One piece of work, about one partition or one table."""

    lake: str
    """URL of the directory below which the table lies, without pattern and without secrets."""
    table: str
    """Path of the table below the lake; empty where the lake itself is the table."""
    partition: str = ""
    """Name of the partition's directory; empty for work on the whole table."""
    cost_bytes: int = 0
    """Roughly what has to be read, so that engines can deal out items evenly; 0 where all items cost the same."""
    work: Mapping[str, Any] = field(default_factory=dict)
    """What else the job wants to know of it, as JSON can hold it."""

    @property
    def table_url(self) -> str:
        """Where the table lies."""
        return join_url(self.lake, self.table)

    def to_json(self) -> str:
        """Return it as one line."""
        return json.dumps({"version": FORMAT_VERSION, **asdict(self)}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> WorkItem:
        """Read what :meth:`to_json` has written."""
        return cls(**_fields(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """The requests of some work, second attempts included, and what S3 asks for them."""

    request_count: int = 0
    fetched_bytes: int = 0
    dollars: float | None = 0.0
    """None where the price of a storage class is not known."""

    @classmethod
    def of(cls, ledger: Ledger) -> Self:
        """Take it from the ledger that the work was charged to; at the prices of AWS in us-east-1."""
        totals = ledger.totals
        return cls(
            request_count=totals.request_count,
            fetched_bytes=totals.fetched_bytes,
            dollars=ledger_dollars(ledger, PriceTable.default()),
        )

    def __add__(self, other: Self) -> Self:
        """Sum up two."""
        dollars = None if self.dollars is None or other.dollars is None else self.dollars + other.dollars
        return type(self)(
            request_count=self.request_count + other.request_count,
            fetched_bytes=self.fetched_bytes + other.fetched_bytes,
            dollars=dollars,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkResult:
    """What became of one piece of work; a failure is one as well."""

    table: str
    """URL of the table."""
    partition: str = ""
    """Name of the partition's directory; empty for what is about the whole table."""
    outcome: Outcome
    action: str
    """What was done, in the words of the job: ``written``, ``would compact``, ``kept``."""
    reason: str | None = None
    """Why it failed or was left out, or what else a person should know."""
    kind: str | None = None
    """Stable name of the cause of a failure, see :class:`~coldparquet.errors.ColdParquetError`."""
    rows: int | None = None
    size_bytes: int | None = None
    """Of what was written, moved or checked; None where that has no size."""
    dollars: float | None = None
    """What it cost, or would; None where that was not worked out."""
    elapsed_s: float = 0.0
    details: Mapping[str, Any] = field(default_factory=dict)
    """Facts of the job, as JSON can hold them."""
    spent: Spent = Spent()
    done: Any = field(default=None, repr=False, compare=False)
    """What the function for one table reports; known only in the process that did it."""

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data that ``json.dumps`` takes."""
        values = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "done"}
        return {**values, "spent": asdict(self.spent)}

    def to_json(self) -> str:
        """Return it as one line."""
        return json.dumps({"version": FORMAT_VERSION, **self.as_dict()}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> WorkResult:
        """Read what :meth:`to_json` has written."""
        found = _fields(text)
        return cls(**{**found, "spent": Spent(**found["spent"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkPlan:
    """What is left to do, found from the tables themselves."""

    items: tuple[WorkItem, ...]
    settled: tuple[WorkResult, ...] = ()
    """What is decided without running anything: what needs no work, cannot have any, or failed while it was planned."""
    notes: tuple[str, ...] = ()
    """What a person should know about the choice, one sentence each."""
    tables: tuple[WorkItem, ...] = ()
    """Tables that are finished as a whole, whether or not they have items."""
    partitions: tuple[str, ...] = ()
    """Of a plan for one table: the names of all its partitions, oldest first."""


def failure(item: WorkItem, error: BaseException, *, elapsed_s: float = 0.0) -> WorkResult:
    """Turn an error into the result of an item."""
    return WorkResult(
        table=item.table_url,
        partition=item.partition,
        outcome="failed",
        action="failed",
        reason=reason_of(error),
        kind=error.kind if isinstance(error, ColdParquetError) else type(error).__name__,
        elapsed_s=elapsed_s,
    )


def nothing_to_do(item: WorkItem, action: str, reason: str | None) -> WorkResult:
    """Say of an item that it needs no work, or cannot have any."""
    return WorkResult(
        table=item.table_url, partition=item.partition, outcome="nothing to do", action=action, reason=reason
    )


def reason_of(error: BaseException) -> str:
    """Say what an error says, with the name of the file that it is about."""
    if not isinstance(error, ColdParquetError):
        return f"{type(error).__name__}: {error}"
    file_name = (error.path or "").rpartition("/")[2]
    return f"{file_name}: {error.message}" if file_name else error.message


def join_url(lake: str, table: str) -> str:
    """Return the URL of a table below a lake."""
    return f"{lake.rstrip('/')}/{table}" if table else lake


def _fields(text: str) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(text)
    version = fields.pop("version", None)
    if version != FORMAT_VERSION:
        raise UnsupportedError(
            f"this piece of work has format {version}, and this version of coldparquet knows {FORMAT_VERSION}; install the"
            " same version on the driver and on all executors",
            kind="OtherVersion",
        )
    return fields


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineReport:
    """What became of every partition and table that a run was about."""

    job: str
    engine: str
    lakes: tuple[str, ...]
    is_dry_run: bool
    results: tuple[WorkResult, ...]
    """By table and partition; what is about a whole table comes before its partitions."""
    notes: tuple[str, ...]
    elapsed_s: float
    spent: Spent = Spent()

    def count(self, outcome: Outcome) -> int:
        """Return how many results have this outcome."""
        return sum(result.outcome == outcome for result in self.results)

    @property
    def actions(self) -> dict[str, int]:
        """How many results met each fate, the most frequent one first, whatever they are about."""
        return _counted(self.results)

    @property
    def partition_actions(self) -> dict[str, int]:
        """The same of the results about one partition."""
        return _counted(result for result in self.results if result.partition)

    @property
    def table_actions(self) -> dict[str, int]:
        """The same of the results about a table as a whole, or about a lake that could not be opened."""
        return _counted(result for result in self.results if not result.partition)

    @property
    def dollars(self) -> float | None:
        """What everything cost, or would; None where that was not worked out."""
        known = [result.dollars for result in self.results if result.dollars is not None]
        return sum(known) if known else None

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain data that ``json.dumps`` takes."""
        return {
            "job": self.job,
            "engine": self.engine,
            "lakes": list(self.lakes),
            "is_dry_run": self.is_dry_run,
            "outcomes": dict(Counter(result.outcome for result in self.results)),
            "partition_actions": self.partition_actions,
            "table_actions": self.table_actions,
            "dollars": self.dollars,
            "elapsed_s": self.elapsed_s,
            "spent": asdict(self.spent),
            "notes": list(self.notes),
            "results": [result.as_dict() for result in self.results],
        }

    def to_arrow(self) -> pa.Table:
        """Return one row per result: ``spark.createDataFrame(report.to_arrow())``, ``report.to_arrow().to_pandas()``.

        The columns are the fields of :class:`~coldparquet.pipelines.model.WorkResult`; ``details`` and ``spent`` are JSON text.
        """
        import pyarrow as pa  # noqa: PLC0415 - printing a report needs no Arrow

        text, number, amount = pa.string(), pa.int64(), pa.float64()
        types = {"rows": number, "size_bytes": number, "dollars": amount, "elapsed_s": amount}
        names = (one.name for one in fields(WorkResult) if one.name != "done")
        schema = pa.schema([pa.field(name, types.get(name, text)) for name in names])
        rows = [result.as_dict() for result in self.results]
        for row in rows:
            row |= {name: json.dumps(row[name], ensure_ascii=False) for name in ("details", "spent")}
        return pa.Table.from_pylist(rows, schema=schema)


def _counted(results: Iterable[WorkResult]) -> dict[str, int]:
    return dict(Counter(result.action for result in results).most_common())
