"""Real servers for the integration tests, one of each for the whole run."""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterator

import pytest

from tests.support.live_questdb import LiveQuestDB, LiveTable
from tests.support.live_servers import (
    REQUIRED_VARIABLE,
    LiveS3,
    LiveToxiproxy,
    is_installed,
    live_localstack,
    live_minio,
    live_questdb,
    live_toxiproxy,
    live_versitygw,
)

SHOWN_LOG_LINES = 60


@pytest.fixture(scope="session")
def questdb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveQuestDB]:
    """A QuestDB with small row groups; its tables are files of this machine."""
    _need_installed("QuestDB", "questdb.sh")
    with live_questdb(tmp_path_factory.mktemp("questdb")) as server:
        yield server


@pytest.fixture(scope="session")
def minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveS3]:
    """A MinIO with one bucket."""
    _need_installed("MinIO", "minio.sh")
    with live_minio(tmp_path_factory.mktemp("minio")) as server:
        yield server


@pytest.fixture(scope="session")
def versitygw(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveS3]:
    """A versitygw with one bucket. It takes minutes to build and is the second of its kind, so that tests do without it."""
    _need_installed("versitygw", "versitygw.sh", is_required=False)
    with live_versitygw(tmp_path_factory.mktemp("versitygw")) as server:
        yield server


@pytest.fixture(scope="session")
def localstack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveS3]:
    """The S3 of LocalStack with one bucket. It is 200 MB from PyPI, so that tests do without it rather than fetch it."""
    _need_installed("LocalStack", "localstack.sh", is_required=False)
    with live_localstack(tmp_path_factory.mktemp("localstack")) as server:
        yield server


@pytest.fixture(scope="session")
def toxiproxy(minio: LiveS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveToxiproxy]:
    """A bad network in front of the MinIO."""
    _need_installed("toxiproxy", "toxiproxy.sh")
    with live_toxiproxy(minio, tmp_path_factory.mktemp("toxiproxy")) as server:
        yield server


@pytest.fixture
def live_table(questdb: LiveQuestDB, request: pytest.FixtureRequest) -> LiveTable:
    """A table of the running QuestDB, yet to be created; its name is that of the test."""
    return LiveTable(server=questdb, name=re.sub(r"\W+", "_", request.node.name).strip("_"))


def _need_installed(server: str, script: str, *, is_required: bool = True) -> None:
    if is_installed(script):
        return
    message = f"{server} was not started: 'localstack/{script} --install' was never run here"
    if is_required and os.environ.get(REQUIRED_VARIABLE):
        pytest.fail(f"{message}, and {REQUIRED_VARIABLE} is set")
    pytest.skip(message)  # which the end of the run repeats loudly


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the servers printed last beside a test that failed."""
    report = yield
    if report.failed:
        for server in getattr(item, "funcargs", {}).values():
            if isinstance(server, LiveQuestDB | LiveS3):
                lines = server.log.read_text(errors="replace").splitlines()[-SHOWN_LOG_LINES:]
                report.sections.append((f"log of {type(server).__name__}", "\n".join(lines)))
    return report
