from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.errors import FormatError, InternalError, UnsupportedError
from coldparquet.format.fetch import FooterFetch
from coldparquet.ranges import ByteRange, SuffixRange


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
