"""Price tables: the library's own, one's own, and what is said of a file that is none."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.errors import ColdParquetError, InvalidInputError, NotFoundError
from coldparquet.prices import PriceTable
from coldparquet.records import replace

DEFAULT = PriceTable.default()
READABLE = ("STANDARD", "INTELLIGENT_TIERING", "STANDARD_IA", "ONEZONE_IA", "GLACIER_IR")


def own_class(**changes: Any) -> dict[str, Any]:
    return {
        "million_gets": 1, "million_heads": 2, "million_puts": 3, "million_lists": 4, "gb_retrieved": 0.5, "gb_month": 6,
    } | changes  # fmt: skip


def own_table(**changes: Any) -> dict[str, Any]:
    table = {"name": "our store", "as_of": "2026-11", "gb_transferred_out": 0.1, "classes": {"STANDARD": own_class()}}
    return {key: value for key, value in (table | changes).items() if value is not None}


def read(tmp_path: Path, table: Any) -> PriceTable:
    path = tmp_path / "prices.json"
    path.write_text(table if isinstance(table, str) else json.dumps(table), encoding="utf-8")
    return PriceTable.read(path)


def test_default_prices_of_reading() -> None:
    assert DEFAULT.request_dollars("get", count=1_000_000, retrieved_bytes=10**12) == pytest.approx(0.40)
    assert DEFAULT.request_dollars(
        "get", count=1_000_000, retrieved_bytes=10**9, storage_class="STANDARD_IA"
    ) == pytest.approx(1.01)
    assert DEFAULT.request_dollars("get", count=0, retrieved_bytes=10**12, storage_class="GLACIER_IR") == pytest.approx(
        30
    )
    assert DEFAULT.request_dollars("list", count=1_000_000) == pytest.approx(5)
    assert DEFAULT.request_dollars("put", count=1_000_000, storage_class="GLACIER_IR") == pytest.approx(20)
    assert DEFAULT.request_dollars("head", count=1_000_000, storage_class="STANDARD_IA") == pytest.approx(1)
    assert DEFAULT.request_dollars("get", storage_class="SNOW") is None
    assert DEFAULT.read_dollars(
        get_count=10**6, retrieved_bytes=10**9, list_count=10**6, storage_class="STANDARD_IA"
    ) == pytest.approx(1 + 0.01 + 5)


def test_each_figure_has_a_date_and_a_source() -> None:
    for prices in DEFAULT.classes:
        figures = [
            prices.million_gets, prices.million_heads, prices.million_puts, prices.million_lists, prices.gb_retrieved,
            prices.gb_month, *(price for restore in prices.restores for price in (restore.million_requests, restore.gb)),
        ]  # fmt: skip
        assert all(price.as_of.startswith("20") and price.source.startswith("https://") for price in figures)
    assert not DEFAULT.of("GLACIER_IR").is_verified
    assert DEFAULT.of("STANDARD").is_verified


def test_only_archive_classes_must_be_restored() -> None:
    assert [prices.name for prices in DEFAULT.classes if prices.must_be_restored] == ["GLACIER", "DEEP_ARCHIVE"]
    for name in READABLE:
        assert not DEFAULT.of(name).must_be_restored


def test_gap_at_which_bytes_cost_as_much_as_a_request() -> None:
    assert DEFAULT.break_even_bytes("STANDARD_IA") == pytest.approx(100_000)
    assert DEFAULT.break_even_bytes("GLACIER_IR") == pytest.approx(333_333, abs=1)
    assert DEFAULT.break_even_bytes(None) == float("inf")
    outside = replace(DEFAULT, counts_transfer_out=True)
    assert outside.break_even_bytes(None) == pytest.approx(0.40 / 1e6 / 0.09 * 1e9)
    assert outside.request_dollars("get", retrieved_bytes=10**9) == pytest.approx(0.09 + 0.4e-6)


def test_restores() -> None:
    """100 TB in 15,000,000 objects, an example that AWS reckons in its knowledge center."""
    days_of_no_copy = 0
    dollars = DEFAULT.restore_dollars(
        "GLACIER", "Standard", object_count=15_000_000, object_bytes=102_400 * 10**9, days=days_of_no_copy
    )
    assert dollars == pytest.approx(750 + 1_024)
    copies = DEFAULT.restore_dollars("GLACIER", "Bulk", object_count=1, object_bytes=10**12, days=15)
    assert copies == pytest.approx(1_000 * 0.023 / 2)
    hours = DEFAULT.restore_price("DEEP_ARCHIVE", "Bulk")
    assert (hours.hours_typical, hours.hours_most) == (36, 48)


@pytest.mark.parametrize(
    ("storage_class", "tier", "said"),
    [
        ("DEEP_ARCHIVE", "Expedited", "DEEP_ARCHIVE is not restored in tier 'Expedited'; use Standard, Bulk"),
        ("STANDARD_IA", "Bulk", "it needs no restore"),
        (
            "SNOW",
            "Bulk",
            "no price known for storage class 'SNOW' in the table 'Amazon S3, us-east-1'; known: STANDARD,",
        ),
    ],
)
def test_no_such_restore(storage_class: str, tier: Any, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        DEFAULT.restore_price(storage_class, tier)


def test_tables_pickle_compare_and_hash() -> None:
    assert pickle.loads(pickle.dumps(DEFAULT)) == DEFAULT  # noqa: S301 - our own bytes
    assert len({DEFAULT, PriceTable.default()}) == 1


def test_a_table_of_ones_own(tmp_path: Path) -> None:
    dear = {"dollars": 7, "as_of": "2025-01", "source": "our contract", "verified": False}
    table = read(tmp_path, own_table(classes={"STANDARD": own_class(million_gets=dear), "COLD": own_class()}))
    assert [prices.name for prices in table.classes] == ["STANDARD", "COLD"]
    assert (table.name, table.as_of, table.counts_transfer_out) == ("our store", "2026-11", False)
    dearest, cold = table.of(None).million_gets, table.of("COLD").million_gets
    assert (dearest.dollars, dearest.as_of, dearest.source, dearest.verified) == (7.0, "2025-01", "our contract", False)
    assert (cold.dollars, cold.as_of, cold.source, cold.verified) == (1.0, "2026-11", "your own table", True)


def test_a_table_that_changes_some_prices_of_the_default(tmp_path: Path) -> None:
    bulk = {"million_requests": 9, "gb": 0.1, "hours_typical": 1, "hours_most": 2}
    classes = {
        "STANDARD_IA": {"gb_retrieved": 0.008},
        "GLACIER": {"restores": {"Bulk": bulk}},
        "OURS": own_class(must_be_restored=True),
    }
    table = read(
        tmp_path, own_table(based_on="default", classes=classes, gb_transferred_out=None, counts_transfer_out=True)
    )
    assert table.of("STANDARD_IA").gb_retrieved.dollars == 0.008
    assert table.of("STANDARD_IA").million_gets == DEFAULT.of("STANDARD_IA").million_gets
    assert table.of("GLACIER_IR") == DEFAULT.of("GLACIER_IR")
    assert table.restore_price("GLACIER", "Bulk").hours_most == 2
    assert table.restore_price("GLACIER", "Standard") == DEFAULT.restore_price("GLACIER", "Standard")
    assert table.of("OURS").must_be_restored
    assert table.of("GLACIER").must_be_restored
    assert table.gb_transferred_out == DEFAULT.gb_transferred_out
    assert table.counts_transfer_out
    assert read(tmp_path, own_table(based_on="default", classes=None)).classes == DEFAULT.classes


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("[]", "the file is []; expected an object"),
        ("{", "the price table is no JSON: Expecting property name enclosed in double quotes: line 1 column 2"),
        ('{"name": "a", "name": "b"}', "'name' is named twice in one object"),
        ("[" * 100_000, "lists or objects lie in each other too deeply"),
        ("\ud800".encode("utf-16", "surrogatepass").decode("latin-1"), "the price table is no JSON"),
        (own_table(classes=None), "expected a field 'classes' in it"),
        (own_table(gb_transferred_out=None), "expected a field 'gb_transferred_out' in it"),
        (own_table(classes={}), "classes is {}; expected at least one storage class"),
        (own_table(name=3), "name is 3; expected a string"),
        (own_table(clases={}), "clases is {}; expected no such field; known here: name, as_of, source"),
        (own_table(based_on="aws"), 'based_on is "aws"; expected "default"'),
        (own_table(counts_transfer_out=1), "counts_transfer_out is 1; expected true or false"),
        (own_table(classes={"A": {"million_gets": 1}}), "classes.A is"),
        (own_table(classes={"A": own_class(million_gets="1")}), 'classes.A.million_gets is "1"; expected a number of doll'),
        (own_table(classes={"A": own_class(million_gets=-1)}), "classes.A.million_gets is -1; expected a number of dollars, at"),
        (own_table(classes={"A": own_class(million_gets=True)}), "classes.A.million_gets is true; expected a number of"),
        (own_table(classes={"A": own_class(million_gets={})}), "expected a field 'dollars' in it"),
        (own_table(classes={"A": own_class(million_gets=10**400)}), "expected a number of dollars, at least 0"),
        (own_table(classes={"A": own_class(gb_month=float("nan"))}), "classes.A.gb_month is NaN; expected a number"),
        (own_table(classes={"A": own_class(gb_month=float("inf"))}), "classes.A.gb_month is Infinity; expected a number"),
        (own_table(classes={"A": own_class(restores={"Slow": {}})}), "classes.A.restores.Slow is {}; expected no such field"),
        (own_table(classes={"A": own_class(restores={"Bulk": {"gb": 1}})}), "expected a field 'hours_typical' in it"),
    ],
)  # fmt: skip
def test_the_error_says_what_is_wrong_where(tmp_path: Path, table: Any, said: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        read(tmp_path, table)
    assert raised.value.kind == "InvalidPrices"
    assert said in str(raised.value)
    assert raised.value.path == str(tmp_path / "prices.json")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="there is no such price table"):
        PriceTable.read(tmp_path / "nowhere.json")
    with pytest.raises(InvalidInputError, match="cannot be read"):
        PriceTable.read(tmp_path)
    (tmp_path / "big.json").write_bytes(b" " * 1_100_000)
    with pytest.raises(InvalidInputError, match="this is no price table"):
        PriceTable.read(tmp_path / "big.json")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3),
    max_leaves=8,
)


@given(data=st.data())
def test_any_file_is_a_table_or_an_error(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    table: Any = own_table(based_on=data.draw(st.sampled_from([None, "default"])))
    where = table
    for key in data.draw(st.sampled_from([["classes"], ["classes", "STANDARD"], ["classes", "STANDARD", "gb_month"]])):
        parent, where = where, where[key]
    parent[key] = data.draw(JSON)
    try:
        found = read(tmp_path_factory.mktemp("prices"), table)
    except ColdParquetError as error:
        kind = error.kind
    else:
        kind = "table" if found.classes else "nothing"
    assert kind in {"InvalidPrices", "table"}
