"""Who wrote a file: which writers are known for mistakes, and what a sidecar notes."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from coldparquet.format.parquet_footer import (
    WRITER_CODE,
    leaves_out_dictionary_headers,
    misorders_decimals,
)
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.format.sidecar_from_footer import sidecar_content_from_footer
from coldparquet.format.sidecar_writer import encode_sidecar
from tests.support.paged_files import written
from tests.support.parquet_footers import parsed_footer, with_changed_footer
from tests.support.questdb_tables import GOLDEN


@pytest.mark.parametrize(
    ("created_by", "without_headers", "misordered"),
    [
        (None, False, False),
        ("", False, False),
        ("parquet-mr", True, False),
        ("Parquet-MR version 1.2.8", True, False),
        ("parquet-mr version 1.2 (build abc)", True, False),
        ("parquet-mr version 1.2.8-SNAPSHOT (build abc)", True, False),
        ("parquet-mr version 1.2.9", False, False),
        ("parquet-mr version 1.15.2 (build 859eac165)", False, False),
        ("parquet-mr (build abc)", False, False),
        ("parquet-cpp version 1.5.1-SNAPSHOT", False, True),
        ("parquet-cpp-arrow version 3.0.0", False, True),
        ("parquet-cpp-arrow version 3.1.0-SNAPSHOT", False, True),
        ("parquet-cpp-arrow version 4.0.0", False, False),
        ("parquet-cpp-arrow version 26.0.1", False, False),
        ("parquet-rs version 4.0.0", False, False),
        ("DuckDB version v1.5.5 (build x)", False, False),
        ("QuestDB version 9.0", False, False),
        ("impala version 1.2.2-cdh5", False, False),
        ("a version of parquet-mr version 1.0.0", False, False),
        ("parquet-mr version " + "9" * 5_000, False, False),
        (" \n parquet-mr\n version 1.2.8", True, False),
        ("parquet-mr version (build abc)", True, False),
        ("parquet-cpp-arrow version unknown", False, True),
        ("parquet-mr" + " " * 5_000_000 + "version 1.2.8", True, False),
        ("parquet-mr" + " " * 5_000_000 + "x", False, False),
    ],
)
def test_writers_with_known_mistakes(created_by: str | None, without_headers: bool, misordered: bool) -> None:
    assert leaves_out_dictionary_headers(created_by) is without_headers
    assert misorders_decimals(created_by) is misordered


def test_files_of_questdb_need_no_note() -> None:
    """Their sidecars are byte for byte what QuestDB writes, and what marks the timestamp tells whose they are."""
    file = next(GOLDEN.glob("interval_day/table/*/data.parquet")).read_bytes()
    content = sidecar_content_from_footer(parsed_footer(file))
    assert content.scratchpad == []
    sidecar = parse_sidecar(encode_sidecar(content))
    assert sidecar.created_by is None
    assert sidecar.is_writer_known


@pytest.mark.parametrize(
    ("created_by", "noted"),
    [(None, ""), ("Arrow", "Arrow"), ("é" * 10_000, "é" * 500), ("\0\n" * 9, "\0\n" * 9)],
)
def test_files_of_others_get_one(created_by: str | None, noted: str) -> None:
    file = with_changed_footer(written(), lambda footer: setattr(footer, "created_by", created_by))
    content = sidecar_content_from_footer(parsed_footer(file))
    assert [entry.code for entry in content.scratchpad].count(WRITER_CODE) == 1
    sidecar = parse_sidecar(encode_sidecar(content))
    assert sidecar.created_by == noted
    assert sidecar.is_writer_known
    old = parse_sidecar(encode_sidecar(replace(content, scratchpad=())))
    assert old.created_by is None
    assert not old.is_writer_known


# --- Who wrote a file, by its ``created_by``: which versions are known to be wrong, and names that no writer would choose ---


@pytest.mark.parametrize(
    ("created_by", "leaves_out", "misorders"),
    [
        (None, False, False),
        ("", False, False),
        ("parquet-mr", True, False),
        ("parquet-mr version 1.2.8 (build 23bf51c)", True, False),
        (" Parquet-MR  VERSION 1.2", True, False),
        ("parquet-mr version 1.2.9", False, False),
        ("parquet-mr version 1.10.1 (build a)", False, False),
        ("parquet-mr versions 1.2.8", False, False),
        ("parquet-cpp", False, True),
        ("parquet-cpp version 1.5.1-SNAPSHOT", False, True),
        ("parquet-cpp version", False, True),
        ("parquet-cpp version 2.0.0", False, False),
        ("parquet-cpp-arrow version 3.0.0", False, True),
        ("parquet-cpp-arrow version 10.0.1", False, False),
        ("my parquet-cpp version 1.5.1", False, False),
        ("version 1.0", False, False),
    ],
)
def test_versions(created_by: str | None, leaves_out: bool, misorders: bool) -> None:
    assert leaves_out_dictionary_headers(created_by) == leaves_out
    assert misorders_decimals(created_by) == misorders


@pytest.mark.parametrize(
    "created_by", ["a" + " " * 1_000_000 + "b", " " * 1_000_000, "version " * 200_000, "x version 1.2" * 100_000]
)
def test_a_name_of_a_megabyte_takes_no_time(created_by: str) -> None:
    """Its spaces were divided between the parts of a pattern in every possible way: 1,600 of them took two seconds."""
    start_s = time.process_time()
    assert not leaves_out_dictionary_headers(created_by)
    assert not misorders_decimals(created_by)
    assert time.process_time() - start_s < 1
