"""What the scripts of localstack/ answer without starting anything."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.support.live_servers import SCRIPTS

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
