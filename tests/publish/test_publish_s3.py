"""Publishing to S3: over the simulated store with parts and signatures, and on moto, an S3 that others wrote."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from coldparquet.errors import AccessError, NotFoundError, ObjectChangedError, StorageError
from coldparquet.publish import PublishOptions, StorageClassRule, publish_table
from coldparquet.storage.base import StoreWrapper
from coldparquet.storage.log import TraceStore
from coldparquet.storage.s3.store import S3Store
from coldparquet.write import upload
from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreServer
from coldparquet_testing.stores import DyingStore
from tests.support.questdb_tables import assert_same_rows
from tests.support.s3_servers import MOTO_KEYS, boto3_client, moto_server
from tests.support.table_copies import TABLE, copy_table, expected_published_rows, put_in_state, read_rows

SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"  # noqa: S105 - AWS's own example
PATH = "bucket/db/t"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ColdStoreServer]:
    monkeypatch.setattr(upload, "PART_BYTES", 16 * 1024)
    (tmp_path / "store" / "bucket").mkdir(parents=True)
    with ColdStoreServer(tmp_path / "store", ColdStoreOptions(secret_key=SECRET)) as server:
        yield server


@pytest.fixture
async def simulated(server: ColdStoreServer) -> AsyncIterator[S3Store]:
    store = S3Store(storage_options=server.storage_options)
    yield store
    await store.aclose()


@pytest.fixture(scope="module")
def moto_url() -> Iterator[str]:
    with moto_server() as url:
        yield url


@pytest.fixture
async def moto(moto_url: str) -> AsyncIterator[tuple[S3Store, Any]]:
    """A store with an empty bucket, and a client that sees the same."""
    with boto3_client(moto_url) as client:
        client.create_bucket(Bucket="bucket")
        store = S3Store(storage_options={**MOTO_KEYS, "endpoint_url": moto_url})
        yield store, client
        await store.aclose()
        found = client.list_objects_v2(Bucket="bucket").get("Contents", [])
        for entry in found:
            client.delete_object(Bucket="bucket", Key=entry["Key"])
        client.delete_bucket(Bucket="bucket")


async def test_by_url_as_users_do(tmp_path: Path, server: ColdStoreServer) -> None:
    table = copy_table(TABLE, tmp_path)
    report = await publish_table(table, f"s3://{PATH}/", storage_options=server.storage_options)
    assert report.destination == f"s3://{PATH}/"
    operations = [request.operation for request in server.requests if request.status < 400]
    writes = {"PutObject", "UploadPart", "CreateMultipartUpload", "CompleteMultipartUpload"}
    assert sum(operation in writes for operation in operations) == report.cost.write_count
    assert operations[-2:] == ["PutObject", "DeleteObjects"]
    assert server.requests[-2].path == f"{PATH}/_txn"
    with pytest.raises(AccessError):
        await publish_table(table, f"s3://{PATH}", storage_options={**server.storage_options, "secret": "wrong"})
    with pytest.raises(NotFoundError):
        await publish_table(table, "s3://nowhere/t", storage_options=server.storage_options)


@pytest.mark.slow
async def test_killed_on_the_simulated_store(tmp_path: Path, simulated: S3Store) -> None:
    table = copy_table(TABLE, tmp_path, snapshot="0_converted")
    await publish_table(table, f"{PATH}0", store=simulated)
    living = DyingStore(simulated)
    await publish_table(table, f"{PATH}1", store=living)
    put_in_state(table, None)
    for number, at_call in enumerate(range(0, living.call_count, 3), start=2):
        path, put_back = f"{PATH}{number}", "0_converted"
        put_in_state(table, put_back)
        await publish_table(table, path, store=simulated)
        put_in_state(table, None)
        dying = DyingStore(simulated, at_call=at_call, when="after" if number % 2 else "before")
        try:
            await publish_table(table, path, store=dying)
        except StorageError as error:
            assert error.kind == "Killed"  # noqa: PT017 - a run that needs fewer calls ends well
        assert (await read_rows(simulated, path)).num_rows in (3000, 3044)
        await publish_table(table, path, store=simulated, options=PublishOptions(purge=True, purge_after_s=0))
        assert_same_rows(await read_rows(simulated, path), expected_published_rows(None))
        assert await simulated.remove_unfinished(path, started_before_s=float("inf")) == 0


async def test_updates_on_moto(tmp_path: Path, moto: tuple[S3Store, Any]) -> None:
    store, client = moto
    table = copy_table(TABLE, tmp_path, snapshot="0_converted")
    rules = (StorageClassRule(after_days=30, storage_class="GLACIER_IR"),)
    for snapshot in ("0_converted", "1_one_late_row", None):
        put_in_state(table, snapshot)
        await publish_table(table, PATH, store=store, options=PublishOptions(storage_classes=rules))
        assert_same_rows(await read_rows(store, PATH), expected_published_rows(snapshot))
    listed = client.list_objects_v2(Bucket="bucket", Prefix="db/t/")["Contents"]
    classes = {entry["Key"].removeprefix("db/t/"): entry["StorageClass"] for entry in listed}
    assert {name for name, storage_class in classes.items() if storage_class == "GLACIER_IR"} == {
        name for name in classes if name.endswith("/data.parquet")
    }
    assert not client.list_multipart_uploads(Bucket="bucket").get("Uploads")
    again = await publish_table(table, PATH, store=store)
    assert again.cost.write_count == 0


async def test_killed_runs_are_continued_on_moto(tmp_path: Path, moto: tuple[S3Store, Any]) -> None:
    store, _ = moto
    table = copy_table(TABLE, tmp_path)
    for at_call in (2, 4, 5, 9, 17, 19):  # data, sidecar, and table files
        path = f"{PATH}{at_call}"
        with pytest.raises(StorageError, match="killed"):
            await publish_table(table, path, store=DyingStore(store, at_call=at_call, when="after"))
        trace = TraceStore(store)
        report = await publish_table(table, path, store=trace)
        assert report.count("found") + report.count("published") + report.count("converted") == 3
        assert_same_rows(await read_rows(store, path), expected_published_rows(None))
        statuses = {record.status for record in trace.records}
        assert statuses <= {"ok", "NotFound", "AlreadyExists"}


class TakenOver(StoreWrapper):
    """Another process commits right before this publisher does."""

    def __init__(self, store: S3Store, table: Path) -> None:
        super().__init__(store)
        self._table = table

    async def put(
        self, path: str, data: bytes, *, overwrite: bool, if_match: str | None = None, storage_class: str | None = None
    ) -> str | None:
        if path.endswith("/_txn"):
            await publish_table(self._table, PATH, store=self._store)
        return await super().put(path, data, overwrite=overwrite, if_match=if_match, storage_class=storage_class)


@pytest.mark.parametrize("is_first", [True, False])
async def test_the_second_of_two_commits_is_refused_by_moto(
    tmp_path: Path, moto: tuple[S3Store, Any], is_first: bool
) -> None:
    store, _ = moto
    slow, fast = copy_table(TABLE, tmp_path / "slow"), copy_table(TABLE, tmp_path / "fast")
    if not is_first:
        put_in_state(slow, "0_converted")
        await publish_table(slow, PATH, store=store)
    put_in_state(slow, "1_one_late_row")
    with pytest.raises(ObjectChangedError, match="another publisher") as caught:
        await publish_table(slow, PATH, store=TakenOver(store, fast))
    assert caught.value.kind == "PublisherConflict"
    assert_same_rows(await read_rows(store, PATH), expected_published_rows(None))
