"""The report and the drawing in a real browser, where there is one: they are shown, follow the screen, and ask for nothing."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from coldparquet.prices import PriceTable
from coldparquet.ranges import ByteRange
from coldparquet.report import ScanReport, html_report, svg_waterfall
from coldparquet.scan.stats import ScanStatistics
from coldparquet.storage.log import RequestRecord

if TYPE_CHECKING:
    from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: the report was not looked at in a browser"),
]

RECORD = RequestRecord(
    operation="get",
    path="bucket/<i>trades</i>/2024-03-01/data.parquet",
    byte_range=ByteRange(0, 4096),
    reason="row group 0: <img src=x onerror=alert(1)>",
    started_s=0.0,
    finished_s=0.1,
    fetched_bytes=4096,
    status="ok",
    etag=None,
    role="data",
    first_byte_s=0.05,
)
REPORT = ScanReport(
    url="s3://bucket/<script>document.title='taken over'</script>",
    columns=("ts",),
    predicate=None,
    limit=None,
    plan=None,
    statistics=ScanStatistics(
        request_count=1,
        round_trips=1,
        fetched_bytes=4096,
        wanted_bytes=4096,
        gap_bytes=0,
        dollars=0.0,
        cache_hits=0,
        cache_hit_bytes=0,
        retries=0,
        hedges_sent=0,
        hedges_won=0,
        row_count=1,
        decode_s=0.0,
        waited_s=0.0,
        elapsed_s=0.1,
        physical_limit_s=0.1,
    ),
    records=(RECORD,),
    prices=PriceTable.default(),
    has_prices=True,
)
LIGHT, DARK = 1, 0
"""Chromium's numbers for what the screen prefers."""


def chromium(*arguments: str, profile: Path, scheme: int = LIGHT) -> tuple[str, str]:
    """Run the browser without a network; return what it prints, and what it complains about."""
    assert CHROMIUM
    result = subprocess.run(
        [
            CHROMIUM,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            "--enable-logging=stderr",
            f"--user-data-dir={profile}",
            f"--blink-settings=preferredColorScheme={scheme}",
            *arguments,
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return result.stdout, result.stderr


def test_the_page_is_shown_and_nothing_in_it_runs(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(html_report(REPORT), encoding="utf-8")
    shown, complaints = chromium("--dump-dom", page.as_uri(), profile=tmp_path / "profile")
    assert "<title>coldparquet: s3://bucket/&lt;script&gt;" in shown
    assert shown.count("<svg") == 1
    assert "taken over'&lt;/script&gt;</h1>" in shown
    assert "<img" not in shown
    assert "CONSOLE" not in complaints  # no policy was broken, no style misunderstood


@pytest.mark.parametrize("suffix", ["html", "svg"])
def test_it_follows_the_screen(tmp_path: Path, suffix: str) -> None:
    page = tmp_path / f"report.{suffix}"
    page.write_text(html_report(REPORT) if suffix == "html" else svg_waterfall([RECORD]), encoding="utf-8")
    pictures = []
    for scheme in (LIGHT, DARK):
        picture = tmp_path / f"{scheme}.png"
        chromium(f"--screenshot={picture}", page.as_uri(), profile=tmp_path / "profile", scheme=scheme)
        pictures.append(picture.read_bytes())
    assert pictures[0] != pictures[1]
