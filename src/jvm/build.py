"""Compiles the Java classes for Spark's driver into a jar. Run by ``hatch_build.py``, by tests, and by hand in a checkout.

``python src/jvm/build.py [target]`` needs a JDK of 17 or later and the jars of PySpark, or of the Spark in ``SPARK_HOME``.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
JAR = HERE.parent / "coldparquet" / "spark" / "coldparquet.jar"
"""Where ``coldparquet.spark.jar()`` finds it, in a checkout and in a wheel."""

_RELEASE = "17"
"""The oldest Java that Spark 4 runs on."""


class NotBuiltError(Exception):
    """Says what is missing to build the jar."""


def build(target: Path = JAR) -> Path:
    """Compile; return the jar.

    Raises:
        NotBuiltError: There is no JDK or no Spark, or the classes do not compile with them.
    """
    compiler, jars = _compiler(), _jars_of_spark()
    with tempfile.TemporaryDirectory() as directory:
        command = [compiler, "--release", _RELEASE, "-nowarn", "-cp", str(jars / "*"), "-d", directory]
        done = subprocess.run(  # noqa: S603 - our own sources
            [*command, *map(str, sorted(HERE.rglob("*.java")))], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise NotBuiltError(f"{compiler} with {jars} says: {done.stderr.strip()}")
        unfinished = target.with_suffix(f".{os.getpid()}")
        with zipfile.ZipFile(unfinished, "w") as jar:
            for compiled in sorted(Path(directory).rglob("*.class")):
                # The same classes make the same jar: no time of today.
                entry = zipfile.ZipInfo(compiled.relative_to(directory).as_posix())
                jar.writestr(entry, compiled.read_bytes(), zipfile.ZIP_DEFLATED)
    return unfinished.replace(target)


def _compiler() -> str:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("javac", path=None if home is None else str(Path(home, "bin"))) or shutil.which("javac")
    if found is None:
        raise NotBuiltError("there is no javac; install a JDK of 17 or later, and let JAVA_HOME name its directory")
    return found


def _jars_of_spark() -> Path:
    homes = [Path(home)] if (home := os.environ.get("SPARK_HOME")) else []
    spec = importlib.util.find_spec("pyspark")
    homes += [] if spec is None or spec.origin is None else [Path(spec.origin).parent]
    for directory in homes:
        if any((directory / "jars").glob("spark-sql_*.jar")):
            return directory / "jars"
    raise NotBuiltError(
        "there are no jars of Spark to compile with; let SPARK_HOME name the directory of an installed pyspark"
    )


if __name__ == "__main__":
    print(build(*map(Path, sys.argv[1:])))  # noqa: T201 - a command
