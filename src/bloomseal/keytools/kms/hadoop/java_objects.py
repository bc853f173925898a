"""The few objects that a JCEKS key store holds, in Java's serialisation (Java Object Serialization Specification,
chapter 6): instances of classes with fields, strings, byte arrays. No class is loaded for any of them.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from ....core.errors import FormatError

__all__ = ["Reader"]

_HEADER: Final = b"\xac\xed\x00\x05"
_NULL, _REFERENCE, _CLASS, _OBJECT, _STRING, _ARRAY, _END = 0x70, 0x71, 0x72, 0x73, 0x74, 0x75, 0x78
_BLOCK: Final = 0x77
_WIDTHS: Final = {"B": 1, "C": 2, "D": 8, "F": 4, "I": 4, "J": 8, "S": 2, "Z": 1}
_WRITE_METHOD, _SERIALIZABLE = 1, 2
_DEEPEST: Final = 20
_LONGEST: Final = 1 << 20


class Reader:
    """Bytes in the order of Java's ``DataInput``, and objects among them.

    Raises:
        FormatError: whatever is not there, or is not understood.
    """

    def __init__(self, data: bytes) -> None:
        self._data, self.at = data, 0
        self._handles: list[Any] = []

    def take(self, length: int) -> bytes:
        if not 0 <= length <= len(self._data) - self.at:
            raise FormatError("truncated or corrupt")
        self.at += length
        return self._data[self.at - length : self.at]

    def number(self, form: str) -> int:
        """By `struct`'s letter: B, H, I or Q."""
        return int(struct.unpack(">" + form, self.take(struct.calcsize(form)))[0])

    def text(self) -> str:
        """A text of at most 65,535 bytes."""
        return self.take(self.number("H")).decode("utf-8", "replace")

    def stream(self) -> Any:
        """An object with a stream header of its own. Instances come as dicts, their class under ``""``."""
        if self.take(4) != _HEADER:
            raise FormatError("no Java object where one should be")
        self._handles = []
        return self._object(0)

    def _object(self, depth: int) -> Any:
        if depth > _DEEPEST:
            raise FormatError("objects nested too deep")
        kind = self.number("B")
        if kind == _NULL:
            return None
        if kind == _REFERENCE:
            place = self.number("I") - 0x7E0000
            if not 0 <= place < len(self._handles):
                raise FormatError("a reference to nothing")
            return self._handles[place]
        if kind == _STRING:
            self._handles.append(self.text())
            return self._handles[-1]
        if kind == _CLASS:
            return self._class(depth)
        if kind == _ARRAY:
            return self._array(depth)
        if kind == _OBJECT:
            return self._instance(depth)
        raise FormatError(f"a Java object of kind {kind}")

    def _class(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {"name": self.text(), "flags": 0, "fields": [], "above": None}
        self.number("Q")
        self._handles.append(found)
        found["flags"] = self.number("B")
        for _ in range(self.number("H")):
            kind, name = chr(self.number("B")), self.text()
            if kind in "L[":
                self._object(depth + 1)
            found["fields"].append((kind, name))
        self._skip_annotations(depth)
        above = self._object(depth + 1)
        if above is not None and not _is_class(above):
            raise FormatError("a class below something else")
        found["above"] = above
        return found

    def _described(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = self._object(depth + 1)
        if not _is_class(found):
            raise FormatError("an object without class")
        return found

    def _array(self, depth: int) -> bytes:
        name = self._described(depth)["name"]
        place = len(self._handles)
        self._handles.append(None)
        length = self.number("I")
        if name != "[B" or length > _LONGEST:
            raise FormatError(f"an array of the class {name}")
        self._handles[place] = self.take(length)
        return bytes(self._handles[place])

    def _instance(self, depth: int) -> dict[str, Any]:
        described = self._described(depth)
        found: dict[str, Any] = {"": described["name"]}
        self._handles.append(found)
        classes: list[dict[str, Any]] = []
        above: Any = described
        while above is not None:
            classes.insert(0, above)
            above = above["above"]
            if len(classes) > _DEEPEST:
                raise FormatError("a class with too many above it")
        for one in classes:
            if not one["flags"] & _SERIALIZABLE:
                raise FormatError("an object that writes itself")
            for kind, name in one["fields"]:
                found[name] = self._object(depth + 1) if kind in "L[" else self.take(_width(kind))
            if one["flags"] & _WRITE_METHOD:
                self._skip_annotations(depth)
        return found

    def _skip_annotations(self, depth: int) -> None:
        while True:
            kind = self.number("B")
            if kind == _END:
                return
            if kind == _BLOCK:
                self.take(self.number("B"))
            else:
                self.at -= 1
                self._object(depth + 1)


def _is_class(value: object) -> bool:
    return isinstance(value, dict) and "flags" in value and "" not in value


def _width(kind: str) -> int:
    if kind not in _WIDTHS:
        raise FormatError(f"a field of the kind {kind}")
    return _WIDTHS[kind]
