"""Our own `_catalogue` files: the sidecars of a table's partitions in one object, so that one request plans them all.

It belongs to no version of the table as a whole. Each entry says of which state of its partition it is, and only counts
where all that is known of the partition agrees: the name of its directory, the size and the rows of its Parquet file, the
versions of both objects. It holds nothing that cannot be made again from the sidecars: without it each is fetched.

All numbers are little-endian. A header of 64 bytes:

    offset  type  field
    0       8s    magic, ``COLDCATL``
    8       u32   version of this format: 1
    12      u32   CRC-32 of everything behind this field up to the end of the index
    16      u64   size of this file
    24      u32   number of entries
    28      u32   number of blocks
    32      u64   bytes of the index, compressed
    40      u64   bytes of the index, decompressed
    48      u32   bytes of the index of bloom filters, with its CRC-32; 0 where there is none
    52      u32   bytes of that index, decompressed
    56      u64   bytes of the stripes

Then the index, compressed with zlib; the CRC-32 and the bytes of the index of bloom filters; the blocks; and the stripes up
to the end of the file, see :mod:`coldparquet.format.catalogue_blooms`. A block is some sidecars one after the other,
compressed together with zlib: neighbours are much alike. The index:

    u64[entries]  size of the Parquet file, as far as it is committed
    u64[entries]  rows of the partition
    u32[entries]  bytes of the sidecar, as far as they are committed
    u32[entries]  bytes of the partition's name
    u32[entries]  bytes of the ETag of the Parquet object, quotes included; 0 where it has none that lasts
    u32[entries]  bytes of the ETag of the sidecar; likewise
    u32[entries]  1 if the partition had a ``_pages``, else 0
    u32[blocks]   number of sidecars in each block; blocks and sidecars are in the order of the entries
    u64[blocks]   bytes of each block, compressed
    u32[blocks]   CRC-32 of these bytes
    bytes         the names, one after the other, then the ETags of the Parquet objects, then those of the sidecars: ASCII
"""

from __future__ import annotations

import struct

MAGIC = b"COLDCATL"
VERSION = 1
HEADER = struct.Struct("<8sIIQIIQQ16s")
LARGEST_INDEX_BYTES = 64 * 1024 * 1024
"""More is not fetched: it describes hundreds of thousands of partitions, or is no such file."""
LARGEST_RAW_INDEX_BYTES = 128 * 1024 * 1024
"""Decompressed; that of the bloom filters, too. Zeros would become a thousand times as long as they are in the file."""
LARGEST_SIDECAR_BYTES = 4 * 1024 * 1024
"""A longer sidecar is not packed: it is worth a request of its own."""
LARGEST_FILE_BYTES = 256 * 1024 * 1024
"""Room for half a million partitions, and little enough to be written, and read for that, in memory."""

PREAMBLE = struct.Struct("<8sII")
"""What stands before the first byte that the header's checksum covers."""
BLOOMS = struct.Struct("<IIQ")
"""What the header says of the bloom filters: its last 16 bytes."""
CHECKSUM = struct.Struct("<I")
"""Stands before the index of the bloom filters."""
ENTRY_U64S, ENTRY_U32S = 2, 5
"""Columns of the index with a number for each entry."""
BLOCK_ENTRY_BYTES = 16
"""What the index says of one block."""
BLOCK_SIDECAR_BYTES = 64 * 1024
"""Where a block is long enough: further neighbours hardly make it smaller, and a scan of few partitions fetches whole blocks."""
LONGEST_BLOCK_BYTES = BLOCK_SIDECAR_BYTES + LARGEST_SIDECAR_BYTES
