"""Rewrites of files that somebody altered: no file that could be read becomes one that can't."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import bloomseal as bs
from bloomseal import orc
from bloomseal.keytools import MasterKeys

from .altered import with_footer

KEPT = Path(__file__).parents[1] / "vectors" / "orc" / "encrypted.orc"
KEYS = MasterKeys({"pii": [None, bytes(range(16, 32))], "wide": bytes(range(32))})
SPEC = bs.DecryptionSpec(KEYS, allow_ctr=True)
_STRIDE = 8


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
    with_footer(path, _STRIDE, stride)  # other row groups than there are
    before, rows = path.read_bytes(), bs.read_table(path, decryption=SPEC)
    assert rows.num_rows == 1_500
    with pytest.raises(bs.BloomsealError):
        rewrite(path)
    assert path.read_bytes() == before
    assert [one.name for one in path.parent.iterdir()] == ["a.orc"]
