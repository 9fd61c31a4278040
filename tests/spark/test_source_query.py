"""The data source in a session of Spark: filters, plans, errors and secrets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import coldparquet as cp
import coldparquet.spark
from coldparquet.errors import BudgetExceededError, InvalidInputError, NotFoundError, ObjectChangedError
from tests.support.questdb_tables import copy_parquet_partitions
from tests.support.spark_sessions import FILTER_PUSHDOWN, run_in_spark

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
    assert ("filter, taken over from Spark: sym = 'ADA-USD'" in plan) is (pushdown == "true")
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


def test_plans_and_errors_hold_no_secret(spark: SparkSession, table: Path) -> None:
    options = {"storage.secret": SECRET, "storage.key": SECRET, "storage_options": json.dumps({"token": SECRET})}
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


def ask_with_secrets(spark: SparkSession, table: str) -> int:
    """Run in a driver of its own, with an event log."""
    explicit = spark.read.format("coldparquet").option("storage.secret", SECRET).load(table)
    referred = spark.read.format("coldparquet").option("credentials", "env:STORE_SECRET").load(table)
    helper = coldparquet.spark.read(spark, table, storage_options={"secret": SECRET})
    return explicit.count() + referred.where("price > 3").count() + helper.count()


@pytest.mark.slow
@pytest.mark.usefixtures("java")
def test_event_log_and_log_hold_no_secret(table: Path, tmp_path: Path) -> None:
    events = tmp_path / "events"
    events.mkdir()
    (tmp_path / "log4j2.properties").write_text(LOG_EVERYTHING)
    rows = run_in_spark(
        ask_with_secrets,
        str(table),
        mode="local",
        directory=tmp_path,
        settings={
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": events.as_uri(),
            "spark.eventLog.compress": "false",
            "spark.log.level": "INFO",  # and the file below, because PySpark keeps to warnings otherwise
            "spark.executorEnv.STORE_SECRET": json.dumps({"secret": SECRET}),
        },
        variables={"STORE_SECRET": json.dumps({"secret": SECRET}), "SPARK_CONF_DIR": str(tmp_path)},
    )
    assert rows > 0
    logged = [path.read_text() for path in events.rglob("*") if path.is_file()]
    assert any("BatchScan coldparquet" in text for text in logged)
    printed = (tmp_path / "driver.log").read_text()
    assert "INFO DAGScheduler" in printed
    assert not any(SECRET in text for text in (*logged, printed))
