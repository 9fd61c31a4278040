"""Any bytes in: a model or a FormatError/UnsupportedError, quickly, and never more memory than the input justifies."""

from __future__ import annotations

import contextlib
import struct
import time
import tracemalloc
import zlib
from pathlib import Path

import crcmod.predefined
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.cli.sidecar_dump import describe_sidecar
from coldparquet.errors import FormatError, UnsupportedError
from coldparquet.format.sidecar import Sidecar, parse_sidecar, walk_chain
from coldparquet.format.sidecar_header import parse_header
from coldparquet.format.sidecar_layout import PhysicalType
from coldparquet.format.sidecar_writer import (
    BoundSpec,
    ChunkSpec,
    ColumnSpec,
    RowGroupSpec,
    SidecarContent,
    encode_sidecar,
)
from coldparquet.records import replace

GOLDEN = Path(__file__).parents[1] / "golden" / "pm"
NAMES = ("01_empty", "04_sample_b", "05_sample_c", "11_no_timestamp", "14_one_sided", "17_bloom_external")
SECTIONS = (
    "18_squash_tracker",
    "19_sections",
    "20_chain_3",
    "21_dead_footer",
    "22_token_only",
    "30_unknown_footer_bit",
)
FILES = {name: (GOLDEN / f"{name}.pm").read_bytes() for name in NAMES + SECTIONS}
REFUSED = (FormatError, UnsupportedError)


def seal(data: bytes) -> bytes:
    """Make the CRC of the footer at the declared size right again, where there is room for one."""
    (size,) = struct.unpack_from("<Q", data)
    if not 16 <= size <= len(data):
        return data
    return data[: size - 8] + struct.pack("<I", zlib.crc32(data[8 : size - 8])) + data[size - 4 :]


def use_everything(sidecar: Sidecar) -> None:
    """Touch all that the model offers; each part may refuse on its own, and nothing else may happen."""

    def touch_chunks(column: int) -> None:
        chunks = sidecar.chunks(column)
        for name in (
            "codec",
            "num_values",
            "byte_range_start",
            "total_compressed_bytes",
            "null_count",
            "distinct_count",
        ):
            with contextlib.suppress(*REFUSED):
                assert getattr(chunks, name).shape == (sidecar.row_group_count,)
        for bounds in (chunks.min, chunks.max):
            prefixes, lengths = bounds.prefix_words()
            for row_group in range(sidecar.row_group_count):
                value = bounds.bytes_at(row_group)
                assert lengths[row_group] == (-1 if value is None else len(value))
                assert int(prefixes[row_group]) == int.from_bytes((value or b"")[:8].ljust(8, b"\0"), "big")

    for column in range(min(sidecar.column_count, 20)):
        with contextlib.suppress(*REFUSED):
            sidecar.column(column)
        touch_chunks(column)
        for row_group in range(sidecar.row_group_count):
            sidecar.bloom_location(row_group, column)
            sidecar.bloom_bitset(row_group, column)
    for attribute in ("row_counts", "total_rows", "designated_timestamp", "sorting_columns", "foreign_annotations"):
        with contextlib.suppress(*REFUSED):
            getattr(sidecar, attribute)
    with contextlib.suppress(*REFUSED):
        sidecar.column_index("x")
    with contextlib.suppress(*REFUSED):
        sidecar.chain()


@pytest.mark.parametrize("name", FILES)
def test_every_other_footer_length_is_refused(name: str) -> None:
    data = FILES[name]
    right = struct.unpack_from("<I", data, len(data) - 4)[0]
    for length in range(len(data) + 1):
        if length != right:
            with pytest.raises(FormatError):
                parse_sidecar(data[:-4] + struct.pack("<I", length))


@pytest.mark.parametrize("name", FILES)
def test_checksum_agrees_with_an_independent_crc(name: str) -> None:
    data = FILES[name]
    crc32 = crcmod.predefined.mkCrcFun("crc-32")
    for footer in parse_sidecar(data).chain():
        assert footer.checksum == crc32(data[8 : footer.checksum_offset])


interesting = st.sampled_from([0, 1, 2, 3, 7, 8, 0x7F, 0xFF, 0x7FFF_FFFF, 0xFFFF_FFFF, 1 << 32, 1 << 63, 2**64 - 1])


@given(
    name=st.sampled_from(sorted(FILES)),
    edits=st.lists(
        st.tuples(st.integers(0, 2000), st.sampled_from([1, 2, 4, 8]), interesting | st.integers(0, 2**64 - 1)),
        min_size=1,
        max_size=4,
    ),
    sealed=st.booleans(),
)
def test_random_edits_with_a_valid_checksum(name: str, edits: list[tuple[int, int, int]], sealed: bool) -> None:
    damaged = bytearray(FILES[name])
    for position, width, value in edits:
        start = position % len(damaged)
        stop = min(start + width, len(damaged))
        damaged[start:stop] = value.to_bytes(8, "little")[: stop - start]
    data = seal(bytes(damaged)) if sealed else bytes(damaged)
    with contextlib.suppress(*REFUSED):
        use_everything(parse_sidecar(data))
    with contextlib.suppress(*REFUSED):
        use_everything(parse_sidecar(data, verify_checksum=False))
    with contextlib.suppress(*REFUSED):
        describe_sidecar(data)
    with contextlib.suppress(*REFUSED):
        parse_sidecar(data, parquet_size_bytes=2308)


@given(data=st.binary(max_size=300), flags=st.integers(0, 15), columns=st.integers(0, 4))
def test_random_bytes_behind_a_plausible_header(data: bytes, flags: int, columns: int) -> None:
    size = 32 + len(data)
    file = seal(struct.pack("<QQiIII", size, flags, 0, 0, columns, 0) + data)
    with contextlib.suppress(*REFUSED):
        use_everything(parse_sidecar(file))
    with contextlib.suppress(*REFUSED):
        describe_sidecar(file)


def patched(offset: int, layout: str, value: int) -> bytes:
    data = bytearray(FILES["05_sample_c"])
    struct.pack_into(layout, data, offset, value)
    return seal(bytes(data))


HOSTILE = {
    "column count": patched(24, "<I", 2**32 - 1),
    "sorting column count": patched(20, "<I", 2**32 - 1),
    "row group count": patched(316 + 12, "<I", 2**32 - 1),
    "declared size": patched(0, "<Q", 2**63),
    "largest declared size": patched(0, "<Q", 2**64 - 1),
    "zero declared size": patched(0, "<Q", 0),
    "bloom column count": patched(100, "<I", 2**32 - 1),
    "name offset": patched(32, "<Q", 2**64 - 1),
    "name length": patched(56, "<I", 2**32 - 1),
    "footer length": patched(376, "<I", 2**32 - 1),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_absurd_numbers_are_refused_at_once_and_for_free(what: str) -> None:
    tracemalloc.start()
    try:
        started_s = time.process_time()
        with pytest.raises(FormatError):
            parse_sidecar(HOSTILE[what])
        worked_s = time.process_time() - started_s
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert worked_s < 1
    assert peak_bytes < 100_000


def overlapping_blocks(row_groups: int) -> bytes:
    """One block of one column that every row group claims."""
    header = struct.pack("<QQiIII", 0, 0, -1, 0, 1, 0) + struct.pack("<QiiiiIBBBB", 64, 0, 6, 4, 0, 8, 2, 0, 1, 0)
    file = header + b"longname" + bytes(72)
    file += struct.pack("<QIIQQQ", 100, 10, row_groups, 0, 0, 0) + struct.pack("<I", 9) * row_groups
    size = len(file) + 8
    file = file + bytes(4) + struct.pack("<I", 40 + 4 * row_groups + 4)
    return seal(struct.pack("<Q", size) + file[8:])


def test_row_groups_that_share_one_block_are_refused() -> None:
    parse_sidecar(overlapping_blocks(1))
    with pytest.raises(FormatError) as caught:
        parse_sidecar(overlapping_blocks(10_000))
    assert caught.value.kind == "InvalidValue"


def test_values_that_share_bytes_do_not_multiply_the_description() -> None:
    """Many bounds may refer to the same out-of-line bytes; shown one by one they would exceed any memory."""
    bound = BoundSpec(bytes(60_000))
    chunk = ChunkSpec(codec=0, encodings=1, num_values=1, byte_range_start=4, total_compressed_bytes=8, min=bound)
    column = ColumnSpec(name="a", type_code=26, physical_type=PhysicalType.BYTE_ARRAY)
    content = SidecarContent(
        columns=[column] * 100,
        row_groups=[RowGroupSpec(row_count=1, chunks=[chunk] + [replace(chunk, min=None)] * 99)],
        parquet_footer_offset=100,
        parquet_footer_length=50,
    )
    data = bytearray(encode_sidecar(content))
    describe_sidecar(data)
    block = int(parse_sidecar(data).footer.block_offsets[0])
    for column_index in range(1, 100):
        first, last = block + 8, block + 8 + 64 * column_index
        data[last : last + 64] = data[first : first + 64]
    shared = seal(bytes(data))
    assert len(parse_sidecar(shared).chunks(99).min.bytes_at(0) or b"") == 60_000
    with pytest.raises(FormatError, match="overlap"):
        describe_sidecar(shared)


def test_overlapping_footers_do_not_make_the_walk_quadratic() -> None:
    """Footers begin in front, one after the other, and all end at the back, so that each claims nearly the whole file."""
    footers = 500
    fronts = 32 + 40 * footers
    file = bytearray(fronts + 8 * footers)
    struct.pack_into("<QQiIII", file, 0, len(file), 0, -1, 0, 0, 0)
    for index in range(footers):
        start, size = 32 + 40 * index, fronts + 8 * (index + 1)
        previous = size - 8 if index else 0
        # Entries of the first footers are fixed fields of the others; none is checked before the walk.
        struct.pack_into("<QIIQQQ", file, start, 100, 10, (size - 8 - start - 40) // 4, 0, previous, 0)
        struct.pack_into("<I", file, size - 4, size - 4 - start)
    header = parse_header(memoryview(file), path=None)
    with pytest.raises(FormatError, match="overlap"):
        list(walk_chain(memoryview(file), len(file), header, path=None))
