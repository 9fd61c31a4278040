"""S3 and what speaks its language: ranged GETs, listings, conditional PUTs and uploads in parts.

Whatever is written carries its CRC-32, which S3 compares with the bytes that arrive; and what S3 answers as the
checksum of what it holds is compared with ours.
"""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from coldparquet.errors import NotFoundError, StorageError
from coldparquet.ranges import ByteRange
from coldparquet.storage import s3_writes
from coldparquet.storage.base import (
    FetchedRange,
    Listing,
    ObjectInfo,
    RangeRequest,
    Upload,
    UploadedPart,
    already_exists,
    version_gone,
)
from coldparquet.storage.s3_answers import read_up_to, take_range
from coldparquet.storage.s3_connection import S3Call, S3Connection, encoded_query, object_call
from coldparquet.storage.s3_errors import parse_refusal, refusal_error
from coldparquet.storage.s3_listing import MAX_PAGE_BYTES, ListedPage, parse_list_page, parse_upload_page
from coldparquet.storage.s3_writes import WriteAnswer, take_write_answer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import aiohttp

    from coldparquet.errors import ColdParquetError
    from coldparquet.storage.s3_listing import UnfinishedUpload

_RANGE_ANSWERS = frozenset({HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT, HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE})
_ABORTED = frozenset({HTTPStatus.OK, HTTPStatus.NO_CONTENT, HTTPStatus.NOT_FOUND})
_CONFLICTS = frozenset({HTTPStatus.CONFLICT, HTTPStatus.PRECONDITION_FAILED})
"""Answers to a write whose condition does not hold; 409: another conditional write of the same key is under way."""
_CONFLICT_CODES = frozenset({"PreconditionFailed", "ConditionalRequestConflict"})


class S3Store:
    """An :class:`~coldparquet.storage.base.ObjectStore` over S3. Paths are ``bucket/key``.

    Nothing is looked up before the first request. The store belongs to the event loop that makes it.

    Args:
        storage_options: As for s3fs; see :func:`~coldparquet.storage.s3_options.parse_s3_options`. What they leave
            open comes from the AWS environment variables, the profile, and on AWS the machine's role.
        max_connections: Requests beyond this many wait for a connection. The default lies above any sensible
            ``ReadOptions.max_concurrency``, so that only one place limits.

    Raises:
        InvalidInputError: An option is unknown or cannot be meant.
    """

    def __init__(self, *, storage_options: Mapping[str, Any], max_connections: int = 256) -> None:
        self._connection = S3Connection(storage_options=storage_options, max_connections=max_connections)

    def __repr__(self) -> str:
        return f"<S3Store {self.label}>"

    @property
    def label(self) -> str:
        """``s3 (eu-west-1)`` or ``s3 (http://127.0.0.1:9000)``."""
        return self._connection.label

    async def get(self, request: RangeRequest) -> FetchedRange:
        """Fetch one range, clipped at the end of the object. 1 request. See :class:`ObjectStore` for the errors."""
        asked = request.byte_range
        headers = {
            "Range": f"bytes={asked.start}-{asked.stop - 1}"
            if isinstance(asked, ByteRange)
            else f"bytes=-{asked.length_bytes}"
        }
        if request.if_match is not None:
            headers["If-Match"] = request.if_match
        call = object_call("GET", request.path, headers=headers, accepted=_RANGE_ANSWERS, facts={"byte_range": asked})
        return await self._connection.exchange(call, lambda response: take_range(response, request))

    async def info(self, path: str) -> ObjectInfo:
        """Ask with HEAD, checksum included. 1 request. See :class:`ObjectStore` for the errors."""

        async def take(response: aiohttp.ClientResponse) -> ObjectInfo:
            return s3_writes.info_from_headers(path, response.headers)

        call = object_call("HEAD", path, headers={"x-amz-checksum-mode": "ENABLED"})
        return await self._connection.exchange(call, take)

    async def list(self, path: str, *, first_page_only: bool = False) -> Listing:
        """List one level. 1 request per 1,000 entries. See :class:`ObjectStore` for the errors."""
        bucket, prefix = _folder(path)
        directories: set[str] = set()
        objects: dict[str, ObjectInfo] = {}
        tokens: set[str] = set()
        exists = False
        token: str | None = None
        while True:
            page = await self._list_page(path, bucket, prefix, token)
            directories.update(page.directories)
            objects.update((info.path, info) for info in page.objects)
            exists = exists or page.has_marker
            token = page.next_token
            if token is None or first_page_only:
                break
            if token in tokens:
                raise StorageError("the store repeats a page of its listing for ever", path=path, kind="BadListing")
            tokens.add(token)
        if not (directories or objects or exists):
            raise NotFoundError("nothing lies there; check the path", path=path)
        return Listing(
            directories=tuple(sorted(directories)),
            objects=tuple(objects[name] for name in sorted(objects)),
            is_complete=token is None,
        )

    async def put(
        self, path: str, data: bytes, *, overwrite: bool, if_match: str | None = None, storage_class: str | None = None
    ) -> str | None:
        """Write one object. 1 request; S3 takes up to 5 GiB in one. See :class:`ObjectStore` for the errors."""
        crc32 = await s3_writes.crc32_of(data)
        headers = {
            "Content-Type": "application/octet-stream",
            s3_writes.CHECKSUM_HEADER: s3_writes.checksum_header(crc32),
            **s3_writes.class_header(storage_class),
        }
        answer = await self._write(
            object_call("PUT", path, headers=headers, body=data), overwrite=overwrite, if_match=if_match
        )
        s3_writes.check_stored_crc(answer, crc32, path=path)
        return answer.headers.get("ETag")

    async def start_upload(self, path: str, *, storage_class: str | None = None) -> Upload:
        """Begin a multipart upload whose parts carry CRC-32s. 1 request."""
        headers = {
            "Content-Type": "application/octet-stream",
            "x-amz-checksum-algorithm": "CRC32",
            **s3_writes.class_header(storage_class),
        }
        answer = await self._exchange(object_call("POST", path, {"uploads": ""}, headers=headers))
        upload_id = s3_writes.parse_upload_id(answer.body, path=path)
        return Upload(path=path, upload_id=upload_id, storage_class=storage_class)

    async def upload_part(self, upload: Upload, number: int, *, start: int, data: bytes) -> UploadedPart:  # noqa: ARG002 - S3 orders parts by number
        """Send one part. 1 request. See :class:`ObjectStore` for the errors."""
        crc32 = await s3_writes.crc32_of(data)
        headers = {
            "Content-Type": "application/octet-stream",
            s3_writes.CHECKSUM_HEADER: s3_writes.checksum_header(crc32),
        }
        query = {"partNumber": str(number), "uploadId": upload.upload_id}
        answer = await self._exchange(object_call("PUT", upload.path, query, headers=headers, body=data))
        s3_writes.check_stored_crc(answer, crc32, path=upload.path)
        etag = answer.headers.get("ETag")
        if etag is None:
            raise StorageError("the store took a part but gave no ETag for it", kind="BadAnswer", path=upload.path)
        return UploadedPart(number=number, size_bytes=len(data), etag=etag, crc32=crc32)

    async def finish_upload(self, upload: Upload, parts: Sequence[UploadedPart], *, overwrite: bool) -> str | None:
        """Complete a multipart upload. 1 request. See :class:`ObjectStore` for the errors."""
        call = object_call(
            "POST",
            upload.path,
            {"uploadId": upload.upload_id},
            headers={"Content-Type": "application/xml"},
            body=s3_writes.complete_document(parts),
        )
        answer = await self._write(call, overwrite=overwrite, if_match=None)
        if s3_writes.is_refusal(answer.body, path=upload.path):
            # S3 may say 200 before it knows. Such an error is one of the server's.
            body = self._connection.redact(answer.body)
            refusal = parse_refusal(HTTPStatus.INTERNAL_SERVER_ERROR, answer.headers, body)
            if refusal.code in _CONFLICT_CODES:
                raise already_exists(upload.path)
            raise refusal_error(refusal, path=upload.path)
        return s3_writes.parse_completed(answer.body, parts, path=upload.path)

    async def abort_upload(self, upload: Upload) -> None:
        """Throw the parts away. 1 request."""
        await self._abort(upload.path, upload.upload_id)

    async def remove_unfinished(self, path: str, *, started_before_s: float) -> int:
        """Abort the older multipart uploads below ``path``. 1 request per 1,000 uploads, and 1 for each old one."""
        bucket, prefix = _folder(path)
        query = {"encoding-type": "url", "prefix": prefix, "uploads": ""}
        old: list[UnfinishedUpload] = []
        markers: tuple[str, str] | None = None
        while True:
            call = S3Call(method="GET", path=path, bucket=bucket, target=encoded_query(query))
            body = await self._connection.exchange(call, lambda response: read_up_to(response, MAX_PAGE_BYTES))
            page = parse_upload_page(body, bucket=bucket, prefix=prefix)
            old += [found for found in page.uploads if found.started_s < started_before_s]
            if page.next_markers in (None, markers):
                break
            markers = page.next_markers
            query |= {"key-marker": markers[0], "upload-id-marker": markers[1]}
        for found in old:
            await self._abort(found.path, found.upload_id)
        return len(old)

    async def delete(self, paths: Sequence[str]) -> None:
        """Delete objects, those of one bucket together. 1 request per 1,000. See :class:`ObjectStore` for the errors."""
        by_bucket: dict[str, list[str]] = {}
        for path in paths:
            bucket, _, key = path.partition("/")
            by_bucket.setdefault(bucket, []).append(key)
        for bucket, keys in by_bucket.items():
            for start in range(0, len(keys), s3_writes.MAX_DELETED_KEYS):
                body = s3_writes.delete_document(keys[start : start + s3_writes.MAX_DELETED_KEYS])
                headers = {"Content-Type": "application/xml", "Content-MD5": s3_writes.md5_header(body)}
                answer = await self._exchange(
                    S3Call(method="POST", path=bucket, bucket=bucket, target="?delete=", headers=headers, body=body)
                )
                s3_writes.check_deleted(answer.body, bucket=bucket)

    async def aclose(self) -> None:
        """Close the connections. Calling it twice is fine; a closed store opens again with the next request."""
        await self._connection.aclose()

    async def _list_page(self, path: str, bucket: str, prefix: str, token: str | None) -> ListedPage:
        query = {"delimiter": "/", "encoding-type": "url", "list-type": "2", "prefix": prefix}
        if token is not None:
            query["continuation-token"] = token
        call = S3Call(method="GET", path=path, bucket=bucket, target=encoded_query(query))
        body = await self._connection.exchange(call, lambda response: read_up_to(response, MAX_PAGE_BYTES))
        return parse_list_page(body, bucket=bucket, prefix=prefix)

    async def _exchange(self, call: S3Call) -> WriteAnswer:
        return await self._connection.exchange(call, take_write_answer)

    async def _write(self, call: S3Call, *, overwrite: bool, if_match: str | None) -> WriteAnswer:
        """Send a write that may have a condition."""
        condition = s3_writes.condition_headers(overwrite=overwrite, if_match=if_match)
        if not condition:
            return await self._exchange(call)
        call = replace(call, headers={**call.headers, **condition}, accepted=call.accepted | _CONFLICTS)
        try:
            answer = await self._exchange(call)
        except NotFoundError as error:
            if if_match is not None and error.details.get("code") == "NoSuchKey":  # there is nothing to replace
                raise _conflict(call.path, if_match) from None
            raise
        if answer.status in _CONFLICTS:
            raise _conflict(call.path, if_match)
        return answer

    async def _abort(self, path: str, upload_id: str) -> None:
        await self._exchange(object_call("DELETE", path, {"uploadId": upload_id}, accepted=_ABORTED))


def _conflict(path: str, if_match: str | None) -> ColdParquetError:
    """Return the error for a write whose condition does not hold."""
    return already_exists(path) if if_match is None else version_gone(path, if_match, found_etag=None)


def _folder(path: str) -> tuple[str, str]:
    """Return the bucket and the prefix of all keys below a path."""
    bucket, _, rest = path.strip("/").partition("/")
    return bucket, f"{rest}/" if rest else ""
