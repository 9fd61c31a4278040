"""Real servers for the integration tests, started and stopped by the scripts in localstack/."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3

from coldparquet.records import replace
from tests.support.live_questdb import LiveQuestDB

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
class LiveS3:
    """A running S3 server, which has one bucket."""

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

    def upload(self, directory: Path, prefix: str) -> None:
        """Copy the files of a directory to below a prefix."""
        for file in sorted(path for path in directory.rglob("*") if path.is_file()):
            self._client().upload_file(str(file), self.bucket, f"{prefix}/{file.relative_to(directory).as_posix()}")

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


def is_installed(script: str) -> bool:
    """Tell whether a server is in the cache. Tests never install one: that takes minutes, and several processes would begin at once."""
    return subprocess.run([SCRIPTS / script, "--is-installed"], check=False, timeout=STOP_TIMEOUT_S).returncode == 0


def install(script: str) -> None:
    """Bring a server into the cache, where it is not there yet. The first time takes minutes."""
    result = subprocess.run(
        [SCRIPTS / script, "--install"], capture_output=True, text=True, check=False, timeout=INSTALL_TIMEOUT_S
    )
    if result.returncode:
        raise ServerFailedError(f"{script} --install failed\n{result.stdout}{result.stderr}")


@contextmanager
def live_questdb(directory: Path, *, settings: Mapping[str, str] = QUESTDB_SETTINGS) -> Iterator[LiveQuestDB]:
    """Run a QuestDB whose root directory is ``directory``; unless told otherwise it makes small row groups."""
    with _running("questdb.sh", directory, settings) as announcement:
        server = LiveQuestDB(http_port=_port(announcement), root=directory)
        _wait_until_healthy(server)
        yield server


@contextmanager
def live_minio(directory: Path) -> Iterator[LiveS3]:
    """Run a MinIO that keeps its objects in ``directory``."""
    with _live_s3("minio.sh", directory, "MINIO_ROOT_USER", "MINIO_ROOT_PASSWORD") as server:
        yield server


@contextmanager
def live_versitygw(directory: Path) -> Iterator[LiveS3]:
    """Run a versitygw that keeps its objects in ``directory``."""
    with _live_s3("versitygw.sh", directory, "ROOT_ACCESS_KEY", "ROOT_SECRET_KEY") as server:
        yield server


@contextmanager
def live_cold_store(directory: Path, *, seed_days: int, seed_class: str) -> Iterator[LiveS3]:
    """Run the cold store of localstack/, with so many days of trades in it.

    Args:
        directory: For its data, and for what the script prints.
        seed_days: How many.
        seed_class: Storage class of their data.
    """
    settings = {
        "SEED_DAYS": str(seed_days),
        "SEED_CLASS": seed_class,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",  # the script's `python3` is to be this one
    }
    data = directory / "data"
    with _running("cold_store.sh", directory, settings, str(data)) as announcement:
        endpoint_url = f"http://127.0.0.1:{_port(announcement)}"
        yield LiveS3(endpoint_url=endpoint_url, user="any", password="any", log=data / "server.log")  # noqa: S106


@contextmanager
def live_localstack(directory: Path) -> Iterator[LiveS3]:
    """Run the S3 of LocalStack, which takes any credentials; its log is in ``directory``."""
    with _running("localstack.sh", directory, {}) as announcement:
        endpoint_url = f"http://127.0.0.1:{_port(announcement)}"
        yield LiveS3(endpoint_url=endpoint_url, user="any", password="any", log=directory / "server.log")  # noqa: S106


@contextmanager
def live_toxiproxy(upstream: LiveS3, directory: Path) -> Iterator[LiveToxiproxy]:
    """Run a toxiproxy in front of an S3 server.

    Args:
        upstream: The server.
        directory: For what the script prints.
    """
    with _running("toxiproxy.sh", directory, {}, upstream.endpoint_url.removeprefix("http://")) as announcement:
        control_url, proxy_url = re.findall(r"http://127\.0\.0\.1:\d+", announcement)[:2]
        yield LiveToxiproxy(control_url=control_url, store=replace(upstream, endpoint_url=proxy_url))


@contextmanager
def _live_s3(script: str, directory: Path, user_variable: str, password_variable: str) -> Iterator[LiveS3]:
    user, password = secrets.token_hex(8), secrets.token_hex(16)
    with _running(script, directory, {user_variable: user, password_variable: password}) as announcement:
        endpoint_url = f"http://127.0.0.1:{_port(announcement)}"
        yield LiveS3(endpoint_url=endpoint_url, user=user, password=password, log=directory / "server.log")


@contextmanager
def _running(script: str, directory: Path, settings: Mapping[str, str], argument: str | None = None) -> Iterator[str]:
    """Run a script until the end of the block; the value is what it printed when its server was ready.

    Args:
        script: Its name.
        directory: For its data, and for what it prints.
        settings: Environment variables.
        argument: Of the script; None is the directory.
    """
    directory.mkdir(parents=True, exist_ok=True)
    printed = directory / f"{script}.out"
    with printed.open("wb") as output:
        # A group of its own: Ctrl-C reaches the tests first, and the server can be killed with all it started. Should
        # the tests be killed instead, the script notices that its parent is gone.
        process = subprocess.Popen(
            [SCRIPTS / script, argument or directory],
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


# --- A toxiproxy: a bad network between us and a server, switched by HTTP ---------------------------------------------


_PROXY = "/proxies/store"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveToxiproxy:
    """A running toxiproxy with one proxy."""

    control_url: str
    store: LiveS3
    """The server as it is reached through the proxy."""

    @contextmanager
    def toxic(self, kind: str, *, toxicity: float = 1.0, **attributes: int) -> Iterator[None]:
        """Make the network bad within the block.

        Args:
            kind: Of toxic: ``latency``, ``slicer``, ``bandwidth``, ``limit_data``, ``reset_peer`` or ``timeout``.
            toxicity: Share of the connections.
            **attributes: Of the toxic; times in milliseconds, sizes in bytes.
        """
        toxic = {"name": kind, "type": kind, "toxicity": toxicity, "attributes": attributes}
        self._send("POST", f"{_PROXY}/toxics", toxic)
        try:
            yield
        finally:
            self._send("DELETE", f"{_PROXY}/toxics/{kind}")

    @contextmanager
    def down(self) -> Iterator[None]:
        """Refuse connections within the block; connections that are open are closed."""
        self._send("POST", _PROXY, {"enabled": False})
        try:
            yield
        finally:
            self._send("POST", _PROXY, {"enabled": True})

    def _send(self, method: str, path: str, content: dict[str, Any] | None = None) -> None:
        body = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(self.control_url + path, body, method=method)  # noqa: S310 - our own server
        # A proxy of the environment must not see this: the address is this machine's own.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=60) as answer:  # a toxic is dropped once what it holds was sent
            answer.read()
