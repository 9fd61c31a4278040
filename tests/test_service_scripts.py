"""What the scripts of localstack/ answer without starting anything."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml

import coldparquet as cp
from coldparquet.errors import ArchivedObjectError
from tests.support.live_servers import SCRIPTS, live_cold_store

if TYPE_CHECKING:
    from pathlib import Path

STARTED = sorted(script for script in SCRIPTS.glob("*.sh") if script.name != "server.sh")


def answer(script: Path, argument: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([script, argument], capture_output=True, text=True, check=False, timeout=30)


@pytest.mark.parametrize("script", STARTED, ids=lambda script: script.name)
def test_every_script_tells_how_to_call_it(script: Path) -> None:
    helped, refused = answer(script, "-h"), answer(script, "--nonsense")
    assert (helped.returncode, helped.stderr) == (0, "")
    assert f": {script.name}" in helped.stdout.splitlines()[0]
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == f"{script} knows no option '--nonsense'\n{helped.stdout}"


def test_a_script_with_nothing_to_install_starts_no_server() -> None:
    for argument in ("--install", "--is-installed"):
        done = answer(SCRIPTS / "cold_store.sh", argument)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.slow
async def test_the_cold_store_begins_with_the_days_that_were_asked_for(tmp_path: Path) -> None:
    with live_cold_store(tmp_path, seed_days=2, seed_class="GLACIER") as server:
        async with cp.open_table(f"s3://{server.bucket}/trades", storage_options=server.storage_options) as table:
            assert len(table.partitions) == 2
            assert await table.scan().count() > 0, "from the sidecars, which are in no archive"
            with pytest.raises(ArchivedObjectError):
                await table.scan(limit=1).to_arrow()


def test_with_docker_the_same_services_listen_on_loopback_and_tell_when_they_are_healthy() -> None:
    services: dict[str, Any] = yaml.safe_load((SCRIPTS / "compose.yaml").read_text())["services"]
    assert {f"{name}.sh" for name in services} == {script.name for script in STARTED} - {
        "cold_store.sh",  # it is this package
        "delta_jars.sh",
        "spark_jars.sh",
        "versitygw.sh",  # MinIO is the real server of people with Docker
    }
    for name, service in services.items():
        assert all(port.startswith("127.0.0.1:") for port in service["ports"]), name
        assert service["healthcheck"]["test"], name
        image, _, tag = service["image"].rpartition(":")
        assert image, name
        assert tag != "latest", name
    host_ports = [port.split(":")[1] for service in services.values() for port in service["ports"]]
    assert len(set(host_ports)) == len(host_ports)


@pytest.mark.parametrize("name", ["questdb", "toxiproxy"])
def test_with_docker_a_service_is_of_the_version_of_its_script(name: str) -> None:
    service = yaml.safe_load((SCRIPTS / "compose.yaml").read_text())["services"][name]
    assert re.search(
        rf"^version=v?{re.escape(service['image'].rpartition(':')[2])}$",
        (SCRIPTS / f"{name}.sh").read_text(),
        re.MULTILINE,
    )
