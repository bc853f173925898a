"""What nobody has authenticated does not become authentic by being written anew: rekey, unseal, seal, attach."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.format.footer import FooterKind, peek
from bloomseal.format.layout import FileMeta
from bloomseal.storage.source import Source
from bloomseal.thrift import Struct

FOOTER, PII, NEW, NEWER = b"footer-key-bytes", b"personal-key-16b", b"new-footer-key-b", b"new-personal-key"
TABLE = pa.table({"ssn": [f"{i:03d}-45-6789" for i in range(12)], "n": pa.array(range(12), pa.int64())})


def without_row_groups(data: bytes, keep: int) -> bytes:
    """A signed footer that names the first row groups only; its signature is left as it is."""
    seen = peek(Source.memory(data))
    assert seen.kind is FooterKind.SIGNED
    struct = Struct.parse(seen.clear, remember=FileMeta.ROW_GROUPS)
    groups = struct.elements(FileMeta.ROW_GROUPS)
    struct.set_list(FileMeta.ROW_GROUPS, groups[:keep])
    body = struct.to_bytes() + seen.sealed
    return data[: seen.offset] + body + len(body).to_bytes(4, "little") + b"PAR1"


CONVERSIONS: dict[str, Callable[[Path, Path, Any], object]] = {
    "rekey": lambda path, out, spec: bs.rekey(
        path, out, decryption=spec, encryption=bs.EncryptionSpec(NEW, column_keys={"ssn": NEWER})
    ),
    "unseal": lambda path, out, spec: bs.unseal_file(path, out, decryption=spec),
}


@pytest.mark.parametrize("allowed", [False, True], ids=["", "allow_unverified_footer"])
@pytest.mark.parametrize("how", CONVERSIONS)
def test_a_footer_that_nobody_verified_is_not_sealed_anew(tmp_path: Path, how: str, allowed: bool) -> None:
    """Who holds the columns' keys and not the footer's must not vouch for the row groups that somebody has left over."""
    path, out = tmp_path / "t.parquet", tmp_path / "out.parquet"
    spec = bs.EncryptionSpec((FOOTER, "kf"), column_keys={"ssn": (PII, "pii")}, plaintext_footer=True)
    bs.write_table(TABLE, path, encryption=spec, row_group_size=4)
    path.write_bytes(without_row_groups(path.read_bytes(), 1))
    reader = bs.DecryptionSpec(bs.ExplicitKeys(column_keys={"ssn": PII}), allow_unverified_footer=allowed)
    with pytest.raises(bs.PolicyError, match="footer"):
        CONVERSIONS[how](path, out, reader)
    assert not out.exists()
