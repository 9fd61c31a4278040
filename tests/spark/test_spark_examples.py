"""Every example for Spark runs, in the session of the tests."""

from __future__ import annotations

import runpy
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import SparkSession

from tests.support.pages import ROOT, blocks

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark

BLOCKS = [block for block in blocks("python") if "pyspark" in block]
EXAMPLES = sorted((ROOT / "examples").glob("spark_*.py"))


@pytest.fixture(scope="module")
def trades(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The table of the other examples."""
    table = tmp_path_factory.mktemp("examples") / "trades"
    subprocess.run(
        [sys.executable, ROOT / "examples" / "make_trades.py", table], check=True, capture_output=True, timeout=60
    )
    return table


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_example_runs(
    example: Path, trades: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    # An example ends its own session; other tests still need this one.
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)
    runpy.run_path(str(example))["main"](trades)
    assert capfd.readouterr().out.strip()


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("block", BLOCKS)
def test_block_of_a_page_runs(block: str, trades: Path, capfd: pytest.CaptureFixture[str]) -> None:
    # Spark's workers do not follow a change of the working directory.
    exec(block.replace('"trades"', f'"{trades}"').replace('"btc"', f'"{trades.parent / "btc"}"'), {})  # noqa: S102
    assert capfd.readouterr().out.strip()
