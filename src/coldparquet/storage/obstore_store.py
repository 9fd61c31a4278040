"""Stores of obstore (the object stores of Rust) for those who have one already; needs the extra ``obstore``.

    store = ObstoreStore(obstore.store.S3Store("bucket", region="eu-west-1"), prefix="db/trades")
    async with await coldparquet.open_table("", store=store) as table:
        ...

Its own retries come below ours: give it ``retry_config={"max_retries": 0}``, or ours see nothing of them.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from coldparquet.errors import (
    AccessError,
    ArchivedObjectError,
    ColdParquetError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from coldparquet.ranges import ByteRange, SuffixRange
from coldparquet.records import replace
from coldparquet.storage.base import PlainStore
from coldparquet.storage.fsspec_store import StagedUploads, without_secrets
from coldparquet.storage.refusals import already_exists, object_changed, version_gone
from coldparquet.storage.requests import FetchedRange, Listing, ObjectInfo, RangeRequest, clipped

try:
    import obstore
    from obstore import exceptions as obstore_errors
except ImportError as error:
    raise UnsupportedError(
        "stores of obstore need the package obstore: pip install 'coldparquet[obstore]'", kind="MissingPackage"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from obstore import Attributes, GetOptions, ObjectMeta, PutMode

    from coldparquet.storage.requests import Upload, UploadedPart

Answer = TypeVar("Answer")


class ObstoreStore(StagedUploads, PlainStore):
    """An :class:`~coldparquet.storage.base.ObjectStore` over one of obstore's. It runs in any event loop.

    Args:
        store: obstore's store, with its bucket, credentials and endpoint.
        prefix: Put before every path.
        label: What to call it; must hold no secret.
    """

    def __init__(self, store: obstore.store.ObjectStore, prefix: str = "", *, label: str | None = None) -> None:
        self._store = store
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self.label = label or f"obstore ({type(store).__name__})"

    def __repr__(self) -> str:
        return f"<ObstoreStore {self.label}>"

    async def get(self, request: RangeRequest) -> FetchedRange:
        """Fetch one range. 1 request; 2 where it reaches past the end, or the store knows no suffixes.

        See :class:`~coldparquet.storage.base.ObjectStore` for the errors.
        """
        try:
            return await self._get(request)
        except _RangeRefusedError as refused:
            failure = refused.error
        size_bytes = (await self.info(request.path)).size_bytes or 0
        wanted = clipped(request.byte_range, object_size_bytes=size_bytes)
        if wanted.length_bytes == 0:
            return FetchedRange(data=b"", start=wanted.start, etag=None, object_size_bytes=size_bytes)
        if wanted == request.byte_range:
            raise failure
        return await self._get(replace(request, byte_range=wanted))

    async def info(self, path: str) -> ObjectInfo:
        """Tell size, version and time with HEAD. 1 request."""
        found = await self._call(obstore.head_async(self._store, self._key(path)), path)
        return replace(self._listed(found), path=path)

    async def list(self, path: str, *, first_page_only: bool = False) -> Listing:  # noqa: ARG002 - obstore fetches all pages
        """List one level. 1 request per 1,000 entries."""
        key = self._key(path)
        found = await self._call(obstore.list_with_delimiter_async(self._store, f"{key}/" if key else None), path)
        objects = sorted((self._listed(entry) for entry in found["objects"]), key=lambda info: info.path)
        directories = sorted(self._path(name) for name in found["common_prefixes"])
        if not objects and not directories:
            raise NotFoundError("there is no such object or directory; check the path", path=path)
        return Listing(directories=tuple(directories), objects=tuple(objects))

    async def put(
        self, path: str, data: bytes, *, overwrite: bool, if_match: str | None = None, storage_class: str | None = None
    ) -> str | None:
        """Write one object. 1 request."""
        return await self._put(path, data, overwrite=overwrite, if_match=if_match, storage_class=storage_class)

    async def finish_upload(self, upload: Upload, parts: Sequence[UploadedPart], *, overwrite: bool) -> str | None:  # noqa: ARG002 - the file has all
        """Hand the temporary file to obstore, which sends it in parts."""
        file = Path(upload.upload_id)
        etag = await self._put(upload.path, file, overwrite=overwrite, storage_class=upload.storage_class)
        await self.abort_upload(upload)
        return etag

    async def delete(self, paths: Sequence[str]) -> None:
        """Remove objects. As few requests as the store needs."""
        for path in paths:
            try:
                await self._call(obstore.delete_async(self._store, self._key(path)), path)
            except NotFoundError:
                continue

    async def aclose(self) -> None:
        """Do nothing: the store is yours, and closes its connections by itself."""

    async def _get(self, request: RangeRequest) -> FetchedRange:
        asked = request.byte_range
        options: GetOptions = {
            "range": {"suffix": asked.length_bytes} if isinstance(asked, SuffixRange) else (asked.start, asked.stop)
        }
        if request.if_match is not None:
            options["if_match"] = request.if_match
        if request.if_none_match is not None:
            options["if_none_match"] = request.if_none_match
        try:
            result, data = await self._call(self._read(request.path, options), request.path, byte_range=asked)
        except _NotModifiedError:
            start = asked.start if isinstance(asked, ByteRange) else 0
            return FetchedRange(
                data=b"", start=start, etag=request.if_none_match, object_size_bytes=None, is_unchanged=True
            )
        except _PreconditionFailedError:
            raise object_changed(request, found_etag=None) from None
        except StorageError as error:
            if isinstance(asked, SuffixRange) or request.may_be_short:
                raise _RangeRefusedError(error) from None
            raise
        return FetchedRange(
            data=data, start=result.range[0], etag=result.meta["e_tag"], object_size_bytes=result.meta["size"]
        )

    async def _read(self, path: str, options: GetOptions) -> tuple[Any, bytes]:
        result = await obstore.get_async(self._store, self._key(path), options=options)
        return result, bytes(await result.bytes_async())

    async def _put(
        self,
        path: str,
        source: bytes | Path,
        *,
        overwrite: bool,
        if_match: str | None = None,
        storage_class: str | None = None,
    ) -> str | None:
        mode: PutMode = "overwrite" if overwrite else "create"
        if if_match is not None:
            mode = {"e_tag": if_match}
        attributes: Attributes | None = None if storage_class is None else {"Storage-Class": storage_class}
        writing = obstore.put_async(
            self._store,
            self._key(path),
            source,
            mode=mode,
            attributes=attributes,
            use_multipart=None if overwrite and if_match is None else False,
        )
        try:
            return (await self._call(writing, path))["e_tag"]
        except (_PreconditionFailedError, NotFoundError):
            if if_match is None:
                raise
            raise version_gone(path, if_match, found_etag=None) from None

    async def _call(self, operation: Awaitable[Answer], path: str, **facts: Any) -> Answer:
        """Await one operation of obstore and translate what it raises."""
        started_s = time.monotonic()
        try:
            return await operation
        except Exception as error:  # noqa: BLE001 - obstore raises errors of Python, too
            failure = _translated(error, path, elapsed_s=time.monotonic() - started_s, **facts)
        # Raised outside of the except block: the original may name signed URLs, and must not come along as context.
        raise failure

    def _key(self, path: str) -> str:
        return (self._prefix + path.strip("/")).rstrip("/")

    def _path(self, key: str) -> str:
        return key.removeprefix(self._prefix)

    def _listed(self, found: ObjectMeta) -> ObjectInfo:
        return ObjectInfo(
            path=self._path(found["path"]),
            size_bytes=found["size"],
            etag=found["e_tag"],
            modified_s=found["last_modified"].timestamp(),
            version_id=found["version"],
        )


class _RangeRefusedError(Exception):
    """Perhaps the range begins behind the end, or counts from it where the store knows no such ranges."""

    def __init__(self, error: ColdParquetError) -> None:
        super().__init__(str(error))
        self.error = error


class _NotModifiedError(Exception):
    """The object still has the ETag of ``if_none_match``."""


class _PreconditionFailedError(Exception):
    """The object does not have the ETag of ``if_match``."""


def _translated(error: Exception, path: str, **facts: Any) -> Exception:
    """Turn what obstore raised into this library's error."""
    text = str(error)
    cause = without_secrets(text).partition("\n")[0]
    translated: Exception
    match error:
        case FileNotFoundError():
            translated = NotFoundError("there is no such object; check the path", path=path)
        case obstore_errors.NotModifiedError():
            translated = _NotModifiedError()
        case obstore_errors.PreconditionError():
            translated = _PreconditionFailedError()
        case obstore_errors.AlreadyExistsError():
            translated = already_exists(path)
        case _ if "InvalidObjectState" in text:
            translated = ArchivedObjectError("the object is archived; restore it first", path=path, **facts)
        case obstore_errors.PermissionDeniedError() | obstore_errors.UnauthenticatedError():
            translated = AccessError(f"access was refused ({cause}); check the credentials", path=path, **facts)
        case obstore_errors.NotSupportedError() | NotImplementedError():
            translated = UnsupportedError(f"the store cannot do this ({cause})", path=path, **facts)
        case obstore_errors.InvalidPathError() | ValueError() | TypeError():
            translated = InvalidInputError(f"obstore does not take this ({cause})", path=path, **facts)
        case _:
            translated = StorageError(f"the store failed ({cause}); try again", path=path, **facts)
    return translated
