"""Every wrapper around every verb: what goes through, how often, and what is told of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import AsyncMock

import pytest

from coldparquet.errors import NotFoundError, StorageError
from coldparquet.options import StoreOptions
from coldparquet.ranges import ByteRange
from coldparquet.storage.base import Answer, Call, Effect, ObjectStore, Operation, StoreWrapper
from coldparquet.storage.cache import CachedStore
from coldparquet.storage.checked import CheckedStore
from coldparquet.storage.hedge import HedgedStore
from coldparquet.storage.limit import LimitedStore
from coldparquet.storage.log import TraceStore
from coldparquet.storage.memory import MemoryStore
from coldparquet.storage.open import stack_store
from coldparquet.storage.requests import ObjectInfo, Upload, UploadedPart
from coldparquet.storage.retry import RetryStore
from coldparquet_testing.store_contract import StoreContract, request_for
from coldparquet_testing.stores import DyingStore, FaultStore, LatencyStore, scripted

INFO = ObjectInfo(path="t/x", size_bytes=3, etag='"7"', storage_class="GLACIER")
UPLOAD = Upload(path="t/x", upload_id="u")
PART = UploadedPart(number=2, size_bytes=3, etag="p", crc32=1)


@dataclass(frozen=True, kw_only=True)
class Verb:
    """One way to call a verb, and what wrappers have to know of it."""

    name: str
    arguments: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)
    answer: Any = None
    operation: Operation
    path: str = "t/x"
    reason: str
    effect: Effect = "repeatable write"
    size_bytes: int = 0
    etag: str | None = None
    """What the log tells of the answer."""

    def __str__(self) -> str:
        return f"{self.name} {self.options}" if self.name in ("put", "finish_upload") else self.name

    async def call(self, store: ObjectStore) -> Any:
        return await getattr(store, self.name)(*self.arguments, **self.options)


def put(*, overwrite: bool, if_match: str | None, effect: Effect) -> Verb:
    return Verb(
        name="put",
        arguments=("t/x", b"abc"),
        options={"overwrite": overwrite, "if_match": if_match, "storage_class": "GLACIER"},
        answer='"8"',
        operation="put",
        reason="write 3 bytes",
        effect=effect,
        size_bytes=3,
        etag='"8"',
    )


def finish(*, overwrite: bool) -> Verb:
    return Verb(
        name="finish_upload",
        arguments=(UPLOAD, [PART]),
        options={"overwrite": overwrite},
        answer='"9"',
        operation="finish upload",
        reason="join 1 parts",
        effect="conditional write",
        etag='"9"',
    )


VERBS = [
    Verb(
        name="info",
        arguments=("t/x",),
        answer=INFO,
        operation="info",
        reason="size and storage class",
        effect="read",
        etag='"7"',
    ),
    Verb(
        name="list",
        arguments=("t",),
        options={"first_page_only": True},
        operation="list",
        path="t",
        reason="listing",
        effect="read",
    ),
    Verb(
        name="list_between",
        arguments=("t",),
        options={"start": "a", "stop": "b"},
        operation="list",
        path="t",
        reason="listing of versions",
        effect="read",
    ),
    put(overwrite=True, if_match=None, effect="repeatable write"),
    put(overwrite=False, if_match=None, effect="conditional write"),
    put(overwrite=True, if_match='"7"', effect="conditional write"),
    Verb(
        name="start_upload",
        arguments=("t/x",),
        options={"storage_class": "GLACIER"},
        answer=UPLOAD,
        operation="start upload",
        reason="write in parts",
    ),
    Verb(
        name="upload_part",
        arguments=(UPLOAD, 2),
        options={"start": 16, "data": b"abc"},
        answer=PART,
        operation="upload part",
        reason="part 2: write 3 bytes",
        size_bytes=3,
    ),
    finish(overwrite=True),
    finish(overwrite=False),
    Verb(name="abort_upload", arguments=(UPLOAD,), operation="abort upload", reason="throw the parts away"),
    Verb(
        name="remove_unfinished",
        arguments=("t",),
        options={"started_before_s": 5.0},
        answer=3,
        operation="remove unfinished",
        path="t",
        reason="left behind by killed uploads",
    ),
    Verb(name="delete", arguments=(["t/x", "t/y"],), operation="delete", reason="delete 2 objects"),
    Verb(name="delete", arguments=([],), operation="delete", path="", reason="delete 0 objects"),
    Verb(
        name="restore",
        arguments=("t/x",),
        options={"days": 1000, "tier": "Bulk"},
        operation="restore",
        reason="restore for 1,000 days, Bulk",
    ),
    Verb(
        name="change_class",
        arguments=("t/x",),
        options={"storage_class": "GLACIER", "if_match": '"7"'},
        answer='"10"',
        operation="change class",
        reason="move to GLACIER",
        effect="conditional write",
    ),
]
every_verb = pytest.mark.parametrize("verb", VERBS, ids=str)


class Seen(StoreWrapper):
    """Keeps the calls that come through."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.calls: list[Call[Any]] = []

    async def send(self, call: Call[Answer]) -> Answer:
        self.calls.append(call)
        return await super().send(call)


def stack(store: ObjectStore) -> ObjectStore:
    return CachedStore(CheckedStore(bare_stack(store)))


def bare_stack(store: ObjectStore) -> ObjectStore:
    return stack_store(store, store_options=StoreOptions(), max_concurrency=4).store


WRAPPERS: dict[str, Callable[[ObjectStore], ObjectStore]] = {
    "memory itself": lambda store: store,
    "nothing": StoreWrapper,
    "retries": lambda store: RetryStore(store, max_attempts=3),
    "limit": lambda store: LimitedStore(store, max_concurrency=2),
    "hedges": HedgedStore,
    "trace": TraceStore,
    "checks": CheckedStore,
    "faults": lambda store: FaultStore(store, scripted({})),
    "latency": lambda store: LatencyStore(store, first_byte_s=0.0001, bandwidth_bytes_per_s=1e9),
    "deaths": DyingStore,
    "bare stack": bare_stack,
    "stack": stack,
}
every_wrapper = pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)


@every_wrapper
class TestWrapped(StoreContract):
    @pytest.fixture
    def store(self, wrap: Callable[[ObjectStore], ObjectStore]) -> ObjectStore:
        return wrap(MemoryStore())

    @pytest.fixture
    def root(self) -> str:
        return "bucket/trades"


def answering(verb: Verb, *failures: StorageError) -> AsyncMock:
    """Make a store that answers a verb, after these failures."""
    inner = AsyncMock(spec=MemoryStore, label="memory", has_spare_connections=False)
    getattr(inner, verb.name).side_effect = [*failures, verb.answer]
    return inner


@every_verb
@every_wrapper
async def test_arguments_and_answers_go_through_as_they_are(
    verb: Verb, wrap: Callable[[ObjectStore], ObjectStore]
) -> None:
    inner = answering(verb)
    assert await verb.call(wrap(inner)) is verb.answer
    getattr(inner, verb.name).assert_awaited_once_with(*verb.arguments, **verb.options)
    assert len(inner.mock_calls) == 1


@every_verb
async def test_what_a_call_tells(verb: Verb) -> None:
    seen = Seen(answering(verb))
    await verb.call(seen)
    [call] = seen.calls
    assert (call.operation, call.path, call.reason) == (verb.operation, verb.path, verb.reason)
    assert (call.effect, call.size_bytes) == (verb.effect, verb.size_bytes)


@every_verb
async def test_every_verb_is_recorded(verb: Verb) -> None:
    store = TraceStore(answering(verb))
    await verb.call(store)
    [record] = store.records
    assert (record.operation, record.path, record.reason) == (verb.operation, verb.path, verb.reason)
    assert (record.etag, record.byte_range, record.fetched_bytes, record.status) == (verb.etag, None, 0, "ok")
    assert record.storage_class == ("GLACIER" if verb.name == "info" else None)


@every_verb
async def test_every_verb_has_a_slot_and_says_how_many_bytes_it_sends(verb: Verb) -> None:
    inner = answering(verb)
    store = LimitedStore(inner, max_concurrency=1)
    counted: list[tuple[int, int]] = []

    def count(*_: Any, **__: Any) -> Any:
        counted.append((store.in_flight.request_count, store.in_flight.byte_count))
        return verb.answer

    getattr(inner, verb.name).side_effect = count
    await verb.call(store)
    assert counted == [(1, verb.size_bytes)]
    assert (store.in_flight.request_count, store.in_flight.byte_count) == (0, 0)


async def no_wait(_: float) -> None:
    pass


@every_verb
async def test_what_may_be_sent_again_is(verb: Verb) -> None:
    reset = StorageError("reset", kind="ConnectionFailed")
    inner = answering(verb, reset, reset)
    store = RetryStore(inner, max_attempts=4, sleep=no_wait)
    if verb.effect == "conditional write":
        with pytest.raises(StorageError, match="whether it was written before the failure is not known") as caught:
            await verb.call(store)
        assert (caught.value.kind, caught.value.details["attempts"]) == ("ConnectionFailed", 1)
        assert getattr(inner, verb.name).await_count == 1
    else:
        assert await verb.call(store) is verb.answer
        assert getattr(inner, verb.name).await_count == 3


@every_verb
async def test_what_was_certainly_not_done_is_sent_again(verb: Verb) -> None:
    refused = (
        StorageError("slow down", kind="SlowDown"),
        StorageError("refused", kind="ConnectionFailed", was_sent=False),
    )
    inner = answering(verb, *refused)
    store = RetryStore(inner, max_attempts=4, sleep=no_wait)
    assert await verb.call(store) is verb.answer
    assert (getattr(inner, verb.name).await_count, store.retry_count) == (3, 2)
    getattr(inner, verb.name).assert_awaited_with(*verb.arguments, **verb.options)


@pytest.mark.parametrize("name", ["has_storage_classes", "has_version_listings", "has_spare_connections"])
@pytest.mark.parametrize("told", [True, False])
def test_flags_go_through(name: str, told: bool) -> None:
    inner = AsyncMock(spec=MemoryStore, label="somewhere", **{name: told})
    top = stack(inner)
    assert (getattr(top, name), top.label) == (told, "somewhere")


async def test_what_is_at_hand_is_no_call() -> None:
    inner = AsyncMock(spec=MemoryStore, has_spare_connections=False)
    inner.infos_at_hand.return_value = (INFO,)
    seen = Seen(inner)
    assert await stack(seen).infos_at_hand(["t/x"]) == (INFO,)
    assert seen.calls == []


async def test_first_contents_and_delete() -> None:
    store = MemoryStore({"table/_txn": b"abc"})
    assert (await store.get(request_for("table/_txn", ByteRange(0, 3)))).data == b"abc"
    assert [info.path for info in (await store.list("")).objects] == []
    await store.delete(["table/_txn", "table/absent"])
    with pytest.raises(NotFoundError):
        await store.get(request_for("table/_txn", ByteRange(0, 3)))


async def test_same_bytes_written_again_are_a_new_version() -> None:
    store = MemoryStore({"x": b"abc"})
    first = await store.get(request_for("x", ByteRange(0, 3)))
    await store.put("x", b"abc", overwrite=True)
    assert (await store.get(request_for("x", ByteRange(0, 3)))).etag != first.etag
