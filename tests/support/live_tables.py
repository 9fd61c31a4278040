"""Tables that tests make in a running QuestDB."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from tests.support.live_questdb import LiveQuestDB

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
