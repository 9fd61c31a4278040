from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import coldparquet as cp
from tests.support.odd_table import write_odd_table


@pytest.fixture(scope="session")
def odd_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("odd") / "odd"
    write_odd_table(path)
    return path


@pytest.fixture
def odd(odd_path: Path) -> Iterator[cp.sync.Table]:
    with cp.sync.open_table(str(odd_path)) as table:
        yield table
