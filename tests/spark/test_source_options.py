"""What the options of the data source mean, and that none of them tells a secret. Needs no JVM."""

from __future__ import annotations

import json
import pickle
import re
from typing import TYPE_CHECKING

import pytest

from coldparquet.errors import ColdParquetError, InvalidInputError, UnsupportedError
from coldparquet.options import MIB, ReadOptions, RestoreTerms, StoreOptions
from coldparquet.spark.credentials import Credentials
from coldparquet.spark.errors import told_to_spark
from coldparquet.spark.options import SourceOptions, StreamOptions

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "planted-7f3a"  # noqa: S105 - planted, to be looked for


def test_defaults() -> None:
    options = SourceOptions.parse({"path": "s3://bucket/db/trades"})
    assert options.urls == ("s3://bucket/db/trades",)
    assert options.columns is None
    assert options.where is None
    assert not options.push_filters
    assert options.nanoseconds == "timestamp"
    assert options.most_pieces is None
    assert options.read_options == ReadOptions(symbols="string")
    assert options.store_options == StoreOptions()
    assert options.credentials.storage_options() == {}


def test_names_in_camel_case() -> None:
    given = {
        "maxBytes": "5",
        "batchRows": "7",
        "pushFilters": "true",
        "secretOptions": '{"key": "k"}',
        "storage.my_region": "v",
    }
    options = SourceOptions.parse({"path": "a", **given})
    assert (options.read_options.max_bytes, options.read_options.batch_rows, options.push_filters) == (5, 7, True)
    assert options.credentials.storage_options() == {"key": "k", "my_region": "v"}
    assert StreamOptions.parse({"startingFrom": "latest", "max_rows_per_trigger": "9"}).starting_from == "latest"
    with pytest.raises(InvalidInputError, match="given twice, in two spellings"):
        SourceOptions.parse({"path": "a", "maxBytes": "5", "max_bytes": "6"})
    with pytest.raises(InvalidInputError, match="did you mean 'max_bytes'"):
        SourceOptions.parse({"path": "a", "maxByte": "5"})


@pytest.mark.parametrize(
    ("text", "keys"),
    [("inferred", "inferred"), ("text", "text"), ("zip=text,year=int32", {"zip": "text", "year": "int32"})],
)
def test_types_of_keys(text: str, keys: object) -> None:
    assert SourceOptions.parse({"path": "t", "keys": text}).read_options.keys == keys
    with pytest.raises(InvalidInputError, match="KEY=TYPE"):
        SourceOptions.parse({"path": "t", "keys": "zip=string"})


@pytest.mark.parametrize("name", ["mergeSchema", "mergeschema", "merge_schema"])
def test_merged_schemas_are_the_columns_of_all_partitions(name: str) -> None:
    for text, columns_from in (("true", "all"), ("False", "newest")):
        asked = {"path": "a", name: text}
        assert SourceOptions.parse(asked).read_options.columns_from == columns_from
        assert SourceOptions.parse({**asked, "columnsFrom": columns_from}).read_options.columns_from == columns_from
    with pytest.raises(
        InvalidInputError, match="the options columns_from and merge_schema say different things"
    ) as caught:
        SourceOptions.parse({"path": "a", name: "true", "columns_from": "newest"})
    assert caught.value.kind == "InvalidOption"
    with pytest.raises(InvalidInputError, match="it must be true or false"):
        SourceOptions.parse({"path": "a", name: "all"})


@pytest.mark.parametrize(
    "advice", ["ReadOptions(unread='skip')", "ReadOptions(columns_from='all')", "ReadOptions(sidecars=False)"]
)
def test_errors_advise_options_of_the_source(advice: str) -> None:
    name, value = re.findall(r"(\w+)='?(\w+)", advice)[0]
    with (
        pytest.raises(ColdParquetError, match=re.escape(f".option('{name}', '{value.lower()}') helps")),
        told_to_spark(),
    ):
        raise UnsupportedError(f"{advice} helps")


def test_every_option() -> None:
    options = SourceOptions.parse(
        {
            "path": "a",
            "Columns": "ts, price",
            "WHERE": "price > 3",
            "push_filters": "True",
            "nanoseconds": "long",
            "pieces": "6",
            "goal": "cheap",
            "memory_limit": "64MiB",
            "max_concurrency": "4",
            "batch_rows": "1000",
            "max_bytes": "1.5GB",
            "max_requests": "9",
            "max_usd": "0.25",
            "archived": "restore",
            "unread": "skip",
            "columns_from": "all",
            "sidecars": "false",
            "restore_tier": "Bulk",
            "restore_days": "3",
            "restore_wait": "true",
            "cache_directory": "/somewhere",
            "max_attempts": "2",
            "storage.endpoint_url": "http://host:9000",
            "storage.key": "0123",
            "storage.anon": "false",
        }
    )
    assert options.columns == ("ts", "price")
    assert options.where == "price > 3"
    assert options.push_filters
    assert options.nanoseconds == "long"
    assert options.most_pieces == 6
    assert options.read_options == ReadOptions(
        symbols="string",
        goal="cheap",
        unread="skip",
        columns_from="all",
        sidecars=False,
        memory_limit_bytes=64 * MIB,
        max_concurrency=4,
        batch_rows=1000,
        max_bytes=1_500_000_000,
        max_requests=9,
        max_usd=0.25,
        archived="restore",
        restore=RestoreTerms(tier="Bulk", days=3, wait=True),
    )
    assert options.store_options == StoreOptions(cache_directory="/somewhere", max_attempts=2)
    assert options.credentials.storage_options() == {"endpoint_url": "http://host:9000", "key": "0123", "anon": False}


@pytest.mark.parametrize(
    ("text", "columns"),
    [("", ()), ("ts", ("ts",)), ('["a,b", "c"]', ("a,b", "c")), (" ts ,, price ", ("ts", "price"))],
)
def test_columns(text: str, columns: tuple[str, ...]) -> None:
    assert SourceOptions.parse({"path": "a", "columns": text}).columns == columns


@pytest.mark.parametrize(
    ("options", "urls"),
    [
        ({"path": "s3://b/t"}, ("s3://b/t",)),
        ({"path": "s3://b/t, s3a://b/u,"}, ("s3://b/t", "s3a://b/u")),
        ({"paths": '["s3://b/with,comma", "u"]'}, ("s3://b/with,comma", "u")),
        ({"path": "a,a"}, ("a",)),
    ],
)
def test_urls(options: dict[str, str], urls: tuple[str, ...]) -> None:
    assert SourceOptions.parse(options).urls == urls


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "no table is named"),
        ({"path": "a", "colums": "ts"}, "no option 'colums'; did you mean 'columns'?"),
        ({"path": "a", "quux": "ts"}, "no option 'quux'; there are archived"),
        ({"path": "a", "pieces": "0"}, "at least 1"),
        ({"path": "a", "pieces": "many"}, "whole number"),
        ({"path": "a", "max_usd": "cheap"}, "must be a number"),
        ({"path": "a", "max_bytes": "12 parsecs"}, "number of bytes"),
        ({"path": "a", "nanoseconds": "int"}, "one of 'timestamp', 'long'"),
        ({"path": "a", "push_filters": "1"}, "true or false"),
        ({"path": "a", "goal": "best"}, "goal is 'best'"),
        ({"path": "a", "columns": "[ts]"}, "JSON list"),
        ({"paths": "{}"}, "JSON list"),
        ({"path": "s3://b/{trades,quotes}/x"}, "{trades,quotes} names no tables"),
        ({"path": "a", "owner": "me"}, "only temporary views"),
        ({"location": "a"}, "only temporary views"),
        ({"path": "a", "credentials": SECRET}, "env:NAME"),
        ({"path": "a", "storage.account_key": SECRET}, "holds 'account_key', of which Spark does not know"),
        ({"path": "a", "storage.connection_string": SECRET}, "give a JSON object as option secret_options"),
        ({"path": "a", "storage.client_kwargs": json.dumps({"headers": {"X-Mine": SECRET}})}, "holds 'headers'"),
        ({"path": "a", "storage_options": json.dumps({"account_key": SECRET})}, "storage_options holds 'account_key'"),
        ({"path": "a", "secret_options": SECRET}, "secret_options is no JSON object"),
        ({"path": "a", "storage_options": SECRET}, "no JSON object"),
        ({"path": "a", "storage_options": f'["{SECRET}"]'}, "no JSON object"),
    ],
)
def test_bad_options_are_named(options: dict[str, str], words: str) -> None:
    with pytest.raises((InvalidInputError, UnsupportedError), match=re.escape(words)) as caught:
        SourceOptions.parse(options)
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(caught.value.details)


def test_options_of_others_pass() -> None:
    assert SourceOptions.parse({"path": "a", "On_Change": "error"}, also=frozenset({"on_change"})).urls == ("a",)


def test_secrets_are_never_shown() -> None:
    options = SourceOptions.parse(
        {"path": "a", "storage.secret": SECRET, "storage_options": json.dumps({"key": SECRET})}
    )
    assert SECRET not in repr(options)
    assert SECRET not in str(options.credentials)
    assert options.credentials.storage_options() == {"secret": SECRET, "key": SECRET}


@pytest.mark.parametrize(
    "options",
    [
        {"secret_options": json.dumps({"account_key": SECRET, "account_name": "mine"})},
        {"storage.client_secret": SECRET, "storage.sas_token": SECRET},
        {"storage.client_kwargs": json.dumps({"aws_secret_access_key": SECRET})},
        {"storage_options": json.dumps({"account_key": SECRET, "client_secret": SECRET})},
    ],
)
def test_what_spark_hides_is_taken(options: dict[str, str]) -> None:
    """Spark blackens an option if its name or its value holds one of the words that it knows."""
    known = re.compile("secret|password|token|access[.]?key", re.IGNORECASE)
    assert all(known.search(name) or known.search(value) for name, value in options.items())
    assert SECRET in str(SourceOptions.parse({"path": "a", **options}).credentials.storage_options())


def test_references_are_resolved_where_they_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "store.json"
    file.write_text(json.dumps({"secret": SECRET, "key": "mine"}))
    monkeypatch.setenv("STORE_SECRET", json.dumps({"secret": SECRET}))
    for reference, expected in {
        "env:STORE_SECRET": {"secret": SECRET},
        f"file:{file}": {"secret": SECRET, "key": "mine"},
    }.items():
        credentials = Credentials.parse({"credentials": reference})
        travelling = pickle.dumps(credentials.as_dict())
        assert SECRET.encode() not in travelling
        assert Credentials.from_dict(pickle.loads(travelling)).storage_options() == expected  # noqa: S301 - our own bytes


def test_what_is_written_out_goes_before_what_is_referred_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORE_SECRET", '{"key": "theirs", "anon": true}')
    credentials = Credentials.parse({"credentials": "env:STORE_SECRET", "storage.key": "mine"})
    assert credentials.storage_options() == {"key": "mine", "anon": True}


@pytest.mark.parametrize("reference", ["env:NOT_SET_AT_ALL", "file:/no/such/file", "env:STORE_SECRET"])
def test_references_that_lead_nowhere(reference: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORE_SECRET", SECRET)
    with pytest.raises(InvalidInputError, match=reference.partition(":")[2]) as caught:
        Credentials.parse({"credentials": reference}).storage_options()
    assert caught.value.kind == "NoCredentials"
    assert SECRET not in str(caught.value)
