"""Every check of the project, in one command: ``python -m tests``. Extra arguments go to pytest.

All tests are shared out among some processes; tests that are chosen by arguments run in one, where ``--pdb`` and ``-s`` work.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

MOST_PROCESSES = 4
"""Each needs about a gigabyte."""

CHECKS = (
    ("lint", ("ruff", "check", ".")),
    ("format", ("ruff", "format", "--check", ".")),
    ("types", ("mypy",)),
    ("tests", ("pytest",)),
)


def main() -> int:
    """Run every check, even after one failed, and return how many failed."""
    chosen = sys.argv[1:]
    of_tests = chosen or ["-n", "auto", "--maxprocesses", str(MOST_PROCESSES)]
    failed = []
    for name, command in CHECKS:
        arguments = [*command, *(of_tests if name == "tests" else [])]
        print(f"== {name}: {' '.join(arguments)}", flush=True)  # noqa: T201
        if subprocess.run([sys.executable, "-m", *arguments], cwd=ROOT, check=False).returncode:
            failed.append(name)
    print(f"== failed: {', '.join(failed)}" if failed else "== all checks passed", flush=True)  # noqa: T201
    return len(failed)


if __name__ == "__main__":
    raise SystemExit(main())
