"""Uploads to stores that know none in parts: a temporary file of this machine collects them."""

from __future__ import annotations

import asyncio
import os
import tempfile
import uuid
import zlib
from pathlib import Path

from coldparquet.storage.objects import Upload, UploadedPart
from coldparquet.storage.threads import run_to_end


class StagedUploads:
    """The steps of an upload but the last, which hands the file ``Upload.upload_id`` to the store.

    Stores derive from it.
    """

    async def start_upload(self, path: str, *, storage_class: str | None = None) -> Upload:
        """Choose a temporary file, which collects the parts."""
        name = f"{tempfile.gettempdir()}/coldparquet-{uuid.uuid4().hex}.upload"
        return Upload(path=path, upload_id=name, storage_class=storage_class)

    async def upload_part(self, upload: Upload, number: int, *, start: int, data: bytes) -> UploadedPart:
        """Write one part into the temporary file."""
        await run_to_end(lambda _give_up: _write_at(upload.upload_id, data, start))
        return UploadedPart(number=number, size_bytes=len(data), etag=str(number), crc32=zlib.crc32(data))

    async def abort_upload(self, upload: Upload) -> None:
        """Remove the temporary file."""
        await asyncio.to_thread(Path(upload.upload_id).unlink, missing_ok=True)

    async def remove_unfinished(self, path: str, *, started_before_s: float) -> int:  # noqa: ARG002 - see below
        """Do nothing: temporary files lie where this machine cleans up by itself."""
        return 0


def _write_at(name: str, data: bytes, start: int) -> None:
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        remaining = memoryview(data)
        while remaining:
            written = os.pwrite(descriptor, remaining, start)
            start, remaining = start + written, remaining[written:]
    finally:
        os.close(descriptor)
