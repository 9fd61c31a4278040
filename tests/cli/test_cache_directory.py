"""``--cache-dir``: the next command fetches nothing that an earlier one has fetched."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from coldparquet.catalog import caches
from coldparquet.storage.cache import MemoryCache
from coldparquet_testing.simulator import ColdStoreServer
from tests.support.command_line import Run
from tests.support.questdb_tables import GOLDEN

SECRET = "planted-secret-0123456789"  # noqa: S105 - to be searched for


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ColdStoreServer]:
    # Commands are run in this process, which would remember sidecars by itself.
    monkeypatch.setattr(caches, "PROCESS_SIDECARS", MemoryCache(0))
    shutil.copytree(GOLDEN / "o3_in_place" / "table", tmp_path / "bucket" / "trades")
    with ColdStoreServer(tmp_path) as running:
        yield running


@pytest.mark.parametrize(
    "command", [("scan", "--columns", "ts,price"), ("count",), ("explain", "--json")], ids=["scan", "count", "explain"]
)
def test_the_next_command_fetches_nothing_again(
    run: Run, server: ColdStoreServer, tmp_path: Path, command: tuple[str, ...]
) -> None:
    cache = tmp_path / "cache"
    store = ("--endpoint-url", server.endpoint_url, "--storage-option", "key=k", "--storage-option", f"secret={SECRET}")
    name, *flags = command
    question: tuple[str | Path, ...] = (
        name,
        "s3://bucket/trades",
        *flags,
        "--where",
        "price > 20",
        *store,
        "--cache-dir",
        cache,
    )
    first = run(*question)
    assert first.exit_code == 0, first.stderr
    assert received_bytes(server) > 0
    again = run(*question)
    assert again.exit_code == 0
    assert name == "explain" or again.stdout == first.stdout  # a plan tells how fast the store was
    assert received_bytes(server) == 0
    files = [path for path in cache.rglob("*") if path.is_file()]
    assert files
    assert not any(SECRET.encode() in path.read_bytes() for path in files)


def received_bytes(server: ColdStoreServer) -> int:
    """Return how many bytes of the partitions were sent since the last time."""
    partitions = [served for served in server.requests if "/20" in served.path and served.status < 300]
    server.reset()
    return sum(served.bytes_sent for served in partitions if served.method == "GET")


@pytest.mark.parametrize("directory", ["", "s3://bucket/cache"])
def test_a_cache_is_a_local_directory(run: Run, directory: str) -> None:
    result = run("count", "nowhere", "--cache-dir", directory)
    assert result.exit_code == 2
    assert "expected a local directory" in result.stderr
