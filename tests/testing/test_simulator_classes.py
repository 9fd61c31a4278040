"""Storage classes, restores and the invoice of the simulated cold store, through requests and a client not ours."""

from __future__ import annotations

import json
import time
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from coldparquet.errors import InvalidInputError
from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreServer
from tests.support.http_servers import ask
from tests.support.s3_servers import boto3_client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOUR_S = 3_600
DAY_S = 86_400
CLASSES = {
    "bucket/cold/*": "GLACIER",
    "bucket/deep/*": "DEEP_ARCHIVE",
    "bucket/tiered/asleep": "INTELLIGENT_TIERING/ARCHIVE_ACCESS",
    "bucket/tiered/*": "INTELLIGENT_TIERING",
    "bucket/rare/*": "GLACIER_IR",
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ColdStoreServer]:
    for name in ("hot/x", "cold/x", "deep/x", "tiered/asleep", "tiered/awake", "rare/x"):
        path = tmp_path / "bucket" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    with ColdStoreServer(tmp_path, ColdStoreOptions(storage_classes=CLASSES)) as server:
        yield server


@pytest.fixture
def client(server: ColdStoreServer) -> Iterator[Any]:
    with boto3_client(server.endpoint_url) as client:
        yield client


def restore(client: Any, key: str, **request: Any) -> int:
    answer = client.restore_object(Bucket="bucket", Key=key, RestoreRequest=request)
    return int(answer["ResponseMetadata"]["HTTPStatusCode"])


def refused(client: Any, key: str, **request: Any) -> tuple[int, str]:
    with pytest.raises(ClientError) as caught:
        restore(client, key, **request)
    return caught.value.response["ResponseMetadata"]["HTTPStatusCode"], caught.value.response["Error"]["Code"]


def tier(name: str) -> dict[str, Any]:
    return {"GlacierJobParameters": {"Tier": name}}


@pytest.mark.parametrize(
    ("key", "storage_class", "archive_status", "status"),
    [
        ("hot/x", None, None, 200),
        ("rare/x", "GLACIER_IR", None, 200),
        ("tiered/awake", "INTELLIGENT_TIERING", None, 200),
        ("tiered/asleep", "INTELLIGENT_TIERING", "ARCHIVE_ACCESS", 403),
        ("cold/x", "GLACIER", None, 403),
        ("deep/x", "DEEP_ARCHIVE", None, 403),
    ],
)
def test_only_archived_objects_cannot_be_read(
    server: ColdStoreServer, key: str, storage_class: str | None, archive_status: str | None, status: int
) -> None:
    head = ask(server, f"/bucket/{key}", method="HEAD")
    assert (head[0], head[1]["Content-Length"]) == (200, str(len(key)))
    assert (head[1]["x-amz-storage-class"], head[1]["x-amz-archive-status"]) == (storage_class, archive_status)
    assert head[1]["x-amz-restore"] is None
    answered, _, body = ask(server, f"/bucket/{key}", Range="bytes=0-99")
    assert answered == (206 if status == 200 else 403)
    if status == 403:
        assert b"<Code>InvalidObjectState</Code>" in body
        assert f"<StorageClass>{storage_class}</StorageClass>".encode() in body
    assert server.requests[-1].storage_class == (storage_class or "STANDARD")


def test_listings_tell_the_class(client: Any) -> None:
    listed = {entry["Key"]: entry["StorageClass"] for entry in client.list_objects_v2(Bucket="bucket")["Contents"]}
    assert listed == {
        "hot/x": "STANDARD", "cold/x": "GLACIER", "deep/x": "DEEP_ARCHIVE", "rare/x": "GLACIER_IR",
        "tiered/asleep": "INTELLIGENT_TIERING", "tiered/awake": "INTELLIGENT_TIERING",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("key", "name", "hours"),
    [
        ("cold/x", "Expedited", 0.05),
        ("cold/x", "Standard", 4),
        ("cold/x", "Bulk", 8),
        ("deep/x", "Standard", 12),
        ("deep/x", "Bulk", 48),
    ],
)
def test_restore_from_the_request_to_its_end(
    server: ColdStoreServer, client: Any, key: str, name: str, hours: float
) -> None:
    asked_s = time.time()
    assert restore(client, key, Days=2, **tier(name)) == 202
    assert client.head_object(Bucket="bucket", Key=key)["Restore"] == 'ongoing-request="true"'
    assert ask(server, f"/bucket/{key}")[0] == 403
    assert refused(client, key, Days=2) == (409, "RestoreAlreadyInProgress")

    server.advance_clock(hours * HOUR_S - 10)
    assert ask(server, f"/bucket/{key}")[0] == 403
    server.advance_clock(20)
    assert ask(server, f"/bucket/{key}")[2] == key.encode()
    state = client.head_object(Bucket="bucket", Key=key)["Restore"]
    assert state.startswith('ongoing-request="false", expiry-date="')
    expires_s = parsedate_to_datetime(state.split('"')[3]).timestamp()
    ready_s = asked_s + hours * HOUR_S
    assert ready_s + 2 * DAY_S <= expires_s <= ready_s + 3 * DAY_S + 20
    assert expires_s % DAY_S == 0

    assert restore(client, key, Days=9) == 200  # it is there: it only stays longer
    server.advance_clock(4 * DAY_S)
    assert ask(server, f"/bucket/{key}")[0] == 200
    server.advance_clock(7 * DAY_S)
    assert ask(server, f"/bucket/{key}")[0] == 403
    assert "Restore" not in client.head_object(Bucket="bucket", Key=key)


def test_intelligent_tiering_wakes_up_for_good(server: ColdStoreServer, client: Any) -> None:
    assert refused(client, "tiered/asleep", Days=1) == (400, "InvalidArgument")
    assert restore(client, "tiered/asleep") == 202
    head = client.head_object(Bucket="bucket", Key="tiered/asleep")
    assert (head["ArchiveStatus"], head["Restore"]) == ("ARCHIVE_ACCESS", 'ongoing-request="true"')
    server.advance_clock(5 * HOUR_S)
    head = client.head_object(Bucket="bucket", Key="tiered/asleep")
    assert head["StorageClass"] == "INTELLIGENT_TIERING"
    assert not {"ArchiveStatus", "Restore"} & head.keys()
    server.advance_clock(1_000 * DAY_S)
    assert ask(server, "/bucket/tiered/asleep")[0] == 200


def test_restores_that_are_refused(client: Any) -> None:
    assert refused(client, "hot/x", Days=1) == (403, "InvalidObjectState")
    assert refused(client, "rare/x", Days=1) == (403, "InvalidObjectState")
    assert refused(client, "deep/x", Days=1, **tier("Expedited")) == (400, "InvalidArgument")
    assert refused(client, "cold/x", Days=0) == (400, "InvalidArgument")
    assert refused(client, "cold/x") == (400, "InvalidArgument")
    assert refused(client, "absent", Days=1)[0] == 404


def test_the_clock_can_run_faster(tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()
    (tmp_path / "bucket" / "x").write_bytes(b"x")
    options = ColdStoreOptions(storage_classes={"*": "GLACIER"}, clock_speed=1_000_000)
    with ColdStoreServer(tmp_path, options) as server, boto3_client(server.endpoint_url) as client:
        restore(client, "x", Days=1_000, **tier("Expedited"))
        deadline_s = time.monotonic() + 60
        while ask(server, "/bucket/x")[0] != 200:
            assert time.monotonic() < deadline_s


def test_written_objects_keep_their_class_until_a_lifecycle_rule_moves_them(
    server: ColdStoreServer, client: Any
) -> None:
    client.put_object(Bucket="bucket", Key="cold/new", Body=b"new", StorageClass="STANDARD_IA")
    assert client.head_object(Bucket="bucket", Key="cold/new")["StorageClass"] == "STANDARD_IA"
    server.set_storage_class("bucket/cold/*", "DEEP_ARCHIVE")
    assert client.head_object(Bucket="bucket", Key="cold/new")["StorageClass"] == "DEEP_ARCHIVE"
    assert ask(server, "/bucket/cold/new")[0] == 403
    restore(client, "cold/new", Days=1)
    server.advance_clock(13 * HOUR_S)
    assert ask(server, "/bucket/cold/new")[0] == 200
    client.put_object(Bucket="bucket", Key="hot/x", Body=b"again")
    assert ask(server, "/bucket/hot/x")[0] == 200
    server.set_storage_class("*", "GLACIER")  # moved again: the restored copy is no longer there
    assert ask(server, "/bucket/cold/new")[0] == 403
    with pytest.raises(ClientError, match="InvalidStorageClass"):
        client.put_object(Bucket="bucket", Key="x", Body=b"", StorageClass="ICEBOX")


def test_a_new_version_is_not_restored_with_the_old_one(server: ColdStoreServer, client: Any, tmp_path: Path) -> None:
    restore(client, "cold/x", Days=1, **tier("Expedited"))
    server.advance_clock(HOUR_S)
    assert ask(server, "/bucket/cold/x")[0] == 200
    (tmp_path / "bucket" / "cold" / "x").write_bytes(b"another version")
    assert ask(server, "/bucket/cold/x")[0] == 403


@pytest.mark.parametrize("storage_class", ["ICEBOX", "GLACIER/ARCHIVE_ACCESS", "INTELLIGENT_TIERING/GLACIER", ""])
def test_classes_that_s3_does_not_have(server: ColdStoreServer, storage_class: str) -> None:
    with pytest.raises(InvalidInputError, match="storage class"):
        ColdStoreOptions(storage_classes={"*": storage_class})
    with pytest.raises(InvalidInputError, match="storage class"):
        server.set_storage_class("*", storage_class)


def test_invoice(server: ColdStoreServer, client: Any) -> None:
    for _ in range(3):
        ask(server, "/bucket/rare/x", Range="bytes=0-2")
    ask(server, "/bucket/hot/x", method="HEAD")
    client.put_object(Bucket="bucket", Key="written", Body=b"0123456789", StorageClass="STANDARD_IA")
    client.list_objects_v2(Bucket="bucket")
    client.delete_objects(Bucket="bucket", Delete={"Objects": [{"Key": "written"}]})
    restore(client, "cold/x", Days=1, **tier("Expedited"))
    invoice = server.invoice()
    counted = {(line.kind, line.storage_class): line.requests for line in invoice.lines}
    assert counted == {
        ("get", "GLACIER_IR"): 3, ("head", "STANDARD"): 1, ("put", "STANDARD_IA"): 1, ("list", "STANDARD"): 1,
        ("restore Expedited", "GLACIER"): 1,
    }  # fmt: skip
    dollars = {line.kind: line.dollars for line in invoice.lines}
    assert dollars["get"] == pytest.approx(3 * 10e-6 + 9 * 0.03 / 1e9)
    assert dollars["head"] == pytest.approx(0.4e-6)
    assert dollars["restore Expedited"] == pytest.approx(0.01, rel=0.1)
    assert invoice.dollars == pytest.approx(sum(value or 0 for value in dollars.values()))
    assert json.loads(ask(server, "/__invoice")[2]) == invoice.as_dict()
    server.reset()
    assert server.invoice().dollars == 0
