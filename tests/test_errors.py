"""Errors are part of the interface: their tree, what they carry, and that they survive pickling."""

from __future__ import annotations

import json
import pickle

import pytest

from coldparquet import errors
from coldparquet.ranges import ByteRange

TREE = {
    errors.InvalidInputError: ValueError,
    errors.NotFoundError: FileNotFoundError,
    errors.AccessError: PermissionError,
    errors.StorageError: OSError,
    errors.ObjectChangedError: OSError,
    errors.ArchivedObjectError: OSError,
    errors.FormatError: ValueError,
    errors.UnsupportedError: NotImplementedError,
    errors.BudgetExceededError: ValueError,
    errors.InternalError: RuntimeError,
}


def test_the_tree_is_complete() -> None:
    direct = errors.ColdParquetError.__subclasses__()
    assert {of_tree for of_tree in direct if getattr(errors, of_tree.__name__, None) is of_tree} == set(TREE)


@pytest.mark.parametrize(("error_class", "builtin"), TREE.items())
def test_each_error_is_also_the_builtin_that_people_catch(
    error_class: type[errors.ColdParquetError], builtin: type[Exception]
) -> None:
    assert issubclass(error_class, builtin)
    assert issubclass(error_class, errors.ColdParquetError)


@pytest.mark.parametrize("error_class", TREE)
def test_each_error_pickles_with_everything_it_carries(error_class: type[errors.ColdParquetError]) -> None:
    error = error_class("is too short", kind="Truncated", path="bucket/_pm", offset=4, field="FOOTER_LENGTH")
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(error, protocol))  # noqa: S301 - our own bytes
        assert type(again) is error_class
        assert (str(again), again.kind, again.path, again.details) == (
            "bucket/_pm: is too short",
            "Truncated",
            "bucket/_pm",
            {"offset": 4, "field": "FOOTER_LENGTH"},
        )


def test_kinds_of_the_classes_differ() -> None:
    kinds = {error_class("x").kind for error_class in TREE}
    assert len(kinds) == len(TREE)


def test_an_error_is_plain_data_too() -> None:
    error = errors.FormatError("is too short", kind="Truncated", path="_pm", offset=4, asked=[ByteRange(0, 8)])
    assert json.loads(json.dumps(error.as_dict())) == {
        "kind": "Truncated",
        "message": "is too short",
        "path": "_pm",
        "offset": 4,
        "asked": ["[0, 8)"],
    }
