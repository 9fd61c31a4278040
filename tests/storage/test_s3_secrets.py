"""No credential in any message, repr, log or pickle, whatever goes wrong; and certificates are checked."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import pickle
import re
import shutil
import ssl
import traceback
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from coldparquet.errors import AccessError, ColdParquetError, InvalidInputError, NotFoundError, StorageError
from coldparquet.ranges import ByteRange
from coldparquet.storage.http_errors import parse_refusal
from coldparquet.storage.open import open_store
from coldparquet.storage.s3.identity import resolve_account
from coldparquet.storage.s3.parameters import parse_s3_options
from coldparquet.storage.s3.store import S3Store
from coldparquet_testing.simulator import ColdStoreOptions
from coldparquet_testing.simulator.server import serve
from coldparquet_testing.store_contract import request_for
from tests.support.http_servers import respond, scripted_server

SECRETS = ("PLANTEDKEY", "PLANTEDSECRET", "PLANTEDTOKEN")
OPTIONS = dict(zip(("key", "secret", "token"), SECRETS, strict=True))


async def _echo_everything(request: web.BaseRequest) -> web.StreamResponse:
    """Answer as an unkind server could: with the request's own headers in every field of the error."""
    if request.path.endswith("/cut"):
        assert request.transport
        request.transport.close()
        return web.Response()
    echoed = " ".join([*request.headers.values(), *SECRETS])
    document = (
        f"<Error><Code>{SECRETS[1]}</Code><Message>{echoed}</Message><StorageClass>{echoed}</StorageClass></Error>"
    )
    return web.Response(status=int(request.path.rpartition("/")[2]), body=document.encode())


@pytest.fixture
async def store() -> AsyncIterator[S3Store]:
    async with serve(_echo_everything) as port:
        store = S3Store(storage_options={**OPTIONS, "endpoint_url": f"http://127.0.0.1:{port}"})
        yield store
        await store.aclose()


def assert_free_of_secrets(text: str) -> None:
    for secret in SECRETS:
        assert secret not in text
    assert not re.search("Signature=[0-9a-f]", text)


@pytest.mark.parametrize("last", ["400", "403", "404", "412", "500", "503", "cut"])
async def test_errors_and_logs(store: S3Store, caplog: pytest.LogCaptureFixture, last: str) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(ColdParquetError) as caught:
        await store.get(request_for(f"bucket/{last}", ByteRange(0, 4)))
    error = caught.value
    assert_free_of_secrets("".join(traceback.format_exception(error)))
    assert_free_of_secrets(repr(error) + repr(error.as_dict()) + repr(error.details))
    assert_free_of_secrets(pickle.dumps(error).decode("latin-1"))
    assert_free_of_secrets(caplog.text)
    assert (error.__cause__, error.__context__) == (None, None)


async def test_reprs_and_labels(store: S3Store) -> None:
    with pytest.raises(ColdParquetError):
        await store.get(request_for("bucket/404", ByteRange(0, 4)))
    options = parse_s3_options(OPTIONS)
    for value in (store, store.label, options, resolve_account(options), ColdStoreOptions(secret_key=SECRETS[1])):
        assert_free_of_secrets(repr(value))


@pytest.mark.parametrize("name", ["key", "secret", "token"])
@pytest.mark.parametrize("mistake", ["\n", "\r\nx-amz-acl: public-read", "\udc80"])
def test_options_with_characters_that_no_credential_has(name: str, mistake: str) -> None:
    with pytest.raises(InvalidInputError, match=f"{name} holds a line break") as caught:
        S3Store(storage_options={**OPTIONS, name: OPTIONS[name] + mistake})
    assert caught.value.kind == "BadOption"
    assert_free_of_secrets("".join(traceback.format_exception(caught.value)) + repr(caught.value.as_dict()))


@pytest.mark.parametrize("name", ["key", "secret", "token"])
@pytest.mark.parametrize("mistake", ["\n", "\r\nx-amz-acl: public-read", " "])
async def test_credentials_with_characters_that_none_has(
    monkeypatch: pytest.MonkeyPatch, name: str, mistake: str
) -> None:
    variables = {"key": "AWS_ACCESS_KEY_ID", "secret": "AWS_SECRET_ACCESS_KEY", "token": "AWS_SESSION_TOKEN"}
    for part, variable in variables.items():
        monkeypatch.setenv(variable, OPTIONS[part] + (mistake if part == name else ""))
    store = S3Store(storage_options={"endpoint_url": "http://127.0.0.1:9"})
    with pytest.raises(AccessError, match="holds a line break or another character") as caught:
        await store.get(request_for("bucket/key", ByteRange(0, 4)))
    await store.aclose()
    assert caught.value.kind == "BadCredentials"
    assert_free_of_secrets("".join(traceback.format_exception(caught.value)) + repr(caught.value.as_dict()))


@pytest.mark.parametrize(
    "region", ["evil.example/", "x@evil.example:80/", "eu-west-1.evil.example#", "EU", "a" * 33, ""]
)
@pytest.mark.parametrize("in_header", [True, False])
def test_no_server_can_have_signed_requests_sent_elsewhere(region: str, *, in_header: bool) -> None:
    """A region becomes a part of the host's name: what is none is not believed."""
    headers = {"x-amz-bucket-region": region} if in_header else {}
    body = f"<Error><Code>PermanentRedirect</Code><Region>{'' if in_header else region}</Region></Error>"
    refusal = parse_refusal(301, headers, body.encode())
    assert refusal.region is None
    assert not refusal.redirects_from("us-east-1")


@pytest.mark.parametrize(
    ("status", "code", "error_class"),
    [
        (403, "InvalidAccessKeyId", AccessError),
        (404, "NoSuchBucket", NotFoundError),
        (503, "SlowDown", StorageError),
    ],
)
@pytest.mark.parametrize(("key", "secret"), [("k", "s"), ("S", "e"), ("us", "No"), ("Code", "Error")])
async def test_credentials_of_a_few_letters_leave_messages_readable(
    key: str, secret: str, status: int, code: str, error_class: type[Exception]
) -> None:
    said = f"Keys such as {key} are unknown, and so is the secret {secret}."
    body = f"<Error><Code>{code}</Code><Message>{said}</Message></Error>".encode()
    async with scripted_server() as script:
        script.answers = [respond(status, body)]
        store = S3Store(storage_options={"endpoint_url": script.endpoint_url, "key": key, "secret": secret})
        with pytest.raises(error_class) as caught:
            await store.get(request_for("bucket/key", ByteRange(0, 4)))
        await store.aclose()
    error = caught.value
    assert isinstance(error, ColdParquetError)
    assert error.kind == code
    if status != 404:
        assert "Keys such as *** are unknown, and so is the secret ***." in str(error)


# --- Certificates are checked unless the caller says otherwise --------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a self-signed certificate for 127.0.0.1; certificate and key share one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "certificate.pem"
    pem = serialization.Encoding.PEM
    unprotected = serialization.NoEncryption()
    path.write_bytes(
        certificate.public_bytes(pem) + key.private_bytes(pem, serialization.PrivateFormat.PKCS8, unprotected)
    )
    return path


@pytest.fixture
async def endpoint_url(certificate: Path) -> AsyncIterator[str]:
    async def answer(_: web.BaseRequest) -> web.Response:
        return web.Response(status=206, body=b"abcd", headers={"Content-Range": "bytes 0-3/4"})

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    async with serve(answer, tls=context) as port:
        yield f"https://127.0.0.1:{port}"


async def fetch(endpoint_url: str, verify: bool | str) -> bytes:
    options = {"anon": True, "endpoint_url": endpoint_url, "client_kwargs": {"verify": verify}}
    store = S3Store(storage_options=options)
    try:
        return (await store.get(request_for("bucket/key", ByteRange(0, 4)))).data
    finally:
        await store.aclose()


async def test_unknown_authority_is_refused(endpoint_url: str) -> None:
    with pytest.raises(StorageError, match="verify") as caught:
        await fetch(endpoint_url, verify=True)
    assert caught.value.kind == "CertificateInvalid"


async def test_named_authority_or_none_at_all(
    endpoint_url: str, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await fetch(endpoint_url, verify=str(certificate)) == b"abcd"
    assert await fetch(endpoint_url, verify=False) == b"abcd"
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
    assert await fetch(endpoint_url, verify=True) == b"abcd"


async def test_a_bundle_of_authorities_is_read_again_when_it_changes(
    endpoint_url: str, certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, create = list[str](), ssl.create_default_context

    def noted(cafile: str) -> ssl.SSLContext:
        read.append(cafile)
        return create(cafile=cafile)

    monkeypatch.setattr(ssl, "create_default_context", noted)
    bundle = Path(await asyncio.to_thread(shutil.copy, certificate, tmp_path / "bundle.pem"))
    for _ in range(3):
        assert await fetch(endpoint_url, verify=str(bundle)) == b"abcd"
    assert read == [str(bundle)]
    await asyncio.to_thread(bundle.write_bytes, b"no certificate")
    with pytest.raises(InvalidInputError, match="cannot be read"):
        await fetch(endpoint_url, verify=str(bundle))


async def test_missing_bundle(endpoint_url: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        await fetch(endpoint_url, verify="/absent.pem")
    assert caught.value.kind == "BadCaBundle"


async def test_web_servers_are_checked_alike(endpoint_url: str, certificate: Path) -> None:
    trusted = await asyncio.to_thread(ssl.create_default_context, cafile=str(certificate))
    for options in ({"ssl": trusted}, {"ssl": False}):
        store, path = open_store(f"{endpoint_url}/key", storage_options=options)
        assert (await store.get(request_for(path, ByteRange(0, 4)))).data == b"abcd"
        await store.aclose()
    store, path = open_store(f"{endpoint_url}/key")
    with pytest.raises(StorageError, match="ssl=") as caught:
        await store.get(request_for(path, ByteRange(0, 4)))
    assert caught.value.kind == "CertificateInvalid"
    await store.aclose()
