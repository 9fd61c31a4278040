"""The picture of the imports in one place: who may import whom, and what a plain import must not load."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "coldparquet"

LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"errors", "lazy_names", "ranges", "options", "records", "telemetry", "prices", "progress", "text"}),
    frozenset({"format"}),
    frozenset({"plan"}),
    frozenset({"concurrency"}),
    frozenset({"storage"}),
    frozenset({"decode"}),
    frozenset({"archive"}),
    frozenset({"catalog"}),
    frozenset({"scan"}),
    frozenset({"pieces"}),
    frozenset({"table_scan"}),
    frozenset({"expressions"}),
    frozenset({"table", "opening"}),
    frozenset({"follow"}),
    frozenset({"dataset"}),
    frozenset({"polars", "duckdb", "dask", "ray"}),
    frozenset({"pipelines", "report"}),
    frozenset({"maintenance"}),
    frozenset({"write"}),
    frozenset({"publish"}),
    frozenset({"__main__", "sync", "cli", "spark"}),
)
"""From left to right: a module imports from its own layer and from those before it.

So the core, up to ``ray``, never imports the tools: what writes, the jobs over whole lakes, Spark.
"""

FORBIDDEN_PAIRS = {("decode", "storage"), ("storage", "format"), ("maintenance", "report"), ("publish", "report")}
DOORS = {"pipelines"}
"""Rooms whose ``__init__`` names classes of rooms to their right, which it imports when they are asked for."""
FRONT_DOORS = LAYERS[-1]
FRONT_DOOR_EXCEPTIONS = {("__main__", "cli"), ("cli", "spark")}
BESIDE_THE_LIBRARY = {"coldparquet_bench": ("cli",), "coldparquet_testing": ("cli",)}
"""Packages that come with the library, and who in it may import them: the commands ``bench`` and ``demo``."""

MODULES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")
NAMED = {".".join(path.relative_to(SOURCE).with_suffix("").parts): path for path in MODULES if path.stem != "__init__"}
"""Modules by name, packages left out."""


def _layer_name(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def _rank(name: str) -> int:
    return next(rank for rank, names in enumerate(LAYERS) if name in names)


def _imports(path: Path, *, when_loaded: bool = False) -> set[str]:
    """Return every name that ``path`` imports, for types only ones among them; ``when_loaded`` leaves out functions."""
    names: set[str] = set()
    nodes: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif not (when_loaded and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
            nodes.extend(ast.iter_child_nodes(node))
    return names


def _modules_imported(path: Path, *, when_loaded: bool = False) -> set[str]:
    """Return the modules of ours that ``path`` imports, without the packages that they lie in."""
    names = _imports(path, when_loaded=when_loaded)
    named = {name for imported in names for name in (imported, imported.rpartition(".")[0])}
    return {name.removeprefix("coldparquet.") for name in named if name.startswith("coldparquet.")} & NAMED.keys()


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_only_from_the_left(path: Path) -> None:
    own = _layer_name(path)
    if path.stem == "__init__" and own in DOORS:
        return
    for name in _imports(path):
        parts = name.split(".")
        assert own in BESIDE_THE_LIBRARY.get(parts[0], (own,)), f"{own} imports {name}, which lies beside the library"
        if parts[0] != "coldparquet" or len(parts) == 1 or name == "coldparquet.__version__":
            continue
        other = parts[1]
        if not (SOURCE / other).exists() and not (SOURCE / f"{other}.py").exists():
            pytest.fail(f"{own} imports {name} from the front door; import it from its own module")
        if other == own:
            continue
        assert _rank(other) <= _rank(own), f"{own} imports {other}, which lies to its right"
        assert (own, other) not in FORBIDDEN_PAIRS, f"{own} must not know {other}"
        if own in FRONT_DOORS and other in FRONT_DOORS:
            assert (own, other) in FRONT_DOOR_EXCEPTIONS, f"front door {own} imports front door {other}"


def test_no_circles() -> None:
    """Modules can be read in an order in which each one knows those before it, its types too."""
    graph = {name: _modules_imported(path, when_loaded=True) - {name} for name, path in NAMED.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"modules import each other: {' -> '.join(error.args[1])}")


SMALL_MODULE_LINES = 80
LARGEST_FOLDER_MODULES = 25
SMALL_FOR_A_REASON = {
    "spark.convert": "executors, which import the engine, do not load what only the driver converts with",
}


def _code_lines(tree: ast.Module) -> int:
    """Count the lines of a module that are neither imports, nor docstrings, nor comments."""
    lines: set[int] = set()
    for node in tree.body:
        if not isinstance(node, ast.Import | ast.ImportFrom):
            lines.update(range(node.lineno, (node.end_lineno or 0) + 1))
    for part in ast.walk(tree):
        if isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant) and isinstance(part.value.value, str):
            lines.difference_update(range(part.lineno, (part.end_lineno or 0) + 1))
    return len(lines)


def test_small_modules_have_several_importers() -> None:
    """A reader who follows a call does not pass through modules that hold little and serve one other."""
    importers: dict[str, set[str]] = {name: set() for name in NAMED}
    for path in MODULES:
        name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        for imported in _modules_imported(path) - {name}:
            importers[imported].add(name)
    found = set()
    for name, path in NAMED.items():
        folder = name.rpartition(".")[0]
        alone = len(importers[name]) == 1 and next(iter(importers[name])).rpartition(".")[0] == folder
        if folder and alone and _code_lines(ast.parse(path.read_text(encoding="utf-8"))) < SMALL_MODULE_LINES:
            found.add(name)
    assert found == SMALL_FOR_A_REASON.keys(), "merge it into the one module that imports it"


def test_a_name_is_one_class() -> None:
    modules: dict[str, list[str]] = {}
    for name, path in NAMED.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules.setdefault(node.name, []).append(name)
    # The blocking classes are named as those that they stand for.
    assert {name: found for name, found in modules.items() if len(found) > 1 and "sync" not in found} == {}


def test_folders_stay_small() -> None:
    sizes = Counter(name.rpartition(".")[0] for name in NAMED)
    assert {folder: size for folder, size in sizes.items() if size > LARGEST_FOLDER_MODULES} == {}


@pytest.mark.parametrize("layer", ["format", "plan"])
def test_pure_layers_do_no_io(layer: str) -> None:
    for path in (SOURCE / layer).rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        awaits = [node for node in ast.walk(tree) if isinstance(node, ast.Await | ast.AsyncFunctionDef)]
        opens = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open"
        ]
        assert not awaits, f"{path} awaits"
        assert not opens, f"{path} opens files"
        roots = {name.split(".")[0] for name in _imports(path)}
        assert not roots & {"pyarrow", "asyncio", "aiohttp", "fsspec"}, f"{path} imports an I/O or Arrow library"


def test_importing_the_package_loads_no_heavy_library() -> None:
    heavy = ("pyspark", "s3fs", "botocore", "aiobotocore", "typer", "rich", "sqlglot", "aiohttp", "moto", "pandas")
    script = f"import sys, coldparquet; print([name for name in {heavy!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_times_found_in_metadata_load_no_pandas() -> None:
    table = SOURCE.parents[1] / "tests" / "golden" / "questdb" / "interval_hour" / "table"
    script = (
        "import sys, coldparquet as cp\n"
        f"with cp.sync.open_table({str(table)!r}) as table:\n"
        "    print(table.scan().first_timestamp().tzinfo, 'pandas' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "UTC False"


def test_the_house_is_described_as_it_is() -> None:
    """``src/README.md`` names every room in the order of the layers, and no module that is not there."""
    text = (SOURCE.parent / "README.md").read_text(encoding="utf-8")
    rooms = re.findall(r"(?m)^    (?:  )?(\w+(?:, \w+)*)(?:   .*|)$", text.split("## Rooms")[1].split("## The way")[0])
    layers = [{name for name in layer if not name.startswith("__")} for layer in LAYERS]
    assert [set(names.split(", ")) for names in rooms] == layers
    for name in re.findall(r"`([a-z_0-9]+(?:\.[A-Za-z_0-9]+)+)`", text):
        module, _, member = name.rpartition(".")
        if name not in NAMED:
            assert module in NAMED, f"there is no {name}"
            assert re.search(rf"(?m)^(class|def|async def) {member}\b", NAMED[module].read_text(encoding="utf-8")), name
    code = "\n".join(path.read_text(encoding="utf-8") for path in MODULES)
    for name in re.findall(r"`([A-Z]\w+|[a-z]+_[a-z_]+)`", text):
        is_defined = re.search(rf"(?m)^(class|def|async def) {name}\b", code)
        assert is_defined or name in NAMED or (SOURCE.parent / name).exists(), f"there is no {name}"
