"""What notebooks show: sound HTML that says the facts, sends no request, and changes nothing else of the notebook."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import coldparquet as cp
from coldparquet.errors import InvalidInputError
from tests.report.test_scan_report import NASTY, Page
from tests.support.questdb_tables import GOLDEN

TABLE = GOLDEN / "interval_hour" / "table"


def shown(thing: Any) -> str:
    html: str = thing._repr_html_()
    page = Page(html)
    assert not {tag for tag, _ in page.elements} & {"script", "link", "img", "iframe"}
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    style, text = re.fullmatch(r'<div class="coldparquet cell"><style>(.*?)</style>(.*)', html, re.DOTALL).groups()  # type: ignore[union-attr]
    for selectors in re.findall(r"(?m)^([^@}\n][^{\n]*) \{", style):
        assert all(".coldparquet" in selector for selector in selectors.split(", ")), selectors
    return Page(text.removesuffix("</div>")).text


def test_every_object_tells_its_facts_without_a_request() -> None:
    with cp.sync.open_table(TABLE) as table:
        scan = table.scan(where=f"{table.schema.names[0]} is not null", limit=7)
        sent = len(table.request_log)
        told = shown(table)
        for fact in (
            str(TABLE),
            "designated timestamp",
            table.partitions[0].name,
            "native",
            str(table.schema.field(0).type),
        ):
            assert fact in told
        assert f"{len(table.partitions)} partitions" in told
        question = shown(scan)
        assert f"where  {table.schema.names[0]} IS NOT NULL" in question
        assert "at most 7 rows" in question
        assert "Nothing was fetched yet" in question
        assert len(table.request_log) == sent
        plan = scan.plan()
        assert "Read plan for" in shown(plan)
        rows = scan.to_arrow()
        sent = len(table.request_log)
        for thing in (scan, scan.stats):
            assert "until the first byte" in shown(thing)
            assert f" {rows.num_rows:,} " in shown(thing)
        assert "Nothing was fetched yet" not in shown(scan)
        assert len(table.request_log) == sent
        assert "records" not in scan.stats.as_dict()


async def test_both_kinds_of_objects_show_the_same() -> None:
    async with cp.open_table(TABLE) as table:
        told = shown(table)
    with cp.sync.open_table(TABLE) as blocking:
        assert shown(blocking) == told


def test_names_are_shown_as_they_stand(tmp_path: Path) -> None:
    name = NASTY.translate({ord("/"): None, 0: None, 0xD800: None, ord("?"): None})
    shutil.copytree(TABLE, tmp_path / name)
    with cp.sync.open_table(tmp_path / name) as table:
        for thing in (table, table.scan(), table.scan().plan()):
            assert "<script" not in thing._repr_html_()
            assert "alert('x')" in shown(thing)


def test_a_scan_writes_its_report(tmp_path: Path) -> None:
    with cp.sync.open_table(TABLE) as table:
        scan = table.scan(limit=3)
        scan.to_arrow()
        sent = len(table.request_log)
        page, drawing = scan.report(tmp_path / "scan.html"), scan.report(str(tmp_path / "scan.svg"))
        assert len(table.request_log) == sent
        for wrong in ("scan.pdf", "s3://bucket/scan.html"):
            with pytest.raises(InvalidInputError, match=r"a local file that ends in .html or .svg"):
                scan.report(wrong)
    assert "Read plan for" in Page(page.read_text(encoding="utf-8")).text
    assert drawing.read_text(encoding="utf-8").count("<svg") == 1
