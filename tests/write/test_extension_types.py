"""Extension types inside lists, structs and maps: written, read and looked up as those at the top are."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc as ipc
import pytest

import bloomseal as bs
import bloomseal.polars
from bloomseal.cli.main import main

_RAW = [bytes([number]) * 16 for number in range(6)]
_IDS = pa.ExtensionArray.from_storage(pa.uuid(), pa.array(_RAW, pa.binary(16)))
_PLACES = pa.array([0, 2, 4, 6], pa.int32())
_COLUMNS = {
    "flat": _IDS.slice(0, 3),
    "listed": pa.ListArray.from_arrays(_PLACES, _IDS),
    "inside": pa.StructArray.from_arrays([_IDS.slice(0, 3)], ["x"]),
    "mapped": pa.MapArray.from_arrays(_PLACES, pa.array(list("abcdef")), _IDS),
}
_LEAVES = {"flat": "flat", "listed": "listed.list.element", "inside": "inside.x", "mapped": "mapped.key_value.value"}
_ENCRYPTION = bs.EncryptionSpec(footer_key=b"f" * 16)
_DECRYPTION = bs.DecryptionSpec(bs.ExplicitKeys(footer_key=b"f" * 16))


@pytest.mark.parametrize("name", _COLUMNS)
@pytest.mark.parametrize("rows", [0, 3])
def test_a_uuid_anywhere(tmp_path: Path, name: str, rows: int) -> None:
    table = pa.table({name: _COLUMNS[name], "id": [1, 2, 3]}).slice(0, rows)
    bs.write_table(
        table, tmp_path / "a.parquet", encryption=_ENCRYPTION, row_group_size=2, bloom_filters=[_LEAVES[name]]
    )
    opened = bs.open_table(tmp_path, decryption=_DECRYPTION)
    assert str(opened.read()[name].to_pylist()) == str(table[name].to_pylist())
    assert opened.read(where=[("id", "==", 99)]).num_rows == 0
    assert opened.scan(where=pc.field("id") > 2).read_all().num_rows == max(rows - 2, 0)
    assert opened.maybe_present(_LEAVES[name], [UUID(bytes=_RAW[0]), UUID(int=7)]).tolist() == [[rows > 0, False]]
    assert bloomseal.polars.scan(opened).collect().height == rows


def test_on_the_command_line(tmp_path: Path) -> None:
    table = pa.table({"listed": _COLUMNS["listed"]})
    with ipc.new_file(tmp_path / "a.arrow", table.schema) as file:
        file.write_table(table)
    assert main(["write", str(tmp_path / "a.arrow"), str(tmp_path / "a.parquet"), "--plaintext"]) == 0
    assert main(["read", str(tmp_path / "a.parquet"), "--output", str(tmp_path / "b.arrow")]) == 0
    assert ipc.open_file(tmp_path / "b.arrow").read_all().schema.field("listed").type.value_type == pa.uuid()
