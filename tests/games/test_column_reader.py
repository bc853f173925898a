"""Who may use one column's master key (`health`, of `illness`), and writes to the storage: every other column stays
closed and right.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import bloomseal as bs
from bloomseal.core.encryption import ModuleType
from bloomseal.core.parquet.footer import peek
from bloomseal.core.storage.source import Source
from bloomseal.rotation import Rewrap, rotate
from games.doors import READING, REFUSED, play
from games.world import FILTERS, TRUTH, KeyHolder, Rights, World, forged_rows, rows, world
from support.footers import change_algorithm


def role(here: World, tmp_path: Path, *more: str) -> KeyHolder:
    return KeyHolder(here.root, tmp_path / "own", Rights(here.ring, {"health", *more}))


def forged_under_the_columns_key(me: KeyHolder) -> None:
    spec = bs.EncryptionSpec("health", keys=me.kms, aad_prefix=me.prefix(), store_aad_prefix=False)
    bs.write_table(forged_rows(), me.file(), encryption=spec, bloom_filters=FILTERS)


def forged_with_every_column_under_it(me: KeyHolder) -> None:
    keys = {"ssn": "health", "illness": "health", "n": "health"}
    spec = bs.EncryptionSpec("health", keys, keys=me.kms, aad_prefix=me.prefix(), store_aad_prefix=False)
    bs.write_table(forged_rows(), me.file(), encryption=spec, bloom_filters=FILTERS)


def forged_with_a_signed_footer(me: KeyHolder) -> None:
    spec = bs.EncryptionSpec(
        "health", {"illness": "health"}, keys=me.kms, aad_prefix=me.prefix(), store_aad_prefix=False,
        plaintext_footer=True,
    )  # fmt: skip
    bs.write_table(forged_rows(), me.file(), encryption=spec, bloom_filters=FILTERS)


def footer_key_metadata_that_leads_to_his_key(me: KeyHolder) -> None:
    """A data key of his own, wrapped under `health`, named where the footer's is; the footer sealed under it."""
    forged_under_the_columns_key(me)
    forged = me.file().read_bytes()
    material = json.loads(peek(Source.memory(forged)).key_metadata)
    material["masterKeyID"] = "footer"
    me.file().write_bytes(change_algorithm(forged, lambda _: None, lambda _: json.dumps(material).encode()))


@pytest.mark.parametrize(
    "attack",
    [
        forged_under_the_columns_key, forged_with_every_column_under_it, forged_with_a_signed_footer,
        footer_key_metadata_that_leads_to_his_key,
    ],
    ids=lambda attack: attack.__name__,
)  # fmt: skip
def test_one_columns_master_key_forges_no_file(tmp_path: Path, attack: Callable[[KeyHolder], None]) -> None:
    here = world(tmp_path / "w", signed=len(attack.__name__) % 2 == 0)
    attack(role(here, tmp_path))
    told = play(here, tmp_path)
    assert {told[door] for door in READING} == {REFUSED}, told


def test_a_whole_reader_of_other_columns_forges_no_column_that_he_cannot_read(tmp_path: Path) -> None:
    """He may use `footer` and `health`, as readers do, and so writes all but `ssn`."""
    here = world(tmp_path / "w")
    me = role(here, tmp_path, "footer")
    for ssn in ("footer", "health"):
        keys = {"ssn": ssn, "illness": "health", "n": "footer"}
        spec = bs.EncryptionSpec("footer", keys, keys=me.kms, aad_prefix=me.prefix(), store_aad_prefix=False)
        bs.write_table(forged_rows(), me.file(), encryption=spec, bloom_filters=FILTERS)
        (tmp_path / ssn).mkdir()
        told = play(here, tmp_path / ssn)
        assert {told[door] for door in READING} == {REFUSED}, told


@pytest.mark.parametrize("more", [(), ("footer",)], ids=["the column's key", "the footer's too"])
def test_other_columns_are_not_read(tmp_path: Path, more: tuple[str, ...]) -> None:
    here = world(tmp_path / "w", signed=True)
    me = role(here, tmp_path, *more)
    with bs.open_file(me.file(), decryption=me.decryption()) as file:
        assert file.read(["illness"]).equals(rows("a").select(["illness"]))
        for use in (
            lambda: file.read(["ssn"]),
            lambda: file.probe("ssn", TRUTH["ssn"]),
            lambda: file.filter(0, "ssn"),
            lambda: file.read(["illness"], where=[("ssn", "==", TRUTH["ssn"][0])]),
        ):
            with pytest.raises(bs.KeyAccessError):
                use()
    for use in (
        lambda: bs.unseal_file(me.file(), me.own / "clear", decryption=me.decryption()),
        lambda: bs.rekey(me.file(), decryption=me.decryption(), encryption=bs.EncryptionSpec(b"k" * 16)),
    ):
        with pytest.raises((bs.KeyAccessError, bs.PolicyError)):
            use()
    assert not (me.own / "clear").exists()


def test_filters_of_other_columns_say_nothing_without_their_key(tmp_path: Path) -> None:
    """The bits of the sealed filter of `ssn` opened under his own data key, in every place and kind: nothing
    authenticates.
    """
    here = world(tmp_path / "w", signed=True)
    me = role(here, tmp_path)
    with bs.open_file(me.file(), decryption=here.policy()) as honest:
        found = honest.walk.filter(honest.walk.chunk(0, 0))
        assert found is not None
        framed = me.file().read_bytes()[found.offset : found.offset + found.length]
    with bs.open_file(me.file(), decryption=me.decryption()) as file:
        walk = file.walk
        cipher = walk.cipher(walk.chunk(0, 1))
        assert cipher is not None
        for column in (0, 1):
            chunk = walk.chunk(0, column)
            for kind in ModuleType:
                with pytest.raises(bs.BloomsealError):
                    cipher.open(framed, kind, walk.aad(chunk, kind, 0 if kind.is_page else -1))


def test_a_wrapped_key_that_he_plants_is_not_wrapped_for_him(tmp_path: Path) -> None:
    """Material beside the file: `ssn`'s wrapped key planted where his column's is, to have it wrapped under
    `health`.
    """
    here = world(tmp_path / "w", internal=False)
    me = role(here, tmp_path)
    path = me.file().with_name(f"_KEY_MATERIAL_FOR_{me.file().name}.json")
    entries = json.loads(path.read_text())
    by_master = {json.loads(text)["masterKeyID"]: name for name, text in entries.items()}
    path.write_text(
        json.dumps(entries | {by_master["health"]: entries[by_master["pii"]], "columnKey9": entries[by_master["pii"]]})
    )
    here.ring.rotate("health")
    rotate(here.root, Rewrap(here.policy()), journal=tmp_path / "journal")
    after = {name: json.loads(text) for name, text in json.loads(path.read_text()).items()}
    stolen = json.loads(entries[by_master["pii"]])
    for name in (by_master["health"], "columnKey9"):
        assert after[name]["masterKeyID"] == "pii"
        assert after[name]["wrappedDEK"] == stolen["wrappedDEK"]
    told = play(here, tmp_path)
    assert told["read"] == REFUSED


# Honest limits


def test_limit_a_columns_holder_writes_that_column(tmp_path: Path) -> None:
    """Values of his own in pages and filters of `illness`; in the others nothing has changed."""
    here = world(tmp_path / "w", signed=True)
    me = role(here, tmp_path)
    data = bytearray(me.file().read_bytes())
    with bs.open_file(me.file(), decryption=me.decryption()) as file:
        walk = file.walk
        chunk = walk.chunk(0, 1)
        cipher = walk.cipher(chunk)
        assert cipher is not None
        page = next(iter(walk.pages(chunk)))
        body = bytes(page.body()).replace(b"a00-illness", b"a99-illness")
        start = page.offset + page.length - len(page.stored)
        data[start : page.offset + page.length] = cipher.seal(body, page.kind, walk.aad(chunk, page.kind, page.ordinal))
        found = walk.filter(chunk)
        assert found is not None
        kind = ModuleType.BLOOM_FILTER_BITSET
        # One bit set: an empty filter is not believed.
        bits = cipher.seal(b"\1" + bytes(len(found.bitset) - 1), kind, walk.aad(chunk, kind))
        data[found.offset + found.length - len(bits) : found.offset + found.length] = bits
    me.file().write_bytes(data)
    policy = here.policy()
    assert bs.read_table(me.file(), columns=["illness"], decryption=policy)["illness"][0].as_py() == "a99-illness"
    assert bs.probe(me.file(), "illness", ["a01-illness"], decryption=policy)[0] == [bs.Verdict.ABSENT]
    assert bs.read_table(me.file(), columns=["ssn", "n"], decryption=policy).equals(rows("a").select(["ssn", "n"]))
    values = bs.probe(me.file(), "ssn", rows("a")["ssn"], decryption=policy)
    assert all(any(group[i] is not bs.Verdict.ABSENT for group in values) for i in range(12))
