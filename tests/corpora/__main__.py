"""Public Parquet files, compared with pyarrow in every mode: ``python -m tests.corpora``.

The repositories are cloned (about 60 MB of Parquet files) unless ``COLDPARQUET_CORPORA`` names a directory that holds
checkouts of them, as ``OWNER/NAME``. Prints what is not equal, and exits with 1 if a row differs, or if a file that
pyarrow reads is refused for anything but a type that we do not read. It takes about 10 minutes on two processors; how far
it is goes to the standard error, and files that take a minute are named with the time that pyarrow and we took.
"""

from __future__ import annotations

import asyncio
import faulthandler
import hashlib
import os
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

from tests.corpora.comparison import Expected, Mode, Verdict, compare, read_with_pyarrow

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
    "nested-unsigned-malformed.parquet": "the leaves of its struct count more values than it has rows",
    "repeated_no_annotation.parquet": "its footer counts 0 rows, its row groups 6",
}
"""Files that pyarrow reads and we refuse although their types are no reason, with ours."""
_ENDINGS = (".parquet", ".parq")
_CACHE = Path(os.environ.get("COLDPARQUET_CACHE") or Path.home() / ".cache" / "coldparquet") / "corpora"
_CLONE_TIMEOUT_S = 600
_COMPARE_TIMEOUT_S = 120
"""For one file in one mode, without the time that pyarrow takes."""
_FILE_TIMEOUT_S = 900
"""For one file and everything: a process that hangs ends then, and says where it was."""
_SLOW_S = 60
_FILES_PER_REPORT = 100


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


@dataclass(frozen=True, slots=True)
class Compared:
    """One file in every mode."""

    verdicts: tuple[Verdict, ...]
    pyarrow_s: float
    our_s: float


def compared(path: Path) -> Compared:
    """Compare one file in every mode; what differs, or is no error of ours, is a verdict ``wrong``."""
    data, started = path.read_bytes(), time.monotonic()
    known = read_with_pyarrow(data)
    read = time.monotonic()
    verdicts = tuple(_verdict(data, mode, known) for mode in Mode)
    return Compared(verdicts, pyarrow_s=read - started, our_s=time.monotonic() - read)


def _verdict(data: bytes, mode: Mode, known: Expected) -> Verdict:
    try:
        return asyncio.run(asyncio.wait_for(compare(data, mode, known), _COMPARE_TIMEOUT_S))
    except Exception as error:  # noqa: BLE001 - all are findings
        return Verdict("wrong", f"{type(error).__name__}: {error}")


def _compared_in_time(path: Path) -> Compared:
    """Compare one file in a process of its own, which shows its threads and ends if that takes forever."""
    faulthandler.dump_traceback_later(_FILE_TIMEOUT_S, exit=True)
    try:
        return compared(path)
    finally:
        faulthandler.cancel_dump_traceback_later()


def is_finding(path: Path, verdict: Verdict) -> bool:
    """Whether a verdict is a mistake of ours."""
    is_honest = verdict.reason.startswith("UnsupportedError") or path.name in KNOWN
    return verdict.outcome in {"wrong", "no oracle"} or (verdict.outcome == "refused" and not is_honest)


def main() -> int:
    """Compare all files and print what was found."""
    root = corpora()
    files = distinct_files(root)
    counts: Counter[tuple[str, str]] = Counter()
    findings = done = 0
    started = time.monotonic()
    with ProcessPoolExecutor() as processes:
        try:
            for path, found in zip(files, processes.map(_compared_in_time, files), strict=True):
                name = path.relative_to(root)
                for mode, verdict in zip(Mode, found.verdicts, strict=True):
                    counts[mode, verdict.outcome] += 1
                    mistake = is_finding(path, verdict)
                    findings += mistake
                    if mistake or (verdict.outcome == "refused" and mode is Mode.FOOTER):
                        print("FINDING" if mistake else "refused", mode, name, verdict.reason[:300], flush=True)
                if found.pyarrow_s + found.our_s > _SLOW_S:
                    print(f"slow {name}: {found.pyarrow_s:.0f} s for pyarrow, {found.our_s:.0f} s for us", flush=True)
                done += 1
                if done % _FILES_PER_REPORT == 0:
                    passed = time.monotonic() - started
                    print(f"{done} of {len(files)} files, {findings} findings, {passed:.0f} s", file=sys.stderr)
        except BrokenProcessPool:
            near = files[done].relative_to(root)
            print(f"FINDING a process died or took more than {_FILE_TIMEOUT_S} s at {near}, or a file after it")
            findings += 1
    print(f"{done} of {len(files)} distinct files compared")
    for (planned_from, outcome), count in sorted(counts.items()):
        print(f"{planned_from:15} {outcome:12} {count}")
    return min(findings, 1)


if __name__ == "__main__":
    sys.exit(main())
