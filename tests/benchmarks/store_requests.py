"""Processor time of a 64 KiB GET: our stores, s3fs's ``_cat_file`` and obstore, in turn, on the same store on this machine.

    python -m tests.benchmarks.store_requests [--requests 400] [--rounds 7] [--uvloop] [--json FILE]

The store is the simulated one, in a process of its own, over loopback and without added latency. Counted is the processor
time of this process alone; what obstore's threads use is part of it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeAlias

from coldparquet.options import StoreOptions
from coldparquet.ranges import ByteRange
from coldparquet.storage.base import ObjectStore
from coldparquet.storage.open import open_store, stack_store
from coldparquet.storage.requests import RangeRequest
from coldparquet.storage.s3.store import S3Store
from coldparquet_testing.simulator import ColdStoreProcess

Fetch: TypeAlias = Callable[[int], Awaitable[bytes]]
"""Fetches the range that begins here."""


GET_BYTES = 64 * 1024
OBJECT_BYTES = 256 * GET_BYTES
CONCURRENCY = 16
PEER = "s3fs _cat_file"


async def measure(*, requests: int, rounds: int) -> dict[str, float]:
    """Return the microseconds of processor time of one GET by client: medians over rounds in turn."""
    with tempfile.TemporaryDirectory() as root:
        (Path(root) / "bucket").mkdir()
        (Path(root) / "bucket" / "object").write_bytes(bytes(range(256)) * (OBJECT_BYTES // 256))
        with ColdStoreProcess(Path(root)) as server:
            async with AsyncExitStack() as closing:
                clients = await open_clients(server, closing)
                spent_us: dict[str, list[float]] = {name: [] for name in clients}
                for number in range(rounds + 1):
                    for name, fetch in clients.items():
                        used_us = await processor_time_us(fetch, requests)
                        if number:  # the first round opens connections
                            spent_us[name].append(used_us)
    return {name: statistics.median(values) for name, values in spent_us.items()}


async def open_clients(server: ColdStoreProcess, closing: AsyncExitStack) -> dict[str, Fetch]:
    """Open every client that is installed."""
    bare = S3Store(storage_options=server.storage_options)
    stacked = stack_store(
        S3Store(storage_options=server.storage_options), store_options=StoreOptions(), max_concurrency=CONCURRENCY
    ).store
    web, web_path = open_store(f"{server.endpoint_url}/bucket/object")
    for store in (bare, stacked, web):
        closing.push_async_callback(store.aclose)
    clients = {
        PEER: s3fs_fetch(server, closing),
        "S3Store": store_fetch(bare, "bucket/object"),
        "S3Store with retries, limits and hedges": store_fetch(stacked, "bucket/object"),
        "WebStore": store_fetch(web, web_path),
    }
    obstore = obstore_fetch(server)
    return clients if obstore is None else {**clients, "ObstoreStore": obstore}


def store_fetch(store: ObjectStore, path: str) -> Fetch:
    """Fetch through one of our stores."""

    async def fetch(start: int) -> bytes:
        request = RangeRequest(path=path, byte_range=ByteRange(start, start + GET_BYTES), reason="benchmark")
        return (await store.get(request)).data

    return fetch


def s3fs_fetch(server: ColdStoreProcess, closing: AsyncExitStack) -> Fetch:
    """Fetch as fsspec does it."""
    import s3fs

    filesystem = s3fs.S3FileSystem(asynchronous=True, skip_instance_cache=True, **server.storage_options)

    async def close() -> None:
        await filesystem.s3.close()

    closing.push_async_callback(close)

    async def fetch(start: int) -> bytes:
        data: bytes = await filesystem._cat_file("bucket/object", start=start, end=start + GET_BYTES)
        return data

    return fetch


def obstore_fetch(server: ColdStoreProcess) -> Fetch | None:
    """Fetch through Rust's object stores, where they are installed."""
    try:
        from obstore import store as stores
    except ImportError:
        return None
    from coldparquet.storage.obstore_store import ObstoreStore

    options = server.storage_options
    store = stores.S3Store(
        "bucket",
        endpoint=server.endpoint_url,
        access_key_id=options.get("key", "key"),
        secret_access_key=options.get("secret", "secret"),
        region="us-east-1",
        client_options={"allow_http": True},
    )
    return store_fetch(ObstoreStore(store), "object")


async def processor_time_us(fetch: Fetch, requests: int) -> float:
    """Return the processor time of one of so many GETs, some at once."""
    starts = iter([number * GET_BYTES % OBJECT_BYTES for number in range(requests)])

    async def work() -> None:
        for start in starts:
            assert len(await fetch(start)) == GET_BYTES

    started_s = time.process_time()
    await asyncio.gather(*(work() for _ in range(CONCURRENCY)))
    return (time.process_time() - started_s) / requests * 1e6


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Measure, print, and return what was printed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--uvloop", action="store_true", help="run in uvloop's event loop")
    parser.add_argument("--json", type=Path, help="write the numbers here, too")
    asked = parser.parse_args(arguments)
    factory = None
    if asked.uvloop:
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        medians = runner.run(measure(requests=asked.requests, rounds=asked.rounds))
    for name, used_us in medians.items():
        print(f"{name:40} {used_us:7.0f} us/GET   {used_us / medians[PEER]:5.2f} of {PEER}")
    found = {"get_bytes": GET_BYTES, "event_loop": "uvloop" if asked.uvloop else "asyncio", "us_per_get": medians}
    if asked.json is not None:
        asked.json.write_text(json.dumps(found, indent=2) + "\n")
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
