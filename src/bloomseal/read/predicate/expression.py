"""``pyarrow.compute`` expressions: the columns that one looks at, the conditions that it implies, its rows.

pyarrow offers no way to look inside an expression, but it writes one down exactly when it is pickled: as a record batch
whose schema metadata spells the tree and whose columns hold the literals and options (Arrow C++,
``compute::Serialize``). That is read here, and only to learn where rows can *not* be. Whatever is not understood
implies nothing, and the rows that are left are chosen by pyarrow itself.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from ..._lazy import deferred
from ...core.errors import UsageError
from ...format.plain import plain_schema, plain_table
from .values import Values

if TYPE_CHECKING:
    import pyarrow.compute as pc
else:
    pc = deferred("pyarrow.compute")

_METADATA: Final = 2  # ArrowSchema of the C data interface begins with three pointers: format, name, metadata
_SIZE: Final = ctypes.sizeof(ctypes.c_int32)
_MOST_DEPTH: Final = 150
_MOST_OPEN: Final = 1000
"""Of a chain each member opens one call. pyarrow evaluates by recursion, and would end the process at some depth."""
_JOINING: Final = ("and", "and_kleene", "or", "or_kleene")
_SET: Final = "value_set"


@dataclass(frozen=True)
class Field:
    """A column, or a field inside structs, by its path."""

    path: tuple[str, ...]


@dataclass(frozen=True)
class Call:
    """A function of its arguments: `Field`, `Call`, or `Values` for a literal.

    Attributes:
        options: as pyarrow writes them down, the set of ``is_in`` as `Values`; empty where there are none.
    """

    function: str
    arguments: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict, repr=False)

    def fields(self) -> Iterator[Field]:
        """All fields that it looks at."""
        for one in self.arguments:
            if isinstance(one, Field):
                yield one
            elif isinstance(one, Call):
                yield from one.fields()


def parse(expression: pc.Expression) -> Call:
    """Take an expression apart. A literal or a field is a call of ``identity``.

    Raises:
        UsageError: it names columns by their numbers, or pyarrow wrote it down in a form that is not known here.
    """
    try:
        _, (data, *_) = expression.__reduce__()
        with pa.ipc.open_file(data) as reader:
            batch = reader.get_batch(0)
        tree = _tree(iter(_metadata(batch.schema)), lambda index: batch.column(int(index))[0])
        return tree if isinstance(tree, Call) else Call("identity", (tree,))
    except RecursionError:
        raise UsageError("the expression is nested too deeply", hint="isin, or where=[[...], [...]]") from None
    except (pa.ArrowException, ValueError, TypeError, KeyError, IndexError, StopIteration):
        pass
    raise UsageError(
        "the expression can't be taken apart", hint="columns by their names, or where=[(column, op, value)]"
    ) from None


def evaluate(expression: pc.Expression, table: pa.Table) -> pa.ChunkedArray:
    """One bool per row of `table`: True where pyarrow finds the expression true.

    Raises:
        UsageError: it is no condition on columns of these types. The message does not repeat values.
    """
    from pyarrow import acero

    try:
        table = plain_table(table, plain_schema(table.schema))
        plan = acero.Declaration.from_sequence(
            [
                acero.Declaration("table_source", acero.TableSourceNodeOptions(table)),
                acero.Declaration("project", acero.ProjectNodeOptions([expression], ["holds"])),
            ]
        )
        holds = plan.to_table(use_threads=False).column("holds")
        if pa.types.is_boolean(holds.type):
            return pc.fill_null(holds, False)
        reason = f"it gives {holds.type}, not bool"
    except pa.ArrowException as error:
        reason = type(error).__name__  # the message may quote a value
    raise UsageError(f"pyarrow can't evaluate the expression on these columns: {reason}") from None


def _tree(steps: Iterator[tuple[str, str]], literal: Callable[[str], Any]) -> Any:
    """The node that all the steps are of. Of a long chain of ``|`` or ``&``, which opens a call in a call in a call, it
    makes one call with many arguments.

    Raises:
        RecursionError: it is nested too deeply.
        ValueError, StopIteration: there is no such node.
    """
    calls: list[_OpenCall] = [_OpenCall("")]
    for key, value in steps:
        match key:
            case "literal":
                calls[-1].arguments.append(Values((literal(value),)))
            case "field_ref":
                calls[-1].arguments.append(Field((value,)))
            case "nested_field_ref":
                names = [next(steps) for _ in range(int(value))]
                if any(kind != "field_ref" for kind, _ in names):
                    raise ValueError
                calls[-1].arguments.append(Field(tuple(name for _, name in names)))
            case "options":
                options = dict(literal(value).items())  # not as_py(): it fails for types that Python has not
                if _SET in options:
                    options[_SET] = Values(options[_SET].values)
                calls[-1].options = options
            case "call":
                calls.append(_OpenCall(value))
                if len(calls) > _MOST_OPEN:
                    raise RecursionError
            case "end":
                calls[-2].add(calls.pop(), value)
            case _:
                raise ValueError
    (root,) = calls
    (node,) = root.arguments
    return node


@dataclass
class _OpenCall:
    """A call whose end is not reached yet."""

    function: str
    arguments: list[Any] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    depth: int = 0

    def add(self, inner: _OpenCall, name: str) -> None:
        """Take in a call that ended under this name."""
        if inner.function != name:
            raise ValueError
        if name == self.function and name in _JOINING:
            self.arguments += inner.arguments
            self.depth = max(self.depth, inner.depth)
            return
        self.arguments.append(Call(name, tuple(inner.arguments), inner.options))
        self.depth = max(self.depth, inner.depth + 1)
        if self.depth > _MOST_DEPTH:
            raise RecursionError


def _metadata(schema: pa.Schema) -> list[tuple[str, str]]:
    """A schema's metadata in their order, with keys that repeat, which pyarrow's dict of them loses.

    Through the C data interface, whose layout is fixed (Arrow specification, *The Arrow C data interface*,
    ``metadata``).
    """
    capsule = schema.__arrow_c_schema__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    struct = ctypes.cast(pointer(capsule, b"arrow_schema"), ctypes.POINTER(ctypes.c_void_p))
    at = struct[_METADATA]

    def number() -> int:
        nonlocal at
        found = ctypes.c_int32.from_address(at).value
        at += _SIZE
        return found

    def text() -> str:
        nonlocal at
        length = number()
        found = ctypes.string_at(at, length).decode()
        at += length
        return found

    return [(text(), text()) for _ in range(number())] if at else []
