"""Errors of the writer name the row group of the file being written."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.core.encryption import modules


def test_the_row_group_that_is_one_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "MAX_ORDINAL", 2)
    encryption = bs.EncryptionSpec(footer_key=b"f" * 16)
    with pytest.raises(bs.UnsupportedError, match="at most 3 row groups") as caught:
        bs.write_table(pa.table({"x": range(9)}), tmp_path / "t.parquet", row_group_size=1, encryption=encryption)
    assert (caught.value.row_group, caught.value.column) == (3, "x")
    assert caught.value.file == str(tmp_path / "t.parquet")
