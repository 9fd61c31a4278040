"""The fetch of a sidecar, step by step, without any I/O."""

from __future__ import annotations

import struct
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.errors import FormatError, InternalError, InvalidInputError, UnsupportedError
from coldparquet.format.fetch import FooterFetch, SidecarFetch
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.format.sidecar_layout import MAX_COMMITTED_BYTES
from coldparquet.options import COALESCING_BY_GOAL, MIB, Goal
from coldparquet.ranges import ByteRange, SuffixRange

GOALS = tuple(COALESCING_BY_GOAL)
LONGEST_BYTES = COALESCING_BY_GOAL["fast"].max_request_bytes
GOLDEN = Path(__file__).parents[1] / "golden" / "pm"
SIDECAR = (GOLDEN / "20_chain_3.pm").read_bytes()


def run(stored: bytes, *, prefix_bytes: int) -> tuple[SidecarFetch, list[ByteRange]]:
    """Serve a fetch from an object, as a store does: a range that begins inside may come back short."""
    fetch = SidecarFetch("bucket/_pm", prefix_bytes=prefix_bytes)
    requested = []
    while wanted := fetch.wanted():
        for byte_range in wanted:
            assert byte_range.length_bytes <= max(prefix_bytes, MAX_COMMITTED_BYTES)
            requested.append(byte_range)
            fetch.receive(byte_range, stored[byte_range.start : byte_range.stop])
    return fetch, requested


def test_sidecar_that_fits_the_prefix_costs_one_round_trip() -> None:
    fetch, requested = run(SIDECAR, prefix_bytes=65_536)
    assert requested == [ByteRange(0, 65_536)]
    assert bytes(fetch.committed_bytes()) == SIDECAR


def test_strict_mode_reads_the_header_then_exactly_the_rest() -> None:
    fetch, requested = run(SIDECAR, prefix_bytes=32)
    assert requested == [ByteRange(0, 32), ByteRange(32, 852)]
    assert bytes(fetch.committed_bytes()) == SIDECAR
    assert parse_sidecar(fetch.committed_bytes()).size_bytes == 852


@given(prefix_bytes=st.integers(32, 1000), trailing_bytes=st.integers(0, 200))
def test_any_prefix_brings_the_committed_bytes_and_no_others(prefix_bytes: int, trailing_bytes: int) -> None:
    fetch, requested = run(SIDECAR + b"\xab" * trailing_bytes, prefix_bytes=prefix_bytes)
    assert bytes(fetch.committed_bytes()) == SIDECAR
    assert len(requested) == (1 if prefix_bytes >= len(SIDECAR) else 2)
    assert requested[-1].stop <= max(prefix_bytes, len(SIDECAR))


def test_prefix_is_not_copied_when_it_is_enough() -> None:
    fetch = SidecarFetch("bucket/_pm", prefix_bytes=1000)
    data = bytes(SIDECAR)
    fetch.receive(fetch.wanted()[0], data)
    assert fetch.committed_bytes().obj is data


def rest_of(size_bytes: int, *, connections: int, goal: Goal = "fast") -> tuple[ByteRange, ...]:
    """Return what is fetched behind a prefix of 32 bytes."""
    fetch = SidecarFetch("bucket/_pm", prefix_bytes=32, coalescing=COALESCING_BY_GOAL[goal], connections=connections)
    fetch.receive(ByteRange(0, 32), struct.pack("<Q", size_bytes) + bytes(24))
    return fetch.wanted()


@given(size_bytes=st.integers(33, 256 * MIB), connections=st.integers(1, 64), goal=st.sampled_from(GOALS))
def test_the_rest_comes_in_equal_parts_of_lengths_that_are_worth_a_request(
    size_bytes: int, connections: int, goal: Goal
) -> None:
    parts, coalescing = rest_of(size_bytes, connections=connections, goal=goal), COALESCING_BY_GOAL[goal]
    assert (parts[0].start, parts[-1].stop) == (32, size_bytes)
    assert all(part.stop == follower.start for part, follower in pairwise(parts))
    lengths = [part.length_bytes for part in parts]
    assert max(lengths) - min(lengths) <= 1
    assert max(lengths) <= coalescing.max_request_bytes
    if len(parts) > 1:
        assert min(lengths) >= coalescing.least_part_bytes // 2


def test_a_rest_of_megabytes_is_spread_over_connections() -> None:
    part_bytes = COALESCING_BY_GOAL["fast"].least_part_bytes
    assert len(rest_of(6 * part_bytes + 32, connections=1)) == -(-6 * part_bytes // LONGEST_BYTES)
    assert [part.length_bytes for part in rest_of(6 * part_bytes + 32, connections=64)] == [part_bytes] * 6
    assert len(rest_of(6 * part_bytes + 32, connections=64, goal="few-requests")) == 1
    assert len(rest_of(part_bytes + 32, connections=64)) == 1


def test_parts_may_come_in_any_order() -> None:
    content = bytearray(range(256)) * (16 * 1024)
    content[:8] = struct.pack("<Q", len(content))
    fetch = SidecarFetch("bucket/_pm", prefix_bytes=100, connections=8)
    fetch.receive(ByteRange(0, 100), content[:100])
    for part in reversed(fetch.wanted()):
        fetch.receive(part, content[part.start : part.stop])
    assert bytes(fetch.committed_bytes()) == bytes(content)


@pytest.mark.parametrize("prefix_bytes", [32, 64, 65_536])
@pytest.mark.parametrize("size", [0, 1, 31, 853, 10_000, (1 << 30) + 1, 1 << 40, 1 << 63, 2**64 - 1])
def test_impossible_committed_size_is_refused_before_a_huge_request(size: int, prefix_bytes: int) -> None:
    stored = struct.pack("<Q", size) + SIDECAR[8:]
    with pytest.raises(FormatError) as caught:
        run(stored, prefix_bytes=prefix_bytes)
    assert caught.value.kind == "Truncated"
    assert caught.value.path == "bucket/_pm"
    assert caught.value.details["offset"] == 0


def test_a_size_beyond_the_object_is_refused_before_anything_else_is_asked_for() -> None:
    stored = struct.pack("<Q", 1 << 30) + SIDECAR[8:]
    fetch = SidecarFetch("bucket/_pm", prefix_bytes=64)
    with pytest.raises(FormatError, match=f"the object ends at {len(stored)}: this is no sidecar, or a damaged one"):
        fetch.receive(ByteRange(0, 64), stored[:64], object_size_bytes=len(stored))
    assert fetch.wanted() == ()


@pytest.mark.parametrize("length", [0, 7])
def test_object_without_a_committed_size_is_refused(length: int) -> None:
    fetch = SidecarFetch("bucket/_pm", prefix_bytes=32)
    with pytest.raises(FormatError) as caught:
        fetch.receive(ByteRange(0, 32), bytes(length))
    assert caught.value.kind == "Truncated"


def test_prefix_must_hold_the_header() -> None:
    with pytest.raises(InvalidInputError):
        SidecarFetch("bucket/_pm", prefix_bytes=31)


def test_misuse_is_an_internal_error() -> None:
    fetch = SidecarFetch("bucket/_pm", prefix_bytes=32)
    with pytest.raises(InternalError):
        fetch.committed_bytes()
    with pytest.raises(InternalError):
        fetch.receive(ByteRange(0, 64), SIDECAR[:64])
    with pytest.raises(InternalError):
        fetch.receive(ByteRange(0, 32), SIDECAR[:33])
    fetch.receive(ByteRange(0, 32), SIDECAR[:32])
    with pytest.raises(InternalError):
        fetch.committed_bytes()


# --- More ---


def _file(footer: bytes, data: bytes = b"data", magic: bytes = b"PAR1") -> bytes:
    return b"PAR1" + data + footer + len(footer).to_bytes(4, "little") + magic


def _answer(file: bytes, asked: ByteRange | SuffixRange) -> tuple[bytes, int]:
    if isinstance(asked, SuffixRange):
        start = max(0, len(file) - asked.length_bytes)
        return file[start:], start
    return file[asked.start : asked.stop], asked.start


def _run(fetch: FooterFetch, file: bytes) -> int:
    """Answer every question; return their number."""
    questions = 0
    while (asked := fetch.next_range) is not None:
        data, start = _answer(file, asked)
        fetch.receive(data, start=start, object_size_bytes=len(file))
        questions += 1
    return questions


@given(
    footer=st.binary(min_size=1, max_size=300),
    data=st.binary(max_size=50),
    suffix_bytes=st.integers(1, 400),
    behind=st.binary(max_size=20),
    is_size_known=st.booleans(),
)
def test_the_footer_arrives_in_at_most_two_round_trips(
    *, footer: bytes, data: bytes, suffix_bytes: int, behind: bytes, is_size_known: bool
) -> None:
    file = _file(footer, data)
    fetch = FooterFetch(path="p", suffix_bytes=suffix_bytes, size_bytes=len(file) if is_size_known else None)
    questions = _run(fetch, file + behind if is_size_known else file)
    assert fetch.footer == footer
    assert fetch.footer_offset == 4 + len(data)
    assert fetch.size_bytes == len(file)
    assert questions == (1 if max(suffix_bytes, 8) >= len(footer) + 8 else 2)


def test_the_second_request_asks_for_exactly_the_rest() -> None:
    file = _file(b"f" * 100)
    fetch = FooterFetch(path="p", suffix_bytes=20, size_bytes=None)
    asked = [fetch.next_range]
    fetch.receive(file[-20:], start=len(file) - 20)
    asked.append(fetch.next_range)
    assert asked == [SuffixRange(20), ByteRange(8, len(file) - 20)]


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        (b"", "Truncated"),
        (b"PAR1PAR1", "Truncated"),
        (_file(b"footer")[:-1], "InvalidValue"),
        (_file(b"footer", magic=b"ORC\0"), "InvalidValue"),
        (_file(b""), "InvalidValue"),
        (b"PAR1" + (9).to_bytes(4, "little") + b"PAR1", "InvalidValue"),
        (b"PAR1" + b"x" * 100 + (2**31).to_bytes(4, "little") + b"PAR1", "InvalidValue"),
    ],
)
def test_what_is_no_parquet_file(file: bytes, kind: str) -> None:
    with pytest.raises(FormatError) as caught:
        _run(FooterFetch(path="b/data.parquet", suffix_bytes=64, size_bytes=None), file)
    assert caught.value.kind == kind
    assert caught.value.path == "b/data.parquet"


def test_an_encrypted_footer_is_unsupported() -> None:
    with pytest.raises(UnsupportedError, match="encrypted"):
        _run(FooterFetch(path="p", suffix_bytes=64, size_bytes=None), _file(b"footer", magic=b"PARE"))


def test_a_file_shorter_than_its_committed_size_is_truncated() -> None:
    file = _file(b"footer")
    with pytest.raises(FormatError) as caught:
        _run(FooterFetch(path="p", suffix_bytes=64, size_bytes=len(file) + 10), file)
    assert caught.value.kind == "Truncated"


@pytest.mark.parametrize(("cut", "object_size_offset"), [(1, 0), (0, 5)])
def test_answers_that_are_not_what_was_asked(cut: int, object_size_offset: int) -> None:
    file = _file(b"f" * 100)
    fetch = FooterFetch(path="p", suffix_bytes=20, size_bytes=None)
    data = file[len(file) - 20 + cut :]
    with pytest.raises(FormatError) as caught:
        fetch.receive(data, start=len(file) - len(data), object_size_bytes=len(file) + object_size_offset)
    assert caught.value.kind == "Truncated"


def test_misuse_is_our_own_bug() -> None:
    fetch = FooterFetch(path="p", suffix_bytes=64, size_bytes=None)
    with pytest.raises(InternalError):
        _ = fetch.footer
    with pytest.raises(InternalError):
        _ = fetch.size_bytes
    _run(fetch, _file(b"footer"))
    with pytest.raises(InternalError):
        fetch.receive(b"", start=0)
