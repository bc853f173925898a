"""A file that somebody else puts in place while it is being changed stays as they put it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.core.storage.source import Source
from bloomseal.storage.places import open_source
from support.patched import patch_everywhere

KEYS = b"f" * 16
ENCRYPTION = bs.EncryptionSpec(footer_key=KEYS)
DECRYPTION = bs.DecryptionSpec(bs.ExplicitKeys(footer_key=KEYS))
OLD, NEW = (pa.table({"id": list(range(start, start + 500))}) for start in (0, 10_000))


@pytest.mark.parametrize("operation", ["attach", "rekey"])
def test_a_replacement_right_after_opening_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    path, theirs = tmp_path / "t" / "a.parquet", tmp_path / "theirs.parquet"
    path.parent.mkdir()
    bs.write_table(OLD, path, encryption=ENCRYPTION)
    bs.write_table(NEW, theirs, encryption=ENCRYPTION)
    content = theirs.read_bytes()
    opened = open_source

    def open_then_lose(*arguments: object, **options: object) -> Source:
        source = opened(*arguments, **options)  # type: ignore[arg-type]
        if source.name == str(path):  # each time: the format is looked at first
            shutil.copy(theirs, tmp_path / "next.parquet").replace(path)
        return source

    patch_everywhere(monkeypatch, open_source, open_then_lose)
    change = {
        "attach": lambda: bs.attach_filters(path, {"id": True}, decryption=DECRYPTION),
        "rekey": lambda: bs.rekey(path, decryption=DECRYPTION, encryption=ENCRYPTION),
    }[operation]
    with pytest.raises(bs.BloomsealError, match="someone else"):
        change()
    assert path.read_bytes() == content
    assert [entry.name for entry in path.parent.iterdir()] == ["a.parquet"]
