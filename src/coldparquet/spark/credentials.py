"""Where the options of a store come from: credentials, endpoint and so on, without ever being shown.

| given as | where it is resolved | who sees it |
|---|---|---|
| nothing | on the driver and on each executor: environment, instance role, profile | nobody |
| ``credentials`` = ``env:NAME`` | on the driver and on each executor, from a JSON object in that environment variable | whoever may read the environment; Spark blackens ``spark.executorEnv.NAME`` where the name holds SECRET, TOKEN or PASSWORD, but not in its INFO log, which prints all settings when its listeners are slow: the machines' own environment is safer |
| ``credentials`` = ``file:/path`` | the same, from a JSON file, such as a mounted secret | whoever may read the file |
| ``storage_options`` = JSON, ``storage.KEY`` = value | travels from the driver to the executors with the reader | as the next line. Spark shows the ``OPTIONS`` of SQL, though, and knows secrets by words in their name or value: what looks like one and holds no such word, as ``storage.account_key``, is refused |
| ``secret_options`` = JSON | the same | nobody in plans, the user interface and event logs of classic Spark: the word is in its name. A Spark Connect server shows the options of a request in both: use ``credentials`` there |

Never put credentials into the Spark configuration: the event log lists all of it, and blackens by the name of the key alone. Nor
into SQL: servers log its text as it is, and whoever narrows ``spark.redaction.regex`` uncovers the options.
"""

from __future__ import annotations

import json
import os
import platform
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from coldparquet.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

STORAGE_PREFIX = "storage."
"""Options that begin so are single settings of the store."""

_JSON_OPTIONS = ("storage_options", "secret_options")

_HIDDEN_BY_SPARK = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)
"""The default of ``spark.redaction.regex`` in Spark 4.1; an option is blackened if its name or its value holds one of them."""

_LOOKS_SECRET = re.compile(
    r"auth$|authorization|connection_?string|cookie|cred|header|(?<=.)key$|passphrase|passwd|pwd|sas|signature$",
    re.IGNORECASE,
)
"""Names of settings that hold secrets, as file systems of fsspec have them. A bare ``key`` is the public half of a pair."""

_WORDS = {"true": True, "false": False, "null": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Settings of the store; ``repr`` shows none of them."""

    explicit: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """What was written out, as fsspec and s3fs take it."""
    reference: str | None = None
    """``env:NAME`` or ``file:/path``: where each process finds the others."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Collect them from the options of a data source."""
        given = {name: _json_object(options[name], f"the option {name}") for name in _JSON_OPTIONS if name in options}
        for name, value in options.items():
            if name.startswith(STORAGE_PREFIX):
                given[name] = {name.removeprefix(STORAGE_PREFIX): _plain_value(value)}
        for name, settings in given.items():
            _refuse_what_spark_shows(name, options[name], settings)
        explicit = {key: value for settings in given.values() for key, value in settings.items()}
        reference = options.get("credentials")
        if reference is not None and not reference.startswith(("env:", "file:")):
            raise InvalidInputError(
                "the option credentials names where they are: env:NAME, an environment variable, or file:/path, each holding a"
                ' JSON object such as {"key": ..., "secret": ...}',
                kind="InvalidOption",
            )
        return cls(explicit=explicit, reference=reference)

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """Make what :meth:`as_dict` has taken apart."""
        return cls(explicit=state["explicit"], reference=state["reference"])

    def as_dict(self) -> dict[str, Any]:
        """Return plain data, to be sent to executors. It holds what was written out, and nothing that was resolved."""
        return {"explicit": dict(self.explicit), "reference": self.reference}

    def storage_options(self) -> dict[str, Any]:
        """Resolve the reference in this process and return all settings; those written out go first."""
        return {**_resolved(self.reference), **self.explicit}


def _refuse_what_spark_shows(option: str, text: str, settings: Mapping[str, Any]) -> None:
    """Refuse a secret that stands in the event log if SQL gives it: a data source is not told how its options came."""
    if _HIDDEN_BY_SPARK.search(option) or _HIDDEN_BY_SPARK.search(text):
        return
    for name in _names(settings):
        if _LOOKS_SECRET.search(name):
            raise InvalidInputError(
                f"the option {option} holds {name!r}, of which Spark does not know that it is a secret: a view or table with such"
                " OPTIONS stands in plans and event logs with its value. Let the option credentials name where it is"
                " (env:NAME or file:/path), or give a JSON object as option secret_options, which Spark hides",
                kind="InvalidOption",
                option=option,
            )


def _names(settings: Mapping[str, Any]) -> Iterator[str]:
    for name, value in settings.items():
        yield name
        if isinstance(value, dict):
            yield from _names(value)


def _resolved(reference: str | None) -> dict[str, Any]:
    if reference is None:
        return {}
    kind, _, place = reference.partition(":")
    process = f"on {platform.node()}, process {os.getpid()}"
    if kind == "env":
        text = os.environ.get(place)
        if text is None:
            raise InvalidInputError(
                f"the option credentials is {reference!r}, but there is no such environment variable {process}; set it on the"
                f" driver, and on the executors with spark.executorEnv.{place}",
                kind="NoCredentials",
            )
    else:
        try:
            text = Path(place.removeprefix("//")).read_text(encoding="utf-8")
        except OSError as error:
            raise InvalidInputError(
                f"the option credentials is {reference!r}, but the file cannot be read {process}: {error.strerror}",
                kind="NoCredentials",
            ) from None
    return _json_object(text, f"what the option credentials names, {reference!r},", kind="NoCredentials")


def _json_object(text: str, what: str, *, kind: str = "InvalidOption") -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        # Neither the text nor json's own message is repeated: both may hold a secret.
        raise InvalidInputError(f'{what} is no JSON object such as {{"endpoint_url": "http://host:9000"}}', kind=kind)
    return value


def _plain_value(text: str) -> Any:
    """Take words and JSON objects or lists for what they are; all else, digits too, is text, as keys of accounts are."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if text.startswith(("{", "[")):
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text
