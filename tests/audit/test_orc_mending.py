"""To mend it mends, of ORC files too: the command of each finding, run as it stands, removes the finding."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as po
import pytest

import bloomseal as bs
from bloomseal import DecryptionSpec, EncryptionSpec, FilterSpec, Keyring, KeyTools, orc, write_table
from bloomseal.audit import audit
from bloomseal.audit.rules.findings import Finding
from bloomseal.cli.main import main
from bloomseal.orc.chunks import deflate
from bloomseal.orc.protobuf import Message, encoded, without
from bloomseal.orc.rows.clear import tail_bytes
from bloomseal.policy import ColumnPolicy, TablePolicy
from support.orc_files import orc_file, orc_ring

Made = tuple[Path, dict[str, Any]]
CASES: dict[str, Callable[[Path, Keyring], Made]] = {}
_OWN = {"name": ColumnPolicy("pii"), "num": ColumnPolicy("wide"), "s": ColumnPolicy("wide")}


def case(rule: str) -> Callable[[Callable[[Path, Keyring], Made]], Callable[[Path, Keyring], Made]]:
    def keep(make: Callable[[Path, Keyring], Made]) -> Callable[[Path, Keyring], Made]:
        CASES[rule] = make
        return make

    return keep


def _policy(ring: Keyring, **columns: ColumnPolicy) -> TablePolicy:
    return TablePolicy("t", ring, "footer", _OWN | columns, allow_ctr=True)


def _plain(path: Path, **options: Any) -> Path:
    rows = po.read_table(orc_file(path, orc_ring(path.with_name("other.json")))).select(["id"])
    po.write_table(rows, path, row_index_stride=1000, **options)
    return path


@case("BS102")
def filter_in_clear(folder: Path, ring: Keyring) -> Made:
    return orc_file(folder / "a 'quoted'.orc", ring), {}


@case("BS205")
def empty_filter(folder: Path, ring: Keyring) -> Made:
    return _zeroed(folder, 8), {"deep": True}


@case("BS210")
def wrong_filter(folder: Path, ring: Keyring) -> Made:
    return _zeroed(folder, 2), {"deep": True}


def _zeroed(folder: Path, part: int) -> Path:
    """With a part of the last row group's bits gone; all of them by 8."""
    path = _plain(folder / "a.orc", compression="uncompressed", bloom_filter_columns=[1])
    with bs.open_file(path) as file:
        one = file.filters[0]
        bits = file.filter(0, "id")[-1].num_bits // 8
    data = bytearray(path.read_bytes())
    end = one.offset + one.length
    gone = bits * part // 8
    data[end - gone : end] = bytes(gone)
    path.write_bytes(data)
    return path


@case("BS208")
def broken_filter(folder: Path, ring: Keyring) -> Made:
    path = _plain(folder / "a.orc", compression="uncompressed", bloom_filter_columns=[1])
    with bs.open_file(path) as file:
        one = file.filters[0]
    data = bytearray(path.read_bytes())
    data[one.offset] ^= 0xFF
    path.write_bytes(data)
    return path, {"deep": True}


@case("BS301")
def aged(folder: Path, ring: Keyring) -> Made:
    """Its versions were made a hundred days ago; those of the command are made now."""
    path = orc_file(folder / "a.orc", ring)
    text = json.loads(ring.path.read_text())
    for one in _versions(text):
        one["created"] = (datetime.now(UTC) - timedelta(days=100)).isoformat()
    ring.path.write_text(json.dumps(text))
    return path, {"policy": replace(_policy(ring), max_key_age=timedelta(days=90))}


def _versions(node: Any) -> list[dict[str, Any]]:
    """All of a keyring file that have a date."""
    below = list(node.values()) if isinstance(node, dict) else node if isinstance(node, list) else []
    own = [node] if isinstance(node, dict) and "created" in node else []
    return own + [one for part in below for one in _versions(part)]


@case("BS302")
def disabled_master_key(folder: Path, ring: Keyring) -> Made:
    path = orc_file(folder / "a.orc", ring)
    ring.disable("pii")
    return path, {}


@case("BS303")
def unexpected_master_key(folder: Path, ring: Keyring) -> Made:
    return orc_file(folder / "a.orc", ring), {"policy": _policy(ring, name=ColumnPolicy("pii-2027"))}


@case("BS304")
def previous_master_key(folder: Path, ring: Keyring) -> Made:
    policy = _policy(ring, name=ColumnPolicy("pii-2027", previous_keys=("pii",)))
    return orc_file(folder / "a.orc", ring), {"policy": policy}


@case("BS305")
def copies_share_local_keys(folder: Path, ring: Keyring) -> Made:
    shutil.copy(orc_file(folder / "a.orc", ring), folder / "b.orc")
    return folder, {}


@case("BS316")
def missed_by_a_rotation(folder: Path, ring: Keyring) -> Made:
    orc_file(folder / "a.orc", ring)
    shutil.copy(folder / "a.orc", folder / "b.orc")
    ring.rotate("pii")
    orc.rekey(folder / "b.orc", decryption=DecryptionSpec(ring, allow_ctr=True))
    return folder, {}


@case("BS401")
def overfull_filter(folder: Path, ring: Keyring) -> Made:
    path = _plain(folder / "a.orc", bloom_filter_columns=[1], bloom_filter_fpp=0.3)
    policy = TablePolicy("t", ring, "footer", {"id": ColumnPolicy(filter=FilterSpec(fpp=0.001))})
    return path, {"policy": policy, "deep": True}


@case("BS403")
def missing_filter(folder: Path, ring: Keyring) -> Made:
    policy = _policy(ring, s=ColumnPolicy("wide"), **{"s.b": ColumnPolicy("wide", filter=FilterSpec(fpp=0.02))})
    return orc_file(folder / "a.orc", ring), {"policy": policy}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("BLOOMSEAL_KEYRING", "BLOOMSEAL_KEYRING_PASSPHRASE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path / "t"


def _of(rule: str, made: Made, ring: Keyring) -> list[Finding]:
    path, options = made
    report = audit(path, keys=ring, **options)
    assert not [one for one in report.findings if one.rule.id in ("BS201", "BS206")]
    return [one for one in report.findings if one.rule.id == rule]


@pytest.mark.parametrize("rule", sorted(CASES))
def test_its_command_removes_the_finding(folder: Path, rule: str) -> None:
    folder.mkdir()
    ring = orc_ring(folder.parent / "keys.json")
    made = CASES[rule](folder, ring)
    found = _of(rule, made, ring)
    assert found
    for command in dict.fromkeys(one.fix for one in found):
        assert command, [one.advice for one in found]
        for part in command.split(" && "):
            words = shlex.split(part)
            assert words[0] == "bloomseal"
            assert main(words[1:]) == 0, part
    assert not _of(rule, made, ring)


def test_without_keys_there_is_advice(folder: Path) -> None:
    folder.mkdir()
    path = orc_file(folder / "a.orc", orc_ring(folder.parent / "keys.json"))
    (found, *_) = [one for one in audit(path).findings if one.rule.id == "BS102"]
    assert not found.fix
    assert "Audit again with the keys" in found.advice


def test_statistics_in_clear_are_found(folder: Path) -> None:
    """The Java library masks them. Whoever does not, tells bounds; no command of ours writes statistics anew."""
    folder.mkdir()
    path = orc_file(folder / "a.orc", orc_ring(folder.parent / "keys.json"))
    assert not {one.rule.id for one in audit(path).findings} & {"BS104"}
    with bs.open_file(path) as file:
        tail, name = file.tail, file.schema.leaf("name").id
        told = b""
        for stripe in tail.stripe_statistics:
            columns = [bytes(one) for one in stripe.every(1)]
            bounds = encoded(1, b"name1") + encoded(2, b"name9")
            columns[name] = without(columns[name], (1, 4)) + encoded(1, 1000) + encoded(4, bounds)
            told += encoded(1, b"".join(encoded(1, one) for one in columns))
        postscript = tail.raw_postscript
        metadata = deflate(told, tail.compression, tail.block_size)
        end = tail_bytes(tail, len(metadata), Message(postscript).number(7), bytes(tail.raw_footer))
        start = tail.metadata[0]
    path.write_bytes(path.read_bytes()[:start] + metadata + end)
    found = [one for one in audit(path).findings if one.rule.id == "BS104"]
    assert [one.column for one in found] == ["name"]
    assert not found[0].fix
    assert "write the data anew" in found[0].advice


def test_the_counts_of_two_formats_are_not_compared(tmp_path: Path) -> None:
    """An ORC file counts the versions of a key from 0, a keyring from 1: only a keyring tells which is which."""
    ring = orc_ring(tmp_path / "keys.json")
    folder = tmp_path / "both"
    orc_file(folder / "a.orc", ring)
    spec = EncryptionSpec("pii", keys=KeyTools(ring))
    write_table(pa.table({"n": [1]}), folder / "a.parquet", encryption=spec)

    def missed(**options: Any) -> set[str]:
        return {Path(str(one.file)).name for one in audit(folder, **options).findings if one.rule.id == "BS316"}

    assert missed() == missed(keys=KeyTools(ring)) == set()
    ring.rotate("pii")
    write_table(pa.table({"n": [1]}), folder / "b.parquet", encryption=spec)
    assert missed() == {"a.parquet"}
    assert missed(keys=KeyTools(ring)) == {"a.parquet", "a.orc"}
    shutil.copy(folder / "a.orc", folder / "b.orc")
    orc.rekey(folder / "b.orc", decryption=DecryptionSpec(ring, allow_ctr=True))
    assert missed() == {"a.parquet", "a.orc"}
