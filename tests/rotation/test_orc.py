"""ORC files in rotations: folders of them rekeyed and repaired, resumed, planned; what can't be done is refused."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.orc as po
import pyarrow.parquet as pq
import pytest

import bloomseal as bs
from bloomseal.cli.main import main
from bloomseal.core.errors import KeyAccessError
from bloomseal.policy import ColumnPolicy, TablePolicy
from bloomseal.rotation import Rekey, Rewrap, plan, rotate
from bloomseal.rotation.outcome import Status
from support.orc_files import ROWS, orc_file, orc_ring

Run = Callable[..., tuple[int, Any]]


@pytest.fixture
def ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bs.Keyring:
    for name in [name for name in os.environ if name.startswith("BLOOMSEAL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    ring = orc_ring(tmp_path / "keys.json")
    first = orc_file(tmp_path / "t" / "a.orc", ring)
    shutil.copy(first, tmp_path / "t" / "b.orc")
    return ring


@pytest.fixture
def run(ring: bs.Keyring, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str, ctr: bool = True) -> tuple[int, Any]:
        capsys.readouterr()
        options = ("--keyring", "keys.json", "--format", "json", *(("--allow-ctr",) if ctr else ()))
        code = main([*arguments, *options])
        printed = capsys.readouterr()
        return code, json.loads(printed.out) if printed.out else printed.err

    return call


def _spec(ring: bs.Keyring) -> bs.DecryptionSpec:
    return bs.DecryptionSpec(ring, allow_ctr=True)


def _under(path: str) -> dict[str, str]:
    with bs.open_file(path) as file:
        assert file.encryption is not None
        return {one.root.name: f"{one.key.name}:{one.key.version}" for one in file.encryption.variants}


def _local_keys(path: str) -> set[bytes]:
    with bs.open_file(path) as file:
        assert file.encryption is not None
        return {one.encrypted_key for one in file.encryption.variants} | {
            key for stripe in file.stripes for key in stripe.encrypted_keys
        }


def _bytes() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(Path("t").glob("[!.]*"))}


def _rows(path: str, ring: bs.Keyring) -> list[Any]:
    found = bs.read_table(path, decryption=_spec(ring)).to_pylist()
    return [[row["id"], row["name"], row["num"], [row["s"]["a"], row["s"]["b"]]] for row in found]


def test_a_folder_is_rekeyed_under_the_newest_versions(run: Run, ring: bs.Keyring) -> None:
    old, before = _bytes(), {name: _local_keys(f"t/{name}") for name in ("a.orc", "b.orc")}
    assert _under("t/a.orc") == {"name": "pii:2", "num": "wide:1", "s": "wide:1"}
    ring.rotate("pii")
    code, planned = run("rekey", "t", "--dry-run")
    assert code == 0
    assert [one["action"] for one in planned["files"]] == ["rekey", "rekey"]
    assert planned["kms_calls"] > 0
    assert _bytes() == old
    code, report = run("rekey", "t")
    assert (code, report["counts"]) == (0, {"rekeyed": 2})
    for one in report["files"]:
        name = Path(one["path"]).name
        assert not before[name] & _local_keys(one["path"])
        assert _under(one["path"]) == {"name": "pii:3", "num": "wide:1", "s": "wide:1"}
        assert one["keys"][0] == {
            "column": "name", "master_key": "pii", "version": "3", "new_master_key": "pii", "new_version": "4",
        }  # fmt: skip
        assert "destroy" in one["old_copies"]
        assert _rows(one["path"], ring) == ROWS
    again = _bytes()
    assert run("rekey", "t")[1]["counts"] == {"done before": 2}
    assert _bytes() == again
    # As for Parquet: a file that came since the run had ended is left over.
    shutil.copy("t/a.orc", "t/c.orc")
    code, report = run("rekey", "t")
    assert (code, report["counts"]) == (1, {"done before": 2, "changed since the run": 1})
    assert run("rekey", "t", "--restart")[1]["counts"] == {"rekeyed": 3}
    # The old version opens nothing of the files any more.
    ring.destroy("pii", 3)
    assert _rows("t/a.orc", ring) == ROWS
    Path("old.orc").write_bytes(old["a.orc"])
    with pytest.raises(KeyAccessError, match="destroyed"):
        _rows("old.orc", ring)


def test_another_master_key(run: Run, ring: bs.Keyring) -> None:
    code, report = run("rekey", "t", "--from", "pii", "--to", "pii-2027", "--jobs", "1")
    assert (code, report["counts"]) == (0, {"rekeyed": 2})
    assert _under("t/a.orc") == {"name": "pii-2027:0", "num": "wide:1", "s": "wide:1"}
    assert _rows("t/b.orc", ring) == ROWS
    # No file names the old one now, which is no fault: a table has files of many ages.
    code, report = run("rekey", "t", "--from", "pii", "--to", "wide", "--restart")
    assert code == 0
    assert _under("t/a.orc")["name"] == "pii-2027:0"


def test_a_policy_says_the_master_keys(ring: bs.Keyring) -> None:
    columns = {
        "name": ColumnPolicy("pii-2027", previous_keys=("pii",)), "num": ColumnPolicy("wide"), "s": ColumnPolicy("wide"),
    }  # fmt: skip
    policy = TablePolicy("t", ring, "pii", columns, allow_ctr=True)
    report = rotate("t", Rekey(policy, policy))
    assert report.ok, report.problems
    assert _under("t/a.orc") == {"name": "pii-2027:0", "num": "wide:1", "s": "wide:1"}
    columns["s"] = ColumnPolicy("pii", previous_keys=("wide",))
    parted = TablePolicy("t", ring, "pii", columns, allow_ctr=True)
    before = _bytes()
    report = rotate("t", Rekey(parted, parted))
    assert [one.status for one in report.files] == [Status.FAILED] * 2
    assert "under master key wide are to go under pii and wide" in str(report.files[0].why)
    assert _bytes() == before


def test_what_orc_has_not_is_refused(run: Run) -> None:
    before = _bytes()
    asked = {
        "rewrap": ((), "can't be wrapped anew"),
        "seal": (("--footer-key", "pii"), "engine that writes"),
        "unseal": (("--in-place",), "as a whole"),
    }
    for command, (options, why) in asked.items():
        ctr = command != "seal"
        code, planned = run(command, "t", *options, "--dry-run", ctr=ctr)
        assert (code, {one["action"] for one in planned["files"]}) == (1, {"fail"})
        code, report = run(command, "t", *options, ctr=ctr)
        assert (code, report["counts"]) == (1, {"failed": 2})
        assert all(why in one["why"] and one["error"]["hint"] for one in report["files"]), report
    for options in (
        ("--key-bits", "256"),
        ("--material", "external"),
        ("--bloom-filter", "name"),
        ("--footer-key", "pii"),
    ):
        code, report = run("rekey", "t", *options)
        assert (code, report["counts"]) == (1, {"failed": 2})
        assert "only local and master keys" in report["files"][0]["why"]
    for command in ("rekey", "repair"):
        code, report = run(command, "t", ctr=False)
        assert (code, report["counts"]) == (1, {"failed": 2})
        assert "nothing authenticates" in report["files"][0]["why"]
    assert _bytes() == before
    pq.write_table(po.read_table("t/a.orc"), "t/c.parquet")
    po.write_table(po.read_table("t/a.orc").select(["id"]), "t/d.orc")
    code, report = run("repair", "t")
    assert (code, report["counts"]) == (1, {"repaired": 2, "failed": 2})
    assert ["only filters of ORC files" in (one["why"] or "") for one in report["files"]] == [False, False, True, False]
    assert "a plaintext file" in report["files"][3]["why"]
    code, report = run("rekey", "t/d.orc", "--allow-plaintext")
    assert "plaintext file" in report["files"][0]["why"]


def test_a_folder_is_repaired(run: Run, ring: bs.Keyring, capsys: pytest.CaptureFixture[str]) -> None:
    before = _bytes()
    code, planned = run("repair", "t", "--dry-run")
    assert code == 0
    assert [(one["action"], one["why"]) for one in planned["files"]] == [
        ("repair", "4 filters in clear, on name, num")
    ] * 2
    assert _bytes() == before
    assert main(["repair", "t", "--keyring", "keys.json", "--allow-ctr"]) == 0
    assert "destroy" in " ".join(capsys.readouterr().out.split())
    for name in ("a.orc", "b.orc"):
        with bs.open_file(f"t/{name}") as file:
            filters = {(one.column, one.encrypted) for one in file.filters}
        assert {("name", True), ("num", True), ("name", False)} <= filters
        assert not {one.rule.id for one in bs.audit.audit(f"t/{name}").findings} & {"BS102"}
        assert _rows(f"t/{name}", ring) == ROWS
    repaired = _bytes()
    code, planned = run("repair", "t", "--dry-run", "--restart")
    assert {one["action"] for one in planned["files"]} == {"none"}
    assert run("repair", "t", "--restart")[1]["counts"] == {"nothing to do": 2}
    assert _bytes() == repaired
    # The masked ones can still go later.
    code, report = run("repair", "t", "--drop-masked")
    assert (code, report["counts"]) == (0, {"repaired": 2})
    assert report["files"][0]["old_copies"] is None
    with bs.open_file("t/a.orc") as file:
        assert {(one.column, one.encrypted) for one in file.filters} == {("id", False), ("name", True), ("num", True)}
    assert run("repair", "t", "--drop-masked", "--restart")[1]["counts"] == {"nothing to do": 2}


@pytest.mark.parametrize(("command", "where"), [("rekey", "renamed"), ("repair", "renamed"), ("repair", "stripe 1")])
def test_a_killed_run_is_resumed(run: Run, ring: bs.Keyring, command: str, where: str) -> None:
    arguments = [command, "t", "--keyring", "keys.json", "--allow-ctr", "--jobs", "1"]
    code = f"import sys; from bloomseal.cli.main import main; sys.exit(main({arguments!r}))"
    killed = subprocess.run([sys.executable, "-c", code], env={**os.environ, "BLOOMSEAL_FAULT_POINT": where})
    assert killed.returncode == -signal.SIGKILL
    assert _rows("t/a.orc", ring) == ROWS
    before = _bytes()
    result, report = run(command, "t")
    assert (result, report["resumed"], report["counts"]) == (0, True, {f"{command}ed": 2})
    for name, data in before.items():
        done = command == "repair" and where == "renamed" and name == "a.orc"
        assert (Path("t", name).read_bytes() == data) is done
        if done:  # the run that was killed could not say so any more
            assert "destroy" in next(one["why"] for one in report["files"] if one["path"].endswith(name))
        assert _rows(f"t/{name}", ring) == ROWS
    assert not [one for one in Path("t").iterdir() if one.suffix != ".orc"]


def test_one_bad_file_stops_nothing(run: Run, ring: bs.Keyring) -> None:
    data = bytearray(Path("t/a.orc").read_bytes())
    data[-200] ^= 0xFF
    Path("t/a.orc").write_bytes(data)
    code, report = run("rekey", "t")
    assert (code, report["counts"]) == (1, {"failed": 1, "rekeyed": 1})
    assert Path("t/a.orc").read_bytes() == data
    assert _rows("t/b.orc", ring) == ROWS
    assert plan("t/b.orc", Rewrap(_spec(ring))).ok is False
