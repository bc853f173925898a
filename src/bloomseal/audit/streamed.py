"""JSON in pieces: of a hundred thousand files the whole text, and the objects that it is made of, would fill the
memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS: Final = 1_000
_TOGETHER: Final = 4096


class Lazily(list[Any]):
    """A list for `pieces`, whose elements are made when they are written.

    Args:
        length: how many there are.
        make: gives them.
    """

    def __init__(self, length: int, make: Callable[[], Iterable[Any]]) -> None:
        super().__init__()
        self._length = length
        self._make = make

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Any]:
        return iter(self._make())


def pieces(told: Any) -> Iterator[str]:
    """The text of ``json.dumps`` with an indent of 2, and a line's end."""
    yield from json.JSONEncoder(indent=2, ensure_ascii=False, default=_plain).iterencode(told)
    yield "\n"


def encoded(texts: Iterable[str]) -> Iterator[bytes]:
    """The same as bytes, many pieces at once: a write for each comma would take its time."""
    waiting = iter(texts)
    while some := "".join(islice(waiting, _TOGETHER)):
        yield some.encode(errors="backslashreplace")


def rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    """The rows of a table; never more than some of them are objects."""
    for batch in table.to_batches(max_chunksize=_ROWS):
        yield from batch.to_pylist()


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else str(value)
