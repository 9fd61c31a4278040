"""The README and the documentation, whose blocks of code are tests."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PAGES = [README, *sorted(ROOT.glob("docs/pages/**/*.md"))]


def blocks(language: str, pages: Iterable[Path] = PAGES) -> list[str]:
    """Return the blocks of a language, each once; ``text`` and ``console`` are of what needs a store or a cluster."""
    found = (re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE) for page in pages)
    return list(dict.fromkeys(block for of_page in found for block in of_page))
