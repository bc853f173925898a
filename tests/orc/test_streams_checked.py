"""Streams that would lead pyarrow's decoder astray: walks through them, and files that ended a process or hung it."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.orc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bloomseal as bs
from bloomseal import FormatError
from bloomseal.orc.runs import kernels, walk
from bloomseal.orc.runs.begin import integers_from
from bloomseal.orc.streams import StreamKind

from .test_hostile import field

FUZZ = Path(__file__).parents[1] / "fuzz" / "orc_rows.py"
MOST = (1 << 31) - 1
PRESENT, DATA, LENGTH, DICTIONARY, SECONDARY = 0, 1, 2, 3, 5
BIGINT, TEXT, LIST, MAP, UNION, DECIMAL, MOMENT = 4, 7, 10, 11, 13, 14, 9
V1, V1_DICTIONARY, V2, V2_DICTIONARY = range(4)

# ORC specification, "Run Length Encoding": its own examples.
_V1 = [("61 00 07", [7] * 100), ("61 ff 64", [*range(100, 0, -1)]), ("fb 02 03 06 07 0b", [2, 3, 6, 7, 11])]
_V2 = [
    ("0a 27 10", [10_000] * 5),
    ("5e 03 5c a1 ab 1e de ad be ef", [23_713, 43_806, 57_005, 48_879]),
    (
        "8e 13 2b 21 07 d0 1e 00 14 70 28 32 3c 46 50 5a 64 6e 78 82 8c 96 a0 aa b4 be fc e8",
        [2030, 2000, 2020, 1_000_000, *range(2040, 2191, 10)],
    ),
    ("c6 09 02 02 22 42 42 46", [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]),
]
Runs = Callable[..., int]


def _both(name: str, data: bytes, wanted: int, signed: bool, most: int, values: list[int] | None = None) -> int:
    """What a walk says, compiled or not, and whether it keeps the values or not."""
    nowhere, through = np.empty(0, np.int64), np.frombuffer(data, np.uint8)
    found = getattr(walk, name)(data, wanted, signed, most, nowhere)
    assert kernels.compiled(name)(through, wanted, signed, most, nowhere) == found
    if most >= 0:
        kept = [np.full(wanted, -1) for _ in range(2)]
        assert getattr(walk, name)(data, wanted, signed, most, kept[0]) == found
        assert kernels.compiled(name)(through, wanted, signed, most, kept[1]) == found
        assert found < 0 or kept[0].sum() == found
        assert kept[0].tolist() == kept[1].tolist() == (kept[0].tolist() if values is None else values[:wanted])
    return int(found)


@pytest.mark.parametrize(
    ("name", "text", "values"), [*(("runs_v1", *one) for one in _V1), *(("runs_v2", *one) for one in _V2)]
)
def test_walks_read_the_examples_of_the_specification(name: str, text: str, values: list[int]) -> None:
    data = bytes.fromhex(text)
    for wanted in range(len(values) + 1):
        assert _both(name, data, wanted, False, MOST, values) == sum(values[:wanted])
        assert _both(name, data, wanted, False, -1) == 0
    assert _both(name, data, len(values) + 1, False, MOST) == walk.CUT
    assert _both(name, data, len(values), False, max(values)) == sum(values)
    assert _both(name, data, len(values), False, max(values) - 1) == walk.OUTSIDE
    for cut in range(len(data)):
        assert _both(name, data[:cut], len(values), False, -1) == walk.CUT


def test_walks_read_bytes() -> None:
    for text, values in (("61 00", [0] * 100), ("fe 44 45", [0x44, 0x45]), ("fe 44 45 00 09", [0x44, 0x45, 9, 9, 9])):
        for wanted in range(1, len(values) + 1):
            data = bytes.fromhex(text)
            for walked, through in (
                (walk.bytes_walk, data),
                (kernels.compiled("bytes_walk"), np.frombuffer(data, np.uint8)),
            ):
                counts = np.zeros(256, np.int64)
                assert walked(through, wanted, counts) == values[wanted - 1]
                assert counts.tolist() == np.bincount(values[:wanted], minlength=256).tolist()
                assert walked(through, len(values) + 1, counts) == walk.CUT


@functools.cache
def _lengths(version: str) -> list[tuple[bytes, int, int]]:
    """LENGTH streams of lists: bytes, lists, and how many elements they have together."""
    rng = np.random.default_rng(5)
    shapes = [rng.integers(0, most, count) for most, count in ((1, 4_000), (3, 4_000), (300, 900), (7_000, 90))]
    shapes += [np.where(rng.random(2_000) < 0.01, 6_000, rng.integers(0, 9, 2_000)), np.arange(2_000) % 70]
    found = []
    for shape in shapes:
        offsets = np.concatenate([[0], np.cumsum(shape)]).astype(np.int32)
        lists = pa.ListArray.from_arrays(offsets, pa.nulls(int(offsets[-1]), pa.int8()).fill_null(1))
        sink = pa.BufferOutputStream()
        pyarrow.orc.write_table(pa.table({"a": lists}), sink, file_version=version, stripe_size=1 << 30)
        with bs.open_file(sink.getvalue().to_pybytes()) as file:
            assert len(file.stripes) == 1
            index = file.index(0)
            stream = next(one for one in index.streams if one.kind == StreamKind.LENGTH)
            found.append((bytes(index.read(stream)), len(shape), int(offsets[-1])))
    return found


@pytest.mark.parametrize(("version", "name"), [("0.11", "runs_v1"), ("0.12", "runs_v2")])
def test_walks_read_streams_of_a_writer(version: str, name: str) -> None:
    kinds = set()
    for data, count, total in _lengths(version):
        assert _both(name, data, count, False, MOST) == total
        assert _both(name, data, count, False, -1) == 0
        assert _both(name, data, count + 1, False, -1) == walk.CUT
        kinds.add(data[0] >> 6)
    assert len(kinds) > 1


def test_long_runs_are_read_from_their_beginning_and_from_within() -> None:
    """Dictionaries' numbers, packed and ascending, as a writer stores them."""
    rng = np.random.default_rng(8)
    for values in (rng.integers(0, 900, 20_000), (np.arange(20_000) * 7 + rng.integers(0, 6, 20_000)) % 977):
        column = pa.DictionaryArray.from_arrays(pa.array(values, pa.int32()), [f"{n:03d}" for n in range(977)])
        sink = pa.BufferOutputStream()
        pyarrow.orc.write_table(pa.table({"a": column.cast(pa.string())}), sink, dictionary_key_size_threshold=1)
        with bs.open_file(sink.getvalue().to_pybytes()) as file:
            stream = next(one for one in file.index(0).streams if one.kind == StreamKind.DATA)
            data = file.tail.inflate(file.index(0).read(stream), 1 << 30)
        for skipped in (0, 5, 700):
            cut = memoryview(integers_from(data, skipped, version=2, signed=False))
            most = 976
            for wanted in (1, 511, 20_000 - skipped):
                assert _both("runs_v2", bytes(cut), wanted, False, most) > 0
            assert _both("runs_v2", bytes(cut), 20_000 - skipped, False, 500) == walk.OUTSIDE
            assert _both("runs_v2", bytes(cut[:-1]), 20_000 - skipped, False, most) == walk.CUT


@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_compiled_walks_stop_where_plain_ones_do(data: st.DataObject) -> None:
    version, name = data.draw(st.sampled_from([("0.11", "runs_v1"), ("0.12", "runs_v2")]))
    if data.draw(st.booleans()):
        bad = bytearray(data.draw(st.sampled_from(_lengths(version)))[0][:300])
        for _ in range(data.draw(st.integers(1, 4))):
            bad[data.draw(st.integers(0, len(bad) - 1))] = data.draw(st.integers(0, 255))
    else:
        bad = bytearray(data.draw(st.binary(max_size=60)))
    wanted, signed = data.draw(st.integers(0, 900)), data.draw(st.booleans())
    for most in (-1, 0, 38, MOST):
        assert _both(name, bytes(bad), wanted, signed, most) >= walk.OUTSIDE
    assert kernels.compiled("lz4_walk")(np.frombuffer(bytes(bad), np.uint8)) == walk.lz4_walk(bytes(bad))


def made(
    types: list[bytes],
    streams: list[tuple[int, int, bytes]],
    encodings: list[tuple[int, int]],
    rows: int,
    zone: str = "",
) -> bytes:
    """A file of one stripe, not compressed and without indexes."""
    body = b"".join(data for _, _, data in streams)
    footer = b"".join(
        field(1, field(1, kind) + field(2, column) + field(3, len(data))) for kind, column, data in streams
    )
    footer += b"".join(field(2, field(1, kind) + field(2, size)) for kind, size in encodings) + field(3, zone.encode())
    stripe = field(1, 3) + field(2, 0) + field(3, len(body)) + field(4, len(footer)) + field(5, rows)
    whole = field(1, 3) + field(3, stripe) + b"".join(field(4, one) for one in types) + field(6, rows) + field(9, 1)
    end = field(1, len(whole)) + field(2, 0) + field(4, b"\0\x0c") + field(6, 6) + field(8000, b"ORC")
    return b"ORC" + body + footer + whole + end + bytes([len(end)])


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    return b"" if not value else (bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7))


def runs(*values: int) -> bytes:
    """Values of 64 bits in a direct run of version 2."""
    return bytes([0x7E, len(values) - 1]) + b"".join((one & (1 << 64) - 1).to_bytes(8, "big") for one in values)


ROOT = field(1, 12) + field(2, b"\1") + field(3, b"a")
_TEXTS = [ROOT, field(1, TEXT)]
_LISTS = [ROOT, field(1, LIST) + field(2, b"\2"), field(1, BIGINT)]
_NUMBERS = [ROOT, field(1, DECIMAL) + field(5, 38) + field(6, 2)]
_TAGS = [ROOT, field(1, UNION) + field(2, b"\2\3"), field(1, BIGINT), field(1, TEXT)]
_PLAIN, _NEW = (V1, 0), (V2, 0)
_HOSTILE = {
    "a negative length": (_TEXTS, [(DATA, 1, b"abc"), (LENGTH, 1, runs(5, -5, 3))], [_PLAIN, _NEW], "LENGTH"),
    "lengths beyond the bytes": (_TEXTS, [(DATA, 1, b"abc"), (LENGTH, 1, runs(1, 1, 2))], [_PLAIN, _NEW], "DATA"),
    "lengths that wrap around": (_TEXTS, [(DATA, 1, b"abc"), (LENGTH, 1, runs(1 << 63, 1 << 63, 3))], [_PLAIN, _NEW], "LENGTH"),
    "too few lengths": (_TEXTS, [(DATA, 1, b"abc"), (LENGTH, 1, runs(1, 1))], [_PLAIN, _NEW], "LENGTH"),
    "a dictionary that wraps around": (
        _TEXTS,
        [(DATA, 1, runs(0, 1, 2)), (LENGTH, 1, runs((1 << 63) - 1, (1 << 63) - 1, 5)), (DICTIONARY, 1, b"abc")],
        [_PLAIN, (V2_DICTIONARY, 3)],
        "LENGTH",
    ),
    "an index beyond the dictionary": (
        _TEXTS,
        [(DATA, 1, runs(0, 1, 1)), (LENGTH, 1, runs(3)), (DICTIONARY, 1, b"abc")],
        [_PLAIN, (V2_DICTIONARY, 1)],
        "DATA",
    ),
    "lists of a great many": (_LISTS, [(LENGTH, 1, runs(1 << 61, 0, 0)), (DATA, 2, runs(1, 2, 3))], [_PLAIN, _NEW, _NEW], "LENGTH"),
    "lists of fewer elements": (_LISTS, [(LENGTH, 1, runs(1, 1, 2)), (DATA, 2, runs(1, 2, 3))], [_PLAIN, _NEW, _NEW], "DATA"),
    "a scale that takes minutes": (_NUMBERS, [(DATA, 1, b"\2\2\2"), (SECONDARY, 1, runs(4, 3, 4))], [_PLAIN, _NEW], "SECONDARY"),
    "a tag that the type lacks": (_TAGS, [(DATA, 1, b"\0\x70"), (DATA, 2, b""), (DATA, 3, b""), (LENGTH, 3, b"")], [_PLAIN] * 4, "DATA"),
    "patches behind their list": (
        [ROOT, field(1, BIGINT)],
        # Width 1, three values, base of one byte, patches of 8 bits in gaps of 8, one of them: (255, 0).
        [(DATA, 1, bytes([0x80, 0x02, 0x07, 0xE1, 0x00, 0x00, 0xFF, 0x00]))],
        [_PLAIN, _NEW],
        "DATA",
    ),
    "nulls that are cut off": ([ROOT, field(1, BIGINT)], [(PRESENT, 1, b"\xff"), (DATA, 1, runs(1, 2, 3))], [_PLAIN, _NEW], "PRESENT"),
}  # fmt: skip


@pytest.mark.parametrize("name", _HOSTILE)
def test_a_decoder_is_not_shown(name: str) -> None:
    types, streams, encodings, stream = _HOSTILE[name]
    with bs.open_file(made(types, streams, encodings, 3)) as file:
        with pytest.raises(FormatError, match=f"the {stream} stream") as caught:
            file.cleared(0, file.schema.leaves)
        assert caught.value.module == "stripe 0"
        assert caught.value.column


def test_a_sound_file_of_each_is_shown() -> None:
    for types, streams, encodings, rows in (
        (_TEXTS, [(DATA, 1, b"abc"), (LENGTH, 1, runs(1, 0, 2))], [_PLAIN, _NEW], [b"a", b"", b"bc"]),
        (_LISTS, [(LENGTH, 1, runs(1, 0, 2)), (DATA, 2, runs(2, 4, 6))], [_PLAIN, _NEW, _NEW], [[1], [], [2, 3]]),
    ):
        found = bs.read_table(made(types, streams, encodings, 3))["a"].to_pylist()
        assert [one.encode() if isinstance(one, str) else one for one in found] == rows


def test_types_and_zones_that_lead_elsewhere_are_refused() -> None:
    with pytest.raises(FormatError, match=r"decimal\(39, 0\)"):
        bs.open_file(made([ROOT, field(1, DECIMAL) + field(5, 39)], [], [_PLAIN] * 2, 0))
    moments = [(DATA, 1, runs(1, 2, 3)), (SECONDARY, 1, runs(0, 0, 0))]
    for zone in ("/dev/zero", "../../../dev/zero", "Europe/../../x", "a\0b"):
        with pytest.raises(FormatError, match="time zone"):
            bs.read_table(made([ROOT, field(1, MOMENT)], moments, [_PLAIN, _NEW], 3, zone))
    assert bs.read_table(made([ROOT, field(1, MOMENT)], moments, [_PLAIN, _NEW], 3, "UTC")).num_rows == 3


def test_rows_that_a_few_bytes_stand_for_have_a_limit() -> None:
    with pytest.raises(FormatError, match="is the limit"):
        bs.read_table(made(_TEXTS, [(DATA, 1, b""), (LENGTH, 1, b"")], [_PLAIN, _NEW], 1 << 40))


def test_altered_files_never_end_the_process() -> None:
    """Of these seeds several ended it before streams were checked."""
    command = [sys.executable, str(FUZZ), "--no-jvm", "250", "0"]
    ran = subprocess.run(command, capture_output=True, text=True, env=os.environ, timeout=280)
    assert ran.returncode == 0, ran.stderr
    ends = {line.split(" ", 1)[1] for line in ran.stdout.splitlines()}
    assert ends >= {"FormatError", "read"}
    assert not [one for one in ends if "foreign" in one or any(name in one for name in signal.Signals.__members__)]
