"""Real servers for the integration tests, started and stopped by the scripts in localstack/."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3

from tests.support.live_questdb import LiveQuestDB

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SCRIPTS = Path(__file__).resolve().parents[2] / "localstack"
REQUIRED_VARIABLE = "COLDPARQUET_REQUIRE_SERVERS"
"""When this environment variable is set, a server that cannot be had is a failure, not a skip."""

INSTALL_TIMEOUT_S = 1200
START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 30

ROW_GROUP_ROWS = 200
QUESTDB_SETTINGS = {
    "QDB_LOG_W_STDOUT_LEVEL": "CRITICAL,ERROR,ADVISORY",
    # Several row groups in a small partition: out-of-order rows then change its file in place.
    "QDB_CAIRO_PARTITION_ENCODER_PARQUET_ROW_GROUP_SIZE": str(ROW_GROUP_ROWS),
    # Late rows split native partitions of more than 8 KiB, as they do by default from 50 MB on.
    "QDB_CAIRO_O3_PARTITION_SPLIT_MIN_SIZE": "8192",
    # Small files: the default is 16 MiB for every column of every native partition.
    "QDB_CAIRO_WRITER_DATA_APPEND_PAGE_SIZE": "65536",
    "QDB_CAIRO_WRITER_DATA_INDEX_VALUE_APPEND_PAGE_SIZE": "65536",
    "QDB_CAIRO_O3_COLUMN_MEMORY_SIZE": "262144",
}


class ServerFailedError(Exception):
    """A server could not be installed or started; the message holds what it printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveMinio:
    """A running MinIO, which has one bucket."""

    endpoint_url: str
    user: str
    password: str
    log: Path
    bucket: str = "bucket"

    @property
    def storage_options(self) -> dict[str, object]:
        """Say how to reach it, in the words of s3fs."""
        return {"endpoint_url": self.endpoint_url, "key": self.user, "secret": self.password}

    def keys(self, prefix: str) -> list[str]:
        """List the objects below a prefix, through a client that is not ours."""
        pages = self._client().get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
        return [entry["Key"] for page in pages for entry in page.get("Contents", [])]

    def download(self, prefix: str, directory: Path) -> None:
        """Copy the objects below a prefix to a directory."""
        for key in self.keys(prefix):
            target = directory / key.removeprefix(prefix)
            target.parent.mkdir(parents=True, exist_ok=True)
            self._client().download_file(self.bucket, key, str(target))

    def _client(self) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint_url,
            aws_access_key_id=self.user,
            aws_secret_access_key=self.password,
            region_name="us-east-1",
        )


def missing_commands(*commands: str) -> list[str]:
    """Return those of the commands that are not on the PATH."""
    return [command for command in commands if shutil.which(command) is None]


def install(script: str) -> None:
    """Bring a server into the cache, where it is not there yet. The first time takes minutes."""
    result = subprocess.run(
        [SCRIPTS / script, "--install"], capture_output=True, text=True, check=False, timeout=INSTALL_TIMEOUT_S
    )
    if result.returncode:
        raise ServerFailedError(f"{script} --install failed\n{result.stdout}{result.stderr}")


@contextmanager
def live_questdb(directory: Path) -> Iterator[LiveQuestDB]:
    """Run a QuestDB whose root directory is ``directory`` and which makes small row groups."""
    install("questdb.sh")
    with _running("questdb.sh", directory, QUESTDB_SETTINGS) as announcement:
        server = LiveQuestDB(http_port=_port(announcement), root=directory)
        _wait_until_healthy(server)
        yield server


@contextmanager
def live_minio(directory: Path) -> Iterator[LiveMinio]:
    """Run a MinIO that keeps its objects in ``directory``."""
    install("minio.sh")
    user, password = secrets.token_hex(8), secrets.token_hex(16)
    credentials = {"MINIO_ROOT_USER": user, "MINIO_ROOT_PASSWORD": password}
    with _running("minio.sh", directory, credentials) as announcement:
        endpoint_url = f"http://127.0.0.1:{_port(announcement)}"
        yield LiveMinio(endpoint_url=endpoint_url, user=user, password=password, log=directory / "server.log")


@contextmanager
def _running(script: str, directory: Path, settings: Mapping[str, str]) -> Iterator[str]:
    """Run a script until the end of the block; the value is what it printed when its server was ready."""
    directory.mkdir(parents=True, exist_ok=True)
    printed = directory / f"{script}.out"
    with printed.open("wb") as output:
        # A group of its own: Ctrl-C reaches the tests first, and the server can be killed with all it started. Should
        # the tests be killed instead, the script notices that its parent is gone.
        process = subprocess.Popen(
            [SCRIPTS / script, directory],
            env={**os.environ, **settings},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
    try:
        yield _announcement(script, process, printed)
    finally:
        _stop(process)


def _announcement(script: str, process: subprocess.Popen[bytes], printed: Path) -> str:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        text = printed.read_text()
        if " is ready;" in text and text.endswith("\n"):
            return text
        time.sleep(0.05)
    raise ServerFailedError(f"{script} did not become ready in {START_TIMEOUT_S} s\n{printed.read_text()}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _port(announcement: str) -> int:
    found = re.search(r"http://127\.0\.0\.1:(\d+)", announcement)
    if found is None:
        raise ServerFailedError(f"no port in what the server announced\n{announcement}")
    return int(found[1])


def _wait_until_healthy(server: LiveQuestDB) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            server.ask("select 1")
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return
