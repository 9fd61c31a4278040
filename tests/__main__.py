"""Every check of the project, in one command: ``python -m tests``. Extra arguments go to pytest.

Plain, it needs Python alone and takes minutes: tests that are slow or ask real servers are left out. ``--servers`` installs the
servers, once, and leaves nothing out. All tests are shared out among some processes; tests that are chosen by arguments run in one,
where ``--pdb`` and ``-s`` work.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

PROCESSES = min(4, 1 + (os.cpu_count() or 1))
"""One more than there are processors, for tests wait for stores and databases; each needs about a gigabyte."""

CHECKS = (
    ("lint", ("ruff", "check", ".")),
    ("format", ("ruff", "format", "--check", ".")),
    ("types", ("mypy",)),
    ("tests", ("pytest",)),
)
SERVERS = ("questdb.sh", "minio.sh", "toxiproxy.sh")
"""Scripts of ``localstack/`` that install what the tests with servers cannot do without."""

QUICK = "not slow and not integration and not soak"
LEFT_OUT = "== left out: slow tests, and those that ask real servers; 'python -m tests --servers' runs them too"


def main() -> int:
    """Run every check, even after one failed, and return how many failed."""
    chosen = [argument for argument in sys.argv[1:] if argument != "--servers"]
    with_servers = "--servers" in sys.argv[1:]
    environment = {**os.environ, **({"COLDPARQUET_REQUIRE_SERVERS": "1"} if with_servers else {})}
    of_tests = chosen or ["-n", str(PROCESSES), *([] if with_servers else ["-m", QUICK])]
    failed = []
    if with_servers:
        failed = [
            script
            for script in SERVERS
            if subprocess.run([ROOT / "localstack" / script, "--install"], check=False).returncode
        ]
    for name, command in CHECKS:
        arguments = [*command, *(of_tests if name == "tests" else [])]
        print(f"== {name}: {' '.join(arguments)}", flush=True)  # noqa: T201
        if subprocess.run([sys.executable, "-m", *arguments], cwd=ROOT, env=environment, check=False).returncode:
            failed.append(name)
    if not (chosen or with_servers):
        print(LEFT_OUT)  # noqa: T201
    print(f"== failed: {', '.join(failed)}" if failed else "== all checks passed", flush=True)  # noqa: T201
    return len(failed)


if __name__ == "__main__":
    raise SystemExit(main())
