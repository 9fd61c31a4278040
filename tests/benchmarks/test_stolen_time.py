"""Times that were measured while a host served other machines are marked as such."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from coldparquet_bench import stolen_time
from coldparquet_bench.measurement import COLD_STORE, OURS, Result, Spent
from coldparquet_bench.report import report
from coldparquet_bench.stolen_time import StolenTime

if TYPE_CHECKING:
    from pathlib import Path

NOTHING = Spent(log=(), store=COLD_STORE)
RESULT = Result(
    answer=1,
    first_s=0.2,
    warm_s=0.1,
    warm_times_s=(0.1,),
    first_processor_s=None,
    warm_processor_s=None,
    peak_memory_mb=None,
    stolen_fraction=None,
    first=NOTHING,
    warm=NOTHING,
)


def test_what_the_kernel_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "stat"
    monkeypatch.setattr(stolen_time, "_FILE", file)
    file.write_text("cpu 100 0 50 800 10 0 0 40 7 7\ncpu0 1 2 3\n")
    stolen = StolenTime()
    assert stolen.fraction is None, "no time has passed"
    file.write_text("cpu 150 0 60 820 10 0 0 60 9 9\ncpu0 1 2 3\n")
    assert stolen.fraction == pytest.approx(20 / 100), "guests' times are parts of the others"


@pytest.mark.parametrize("content", [None, "", "intr 1 2\n", "cpu 1 2 3 4\n"])
def test_a_system_that_does_not_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None) -> None:
    if content is not None:
        (tmp_path / "stat").write_text(content)
    monkeypatch.setattr(stolen_time, "_FILE", tmp_path / "stat")
    assert StolenTime().fraction is None


@pytest.mark.parametrize(("fraction", "is_told"), [(None, False), (0.0, False), (0.02, False), (0.21, True)])
def test_the_report_says_so(fraction: float | None, *, is_told: bool) -> None:
    disturbed = replace(RESULT, stolen_fraction=fraction)
    text = report({"W1": {OURS: RESULT, "Polars": disturbed}})
    assert ("The host gave 21% of the processors to other machines meanwhile: measure again." in text) == is_told
