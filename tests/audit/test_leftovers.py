"""Plaintext beside an encrypted table: what killed writers, staging folders and copies leave is found, and is
critical.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import deltalake
import pytest

from bloomseal import EncryptionSpec, KeyTools, seal_file
from bloomseal.audit import Severity
from bloomseal.cli.main import main
from bloomseal.storage.folder import Folder
from bloomseal.storage.replacement import Replacement
from support.lab import Lab, people, told

_UNSEAL = """
import sys, bloomseal as bs
bs.unseal_file(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None, decryption=bs.DecryptionSpec(bs.Keyring("keys.json")))
"""


def _criticals(lab: Lab, place: Path, keys: bool = False) -> list[str | None]:
    report = (lab.keyed if keys else lab.case)(place).report()
    return [one.file for one in report.findings if one.rule.id == "BS115" and one.severity is Severity.CRITICAL]


@pytest.mark.parametrize("keys", [False, True])
@pytest.mark.parametrize("half", [False, True])
def test_a_killed_unseal(lab: Lab, half: bool, keys: bool) -> None:
    path = lab.write("t/a.parquet")
    subprocess.run(
        [sys.executable, "-c", _UNSEAL, str(path), str(path)], cwd=lab.folder, check=False,
        env=os.environ | {"BLOOMSEAL_FAULT_POINT": "synced"},
    )  # fmt: skip
    (left,) = [one for one in path.parent.iterdir() if one.name.endswith(".bloomseal-tmp")]
    if half:
        os.truncate(left, left.stat().st_size // 2)
    assert _criticals(lab, lab.folder / "t", keys) == [str(left)]
    assert main(["audit", str(lab.folder / "t")]) == 1


def _staged(lab: Lab, name: str) -> Path:
    return lab.plain(f"t/{name}")


@pytest.mark.parametrize(
    "name",
    [
        "_bloomseal_temporary/job/0/part-0.parquet", "_temporary/0/part-0.parquet", ".staging/x", "a.parquet.bak", "a_old.parquet",
        "a.parquet~", "a (1).parquet", "Copy of a.parquet", ".a.csv.0123abcd.bloomseal-tmp",
    ],
)  # fmt: skip
@pytest.mark.parametrize("write", [Lab.write, Lab.signed])
def test_staged_files_and_copies(lab: Lab, write: Callable[..., Path], name: str) -> None:
    write(lab, "t/a.parquet")
    left = _staged(lab, name)
    if ".csv." in name:
        left.write_text("ssn\n078-05-1120\n")
    assert _criticals(lab, lab.folder / "t") == [str(left)]


def test_sealed_leftovers_and_tables_in_plaintext_are_no_alarm(lab: Lab) -> None:
    for name in ("_temporary/0/b.parquet", ".a.parquet.0123abcd.bloomseal-tmp", ".c.parquet.0123abcd.bloomseal-tmp"):
        lab.write(f"t/{name}")
    os.truncate(lab.folder / "t" / ".c.parquet.0123abcd.bloomseal-tmp", 5000)
    (lab.folder / "t" / "._KEY_MATERIAL_FOR_a.parquet.json.0123abcd.bloomseal-tmp").write_text("{}")
    lab.write("t/a.parquet")
    lab.plain("t/_other/b.parquet", table=people().select(["id"]))
    for number in range(2):
        lab.plain(f"plain/{number}.parquet")
    lab.plain("plain/_temporary/b.parquet")
    assert not _criticals(lab, lab.folder / "plain")
    report = lab.keyed(lab.folder / "t").report()
    assert [one.severity for one in report.findings] == [Severity.WARNING], told(report.findings)


def test_a_living_writer_is_no_leftover(lab: Lab) -> None:
    path = lab.write("t/a.parquet")
    aside = Replacement(Folder.at(path.parent), path.name)
    try:
        os.write(aside.fd, lab.plain("x.parquet").read_bytes())
        assert not _criticals(lab, path.parent)
    finally:
        aside.remove()


def test_a_reader_who_locks_a_leftover_hides_it_from_nobody(lab: Lab) -> None:
    path = lab.write("t/a.parquet")
    left = path.parent / ".a.parquet.00000000.bloomseal-tmp"
    left.write_bytes(lab.plain("x.parquet").read_bytes())
    left.chmod(0o644)
    with left.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert _criticals(lab, path.parent) == [str(left)]


def test_dead_files_of_a_log(lab: Lab) -> None:
    folder = lab.folder / "delta"
    for _ in range(2):
        deltalake.write_deltalake(str(folder), people(), mode="overwrite")
    live = {Path(one) for one in deltalake.DeltaTable(str(folder)).file_uris()}
    spec = EncryptionSpec("footer", {"ssn": "pii"}, KeyTools(lab.keyring), plaintext_footer=True)
    for path in live:
        seal_file(path, encryption=spec)
    (dead,) = set(folder.glob("*.parquet")) - {Path(os.path.realpath(path)) for path in live}
    assert _criticals(lab, folder) == [str(dead)]
    (found,) = [one for one in lab.case(folder).report().findings if one.rule.id == "BS115"]
    assert "dead file" in found.message
    assert not found.fix
    assert f"VACUUM delta.`{folder}`" in found.advice
    # And so it is.
    table = deltalake.DeltaTable(str(folder))
    assert table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False) == [dead.name]
    assert "BS115" not in lab.case(folder).ids()


@pytest.mark.parametrize("what", ["flipped page", "copied module"])
def test_deep_fails_where_verify_does(lab: Lab, what: str) -> None:
    from support.lab import chunks, flip

    path = lab.write("t/a.parquet", write_page_index=True)
    two = [one.meta for one in chunks(path, KeyTools(lab.keyring)) if one.leaf.name == "ssn"]
    if what == "flipped page":
        flip(path, two[0].data_page_offset + 300)
    else:
        data = bytearray(path.read_bytes())
        a, b, size = two[0].data_page_offset, two[1].data_page_offset, two[0].total_compressed_size
        assert size == two[1].total_compressed_size
        data[b : b + size] = data[a : a + size]
        path.write_bytes(data)
    ring = ["--keyring", str(lab.keyring.path)]
    assert main(["verify", str(path), *ring]) == 1
    assert main(["audit", str(path), *ring]) == 4
    assert main(["audit", str(path), *ring, "--deep"]) == 1
    report = lab.keyed(path, deep=True).report()
    groups = [one.row_groups for one in report.findings if one.rule.id == "BS209"]
    assert groups == [(0,) if what == "flipped page" else (1,)]


def test_deep_fails_on_a_broken_plaintext_file(lab: Lab) -> None:
    from support.lab import chunks

    path = lab.plain("t/a.parquet")
    meta = next(one.meta for one in chunks(path) if one.leaf.name == "ssn")
    data = bytearray(path.read_bytes())
    data[meta.data_page_offset : meta.data_page_offset + 8] = b"\xff" * 8
    path.write_bytes(data)
    assert main(["verify", str(path)]) == 1
    assert main(["audit", str(path), "--deep"]) == 1
    shutil.rmtree(path.parent)


def test_keys_take_nothing_from_a_severity(lab: Lab) -> None:
    """The clear copy of an encrypted column's metadata names a filter in clear, the sealed one a sealed filter, or
    none.
    """
    from support.lab import edit_meta

    for filters in ({"ssn": True, "city": True}, {"city": True}):
        path = lab.signed("t/a.parquet", bloom_filters=filters)
        from support.lab import chunks

        place = next(c.meta for c in chunks(path, KeyTools(lab.keyring)) if c.leaf.name == "city")

        def spoil(meta, place=place):  # type: ignore[no-untyped-def]
            meta.set_i64(14, place.bloom_filter_offset)
            meta.set_i32(15, place.bloom_filter_length)

        edit_meta(path, 1, spoil)
        for case in (lab.case(path), lab.keyed(path), lab.case(path, deep=True), lab.keyed(path, deep=True)):
            found = {(one.rule.id, one.column): one.severity for one in case.report().findings}
            assert found["BS102", "ssn"] is Severity.CRITICAL, found


@pytest.mark.parametrize("complete", [True, False])
def test_a_stray_filter_without_keys(lab: Lab, complete: bool) -> None:
    """Sealed modules only: then no plaintext column is there whose filter it could be. Else nobody can tell, and says
    so.
    """
    path = lab.write("t/a.parquet", encryption={"complete": complete}, bloom_filters={"ssn": True})
    data = path.read_bytes()
    plain = lab.plain("x.parquet", bloom_filters={"ssn": True})
    from support.lab import chunks

    meta = next(one.meta for one in chunks(plain) if one.leaf.name == "ssn")
    clear = plain.read_bytes()[meta.bloom_filter_offset : meta.bloom_filter_offset + meta.bloom_filter_length]
    length = int.from_bytes(data[-8:-4], "little") + 8
    path.write_bytes(data[:-length] + clear + data[-length:])
    report = lab.case(path, deep=True).report()
    (found,) = [one for one in report.findings if one.rule.id == "BS114"]
    assert found.severity is (Severity.CRITICAL if complete else Severity.INFO)
    assert bool(report.unseen) is not complete
    assert not report.ok
    keyed = lab.keyed(path, deep=True).report()
    assert [one.severity for one in keyed.findings if one.rule.id == "BS114"] == [Severity.CRITICAL]
