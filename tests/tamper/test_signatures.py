"""A table whose files are signed: what signs them, mutants of them, and what becomes of signatures. Who attacks it:
`tests/games/test_signed_table.py`.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import bloomseal as bs
from bloomseal.audit import audit
from bloomseal.core.parquet.layout import read_tail
from bloomseal.core.storage.source import Source
from bloomseal.format.opening import open_footer
from bloomseal.policy import TablePolicy
from bloomseal.rotation.sign import Sign
from bloomseal.specs import decryption_for
from bloomseal.storage.places import open_source
from support.signed_table import INDEXED, NAME, ROWS, Counted, Table, copy, digest


def test_what_its_author_signed_is_read(table: Table) -> None:
    assert bs.read_table(table.root, policy=table.policy()).num_rows == 60
    with bs.open_file(table.file, policy=table.policy()) as file:
        assert file.verify().signed_by == "author"
    assert table.kms.asked > 0


def test_without_a_policy(table: Table) -> None:
    from bloomseal.keytools.signatures.signers import Signers

    keys = bs.KeyTools(table.kms)
    for lines, expected in ((table.author.key.line, 60), (table.other.key.line, None)):
        spec = bs.DecryptionSpec(keys, partition_by=["day"], signers=Signers({"author": lines}, "people"))
        if expected is None:
            with pytest.raises(bs.PolicyError, match="none of the table's signers"):
                bs.read_table(table.root, decryption=spec)
        else:
            assert bs.read_table(table.root, decryption=spec).num_rows == expected
            with pytest.raises(bs.PolicyError, match="was not said"):
                bs.read_table(table.file, decryption=spec)


def test_a_file_that_is_replaced_while_it_is_opened(table: Table) -> None:
    """Its signature is gone, which is nobody's fault."""
    policy = table.policy(table.author)
    with open_source(table.file) as source:
        bs.write_table(ROWS, table.file, policy=policy)
        with pytest.raises(bs.BloomsealError, match="another file took its place") as caught:
            open_footer(source, decryption_for(policy, source.ref))
    assert not isinstance(caught.value, bs.PolicyError)


def test_whoever_can_t_sign_writes_nothing(table: Table) -> None:
    before = sorted(table.file.parent.iterdir()), table.file.read_bytes()
    for signer, why in ((None, "no key to sign with"), (table.other, "none of the signers")):
        policy = table.policy(signer)
        for way in (
            lambda policy=policy: bs.write_table(ROWS, table.root / "day=1/new.parquet", policy=policy),
            lambda policy=policy: bs.write_dataset(ROWS, table.root, policy=policy, mode="append"),
            lambda policy=policy: bs.rekey(table.file, policy=policy),
            lambda policy=policy: bs.attach_filters(table.file, {"n": True}, decryption=policy),
            lambda policy=policy: bs.rotation.rotate(table.root, bs.rotation.Rekey(policy)),
        ):
            with pytest.raises(bs.PolicyError, match=why):
                way()
    assert (sorted(table.file.parent.iterdir()), table.file.read_bytes()) == before


def test_a_name_that_leaves_no_room_for_the_signatures_is_refused_at_once(table: Table) -> None:
    policy = table.policy(table.author)
    for length in (182, 183):
        place = table.root / "day=1" / ("é" * (length // 2 - 4) + "x" * (length % 2) + ".parquet")
        if length == 182:
            bs.write_table(ROWS, place, policy=policy)
            assert bs.read_table(place, policy=policy).num_rows == 60
            continue
        before = sorted(table.file.parent.iterdir())
        with pytest.raises(bs.UsageError, match="too long"):
            bs.SealedWriter(place, ROWS.schema, policy=policy)
        assert sorted(table.file.parent.iterdir()) == before


def test_what_changes_a_file_signs_it_again(table: Table) -> None:
    policy = table.policy(table.author)
    for way in (
        lambda: bs.attach_filters(table.file, {"n": True}, decryption=policy),
        lambda: bs.rekey(table.file, policy=policy),
        lambda: bs.write_table(ROWS, table.file, policy=policy),
        lambda: bs.rotation.rotate(table.root, bs.rotation.Rekey(policy)),
        lambda: bs.open_table(table.root, policy=policy).erase("n = 0"),
    ):
        old = table.signature
        way()
        assert table.signature != old
    assert bs.read_table(table.root, policy=table.policy()).num_rows == 59
    ring = bs.Keyring(table.home / "keys.json")
    ring.rotate("footer")
    table = replace(table, kms=Counted(ring))
    old = table.signature
    policy = table.policy(table.author, signed=policy.plaintext_footer)
    assert bs.rewrap(table.file, policy=policy).keys
    assert table.signature != old
    bs.write_dataset(ROWS.slice(0, 7), table.root / "day=1", policy=policy, mode="append")
    assert bs.read_table(table.root, policy=table.policy()).num_rows == 66
    bs.open_table(table.root, policy=policy).compact()
    (file,) = table.file.parent.glob("*.parquet")
    assert digest(file)[:32] in table.signature.name
    assert bs.read_table(table.root, policy=table.policy()).num_rows == 66


def test_reports_and_journals_name_the_operator(table: Table) -> None:
    """Whoever changes a file answers for it: his name takes the author's place everywhere."""
    ring, journal = bs.Keyring(table.home / "keys.json"), table.home / "journal.jsonl"
    signed = table.policy().plaintext_footer
    both = {"author": table.author.key.line, "operator": table.other.key.line}

    def policy() -> TablePolicy:
        """As of a new process, which knows the keyring's new version."""
        ring.rotate("footer")
        table.kms = Counted(bs.Keyring(ring.path))
        return table.policy(table.other, signed=signed, signers=both)

    def reader() -> bs.SealedFile:
        return bs.open_file(next(table.file.parent.glob("*.parquet")), policy=policy())

    with reader() as file:
        assert file.verify().signed_by == "author"
    assert bs.rewrap(table.file, policy=policy(), dry_run=True).signed_by is None
    ways: list[Callable[[], Any]] = [
        lambda: bs.rewrap(table.file, policy=policy()),
        lambda: bs.attach_filters(table.file, {"n": True}, decryption=policy()),
        lambda: bs.rekey(table.file, policy=policy()),
        lambda: bs.rotation.rotate(table.root, bs.rotation.Rewrap(policy()), journal=journal).files[0],
        lambda: bs.open_table(table.root, policy=policy()).erase("n = 0").files[0],
    ]
    for way in ways:
        assert way().signed_by == "operator"
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    assert [line["signed_by"] for line in lines if line["event"] == "done"] == ["operator"]
    bs.write_dataset(ROWS.slice(0, 7), table.root / "day=1", policy=policy(), mode="append")
    (made,) = bs.open_table(table.root, policy=policy()).compact().files
    assert made["signed_by"] == "operator"
    with reader() as file:
        assert file.verify().signed_by == "operator"


@pytest.mark.parametrize("way", ["unsealed", "replaced", "erased"])
def test_a_signature_goes_with_its_file(table: Table, way: str) -> None:
    policy = table.policy(table.author)
    match way:
        case "unsealed":
            assert bs.rotation.rotate(table.root, bs.rotation.Unseal(policy, in_place=True)).ok
        case "replaced":
            bs.write_table(ROWS, table.file)
        case "erased":
            assert bs.open_table(table.root, policy=policy).erase("n >= 0").ok
    assert [path.name for path in table.file.parent.iterdir()] == ([] if way == "erased" else [table.file.name])


def test_files_that_are_there_are_signed_by_who_has_looked_into_them(table: Table) -> None:
    policy = table.policy(table.author)
    assert bs.rotation.rotate(table.root, Sign(policy)).counts == {"nothing to do": 1}
    copy(table, "forged")
    with pytest.raises(bs.PolicyError, match="no key to sign"):
        bs.rotation.rotate(table.root, Sign(table.policy()))
    assert bs.rotation.plan(table.root, Sign(policy)).files[0].action == "sign"
    data = bytearray(table.file.read_bytes())
    data[100] ^= 1
    table.file.write_bytes(data)
    assert not bs.rotation.rotate(table.root, Sign(policy), restart=True).ok
    data[100] ^= 1
    table.file.write_bytes(data)
    (done,) = bs.rotation.rotate(table.root, Sign(policy), restart=True).files
    assert (done.status, done.signed_by) == ("signed", "author")
    (done,) = bs.rotation.rotate(table.root, bs.rotation.Rekey(policy)).files
    assert (done.status, done.signed_by) == ("rekeyed", "author")
    assert bs.read_table(table.root, policy=table.policy()).num_rows == 60


def test_an_orc_file_is_refused(table: Table) -> None:
    """Nobody signs one: nothing ties its rows to its tail."""
    from pyarrow import orc

    table.signature.unlink()
    table.file.unlink()
    orc.write_table(ROWS, table.root / "day=1/a.orc")
    policy, before = table.policy(table.author), table.kms.asked
    with pytest.raises(bs.PolicyError, match="ORC"):
        bs.read_table(table.root / "day=1/a.orc", policy=policy)
    for job in (bs.rotation.Rekey(policy), bs.rotation.Repair(policy), Sign(policy)):
        (planned,) = bs.rotation.plan(table.root, job).files
        assert (planned.action, "nothing ties" in (planned.why or "")) == ("fail", True)
    assert [one.rule.id for one in audit(table.root, policy=policy).findings if "BS3" < one.rule.id < "BS4"] == [
        "BS317"
    ]
    assert table.kms.asked == before


def test_a_signature_whose_file_others_removed_goes_with_the_next_run(table: Table) -> None:
    """As a Delta table's own VACUUM leaves it."""
    policy = table.policy(table.author)
    bs.write_dataset(ROWS, table.file.parent, policy=policy, mode="append")
    (old,) = table.file.parent.glob("_SIGNATURE_a.*")
    table.file.unlink()
    os.utime(old, (0, 0))  # a young one's file may be about to come
    assert [one.rule.id for one in audit(table.root, policy=table.policy()).findings] == ["BS320"]
    assert bs.rotation.rotate(table.root, Sign(policy)).counts == {"nothing to do": 1}
    assert audit(table.root, policy=table.policy()).findings == []
    assert bs.read_table(table.root, policy=table.policy()).num_rows == 60


def test_an_index_of_a_signed_table_is_signed(table: Table) -> None:
    policy = table.policy(table.author, **INDEXED)
    with pytest.raises(bs.PolicyError, match="no key to sign with"):
        bs.open_table(table.root, policy=table.policy(**INDEXED)).index("ssn").build()
    bs.open_table(table.root, policy=policy).index("ssn").build()
    reader = bs.open_table(table.root, policy=table.policy(**INDEXED), use_index="require")
    assert reader.read(where="ssn = '005-45-6789'").num_rows == 1
    ring = bs.Keyring(table.home / "keys.json")
    ring.rotate("pii")
    table = replace(table, kms=Counted(ring))
    policy = table.policy(table.author, **INDEXED)
    done = bs.rotation.rotate(table.root, bs.rotation.Rewrap(policy))
    assert {str(one.status) for one in done.files} <= {"rewrapped", "nothing to do"}, done.files
    assert bs.open_table(table.root, policy=policy).index("ssn").update().covered == 1
    reader = bs.open_table(table.root, policy=table.policy(**INDEXED), use_index="require")
    assert reader.read(where="ssn = '005-45-6789'").num_rows == 1
    bs.open_table(table.root, policy=policy).index("ssn").drop()
    assert not (table.root / "_bloomseal_index").exists()


MUTANTS = ("file", "tail", "envelope", "payload", "signature", "cut", "longer", "name", "exchanged")


def mutate(table: Table, kind: str, chance: random.Random) -> None:
    """Alter what lies in the table's folder."""
    file, beside = table.file, table.signature
    data, said = bytearray(file.read_bytes()), bytearray(beside.read_bytes())
    match kind:
        case "file":
            tail = read_tail(Source.memory(bytes(data)))
            data[chance.randrange(tail.offset, len(data))] ^= 1 << chance.randrange(8)
        case "tail":
            data[-chance.randrange(1, 60)] ^= 1 << chance.randrange(8)
        case "envelope":
            said[chance.randrange(len(said))] ^= 1 << chance.randrange(8)
        case "payload":
            at = said.index(b'"payload":"') + 11
            said[at + chance.randrange(300)] = chance.choice(b"ABCDefgh0123+/")
        case "signature":
            at = said.index(b'"sig":"') + 7
            said[at + chance.randrange(86)] = chance.choice(b"ABCDefgh0123+/")
        case "cut":
            del data[len(data) - chance.randrange(1, len(data)) :]
        case "longer":
            at = chance.randrange(4, len(data))
            data[at:at] = chance.randbytes(chance.randrange(1, 40))
        case "name":
            beside = beside.rename(beside.with_name(beside.name.replace("_a.", f"_{chance.randrange(99)}.")))
        case "exchanged":
            place = chance.choice(("others", "forged"))
            data = bytearray((table.home / place / NAME).read_bytes())
            if chance.random() < 0.5:
                beside.unlink()
                beside = beside.with_name(f"_SIGNATURE_a.parquet_{digest(table.home / place / NAME)[:32]}.json")
    file.write_bytes(data)
    beside.write_bytes(said)


def play(table: Table, seeds: range) -> None:
    before = table.kms.asked
    policy, whole = table.policy(), {path.name: path.read_bytes() for path in table.file.parent.iterdir()}
    for seed in seeds:
        chance = random.Random(seed)
        kind = MUTANTS[seed % len(MUTANTS)]
        mutate(table, kind, chance)
        now = {path.name: path.read_bytes() for path in table.file.parent.iterdir()}
        for way in (bs.read_table, bs.open_file):
            try:
                way(table.file, policy=policy)
            except (bs.PolicyError, bs.FormatError, bs.UnsupportedError):
                assert now != whole
            else:
                assert now == whole, (seed, kind)
        shutil.rmtree(table.file.parent)
        table.file.parent.mkdir()
        for name, data in whole.items():
            (table.file.parent / name).write_bytes(data)
        if now != whole:
            assert table.kms.asked == before, (seed, kind)
        before = table.kms.asked


def test_mutants_are_refused(table: Table) -> None:
    play(table, range(250))


@pytest.mark.torture
@pytest.mark.timeout(3600)
def test_ten_thousand_mutants_are_refused(table: Table) -> None:
    play(table, range(250, 5_250))
