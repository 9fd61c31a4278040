"""Spark sessions for the tests: one in this process, and jobs in processes of their own (a small cluster, Connect).

Sessions keep off the checkout (no warehouse, no Derby, no event log), listen on 127.0.0.1 only and use little memory.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


Mode: TypeAlias = Literal["local", "cluster", "hosts", "connect"]
"""``local``: as the session of the tests; ``cluster``: two executors as processes; ``hosts``: the same as if on two machines;
``connect``: a Spark Connect client."""

ROOT = Path(__file__).resolve().parents[2]
MASTER = "local[2]"
CLUSTER_MASTER = "local-cluster[2,1,1024]"
HOSTS = ("127.0.0.2", "127.0.0.3")
"""Spark starts no copy of a task on the host that the task runs on; all executors of its own small cluster are on one."""
LEAST_JAVA = 17
FILTER_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""Off by default in Spark 4.3, on in the sessions of the tests."""
JAR_VARIABLE = "COLDPARQUET_TEST_JAR"
"""Names the ``coldparquet.jar`` with which all sessions of the tests start; without it only the tests of the jar have one."""
JOB_TIMEOUT_S = 480

_FREE_PORT = {"SPARK_TESTING": "1"}
"""PySpark's own way to a Connect server on a free port; another one may be listening on the usual one."""
_QUICK_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""For jobs of seconds, which never get back what the better compiler costs."""

_STOP_TIMEOUT_S = 30
_SHOWN_OUTPUT_CHARACTERS = 6_000


class SparkJobError(Exception):
    """A job in a process of its own failed; the message holds its traceback and what it printed."""


def missing_for_spark() -> str | None:
    """Say what this machine lacks to run Spark; None if nothing."""
    java = _java()
    if java is None:
        return "Java 17 is missing on this machine"
    if shutil.which(java) is None:
        return f"JAVA_HOME leads nowhere: there is no {java}"
    printed = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=60)
    found = re.search(r'version "(\d+)', printed.stderr + printed.stdout)
    if found is None:
        return f"{java} does not say its version: {printed.stderr.strip()[:200]}"
    if int(found[1]) < LEAST_JAVA:
        return f"Spark needs Java {LEAST_JAVA}, and {java} is Java {found[1]}"
    return None


def build_jar(directory: Path) -> Path:
    """Build ``coldparquet.jar`` of these sources."""
    built = subprocess.run(
        [sys.executable, ROOT / "src" / "jvm" / "build.py", directory / "coldparquet.jar"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert built.returncode == 0, built.stderr
    return Path(built.stdout.strip())


@contextmanager
def added_jar(spark: SparkSession, jar: Path) -> Iterator[SparkSession]:
    """Load a jar into a running session, as the documentation of ``coldparquet.spark.jar`` says, for the length of the block."""
    thread: Any = spark._jvm.Thread.currentThread()  # type: ignore[union-attr]
    loader = thread.getContextClassLoader()
    spark.sql(f"ADD JAR '{jar}'")
    try:
        yield spark
    finally:
        thread.setContextClassLoader(loader)


def session_settings(directory: Path) -> dict[str, str]:
    """Return the settings of a session whose files are all below ``directory``."""
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "768m",
        "spark.driver.extraJavaOptions": f"{_QUICK_JAVA} -Dderby.system.home={directory}/derby",
        "spark.executor.extraJavaOptions": _QUICK_JAVA,
        "spark.local.dir": f"{directory}/local",
        "spark.sql.warehouse.dir": f"{directory}/warehouse",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.python.unix.domain.socket.enabled": "true",
        FILTER_PUSHDOWN: "true",
        **({"spark.jars": jar} if (jar := os.environ.get(JAR_VARIABLE)) else {}),
    }


def environment() -> dict[str, str]:
    """Return the variables that a driver needs so that its workers run this Python and find the tests' own modules.

    Workers otherwise run the first ``python3`` of the PATH, which knows neither pyarrow nor coldparquet.
    """
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(paths),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


@contextmanager
def spark_session(directory: Path, *, settings: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Run a session on two cores of this machine, and its JVM until the end of the block."""
    from pyspark import SparkContext  # noqa: PLC0415 - only who runs Spark needs it
    from pyspark.sql import SparkSession  # noqa: PLC0415

    # Spark reads them once, when it starts the JVM, which hands them to every worker.
    os.environ.update(environment())
    builder: Any = SparkSession.builder
    builder = builder.master(MASTER).appName("coldparquet tests")
    with warnings.catch_warnings():
        # PySpark starts Java with a function to call after the fork, which Python 3.12 dislikes where threads run.
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        session: SparkSession = builder.config(map=session_settings(directory) | dict(settings or {})).getOrCreate()
    try:
        yield session
    finally:
        gateway: Any = SparkContext._gateway
        session.stop()
        SparkContext._gateway = SparkContext._jvm = None
        gateway.shutdown()
        gateway.proc.stdin.close()  # at which the JVM ends
        gateway.proc.wait(_STOP_TIMEOUT_S)


def run_in_spark(
    job: Callable[..., Any],
    *arguments: object,
    mode: Mode,
    directory: Path,
    settings: Mapping[str, str] | None = None,
    variables: Mapping[str, str] | None = None,
    timeout_s: float = JOB_TIMEOUT_S,
) -> Any:
    """Run a job in a driver process of its own.

    Args:
        job: A function at the top of an importable module; called with the session and the arguments. What it returns
            must fit into JSON.
        arguments: For the job; they must fit into JSON.
        mode: Where it runs.
        directory: For all files of the session.
        settings: More settings of the session, which win over those of :func:`session_settings`.
        variables: More environment variables of the driver, which win over those of :func:`environment`.
        timeout_s: After this time the driver is killed, with all it started.

    Returns:
        What the job returned.

    Raises:
        SparkJobError: The job raised, the driver died or the time was over.
    """
    directory.mkdir(parents=True, exist_ok=True)
    order, answer, printed = (directory / name for name in ("order.json", "answer.json", "driver.log"))
    answer.unlink(missing_ok=True)
    order.write_text(
        json.dumps(
            {
                "job": f"{job.__module__}:{job.__qualname__}",
                "arguments": arguments,
                "mode": mode,
                "settings": session_settings(directory) | dict(settings or {}),
            }
        )
    )
    with printed.open("wb") as output:
        driver = subprocess.Popen(
            [sys.executable, "-m", "tests.support.spark_driver", order, answer],
            cwd=ROOT,
            env=os.environ | environment() | (_FREE_PORT if mode == "connect" else {}) | dict(variables or {}),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that it can be killed with the JVMs and workers it started
        )
    try:
        driver.wait(timeout_s)
    except subprocess.TimeoutExpired:
        raise SparkJobError(f"{job.__qualname__} took longer than {timeout_s} s{_end_of(printed)}") from None
    finally:
        _kill_group(driver)
    if not answer.exists():
        raise SparkJobError(f"the driver ended with {driver.returncode} and no answer{_end_of(printed)}")
    answered = json.loads(answer.read_text())
    if "error" in answered:
        raise SparkJobError(f"{answered['error']}{_end_of(printed)}")
    return answered["answer"]


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else shutil.which("java")


def _end_of(printed: Path) -> str:
    return f"\n--- printed by the driver ---\n{printed.read_text(errors='replace')[-_SHOWN_OUTPUT_CHARACTERS:]}"


def _kill_group(driver: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):  # all of it has ended by itself
        os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
