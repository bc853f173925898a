"""One byte changed, anywhere: an error of ours or the right answer, and never a false absent."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from bloomseal.core.encryption import ModuleType
from support.small_files import KINDS, SmallFile, judge, small_file

# Inside a sealed footer no column metadata can be reached on its own.
_PLACES = [
    pytest.param(kind, module, id=f"{kind}-{module.label}")
    for kind in KINDS
    for module in ModuleType
    if module is not ModuleType.FOOTER and (module is not ModuleType.COLUMN_META_DATA or "signed" in kind)
]


def _flips(small: SmallFile, positions: Iterable[int], *, mask: int | None = None) -> dict[int, str]:
    """What each flip led to. Without a mask, each position loses another bit."""
    outcomes = {}
    for position in positions:
        mutated = bytearray(small.data)
        mutated[position] ^= 1 << position % 8 if mask is None else mask
        outcomes[position] = judge(
            small, bytes(mutated), f"{small.kind}, byte {position} flipped", pages_too=not small.counter_pages
        )
    return outcomes


def _footer_start(small: SmallFile) -> int:
    return len(small.data) - 8 - int.from_bytes(small.data[-8:-4], "little")


@pytest.mark.parametrize(("kind", "module"), _PLACES)
def test_each_byte_of_a_module(kind: str, module: ModuleType) -> None:
    """Length prefix, nonce, ciphertext and tag of one module of each kind; verify must notice where GCM seals it."""
    small = small_file(kind)
    found = [m for m in small.modules if m.kind is module]
    chosen = found[len(found) // 2]
    outcomes = _flips(small, range(chosen.start, chosen.end))
    if chosen in small.authenticated():
        assert "unnoticed" not in outcomes.values(), f"{chosen}: {outcomes}"


@pytest.mark.parametrize("kind", KINDS)
def test_each_byte_of_the_footer(kind: str) -> None:
    """FileCryptoMetaData, the sealed or signed footer, its signature, its length and the magic."""
    small = small_file(kind)
    outcomes = _flips(small, range(_footer_start(small), len(small.data)))
    noticed = {position for position, outcome in outcomes.items() if outcome != "unnoticed"}
    assert noticed == outcomes.keys(), f"unnoticed: {sorted(outcomes.keys() - noticed)}"


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_all_over_the_file(kind: str) -> None:
    """Every 41st byte, also of plaintext columns and of the first magic, with all its bits turned over."""
    small = small_file(kind)
    _flips(small, range(0, len(small.data), 41), mask=0xFF)


@pytest.mark.torture
@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF], ids=lambda mask: f"mask {mask:02x}")
@pytest.mark.parametrize("kind", KINDS)
def test_each_byte_of_the_file(kind: str, mask: int) -> None:
    small = small_file(kind)
    outcomes = _flips(small, range(len(small.data)), mask=mask)
    for module in small.authenticated():
        quiet = [p for p in range(module.start, module.end) if outcomes[p] == "unnoticed"]
        assert not quiet, f"{module}: bytes {quiet}"


@pytest.mark.parametrize("kind", KINDS)
def test_the_untouched_file_answers_everything(kind: str) -> None:
    """The judge itself: without a mutation nothing is refused, so the tests above can fail."""
    small = small_file(kind)
    assert judge(small, small.data, "nothing") == "unnoticed"
