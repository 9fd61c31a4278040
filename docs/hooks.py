"""Pages of the site that are made when it is built: of files that lie elsewhere in the repository, and of the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from mkdocs.structure.files import File
from typer.cli import get_docs_for_click

from coldparquet.cli.commands import app

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).resolve().parents[1]
COPIED = {
    "benchmarks.md": "tests/benchmarks/README.md",
    "changelog.md": "CHANGELOG.md",
    "house.md": "src/README.md",
}
"""Pages, and the files that they are."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made."""
    for page, source in COPIED.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    files.append(File.generated(config, "reference/commands.md", content=commands()))
    for picture in (ROOT / "tests" / "benchmarks" / "pictures").glob("*.svg"):
        files.append(File.generated(config, f"pictures/{picture.name}", abs_src_path=str(picture)))
    return files


def commands() -> str:
    """Return the page of every command and its options, as its ``--help`` says them."""
    command = typer.main.get_command(app)
    with typer.Context(command, info_name="coldparquet") as context:
        text: str = get_docs_for_click(obj=command, ctx=context, name="coldparquet", title="Commands")
    return re.sub(r"^\* `--(install|show)-completion.*\n", "", text, flags=re.MULTILINE)


def on_page_content(html: str, **_: object) -> str:
    """Show the names that docstrings refer to in reStructuredText as code."""
    html = re.sub(r":(?:attr|class|func|meth|mod):<code>(?:~[\w.]*?)?([\w.]+)</code>", r"<code>\1</code>", html)
    return html.replace("::</p>", ":</p>")
