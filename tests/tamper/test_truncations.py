"""Bytes cut off at the end, at the start, and out of the middle."""

from __future__ import annotations

import pytest

from bloomseal import BloomsealError
from bloomseal.core.storage.source import Source
from bloomseal.read.parquet import ParquetFile
from support.small_files import KINDS, judge, small_file


@pytest.mark.parametrize("kind", KINDS)
def test_truncated_at_every_length(kind: str) -> None:
    small = small_file(kind)
    for length in range(len(small.data)):
        with pytest.raises(BloomsealError):
            ParquetFile(Source.memory(small.data[:length]), small.decryption)


@pytest.mark.parametrize("kind", KINDS)
def test_truncated_before_an_intact_footer(kind: str) -> None:
    """The last bytes stay, so the file opens; everything that it points to is short or displaced."""
    small = small_file(kind)
    footer = len(small.data) - 8 - int.from_bytes(small.data[-8:-4], "little")
    for length in range(0, footer, 97):
        mutated = small.data[:length] + small.data[footer:]
        judge(small, mutated, f"{kind}: bytes {length} to {footer} cut out", pages_too=not small.counter_pages)


@pytest.mark.parametrize("gone", [1, 4, 32, 500], ids=lambda gone: f"{gone} bytes")
@pytest.mark.parametrize("kind", KINDS)
def test_cut_out_of_the_middle(kind: str, gone: int) -> None:
    small = small_file(kind)
    for start in range(4, len(small.data) - 600, 331):
        mutated = small.data[:start] + small.data[start + gone :]
        judge(small, mutated, f"{kind}: {gone} bytes cut out at {start}", pages_too=not small.counter_pages)


@pytest.mark.parametrize("kind", KINDS)
def test_zeros_in_place_of_each_module(kind: str) -> None:
    """As a disk that lost a sector reads."""
    small = small_file(kind)
    for module in small.authenticated():
        mutated = bytearray(small.data)
        mutated[module.start : module.end] = bytes(module.end - module.start)
        what = f"{kind}: {module} zeroed"
        assert judge(small, bytes(mutated), what, pages_too=not small.counter_pages) != "unnoticed", what
