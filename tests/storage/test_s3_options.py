"""From storage_options, environment and profiles to credentials, region and addresses."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import fsspec.config
import pytest
from botocore.credentials import RefreshableCredentials
from botocore.exceptions import CredentialRetrievalError
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.errors import AccessError, InvalidInputError
from coldparquet.storage.open import open_store
from coldparquet.storage.s3.client import bucket_address
from coldparquet.storage.s3.identity import RequestSigner, resolve_account
from coldparquet.storage.s3.parameters import parse_s3_options, with_fsspec_config
from coldparquet.storage.s3.store import S3Store

PROFILES = """
[default]
region = eu-central-1

[profile archive]
region = ap-south-1
endpoint_url = https://global.example
services = stores
aws_access_key_id = profilekey
aws_secret_access_key = profilesecret

[profile global-only]
endpoint_url = https://global.example

[services stores]
s3 =
  endpoint_url = https://s3.example
"""


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the AWS settings and proxies of the machine that runs the tests, its metadata service too."""
    for name in os.environ:
        if name.startswith("AWS_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    (tmp_path / "config").write_text(PROFILES)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "absent"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def address_of(bucket: str, **storage_options: Any) -> str:
    options = parse_s3_options({"anon": True, **storage_options})
    account = resolve_account(options)
    return bucket_address(bucket, account.region, account, options).base_url


@pytest.mark.parametrize(
    ("bucket", "storage_options", "base_url"),
    [
        ("bucket", {}, "https://bucket.s3.eu-central-1.amazonaws.com/"),
        ("bucket", {"use_ssl": False}, "http://bucket.s3.eu-central-1.amazonaws.com/"),
        ("dotted.bucket", {}, "https://s3.eu-central-1.amazonaws.com/dotted.bucket/"),
        ("bucket", {"client_kwargs": {"region_name": "cn-north-1"}}, "https://bucket.s3.cn-north-1.amazonaws.com.cn/"),
        (
            "bucket",
            {"config_kwargs": {"s3": {"addressing_style": "path"}}},
            "https://s3.eu-central-1.amazonaws.com/bucket/",
        ),
        ("bucket", {"endpoint_url": "http://127.0.0.1:9000/"}, "http://127.0.0.1:9000/bucket/"),
        ("bucket", {"client_kwargs": {"endpoint_url": "https://host/s3"}}, "https://host/s3/bucket/"),
        (
            "bucket",
            {"endpoint_url": "https://host:9000", "config_kwargs": {"s3": {"addressing_style": "virtual"}}},
            "https://bucket.host:9000/",
        ),
        ("bucket", {"profile": "archive"}, "https://s3.example/bucket/"),
        ("bucket", {"profile": "global-only"}, "https://global.example/bucket/"),
    ],
)
def test_addresses(bucket: str, storage_options: dict[str, Any], base_url: str) -> None:
    assert address_of(bucket, **storage_options) == base_url


def test_endpoint_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://general:1")
    assert address_of("bucket", profile="archive") == "http://general:1/bucket/"
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://special:2")
    assert address_of("bucket") == "http://special:2/bucket/"
    assert address_of("bucket", endpoint_url="http://given:3") == "http://given:3/bucket/"
    monkeypatch.setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true")
    assert address_of("bucket") == "https://bucket.s3.eu-central-1.amazonaws.com/"


def test_region_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "absent"))
    options = parse_s3_options({"anon": True})
    assert resolve_account(options).region == "us-east-1"
    monkeypatch.setenv("AWS_REGION", "eu-west-2")
    assert resolve_account(options).region == "eu-west-2"
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-3")
    assert resolve_account(options).region == "eu-west-3"
    given = parse_s3_options({"anon": True, "client_kwargs": {"region_name": "sa-east-1"}})
    assert resolve_account(given).region == "sa-east-1"


def test_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    def key_of(**storage_options: Any) -> str | None:
        credentials = resolve_account(parse_s3_options(storage_options)).credentials
        return credentials.get_frozen_credentials().access_key if credentials else None

    assert key_of(anon=True) is None
    assert key_of(profile="archive") == "profilekey"
    with pytest.raises(AccessError, match="anon=True") as caught:
        key_of()
    assert caught.value.kind == "NoCredentials"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "environmentkey")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "environmentsecret")
    assert key_of() == "environmentkey"
    assert key_of(key="given", secret="given") == "given"  # noqa: S106
    assert key_of(username="given", password="given") == "given"  # noqa: S106
    assert key_of(client_kwargs={"aws_access_key_id": "given", "aws_secret_access_key": "given"}) == "given"


def test_a_profile_that_does_not_exist_comes_with_its_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    def message_for(**storage_options: Any) -> str:
        with pytest.raises(InvalidInputError) as caught:
            resolve_account(parse_s3_options(storage_options))
        assert caught.value.kind == "UnknownProfile"
        return str(caught.value)

    monkeypatch.setenv("AWS_PROFILE", "nope")
    assert "no profile 'nope', which the environment variable AWS_PROFILE names" in message_for()
    monkeypatch.setenv("AWS_DEFAULT_PROFILE", "gone")
    assert "no profile 'gone', which the environment variable AWS_DEFAULT_PROFILE names" in message_for()
    assert "no profile 'nowhere', which the storage option profile names" in message_for(profile="nowhere")


@pytest.mark.parametrize(
    ("storage_options", "match"),
    [
        ({"endpont_url": "http://x"}, "did you mean 'endpoint_url'"),
        ({"client_kwargs": {"region": "x"}}, "did you mean 'region_name'"),
        ({"client_kwargs": "password"}, "client_kwargs is a str; it must be a dictionary"),
        ({"config_kwargs": {"s3": ["password"]}}, "s3 is a list; it must be a dictionary"),
        (
            {"config_kwargs": {"proxies": {"https": "http://user:password@host"}}},
            "unknown config_kwargs option 'proxies'",
        ),
        ({"config_kwargs": {"s3": {"use_accelerate_endpoint": True}}}, "unknown config_kwargs.s3 option"),
        ({"config_kwargs": {"signature_version": "s3"}}, "must be 's3v4'; for unsigned requests pass anon=True"),
        ({"s3_additional_kwargs": {"ServerSideEncryption": "password"}}, "unknown s3_additional_kwargs option"),
        ({"anon": "password"}, "anon must be true or false"),
        ({"requester_pays": 2}, "requester_pays must be true or false"),
        ({"key": "k"}, "key without secret"),
        ({"secret": "s"}, "secret without key"),
        ({"endpoint_url": "127.0.0.1:9000"}, "must look like"),
        ({"endpoint_url": "http://user:password@host"}, "must look like"),
        ({"endpoint_url": "http://host?token=password"}, "must look like"),
        ({"config_kwargs": {"s3": {"addressing_style": "fancy"}}}, "'auto', 'path' or 'virtual'"),
    ],
)
def test_options_that_cannot_be_meant(storage_options: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidInputError, match=match) as caught:
        parse_s3_options(storage_options)
    assert "password" not in str(caught.value)


def test_options_that_only_s3fs_understands_are_ignored() -> None:
    options = {"default_block_size": 1, "use_listings_cache": False, "asynchronous": True, "max_concurrency": 3}
    assert parse_s3_options(options) == parse_s3_options({})
    patience = {"config_kwargs": {"max_pool_connections": 50, "retries": {}, "signature_version": "s3v4"}}
    assert parse_s3_options(patience) == parse_s3_options({})


def test_words_for_true_and_false() -> None:
    for word in (False, "false", "False", 0, "0", None):
        options = parse_s3_options({"anon": word, "requester_pays": word})
        assert (options.anonymous, options.requester_pays) == (False, False)
    for word in (True, "true", "True", 1):
        options = parse_s3_options({"anon": word, "requester_pays": word})
        assert (options.anonymous, options.requester_pays) == (True, True)
    assert parse_s3_options({"s3_additional_kwargs": {"RequestPayer": "requester"}}).requester_pays


@pytest.mark.parametrize(
    ("profile", "storage_options", "base_url"),
    [
        ("addressing_style = path", {}, "https://s3.eu-west-1.amazonaws.com/bucket/"),
        (
            "use_dualstack_endpoint = true",
            {},
            "https://bucket.s3.dualstack.eu-west-1.amazonaws.com/",
        ),
        (
            "addressing_style = path",
            {"config_kwargs": {"s3": {"addressing_style": "virtual", "use_dualstack_endpoint": True}}},
            "https://bucket.s3.dualstack.eu-west-1.amazonaws.com/",
        ),
        ("addressing_style = virtual", {"endpoint_url": "https://host:9000"}, "https://bucket.host:9000/"),
    ],
)
def test_addresses_of_the_profile(
    profile: str,
    storage_options: dict[str, Any],
    base_url: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    config = tmp_path / "config-of-s3"
    keys = "aws_access_key_id = key\naws_secret_access_key = secret"
    config.write_text(f"[profile far]\nregion = eu-west-1\n{keys}\ns3 =\n  {profile}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    options = parse_s3_options({"profile": "far", **storage_options})
    account = resolve_account(options)
    assert bucket_address("bucket", account.region, account, options).base_url == base_url


def test_configuration_of_fsspec(monkeypatch: pytest.MonkeyPatch) -> None:
    configured = {"key": "k", "secret": "s", "token": "t", "endpoint_url": "http://127.0.0.1:9000", "anon": "False"}
    monkeypatch.setitem(fsspec.config.conf, "s3", configured)
    assert open_store("s3://bucket/key")[0].label == "s3 (http://127.0.0.1:9000)"
    assert (
        open_store("s3://bucket/key", storage_options={"endpoint_url": "http://other"})[0].label == "s3 (http://other)"
    )
    options = parse_s3_options(with_fsspec_config({}))
    assert (options.key, options.token, options.anonymous) == ("k", "t", False)
    own = parse_s3_options(with_fsspec_config({"key": "mine", "secret": "mine"}))
    assert (own.key, own.secret, own.token, own.endpoint_url) == ("mine", "mine", None, "http://127.0.0.1:9000")


@given(st.dictionaries(st.text(max_size=8), st.integers(), min_size=1))
def test_unknown_options_are_always_named(storage_options: dict[str, int]) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_s3_options(storage_options)
    assert caught.value.details["option"] in storage_options


@pytest.mark.parametrize("value", [1, True, ["hunter2"], {"hunter2": 1}, b"hunter2", "hunter2\n", "hunter2\ud800"])
@pytest.mark.parametrize("name", ["endpoint_url", "key", "profile", "token", "region_name"])
def test_what_is_no_text(name: str, value: Any) -> None:
    options = {"client_kwargs": {name: value}} if name == "region_name" else {name: value}
    with pytest.raises(InvalidInputError, match=f"{name} .*must be text") as caught:
        parse_s3_options(options)
    assert caught.value.kind == "BadOption"
    assert "hunter2" not in str(caught.value)


def test_names_that_are_no_text_are_unknown() -> None:
    with pytest.raises(InvalidInputError, match="unknown client_kwargs option 1"):
        parse_s3_options({"client_kwargs": {1: 2}})


def test_label_says_where() -> None:
    assert S3Store(storage_options={}).label == "s3"
    assert S3Store(storage_options={"client_kwargs": {"region_name": "eu-west-1"}}).label == "s3 (eu-west-1)"
    assert S3Store(storage_options={"endpoint_url": "http://127.0.0.1:9000"}).label == "s3 (http://127.0.0.1:9000)"


def test_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://user:password@proxy:3128")
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")
    options = parse_s3_options({"anon": True})
    account = resolve_account(options)
    address = bucket_address("bucket", "eu-west-1", account, options)
    assert address.proxy == "http://user:password@proxy:3128"
    assert "password" not in repr(address)
    local = parse_s3_options({"anon": True, "endpoint_url": "https://127.0.0.1:9000"})
    assert bucket_address("bucket", "eu-west-1", resolve_account(local), local).proxy is None


class TestRenewal:
    """Credentials that expire are renewed by botocore, outside of the event loop."""

    @staticmethod
    def metadata(key: str, expiry_time: str) -> dict[str, str]:
        return {"access_key": key, "secret_key": "secret", "token": "token", "expiry_time": expiry_time}

    async def sign(self, credentials: RefreshableCredentials) -> str:
        headers = {"Host": "host"}
        await RequestSigner(credentials).sign("GET", "https://host/key", headers, body=b"", region="eu-west-1")
        return headers["Authorization"]

    async def test_renewed_before_they_expire(self) -> None:
        renewals = []

        def renew() -> dict[str, str]:
            renewals.append(1)
            return self.metadata("second", "2999-01-01T00:00:00Z")

        credentials = RefreshableCredentials.create_from_metadata(
            self.metadata("first", "2020-01-01T00:00:00Z"), refresh_using=renew, method="test"
        )
        assert "Credential=second/" in await self.sign(credentials)
        assert "Credential=second/" in await self.sign(credentials)
        assert renewals == [1]

    async def test_failed_renewal(self) -> None:
        def fail() -> dict[str, str]:
            raise CredentialRetrievalError(provider="test", error_msg="hunter2")

        credentials = RefreshableCredentials.create_from_metadata(
            self.metadata("first", "2020-01-01T00:00:00Z"), refresh_using=fail, method="test"
        )
        with pytest.raises(AccessError, match="CredentialRetrievalError") as caught:
            await self.sign(credentials)
        assert "hunter2" not in str(caught.value)
        assert caught.value.__context__ is None
