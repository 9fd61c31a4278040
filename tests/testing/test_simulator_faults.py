"""The simulated cold store as clients meet it: scripted and random faults, storage classes, real S3 clients."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import boto3
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
import s3fs
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st
from pyarrow.fs import S3FileSystem

from coldparquet.errors import InvalidInputError
from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreServer
from coldparquet_testing.simulator.command import command_line_for
from coldparquet_testing.simulator.command import main as serve_until_told
from coldparquet_testing.simulator.faults import FaultDice, FaultRule
from tests.support.http_servers import ask
from tests.support.s3_servers import boto3_client

# --- What the simulated cold store does wrong on purpose: to whom, how often, and what a client sees of it ------------


CONTENT = bytes(range(250)) * 4
SILENCE_S = 0.25
"""After so long without a byte, none comes."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ColdStoreServer]:
    (tmp_path / "bucket").mkdir()
    for name in ("x", "y"):
        (tmp_path / "bucket" / name).write_bytes(CONTENT)
    with ColdStoreServer(tmp_path) as server:
        yield server


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [
        ("slow-down", 503, b"SlowDown"),
        ("too-many-requests", 429, b"TooManyRequests"),
        ("server-error", 500, b"InternalError"),
        ("not-found", 404, b"NoSuchKey"),
        ("forbidden", 403, b"AccessDenied"),
        ("expired-token", 400, b"ExpiredToken"),
    ],
)
def test_refusals(server: ColdStoreServer, kind: str, status: int, code: bytes) -> None:
    server.set_faults(FaultRule(kind, operation="*", retry_after_s=7))  # type: ignore[arg-type]
    answered, headers, body = ask(server, "/bucket/x")
    assert (answered, headers["Retry-After"]) == (status, "7")
    assert b"<Code>" + code in body
    assert ask(server, "/bucket/x", method="HEAD")[0] == ask(server, "/bucket?list-type=2")[0] == status
    assert {request.fault for request in server.requests} == {kind}
    server.set_faults()
    assert ask(server, "/bucket/x")[0] == 200
    assert server.requests[-1].fault is None


def test_redirect(server: ColdStoreServer) -> None:
    server.set_faults(FaultRule("redirect", location="http://elsewhere.example/x"))
    status, headers, _ = ask(server, "/bucket/x")
    assert (status, headers["Location"]) == (307, "http://elsewhere.example/x")


@pytest.mark.parametrize(("kind", "expected"), [("cut-body", CONTENT[5:55]), ("reset-body", b"")])
def test_half_bodies(server: ColdStoreServer, kind: str, expected: bytes) -> None:
    server.set_faults(FaultRule(kind))  # type: ignore[arg-type]
    with pytest.raises((http.client.IncompleteRead, ConnectionResetError)) as caught:
        ask(server, "/bucket/x", Range="bytes=5-104")
    assert isinstance(caught.value, ConnectionResetError if kind == "reset-body" else http.client.IncompleteRead)
    if isinstance(caught.value, http.client.IncompleteRead):
        assert caught.value.partial == expected
    assert (server.requests[0].status, server.requests[0].bytes_sent) == (206, 50)


def test_no_answer(server: ColdStoreServer) -> None:
    server.set_faults(FaultRule("reset"))
    with pytest.raises(ConnectionResetError):
        ask(server, "/bucket/x")
    assert (server.requests[0].status, server.requests[0].fault) == (0, "reset")


def test_half_an_answer(server: ColdStoreServer) -> None:
    server.set_faults(FaultRule("half-answer"))
    host, _, port = server.endpoint_url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(b"GET /bucket/x HTTP/1.1\r\nHost: x\r\n\r\n")
        received = b"".join(iter(lambda: connection.recv(4096), b""))
    assert received == b"HTTP/1.1 206 Partial Content\r\nContent-Le"


@pytest.mark.parametrize(("kind", "arrives"), [("hang", b""), ("stall-body", CONTENT[:500]), ("trickle", CONTENT[:2])])
def test_answers_that_never_end(server: ColdStoreServer, kind: str, arrives: bytes) -> None:
    server.set_faults(FaultRule(kind, pause_s=0.15))  # type: ignore[arg-type]
    connection = http.client.HTTPConnection(server.endpoint_url.removeprefix("http://"), timeout=60)
    connection.request("GET", "/bucket/x")
    if kind == "hang":
        connection.sock.settimeout(SILENCE_S)
        with pytest.raises(TimeoutError):
            connection.getresponse()
    else:
        answer = connection.getresponse()
        assert answer.read(len(arrives)) == arrives
        if kind == "stall-body":
            connection.sock.settimeout(SILENCE_S)
            with pytest.raises(TimeoutError):
                answer.read(1)
        answer.close()
    connection.close()
    deadline_s = time.monotonic() + 60
    while not server.requests:  # the server notices that its client has gone
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    assert server.requests[0].bytes_sent < len(CONTENT)


def test_wrong_headers_and_damaged_bytes(server: ColdStoreServer) -> None:
    etag = ask(server, "/bucket/x")[1]["ETag"]
    server.set_faults(FaultRule("wrong-range", times=1), FaultRule("wrong-etag"))
    _, headers, body = ask(server, "/bucket/x", Range="bytes=5-104")
    assert (headers["Content-Range"], body) == ("bytes 6-104/1000", CONTENT[5:105])
    _, headers, body = ask(server, "/bucket/x", Range="bytes=5-104", If_Match=etag)
    assert (headers["ETag"] != etag, body) == (True, CONTENT[5:105])
    server.set_faults(FaultRule("whole-object"))
    status, headers, body = ask(server, "/bucket/x", Range="bytes=5-104")
    assert (status, headers["Content-Range"], body) == (200, None, CONTENT)
    server.set_faults(FaultRule("damaged-body"))
    body = ask(server, "/bucket/x")[2]
    different = [position for position in range(1_000) if body[position] != CONTENT[position]]
    assert different == [500]


def test_faults_of_bodies_leave_other_requests_alone(server: ColdStoreServer) -> None:
    for kind in ("cut-body", "wrong-range", "wrong-etag", "whole-object", "damaged-body"):
        server.set_faults(FaultRule(kind, operation="*"))
        assert ask(server, "/bucket?list-type=2")[2].count(b"<Contents>") == 2


def test_rules_choose_by_path_operation_and_number(server: ColdStoreServer) -> None:
    server.set_faults(
        FaultRule("forbidden", operation="HeadObject"),
        FaultRule("not-found", path="bucket/y", skip=1, times=2),
    )
    assert [ask(server, "/bucket/y")[0] for _ in range(5)] == [200, 404, 404, 200, 200]
    assert ask(server, "/bucket/x")[0] == 200
    assert ask(server, "/bucket/x", method="HEAD")[0] == 403


@given(st.integers(0, 1_000), st.floats(0, 1), st.lists(st.sampled_from(["a", "b"]), max_size=40))
def test_the_fate_of_a_request_depends_on_its_number_among_its_like(
    seed: int, probability: float, others: list[str]
) -> None:
    rules = [FaultRule("hang", path="a", probability=probability), FaultRule("reset", path="b", probability=0.5)]
    alone, mixed = FaultDice(rules, seed=seed), FaultDice(rules, seed=seed)
    fates = [mixed.roll("GetObject", name) for name in others if mixed or name]
    wanted = [alone.roll("GetObject", "a") for name in others if name == "a"]
    assert [fate for fate, name in zip(fates, others, strict=True) if name == "a"] == wanted


def test_the_first_rule_that_strikes_counts_and_does_not_change_the_others() -> None:
    second = FaultRule("reset", probability=0.5)
    alone = FaultDice([FaultRule("hang", times=0), second], seed=3)
    both = FaultDice([FaultRule("hang", probability=0.5), second], seed=3)
    expected = [alone.roll("GetObject", "x") for _ in range(100)]
    found = [both.roll("GetObject", "x") for _ in range(100)]
    assert {rule.kind for rule in found if rule} == {"hang", "reset"}
    assert all(
        rule == wanted for rule, wanted in zip(found, expected, strict=True) if not (rule and rule.kind == "hang")
    )


RULES = st.builds(
    FaultRule,
    st.sampled_from(["slow-down", "reset-body", "trickle"]),
    path=st.text(st.characters(codec="ascii", exclude_characters=","), min_size=1),
    operation=st.sampled_from(["*", "GetObject", "PutObject"]),
    probability=st.floats(0, 1),
    skip=st.integers(0, 9),
    times=st.none() | st.integers(0, 9),
    retry_after_s=st.none() | st.integers(0, 99),
    pause_s=st.floats(0, 9),
)


@given(RULES)
def test_rules_as_text(rule: FaultRule) -> None:
    assert FaultRule.parse(rule.as_text()) == rule


@pytest.mark.parametrize(
    "text", ["", "explosion", "hang,probability=2", "hang,skip=-1", "hang,skip=x", "hang,tide=1", "redirect", "hang,"]
)
def test_rules_that_cannot_be_meant(text: str) -> None:
    with pytest.raises(InvalidInputError):
        FaultRule.parse(text)


def test_requests_above_the_rate_are_refused(tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()
    with ColdStoreServer(tmp_path, ColdStoreOptions(requests_per_second=5)) as server:
        answers: list[tuple[int, Any, bytes]] = []
        while not answers or answers[-1][0] == 200:  # on a machine that is too busy for five a second, not the sixth
            answers.append(ask(server, "/bucket", method="HEAD"))
        assert len(answers) > 5
        status, headers, _ = answers[-1]
        assert (status, headers["Retry-After"]) == (503, "1")
        time.sleep(0.3)
        assert ask(server, "/bucket", method="HEAD")[0] == 200


@pytest.mark.parametrize(("stale_listing_s", "objects"), [(600.0, 1), (1e-3, 2)])
def test_stale_listings(tmp_path: Path, stale_listing_s: float, objects: int) -> None:
    (tmp_path / "bucket").mkdir()
    (tmp_path / "bucket" / "x").write_bytes(b"")
    with ColdStoreServer(tmp_path, ColdStoreOptions(stale_listing_s=stale_listing_s)) as server:
        assert ask(server, "/bucket?list-type=2")[2].count(b"<Contents>") == 1
        (tmp_path / "bucket" / "y").write_bytes(b"")
        assert ask(server, "/bucket/y")[0] == 200
        time.sleep(0.01)
        assert ask(server, "/bucket?list-type=2")[2].count(b"<Contents>") == objects


def test_before_answer_can_replace_an_object(tmp_path: Path) -> None:
    path = tmp_path / "bucket" / "x"
    path.parent.mkdir()
    path.write_bytes(b"old")
    seen: list[tuple[str, str]] = []

    def replace(operation: str, name: str) -> None:
        seen.append((operation, name))
        if len(seen) == 2:
            path.write_bytes(b"new")

    with ColdStoreServer(tmp_path, before_answer=replace) as server:
        assert [ask(server, "/bucket/x")[2] for _ in range(3)] == [b"old", b"new", b"new"]
    assert seen == [("GetObject", "bucket/x")] * 3


@pytest.mark.parametrize(
    "options",
    [
        {"faults": (FaultRule("hang", probability=0.1), FaultRule("trickle", path="b/*", pause_s=2))},
        {"storage_classes": {"b/a=b*": "GLACIER", "*": "INTELLIGENT_TIERING/ARCHIVE_ACCESS"}, "clock_speed": 3600.0},
        {"requests_per_second": 9.5, "stale_listing_s": 1.0, "checksum_of_files": "CRC32C"},
        {"keep_versions": True, "requester_pays": True, "seed": 7, "bandwidth_bytes_per_s": 9e6},
    ],
)
def test_every_option_survives_the_command_line(
    tmp_path: Path, options: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = ColdStoreOptions(**options)  # type: ignore[arg-type]
    given: list[ColdStoreOptions] = []

    async def remember(_root: Path, parsed: ColdStoreOptions, _port: int) -> None:
        given.append(parsed)

    monkeypatch.setattr("coldparquet_testing.simulator.command._serve_until_told", remember)
    worker = threading.Thread(target=serve_until_told, args=[command_line_for(tmp_path, wanted, port=0)])
    worker.start()  # an event loop of its own
    worker.join()
    assert given == [wanted]


# --- Storage classes, restores and the invoice of the simulated cold store, through requests and a client not ours ----


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
def server_of_classes(tmp_path: Path) -> Iterator[ColdStoreServer]:
    for name in ("hot/x", "cold/x", "deep/x", "tiered/asleep", "tiered/awake", "rare/x"):
        path = tmp_path / "bucket" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    with ColdStoreServer(tmp_path, ColdStoreOptions(storage_classes=CLASSES)) as server_of_classes:
        yield server_of_classes


@pytest.fixture
def client(server_of_classes: ColdStoreServer) -> Iterator[Any]:
    with boto3_client(server_of_classes.endpoint_url) as client:
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
    server_of_classes: ColdStoreServer, key: str, storage_class: str | None, archive_status: str | None, status: int
) -> None:
    head = ask(server_of_classes, f"/bucket/{key}", method="HEAD")
    assert (head[0], head[1]["Content-Length"]) == (200, str(len(key)))
    assert (head[1]["x-amz-storage-class"], head[1]["x-amz-archive-status"]) == (storage_class, archive_status)
    assert head[1]["x-amz-restore"] is None
    answered, _, body = ask(server_of_classes, f"/bucket/{key}", Range="bytes=0-99")
    assert answered == (206 if status == 200 else 403)
    if status == 403:
        assert b"<Code>InvalidObjectState</Code>" in body
        assert f"<StorageClass>{storage_class}</StorageClass>".encode() in body
    assert server_of_classes.requests[-1].storage_class == (storage_class or "STANDARD")


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
    server_of_classes: ColdStoreServer, client: Any, key: str, name: str, hours: float
) -> None:
    asked_s = time.time()
    assert restore(client, key, Days=2, **tier(name)) == 202
    assert client.head_object(Bucket="bucket", Key=key)["Restore"] == 'ongoing-request="true"'
    assert ask(server_of_classes, f"/bucket/{key}")[0] == 403
    assert refused(client, key, Days=2) == (409, "RestoreAlreadyInProgress")

    server_of_classes.advance_clock(hours * HOUR_S - 10)
    assert ask(server_of_classes, f"/bucket/{key}")[0] == 403
    server_of_classes.advance_clock(20)
    assert ask(server_of_classes, f"/bucket/{key}")[2] == key.encode()
    state = client.head_object(Bucket="bucket", Key=key)["Restore"]
    assert state.startswith('ongoing-request="false", expiry-date="')
    expires_s = parsedate_to_datetime(state.split('"')[3]).timestamp()
    ready_s = asked_s + hours * HOUR_S
    assert ready_s + 2 * DAY_S <= expires_s <= ready_s + 3 * DAY_S + 20
    assert expires_s % DAY_S == 0

    assert restore(client, key, Days=9) == 200  # it is there: it only stays longer
    server_of_classes.advance_clock(4 * DAY_S)
    assert ask(server_of_classes, f"/bucket/{key}")[0] == 200
    server_of_classes.advance_clock(7 * DAY_S)
    assert ask(server_of_classes, f"/bucket/{key}")[0] == 403
    assert "Restore" not in client.head_object(Bucket="bucket", Key=key)


def test_intelligent_tiering_wakes_up_for_good(server_of_classes: ColdStoreServer, client: Any) -> None:
    assert refused(client, "tiered/asleep", Days=1) == (400, "InvalidArgument")
    assert restore(client, "tiered/asleep") == 202
    head = client.head_object(Bucket="bucket", Key="tiered/asleep")
    assert (head["ArchiveStatus"], head["Restore"]) == ("ARCHIVE_ACCESS", 'ongoing-request="true"')
    server_of_classes.advance_clock(5 * HOUR_S)
    head = client.head_object(Bucket="bucket", Key="tiered/asleep")
    assert head["StorageClass"] == "INTELLIGENT_TIERING"
    assert not {"ArchiveStatus", "Restore"} & head.keys()
    server_of_classes.advance_clock(1_000 * DAY_S)
    assert ask(server_of_classes, "/bucket/tiered/asleep")[0] == 200


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
    with (
        ColdStoreServer(tmp_path, options) as server_of_classes,
        boto3_client(server_of_classes.endpoint_url) as client,
    ):
        restore(client, "x", Days=1_000, **tier("Expedited"))
        deadline_s = time.monotonic() + 60
        while ask(server_of_classes, "/bucket/x")[0] != 200:
            assert time.monotonic() < deadline_s


def test_written_objects_keep_their_class_until_a_lifecycle_rule_moves_them(
    server_of_classes: ColdStoreServer, client: Any
) -> None:
    client.put_object(Bucket="bucket", Key="cold/new", Body=b"new", StorageClass="STANDARD_IA")
    assert client.head_object(Bucket="bucket", Key="cold/new")["StorageClass"] == "STANDARD_IA"
    server_of_classes.set_storage_class("bucket/cold/*", "DEEP_ARCHIVE")
    assert client.head_object(Bucket="bucket", Key="cold/new")["StorageClass"] == "DEEP_ARCHIVE"
    assert ask(server_of_classes, "/bucket/cold/new")[0] == 403
    restore(client, "cold/new", Days=1)
    server_of_classes.advance_clock(13 * HOUR_S)
    assert ask(server_of_classes, "/bucket/cold/new")[0] == 200
    client.put_object(Bucket="bucket", Key="hot/x", Body=b"again")
    assert ask(server_of_classes, "/bucket/hot/x")[0] == 200
    server_of_classes.set_storage_class("*", "GLACIER")  # moved again: the restored copy is no longer there
    assert ask(server_of_classes, "/bucket/cold/new")[0] == 403
    with pytest.raises(ClientError, match="InvalidStorageClass"):
        client.put_object(Bucket="bucket", Key="x", Body=b"", StorageClass="ICEBOX")


def test_a_new_version_is_not_restored_with_the_old_one(
    server_of_classes: ColdStoreServer, client: Any, tmp_path: Path
) -> None:
    restore(client, "cold/x", Days=1, **tier("Expedited"))
    server_of_classes.advance_clock(HOUR_S)
    assert ask(server_of_classes, "/bucket/cold/x")[0] == 200
    (tmp_path / "bucket" / "cold" / "x").write_bytes(b"another version")
    assert ask(server_of_classes, "/bucket/cold/x")[0] == 403


@pytest.mark.parametrize("storage_class", ["ICEBOX", "GLACIER/ARCHIVE_ACCESS", "INTELLIGENT_TIERING/GLACIER", ""])
def test_classes_that_s3_does_not_have(server_of_classes: ColdStoreServer, storage_class: str) -> None:
    with pytest.raises(InvalidInputError, match="storage class"):
        ColdStoreOptions(storage_classes={"*": storage_class})
    with pytest.raises(InvalidInputError, match="storage class"):
        server_of_classes.set_storage_class("*", storage_class)


def test_invoice(server_of_classes: ColdStoreServer, client: Any) -> None:
    for _ in range(3):
        ask(server_of_classes, "/bucket/rare/x", Range="bytes=0-2")
    ask(server_of_classes, "/bucket/hot/x", method="HEAD")
    client.put_object(Bucket="bucket", Key="written", Body=b"0123456789", StorageClass="STANDARD_IA")
    client.list_objects_v2(Bucket="bucket")
    client.delete_objects(Bucket="bucket", Delete={"Objects": [{"Key": "written"}]})
    restore(client, "cold/x", Days=1, **tier("Expedited"))
    invoice = server_of_classes.invoice()
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
    assert json.loads(ask(server_of_classes, "/__invoice")[2]) == invoice.as_dict()
    server_of_classes.reset()
    assert server_of_classes.invoice().dollars == 0


# --- Other people's readers on the simulated cold store: every one gets the table that was written --------------------


SECRET = "simulated"  # noqa: S105
TABLE = pa.table({"ts": range(20_000), "price": [number / 7 for number in range(20_000)]})
HALVES = ("2024-03-01", "2024-03-02=a b+c")


@pytest.fixture(scope="module")
def server_of_trades(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ColdStoreServer]:
    root = tmp_path_factory.mktemp("store")
    for number, name in enumerate(HALVES):
        path = root / "bucket" / "trades" / name / "data.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(TABLE.slice(number * 10_000, 10_000), path, row_group_size=2_500)
    with ColdStoreServer(root, ColdStoreOptions(first_byte_s=0.002, secret_key=SECRET)) as server_of_trades:
        yield server_of_trades


def test_boto3(server_of_trades: ColdStoreServer) -> None:
    client = boto3.client(
        "s3",
        endpoint_url=server_of_trades.endpoint_url,
        aws_access_key_id="key",
        aws_secret_access_key=SECRET,
        region_name="us-east-1",
    )
    keys = [entry["Key"] for entry in client.list_objects_v2(Bucket="bucket")["Contents"]]
    assert keys == [f"trades/{name}/data.parquet" for name in HALVES]
    for key in keys:
        tail = client.get_object(Bucket="bucket", Key=key, Range="bytes=-4")
        assert tail["Body"].read() == b"PAR1"
        assert client.head_object(Bucket="bucket", Key=key)["ETag"] == tail["ETag"]
    assert [entry["Name"] for entry in client.list_buckets()["Buckets"]] == ["bucket"]
    assert client.get_bucket_location(Bucket="bucket")["LocationConstraint"] is None
    client.head_bucket(Bucket="bucket")
    with pytest.raises(client.exceptions.NoSuchKey):
        client.get_object(Bucket="bucket", Key="absent")
    client.close()


def test_pyarrow(server_of_trades: ColdStoreServer) -> None:
    filesystem = S3FileSystem(
        access_key="key", secret_key=SECRET, endpoint_override=server_of_trades.endpoint_url, region="us-east-1"
    )
    assert pads.dataset("bucket/trades", filesystem=filesystem).to_table().equals(TABLE)


def test_polars(server_of_trades: ColdStoreServer) -> None:
    options = {
        "aws_access_key_id": "key",
        "aws_secret_access_key": SECRET,
        "aws_endpoint_url": server_of_trades.endpoint_url,
        "aws_region": "us-east-1",
        "aws_allow_http": "true",
    }
    frame = pl.read_parquet("s3://bucket/trades/**/*.parquet", storage_options=options, hive_partitioning=False)
    assert frame.to_arrow().equals(TABLE)


def test_s3fs(server_of_trades: ColdStoreServer) -> None:
    filesystem = s3fs.S3FileSystem(**server_of_trades.storage_options, skip_instance_cache=True)
    assert filesystem.find("bucket/trades") == [f"bucket/trades/{name}/data.parquet" for name in HALVES]
    parts = [pq.read_table(f"bucket/trades/{name}/data.parquet", filesystem=filesystem) for name in HALVES]
    assert pa.concat_tables(parts).equals(TABLE)
