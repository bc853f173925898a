"""Filters of encrypted columns put right: true values under the column's key, read and pruned by the Java library."""

from __future__ import annotations

import datetime as dt
import os
import random
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import bloomseal as bs
from bloomseal import DecryptionSpec, FilterSpec, Verdict, orc
from bloomseal.core.errors import IntegrityError, KeyAccessError, PolicyError, UsageError
from bloomseal.keytools import MasterKeys
from bloomseal.orc.filters import parsed_filter
from bloomseal.orc.hashing import hash_bytes
from bloomseal.orc.protobuf import fields
from bloomseal.orc.rewrite.build import all_in
from support.jvm import JavaUnavailableError, start_jvm
from support.orc_java import java_orc_merge, java_orc_rows, java_orc_write, java_zone, memory_keys

pytestmark = pytest.mark.jvm

OLD, NEW, WIDE = bytes(range(16)), bytes(range(16, 32)), bytes(range(32))
JAVA = memory_keys(("pii", 0, OLD), ("wide", 0, WIDE))
SPEC = DecryptionSpec(keys=MasterKeys({"pii": OLD, "wide": WIDE}), allow_ctr=True)
SCHEMA = "struct<id:bigint,name:string,num:int,s:struct<a:int,b:string>>"
OPTIONS: dict[str, Any] = {"encrypt": "pii:name;wide:num,s", "filters": "id,name,num", "stripe_rows": 2_000}


def _rows(count: int = 4_500) -> list[list[Any]]:
    chance = random.Random(count)
    return [
        [i, f"name{chance.randrange(9**9)}" if i % 7 else None, chance.randrange(1 << 30), [i % 3, f"in{i}"]]
        for i in range(count)
    ]


ROWS = _rows()


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        start_jvm()
    except JavaUnavailableError as error:
        pytest.skip(str(error))
    path = tmp_path_factory.mktemp("orc") / "sealed.orc"
    java_orc_write(path, SCHEMA, ROWS, JAVA, **OPTIONS)
    return path


@pytest.fixture
def path(sealed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(sealed, tmp_path / "file.orc"))


def _counted(path: Path, column: str, values: list[Any], spec: DecryptionSpec, stripes: list[int]) -> tuple[int, float]:
    """Present values called absent, and the share of absent ones that were not."""
    known = sorted({value for value in values if value is not None}, key=str)
    missed = passed = other = at = 0
    with bs.open_file(path, decryption=spec) as file:
        answers = iter(file.verdicts(column, known))
        for rows in stripes:
            for start in range(0, rows, 1_000):
                here = set(values[at + start : at + min(start + 1_000, rows)])
                for value, verdict in zip(known, next(answers).verdicts, strict=True):
                    assert verdict != Verdict.NO_FILTER
                    if value in here:
                        missed += verdict == Verdict.ABSENT
                    else:
                        other, passed = other + 1, passed + (verdict != Verdict.ABSENT)
            at += rows
    return missed, passed / max(1, other)


def _asked_in_clear(path: Path, text: str) -> bool:
    """Does a filter that anybody can read leave the text possible in the second stripe?"""
    with bs.open_file(path) as file:
        index = file.index(1)
        stream = index.filter_stream(2)
        assert stream is not None
        filters = fields(file.tail.inflate(index.read(stream), 1 << 20))
        parsed = [parsed_filter(entry) for _, entry in filters if not isinstance(entry, int)]
        hashes = hash_bytes([text.encode()])
        return any(all_in(hashes, one.num_hashes, one.bitset) for one in parsed)


@pytest.mark.parametrize("compression", ["NONE", "ZLIB", "SNAPPY", "LZ4", "ZSTD"])
def test_repaired_filters_are_true_and_java_prunes_by_them(sealed: Path, compression: str, tmp_path: Path) -> None:
    path = tmp_path / "file.orc"
    java_orc_write(path, SCHEMA, ROWS, JAVA, **OPTIONS, compression=compression)
    before = java_orc_rows(path)
    asked = next(row[1] for row in ROWS[2_100:] if row[1])
    assert _asked_in_clear(path, asked)  # the leak: whoever has no key may ask for true values
    report = orc.repair_filters(path, decryption=SPEC)
    assert (report.clear_filters, report.masked_kept, report.rekeyed) == (6, 6, ["name", "num"])
    assert "destroy" in str(report.old_copies)
    assert report.new_size == path.stat().st_size
    for place, column in ((1, "name"), (2, "num")):
        missed, rate = _counted(path, column, [row[place] for row in ROWS], SPEC, [2_000, 2_000, 500])
        assert missed == 0
        assert rate < 0.015
    assert java_orc_rows(path, JAVA) == ROWS
    assert java_orc_rows(path) == before
    assert 0 < len(java_orc_rows(path, JAVA, column="name", value=asked)) <= 2_000
    assert len(java_orc_rows(path, JAVA, column="name", value="name5x")) <= 1_000
    assert java_orc_rows(path, column="name", value=asked) == []
    assert not _asked_in_clear(path, asked)
    again = path.read_bytes()
    assert orc.repair_filters(path, decryption=SPEC).filters == []
    assert path.read_bytes() == again


def test_masked_filters_are_dropped_on_request(path: Path) -> None:
    orc.repair_filters(path, decryption=SPEC, drop_masked=True)
    with bs.open_file(path) as file:
        assert {(one.column, one.encrypted) for one in file.filters} == {("id", False), ("name", True), ("num", True)}
    assert java_orc_rows(path, JAVA) == ROWS


def test_no_key_and_iv_seals_two_streams(path: Path, sealed: Path) -> None:
    """A changed stream under the old local key would be a two-time pad, with the old file and with another repair."""
    other = Path(shutil.copy(path, path.with_name("other.orc")))
    bs.attach_filters(path, {"name": FilterSpec(fpp=0.5)}, decryption=SPEC)
    bs.attach_filters(other, {"name": FilterSpec(fpp=0.001)}, decryption=SPEC)
    seen: dict[str, list[list[bytes]]] = {"keys": [], "streams": []}
    for one in (sealed, path, other):
        with bs.open_file(one, decryption=SPEC) as file:
            assert file.encryption is not None
            name, num, group = file.encryption.variants
            seen["keys"].append([name.encrypted_key, *{stripe.encrypted_keys[0] for stripe in file.stripes}])
            index = file.index(0)
            streams = [stream for stream in index.streams if stream.variant == 0 and stream.length > 40]
            raw = [bytes(file.source.read(stream.offset, stream.length)) for stream in streams if not stream.is_index]
            seen["streams"].append(raw)
            # What nobody changed stays byte for byte, under its old key.
            assert {stripe.encrypted_keys[1:] for stripe in file.stripes} == {(num.encrypted_key, group.encrypted_key)}
    keys = [key for found in seen["keys"] for key in set(found)]
    assert len(set(keys)) == len(keys)
    assert all(len({raw[place] for raw in seen["streams"]}) == 3 for place in range(len(seen["streams"][0])))


def test_merged_stripes_never_share_a_key_and_an_id(path: Path, tmp_path: Path) -> None:
    merged = tmp_path / "merged.orc"
    assert java_orc_merge(merged, [path, path], JAVA) == 2
    orc.repair_filters(merged, decryption=SPEC)
    with bs.open_file(merged, decryption=SPEC) as file:
        seals = [(stripe.encrypted_keys[0], stripe.encrypt_id) for stripe in file.stripes]
        assert len(set(seals)) == len(seals) == 6
    assert java_orc_rows(merged, JAVA) == ROWS * 2
    missed, rate = _counted(merged, "name", [row[1] for row in ROWS * 2], SPEC, [2_000, 2_000, 500] * 2)
    assert missed == 0
    assert rate < 0.015


def test_rekey_moves_to_the_newest_version(path: Path) -> None:
    rolled = MasterKeys({"pii": [OLD, NEW], "wide": [WIDE, OLD + NEW]})
    orc.repair_filters(path, decryption=SPEC)
    report = orc.rekey(path, decryption=DecryptionSpec(keys=rolled, allow_ctr=True))
    assert report.versions == {"pii": 1, "wide": 1}
    assert report.rekeyed == ["name", "num", "s"]
    assert "old master key" in str(report.old_copies)
    gone = DecryptionSpec(keys=MasterKeys({"pii": [None, NEW], "wide": [None, OLD + NEW]}), allow_ctr=True)
    assert _counted(path, "num", [row[2] for row in ROWS], gone, [2_000, 2_000, 500])[0] == 0
    java = memory_keys(("pii", 1, NEW), ("wide", 1, OLD + NEW))
    assert java_orc_rows(path, java) == ROWS
    with bs.open_file(path, decryption=SPEC) as file, pytest.raises(KeyAccessError, match="version 1"):
        file.verdicts("num", [1])


def test_rekey_takes_another_master_key(path: Path) -> None:
    both = DecryptionSpec(keys=MasterKeys({"pii": OLD, "wide": WIDE, "next": [OLD, NEW]}), allow_ctr=True)
    with pytest.raises(UsageError, match="no column is under master key nxt"):
        orc.rekey(path, decryption=both, master_keys={"nxt": "next"})
    report = orc.rekey(path, decryption=both, master_keys={"wide": "next"})
    assert report.versions == {"next": 1}
    with bs.open_file(path) as file:
        assert file.encryption is not None
        assert [(one.name, one.version) for one in file.encryption.keys] == [("pii", 0), ("next", 1)]
    assert java_orc_rows(path, memory_keys(("pii", 0, OLD), ("next", 1, NEW))) == ROWS


class _Fickle(MasterKeys):
    """A KMS that opens each encrypted key of a new version to another key."""

    def open_local_key(self, encrypted_key: bytes, master_key: str, version: int) -> bytes:
        return super().open_local_key(encrypted_key, master_key, version) if version == 0 else os.urandom(16)


def test_a_kms_that_gives_two_keys_for_one_costs_no_file(path: Path) -> None:
    before = path.read_bytes()
    fickle = DecryptionSpec(keys=_Fickle({"pii": [OLD, NEW], "wide": [WIDE, OLD]}), allow_ctr=True)
    with pytest.raises(KeyAccessError, match="two keys"):
        orc.rekey(path, decryption=fickle)
    assert path.read_bytes() == before
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_nested_and_plain_columns_get_filters(path: Path) -> None:
    report = bs.attach_filters(path, {"s.b": FilterSpec(fpp=0.001), "id": True, "s.a": False}, decryption=SPEC)
    assert {(one["column"], one["encrypted"]) for one in report.filters} == {("s.b", True), ("id", False)}
    missed, rate = _counted(path, "s.b", [row[3][1] for row in ROWS], SPEC, [2_000, 2_000, 500])
    assert missed == 0
    assert rate < 0.0015
    assert java_orc_rows(path, JAVA) == ROWS
    with bs.open_file(path, decryption=SPEC) as file:
        assert file.rows(0, ["s.b", "name"]).to_pylist()[1] == {"name": ROWS[1][1], "s": {"b": "in1"}}


@pytest.mark.parametrize("how", ["wrong", "none", "no ctr", "column", "kind"])
def test_a_refusal_leaves_the_file_as_it_was(path: Path, how: str) -> None:
    before = path.read_bytes()
    wrong = DecryptionSpec(keys=MasterKeys({"pii": NEW, "wide": WIDE}), allow_ctr=True)
    quiet = DecryptionSpec(keys=MasterKeys({"pii": OLD, "wide": WIDE}))
    calls: dict[str, tuple[type[Exception], Any]] = {
        "wrong": (IntegrityError, lambda: orc.repair_filters(path, decryption=wrong)),
        "none": (KeyAccessError, lambda: orc.repair_filters(path)),
        "no ctr": (PolicyError, lambda: orc.rekey(path, decryption=quiet)),
        "column": (UsageError, lambda: bs.attach_filters(path, ["nam"], decryption=SPEC)),
        "kind": (UsageError, lambda: bs.attach_filters(path, {"name": 3}, decryption=SPEC)),  # type: ignore[dict-item]
    }
    error, call = calls[how]
    with pytest.raises(error):
        call()
    assert path.read_bytes() == before
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_a_dry_run_writes_nothing(path: Path) -> None:
    before = path.read_bytes()
    done: list[tuple[int, int]] = []
    report = orc.repair_filters(path, decryption=SPEC, dry_run=True, progress=lambda *now: done.append(now))
    assert report.dry_run
    assert len(report.filters) == 6
    assert done == [(1, 3), (2, 3), (3, 3)]
    assert path.read_bytes() == before


def test_what_was_altered_meanwhile_is_not_placed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bloomseal.storage.atomic import AtomicFile

    before, send = path.read_bytes(), AtomicFile.write

    def flipped(self: AtomicFile, data: bytes) -> None:
        send(self, bytes([data[0] ^ 1]) + bytes(data[1:]) if len(data) == longest else data)

    with bs.open_file(path) as file:
        longest = max(stream.length for stream in file.index(0).streams if stream.variant == 0)
    monkeypatch.setattr(AtomicFile, "write", flipped)
    with pytest.raises(bs.BloomsealError):
        orc.repair_filters(path, decryption=SPEC)
    assert path.read_bytes() == before


def test_every_type_by_the_java_library(sealed: Path, tmp_path: Path) -> None:
    chance, path = random.Random(7), tmp_path / "types.orc"
    kinds = "b:tinyint,h:smallint,l:bigint,f:float,d:double,c:char(5),v:varchar(9),p:decimal(20,3),n:date,t:string"
    values = [
        [
            chance.randint(-128, 127), chance.randint(-(2**15), 2**15 - 1), chance.randint(-(2**62), 2**62),
            chance.choice([0.0, -0.0, 1.5, chance.random()]), chance.choice([0.0, -0.0, chance.random()]),
            chance.choice("aé ") + "x", f"v{i}", f"{chance.randint(-(10**9), 10**9)}.5",
            chance.randint(-200_000, 30_000), None if i % 3 else f"t{i}",
        ]
        for i in range(1_500)
    ]  # fmt: skip
    names = [one.partition(":")[0] for one in kinds.replace("20,3", "20").split(",")]
    java_orc_write(path, f"struct<{kinds}>", values, JAVA, encrypt=f"wide:{','.join(names)}")
    bs.attach_filters(path, names, decryption=SPEC)
    assert len(java_orc_rows(path, JAVA)) == 1_500
    with bs.open_file(path, decryption=SPEC) as file:
        for place, name in enumerate(names):
            asked = [row[place] for row in values if row[place] is not None]
            if name == "p":
                asked = [Decimal(one) for one in asked]
            elif name == "n":
                asked = [dt.date(1970, 1, 1) + dt.timedelta(one) for one in asked if one > -141_000]
            first, second = file.verdicts(name, asked)
            for at, verdicts in enumerate(zip(first.verdicts, second.verdicts, strict=True)):
                assert Verdict.NO_FILTER not in verdicts
                assert Verdict.MAYBE_PRESENT in verdicts, (name, asked[at])
            assert Verdict.ABSENT in first.verdicts + second.verdicts or name == "c" or name in "fdb"
        stream = file.index(0).filter_stream(3, 2)
        assert stream is not None
    for name, place in (("l", 2), ("t", 9)):
        for row in values[::300]:
            assert any(row[place] == got[place] for got in java_orc_rows(path, JAVA, column=name, value=row[place]))


def test_built_filters_hold_all_bits_of_java_ones(sealed: Path, tmp_path: Path) -> None:
    """Whatever the Java library hashes for a value, a filter of ours holds: its reader finds every value."""
    chance, path = random.Random(8), tmp_path / "plain.orc"
    kinds = (
        "b:tinyint,h:smallint,i:int,l:bigint,f:float,d:double,c:char(5),v:varchar(9),p:decimal(20,3),q:decimal(9,0),"
        "n:date,t:string,w:timestamp,z:timestamp with local time zone,s:struct<x:int>"
    )
    wide = [
        [
            chance.randint(-128, 127), chance.randint(-(2**15), 2**15 - 1), chance.randint(-(2**31), 2**31 - 1),
            chance.randint(-(2**62), 2**62), chance.choice([0.0, -0.0, chance.random()]),
            chance.choice([0.0, -0.0, chance.random()]), chance.choice("aéü") * chance.randint(0, 4),
            f"v{i}", f"{chance.randint(-(10**6), 10**6)}.{chance.choice(['5', '25', '0'])}",
            str(chance.randint(-999, 999) * 1000), chance.randint(-200_000, 30_000), f"t€{i}",
            chance.randint(-2_000_000_000_000, 3_000_000_000_000), chance.randint(0, 3_000_000_000_000), [i],
        ]
        for i in range(1_200)
    ]  # fmt: skip
    names = ["b", "h", "i", "l", "f", "d", "c", "v", "p", "q", "n", "t", "w", "z", "s.x"]
    java_orc_write(path, f"struct<{kinds}>", wide, filters=",".join(names), fpp=0.001)

    def bits(name: str) -> list[Any]:
        with bs.open_file(path) as file:
            filters = file.filter(0, name)
            assert filters is not None
            return filters

    theirs = {name: bits(name) for name in names}
    report = bs.attach_filters(path, names)
    assert report.replaced == len(names)
    for name in names:
        for java, ours in zip(theirs[name], bits(name), strict=True):
            assert (java.num_bits, java.num_hashes) == (ours.num_bits, ours.num_hashes)
            assert not (java.bitset & ~ours.bitset).any(), name
            extra = int.from_bytes((ours.bitset & ~java.bitset).tobytes()).bit_count()
            if name not in ("f", "d", "c", "n", "w"):
                assert extra == 0, name


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata"])
def test_moments_of_any_zone_are_hashed_as_java_hashes_them(sealed: Path, zone: str, tmp_path: Path) -> None:
    chance, path = random.Random(9), tmp_path / "moments.orc"
    rows = [[chance.randint(-2_000_000_000_000, 3_000_000_000_000)] * 2 for _ in range(1_100)]
    with java_zone(zone):
        java_orc_write(path, "struct<w:timestamp,z:timestamp with local time zone>", rows, filters="w,z", fpp=0.001)
    with bs.open_file(path) as file:
        assert file.index(0).writer_timezone == zone
        theirs = {name: file.filter(0, name) for name in "wz"}
    bs.attach_filters(path, ["w", "z"])
    with bs.open_file(path) as file:
        for name in "wz":
            for java, ours in zip(theirs[name] or [], file.filter(0, name) or [], strict=True):
                assert java.bitset.any()
                assert not (java.bitset & ~ours.bitset).any()


def test_masked_filters_answer_readers_without_a_key(sealed: Path, tmp_path: Path) -> None:
    path = tmp_path / "hashed.orc"
    java_orc_write(path, "struct<id:bigint,name:string>", [row[:2] for row in ROWS], JAVA,
                   encrypt="pii:name", masks="sha256:name", filters="name", stripe_rows=2_000)  # fmt: skip
    before = java_orc_rows(path)
    masked = before[2_500][1]
    assert orc.repair_filters(path, decryption=SPEC).masked_kept == 3
    assert java_orc_rows(path) == before
    found = java_orc_rows(path, column="name", value=masked)
    assert [2_500, masked] in found
    assert len(found) <= 2_000
    assert [2_500, ROWS[2_500][1]] in java_orc_rows(path, JAVA, column="name", value=ROWS[2_500][1])
