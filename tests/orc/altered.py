"""Files with an altered footer: as another writer would have left them."""

from __future__ import annotations

from pathlib import Path

import bloomseal as bs
from bloomseal.orc.chunks import deflate
from bloomseal.orc.protobuf import Message, encoded, without

_SOFTWARE = 12


def with_footer(path: Path, number: int, value: int | bytes | None) -> None:
    """Have a field of the footer hold another value, or none."""
    data = path.read_bytes()
    with bs.open_file(path) as file:
        raw = without(memoryview(bytes(file.tail.raw_footer)), (number,))
        raw += b"" if value is None else encoded(number, value)
        footer = deflate(raw, file.tail.compression, file.tail.block_size)
    postscript = memoryview(data)[-1 - data[-1] : -1]
    at = len(data) - 1 - len(postscript) - Message(postscript).number(1)
    end = encoded(1, len(footer)) + without(postscript, (1,))
    path.write_bytes(data[:at] + footer + end + bytes([len(end)]))


def by_version(path: Path, version: str | None) -> None:
    """Have the file name another version of its writer, or none."""
    with_footer(path, _SOFTWARE, None if version is None else version.encode())
