"""Who wrote a file, by its ``created_by``: which versions are known to be wrong, and names that nobody would choose."""

from __future__ import annotations

import time

import pytest

from coldparquet.format.parquet_footer import leaves_out_dictionary_headers, misorders_decimals


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
