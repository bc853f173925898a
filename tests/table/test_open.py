"""A table of many files, read as one."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

import bloomseal as bs
from bloomseal.core.parquet.footer import plain_footer
from bloomseal.core.parquet.layout import FileMeta, Group
from bloomseal.core.thrift import Struct

KEYS = b"f" * 16
ENCRYPTION = bs.EncryptionSpec(footer_key=KEYS)
DECRYPTION = bs.DecryptionSpec(bs.ExplicitKeys(footer_key=KEYS), partition_by=["country", "day"])
FILES, ROWS = 7, 50


def part(number: int) -> pa.Table:
    ids = range(number * ROWS, (number + 1) * ROWS)
    return pa.table({"id": list(ids), "name": [f"n{i}" for i in ids]})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(FILES):
        place = tmp_path / f"day={number % 2}"
        place.mkdir(exist_ok=True)
        bs.write_table(
            part(number), place / f"part-{number}.parquet", encryption=ENCRYPTION, bloom_filters={"name": True}
        )
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / "_temporary").mkdir()
    (tmp_path / "_temporary" / "left.parquet").write_bytes(b"nothing")
    (tmp_path / ".part.parquet.crc").write_bytes(b"nothing")
    return tmp_path


def test_a_folder_is_all_its_parquet_files_in_order(folder: Path) -> None:
    found = bs.read_table(folder, decryption=DECRYPTION)
    assert found.num_rows == FILES * ROWS
    assert found["id"].to_pylist()[: 2 * ROWS : ROWS] == [0, 2 * ROWS]  # day=0 before day=1
    looked_up = bs.read_table(folder, columns=["id"], where=[("name", "in", ["n3", "n333"])], decryption=DECRYPTION)
    assert sorted(looked_up["id"].to_pylist()) == [3, 333]


def test_values_that_can_be_gone_through_only_once_are_asked_of_every_file(folder: Path) -> None:
    names = (f"n{i}" for i in (3, 333))
    looked_up = bs.read_table(folder, columns=["id"], where=[[("name", "in", names)]], decryption=DECRYPTION)
    assert sorted(looked_up["id"].to_pylist()) == [3, 333]


def test_a_lookup_that_matches_nothing_still_has_columns(folder: Path) -> None:
    found = bs.read_table(folder, where=[("name", "==", "nobody")], decryption=DECRYPTION)
    assert (found.num_rows, found.column_names) == (0, ["id", "name", "day"])


def test_a_list_of_files_and_another_file_system(folder: Path) -> None:
    files = [folder / "day=1" / "part-3.parquet", folder / "day=0" / "part-0.parquet"]
    assert bs.read_table(files, decryption=DECRYPTION)["id"].to_pylist() == [*range(150, 200), *range(50)]
    remote = pafs.SubTreeFileSystem(str(folder), pafs.LocalFileSystem())
    assert bs.read_table("day=0", decryption=DECRYPTION, filesystem=remote).num_rows == 4 * ROWS


def test_one_bad_file_refuses_the_read_and_is_named(folder: Path) -> None:
    bad = folder / "day=1" / "part-1.parquet"
    bad.write_bytes(bad.read_bytes()[:-30] + bytes(30))
    with pytest.raises(bs.FormatError, match=r"part-1\.parquet"):
        bs.read_table(folder, decryption=DECRYPTION)


def test_a_column_that_a_file_lacks_is_null_there(folder: Path) -> None:
    bs.write_table(part(1).drop_columns(["id"]), folder / "day=1" / "part-9.parquet", encryption=ENCRYPTION)
    found = bs.read_table(folder, decryption=DECRYPTION)
    assert found["id"].null_count == ROWS
    assert bs.read_table(folder, where=[("id", "not in", [-1])], decryption=DECRYPTION).num_rows == FILES * ROWS
    assert bs.read_table(folder, columns=["name"], decryption=DECRYPTION).num_rows == (FILES + 1) * ROWS


def test_a_plaintext_file_among_them_is_refused(folder: Path) -> None:
    bs.write_table(part(1), folder / "day=1" / "part-8.parquet")
    with pytest.raises(bs.PolicyError, match=r"part-8\.parquet"):
        bs.read_table(folder, where=[("name", "==", "nobody")], decryption=DECRYPTION)


def test_an_empty_folder_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(bs.UsageError, match="no Parquet or ORC files"):
        bs.read_table(tmp_path)


def test_a_page_without_values_hides_no_row(tmp_path: Path) -> None:
    """Arrow writes one before the only row of a row group of lists, and then reads no row of it itself."""
    path, rows = tmp_path / "lists.parquet", pa.table({"list": [[1, 7]]})
    pq.write_table(rows, path, data_page_size=1)
    with bs.open_file(path) as file:
        assert [page.num_values for page in file.walk.pages(file.walk.chunk(0, 0))] == [0, 0, 2]
    assert bs.read_table(path).equals(rows)
    bs.attach_filters(path, {"list.list.element": True})
    assert [str(one) for one in bs.probe(path, "list.list.element", [1, 7, 8])[0]] == ["maybe present"] * 2 + ["absent"]


def test_fewer_rows_of_lists_than_the_row_group_has_are_missed(tmp_path: Path) -> None:
    path = tmp_path / "lists.parquet"
    pq.write_table(pa.table({"list": [[1, 7], [2, 3]]}), path)
    raw = path.read_bytes()
    size = int.from_bytes(raw[-8:-4], "little")
    footer = Struct.parse(raw[-8 - size : -8])
    group = Struct.parse(footer.elements(FileMeta.ROW_GROUPS)[0])
    group.set_i64(Group.NUM_ROWS, 3)
    footer.set_list(FileMeta.ROW_GROUPS, [group.to_bytes()])
    path.write_bytes(raw[: -8 - size] + plain_footer(footer.to_bytes()))
    with pytest.raises(bs.FormatError, match="2 rows of 3"):
        bs.read_table(path)
    with pytest.raises(bs.FormatError, match="2 rows of 3"):
        bs.attach_filters(path, {"list.list.element": True})


def test_a_misspelt_column_is_answered_with_the_nearest_of_all_files(tmp_path: Path) -> None:
    for country in ("DE", "FR"):
        path = tmp_path / f"country={country}" / "a.parquet"
        path.parent.mkdir()
        bs.write_table(pa.table({"id": [1], "name": ["x"], "ssn": ["y"]}), path)
    for wrong in ({"columns": ["snn"]}, {"where": [("snn", "==", "y")]}):
        with pytest.raises(bs.UsageError, match=r"column snn.*one of ssn, id, name, country"):
            bs.read_table(tmp_path, **wrong)


def test_tables_and_their_reports_are_shown_in_notebooks(tmp_path: Path) -> None:
    hostile = "<b>\u202e"
    for number in range(2):
        bs.write_table(pa.table({hostile: [number]}), tmp_path / f"<i>{number}.parquet")
    table = bs.open_table(tmp_path)
    assert "&lt;i&gt;1.parquet" in table._repr_html_()
    assert table.columns == [hostile]
    assert "&lt;b&gt;\\u202e" in table._repr_html_()
    (tmp_path / "<i>0.parquet").write_bytes(b"PAR1 no file at all PAR1")
    report = table.verify()
    shown = report._repr_html_()
    assert shown.index("&lt;i&gt;0.parquet") < shown.index("&lt;i&gt;1.parquet")
    assert not any(tag in shown + table._repr_html_() for tag in ("<i>", "<b>", "\u202e"))
