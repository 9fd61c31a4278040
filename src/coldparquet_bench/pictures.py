"""Results as pictures, for light and for dark pages."""

from __future__ import annotations

import re
from importlib.util import find_spec
from statistics import median
from typing import TYPE_CHECKING, Any

from coldparquet.errors import UnsupportedError
from coldparquet_bench.measurement import OURS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


_INKS = {"light": ("#1f2328", "#ffffff"), "dark": ("#e6edf3", "#0d1117")}
"""Of text and of the page, as GitHub has them."""
_OURS, _OTHERS = "#2f81f7", "#8b949e"
_MEASURES: dict[str, Callable[[Mapping[str, Any]], float]] = {
    "first call, ms": lambda result: result["first_s"] * 1000,
    "requests": lambda result: result["first"]["requests"],
    "MB fetched": lambda result: result["first"]["bytes"] / 1e6,
    "repeated call, ms": lambda result: result["warm_s"] * 1000,
}
"""Of the results of one reader as :func:`~coldparquet_bench.report.as_data` writes them."""
_ROW_HEIGHT, _WIDTH = 0.26, 11.0
"""Inches."""
_TITLE_ROWS = 2.4
"""What the titles of a question and of its measures take, in rows, with the space above them."""
_NAMES_SHARE = 0.17
"""Of the width, for the readers' names."""
_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text, so that the picture is small and can be searched
    "svg.hashsalt": "coldparquet",  # the same results make the same file
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
}
_MOST_MEDIANS = 3.0
"""Bars longer than so many times the median are cut, or one very slow reader would hide how the others compare."""
_CUT_AT, _CUT_END = 0.90, 0.93
"""Where a cut bar has its gap, as shares of the longest one."""


def require_matplotlib() -> None:
    """Make sure that pictures can be drawn, before anything is measured for them."""
    if find_spec("matplotlib") is None:
        raise UnsupportedError("pictures need matplotlib: pip install 'coldparquet[bench]'", kind="MissingPackage")


def draw(data: Mapping[str, Any], directory: Path) -> list[Path]:
    """Draw one picture for all questions, in two colour schemes: time, requests and bytes of every reader.

    The picture of one question is named after it.
    """
    require_matplotlib()
    import matplotlib as mpl
    from matplotlib.figure import Figure

    results: Mapping[str, Any] = {question.partition(": ")[2]: found for question, found in data["results"].items()}
    name = re.sub(r"\W+", "-", next(iter(results))) if len(results) == 1 else "benchmarks"
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for scheme, (ink, page) in _INKS.items():
        with mpl.rc_context({**_SETTINGS, "text.color": ink}):
            heights = [len(of_question) + _TITLE_ROWS for of_question in results.values()]
            figure = Figure(figsize=(_WIDTH, _ROW_HEIGHT * sum(heights)), facecolor=page)
            rows = figure.subfigures(len(results), 1, height_ratios=heights, squeeze=False)[:, 0]
            for row, (question, of_question) in zip(rows, results.items(), strict=True):
                _draw_question(row, question, of_question, ink, page)
            path = directory / f"{name}-{scheme}.svg"
            figure.savefig(path, facecolor=page, metadata={"Date": None})
            written.append(path)
    return written


def _draw_question(figure: Any, question: str, results: Mapping[str, Any], ink: str, page: str) -> None:
    figure.set_facecolor(page)
    names = list(results)
    row = 1 / (len(names) + _TITLE_ROWS)
    figure.suptitle(
        question[:1].upper() + question[1:],
        color=ink,
        x=0.01,
        y=1 - 0.75 * row,
        ha="left",
        va="top",
        fontsize=10,
        fontweight="bold",
    )
    places = {"left": _NAMES_SHARE, "right": 0.995, "top": 1 - _TITLE_ROWS * row, "bottom": 0, "wspace": 0.1}
    colours = [_OURS if name.startswith(OURS) else _OTHERS for name in names]
    for number, (axes, (label, measure)) in enumerate(
        zip(figure.subplots(1, len(_MEASURES), gridspec_kw=places), _MEASURES.items(), strict=True)
    ):
        values = [measure(results[name]) for name in names]
        longest = max(min(max(values), _MOST_MEDIANS * median(values)), 1e-9)
        bars = axes.barh(
            range(len(names)), [min(value, longest) for value in values], color=colours, height=0.7, clip_on=False
        )
        axes.bar_label(bars, labels=[_short(value) for value in values], padding=3, color=ink, fontsize=8)
        cut = [row for row, value in enumerate(values) if value > longest]
        axes.barh(cut, (_CUT_END - _CUT_AT) * longest, left=_CUT_AT * longest, color=page, height=0.8, clip_on=False)
        axes.set_yticks(range(len(names)), names if number == 0 else [""] * len(names), color=ink)
        axes.set_xticks([])
        axes.set_xlim(0, longest * 1.35)
        axes.invert_yaxis()
        axes.set_title(label, color=ink, fontsize=8, loc="left")
        axes.set_facecolor(page)
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"
