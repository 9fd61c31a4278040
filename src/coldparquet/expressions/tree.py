"""Reads the tree of a ``pyarrow.compute.Expression``, which pyarrow itself shows only as text that is cut short.

``pickle`` writes an expression as an Arrow IPC file: the metadata of its schema is the tree from the root on, as pairs
``call name``, its arguments, ``options number``, ``end name``, and ``field_ref name``, ``literal number``; of a nested field
``nested_field_ref count`` and as many of ``field_ref``. The other numbers are columns of its one batch. The same since pyarrow 18, and in 26. Source: ``cpp/src/arrow/compute/expression.cc``.
"""

from __future__ import annotations

import ctypes
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import pyarrow as pa
from msgspec import Struct

if TYPE_CHECKING:
    import pyarrow.compute as pc


class Field(Struct, frozen=True):
    """A column, by name."""

    name: str


class NestedField(Struct, frozen=True):
    """A field of a column of structs."""

    path: tuple[str, ...]
    """From the column on."""


class Value(Struct, frozen=True):
    """A literal."""

    scalar: Any


class FunctionCall(Struct, frozen=True):
    """A function of ``pyarrow.compute`` with its arguments."""

    function: str
    arguments: tuple[Node, ...]
    options: dict[str, Any]
    """Arrow scalars by name."""


Node: TypeAlias = Field | NestedField | Value | FunctionCall


class UnknownTreeError(Exception):
    """The expression has parts that no pair describes."""


def is_arrow_expression(value: object) -> TypeGuard[pc.Expression]:
    """Tell whether a value is a ``pyarrow.compute.Expression``. Does not import that module: it takes 100 ms."""
    return type(value).__name__ == "Expression" and type(value).__module__.startswith("pyarrow")


def read_tree(expression: pc.Expression) -> Node:
    """Return the tree of an expression.

    Raises:
        UnknownTreeError: Some part of it is not described.
    """
    try:
        pickled: Any = expression.__reduce__()
        [buffer] = pickled[1]
        with pa.ipc.open_file(buffer) as file:
            batch = file.get_batch(0)
            pairs = _metadata_pairs(file.schema)
        return _tree(pairs, batch)
    except (pa.ArrowException, NotImplementedError, ValueError, KeyError, IndexError) as error:
        raise UnknownTreeError(str(error)) from error


def columns_of(node: Node) -> set[str]:
    """Return the names of all columns in a tree."""
    return {path[0] for path in paths_of(node)}


def paths_of(node: Node) -> set[tuple[str, ...]]:
    """Return all columns in a tree, and all fields of columns of structs."""
    found: set[tuple[str, ...]] = set()
    left = [node]
    while left:
        match left.pop():
            case Field(name=name):
                found.add((name,))
            case NestedField(path=path):
                found.add(path)
            case FunctionCall(arguments=arguments):
                left.extend(arguments)
    return found


def write_tree(node: Node) -> pc.Expression:
    """Make an expression of a tree again.

    Raises:
        UnknownTreeError: A function has options that are not known here.
    """
    import pyarrow.compute as pc  # noqa: PLC0415 - 100 ms, and who hands over an expression has imported it

    match node:
        case Field(name=name):
            return pc.field(name)
        case NestedField(path=path):
            return pc.field(*path)
        case Value(scalar=scalar):
            return pc.scalar(scalar)
        case FunctionCall(function="is_in", arguments=(part,), options=options):
            skips_null = options["null_matching_behavior"].as_py() == 1
            return pc.is_in(write_tree(part), value_set=options["value_set"].values, skip_nulls=skips_null)
        case FunctionCall(function="is_null", arguments=(part,), options=options):
            return write_tree(part).is_null(nan_is_null=options["nan_is_null"].as_py())
        case FunctionCall(function=function, arguments=arguments, options=options) if not options:
            make: Any = pc.Expression  # the stubs do not know how others make one
            made: pc.Expression = make._call(function, [write_tree(part) for part in arguments])  # noqa: SLF001
            return made
    raise UnknownTreeError(f"options of {node.function}")


def _tree(pairs: list[tuple[str, str]], batch: pa.RecordBatch) -> Node:
    # A loop, because filters that programs write may be nested deeper than Python recurses.
    open_calls: list[tuple[str, list[Node], dict[str, Any]]] = []
    left = iter(pairs)
    for kind, text in left:
        match kind:
            case "call":
                open_calls.append((text, [], {}))
                continue
            case "options":
                open_calls[-1][2].update(batch.column(int(text))[0].items())
                continue
            case "end":
                function, arguments, options = open_calls.pop()
                node: Node = FunctionCall(function, tuple(arguments), options)
            case "field_ref":
                node = Field(text)
            case "nested_field_ref":
                node = NestedField(tuple(name for _, name in islice(left, int(text))))
            case "literal":
                node = Value(batch.column(int(text))[0])
            case _:
                raise UnknownTreeError(f"{kind} {text}")
        if not open_calls:
            return node
        open_calls[-1][1].append(node)
    raise UnknownTreeError("it ends too early")


def _metadata_pairs(schema: pa.Schema) -> list[tuple[str, str]]:
    """Return the metadata of a schema in order, with the keys that repeat: ``schema.metadata`` is a dict, without them.

    Read where the Arrow C data interface has it: number of pairs, then length and bytes of each key and value.
    """
    capsule = schema.__arrow_c_schema__()
    address = _pointer_of(capsule, b"arrow_schema")
    position = ctypes.cast(address, ctypes.POINTER(ctypes.c_void_p))[2]  # after format and name
    if not position:
        return []

    def number() -> int:
        nonlocal position
        value = ctypes.c_int32.from_address(position).value
        position += 4
        return value

    def text() -> str:
        nonlocal position
        length = number()
        value = ctypes.string_at(position, length).decode()
        position += length
        return value

    return [(text(), text()) for _ in range(number())]


_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
