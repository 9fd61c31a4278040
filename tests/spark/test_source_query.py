"""The data source in a session of Spark: filters, plans, errors, secrets and warnings."""

from __future__ import annotations

import json
import os
import sys
import warnings
from typing import TYPE_CHECKING, Any

import pytest

import coldparquet as cp
import coldparquet.spark
import coldparquet.spark as cold
from coldparquet.errors import BudgetExceededError, InvalidInputError, NotFoundError, ObjectChangedError
from coldparquet.spark.helpers import core_count
from tests.support.questdb_tables import copy_parquet_partitions
from tests.support.spark_jobs import DAYS, ROWS, follow_to_end, make_trades, worker_pythons
from tests.support.spark_sessions import FILTER_PUSHDOWN, JAR_VARIABLE, ROOT, missing_for_spark, run_in_spark

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SECRET = "planted-5e2d"  # noqa: S105 - planted, to be looked for
LOG_EVERYTHING = """
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{1}: %m%n
logger.spark.name = org.apache.spark
logger.spark.level = info
"""
BOTH = pytest.mark.parametrize("pushdown", ["true", "false"])


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_parquet_partitions("interval_day", tmp_path_factory.mktemp("source"))


@pytest.fixture
def restored(spark: SparkSession) -> Any:
    """Put the setting back that the test changes."""
    yield
    spark.conf.set(FILTER_PUSHDOWN, "true")


def load(spark: SparkSession, table: Path, **options: Any) -> DataFrame:
    return spark.read.format("coldparquet").options(**options).load(str(table))


def ids(frame: DataFrame) -> list[int]:
    return sorted(row["id"] for row in frame.select("id").collect())


def expected_ids(table: Path, where: str | None = None) -> list[int]:
    with cp.sync.open_table(table) as opened:
        found: list[Any] = opened.scan(["id"], where).to_arrow()["id"].to_pylist()
    return sorted(found)


def expected_prices(table: Path) -> list[Any]:
    with cp.sync.open_table(table) as opened:
        found: list[Any] = opened.scan(["price"]).to_arrow()["price"].to_pylist()
    return sorted(found, key=repr)


@BOTH
@pytest.mark.usefixtures("restored")
def test_one_frame_with_several_filters(spark: SparkSession, table: Path, pushdown: str) -> None:
    """Spark 4.3 would mix the filters up if they were taken over: see DefaultSource."""
    spark.conf.set(FILTER_PUSHDOWN, pushdown)
    frame = load(spark, table)
    one, other = frame.where("sym = 'ADA-USD'"), frame.where("sym = 'SOL-USD'")
    assert ids(one.union(other)) == expected_ids(table, "sym in ('ADA-USD', 'SOL-USD')")
    assert ids(one) == expected_ids(table, "sym = 'ADA-USD'")
    assert ids(frame) == expected_ids(table)


@BOTH
@pytest.mark.usefixtures("restored")
def test_filters_are_taken_over_where_asked_for(spark: SparkSession, table: Path, pushdown: str) -> None:
    spark.conf.set(FILTER_PUSHDOWN, pushdown)
    frame = load(spark, table, push_filters=True).where("sym = 'ADA-USD' and price > 0.5 and side like '%y'")
    assert ids(frame) == expected_ids(table, "sym = 'ADA-USD' and price > 0.5 and side = 'buy'")
    plan = coldparquet.spark.explain(frame)
    is_asked = pushdown == "true" or JAR_VARIABLE in os.environ  # the jar needs no setting of Spark
    assert ("filter, taken over from Spark: sym = 'ADA-USD'" in plan) is is_asked
    assert "partitions    4" in plan


def test_a_condition_that_spark_could_not_push(spark: SparkSession, table: Path) -> None:
    where = "sym = 'ADA-USD' or price < 100"
    frame = load(spark, table, where=where, columns="id,sym")
    assert frame.columns == ["id", "sym"]
    assert ids(frame) == expected_ids(table, where)
    assert f"where, by option: {where}" in coldparquet.spark.explain(frame)


def test_a_schema_prunes(spark: SparkSession, table: Path) -> None:
    frame = spark.read.format("coldparquet").schema("id bigint, price double").load(str(table))
    assert ids(frame) == expected_ids(table)
    assert "columns       id, price" in coldparquet.spark.explain(frame)


def test_rows_without_columns_are_counted(spark: SparkSession, table: Path) -> None:
    assert load(spark, table, columns="").count() == len(expected_ids(table))


def test_read_through_map_in_arrow(spark: SparkSession, table: Path) -> None:
    where = "price < 100"
    frame = coldparquet.spark.read(spark, str(table), columns=["id", "ts"], where=where)
    assert frame.columns == ["id", "ts"]
    assert frame.schema == load(spark, table, columns="id,ts").schema
    assert ids(frame) == expected_ids(table, where)
    nothing = coldparquet.spark.read(spark, str(table), where="price < -1")
    assert nothing.collect() == []


def test_explain_of_something_else(spark: SparkSession) -> None:
    with pytest.raises(InvalidInputError, match="nothing in this DataFrame") as caught:
        coldparquet.spark.explain(spark.range(3))
    assert caught.value.kind == "NoColdParquetScan"


def test_views_and_lists_of_tables(spark: SparkSession, table: Path) -> None:
    spark.sql(
        f"create or replace temporary view source_query using coldparquet options (path '{table}', columns 'id,sym')"
    )
    assert ids(spark.sql("select id from source_query where sym = 'ADA-USD'")) == expected_ids(table, "sym = 'ADA-USD'")
    listed = spark.read.format("coldparquet").load([str(table), str(table.with_name("*"))])
    assert ids(listed) == expected_ids(table), "each table comes once, however often it is named"
    with pytest.raises(Exception, match="CatalogTable") as caught:
        spark.sql(f"create table kept using coldparquet options (path '{table}')")
    assert "CREATE TEMPORARY VIEW" in str(coldparquet.spark.error_of(caught.value))


def test_modes_of_save_that_spark_refuses(spark: SparkSession, table: Path, tmp_path: Path) -> None:
    rows = load(spark, table, columns="ts,price")
    for mode, advice in (("errorifexists", "mode='error'"), ("ignore", "mode='ignore'")):
        with pytest.raises(InvalidInputError, match=advice) as caught, coldparquet.spark.own_errors():
            rows.write.format("coldparquet").mode(mode).save(str(tmp_path / "saved"))
        assert caught.value.kind == "UnsupportedMode"
    rows.write.format("coldparquet").options(if_exists="error", timestamp="ts").mode("append").save(
        str(tmp_path / "saved")
    )
    assert expected_prices(tmp_path / "saved") == expected_prices(table)


@pytest.mark.slow
def test_errors_are_the_librarys_own(spark: SparkSession, table: Path, tmp_path: Path) -> None:
    changing = copy_parquet_partitions("interval_day", tmp_path)
    planned = load(spark, changing)
    coldparquet.spark.explain(planned)  # Spark has planned now
    victim = next(changing.glob("*/data.parquet"))
    victim.write_bytes(victim.read_bytes()[:1_000])

    cases: dict[type[Exception], tuple[Any, str]] = {
        NotFoundError: (lambda: load(spark, tmp_path / "nowhere"), "nowhere"),
        InvalidInputError: (lambda: load(spark, table, columns="prize"), "did you mean 'price'"),
        BudgetExceededError: (lambda: load(spark, table, max_bytes=10).collect(), "max_bytes is 10"),
        ObjectChangedError: (planned.collect, str(victim)),
    }
    for error_class, (ask, words) in cases.items():
        with pytest.raises(Exception) as caught:  # noqa: PT011 - which one is Spark's own business
            ask()
        error = coldparquet.spark.error_of(caught.value)
        assert type(error) is error_class
        assert words in str(error)
        with pytest.raises(error_class), coldparquet.spark.own_errors():
            ask()


def test_plans_and_errors_hold_no_secret(spark: SparkSession, table: Path) -> None:
    options = {
        "storage.secret": SECRET,
        "storage.key": SECRET,
        "storage_options": json.dumps({"token": SECRET}),
        "secret_options": json.dumps({"account_key": SECRET}),
    }
    frame = load(spark, table, **options).where("price > 3")
    assert frame.count() > 0
    execution: Any = frame._jdf.queryExecution()
    python_utils: Any = spark._jvm.PythonSQLUtils  # type: ignore[union-attr]
    texts = [python_utils.explainString(execution, mode) for mode in ("extended", "formatted", "cost", "codegen")]
    texts += [execution.toString(), execution.optimizedPlan().toJSON(), coldparquet.spark.explain(frame)]
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which one is Spark's own business
        load(spark, table, where="prize > 3", **options).collect()
    for text in (*texts, str(caught.value)):
        assert SECRET not in text


def ask_with_secrets(spark: SparkSession, table: str, directory: str) -> dict[str, Any]:
    """Run in a driver of its own, with an event log: read, write and follow, each with a secret of an unusual name."""
    hidden = {"secret_options": json.dumps({"account_key": SECRET})}
    explicit = spark.read.format("coldparquet").options(**{"storage.secret": SECRET, **hidden}).load(table)
    referred = spark.read.format("coldparquet").option("credentials", "env:STORE_SECRET").load(table)
    helper = coldparquet.spark.read(spark, table, storage_options={"account_key": SECRET})
    spark.sql(
        f"create temporary view seen using coldparquet options (path '{table}', `storage.secret` '{SECRET}',"
        f" secret_options '{hidden['secret_options']}')"
    )
    written, again = f"{directory}/written", f"{directory}/again"
    coldparquet.spark.write(explicit, written, timestamp="ts", options=hidden)
    explicit.write.format("coldparquet").options(timestamp="ts", **hidden).mode("overwrite").save(again)
    stream = spark.readStream.format("coldparquet").options(**hidden).load(written).writeStream.format("noop")
    query = follow_to_end(stream.option("checkpointLocation", f"{directory}/checkpoint"))
    refused = []
    for option in ("storage.account_key", "storage_options"):
        try:
            # Where it is refused it must not stand in the log either, unless SQL gave it.
            spark.read.format("coldparquet").option(option, hidden["secret_options"]).load(table)
        except Exception as error:  # noqa: BLE001 - which one is Spark's own business
            found = coldparquet.spark.error_of(error)
            refused.append(found.kind if found else str(error))
    return {
        "rows": [
            frame.count() for frame in (explicit, referred.where("price is not null"), helper, spark.table("seen"))
        ],
        "written": [spark.read.format("coldparquet").load(url).count() for url in (written, again)],
        "followed": sum(batch["numInputRows"] for batch in query.recentProgress),
        "refused": refused,
    }


@pytest.mark.slow
@pytest.mark.usefixtures("java")
def test_event_log_and_log_hold_no_secret(table: Path, tmp_path: Path) -> None:
    events = tmp_path / "events"
    events.mkdir()
    (tmp_path / "log4j2.properties").write_text(LOG_EVERYTHING)
    answers = run_in_spark(
        ask_with_secrets,
        str(table),
        str(tmp_path),
        mode="local",
        directory=tmp_path,
        settings={
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": events.as_uri(),
            "spark.eventLog.compress": "false",
            "spark.log.level": "INFO",  # and the file below, because PySpark keeps to warnings otherwise
        },
        # Not as spark.executorEnv: of its settings Spark itself prints all, at INFO, whenever its own listeners are slow.
        variables={"STORE_SECRET": json.dumps({"secret": SECRET}), "SPARK_CONF_DIR": str(tmp_path)},
    )
    count = len(expected_ids(table))
    assert answers["rows"] == [count, len(expected_ids(table, "price is not null")), count, count]
    assert (answers["written"], answers["followed"]) == ([count, count], count)
    assert answers["refused"] == ["InvalidOption", "InvalidOption"]
    logged = [path.read_text() for path in events.rglob("*") if path.is_file()]
    for words in ("BatchScan coldparquet", "CreateTempViewUsing", "AppendData", "OverwriteByExpression"):
        assert any(words in text for text in logged)
    printed = (tmp_path / "driver.log").read_text()
    assert "INFO DAGScheduler" in printed
    assert not any(SECRET in text for text in (*logged, printed))


def test_reading_warns_of_nothing_and_later_warnings_are_heard(spark: SparkSession, tmp_path: Path) -> None:
    url = str(make_trades(tmp_path))
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        rows = cold.read(spark, url, columns=["price"]).count()
        rows_of_source = spark.read.format("coldparquet").option("columns", "price").load(url).count()
        assert heard == []
        warnings.warn("PySpark does not yet fully support pandas", FutureWarning, stacklevel=1)
    assert rows == rows_of_source == DAYS * ROWS
    assert len(heard) == 1


def test_workers_run_this_python_and_nothing_is_left_in_the_checkout(spark: SparkSession) -> None:
    assert worker_pythons(spark) == [sys.executable]
    assert core_count(spark) == 2
    assert not [
        name for name in ("metastore_db", "derby.log", "spark-warehouse", "artifacts") if (ROOT / name).exists()
    ]


def test_a_java_home_that_leads_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert missing_for_spark() == f"JAVA_HOME leads nowhere: there is no {tmp_path}/bin/java"
