"""Files that somebody has tampered with: one clear error of ours, bounded memory, never a wrong answer about a sound
part.
"""

from __future__ import annotations

import contextlib
import functools
import io
import zlib

import pyarrow as pa
import pyarrow.orc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bloomseal as bs
from bloomseal import FormatError, KeyAccessError, UnsupportedError, Verdict
from bloomseal.core import limits
from bloomseal.core.storage.source import Source
from bloomseal.orc.chunks import Compression, inflate
from bloomseal.orc.filters import parsed_filter
from bloomseal.orc.layout import OrcLayout

from .generated import columns


def number(value: int) -> bytes:
    """A varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(place: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return number(place << 3) + number(value)
    return number(place << 3 | 2) + number(len(value)) + value


@functools.cache
def sound(compression: str = "uncompressed") -> bytes:
    sink = io.BytesIO()
    table = columns(40).select(["i64", "text", "group"])
    pyarrow.orc.write_table(table, sink, bloom_filter_columns=[1, 2, 4], row_index_stride=20, compression=compression)
    return sink.getvalue()


def crafted(
    *,
    filters: list[bytes] | None = None,
    footer: bytes = b"",
    postscript: bytes = b"",
    rows: int = 1,
    stride: int = 1,
    streams: bytes | None = None,
    types: bytes | None = None,
) -> bytes:
    """A file with one BIGINT column ``a`` and one stripe."""
    filters = [field(1, 1) + field(3, b"\xff" * 8)] if filters is None else filters
    index = b"".join(field(1, one) for one in filters)
    if streams is None:
        streams = field(1, field(1, 8) + field(2, 1) + field(3, len(index)))
    if types is None:
        types = field(4, field(1, 12) + field(2, b"\x01") + field(3, b"a")) + field(4, field(1, 4))
    body = b"ORC" + index + streams
    stripe = field(1, 3) + field(2, len(index)) + field(3, 0) + field(4, len(streams)) + field(5, rows)
    whole = field(3, stripe) + types + field(6, rows) + field(8, stride) + field(9, 1)
    whole += field(12, b"2.2.2") + footer
    end = field(1, len(whole)) + field(2, 0) + field(6, 6) + postscript + field(8000, b"ORC")
    return body + whole + end + bytes([len(end)])


def test_the_crafted_file_is_sound() -> None:
    with bs.open_file(crafted()) as file:
        assert file.verdicts("a", [1])[0].verdicts == [Verdict.MAYBE_PRESENT]
    with bs.open_file(crafted(filters=[field(1, 3) + field(3, b"\1" + bytes(7))])) as file:
        assert file.verdicts("a", [1])[0].verdicts == [Verdict.ABSENT]


@pytest.mark.parametrize(
    "entry",
    [
        field(1, 0) + field(3, b"\xff" * 8),
        field(3, b"\xff" * 8),
        field(1, 3),
        field(1, 3) + field(3, b"\xff" * 7),
        field(1, 3) + field(3, b"\xff" * 12),
        field(1, 3) + field(2, b"\xff" * 8) + field(3, b"\xff" * 8),
    ],
)
def test_absurd_filters_are_refused(entry: bytes) -> None:
    with bs.open_file(crafted(filters=[entry])) as file, pytest.raises(FormatError, match="stripe 0"):
        file.verdicts("a", [1])


def test_both_kinds_carry_the_same_bits() -> None:
    bits = bytes(range(1, 17))
    words = b"".join(number(2 << 3 | 1) + bits[at : at + 8] for at in (0, 8))
    for entry in (field(1, 3) + words, field(1, 3) + field(2, bits), field(1, 3) + field(3, bits)):
        assert parsed_filter(memoryview(entry)).bitset.tobytes() == bits


def test_an_empty_filter_proves_nothing() -> None:
    with bs.open_file(crafted(filters=[field(1, 3) + field(3, bytes(64))])) as file:
        (answer,) = file.verdicts("a", [1])
    assert answer.verdicts == [Verdict.NO_FILTER]
    assert "empty" in str(answer.untrusted)


@pytest.mark.parametrize("writer", [2, 4, 77])
def test_other_writers_are_not_believed(writer: int) -> None:
    with bs.open_file(crafted(filters=[field(1, 3) + field(3, b"\1" + bytes(7))], footer=field(9, writer))) as file:
        (answer,) = file.verdicts("a", [1])
    assert (answer.verdicts, answer.untrusted) == (
        [Verdict.NO_FILTER],
        "untrusted: hash inputs of this writer are not known",
    )


def test_a_type_that_nobody_knows_is_not_decided() -> None:
    types = field(4, field(1, 12) + field(2, b"\x01") + field(3, b"a")) + field(4, field(1, 19))
    with bs.open_file(crafted(filters=[field(1, 3) + field(3, b"\1" + bytes(7))], types=types)) as file:
        assert file.verdicts("a", [1, "x", object()])[0].verdicts == [Verdict.NO_FILTER] * 3


def test_without_row_groups_a_stripe_is_asked_as_one() -> None:
    with bs.open_file(crafted(streams=b"", filters=[], stride=0, rows=5)) as file:
        (answer,) = file.verdicts("a", [1])
        assert answer.verdicts == [Verdict.NO_FILTER]


@pytest.mark.parametrize("entries", [0, 1, 3, 4])
def test_one_filter_per_row_group(entries: int) -> None:
    """With two per row group the column was encrypted, and half of them are over masked values."""
    data = crafted(filters=[field(1, 1) + field(3, b"\1" + bytes(7))] * entries, rows=2)
    with bs.open_file(data) as file, pytest.raises(FormatError, match="for 2 row groups"):
        file.verdicts("a", [1])


_KEY = field(2, field(1, b"k") + field(3, 1))


def _variant(root: int = 1, key: int = 0, local: bytes = bytes(16), more: bytes = b"") -> bytes:
    return field(3, field(1, root) + field(2, key) + field(3, local) + more)


def test_encrypted_columns_have_no_verdict() -> None:
    for root in (0, 1):
        with bs.open_file(crafted(footer=field(10, _KEY + _variant(root)))) as file:
            assert file.encrypted_columns == ["a"]
            assert "encrypted column" in str(file.filters[0].untrusted)
            for ask in (lambda file=file: file.verdicts("a", [1]), lambda file=file: file.filter(0, "a")):
                with pytest.raises(KeyAccessError, match="no keys"):
                    ask()


@pytest.mark.parametrize(
    ("section", "words"),
    [
        (_KEY + _variant(7), "is encrypted, of 2"),
        (_variant(), "under key 0, of 0"),
        (_KEY + _variant(local=b""), "local key of 0 bytes"),
        (_KEY + _variant(local=bytes(32)), "local key of 32 bytes"),
        (_KEY + _variant(more=field(4, field(3, 1 << 40))), "statistics reach outside"),
        (field(1, field(3, 9)), "is encrypted, of 2"),
    ],
)
def test_encryption_sections_that_break_the_rules(section: bytes, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        bs.open_file(crafted(footer=field(10, section)))


@pytest.mark.parametrize(
    ("streams", "words"),
    [
        (field(4, field(1, field(1, 6) + field(2, 1) + field(3, 1))), "do not fill"),
        (field(4, field(1, field(1, 6) + field(2, 0))), "not its variant's"),
        (field(4, b"") * 2, "more encrypted columns"),
        (field(1, field(1, 9) + field(3, 1)) * 2, "two places"),
        (field(1, field(1, 9) + field(3, 1)), "do not fill"),
        (field(4, field(1, field(1, 6) + field(2, 1)) * 2), "two streams"),
    ],
)
def test_encrypted_streams_that_break_the_rules(streams: bytes, words: str) -> None:
    with (
        bs.open_file(crafted(streams=streams, footer=field(10, _KEY + _variant()))) as file,
        pytest.raises(FormatError, match=words),
    ):
        _ = file.filters


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (lambda: crafted(rows=1 << 60), "row groups"),
        (lambda: crafted(footer=field(6, 2)), "rows"),
        (lambda: crafted(postscript=field(5, 1 << 40)), "metadata"),
        (lambda: crafted(postscript=field(3, 1 << 30)), "compression blocks"),
        # A stripe for every few bytes of the footer, each inflating the bytes of the first.
        (lambda: crafted(footer=field(3, field(1, 3) + field(2, 1) + field(5, 0))), "overlaps"),
        (lambda: crafted(types=b""), "without types"),
        (lambda: crafted(types=field(4, field(1, 12) + field(2, b"\0") + field(3, b"a"))), "does not follow"),
        (lambda: crafted(types=field(4, field(1, 12)) * 2), "root reaches"),
        (lambda: crafted(types=_deep()), "deeper"),
        (lambda: crafted(footer=field(20, 1) * (limits.MAX_LIST_ELEMENTS + 1)), "fields"),
        (lambda: b"", "too few"),
    ],
)
def test_tails_that_break_the_rules(data: object, words: str) -> None:
    assert callable(data)
    with pytest.raises(FormatError, match=words):
        bs.open_file(data())


@pytest.mark.parametrize("data", [b"ORC" * 9, sound()[:-1]])
def test_what_does_not_end_as_orc_is_none(data: bytes) -> None:
    with pytest.raises(FormatError, match="not an ORC file"):
        OrcLayout(Source.memory(data, "people.orc"), None)
    with pytest.raises(FormatError):
        bs.open_file(data)


def _deep() -> bytes:
    below = b"".join(field(4, field(1, 10) + field(2, number(place))) for place in range(1, 100))
    return below + field(4, field(1, 4))


@pytest.mark.parametrize(
    "streams",
    [
        field(1, field(1, 8) + field(2, 1) + field(3, 1 << 40)),
        field(1, field(1, 8) + field(2, 9) + field(3, 1)),
        field(1, field(1, 8) + field(2, 1) + field(3, 1)) * 2,
        field(1, field(1, 1) + field(2, 1) + field(3, 3)) + field(1, field(1, 8) + field(2, 1) + field(3, 1 << 62)),
    ],
)
def test_streams_stay_in_their_stripe(streams: bytes) -> None:
    with bs.open_file(crafted(streams=streams)) as file, pytest.raises(FormatError):
        file.verdicts("a", [1])


def _chunk(data: bytes, *, original: bool = False) -> bytes:
    return (len(data) << 1 | original).to_bytes(3, "little") + data


@pytest.mark.parametrize("compression", [Compression.ZLIB, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD])
def test_bombs_stop_at_the_limit(compression: Compression) -> None:
    block = 1 << 16
    codec = {Compression.SNAPPY: "snappy", Compression.LZ4: "lz4_raw", Compression.ZSTD: "zstd"}

    def deflated(data: bytes) -> bytes:
        if compression is Compression.ZLIB:
            packer = zlib.compressobj(wbits=-15)
            return packer.compress(data) + packer.flush()
        return bytes(pa.Codec(codec[compression]).compress(data, asbytes=True))

    fits = _chunk(deflated(b"x" * block))
    assert inflate(memoryview(fits * 2), compression, block, 2 * block) == b"x" * 2 * block
    for stream in (_chunk(deflated(bytes(1 << 26))), _chunk(deflated(bytes(block + 1))), fits * 3):
        with pytest.raises(FormatError):
            inflate(memoryview(stream), compression, block, 2 * block)
    packed = deflated(bytes(range(256)) * 8)
    for cut in range(0, len(packed), 7):
        with contextlib.suppress(FormatError):
            found = inflate(memoryview(_chunk(packed[:cut])), compression, block, block)
            assert (bytes(range(256)) * 8).startswith(bytes(found))  # and nothing that stood in memory before
    assert inflate(memoryview(_chunk(b"abc", original=True)), compression, block, block) == b"abc"
    for broken in (b"\0", b"\0\0", b"\xff\xff\xff", _chunk(b"abc")[:-1]):
        with pytest.raises(FormatError):
            inflate(memoryview(broken), compression, block, block)


def test_other_compressions_are_refused() -> None:
    for kind in (Compression.LZO, Compression.BROTLI):
        with pytest.raises(UnsupportedError):
            inflate(memoryview(_chunk(b"abc")), kind, 1 << 16, 1 << 16)
    with pytest.raises(UnsupportedError):
        bs.open_file(crafted(postscript=field(2, 9)))


def _everything(data: bytes) -> None:
    with bs.open_file(data) as file:
        _ = file.filters, file.encrypted_columns
        for column, values in (("i64", [1, None]), ("text", ["a"]), ("group.inner", [3])):
            with contextlib.suppress(bs.BloomsealError):
                file.verdicts(column, values)


@pytest.mark.parametrize("compression", ["uncompressed", "zlib", "lz4", "snappy", "zstd"])
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_mutated_files_give_errors_of_ours(compression: str, data: st.DataObject) -> None:
    broken = bytearray(sound(compression))
    for _ in range(data.draw(st.integers(1, 4))):
        at = len(broken) - 1 - data.draw(st.integers(0, min(len(broken) - 1, 600)))
        match data.draw(st.integers(0, 3)):
            case 0:
                broken[at] ^= 1 << data.draw(st.integers(0, 7))
            case 1:
                del broken[at : at + data.draw(st.integers(1, 9))]
            case 2:
                broken[at:at] = data.draw(st.sampled_from([b"\xff" * 9, b"\x80" * 9 + b"\1", b"\0", b"\x7f"]))
            case _:
                broken[at : at + 4] = broken[:4]
    with contextlib.suppress(bs.BloomsealError):
        _everything(bytes(broken))


@pytest.mark.parametrize("cut", range(0, 400, 13))
def test_cut_files_are_refused(cut: int) -> None:
    with pytest.raises(FormatError):
        bs.open_file(sound()[: len(sound()) - 1 - cut])
