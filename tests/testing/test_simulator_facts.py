"""What the simulated cold store tells about objects: checksums, versions; and whom it lets in."""

from __future__ import annotations

import base64
import time
import urllib.error
import urllib.request
import zlib
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreServer
from coldparquet_testing.simulator.checksums import ObjectChecksum
from tests.support.http_servers import ask
from tests.support.s3_servers import MOTO_KEYS, boto3_client

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "planted"  # noqa: S105
CONTENT = bytes(range(256)) * 10


def served(root: Path, **options: Any) -> ColdStoreServer:
    (root / "bucket").mkdir(exist_ok=True)
    (root / "bucket" / "x").write_bytes(CONTENT)
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
    expected = ObjectChecksum.of(algorithm, [CONTENT]).value
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
        for version, content in ((first, CONTENT), (second, b"second")):
            answer = client.get_object(Bucket="bucket", Key="x", VersionId=version)
            assert (answer["Body"].read(), answer["VersionId"]) == (content, version)
        assert b"NoSuchVersion" in ask(server, "/bucket/x?versionId=other")[2]
        assert ask(server, "/bucket/?list-type=2")[2].count(b"<Contents>") == 0


def test_without_versions_the_old_bytes_are_gone(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        status, headers, _ = ask(server, "/bucket/x", method="HEAD")
        assert (status, headers["x-amz-version-id"]) == (200, None)
        version = headers["ETag"].strip('"')
        assert ask(server, f"/bucket/x?versionId={version}")[2] == CONTENT
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
        assert ask(server, good)[2] == CONTENT
        assert ask(server, good, Range="bytes=0-9")[2] == CONTENT[:10]
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
