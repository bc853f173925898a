"""Mutated bytes into each parser: only errors of ours come out.

The mutations start from lawful bytes, so that they get past the first check: flips, cuts, repeated and exchanged
pieces, and the numbers that break parsers. Many more examples run under `torture`.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz.targets import CORPUS, TARGETS, run, seeds

_TROUBLE = [
    b"\xff\xff\xff\xff\x07",
    b"\xff" * 10,
    b"\x80" * 9 + b"\x01",
    b"\x00",
    b"\x19\xfc",
    b"\x1c",
    b"\x01",
    b"\x7f",
]


@st.composite
def mutations(draw: st.DrawFn, original: bytes, *, start: int = 0) -> bytes:
    """One to four mutations of `original` from `start` on."""
    data = bytearray(original)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(start, max(len(data) - 1, start)))
        length = draw(st.integers(1, 24))
        match draw(st.integers(0, 5)):
            case 0 if at < len(data):
                data[at] ^= 1 << draw(st.integers(0, 7))
            case 1:
                data[at : at + length] = b""
            case 2:
                data[at:at] = data[at : at + length]
            case 3:
                piece = draw(st.sampled_from(_TROUBLE))
                data[at : at + len(piece)] = piece
            case 4:
                data[at:at] = draw(st.sampled_from(_TROUBLE))
            case _:
                other = draw(st.integers(start, max(len(data) - 1, start)))
                data[at : at + length] = data[other : other + length]
    return bytes(data)


_QUICK = {
    "footer-in-a-file": 150,
    "file-v1": 150,
    "file-v2": 150,
    "csv": 100,
    "policy": 100,
    "sidecar": 100,
    "orc": 150,
}


def _run(name: str, examples: int) -> None:
    seed, _ = TARGETS[name]
    original = seeds()[seed]

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(mutations(original, start=4 if seed.startswith("file") else 0))
    def mutated(data: bytes) -> None:
        run(name, data)

    mutated()


@pytest.mark.parametrize("name", TARGETS)
def test_lawful_bytes_pass(name: str) -> None:
    """The seed itself parses, so that mutations start behind the first check."""
    seed, parse = TARGETS[name]
    parse(seeds()[seed])


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_passes(name: str) -> None:
    """Inputs that coverage-guided runs have found to reach some code, and those that once ended in a foreign error."""
    inputs = sorted((CORPUS / name).iterdir())
    assert inputs
    for path in inputs:
        run(name, path.read_bytes())


@pytest.mark.parametrize("name", TARGETS)
def test_only_our_errors_leave(name: str) -> None:
    _run(name, _QUICK.get(name, 400))


@pytest.mark.torture
@pytest.mark.parametrize("name", TARGETS)
def test_only_our_errors_leave_at_length(name: str) -> None:
    _run(name, 20_000)


@given(st.binary(max_size=200))
@settings(max_examples=150, deadline=None)
def test_any_bytes_at_all(data: bytes) -> None:
    for name in TARGETS:
        run(name, data)
