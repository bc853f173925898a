"""Key material beside the file, with several writers of the same file."""

from __future__ import annotations

from pathlib import Path

from bloomseal import Keyring, KeyTools
from bloomseal.core.keys.protocols import FileRef
from bloomseal.keytools.tools import ToolsFileKeys


def test_dropping_the_old_files_material_leaves_that_of_another_writer(tmp_path: Path) -> None:
    """Two writers replace one file at the same time: whichever file stays, its material does."""
    keyring = Keyring(tmp_path / "keyring.json", create=True)
    keyring.create("master")
    tools = KeyTools(keyring, internal=False)

    def write() -> tuple[ToolsFileKeys, bytes]:
        keys = tools.for_file(FileRef(str(tmp_path / "t.parquet")))
        return keys, keys.new_key("master", None, 128)[1]

    old, _ = write()
    old.store()
    old.commit()
    (one, one_metadata), (other, other_metadata) = write(), write()
    one.store()
    other.store()
    other.commit()
    one.commit()
    reader = tools.for_file(FileRef(str(tmp_path / "t.parquet")))
    assert reader.retrieve_key(one_metadata, None) != reader.retrieve_key(other_metadata, None)
    last, metadata = write()
    last.store()
    last.commit()
    reader = tools.for_file(FileRef(str(tmp_path / "t.parquet")))
    assert set(reader.beside()) == {"footerKey", reader.describe(metadata).reference}
