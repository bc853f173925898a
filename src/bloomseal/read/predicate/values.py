"""The values that a condition asks for, from whatever holds them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar, cast

import numpy as np
import pyarrow as pa

from ...core.errors import UsageError
from ...core.forked import new_recursive_lock
from ...core.sbbf.encoding import stands_for_null, unwrap
from ...core.sbbf.probe import as_column

T = TypeVar("T")

_WORTH_NUMPY: Final = 1_000
"""Of fewer values it is not worth what the first call of to_numpy takes."""
_NEVER_NULL: Final = frozenset([bool, int, float, str, bytes])


class Values(tuple[Any, ...]):
    """Values asked for, with what was worked out about them: a big set is encoded, hashed and ordered once for many
    files.
    """

    def __new__(cls, values: Iterable[Any]) -> Values:
        given = as_column(values)
        made = super().__new__(cls, _listed(given))
        made._known, made._lock = {}, new_recursive_lock()
        made._texts = given.cast(pa.large_string()) if _whole_texts(given) else None
        return made

    _known: dict[Any, Any]
    _lock: threading.RLock
    _texts: pa.Array | pa.ChunkedArray | None

    def once(self, name: Any, make: Callable[[], T]) -> T:
        """What `make` gives, from the first time on."""
        with self._lock:
            if name not in self._known:
                self._known[name] = make()
            found: T = self._known[name]
            return found

    @property
    def kinds(self) -> set[type]:
        """The values' types: a big set of one of Python's own is worked on as a whole."""
        return self.once("kinds", lambda: set(map(type, self)))

    @property
    def as_given(self) -> Values | pa.Array | pa.ChunkedArray:
        """The values as an array, where they came as one of texts; else these."""
        return self if self._texts is None else self._texts

    @property
    def encodable(self) -> bool:
        """Whether every character of these texts has an encoding. Surrogates have none."""
        return self._texts is not None or self.once("encodable", self._encodable)

    def _encodable(self) -> bool:
        try:
            "".join(self).encode()
        except UnicodeEncodeError:
            return False
        return True

    @property
    def known(self) -> list[Any]:
        """The values without nulls."""
        if self.kinds <= _NEVER_NULL:
            return list(self)
        return [value for value in self if not stands_for_null(unwrap(value))]

    @property
    def any_null(self) -> bool:
        """Whether one of them is null."""
        return self.once("any null", lambda: len(self.known) < len(self))

    def __repr__(self) -> str:
        return f"<{len(self)} values>"

    def __reduce__(self) -> Any:
        return Values, (tuple(self),)


def _listed(values: Any) -> Iterable[Any]:
    """Arrays and Series as the scalars that a list of the same values would hold; anything else as it is.

    Moments and times stay scalars of numpy or Arrow: Python's own end at microseconds.

    Raises:
        UsageError: neither that nor iterable.
    """
    if isinstance(values, memoryview):
        values = np.asarray(values)  # Python goes through those of one dimension alone
    if isinstance(getattr(values, "dtype", None), np.dtype):  # numpy's own, and a Series or an Index over them
        array = values if isinstance(values, np.ndarray) else np.asarray(values)
        if array.ndim != 1:
            raise UsageError("the values come as a one-dimensional array")
        # Not pa.array: of a masked array, tolist tells what is masked.
        return list(array) if array.dtype.kind in "mM" else cast("list[Any]", array.tolist())
    if isinstance(values, pa.Array | pa.ChunkedArray):
        kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
        finer = pa.types.is_timestamp(kind) or pa.types.is_time(kind) or pa.types.is_duration(kind)
        values = values if finer or isinstance(kind, pa.BaseExtensionType) else _python(values, kind)
    if not isinstance(values, Iterable):
        raise UsageError("the values come as a list, an array or a Series")
    return values


def _whole_texts(values: Any) -> bool:
    """Whether this is an array of texts, none of them null."""
    if not isinstance(values, pa.Array | pa.ChunkedArray) or values.null_count:
        return False
    return bool(pa.types.is_string(values.type) or pa.types.is_large_string(values.type))


def _python(values: Any, kind: pa.DataType) -> Iterable[Any]:
    """As to_pylist, which makes a scalar of every value first."""
    types = pa.types
    if types.is_string_view(kind) and values.type == kind:
        values, kind = values.cast(pa.large_string()), pa.large_string()
    plain = types.is_integer(kind) or types.is_string(kind) or types.is_large_string(kind)
    if values.null_count or not plain or values.type != kind or len(values) < _WORTH_NUMPY:
        try:
            return cast("list[Any]", values.to_pylist())
        except (ValueError, OverflowError):
            return list(values)  # days beyond the year 9999, and what else Python can't hold
    chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    return [one for chunk in chunks for one in chunk.to_numpy(zero_copy_only=False).tolist()]
