"""Every check of the project, in one command: ``python -m tests``. Extra arguments go to pytest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

CHECKS = (
    ("lint", ("ruff", "check", ".")),
    ("format", ("ruff", "format", "--check", ".")),
    ("types", ("mypy",)),
    ("tests", ("pytest",)),
)


def main() -> int:
    """Run every check, even after one failed, and return how many failed."""
    failed = []
    for name, command in CHECKS:
        extra = sys.argv[1:] if name == "tests" else []
        print(f"== {name}: {' '.join([*command, *extra])}", flush=True)  # noqa: T201
        if subprocess.run([sys.executable, "-m", *command, *extra], cwd=ROOT, check=False).returncode:
            failed.append(name)
    print(f"== failed: {', '.join(failed)}" if failed else "== all checks passed", flush=True)  # noqa: T201
    return len(failed)


if __name__ == "__main__":
    raise SystemExit(main())
