"""The memory limit holds, measured from outside as the memory of a process; throughput is printed, never asserted."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.benchmarks.memory_ceiling import ROW_BYTES, make_partition, scan_in_child

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROCESS_MB = 100
"""Interpreter and libraries take about 90 MB before anything is read."""


@pytest.mark.benchmark
def test_a_small_limit_bounds_the_memory_of_the_process(tmp_path: Path) -> None:
    make_partition(tmp_path / "day", row_groups=2, row_group_mb=80)
    found = scan_in_child(tmp_path / "day", 32)
    assert found.rows == 2 * (80 * 1024 * 1024 // ROW_BYTES)
    assert found.held_mb <= 32
    assert found.peak_mb - found.before_mb < 100, "without a limit it is the 160 MB of the partition and more"


@pytest.fixture(scope="module")
def four_gigabytes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("memory") / "day"
    make_partition(directory, row_groups=4, row_group_mb=1024)
    yield directory
    shutil.rmtree(directory)


@pytest.mark.soak
@pytest.mark.benchmark
@pytest.mark.parametrize("where", [None, "size < 50"])
def test_four_gigabytes_are_scanned_in_256_mb(four_gigabytes: Path, where: str | None) -> None:
    found = scan_in_child(four_gigabytes, 256, where)
    print(found)
    assert found.peak_mb < 256 + PROCESS_MB
