"""Reading with some of the keys: a column whose key is not there is refused, null, or left out; never anything else."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bloomseal as bs
import bloomseal.polars

from ..cli.conftest import Run, folder, run  # noqa: F401

ROWS = pa.table(
    {
        "id": [1, 2, 3],
        "ssn": ["a", None, "c"],
        "place": [{"town": "Ulm", "zip": 1}, {"town": "Bonn", "zip": 2}, None],
        "name": ["Ada", "Bob", "Eve"],
    }
)
LOST = ("ssn", "place")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files, `ssn` and `place.zip` of the first under a key that the second does not need."""
    home = tmp_path_factory.mktemp("without-key")
    ring = bs.Keyring(home / "keys.json", create=True)
    for name in ("footer", "pii", "other"):
        ring.create(name)
    (home / "lake").mkdir()
    for number, key in enumerate(("pii", "other")):
        spec = bs.EncryptionSpec("footer", {"ssn": key, "place.zip": key}, ring)
        bs.write_table(ROWS, home / "lake" / f"{number}.parquet", encryption=spec, bloom_filters=["ssn", "id"])
    return home


@pytest.fixture
def denied(lake: Path) -> Iterator[bs.DecryptionSpec]:
    ring = bs.Keyring(lake / "keys.json")
    ring.disable("pii")
    try:
        yield bs.DecryptionSpec(bs.Keyring(lake / "keys.json"))
    finally:
        ring.enable("pii")


def with_nulls(rows: pa.Table) -> pa.Table:
    for name in LOST:
        place = rows.column_names.index(name)
        rows = rows.set_column(place, rows.field(name), pa.nulls(rows.num_rows, rows.field(name).type))
    return rows


@pytest.mark.parametrize("as_table", [False, True])
def test_one_file(lake: Path, denied: bs.DecryptionSpec, as_table: bool) -> None:
    file: Any = lake / "lake" / "0.parquet"
    place = [file] if as_table else file

    def read(word: Any = "error", **how: Any) -> pa.Table:
        return bs.read_table(place, decryption=denied, columns_without_key=word, **how)

    with pytest.raises(bs.KeyAccessError, match="disabled") as refused:
        read()
    assert refused.value.column is not None
    assert read("null").equals(with_nulls(ROWS))
    assert read("drop").equals(ROWS.drop_columns(list(LOST)))
    where = [("id", ">=", 2)]
    assert read("null", where=where).equals(with_nulls(ROWS.slice(1)))
    assert read("null", columns=["ssn"], where=where).equals(with_nulls(ROWS.slice(1)).select(["ssn"]))
    assert read("null", columns=["ssn"]).equals(with_nulls(ROWS).select(["ssn"]))
    assert read("drop", columns=["name", "ssn"], where=where).equals(ROWS.slice(1).select(["name"]))
    # A part that opens is not taken for the whole.
    assert read("null", columns=["place.town"]).column("place").to_pylist()[0] == {"town": "Ulm"}
    assert read("null", columns=["place.town", "place.zip"]).column("place").null_count == 3
    for condition in ([("ssn", "==", "a")], [("id", "==", 77), ("ssn", "==", "a")], [("place.zip", "<", 3)]):
        for word in ("null", "drop"):
            with pytest.raises(bs.KeyAccessError, match="disabled"):
                read(word, columns=["id"], where=condition)
    with pytest.raises(bs.UsageError, match="'error', 'null' or 'drop'"):
        read("nulls")


def test_a_table_gives_the_values_of_files_whose_keys_are_there(lake: Path, denied: bs.DecryptionSpec) -> None:
    whole = lake / "lake"
    both = bs.read_table(whole, decryption=denied, columns_without_key="null")
    assert both.equals(pa.concat_tables([with_nulls(ROWS), ROWS]))
    for files in (["0.parquet", "1.parquet"], ["1.parquet", "0.parquet"]):
        table = bs.open_table([whole / name for name in files], decryption=denied, columns_without_key="drop")
        assert table.schema.names == ["id", "name"]
        assert table.scan(where=[("id", "in", [1, 3])]).read_all().column("name").to_pylist() == ["Ada", "Eve"] * 2
        with pytest.raises(bs.KeyAccessError):
            table.read(["id"], [("ssn", "==", "c")])
    lazy = bs.polars.scan(whole, decryption=denied, columns_without_key="null")
    assert lazy.select("ssn").collect()["ssn"].to_list() == [None, None, None, "a", None, "c"]


def test_who_was_given_no_key_lacks_it(tmp_path: Path) -> None:
    path = tmp_path / "explicit.parquet"
    spec = bs.EncryptionSpec(b"f" * 16, {"ssn": b"s" * 16}, plaintext_footer=True)
    bs.write_table(ROWS.select(["id", "ssn"]), path, encryption=spec)
    decryption = bs.DecryptionSpec(bs.ExplicitKeys(b"f" * 16))
    assert bs.read_table(path, decryption=decryption, columns_without_key="drop").column_names == ["id"]
    with bs.open_file(path, decryption=decryption) as file:
        assert file.read(columns_without_key="null").column("ssn").null_count == 3
    with pytest.raises(bs.PolicyError, match="footer"):  # of which nobody knows that it is whole
        bs.read_table(path, columns_without_key="null")


def test_only_the_lack_of_a_key_is_one(lake: Path, tmp_path: Path) -> None:
    file = lake / "lake" / "0.parquet"

    class Away:
        """A KMS that is there for the footer's key only."""

        def __init__(self, failure: Exception) -> None:
            self._ring, self._failure = bs.Keyring(lake / "keys.json"), failure

        def wrap_key(self, key: bytes, master_key: str) -> Any:
            raise NotImplementedError

        def unwrap_key(self, wrapped: Any, master_key: str) -> Any:
            if master_key == "pii":
                raise self._failure
            return self._ring.unwrap_key(wrapped, master_key)

    for failure in (ConnectionError("away"), ValueError("broken")):
        with pytest.raises(bs.KeyAccessError):
            bs.read_table(file, decryption=bs.DecryptionSpec(Away(failure)), columns_without_key="null")
    # Another key than the column's does not authenticate: altered, or the wrong one.
    path = tmp_path / "a.parquet"
    spec = bs.EncryptionSpec(b"f" * 16, {"ssn": b"s" * 16})
    bs.write_table(ROWS.select(["id", "ssn"]), path, encryption=spec)
    wrong = bs.DecryptionSpec(bs.ExplicitKeys(b"f" * 16, {"ssn": b"x" * 16}))
    for place in (path, [path]):
        with pytest.raises(bs.IntegrityError):
            bs.read_table(place, decryption=wrong, columns_without_key="null")


def test_the_command_line_says_it_too(run: Run, lake: Path, denied: bs.DecryptionSpec) -> None:  # noqa: F811
    how = ("--keyring", str(lake / "keys.json"), "--format", "json", "--limit", "1")
    place = str(lake / "lake" / "0.parquet")
    assert run("read", place, *how).code == 2
    assert run("read", place, *how, "--columns-without-key", "null").rows == [
        {"id": 1, "ssn": None, "place": None, "name": "Ada"}
    ]
    dropped = run("read", str(lake / "lake"), *how, "--columns-without-key", "drop", "--where", "id = 3")
    assert dropped.rows == [{"id": 3, "name": "Eve"}]
    assert run("read", place, *how, "--columns-without-key", "drop", "--where", "ssn = 'a'").code == 2


def test_nothing_is_rewritten_by_what_reads_as_null(lake: Path, denied: bs.DecryptionSpec, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(lake / "lake", copy)
    before = {path.name: path.read_bytes() for path in copy.iterdir()}
    for word in ("null", "drop"):
        table = bs.open_table(copy, decryption=denied, columns_without_key=word)  # type: ignore[arg-type]
        for change in (lambda: table.erase([("id", "==", 1)]), table.compact):  # noqa: B023
            with pytest.raises(bs.KeyAccessError):
                change()
    assert {path.name: path.read_bytes() for path in copy.iterdir()} == before
