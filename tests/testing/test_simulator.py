"""The simulated cold store: what it answers, how fast, what goes wrong on purpose, and that nothing leaks out of it."""

from __future__ import annotations

import base64
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.errors import InvalidInputError
from coldparquet.ranges import ByteRange
from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreProcess, ColdStoreServer
from coldparquet_testing.simulator.checksums import ObjectChecksum
from coldparquet_testing.simulator.protocol import resolve_range
from tests.support.http_servers import ask
from tests.support.s3_servers import MOTO_KEYS, boto3_client

CONTENT = bytes(range(250)) * 4


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for name in ("bucket/object", "bucket/t/a/x", "bucket/t/a/y", "bucket/t/a-b", "bucket/t/b/z", "bucket/t/empty"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"" if name.endswith("empty") else CONTENT)
    return root


@pytest.fixture
def server(root: Path) -> Iterator[ColdStoreServer]:
    with ColdStoreServer(root) as server:
        yield server


def names(body: bytes) -> list[str]:
    """Return keys and common prefixes of a listing, in the order of the document."""
    root = ET.fromstring(body)  # noqa: S314 - our own server's
    namespace = "{http://s3.amazonaws.com/doc/2006-03-01/}"
    found = [*root.iter(f"{namespace}Contents"), *root.iter(f"{namespace}CommonPrefixes")]
    return [entry[0].text or "" for entry in found]


def range_header(header: str | None) -> dict[str, Any]:
    return {"Range": header} if header else {}


@pytest.mark.parametrize(
    ("header", "status", "start", "stop"),
    [
        (None, 200, 0, 1000),
        ("bytes=0-0", 206, 0, 1),
        ("bytes=10-19", 206, 10, 20),
        ("bytes=990-5000", 206, 990, 1000),
        ("bytes=990-", 206, 990, 1000),
        ("bytes=-10", 206, 990, 1000),
        ("bytes=-5000", 206, 0, 1000),
        ("bytes=1000-1001", 416, 0, 0),
        ("bytes=1000-", 416, 0, 0),
        ("bytes=-0", 416, 0, 0),
        ("bytes=20-10", 200, 0, 1000),
        ("bytes=0-1,5-6", 200, 0, 1000),
        ("bytes=-", 200, 0, 1000),
        ("lines=0-1", 200, 0, 1000),
    ],
)
def test_range_headers(server: ColdStoreServer, header: str | None, status: int, start: int, stop: int) -> None:
    assert resolve_range(header, 1000) == (status, ByteRange(start, stop))
    answered, headers, body = ask(server, "/bucket/object", **range_header(header))
    assert answered == status
    if status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        assert headers["Content-Range"] == "bytes */1000"
        assert b"InvalidRange" in body
        return
    assert body == CONTENT[start:stop]
    assert headers["Content-Range"] == (f"bytes {start}-{stop - 1}/1000" if status == 206 else None)
    head = ask(server, "/bucket/object", method="HEAD", **range_header(header))
    assert (head[0], head[1]["Content-Length"], head[2]) == (status, str(stop - start), b"")


@given(st.text(max_size=30) | st.from_regex(r"bytes=\d{0,25}-\d{0,25}", fullmatch=True), st.integers(0, 100))
def test_any_range_header_stays_inside_the_object(header: str, size_bytes: int) -> None:
    status, resolved = resolve_range(header, size_bytes)
    assert resolved.stop <= size_bytes
    assert (status == HTTPStatus.PARTIAL_CONTENT) <= (resolved.length_bytes > 0)


def test_every_range_of_an_empty_object_is_unsatisfiable(server: ColdStoreServer) -> None:
    assert ask(server, "/bucket/t/empty")[0] == 200
    assert ask(server, "/bucket/t/empty", Range="bytes=0-9")[0] == 416
    assert ask(server, "/bucket/t/empty", Range="bytes=-9")[0] == 416


def test_etag_and_conditions(server: ColdStoreServer, root: Path) -> None:
    etag = ask(server, "/bucket/object", method="HEAD")[1]["ETag"]
    assert ask(server, "/bucket/object")[1]["ETag"] == etag
    for condition in (etag, "*", f'"other", {etag}', etag.strip('"')):
        assert ask(server, "/bucket/object", If_Match=condition, Range="bytes=0-3")[0] == 206
        assert ask(server, "/bucket/object", If_None_Match=condition)[0] == 304
    assert ask(server, "/bucket/object", If_None_Match='"other"')[0] == 200
    (root / "bucket" / "object").write_bytes(CONTENT[::-1])
    os.utime(root / "bucket" / "object", ns=(1, 1))
    status, _, body = ask(server, "/bucket/object", If_Match=etag)
    assert (status, b"PreconditionFailed" in body) == (412, True)
    assert ask(server, "/bucket/object", method="HEAD")[1]["Last-Modified"] == "Thu, 01 Jan 1970 00:00:00 GMT"


def test_missing_things_are_told_apart(server: ColdStoreServer) -> None:
    for target, code in (
        ("/bucket/absent", b"NoSuchKey"),
        ("/bucket/t", b"NoSuchKey"),
        ("/bucket/t/", b"NoSuchKey"),
        ("/absent/x", b"NoSuchBucket"),
        ("/absent?list-type=2", b"NoSuchBucket"),
    ):
        status, headers, body = ask(server, target)
        assert (status, code in body) == (404, True)
        assert headers["x-amz-request-id"].encode() in body
    assert ask(server, "/bucket", method="HEAD")[0] == 200
    assert ask(server, "/absent", method="HEAD")[0] == 404


def test_requests_that_it_does_not_know_change_nothing(server: ColdStoreServer, root: Path) -> None:
    for method in ("PATCH", "POST", "DELETE"):
        assert ask(server, "/bucket/object", method=method)[0] == 501
    assert (root / "bucket" / "object").read_bytes() == CONTENT


@pytest.mark.parametrize(
    "target", ["/../stray", "/bucket/../../stray", "/bucket/%2e%2e/%2e%2e/stray", "/bucket//stray", "/absent/stray"]
)
def test_nothing_can_be_written_outside_of_the_buckets(server: ColdStoreServer, root: Path, target: str) -> None:
    assert ask(server, target, method="PUT", Content_Length="0")[0] in (400, 404)
    assert not list(root.parent.rglob("stray"))


def test_a_body_with_another_checksum_is_refused(server: ColdStoreServer, root: Path) -> None:
    status, _, body = ask(server, "/bucket/new", method="PUT", Content_Length="0", x_amz_checksum_crc32="AAAAAQ==")
    assert (status, b"BadDigest" in body, (root / "bucket" / "new").exists()) == (400, True, False)
    assert ask(server, "/bucket/new", method="PUT", Content_Length="0", x_amz_checksum_crc32="AAAAAA==")[0] == 200
    assert (root / "bucket" / "new").read_bytes() == b""


@pytest.mark.parametrize(
    "target",
    [
        "/../secret",
        "/bucket/../../secret",
        "/bucket/%2e%2e/%2e%2e/secret",
        "/bucket/..%2f..%2fsecret",
        "/%2e%2e/secret",
        "/bucket/link",
        "/bucket/folder/secret",
        "/bucket//object",
        "/bucket/./object",
        "/bucket/object%00",
        "/bucket/%ff",
        "//bucket/object",
    ],
)
def test_no_way_out_of_the_root(server: ColdStoreServer, root: Path, target: str) -> None:
    (root.parent / "secret").write_text("secret")
    (root / "bucket" / "link").symlink_to(root.parent / "secret")
    (root / "bucket" / "folder").symlink_to(root.parent)
    status, _, body = ask(server, target)
    assert status == 404
    assert body != b"secret"
    assert names(ask(server, "/bucket?list-type=2&delimiter=/&prefix=")[2]) == ["object", "t/"]
    assert names(ask(server, "/bucket?list-type=2&prefix=folder/")[2]) == []
    assert names(ask(server, "/bucket?list-type=2&prefix=../")[2]) == []


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["object", "t/a-b", "t/a/x", "t/a/y", "t/b/z", "t/empty"]),
        ("&delimiter=/", ["object", "t/"]),
        ("&delimiter=/&prefix=t/", ["t/a-b", "t/empty", "t/a/", "t/b/"]),
        ("&delimiter=/&prefix=t/a", ["t/a-b", "t/a/"]),
        ("&delimiter=/&prefix=t/a/", ["t/a/x", "t/a/y"]),
        ("&delimiter=-", ["object", "t/a/x", "t/a/y", "t/b/z", "t/empty", "t/a-"]),
        ("&prefix=t/a", ["t/a-b", "t/a/x", "t/a/y"]),
        ("&prefix=t/a/x", ["t/a/x"]),
        ("&prefix=absent/", []),
        ("&start-after=t/a/x", ["t/a/y", "t/b/z", "t/empty"]),
        ("&max-keys=0", []),
        ("&max-keys=2", ["object", "t/a-b"]),
    ],
)
def test_listings(server: ColdStoreServer, query: str, expected: list[str]) -> None:
    status, _, body = ask(server, f"/bucket?list-type=2{query}")
    assert (status, names(body)) == (200, expected)


@pytest.mark.parametrize("delimiter", ["", "/"])
@pytest.mark.parametrize("max_keys", [1, 2, 3, 1000])
def test_pages_of_a_listing(server: ColdStoreServer, delimiter: str, max_keys: int) -> None:
    query = f"/bucket?list-type=2&prefix=t/&delimiter={delimiter}"
    found: list[str] = []
    token = ""
    for _ in range(10):
        body = ask(server, f"{query}&max-keys={max_keys}{token}")[2]
        assert len(names(body)) <= max_keys
        found += names(body)
        following = body.partition(b"<NextContinuationToken>")[2].partition(b"<")[0].decode()
        assert (b"<IsTruncated>true" in body) == bool(following)
        if not following:
            break
        token = f"&continuation-token={following}"
    assert sorted(found) == sorted(names(ask(server, query)[2]))
    assert ask(server, f"{query}&continuation-token=nonsense!")[0] == 400
    assert ask(server, f"{query}&max-keys=many")[0] == 400


def test_pace_of_an_answer(root: Path) -> None:
    (root / "bucket" / "large").write_bytes(bytes(2_000_000))
    options = ColdStoreOptions(first_byte_s=0.1, bandwidth_bytes_per_s=10e6)
    with ColdStoreServer(root, options) as server:
        for method, target, expected_s in (
            ("GET", "/bucket/large", 0.3),
            ("GET", "/bucket/object", 0.1),
            ("HEAD", "/bucket/large", 0.1),
            ("GET", "/bucket?list-type=2", 0.1),
            ("GET", "/bucket/absent", 0.1),
        ):
            started_s = time.monotonic()
            ask(server, target, method=method)
            elapsed_s = time.monotonic() - started_s
            assert elapsed_s >= expected_s - 0.005
    assert [request.bytes_sent for request in server.requests][:3] == [2_000_000, 1000, 0]
    assert server.requests[0].finished_s - server.requests[0].started_s >= 0.295
    with ColdStoreServer(root, ColdStoreOptions(bandwidth_bytes_per_s=1)) as server:
        assert ask(server, "/bucket/large", method="HEAD")[0] == 200  # its body would take three weeks


def test_slow_tail_and_errors_repeat_with_their_seed(root: Path) -> None:
    def fates(seed: int) -> list[int]:
        options = ColdStoreOptions(error_503_probability=0.5, seed=seed)
        with ColdStoreServer(root, options) as server:
            return [ask(server, "/bucket/object")[0] for _ in range(20)]

    assert fates(1) == fates(1)
    assert set(fates(1)) == {200, 503}
    assert fates(1) != fates(2)
    slow = ColdStoreOptions(first_byte_s=0.01, slow_tail_probability=1, slow_tail_factor=10)
    with ColdStoreServer(root, slow) as server:
        started_s = time.monotonic()
        ask(server, "/bucket/object")
        assert time.monotonic() - started_s >= 0.095


def test_cut_body(root: Path) -> None:
    with (
        ColdStoreServer(root, ColdStoreOptions(cut_body_probability=1)) as server,
        pytest.raises(http.client.IncompleteRead) as caught,
    ):
        ask(server, "/bucket/object")
    assert caught.value.partial == CONTENT[:500]
    assert server.requests[0].bytes_sent == 500


def test_log_of_requests(server: ColdStoreServer) -> None:
    ask(server, "/bucket/t/a%2Db?x=1", Range="bytes=0-9")
    ask(server, "/bucket?location")
    ask(server, "/")
    ask(server, "/bucket?acl")
    first = server.requests[0]
    assert (first.operation, first.method, first.path, first.query) == ("GetObject", "GET", "bucket/t/a-b", "x=1")
    assert (first.range_header, first.status, first.bytes_sent) == ("bytes=0-9", 206, 10)
    assert first.finished_s >= first.started_s
    assert [request.operation for request in server.requests[1:]] == ["GetBucketLocation", "ListBuckets", "Unsupported"]
    server.reset()
    assert server.requests == ()


def test_client_that_leaves_early_is_logged_and_harms_nobody(root: Path) -> None:
    (root / "bucket" / "large").write_bytes(bytes(50_000_000))
    with ColdStoreServer(root, ColdStoreOptions(bandwidth_bytes_per_s=200e6)) as server:
        with urllib.request.urlopen(f"{server.endpoint_url}/bucket/large", timeout=60) as answer:  # noqa: S310
            answer.read(10)
        assert ask(server, "/bucket/object")[0] == 200
        deadline_s = time.monotonic() + 60
        while len(server.requests) < 2 and time.monotonic() < deadline_s:
            time.sleep(0.01)
        sent = {request.path: request.bytes_sent for request in server.requests}
    assert sent["bucket/large"] < 50_000_000


@pytest.mark.parametrize(
    "options",
    [
        {"first_byte_s": -1},
        {"bandwidth_bytes_per_s": 0},
        {"slow_tail_probability": 2},
        {"slow_tail_factor": 0.5},
        {"error_503_probability": -0.1},
    ],
)
def test_impossible_options(options: dict[str, float]) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(options))):
        ColdStoreOptions(**options)  # type: ignore[arg-type]


def test_stopping_does_not_wait_for_clients_that_read_no_further(root: Path) -> None:
    (root / "bucket" / "large").write_bytes(bytes(50_000_000))
    with ColdStoreServer(root) as server:
        address = server.endpoint_url.removeprefix("http://").split(":")
        with socket.create_connection((address[0], int(address[1])), timeout=5) as client:
            client.sendall(b"GET /bucket/large HTTP/1.1\r\nHost: store\r\n\r\n")
            assert client.recv(1)
            server.stop()
            assert sum(map(len, iter(lambda: client.recv(1 << 20), b""))) < 50_000_000


def test_start_and_stop(root: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError):
        ColdStoreServer(tmp_path / "absent")
    server = ColdStoreServer(root)
    server.start()
    assert ask(server, "/bucket/object")[0] == 200
    port = int(server.endpoint_url.rpartition(":")[2])
    with pytest.raises(OSError, match="in use"):
        ColdStoreServer(root, port=port).start()
    server.stop()
    server.stop()
    with pytest.raises(ConnectionRefusedError):
        ask(server, "/bucket/object")


class TestProcess:
    """The same store as a child process."""

    def test_log_options_and_end(self, root: Path) -> None:
        options = ColdStoreOptions(first_byte_s=0.1, bandwidth_bytes_per_s=1e6, secret_key="planted")  # noqa: S106
        with ColdStoreProcess(root, options) as process:
            started_s = time.monotonic()
            with pytest.raises(urllib.error.HTTPError, match="403"):
                urllib.request.urlopen(f"{process.endpoint_url}/bucket/object", timeout=60)  # noqa: S310 - our server
            assert time.monotonic() - started_s >= 0.095
            (request,) = process.requests
            assert (request.path, request.status) == ("bucket/object", 403)
            assert request.started_s >= started_s
            assert process.reset() == (request,)
            assert process.requests == ()
            assert process.process_id
        assert process.process_id is None
        with pytest.raises(OSError, match="refused"):
            urllib.request.urlopen(f"{process.endpoint_url}/bucket/object", timeout=60)  # noqa: S310 - our server

    @pytest.mark.parametrize(
        "end_it", [lambda child: child.send_signal(signal.SIGTERM), lambda child: child.stdin.close()]
    )
    def test_sigterm_and_end_of_input_stop_it(self, root: Path, end_it: Callable[[Any], None]) -> None:
        command = [sys.executable, "-m", "coldparquet_testing.simulator", "--root", str(root)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            assert child.stdout
            assert b"http://127.0.0.1:" in child.stdout.readline()
            end_it(child)
            assert child.wait(60) == 0


# --- What the simulated cold store tells about objects: checksums, versions; and whom it lets in ----------------------


SECRET = "planted"  # noqa: S105
LONGER_CONTENT = bytes(range(256)) * 10


def served(root: Path, **options: Any) -> ColdStoreServer:
    (root / "bucket").mkdir(exist_ok=True)
    (root / "bucket" / "x").write_bytes(LONGER_CONTENT)
    return ColdStoreServer(root, ColdStoreOptions(**options))


@pytest.mark.parametrize(
    ("algorithm", "check_value"),
    [("CRC32", 0xCBF43926), ("CRC32C", 0xE3069283), ("CRC64NVME", 0xAE8B14860A799888)],
)
def test_published_check_values(algorithm: Any, check_value: int) -> None:
    width_bytes = 8 if algorithm == "CRC64NVME" else 4
    expected = base64.b64encode(check_value.to_bytes(width_bytes, "big")).decode()
    assert ObjectChecksum.of(algorithm, [b"1234", b"", b"56789"]).value == expected


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "CRC64NVME"])
def test_checksums_of_files_are_told_for_whole_objects_alone(tmp_path: Path, algorithm: Any) -> None:
    header = f"x-amz-checksum-{algorithm.lower()}"
    expected = ObjectChecksum.of(algorithm, [LONGER_CONTENT]).value
    with served(tmp_path, checksum_of_files=algorithm) as server:
        for method in ("GET", "HEAD"):
            headers = ask(server, "/bucket/x", method=method, x_amz_checksum_mode="ENABLED")[1]
            assert (headers[header], headers["x-amz-checksum-type"]) == (expected, "FULL_OBJECT")
        assert ask(server, "/bucket/x")[1][header] is None
        assert ask(server, "/bucket/x", x_amz_checksum_mode="ENABLED", Range="bytes=0-9")[1][header] is None
        (tmp_path / "bucket" / "x").write_bytes(b"another version")
        changed = ask(server, "/bucket/x", x_amz_checksum_mode="ENABLED")[1][header]
        assert changed == ObjectChecksum.of(algorithm, [b"another version"]).value


def test_files_have_no_checksum_unless_asked_for(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        headers = ask(server, "/bucket/x", x_amz_checksum_mode="ENABLED")[1]
        assert not [name for name in headers if name.startswith("x-amz-checksum")]


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "CRC64NVME"])
def test_uploads_are_checked_and_remembered(tmp_path: Path, algorithm: Any) -> None:
    header = f"x-amz-checksum-{algorithm.lower()}"
    right, wrong = (ObjectChecksum.of(algorithm, [body]).value for body in (b"body", b"other"))
    with served(tmp_path) as server:
        refused = ask(server, "/bucket/new", method="PUT", body=b"body", **{header: wrong})
        assert (refused[0], b"BadDigest" in refused[2]) == (400, True)
        assert ask(server, "/bucket/new")[0] == 404
        assert ask(server, "/bucket/new", method="PUT", body=b"body", **{header: right})[1][header] == right
        assert ask(server, "/bucket/new", x_amz_checksum_mode="ENABLED")[1][header] == right


@pytest.mark.parametrize(("kind", "suffix"), [("COMPOSITE", "-2"), ("FULL_OBJECT", "")])
def test_checksums_of_uploads_in_parts(tmp_path: Path, kind: str, suffix: str) -> None:
    parts = [bytes(5 * 1024 * 1024), b"the last part"]
    crcs = [zlib.crc32(part) for part in parts]
    whole = zlib.crc32(b"".join(crc.to_bytes(4, "big") for crc in crcs)) if suffix else zlib.crc32(b"".join(parts))
    with served(tmp_path) as server, boto3_client(server.endpoint_url) as client:
        place = {"Bucket": "bucket", "Key": "parts"}
        upload = client.create_multipart_upload(**place, ChecksumAlgorithm="CRC32", ChecksumType=kind)
        place["UploadId"] = upload["UploadId"]
        answers = [
            client.upload_part(**place, PartNumber=number, Body=part, ChecksumAlgorithm="CRC32")
            for number, part in enumerate(parts, start=1)
        ]
        listed = [{"PartNumber": number, "ETag": answer["ETag"]} for number, answer in enumerate(answers, start=1)]
        client.complete_multipart_upload(**place, MultipartUpload={"Parts": listed})
        head = client.head_object(Bucket="bucket", Key="parts", ChecksumMode="ENABLED")
    assert head["ChecksumCRC32"] == base64.b64encode(whole.to_bytes(4, "big")).decode() + suffix
    assert head["ChecksumType"] == kind


def test_versions_outlive_replacement_and_deletion(tmp_path: Path) -> None:
    with served(tmp_path, keep_versions=True) as server, boto3_client(server.endpoint_url) as client:
        first = client.head_object(Bucket="bucket", Key="x")["VersionId"]
        second = client.put_object(Bucket="bucket", Key="x", Body=b"second")["VersionId"]
        assert first != second
        client.delete_objects(Bucket="bucket", Delete={"Objects": [{"Key": "x"}]})
        assert ask(server, "/bucket/x")[0] == 404
        for version, content in ((first, LONGER_CONTENT), (second, b"second")):
            answer = client.get_object(Bucket="bucket", Key="x", VersionId=version)
            assert (answer["Body"].read(), answer["VersionId"]) == (content, version)
        assert b"NoSuchVersion" in ask(server, "/bucket/x?versionId=other")[2]
        assert ask(server, "/bucket/?list-type=2")[2].count(b"<Contents>") == 0


def test_without_versions_the_old_bytes_are_gone(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        status, headers, _ = ask(server, "/bucket/x", method="HEAD")
        assert (status, headers["x-amz-version-id"]) == (200, None)
        version = headers["ETag"].strip('"')
        assert ask(server, f"/bucket/x?versionId={version}")[2] == LONGER_CONTENT
        ask(server, "/bucket/x", method="PUT", body=b"second")
        assert ask(server, f"/bucket/x?versionId={version}")[0] == 404


def test_requester_pays(tmp_path: Path) -> None:
    with served(tmp_path, requester_pays=True) as server:
        assert ask(server, "/bucket/x")[0] == 403
        status, headers, _ = ask(server, "/bucket/x", x_amz_request_payer="requester")
        assert (status, headers["x-amz-request-charged"]) == (200, "requester")


def test_session_tokens_expire(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        assert ask(server, "/bucket/x", x_amz_security_token="first")[0] == 200  # noqa: S106
        server.expire_session_token("first")
        status, _, body = ask(server, "/bucket/x", x_amz_security_token="first")  # noqa: S106
        assert (status, b"ExpiredToken" in body, b"first" in body) == (400, True, False)
        assert ask(server, "/bucket/x", x_amz_security_token="second")[0] == 200  # noqa: S106


def presigned(server: ColdStoreServer, secret: str, *, key: str = "x", lifetime_s: int = 60) -> str:
    client = boto3.client(
        "s3",
        endpoint_url=server.endpoint_url,
        aws_access_key_id="key",
        aws_secret_access_key=secret,
        region_name="us-east-1",
        config=Config(signature_version="s3v4"),
    )
    url: str = client.generate_presigned_url("get_object", {"Bucket": "bucket", "Key": key}, lifetime_s)
    client.close()
    return url.removeprefix(server.endpoint_url)


def test_presigned_urls(tmp_path: Path) -> None:
    with served(tmp_path, secret_key=SECRET) as server:
        (tmp_path / "bucket" / "a b+c=d").write_bytes(b"odd name")
        good = presigned(server, SECRET)
        assert ask(server, good)[2] == LONGER_CONTENT
        assert ask(server, good, Range="bytes=0-9")[2] == LONGER_CONTENT[:10]
        assert ask(server, presigned(server, SECRET, key="a b+c=d"))[2] == b"odd name"
        assert ask(server, presigned(server, "another secret"))[0] == 403
        assert ask(server, good.replace("/bucket/x", "/bucket/y"))[0] == 403
        assert ask(server, good.replace("X-Amz-Expires=60", "X-Amz-Expires=61"))[0] == 403
        brief = presigned(server, SECRET, lifetime_s=1)
        time.sleep(1.1)
        assert ask(server, brief)[0] == 403
        assert ask(server, "/bucket/x")[0] == 403
        assert ask(server, "/bucket/x?X-Amz-Signature=00")[0] == 403


def test_signed_requests_of_boto3_pass(tmp_path: Path) -> None:
    with served(tmp_path, secret_key=MOTO_KEYS["secret"]) as server, boto3_client(server.endpoint_url) as client:
        client.put_object(Bucket="bucket", Key="new", Body=b"new")
        assert client.get_object(Bucket="bucket", Key="new")["Body"].read() == b"new"
    with (
        served(tmp_path, secret_key="another") as server,  # noqa: S106
        boto3_client(server.endpoint_url) as client,
        pytest.raises(ClientError, match="SignatureDoesNotMatch"),
    ):
        client.get_object(Bucket="bucket", Key="new")


def test_unknown_administration_is_no_bucket(tmp_path: Path) -> None:
    with served(tmp_path) as server, pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{server.endpoint_url}/__other", timeout=60)  # noqa: S310 - our server
