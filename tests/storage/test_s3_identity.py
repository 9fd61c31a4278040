"""Who we are on machines that say so: EC2's metadata service and web identity tokens, as botocore asks them."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from botocore.exceptions import BotoCoreError

from coldparquet.errors import AccessError, ColdParquetError
from coldparquet.ranges import ByteRange
from coldparquet.storage.s3 import identity
from coldparquet.storage.s3.parameters import parse_s3_options
from coldparquet.storage.s3.store import S3Store
from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreServer, FaultRule
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
    for name in (
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_PROFILE",
        "AWS_DEFAULT_REGION",
    ):
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


async def read(bucket: ColdStoreServer, path: str = "bucket/key") -> bytes:
    store = S3Store(storage_options={"endpoint_url": bucket.endpoint_url})
    try:
        first = await store.get(request_for(path, ByteRange(0, 5)))
        return first.data + (await store.get(request_for(path, ByteRange(5, 10)))).data
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


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """Return the profiles for which sessions of botocore were made."""
    made = list[str | None]()
    make = botocore.session.Session

    def count(profile: str | None) -> Any:
        made.append(profile)
        return make(profile=profile)

    monkeypatch.setattr(botocore.session, "Session", count)
    return made


def configure(monkeypatch: pytest.MonkeyPatch, directory: Path, *, config: str, credentials: str) -> None:
    for variable, text in (("AWS_CONFIG_FILE", config), ("AWS_SHARED_CREDENTIALS_FILE", credentials)):
        (directory / variable).write_text(text)
        monkeypatch.setenv(variable, str(directory / variable))


def keys(secret: str) -> str:
    return f"aws_access_key_id = somebody\naws_secret_access_key = {secret}\n"


async def test_a_role_is_looked_up_once_and_again_when_its_credentials_are_over(
    bucket: ColdStoreServer, machine: Machine, sessions: list[str | None]
) -> None:
    for _ in range(3):
        await read(bucket)
    assert (len(sessions), len(machine.asked)) == (1, 1)
    account = identity.known_account(parse_s3_options({"endpoint_url": bucket.endpoint_url}))
    assert account is not None
    assert account.credentials is not None
    account.credentials._expiry_time = datetime.now(UTC) - timedelta(seconds=1)
    for _ in range(3):
        await read(bucket)
    assert (len(sessions), len(machine.asked)) == (2, 2)


@pytest.mark.parametrize("change", ["variables", "profile", "configuration", "credentials"])
async def test_an_identity_is_kept_until_what_it_comes_from_changes(
    bucket: ColdStoreServer, sessions: list[str | None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, change: str
) -> None:
    other = f"[other]\n{keys('another secret')}"
    credentials = f"[default]\n{keys(SECRET)}{other}"
    configure(monkeypatch, tmp_path, config="[default]\nregion = us-east-1\n", credentials=credentials)
    for _ in range(3):
        assert await read(bucket) == b"0123456789"
    assert sessions == [None]
    match change:
        case "variables":
            monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
            monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another secret")
        case "profile":
            monkeypatch.setenv("AWS_PROFILE", "other")
        case "configuration":
            config = "[default]\ncredential_process = false\n"
            configure(monkeypatch, tmp_path, config=config, credentials=other)
        case _:
            replaced = f"[default]\n{keys('another secret')}"
            configure(monkeypatch, tmp_path, config="[default]\nregion = us-east-1\n", credentials=replaced)
    with pytest.raises(AccessError):
        await read(bucket)


async def test_an_identity_that_the_store_refuses_is_not_kept(
    bucket: ColdStoreServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answer = tmp_path / "answer"
    config = f"[default]\ncredential_process = cat {answer}\n"
    configure(monkeypatch, tmp_path, config=config, credentials="")
    answer.write_text('{"Version": 1, "AccessKeyId": "process", "SecretAccessKey": "another secret"}')
    with pytest.raises(AccessError):
        await read(bucket)
    answer.write_text(f'{{"Version": 1, "AccessKeyId": "process", "SecretAccessKey": "{SECRET}"}}')
    assert await read(bucket) == b"0123456789"


async def test_an_identity_is_kept_where_the_store_denies_access_to_what_does_not_exist(
    machine: Machine, sessions: list[str | None], tmp_path: Path
) -> None:
    """As S3 does to all who may not list the bucket: of a table, that is ``_txn`` and ``_catalogue`` at each opening."""
    (tmp_path / "bucket").mkdir()
    (tmp_path / "bucket" / "key").write_bytes(b"0123456789")
    denied = FaultRule("forbidden", path="bucket/absent")
    with ColdStoreServer(tmp_path, ColdStoreOptions(secret_key=SECRET, faults=(denied,))) as bucket:
        for _ in range(3):
            with pytest.raises(AccessError):
                await read(bucket, "bucket/absent")
            assert await read(bucket) == b"0123456789"
    assert (len(sessions), len(machine.asked)) == (1, 1)


async def test_what_a_program_tells_for_ever_is_asked_for_each_time(
    bucket: ColdStoreServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answer = tmp_path / "answer"
    configure(monkeypatch, tmp_path, config=f"[default]\ncredential_process = cat {answer}\n", credentials="")
    answer.write_text(f'{{"Version": 1, "AccessKeyId": "process", "SecretAccessKey": "{SECRET}"}}')
    assert await read(bucket) == b"0123456789"
    answer.write_text('{"Version": 1, "AccessKeyId": "process", "SecretAccessKey": "another secret"}')
    with pytest.raises(AccessError):
        await read(bucket)


def _kept() -> int:
    return len(identity._accounts)


async def test_a_forked_child_looks_for_itself(
    bucket: ColdStoreServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    configure(monkeypatch, tmp_path, config="", credentials=f"[default]\n{keys(SECRET)}")
    await read(bucket)
    assert _kept() > 0
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert await asyncio.to_thread(pool.apply, _kept) == 0


async def test_event_loops_and_threads_share_an_identity(
    bucket: ColdStoreServer, sessions: list[str | None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    configure(monkeypatch, tmp_path, config="", credentials=f"[default]\n{keys(SECRET)}")
    await read(bucket)

    def read_in_a_loop_of_its_own() -> bytes:
        return asyncio.run(read(bucket))

    answers = await asyncio.gather(*(asyncio.to_thread(read_in_a_loop_of_its_own) for _ in range(8)))
    assert answers == [b"0123456789"] * 8
    assert sessions == [None]


@pytest.mark.parametrize("where", ["options", "variables"])
async def test_keys_that_are_stated_make_no_session(
    bucket: ColdStoreServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sessions: list[str | None], where: str
) -> None:
    config = f"[default]\nregion = eu-west-3\nendpoint_url = {bucket.endpoint_url}\n"
    configure(monkeypatch, tmp_path, config=config, credentials="")
    monkeypatch.delenv("AWS_REGION")
    options = {"key": "somebody", "secret": SECRET} if where == "options" else {}
    if where == "variables":
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    store = S3Store(storage_options=options)
    assert (await store.get(request_for("bucket/key", ByteRange(0, 5)))).data == b"01234"
    await store.aclose()
    account = identity.known_account(parse_s3_options(options))
    assert account is not None
    assert (account.region, account.endpoint_url) == ("eu-west-3", bucket.endpoint_url)
    assert sessions == []


@pytest.mark.parametrize(
    ("variables", "config", "credentials"),
    [
        ({}, "", ""),
        ({"AWS_DEFAULT_REGION": "eu-west-1", "AWS_REGION": "eu-west-2"}, "[default]\nregion = eu-west-3\n", ""),
        ({"AWS_DEFAULT_REGION": ""}, "[default]\nregion = eu-west-3\n", ""),
        ({}, "[default]\nregion = eu-west-3\nca_bundle = /bundle\n", "[default]\nregion = eu-north-1\n"),
        ({"AWS_PROFILE": "p"}, "[profile p]\nregion = eu-west-3\nuse_dualstack_endpoint = true\n", ""),
        ({"AWS_PROFILE": "p"}, "[default]\nregion = eu-west-3\n", "[p]\nregion = eu-north-1\n"),
        ({"AWS_PROFILE": "p", "AWS_DEFAULT_PROFILE": "d"}, "[profile d]\nregion = eu-west-3\n", "[p]\n"),
        ({"AWS_USE_DUALSTACK_ENDPOINT": "True", "AWS_CA_BUNDLE": "/other"}, "[default]\nca_bundle = /bundle\n", ""),
        ({"AWS_PROFILE": "absent"}, "[default]\n", ""),
        ({}, "[default\n", ""),
    ],
)
def test_the_configuration_is_read_as_a_session_of_botocore_reads_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variables: dict[str, str], config: str, credentials: str
) -> None:
    configure(monkeypatch, tmp_path, config=config, credentials=credentials)
    for name, value in {"AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": SECRET, **variables}.items():
        monkeypatch.setenv(name, value)
    session = botocore.session.Session()
    try:
        scoped = session.get_scoped_config()
    except BotoCoreError:
        with pytest.raises(ColdParquetError):
            identity.resolve_account(parse_s3_options({}))
        return
    account = identity.resolve_account(parse_s3_options({}))
    assert identity._profile_of(identity._configuration(), None) == scoped
    assert identity._configuration() == session.full_config
    assert account.region == (session.get_config_variable("region") or os.environ["AWS_REGION"])
    assert account.ca_bundle == session.get_config_variable("ca_bundle")
    assert account.use_dualstack is bool(session.get_config_variable("use_dualstack_endpoint"))
    assert account.credentials is not None
    assert account.credentials.get_frozen_credentials() == session.get_credentials().get_frozen_credentials()
