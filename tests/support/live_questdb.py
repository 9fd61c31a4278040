"""A running QuestDB, and tables in it whose partitions are converted, changed and compared."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

import pyarrow as pa

ToArrow = Callable[[list[Any]], "pa.Array[Any]"]


# --- A running QuestDB: statements over HTTP, and its answers as Arrow tables of the types that coldparquet gives -----


REPLY_TIMEOUT_S = 120
SETTLE_TIMEOUT_S = 60
MAX_DECIMAL128_PRECISION = 38
GEOHASH_LETTERS = "0123456789bcdefghjkmnpqrstuvwxyz"


class SqlError(Exception):
    """QuestDB refused a statement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveQuestDB:
    """A running QuestDB."""

    http_port: int
    root: Path

    @property
    def log(self) -> Path:
        """What the server prints."""
        return self.root / "server.log"

    def run(self, *statements: str) -> None:
        """Run statements one after the other, each when the one before has been applied."""
        for statement in statements:
            self.send(statement)
            self.settle()

    def send(self, statement: str) -> None:
        """Run a statement without waiting until a table with a write-ahead log has applied it."""
        self._exec(statement)

    def settle(self) -> None:
        """Wait until every table has applied what was committed to its write-ahead log."""
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        while time.monotonic() < deadline:
            waiting = []
            for record in self._records("wal_tables()"):
                if record["suspended"]:
                    raise SqlError(f"{record['name']} is suspended: {record['errorMessage']}")
                if record["writerTxn"] != record["sequencerTxn"] or record["bufferedTxnSize"]:
                    waiting.append(record["name"])
            if not waiting:
                return
            time.sleep(0.01)
        raise SqlError(f"not applied within {SETTLE_TIMEOUT_S} s: {waiting}")

    def ask(self, sql: str) -> pa.Table:
        """Return the answer to a query.

        Not for BINARY, which the interface does not tell, nor for arrays with NaN or null elements.
        """
        reply = self._exec(sql)
        values = zip(*reply["dataset"], strict=True) if reply["dataset"] else [()] * len(reply["columns"])
        arrays = [_column(column, list(answered)) for column, answered in zip(reply["columns"], values, strict=True)]
        return pa.table(arrays, names=[column["name"] for column in reply["columns"]])

    def rows(self, table: str, where: str | None = None, *, columns: str = "*") -> pa.Table:
        """Return rows of a table in the server's order, which is that of coldparquet."""
        condition = "" if where is None else f" where {where}"
        answer = self.ask(f"select {columns} from '{table}'{condition}")  # noqa: S608 - the tests' own words
        # A function that fails halfway ends the reply early, as valid JSON.
        assert answer.num_rows == self.count(table, where)
        return answer

    def rows_of_file(self, path: str) -> pa.Table:
        """Return the rows of a Parquet file below its directory ``import``."""
        return self.ask(f"select * from read_parquet('{path}')")  # noqa: S608 - the tests' own words

    def count(self, table: str, where: str | None = None) -> int:
        """Count rows of a table."""
        condition = "" if where is None else f" where {where}"
        reply = self._exec(f"select count() from '{table}'{condition}")  # noqa: S608 - the tests' own words
        count: int = reply["dataset"][0][0]
        return count

    def partitions(self, table: str) -> list[dict[str, Any]]:
        """Return what ``table_partitions`` says of each partition."""
        return self._records(f"table_partitions('{table}')")

    def directory(self, table: str) -> Path:
        """Return where a table lies on the disk."""
        for record in self._records("tables()"):
            if record["table_name"] == table:
                return self.root / "db" / str(record["directoryName"])
        raise SqlError(f"there is no table {table}")

    def _records(self, sql: str) -> list[dict[str, Any]]:
        reply = self._exec(sql)
        names = [column["name"] for column in reply["columns"]]
        return [dict(zip(names, row, strict=True)) for row in reply["dataset"]]

    def _exec(self, sql: str) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=REPLY_TIMEOUT_S)
        try:
            connection.request("GET", "/exec?" + urlencode({"query": sql}))
            reply: dict[str, Any] = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        if "error" in reply:
            raise SqlError(f"{sql}\n{reply['error']}")
        return reply


def _column(column: Mapping[str, Any], values: list[Any]) -> pa.Array[Any]:
    name, _, arguments = column["type"].rstrip(")").partition("(")
    if name == "ARRAY":
        kind: pa.DataType = pa.float64()
        for _ in range(column["dim"]):
            kind = pa.list_(kind)
        return pa.array(values, kind)
    if name == "DECIMAL":
        precision, scale = map(int, arguments.split(","))
        decimals = [None if value is None else Decimal(value) for value in values]
        decimal = pa.decimal128 if precision <= MAX_DECIMAL128_PRECISION else pa.decimal256
        return pa.array(decimals, decimal(precision, scale))
    if name == "GEOHASH":
        return _geohashes(arguments, values)
    return TO_ARROW[name](values)


def _geohashes(arguments: str, values: list[str | None]) -> pa.Array[Any]:
    """Make integers of what is shown as text: five bits a letter, or one bit a digit."""
    bits = int(arguments[:-1]) * (5 if arguments.endswith("c") else 1)
    kind = pa.int8() if bits < 8 else pa.int16() if bits < 16 else pa.int32() if bits < 32 else pa.int64()
    return pa.array([None if value is None else _geohash(value, as_letters=bits % 5 == 0) for value in values], kind)


def _geohash(text: str, *, as_letters: bool) -> int:
    if not as_letters:
        return int(text, 2)
    number = 0
    for letter in text:
        number = number * 32 + GEOHASH_LETTERS.index(letter)
    return number


def _plain(kind: pa.DataType) -> ToArrow:
    return lambda values: pa.array(values, kind)


def _instants(unit: str) -> ToArrow:
    return lambda values: pa.array(values, pa.string()).cast(pa.timestamp(unit, "UTC"))


def _characters(values: list[str]) -> pa.Array[Any]:
    return pa.array([ord(value) if value else 0 for value in values], pa.uint16())


def _uuids(values: list[str | None]) -> pa.Array[Any]:
    return pa.array([None if value is None else UUID(value).bytes for value in values], pa.binary(16))


def _addresses(values: list[str | None]) -> pa.Array[Any]:
    numbers = [None if value is None else int.from_bytes(map(int, value.split("."))) for value in values]
    return pa.array(numbers, pa.uint32())


def _long256s(values: list[str]) -> pa.Array[Any]:
    return pa.array([int(value, 16).to_bytes(32, "little") if value else None for value in values], pa.binary(32))


TO_ARROW: dict[str, ToArrow] = {
    "BOOLEAN": _plain(pa.bool_()),
    "BYTE": _plain(pa.int8()),
    "SHORT": _plain(pa.int16()),
    "CHAR": _characters,
    "INT": _plain(pa.int32()),
    "LONG": _plain(pa.int64()),
    "DATE": _instants("ms"),
    "TIMESTAMP": _instants("us"),
    "TIMESTAMP_NS": _instants("ns"),
    "FLOAT": _plain(pa.float32()),
    "DOUBLE": _plain(pa.float64()),
    "STRING": _plain(pa.string()),
    "VARCHAR": _plain(pa.string()),
    "SYMBOL": _plain(pa.string()),
    "LONG256": _long256s,
    "UUID": _uuids,
    "IPv4": _addresses,
}


# --- Tables that tests make in a running QuestDB ----------------------------------------------------------------------


COLUMNS = (
    "flag BOOLEAN, tiny BYTE, small SHORT, letter CHAR, num INT, big LONG, day DATE, at TIMESTAMP, at_ns TIMESTAMP_NS, "
    "ratio FLOAT, price DOUBLE, label STRING, sym SYMBOL, hash LONG256, geo GEOHASH(5c), bits GEOHASH(12b), id UUID, "
    "ip IPv4, text VARCHAR, dec DECIMAL(18,3), arr DOUBLE[]"
)
"""Columns of nearly every type; ``ts`` is added as the designated timestamp."""

VALUES = (
    "rnd_boolean(), rnd_int(-128, 127, 0)::byte, rnd_int(-32768, 32767, 0)::short, rnd_char(), rnd_int(-1000, 1000, 4), "
    "rnd_long(-9000000000000000000, 9000000000000000000, 4), rnd_date(to_date('1900', 'yyyy'), to_date('2100', 'yyyy'), 4), "
    "rnd_timestamp('1900-01-01'::timestamp, '2100-01-01'::timestamp, 4), rnd_long(0, 4000000000000000000, 4)::timestamp_ns, "
    "rnd_float(4), rnd_double(4) * 1000, rnd_str(1, 20, 4), rnd_symbol('alpha', 'beta', 'gamma', '', null), "
    "case when x % 5 = 0 then null else rnd_long256() end, rnd_geohash(25), rnd_geohash(12), "
    "case when x % 6 = 0 then null else to_uuid(rnd_long(), rnd_long()) end, rnd_ipv4('10.0.0.0/8', 4), "
    "rnd_varchar(1, 30, 4), rnd_long(-1000, 1000, 4)::decimal(18, 3), case when x % 7 = 0 then null else array[x * 0.5, -x] end"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableShape:
    """How a table is cut into partitions, and how densely the tests fill it."""

    partition_by: str
    has_wal: bool = True
    timestamp_type: str = "TIMESTAMP"
    step: int
    """Time between rows, in the unit of the timestamp: 300 rows fill a partition, and are two row groups."""

    def create(self, *, columns: str = COLUMNS) -> str:
        """Return the statement that creates such a table."""
        wal = "WAL" if self.has_wal else "BYPASS WAL"
        return (
            f"CREATE TABLE {{t}} ({columns}, ts {self.timestamp_type}) "
            f"TIMESTAMP(ts) PARTITION BY {self.partition_by} {wal}"
        )

    def insert(
        self, start: str, rows: int, *, seed: int, values: str = VALUES, columns: str = "", step: int | None = None
    ) -> str:
        """Return a statement that inserts random rows, the same ones for the same seed.

        Args:
            start: The timestamp of the first row.
            rows: How many.
            seed: Of the random values.
            values: An expression for each column but the timestamp.
            columns: Their names, where they are not all columns in the order of the table.
            step: Time between rows; the default is the table's.
        """
        sequence = "timestamp_sequence_ns" if self.timestamp_type == "TIMESTAMP_NS" else "timestamp_sequence"
        timestamps = f"{sequence}('{start}', {step or self.step})"
        seeds = f"{seed}, {seed * 7919 + 13}"
        into = f"{{t}}({columns}, ts)" if columns else "{t}"
        return f"INSERT INTO {into} SELECT {values}, {timestamps} FROM long_sequence({rows}, {seeds})"  # noqa: S608 - the tests' own words


MINUTE_US = 60_000_000
DAILY = TableShape(partition_by="DAY", step=288_000_000)
SHAPES = {
    "day": DAILY,
    "day_without_wal": TableShape(partition_by="DAY", has_wal=False, step=288_000_000),
    "hour": TableShape(partition_by="HOUR", step=12_000_000),
    "month_without_wal": TableShape(partition_by="MONTH", has_wal=False, step=144 * MINUTE_US),
    "nanos": TableShape(partition_by="DAY", timestamp_type="TIMESTAMP_NS", step=288_000_000_007),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveTable:
    """A table of a running QuestDB, and a twin made by the same statements whose partitions all stay native.

    The twin gives the expected answers: QuestDB 9.3.4 cannot read all that it writes as Parquet. Where a time range starts or
    ends within a row group, for one, it answers wrong STRING values.
    """

    server: LiveQuestDB
    name: str

    @property
    def twin(self) -> str:
        """The name of the table whose partitions stay native."""
        return f"{self.name}_twin"

    @property
    def directory(self) -> Path:
        """Where the table lies on the disk."""
        return self.server.directory(self.name)

    @property
    def partitions(self) -> list[str]:
        """The names of the attached partitions, oldest first."""
        return [record["name"] for record in self._attached()]

    @property
    def formats(self) -> str:
        """The formats of the attached partitions, oldest first: a P for Parquet, an n for native."""
        return "".join("P" if record["isParquet"] else "n" for record in self._attached())

    def run(self, *statements: str) -> None:
        """Run statements, in which ``{t}`` stands for the table, on the table and on its twin."""
        for statement in statements:
            self.server.run(statement.replace("{t}", f"'{self.name}'"), statement.replace("{t}", f"'{self.twin}'"))

    def send(self, statement: str) -> None:
        """Run a statement on the table only, without waiting until it is applied."""
        self.server.send(statement.replace("{t}", f"'{self.name}'"))

    def convert(self, *partitions: str) -> None:
        """Convert partitions to Parquet. In a table without write-ahead log the active one stays native."""
        names = ", ".join(f"'{name}'" for name in partitions)
        self.server.run(f"ALTER TABLE '{self.name}' CONVERT PARTITION TO PARQUET LIST {names}")

    def convert_back(self, *partitions: str) -> None:
        """Convert partitions to QuestDB's native format."""
        names = ", ".join(f"'{name}'" for name in partitions)
        self.server.run(f"ALTER TABLE '{self.name}' CONVERT PARTITION TO NATIVE LIST {names}")

    def expected(self, where: str | None = None, *, columns: str = "*") -> pa.Table:
        """Return rows in the order of the table, which is also coldparquet's."""
        return self.server.rows(self.twin, where, columns=columns)

    def _attached(self) -> list[dict[str, Any]]:
        return [record for record in self.server.partitions(self.name) if record["attached"]]
