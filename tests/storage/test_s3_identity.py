"""Who we are on machines that say so: EC2's metadata service and web identity tokens, as botocore asks them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from coldparquet.errors import AccessError
from coldparquet.ranges import ByteRange
from coldparquet.storage.s3.store import S3Store
from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreServer
from coldparquet_testing.store_contract import request_for

SECRET = "the secret of the machine"  # noqa: S105 - the simulator compares signatures made with it


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[ColdStoreServer]:
    (tmp_path / "bucket").mkdir()
    (tmp_path / "bucket" / "key").write_bytes(b"0123456789")
    with ColdStoreServer(tmp_path, ColdStoreOptions(secret_key=SECRET)) as server:
        yield server


@pytest.fixture(autouse=True)
def _no_other_identity(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "absent"))
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("no_proxy", "*")


@dataclass
class Machine:
    """Plays EC2's metadata service and the Security Token Service."""

    expires: list[str]
    """When the credentials of the first, second, ... answer expire; the last holds from then on."""
    asked: list[str] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        if request.path == "/latest/api/token":
            return web.Response(text="metadata token")
        if request.path.endswith("/security-credentials/"):
            return web.Response(text="role-of-the-machine")
        expires = self.expires[min(len(self.asked), len(self.expires) - 1)]
        if request.method == "POST":
            form = await request.post()
            self.asked.append(" ".join(str(form[name]) for name in ("Action", "RoleArn", "WebIdentityToken")))
            return web.Response(
                content_type="text/xml",
                text="<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>"
                f"<AccessKeyId>role</AccessKeyId><SecretAccessKey>{SECRET}</SecretAccessKey>"
                f"<SessionToken>token</SessionToken><Expiration>{expires}</Expiration>"
                "</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>",
            )
        assert request.headers["X-aws-ec2-metadata-token"] == "metadata token"
        self.asked.append(request.path.rpartition("/")[2])
        found = {"Code": "Success", "AccessKeyId": "machine", "SecretAccessKey": SECRET, "Token": "token"}
        return web.json_response({**found, "Expiration": expires})


def in_an_hour() -> str:
    return (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.fixture
async def machine(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Machine]:
    machine = Machine(expires=[in_an_hour()])
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", machine.answer)
    server = TestServer(application)
    await server.start_server()
    url = str(server.make_url("/"))
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", url)
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", url)
    yield machine
    await server.close()


async def read(bucket: ColdStoreServer) -> bytes:
    store = S3Store(storage_options={"endpoint_url": bucket.endpoint_url})
    try:
        first = await store.get(request_for("bucket/key", ByteRange(0, 5)))
        return first.data + (await store.get(request_for("bucket/key", ByteRange(5, 10)))).data
    finally:
        await store.aclose()


async def test_role_of_the_machine(bucket: ColdStoreServer, machine: Machine) -> None:
    assert await read(bucket) == b"0123456789"
    assert machine.asked == ["role-of-the-machine"]


@pytest.mark.parametrize("is_short", [False, True])
async def test_web_identity(
    bucket: ColdStoreServer, machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, is_short: bool
) -> None:
    (tmp_path / "token").write_text("signed by the cluster")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/reader")
    if is_short:  # botocore renews what is good for less than ten minutes
        machine.expires.insert(0, (datetime.now(UTC) + timedelta(minutes=5)).strftime("%Y-%m-%dT%H:%M:%SZ"))
    assert await read(bucket) == b"0123456789"
    asked = "AssumeRoleWithWebIdentity arn:aws:iam::123456789012:role/reader signed by the cluster"
    assert machine.asked == [asked] * (2 if is_short else 1)


async def test_profile_with_a_process(bucket: ColdStoreServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answer = f'{{"Version": 1, "AccessKeyId": "process", "SecretAccessKey": "{SECRET}"}}'
    (tmp_path / "answer").write_text(answer)
    (tmp_path / "config").write_text(f"[profile vault]\ncredential_process = cat {tmp_path / 'answer'}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "vault")
    assert await read(bucket) == b"0123456789"
    (tmp_path / "config").write_text("[profile vault]\ncredential_process = false\n")
    with pytest.raises(AccessError) as caught:
        await read(bucket)
    assert caught.value.kind == "NoCredentials"
    assert caught.value.__context__ is None
