"""S3 servers that run inside of the tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
from moto.server import ThreadedMotoServer

MOTO_KEYS = {"key": "key", "secret": "secret"}


@contextmanager
def moto_server() -> Iterator[str]:
    """Run moto on a free port, and give its URL."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()


@contextmanager
def boto3_client(endpoint_url: str) -> Iterator[Any]:
    """Give a client for what our store cannot do, such as making buckets."""
    client = boto3.client(
        "s3",
        endpoint_url=endpoint_url,
        aws_access_key_id=MOTO_KEYS["key"],
        aws_secret_access_key=MOTO_KEYS["secret"],
        region_name="us-east-1",
    )
    try:
        yield client
    finally:
        client.close()
