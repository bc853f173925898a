"""The inventory: what it says with keys and without, and that nothing stops it."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bloomseal import ExplicitKeys, FilterSpec, KeyTools, UsageError
from bloomseal.audit import audit, inventory, may_destroy
from bloomseal.audit.facts.inventory import SCHEMA
from bloomseal.audit.rendering.html import to_html
from bloomseal.audit.rendering.sarif import to_sarif
from bloomseal.audit.report import Report
from bloomseal.keytools.kms_protocols import MasterKeyFacts
from support.lab import ROW_GROUP, ROWS, Lab, chunks, edit_chunks, people

GROUPS = ROWS // ROW_GROUP


def rows(table: pa.Table, column: str) -> list[dict[str, Any]]:
    return [row for row in table.to_pylist() if row["column"] == column]


def test_one_row_per_file_row_group_and_column_chunk(lab: Lab) -> None:
    lab.signed("t/a.parquet")
    lab.signed("t/deep/b.parquet")
    table = inventory(lab.folder / "t")
    assert table.schema == SCHEMA
    assert table.num_rows == 2 * GROUPS * people().num_columns
    places = list(zip(table["file"].to_pylist(), table["row_group"].to_pylist(), strict=True))
    assert places == sorted(places)
    assert rows(table, "city")[0]["protection"] == "plaintext"


def test_what_keys_add(lab: Lab) -> None:
    path = lab.signed(bloom_filters={"ssn": FilterSpec(fpp=0.01)}, write_page_index=True)
    blind, seen = (rows(inventory(path, keys=keys), "ssn")[0] for keys in (None, lab.keyring))
    assert blind["protection"] == seen["protection"] == "column key"
    assert (blind["master_key"], blind["key_version"], blind["key_bits"], blind["material"]) == (
        "pii",
        "1",
        128,
        "internal",
    )
    assert blind["kek_id"]
    assert blind["kek_since"] == blind["file_modified"]
    assert blind["filter"] == "not visible"
    assert blind["footer_verified"] is None
    assert blind["key_state"] is None
    assert blind["modules"] <= seen["modules"]
    assert seen["filter"] == "sealed"
    assert seen["footer_verified"] is True
    assert seen["filter_authentic"] is True
    assert seen["key_state"] == "enabled"
    chunk = next(chunk for chunk in chunks(path, lab.keyring) if chunk.leaf.name == "ssn")
    assert (seen["filter_offset"], seen["filter_length"]) == (
        chunk.meta.bloom_filter_offset,
        chunk.meta.bloom_filter_length,
    )
    assert 64 < seen["filter_length"] - seen["filter_bytes"] < 100
    assert 0 < seen["filter_fill"] < 0.5
    assert 0 < seen["filter_fpp"] <= 0.01
    assert abs(seen["filter_ndv"] - ROW_GROUP) < 20


def test_modules_are_counted_as_they_stand(lab: Lab) -> None:
    path = lab.write(bloom_filters={"ssn": True}, write_page_index=True)
    row = rows(inventory(path, keys=lab.keyring), "ssn")[0]
    # metadata, one page and its header, two indexes, two of the filter
    assert (row["modules"], row["modules_counted"]) == (7, True)
    assert row["key_modules"] == 7 * GROUPS


def test_an_empty_filter_needs_proof(lab: Lab) -> None:
    options = {"bloom_filters": {"nothing": True, "ssn": True}, "write_statistics": False}
    assert not audit(lab.plain(**options), keys=lab.keyring).findings


def test_unsealed_metadata_of_a_column_key(lab: Lab) -> None:
    path = edit_chunks(lab.signed(), 1, lambda chunk, _: chunk.remove(9))
    for keys in (None, lab.keyring):
        assert "BS206" in {one.rule.id for one in audit(path, keys=keys).findings}


def test_without_keys_nothing_raises_and_nothing_is_guessed(lab: Lab) -> None:
    report = audit(lab.write())
    assert report.inventory.num_rows == 1
    row = report.inventory.to_pylist()[0]
    assert row["footer"] == "encrypted"
    assert row["footer_master_key"] == "footer"
    assert row["row_group"] is None
    assert row["column"] is None
    assert row["error"] is None
    assert not report.findings
    assert not report.unseen
    assert len(report.hidden) == 1
    assert "encrypted footer" in report.hidden[0]


def test_wrong_keys_raise_nothing_either(lab: Lab) -> None:
    path = lab.write()
    report = audit(path, keys=ExplicitKeys(footer_key=b"x" * 16))
    assert [one.rule.id for one in report.findings] == ["BS203"]
    assert not audit(path, keys=ExplicitKeys(column_keys={"ssn": b"x" * 16})).findings


def test_one_bad_file_among_many_is_a_finding(lab: Lab) -> None:
    path = lab.signed("t/0000.parquet", table=people(20), row_group_size=20)
    for number in range(1, 1000):
        os.link(path, lab.folder / "t" / f"{number:04d}.parquet")
    bad = {"0500.parquet": b"no Parquet", "0501.parquet": b"", "0502.parquet": b"PAR1" + bytes(40) + b"PAR1"}
    for name, data in bad.items():
        (lab.folder / "t" / name).unlink()
        (lab.folder / "t" / name).write_bytes(data)
    report = audit(lab.folder / "t")
    assert report.files == 1000
    assert report.inventory.num_rows == 997 * people().num_columns + 3
    assert {(one.rule.id, Path(one.file or "").name) for one in report.findings} == {("BS201", name) for name in bad}


@pytest.mark.parametrize("cut", range(0, 4000, 97))
def test_truncated_files_are_findings(lab: Lab, cut: int) -> None:
    path = lab.signed(bloom_filters={"ssn": True})
    path.write_bytes(path.read_bytes()[: -cut - 1])
    for keys in (None, lab.keyring):
        assert [one.rule.id for one in audit(path, keys=keys, deep=True).findings] == ["BS201"]


def test_flipped_bytes_never_raise(lab: Lab) -> None:
    path = lab.signed(bloom_filters={"ssn": True}, write_page_index=True, table=people(40), row_group_size=20)
    data = path.read_bytes()
    for offset in range(0, len(data), 41):
        changed = bytearray(data)
        changed[offset] ^= 1 << offset % 8
        path.write_bytes(changed)
        audit(path)
        audit(path, keys=KeyTools(lab.keyring), deep=True)


class Counting:
    """The keyring, and how often it was asked for what a remote KMS would have to be called for."""

    def __init__(self, keyring: Any) -> None:
        self._keyring = keyring
        self.calls: list[tuple[str, str]] = []

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        self.calls.append(("wrap", master_key_identifier))
        return str(self._keyring.wrap_key(key_bytes, master_key_identifier))

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        self.calls.append(("unwrap", master_key_identifier))
        return bytes(self._keyring.unwrap_key(wrapped_key, master_key_identifier))

    def describe(self, master_key_identifier: str, wrapped_key: str | None = None) -> MasterKeyFacts:
        self.calls.append(("describe", master_key_identifier))
        told: MasterKeyFacts = self._keyring.describe(master_key_identifier, wrapped_key)
        return told

    def opened_by(self, wrapped_key: str, master_key_identifier: str) -> Any:
        self.calls.append(("unwrap", master_key_identifier))
        return self._keyring.opened_by(wrapped_key, master_key_identifier)


def test_at_most_two_calls_per_kek(lab: Lab) -> None:
    for number in range(12):
        if number == 6:
            lab.keyring.rotate("pii")
        if number % 4 == 0:
            tools = KeyTools(lab.keyring)  # new KEKs
        lab.write(f"t/{number}.parquet", encryption={"keys": tools})
    kms = Counting(lab.keyring)
    found = inventory(
        lab.folder / "t", keys=KeyTools(kms), policy=lab.policy(max_key_age=timedelta(days=9)), filters=False
    )
    keks = set(found["footer_kek_id"].to_pylist()) | set(found["kek_id"].to_pylist()) - {None}
    assert len(kms.calls) <= 2 * len(keks)
    assert [kind for kind, _ in kms.calls].count("unwrap") == len(keks)
    assert not [kind for kind, _ in kms.calls if kind == "wrap"]


class Down:
    """A KMS that can't be reached."""

    def __init__(self) -> None:
        self.calls = 0

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        raise NotImplementedError

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:  # noqa: ARG002
        self.calls += 1
        raise ConnectionError


def test_a_kms_that_is_down_is_not_asked_a_thousand_times(lab: Lab) -> None:
    for number in range(20):
        lab.signed(f"t/{number}.parquet")
    kms = Down()
    report = audit(lab.folder / "t", keys=KeyTools(kms, attempts=1))
    assert kms.calls == 3
    assert report.files == 20
    assert any("could not be reached" in text for text in report.unseen)
    assert {one.rule.id for one in report.findings} == {"BS204"}


def test_remote_file_systems(lab: Lab) -> None:
    from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

    lab.write("t/a.parquet", encryption={"keys": KeyTools(lab.keyring, internal=False)})
    lab.plain("t_b.parquet").rename(lab.folder / "t" / "_hidden.parquet")
    far = SubTreeFileSystem(str(lab.folder), LocalFileSystem())
    near, remote = audit(lab.folder / "t", keys=lab.keyring), audit("t", keys=lab.keyring, filesystem=far)
    assert near.files == remote.files == 1
    assert [one.rule.id for one in near.findings] == [one.rule.id for one in remote.findings] == ["BS115"]
    drop = ["file", "file_modified", "kek_since", "footer_kek_since"]
    assert near.inventory.drop_columns(drop).to_pylist() == remote.inventory.drop_columns(drop).to_pylist()


def test_hidden_files_and_partitions(lab: Lab) -> None:
    for name in ("a.parquet", "day=1/b.parquet", "_day=2/c.parquet", ".tmp/d.parquet", "_tmp/e.parquet", "_f.parquet"):
        lab.signed(f"t/{name}")
    (lab.folder / "t" / "notes.txt").write_text("no data")
    names = {Path(file).name for file in inventory(lab.folder / "t")["file"].unique().to_pylist()}
    assert names == {"a.parquet", "b.parquet", "c.parquet"}


def test_links_to_folders_are_followed(lab: Lab) -> None:
    lab.signed("elsewhere/a.parquet")
    lab.signed("t/b.parquet")
    (lab.folder / "t" / "link").symlink_to(lab.folder / "elsewhere")
    (lab.folder / "elsewhere" / "back").symlink_to(lab.folder / "t")
    (lab.folder / "t" / "self").symlink_to(lab.folder / "t")
    found = inventory(lab.folder / "t")["file"].unique().to_pylist()
    assert found == [str(lab.folder / "t" / name) for name in ("b.parquet", "link/a.parquet")]


def test_a_name_that_is_no_text_stops_nothing(lab: Lab) -> None:
    odd = os.fsdecode(os.fsencode(lab.signed("t/odd.parquet").parent) + b"/odd\xff.parquet")
    (lab.folder / "t" / "odd.parquet").rename(odd)
    lab.signed("t/b.parquet", encryption={"keys": KeyTools(lab.keyring, internal=False)})
    (lab.folder / "t" / os.fsdecode(b"_KEY_MATERIAL_FOR_\xff.parquet.json")).write_text("{}")
    report = audit(lab.folder / "t")
    assert report.files == 1
    assert [text for text in report.unseen if "odd\\udcff.parquet: " in text]
    assert may_destroy("other", "1", lab.folder / "t").answer == "unknown"
    assert audit(odd).files == 0
    for form in (Report.to_json, to_html, to_sarif):
        form(report).encode()


def test_a_pipe_is_not_waited_for(lab: Lab) -> None:
    lab.signed("t/a.parquet")
    os.mkfifo(lab.folder / "t" / "pipe.parquet")
    errors = dict.fromkeys(inventory(lab.folder / "t")["error"].to_pylist())
    assert list(errors) == [None, "can't open the file: it is no regular file"]


def test_it_survives_parquet(lab: Lab) -> None:
    found = inventory(lab.signed(bloom_filters={"ssn": True}), keys=lab.keyring)
    pq.write_table(found, lab.folder / "inventory.parquet")
    assert pq.read_table(lab.folder / "inventory.parquet").to_pylist() == found.to_pylist()


def test_no_key_and_no_value_in_it(lab: Lab) -> None:
    report = audit(lab.signed(bloom_filters={"ssn": True}), keys=lab.keyring, deep=True)
    text = report.to_json(inventory=True)
    assert "000-00-0000" not in text
    assert "wrappedDEK" not in text
    for version in lab.keyring.list():
        assert version.current.key is not None
        assert version.current.key.reveal().hex() not in text


def test_progress_and_no_paths(lab: Lab) -> None:
    seen: list[tuple[int, int]] = []
    inventory(
        [lab.signed("a.parquet"), lab.signed("b.parquet")], progress=lambda done, total: seen.append((done, total))
    )
    assert seen == [(1, 2), (2, 2)]
    with pytest.raises(UsageError):
        inventory([])
