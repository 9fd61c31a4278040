"""URLs of a store's paths as people may see them, and checks of ``storage_options``. Values are never repeated: they may be secrets."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from coldparquet.errors import ColdParquetError, InvalidInputError
from coldparquet.storage.fsspec_store import without_secrets

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from collections.abc import Set as AbstractSet


_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False, "": False}


def refuse_unknown(
    given: Mapping[str, Any],
    *,
    known: AbstractSet[str],
    ignored: AbstractSet[str] = frozenset(),
    what: str = "storage option",
) -> None:
    """Do nothing if every option is known."""
    for name in given:
        if name not in known and name not in ignored:
            near = difflib.get_close_matches(str(name), known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known ones are {', '.join(sorted(known))}"
            raise InvalidInputError(f"unknown {what} {name!r}; {hint}", kind="UnknownOption", option=name)


def boolean_option(given: Mapping[str, Any], name: str, *, default: bool) -> bool:
    """Return an option that is true or false, also in the words of environment variables, as fsspec reads them."""
    value = given.get(name)
    if value is None:
        return default
    known = _BOOLEANS.get(str(value).lower())
    if known is None:
        raise InvalidInputError(f"the storage option {name} must be true or false", kind="BadOption", option=name)
    return known


def mapping_option(given: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return an option that is a dictionary itself; an empty one where it is not given."""
    value = given.get(name) or {}
    if not isinstance(value, Mapping):
        raise InvalidInputError(
            f"the storage option {name} is a {type(value).__name__}; it must be a dictionary",
            kind="BadOption",
            option=name,
        )
    return value


def text_option(given: Mapping[str, Any], *names: str) -> str | None:
    """Return an option that is text, by the first of its names that is given; None where it is empty or not given."""
    for name in names:
        value = given.get(name)
        if isinstance(value, str) and value.isprintable():
            if value:
                return value
        elif value is not None:
            found = "holds a line break or the like" if isinstance(value, str) else f"is a {type(value).__name__}"
            raise InvalidInputError(
                f"the storage option {name} {found}; it must be text without control characters",
                kind="BadOption",
                option=name,
            )
    return None


def paths_outside(paths: Sequence[str], table: str) -> list[str]:
    """Return those paths of a store that are neither that of a table nor of what lies in it.

    In a table at the root of a store, such as that of an archive, lies all of it.
    """
    inside = f"{table.rstrip('/')}/" if table.strip("/") else ""
    return [path for path in paths if (path != table and not path.startswith(inside)) or ".." in path.split("/")]


@contextmanager
def errors_name_urls(url: str, path: str) -> Iterator[None]:
    """Let errors that leave the block name objects by URL: inside, a path says enough; outside, it says not which store."""
    try:
        yield
    except ColdParquetError as error:
        name_url(error, url, path)
        raise


def name_url(error: BaseException | None, url: str, path: str) -> None:
    """Turn the path of an error of ours into a URL: the one that was opened, or that of an object in the same bucket.

    Other absolute paths stay as they are: local files, or filesystems whose paths begin with a slash. So does what lies in
    other buckets, of which another store may know more.
    """
    if not isinstance(error, ColdParquetError) or error.path is None:
        return
    scheme, separator, rest = shown_url(url).rpartition("://")
    bucket = path.partition("/")[0]
    if not separator:
        return
    if error.path == path:
        error.path = shown_url(url)  # as it was typed
    elif bucket and rest.startswith(path) and error.path.partition("/")[0] == bucket:
        error.path = f"{scheme}://{error.path}"


LOCAL_SCHEMES = ("file", "local")


S3_SCHEMES = ("s3", "s3a")


def shown_url(url: str) -> str:
    """Return a URL as plans, messages and logs may show it: without password, query string and fragment.

    Local and S3 URLs hold no secrets, but their paths may hold any character.
    """
    return url if url.partition("://")[0] in (*LOCAL_SCHEMES, *S3_SCHEMES) else without_secrets(url)
