"""Certificates are checked unless the caller says otherwise."""

from __future__ import annotations

import asyncio
import ipaddress
import shutil
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from coldparquet.errors import InvalidInputError, StorageError
from coldparquet.ranges import ByteRange
from coldparquet.storage.open import open_store
from coldparquet.storage.s3.store import S3Store
from coldparquet_testing.store_contract import request_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


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
    runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    yield f"https://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


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
    monkeypatch.setattr(ssl, "create_default_context", lambda cafile: (read.append(cafile), create(cafile=cafile))[1])
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
