"""The verbs of a table on an encrypted Iceberg table, by the command line and its policy; and those that refuse it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.cli.main import main
from bloomseal.policy.check import check

POLICY = """
version = 1
kms = "keyring:keys.json"
[tables.people]
footer_key = "master-main"
root = "people"
[tables.people.columns.ssn]
key = "master-main"
index = true
[tables.people.iceberg]
encryption_key = "master-main"
"""
Run = Callable[..., Any]
ROWS = ("read", "head")


@pytest.fixture
def run(
    vectors: Path,
    keyring: bs.Keyring,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    shutil.copytree(vectors / "tables" / "people16", tmp_path / "people")
    shutil.copy2(keyring.path, tmp_path / "keys.json")
    (tmp_path / "policy.toml").write_text(POLICY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BLOOMSEAL_POLICY", "policy.toml")

    def told(command: str, *more: str, code: int = 0) -> Any:
        capsys.readouterr()
        ended = main([*command.split(), *more])
        seen = capsys.readouterr()
        assert ended == code, seen.out + seen.err
        if code:
            return seen.err
        return (
            [json.loads(line) for line in seen.out.splitlines()] if command.startswith(ROWS) else json.loads(seen.out)
        )

    return told


def test_what_reads(run: Run) -> None:
    (row,) = run("read people --format json", "--where", "ssn = '901-11-0001'")
    assert row["id"] == 1
    assert run("count people --format json") == {"rows": 108}
    assert len(run("head people -n 3 --format json")) == 3
    shown = run("show people --format json")
    assert (shown["rows"], shown["row_groups"], shown["hidden"]) == (108, 9, [])
    verified = run("verify people --format json")
    assert len(verified) == 9
    assert all(one["ok"] for one in verified)
    report = run("audit people --format json")
    assert report["ok"] is True


def test_an_index(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("index build people --column ssn --format json")
    (row,) = run("read people --use-index require --format json", "--where", "ssn = '901-29-0019'")
    assert row["id"] == 19
    assert run("read people --use-index require --format json", "--where", "ssn = '900-00-0000'") == []
    # A state that was put back has other files than the index covers, or fewer: never a row that is not said.
    newest = max(Path("people/metadata").glob("*.metadata.json"))
    newest.unlink()
    for ssn, there in (("901-29-0019", True), ("901-25-0105", False)):
        found = run("read people --format json", "--where", f"ssn = '{ssn}'")
        assert bool(found) is there


@pytest.mark.parametrize("name", ["dv16", "eqdel16"])
def test_an_index_shows_no_deleted_row(
    vectors: Path, keyring: bs.Keyring, spec: Callable[..., bs.DecryptionSpec], tmp_path: Path, name: str
) -> None:
    shutil.copytree(vectors / "tables" / name, tmp_path / name)
    told = json.loads((vectors / "tables" / f"{name}.expected.json").read_text())
    table = bs.open_table(tmp_path / name, decryption=spec())
    table.index("ssn", encryption=bs.EncryptionSpec("master-main", keys=keyring)).build()
    table = bs.open_table(tmp_path / name, decryption=spec(), use_index="require")
    left = {row[1]: row[0] for row in told["rows"] if row[1]}
    first = min(left)[:3]
    for number in range(len(told["rows"]) + 20):
        ssn = f"{first}-{10 + number}-{number:04d}"
        found = table.read(columns=["id"], where=[("ssn", "==", ssn)]).column("id").to_pylist()
        assert found == ([left[ssn]] if ssn in left else [])
    assert any(f"{first}-{10 + one}-{one:04d}" not in left for one in range(max(left.values())))


@pytest.mark.parametrize(
    "command",
    [
        "seal people",
        "rekey people",
        "rewrap people",
        "attach people --bloom-filter city",
        "compact people",
        "unseal people --in-place",
    ],
)
@pytest.mark.parametrize("dry", [False, True])
def test_what_changes_files_refuses(run: Run, command: str, dry: bool) -> None:
    before = {path: path.read_bytes() for path in Path("people").rglob("*") if path.is_file()}
    if dry and command.split()[0] in ("rekey", "rewrap", "unseal"):
        assert run(command + " --dry-run --format json", code=1) == ""
    else:
        assert "engine" in run(command + " --dry-run" * dry, code=2)
    assert {path: path.read_bytes() for path in Path("people").rglob("*") if path.is_file()} == before


def test_a_plan_shows_what_keys_hang_from(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rewrap", "people", "--dry-run", "--format", "json"]) == 1
    told = json.loads(capsys.readouterr().out)
    documents = [json.loads(path.read_text()) for path in Path("people/metadata").glob("*.json")]
    keks = {
        one["key-id"] for document in documents for one in document.get("encryption-keys", ()) if "properties" in one
    }
    files = [path for path in Path("people").rglob("*") if path.suffix in (".avro", ".parquet")]
    assert {Path(one["path"]) for one in told["files"]} <= {path.absolute() for path in files}
    assert len(told["files"]) == 9 + 3 + 1
    for one in told["files"]:
        assert (one["action"], one["size"]) == ("fail", Path(one["path"]).stat().st_size)
        assert "engine" in one["why"]
        assert "master-main, version 1" in one["why"]
        assert any(kek in one["why"] for kek in keks)


def test_a_policy_writes_no_file_of_it(run: Run) -> None:
    with pytest.raises(bs.UsageError, match="only the engine of its catalog writes"):
        bs.write_table(pa.table({"ssn": ["a"]}), "people/data/new.parquet", policy="policy.toml")
    assert not Path("people/data/new.parquet").exists()


@pytest.mark.parametrize(("name", "file"), [("dv16", "*.puffin"), ("eqdel16", "*.parquet")])
def test_verify_opens_what_deletes_rows(run: Run, vectors: Path, name: str, file: str) -> None:
    shutil.rmtree("people")
    shutil.copytree(vectors / "tables" / name, "people")
    assert all(one["ok"] for one in run("verify people --format json"))
    path = min(Path("people/data").glob(file), key=lambda one: one.stat().st_size)
    data = path.read_bytes()
    path.write_bytes(data[:60] + bytes([data[60] ^ 1]) + data[61:])
    assert main(["verify", "people"]) == 1


def test_a_policy_of_it_leaves_nothing_in_clear(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever columns the policy names: the table's one key seals all."""
    policy = bs.Policy.load("policy.toml")
    assert [*check(policy)] == []
    assert main(["doctor", "people", "--format", "json"]) == 0
    assert "clear" not in capsys.readouterr().out


def test_duckdb_and_polars_take_a_policy(run: Run) -> None:
    duckdb = pytest.importorskip("duckdb")
    import bloomseal.duckdb as bd
    import bloomseal.polars as bp

    connection = duckdb.connect()
    bd.register(connection, "people", "people", policy="policy.toml")
    assert connection.sql("select count(*) from people where ssn is not null").fetchall() == [(101,)]
    assert len(bp.scan("people", policy="policy.toml").collect()) == 108
