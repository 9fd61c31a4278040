"""The report of a scan: complete, for any names, without secrets, and without anything from elsewhere."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import coldparquet as cp
from coldparquet.prices import PriceTable
from coldparquet.ranges import ByteRange
from coldparquet.records import replace
from coldparquet.report import ScanReport, html_report, scan_report, svg_waterfall
from coldparquet.report.kinds import kind_of, purpose_of, remarks_on
from coldparquet.scan.stats import ScanStatistics
from coldparquet.storage.log import RequestRecord
from coldparquet.storage.memory import MemoryStore
from tests.support.parquet_footers import parquet_bytes

SVG = "{http://www.w3.org/2000/svg}"
NASTY = "<script>alert('x')</script>\"&\x00\x1b]8;;http://evil\x07\ud800\ufffe\x85\u202e\u2066"

FIRST = RequestRecord(
    operation="get",
    path="bucket/trades/2024-03-01.7/data.parquet",
    byte_range=ByteRange(100, 4196),
    reason="row groups 0-3: ts, price",
    started_s=0.050,
    finished_s=0.100,
    fetched_bytes=4096,
    status="ok",
    etag='"1"',
    role="data",
    waited_s=0.010,
    first_byte_s=0.080,
    http_status=206,
    storage_class="GLACIER_IR",
)
LISTING = replace(
    FIRST, operation="list", path="bucket/trades", byte_range=None, reason="listing", role="metadata", started_s=0.0
)
STATISTICS = ScanStatistics(
    request_count=2,
    round_trips=2,
    fetched_bytes=4096,
    wanted_bytes=4000,
    gap_bytes=96,
    dollars=0.00001,
    cache_hits=3,
    cache_hit_bytes=2048,
    retries=1,
    hedges_sent=2,
    hedges_won=1,
    row_count=1234,
    decode_s=0.02,
    waited_s=0.01,
    elapsed_s=0.2,
    physical_limit_s=0.1,
)


def report_of(
    records: Sequence[RequestRecord], *, url: str = "s3://bucket/trades", predicate: str | None = None
) -> ScanReport:
    return ScanReport(
        url=url,
        columns=("ts", "price"),
        predicate=predicate,
        limit=None,
        plan=None,
        statistics=STATISTICS,
        records=tuple(records),
        prices=PriceTable.default(),
        has_prices=True,
        client_s=0.031,
        store="s3 (eu-west-1)",
        made_at=datetime(2024, 3, 1, 12, 30, tzinfo=UTC),
    )


class Page(HTMLParser):
    """The elements of a page; fails where one is not closed."""

    VOID = frozenset({"meta", "br"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += f" {data}"


def parsed(drawing: str) -> ET.Element:
    return ET.fromstring(drawing)  # noqa: S314 - our own document


def test_the_page_tells_what_was_asked_and_what_it_cost() -> None:
    text = Page(html_report(report_of([LISTING, FIRST], predicate="price > 3"))).text
    for told in ("s3://bucket/trades", "ts, price", "price > 3", "1,234", "2 round trips", "1 sent again", "200 ms"):
        assert told in text
    for told in ("4 KiB", "96 B of gaps", "2 hedges, 1 won", "2.0 x the least possible", "$0.000010", "GLACIER_IR"):
        assert told in text
    assert "row groups 0-3: ts, price" in text
    assert "[100, 4196)" in text
    assert f"s3 (eu-west-1) · 2024-03-01 12:30:00 UTC · coldparquet {cp.__version__}" in text
    assert "31 ms of it without a request" in text


def test_numbers_that_are_no_plain_counts_explain_themselves() -> None:
    page = Page(html_report(report_of([LISTING, FIRST])))
    titles = " ".join(attributes.get("title") or "" for _, attributes in page.elements)
    assert "least possible time for these requests is 100 ms: 2 round trips" in titles
    assert "longest chain of requests" in titles


def test_a_drawing_says_what_was_asked_where_and_when() -> None:
    drawing = report_of([LISTING, FIRST], predicate="price > 3").document(".svg")
    asked = "s3://bucket/trades: ts, price where price > 3"
    [title, *_] = parsed(drawing).iter(f"{SVG}title")
    assert title.text == f"{asked}: 2 requests over time"
    shown = [text.text for text in parsed(drawing).iter(f"{SVG}text")]
    assert shown[:2] == [asked, f"s3 (eu-west-1) · 2024-03-01 12:30:00 UTC · coldparquet {cp.__version__}"]


def test_times_without_a_request_are_shaded() -> None:
    later = replace(FIRST, started_s=0.400, finished_s=0.500, first_byte_s=None, waited_s=0.0)
    early = replace(LISTING, finished_s=0.100)
    for drawing in (svg_waterfall([early, later]), html_report(report_of([early, later]))):
        [idle] = re.findall(r'<rect class="idle" x="([\d.]+)%?" width="([\d.]+)%?".*?<title>(.*?)</title>', drawing)
        assert idle[2] == "no request for 300 ms: the client works"
    assert float(idle[0]) == pytest.approx(100 * 0.110 / 0.510, rel=0.01)
    assert float(idle[1]) == pytest.approx(100 * 0.300 / 0.510, rel=0.01)
    assert 'class="idle" x' not in svg_waterfall([early, replace(later, waited_s=0.3)])  # it waited for a slot


def test_the_page_needs_nothing_else() -> None:
    page = Page(html_report(report_of([LISTING, FIRST])))
    assert not {tag for tag, _ in page.elements} & {
        "script",
        "link",
        "img",
        "iframe",
        "object",
        "embed",
        "base",
        "form",
    }
    for _, attributes in page.elements:
        assert not set(attributes) & {"src", "href", "xlink:href", "style", "srcset"}
        assert not [name for name in attributes if name.startswith("on")]
    [policy] = [attributes["content"] for _, attributes in page.elements if "http-equiv" in attributes]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"
    assert "url(" not in html_report(report_of([FIRST]))
    assert "@import" not in html_report(report_of([FIRST]))


def test_both_follow_the_screen() -> None:
    for text in (html_report(report_of([FIRST])), svg_waterfall([FIRST])):
        assert "prefers-color-scheme: dark" in text
        assert set(re.findall(r"var\((--[a-z]+)\)", text)) <= set(re.findall(r"(--[a-z]+):", text))


def test_names_are_shown_as_they_stand() -> None:
    record = replace(FIRST, path=f"bucket/{NASTY}/data.parquet", reason=NASTY, status=NASTY, storage_class=NASTY)
    page = html_report(report_of([record], url=NASTY, predicate=NASTY))
    for text in (page, svg_waterfall([record])):
        assert "<script" not in text
        assert not set(text) & set("\x00\x1b\x07\x85\ufffe\ud800\u202e\u2066")
        text.encode()
    assert Page(page).text.count("alert('x')") >= 5
    parsed(svg_waterfall([record]))


@given(text=st.text(st.characters()), number=st.floats(0, 1e6))
def test_any_text_makes_a_sound_document(text: str, number: float) -> None:
    record = replace(FIRST, path=f"{text}/{text}", reason=text, started_s=number, finished_s=number, first_byte_s=None)
    parsed(svg_waterfall([record, record]))
    Page(html_report(report_of([record], url=text, predicate=text)))


def bars(text: str) -> list[tuple[str, float, float]]:
    """Class, left end and right end of the bars."""
    lines = list(parsed(text).iter(f"{SVG}g"))
    rects = [rect for line in lines for rect in line.iter(f"{SVG}rect") if "class" in rect.attrib]
    return [(rect.attrib["class"], float(rect.attrib["x"]), float(rect.attrib["width"])) for rect in rects]


def test_bars_are_where_their_times_are() -> None:
    # The chart is 100 ms long: the waiting line from 40 ms on, the bar from 50 ms on, the first byte at 80 ms.
    drawing = svg_waterfall([LISTING, FIRST])
    [listing_waits, listing, latency, transfer] = bars(drawing)
    scale = transfer[2] / 0.020
    assert (listing_waits[0], listing[0]) == ("listing latency", "listing")
    assert (latency[0], transfer[0]) == ("data latency", "data")
    assert latency[2] == pytest.approx(0.030 * scale, rel=1e-2)
    assert transfer[1] == pytest.approx(latency[1] + latency[2], rel=1e-3)
    waiting = [line for line in parsed(drawing).iter(f"{SVG}line") if line.attrib["class"] == "waiting"]
    assert float(waiting[1].attrib["x2"]) == latency[1]
    assert float(waiting[1].attrib["x1"]) == pytest.approx(latency[1] - 0.010 * scale, rel=1e-2)


def test_every_request_is_visible_however_short() -> None:
    instant = replace(FIRST, started_s=0.0, finished_s=0.0, first_byte_s=None, waited_s=0.0)
    for records in ([instant], [instant, replace(FIRST, finished_s=1e5)]):
        assert all(width >= 1 for _, _, width in bars(svg_waterfall(records)))


def test_no_requests_at_all() -> None:
    assert "0 requests" in svg_waterfall([])
    Page(html_report(report_of([])))


def test_of_very_many_requests_the_first_ones_are_drawn() -> None:
    text = svg_waterfall([FIRST] * 2_000)
    assert len(list(parsed(text).iter(f"{SVG}g"))) == 499
    assert "... and 1,501 more requests" in text
    assert "... and 1,000 more requests" in html_report(report_of([FIRST] * 6_000))


@pytest.mark.parametrize(
    ("changes", "kind", "remarks"),
    [
        ({}, "data", ()),
        ({"role": "metadata"}, "metadata", ()),
        ({"operation": "info", "role": "metadata"}, "metadata", ()),
        ({"operation": "list"}, "listing", ()),
        ({"operation": "upload part"}, "writing", ()),
        ({"status": "SlowDown", "attempt": 2}, "failed", ("attempt 2", "SlowDown")),
        ({"status": "cancelled", "is_hedge": True}, "data", ("hedge", "cancelled")),
        ({"status": "NotFound", "role": "metadata"}, "metadata", ("not there",)),
    ],
)
def test_kinds_and_remarks(changes: dict[str, object], kind: str, remarks: tuple[str, ...]) -> None:
    record = replace(FIRST, **changes)
    assert kind_of(record) == kind
    assert remarks_on(record) == remarks


def test_requests_for_objects_without_a_directory() -> None:
    assert purpose_of(replace(FIRST, path="data.parquet")) == "row groups 0-3: ts, price"
    assert purpose_of(FIRST).startswith("2024-03-01.7 ")


def test_what_is_unusual_is_seen_however_long_the_purpose() -> None:
    record = replace(FIRST, reason="row groups 0-3: " + ", ".join(["column"] * 30), status="SlowDown", attempt=2)
    [label] = [
        text.text or ""
        for line in parsed(svg_waterfall([record])).iter(f"{SVG}g")
        for text in line.iter(f"{SVG}text")
        if "class" not in text.attrib
    ]
    assert label.endswith("... [attempt 2] [SlowDown]")
    assert len(label) <= 62


async def test_a_report_of_one_scan_begins_with_its_first_request() -> None:
    store = MemoryStore()
    await store.put("2024-03-01/data.parquet", parquet_bytes(pa.table({"id": [1, 2, 3]})), overwrite=False)
    async with cp.open_partition("2024-03-01", store=store) as table:
        scan = table.scan(["id"], "id > 1", limit=5)
        await scan.to_arrow()
        report = scan_report(scan, plan=await scan.plan())
        whole = scan_report(scan, records=table.request_log)
    assert min(record.started_s - record.waited_s for record in report.records) == 0.0
    assert len(whole.records) > len(report.records) == scan.stats.request_count
    assert (report.columns, report.predicate, report.limit) == (("id",), "id > 1", 5)
    assert not report.has_prices
    text = Page(html_report(report)).text
    assert "Read plan for 2024-03-01" in text
    assert "$" not in text.partition("Read plan")[0]


# --- The report and the drawing in a real browser, where there is one: they are shown, follow the screen, and ask
# for nothing


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium here: the report was not looked at in a browser"
)

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
    client_s=0.0,
    store="s3 (eu-west-1)",
    made_at=datetime(2024, 3, 1, 12, 30, tzinfo=UTC),
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


@pytest.mark.slow
@needs_browser
def test_the_page_is_shown_and_nothing_in_it_runs(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(html_report(REPORT), encoding="utf-8")
    shown, complaints = chromium("--dump-dom", page.as_uri(), profile=tmp_path / "profile")
    assert "<title>coldparquet: s3://bucket/&lt;script&gt;" in shown
    assert shown.count("<svg") == 3  # what lies behind, the axis, and the bar of one request
    assert "taken over'&lt;/script&gt;</h1>" in shown
    assert "<img" not in shown
    assert "CONSOLE" not in complaints  # no policy was broken, no style misunderstood


@pytest.mark.slow
@needs_browser
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
