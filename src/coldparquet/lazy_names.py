"""Imports that wait until they are needed: names of packages, and pages about objects of the core."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def lazy_names(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make the ``__getattr__`` and the ``__dir__`` of a package.

    Args:
        package: Its ``__name__``.
        modules: Where each name that it offers is defined.
    """

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name]), name)

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return get, names


class ShownInNotebooks:
    """An object that notebooks show as HTML. ``coldparquet.report``, which the core does not import, is loaded then."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        shown: str = import_module("coldparquet.report.cells").html_of(self)
        return shown
