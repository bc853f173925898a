"""Rewrites of files that somebody altered: no file that could be read becomes one that can't."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import bloomseal as bs
from bloomseal import orc
from bloomseal.keytools import MasterKeys
from bloomseal.orc.chunks import deflate
from bloomseal.orc.protobuf import Message, encoded, without

KEPT = Path(__file__).parents[1] / "vectors" / "orc" / "encrypted.orc"
KEYS = MasterKeys({"pii": [None, bytes(range(16, 32))], "wide": bytes(range(32))})
SPEC = bs.DecryptionSpec(KEYS, allow_ctr=True)
_STRIDE = 8


def with_stride(path: Path, stride: int) -> None:
    """Have the footer tell other row groups than there are."""
    data = path.read_bytes()
    with orc.open_file(path) as file:
        raw = memoryview(bytes(file.tail.raw_footer))
        footer = deflate(
            without(raw, (_STRIDE,)) + encoded(_STRIDE, stride), file.tail.compression, file.tail.block_size
        )
    postscript = memoryview(data)[-1 - data[-1] : -1]
    at = len(data) - 1 - len(postscript) - Message(postscript).number(1)
    end = encoded(1, len(footer)) + without(postscript, (1,))
    path.write_bytes(data[:at] + footer + end + bytes([len(end)]))


REWRITES: list[Callable[[Path], object]] = [
    lambda path: orc.rekey(path, decryption=SPEC),
    lambda path: orc.repair_filters(path, decryption=SPEC),
    lambda path: bs.attach_filters(path, {"name": bs.FilterSpec()}, decryption=SPEC),
]


@pytest.mark.parametrize("stride", [1, (1 << 64) - 1])
@pytest.mark.parametrize("rewrite", REWRITES)
def test_what_could_be_read_is_not_rewritten_into_what_can_not(
    rewrite: Callable[[Path], object], stride: int, tmp_path: Path
) -> None:
    path = tmp_path / "a.orc"
    # Its stripes are under the key of its statistics, as the Java library writes them: no row index is looked at.
    path.write_bytes(KEPT.read_bytes())
    with_stride(path, stride)
    before, rows = path.read_bytes(), bs.read_table(path, decryption=SPEC)
    assert rows.num_rows == 1_500
    with pytest.raises(bs.BloomsealError):
        rewrite(path)
    assert path.read_bytes() == before
    assert [one.name for one in path.parent.iterdir()] == ["a.orc"]
