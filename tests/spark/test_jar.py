"""What coldparquet's jar tells the data source, without Spark; how it is built, found and missed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

import coldparquet.spark
from coldparquet.errors import InternalError, InvalidInputError, UnsupportedError
from coldparquet.spark import jvm, reader, tables
from coldparquet.spark.answers import AnswersReader
from tests.support.live_servers import missing_commands
from tests.support.spark_readers import URL, directly, read, reader_of, remote, same_rows
from tests.support.spark_sessions import ROOT, build_jar

if TYPE_CHECKING:
    from coldparquet.spark.source import DefaultSource
    from coldparquet_testing.simulator import ColdStoreServer

ABOVE = {"operator": ">", "column": "price", "values": [{"double": "100.0"}]}
EARLY = {"operator": "<", "column": "ts", "values": [{"timestamp": 1_200_000_000}]}
BITCOIN = {"operator": "=", "column": "symbol", "values": [{"string": "BTC"}]}
UNKNOWN = {"operator": "LIKE", "column": "venue", "values": [{"string": "%x"}]}


def told(server: ColdStoreServer, **pushed: Any) -> DefaultSource:
    return remote(server, URL, **{"coldparquet.pushed": json.dumps(pushed)})


def exact(*trees: dict[str, Any], is_exact: bool = True) -> list[dict[str, Any]]:
    return [{"filter": tree, "exact": is_exact} for tree in trees]


def test_a_scan_of_its_own_rows(server: ColdStoreServer, store: Path) -> None:
    source = told(server, filters=exact({"operator": "OR", "parts": [ABOVE, EARLY]}), limit=None)
    schema = StructType([field for field in source.schema() if field.name in ("symbol", "price")])
    expected = directly(store / "bucket" / "trades", ["symbol", "price"], "price > 100 or ts < '1970-01-01T00:20:00'")
    assert same_rows(read(reader_of(source, schema)), expected)


def test_a_filter_that_spark_leaves_to_us_is_known_or_ends_the_query(server: ColdStoreServer) -> None:
    with pytest.raises(InternalError) as caught:
        reader_of(told(server, filters=exact(ABOVE, UNKNOWN))).partitions()
    assert caught.value.kind == "UnknownFilter"
    assert reader_of(told(server, filters=exact(UNKNOWN, is_exact=False))).partitions()


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"columns": []}', '{"filters": [{"filter": {}}]}', '{"aggregates": [{"sum": "x"}]}']
)
def test_an_option_that_another_jar_wrote_is_refused(server: ColdStoreServer, text: str) -> None:
    source = remote(server, URL, **{"coldparquet.pushed": text})
    for refused in (source.schema, lambda: source.reader(StructType())):
        with pytest.raises(InvalidInputError, match=r"only coldparquet's jar sets it") as caught:
            refused()
        assert (caught.value.kind, text in str(caught.value)) == ("InvalidOption", True)


def test_the_names_that_java_and_python_share_are_the_same() -> None:
    in_java, in_python = (
        {
            name
            for source in found
            for name in re.findall(
                r'"(coldparquet\.[a-z]+|planning_requests|requests|bytes|nanodollars)"', source.read_text()
            )
        }
        for found in ((ROOT / "src/jvm").rglob("*.java"), (ROOT / "src/coldparquet/spark").glob("*.py"))
    )
    assert in_java == {
        "coldparquet.pushed",
        "coldparquet.meaning",
        "coldparquet.timestamp",
        "coldparquet.rows",
        "coldparquet.load",
        "coldparquet.catalog",
        "planning_requests",
        "requests",
        "bytes",
        "nanodollars",
    }
    assert in_java <= in_python


def test_columns_say_how_they_compare(server: ColdStoreServer) -> None:
    schema = told(server).schema()
    meanings = {field.name: field.metadata["coldparquet.meaning"] for field in schema}
    assert meanings == {"ts": "same", "symbol": "text", "price": "floating", "venue": "text"}
    assert all(not field.metadata for field in remote(server).schema())


def test_the_first_scan_of_a_load_opens_no_table_again(
    server: ColdStoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The jar sends all questions about a load to one process."""

    def loaded() -> StructType:
        [answer] = told(server, asks="columns").reader(StructType()).partitions()
        return StructType.fromJson(json.loads(answer.schema))  # type: ignore[attr-defined]

    def requests_of(load: str) -> int:
        before = len(server.requests)
        assert reader_of(told(server, load=load), schema).partitions()
        return len(server.requests) - before

    schema = loaded()
    of_load = schema[0].metadata["coldparquet.load"]
    first, second = requests_of(of_load), requests_of(of_load)
    assert (first, second) == (5, 8)
    monkeypatch.setattr(tables, "_LOAD_SERVES_S", 0.0)
    assert requests_of(loaded()[0].metadata["coldparquet.load"]) == second


def test_a_limit_leaves_all_but_the_first_row_group_out(server: ColdStoreServer) -> None:
    source = told(server, limit=7)
    schema = source.schema()
    server.reset()
    assert len(reader_of(source, schema).partitions()) == 1
    assert "2024-03-02" not in " ".join(request.path for request in server.requests if "_pm" in request.path)
    undecided = told(server, filters=exact(BITCOIN), limit=7)
    assert [len(share.pieces) for share in reader_of(undecided, schema).partitions()] == [1, 2, 4, 5]  # type: ignore[attr-defined]


def test_answers_of_the_driver(server: ColdStoreServer) -> None:
    aggregates = [{"function": "count"}, {"function": "max", "column": "ts"}, {"function": "count", "column": "symbol"}]
    source = told(server, filters=exact(EARLY), aggregates=aggregates)
    names = zip(("count(*)", "max(ts)", "count(symbol)"), (LongType(), TimestampType(), LongType()), strict=True)
    answers = source.reader(StructType([StructField(name, type_) for name, type_ in names]))
    assert isinstance(answers, AnswersReader)
    [partition] = answers.partitions()
    [batch] = answers.read(partition)
    found: list[Any] = [column.cast(pa.int64()).to_pylist() for column in batch.columns]
    assert found == [[1200], [1199 * 1_000_000], [800]]


def test_a_scan_of_whole_tables_warns_once(server: ColdStoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "WORTH_A_WARNING_BYTES", 1)
    with pytest.warns(UserWarning, match=r"\.config\('spark\.jars', coldparquet\.spark\.jar\(\)\)"):
        reader_of(remote(server)).partitions()
    for source in (told(server), remote(server, columns="price"), remote(server, where="price > 3")):
        with warnings.catch_warnings(record=True) as heard:
            reader_of(source).partitions()
        assert not heard
    monkeypatch.undo()
    reader_of(remote(server)).partitions()  # little to read


def test_the_jar_is_found_or_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jvm, "_JAR", tmp_path / "coldparquet.jar")
    with pytest.raises(UnsupportedError, match=r"build it again with JAVA_HOME and SPARK_HOME") as caught:
        coldparquet.spark.jar()
    assert caught.value.kind == "NoJar"
    (tmp_path / "coldparquet.jar").touch()
    assert coldparquet.spark.jar() == str(tmp_path / "coldparquet.jar")


@pytest.mark.slow
def test_the_same_sources_make_the_same_jar(jar: Path, tmp_path: Path) -> None:
    assert build_jar(tmp_path).read_bytes() == jar.read_bytes()


def test_what_is_missing_to_build_it_is_said(tmp_path: Path) -> None:
    script = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'src' / 'jvm')!r}); import build\n"
        "try: build.build()\n"
        "except build.NotBuiltError as missing: print(missing)"
    )

    def said(**variables: str) -> str:
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True, timeout=60)
        return done.stdout

    assert "there is no javac" in said(PATH=str(tmp_path))
    compiler = tmp_path / "javac"
    compiler.write_text("#!/bin/sh\necho no such class >&2; exit 1\n")
    compiler.chmod(0o755)
    assert "no such class" in said(PATH=f"{tmp_path}:/bin")


@pytest.mark.soak
@pytest.mark.usefixtures("java")
@pytest.mark.parametrize("version", ["4.1.1", "4.2.0"])
def test_the_jar_compiles_against_other_versions_of_spark(version: str, tmp_path: Path) -> None:
    """The three jars of that Spark whose classes ours name, beside all others of the one that is installed."""
    if missing_commands("mvn"):
        pytest.skip("other versions of Spark were not fetched: mvn is missing on this machine")
    jars = tmp_path / "jars"
    jars.mkdir()
    for artifact in ("spark-sql", "spark-catalyst", "spark-sql-api"):
        asked = f"-Dartifact=org.apache.spark:{artifact}_2.13:{version}"
        fetch = ["mvn", "-q", "-B", "org.apache.maven.plugins:maven-dependency-plugin:2.8:copy", asked]
        subprocess.run([*fetch, f"-DoutputDirectory={jars}"], cwd=tmp_path, check=True, timeout=300)
    fetched = {path.name.partition("_")[0] for path in jars.iterdir()}
    for installed in (Path(pyspark.__file__).parent / "jars").glob("*.jar"):
        if installed.name.partition("_")[0] not in fetched:
            (jars / installed.name).symlink_to(installed)
    command = [sys.executable, str(ROOT / "src/jvm/build.py"), str(tmp_path / "coldparquet.jar")]
    built = subprocess.run(
        command, env={**os.environ, "SPARK_HOME": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
