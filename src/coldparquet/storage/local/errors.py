"""What the operating system refuses, in this library's errors."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from coldparquet.errors import AccessError, ColdParquetError, InvalidInputError, NotFoundError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coldparquet.ranges import ByteRange, SuffixRange


@contextlib.contextmanager
def translated_errors(path: str, byte_range: ByteRange | SuffixRange | None, *, wanted: str = "file") -> Iterator[None]:
    """Turn what the operating system raises into this library's errors; those already made pass."""
    try:
        yield
    except ColdParquetError:
        raise
    except FileNotFoundError:
        directory = Path(path).parent
        more = "" if directory.is_dir() else f"; not even its directory {directory} exists"
        raise NotFoundError(f"there is no such {wanted}{more}", path=path) from None
    except NotADirectoryError:
        raise NotFoundError(
            "this path, or a part of it, is a file where a directory was expected", kind="NotADirectory", path=path
        ) from None
    except IsADirectoryError:
        raise InvalidInputError("this is a directory; a file was expected", kind="IsADirectory", path=path) from None
    except PermissionError as error:
        raise AccessError(f"the operating system refuses access: {error.strerror}", path=path) from error
    except ValueError as error:  # a NUL character in the path
        raise InvalidInputError(f"this cannot be a file path: {error}", path=path) from error
    except OSError as error:
        raise StorageError(f"{error.strerror or error}", path=path, byte_range=byte_range, attempts=1) from error
