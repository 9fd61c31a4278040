"""Public Parquet files, compared with pyarrow in every mode: ``python -m tests.corpora``.

The repositories are cloned (about 60 MB of Parquet files) unless ``COLDPARQUET_CORPORA`` names a directory that holds
checkouts of them, as ``OWNER/NAME``. Prints what is not equal, and exits with 1 if a row differs, or if a file that
pyarrow reads is refused for anything but a type that we do not read.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.corpora.comparison import Mode, Verdict, compare

REPOSITORIES = (
    "apache/arrow-testing",
    "apache/drill",
    "apache/parquet-testing",
    "dask/fastparquet",
    "delta-io/delta",
    "delta-io/delta-rs",
    "duckdb/duckdb",
    "hyparam/hyparquet",
    "parquet-go/parquet-go",
    "pola-rs/polars",
    "rapidsai/cudf",
)
KNOWN = {
    "repeated_no_annotation.parquet": "its footer counts 0 rows, its row groups 6",
}
"""Files that pyarrow reads and we refuse although their types are no reason, with ours."""
_ENDINGS = (".parquet", ".parq")
_CACHE = Path(os.environ.get("COLDPARQUET_CACHE") or Path.home() / ".cache" / "coldparquet") / "corpora"
_CLONE_TIMEOUT_S = 600
_COMPARE_TIMEOUT_S = 120


class NoCorporaError(Exception):
    """The repositories cannot be had; the message says why."""


def corpora() -> Path:
    """Return the directory of the repositories; clones them if need be.

    Raises:
        NoCorporaError: There is no network, or no git.
    """
    given = os.environ.get("COLDPARQUET_CORPORA")
    if given:
        return Path(given)
    for repository in REPOSITORIES:
        directory = _CACHE / repository
        if not (directory / ".git").exists():
            _clone(f"https://github.com/{repository}", directory)
    return _CACHE


def _clone(url: str, directory: Path) -> None:
    partial = directory.with_name(f"{directory.name}.partial")
    for command in (
        ["git", "clone", "-q", "--depth", "1", "--filter=blob:none", "--no-checkout", url, str(partial)],
        ["git", "-C", str(partial), "sparse-checkout", "set", "--no-cone", *(f"*{ending}" for ending in _ENDINGS)],
        ["git", "-C", str(partial), "checkout", "-q"],
    ):
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=_CLONE_TIMEOUT_S)
        except (subprocess.SubprocessError, OSError) as error:
            raise NoCorporaError(f"{url} cannot be cloned: {getattr(error, 'stderr', None) or error}") from error
    partial.rename(directory)


def distinct_files(root: Path) -> list[Path]:
    """Return the Parquet files below ``root``, each content once, sorted."""
    found: dict[bytes, Path] = {}
    for path in sorted(root.rglob("*")):
        if path.suffix in _ENDINGS and path.is_file():
            found.setdefault(hashlib.sha256(path.read_bytes()).digest(), path)
    return sorted(found.values())


def verdicts(path: Path) -> list[Verdict]:
    """Compare one file in every mode; what differs, or is no error of ours, is a verdict ``wrong``."""
    return [_verdict(path.read_bytes(), mode) for mode in Mode]


def _verdict(data: bytes, mode: Mode) -> Verdict:
    try:
        return asyncio.run(asyncio.wait_for(compare(data, mode), _COMPARE_TIMEOUT_S))
    except Exception as error:  # noqa: BLE001 - all are findings
        return Verdict("wrong", f"{type(error).__name__}: {error}")


def is_finding(path: Path, verdict: Verdict) -> bool:
    """Whether a verdict is a mistake of ours."""
    is_honest = verdict.reason.startswith("UnsupportedError") or path.name in KNOWN
    return verdict.outcome in {"wrong", "no oracle"} or (verdict.outcome == "refused" and not is_honest)


def main() -> int:
    """Compare all files and print what was found."""
    root = corpora()
    files = distinct_files(root)
    counts: Counter[tuple[str, str]] = Counter()
    findings = 0
    with ProcessPoolExecutor() as processes:
        for path, found in zip(files, processes.map(verdicts, files, chunksize=8), strict=True):
            for mode, verdict in zip(Mode, found, strict=True):
                counts[mode, verdict.outcome] += 1
                mistake = is_finding(path, verdict)
                findings += mistake
                if mistake or (verdict.outcome == "refused" and mode is Mode.FOOTER):
                    print("FINDING" if mistake else "refused", mode, path.relative_to(root), verdict.reason[:300])
    print(f"{len(files)} distinct files")
    for (planned_from, outcome), count in sorted(counts.items()):
        print(f"{planned_from:15} {outcome:12} {count}")
    return min(findings, 1)


if __name__ == "__main__":
    sys.exit(main())
