"""Checksums of whole objects, in all of S3's kinds."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.errors import StorageError
from coldparquet.storage import checksums
from coldparquet.storage.checksums import CHECKSUM_BYTES, WholeObjectCheck, check_whole, crc_function
from coldparquet.storage.requests import ChecksumAlgorithm, StoredChecksum

# The check values of the catalogue of CRCs, https://reveng.sourceforge.io/crc-catalogue/all.htm
KNOWN: list[tuple[ChecksumAlgorithm, int]] = [
    ("CRC32", 0xCBF43926),
    ("CRC32C", 0xE3069283),
    ("CRC64NVME", 0xAE8B14860A799888),
]
MIB = 1024 * 1024


@pytest.fixture(params=["awscrt", "crcmod"], autouse=True)
def _package(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compute with each of the packages that know these checksums."""
    pytest.importorskip(request.param)
    if request.param == "crcmod":
        monkeypatch.setitem(sys.modules, "awscrt", None)
    crc_function.cache_clear()
    yield
    crc_function.cache_clear()


@pytest.mark.parametrize(("algorithm", "value"), KNOWN)
def test_known_values(algorithm: ChecksumAlgorithm, value: int) -> None:
    crc = crc_function(algorithm)
    assert crc is not None
    assert crc(b"123456789", 0) == value
    assert crc(b"6789", crc(b"12345", 0)) == value
    assert crc(memoryview(b"0123456789")[1:], 0) == value


@pytest.mark.parametrize(("algorithm", "value"), KNOWN)
async def test_whole_objects(algorithm: ChecksumAlgorithm, value: int) -> None:
    await check_whole(b"123456789", StoredChecksum(value=value, algorithm=algorithm), path="bucket/key")
    with pytest.raises(StorageError, match=f"{value:x}") as caught:
        await check_whole(b"123456780", StoredChecksum(value=value, algorithm=algorithm), path="bucket/key")
    assert (caught.value.kind, caught.value.path) == ("ChecksumMismatch", "bucket/key")
    assert caught.value.details["algorithm"] == algorithm


def composite(algorithm: ChecksumAlgorithm, parts: list[bytes]) -> StoredChecksum:
    crc = crc_function(algorithm)
    assert crc is not None
    joined = b"".join(crc(part, 0).to_bytes(CHECKSUM_BYTES[algorithm], "big") for part in parts)
    return StoredChecksum(value=crc(joined, 0), algorithm=algorithm, part_count=len(parts))


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C"])
@pytest.mark.parametrize("part_mib", [5, 8, 16])
async def test_objects_in_parts(algorithm: ChecksumAlgorithm, part_mib: int) -> None:
    data = bytes(range(256)) * (20 * MIB // 256) + b"the end"
    starts = range(0, len(data), part_mib * MIB)
    stored = composite(algorithm, [data[start : start + part_mib * MIB] for start in starts])
    for is_whole, expected in ((True, True), (False, None)):
        check = WholeObjectCheck(stored, size_bytes=len(data))
        assert check.can_tell
        for start in range(0, len(data), 3 * MIB):
            block = data[start : start + 3 * MIB]
            await check.update(block if is_whole else block[:-1] + b"x")
        # Parts of another size would have another checksum, so that a mismatch proves nothing.
        assert check.is_match() is expected
        check.refuse_mismatch("bucket/key")


async def test_one_part_is_the_object() -> None:
    stored = composite("CRC32", [b"abc"])
    await check_whole(b"abc", stored, path="key")
    with pytest.raises(StorageError):
        await check_whole(b"abd", stored, path="key")


async def test_bytes_that_are_missing_do_not_match() -> None:
    check = WholeObjectCheck(StoredChecksum(value=zlib.crc32(b"abc")), size_bytes=4)
    await check.update(b"abc")
    assert check.is_match() is False


@pytest.mark.parametrize("part_count", [2, 10_000])
def test_parts_of_unknown_size_cannot_be_told(part_count: int) -> None:
    check = WholeObjectCheck(StoredChecksum(value=1, part_count=part_count), size_bytes=1000)
    assert not check.can_tell


async def test_without_a_package_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "awscrt", None)
    monkeypatch.setitem(sys.modules, "crcmod", None)
    crc_function.cache_clear()
    stored = StoredChecksum(value=1, algorithm="CRC64NVME")
    check = WholeObjectCheck(stored, size_bytes=3)
    await check.update(b"abc")
    assert (check.can_tell, check.is_match()) == (False, None)
    await check_whole(b"abc", stored, path="key")
    assert crc_function("CRC32") is zlib.crc32


@given(st.lists(st.binary(max_size=40), max_size=8), st.integers(0, 300))
def test_any_blocks(blocks: list[bytes], flipped: int) -> None:
    data = b"".join(blocks)
    layout = checksums.WholeObjectCheck(StoredChecksum(value=zlib.crc32(data)), size_bytes=len(data))
    other = checksums.WholeObjectCheck(StoredChecksum(value=zlib.crc32(data)), size_bytes=len(data))
    start = 0
    for block in blocks:
        layout._update(block)
        wrong = bytearray(block)
        if start <= flipped < start + len(block):
            wrong[flipped - start] ^= 1
        other._update(bytes(wrong))
        start += len(block)
    assert layout.is_match() is True
    assert other.is_match() is not (flipped < len(data))
