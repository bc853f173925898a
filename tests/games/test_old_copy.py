"""Somebody with an old copy: of files, footers, filters, key material, the keyring, a data key; what can be put back,
and what dies.
"""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

import pytest

import bloomseal as bs
from bloomseal.core.encryption import SecretKey
from bloomseal.core.parquet.footer import peek
from bloomseal.core.storage.source import Source
from bloomseal.rotation import Rekey, Rewrap, rotate
from games.doors import READING, REFUSED, RIGHT, play
from games.world import COLUMNS, FILTERS, StorageWriter, World, rows, world


class OldCopy(StorageWriter):
    """Writes to the storage, and has kept a copy of all that was there."""

    def __init__(self, here: World, own: Path) -> None:
        super().__init__(here.root, own)
        self.copy = own / "old"
        shutil.copytree(here.root, self.copy)

    def old(self, tenant: str = "a") -> Path:
        return self.copy / self.file(tenant).relative_to(self.root)

    def put_back(self, tenant: str = "a") -> None:
        shutil.copy(self.old(tenant), self.file(tenant))


def keys_of(path: Path, here: World) -> dict[str | None, SecretKey]:
    """The data keys of a file, as somebody who was allowed to has kept them."""
    with bs.open_file(path, decryption=here.policy()) as file:
        walk = file.walk
        found: dict[str | None, SecretKey] = {None: walk.keys.footer().key}
        for leaf in walk.footer.schema.leaves:
            cipher = walk.cipher(walk.chunk(0, leaf.index))
            assert cipher is not None
            found[leaf.name] = cipher.key
    return found


def test_older_modules_do_not_open_in_a_file_that_was_sealed_anew(tmp_path: Path) -> None:
    """Each part of the old file in the place of the new one's: `rekey` has made fresh keys and a fresh identity."""
    here = world(tmp_path / "w")
    me = OldCopy(here, tmp_path / "own")
    bs.rekey(me.file(), decryption=here.policy(), encryption=here.policy())
    old, new = me.old().read_bytes(), me.file().read_bytes()
    assert len(old) == len(new)
    footer = peek(Source.memory(new)).offset
    cuts = [4, footer // 3, footer // 2, footer, len(new)]
    for number, (start, end) in enumerate(pairwise(cuts)):
        me.file().write_bytes(new[:start] + old[start:end] + new[end:])
        (tmp_path / str(number)).mkdir()
        told = play(here, tmp_path / str(number))
        assert told["verify"] == REFUSED, (start, end, told)


@pytest.mark.parametrize("internal", [True, False], ids=["inside", "beside"])
def test_an_old_copy_dies_with_its_master_keys(tmp_path: Path, internal: bool) -> None:
    here = world(tmp_path / "w", internal=internal)
    me = OldCopy(here, tmp_path / "own")
    for name in ("footer", "pii", "health"):
        here.ring.rotate(name)
    assert rotate(here.root, Rewrap(here.policy()), journal=tmp_path / "journal").ok
    for name in ("footer", "pii", "health"):
        here.ring.destroy(name, 1)
    assert play(here, tmp_path)["read"] == RIGHT
    for path in me.copy.rglob("*"):
        if path.is_file():
            shutil.copy(path, me.root / path.relative_to(me.copy))
    told = play(here, tmp_path)
    assert {told[door] for door in READING} == {REFUSED}, told


def test_an_old_version_is_refused_where_the_prefix_says_which_is_wanted(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    key = b"footer-key-bytes"
    for version in (1, 2):
        spec = bs.EncryptionSpec(key, aad_prefix=f"people/t/v{version}/", store_aad_prefix=False)
        bs.write_table(rows("a"), path, encryption=spec)
        if version == 1:
            old = path.read_bytes()
    path.write_bytes(old)
    with pytest.raises(bs.IntegrityError):
        bs.open_file(path, decryption=bs.DecryptionSpec(bs.ExplicitKeys(key), aad_prefix="people/t/v2/"))


def test_data_keys_that_somebody_kept_open_nothing_after_rekey(tmp_path: Path) -> None:
    here = world(tmp_path / "w")
    me = OldCopy(here, tmp_path / "own")
    kept = keys_of(me.file(), here)
    spec = bs.DecryptionSpec(
        bs.ExplicitKeys(kept[None], {name: kept[name] for name in ("ssn", "illness")}), aad_prefix=me.prefix()
    )
    assert bs.read_table(me.file(), columns=list(COLUMNS), decryption=spec).equals(rows("a"))
    rotate(here.root, Rekey(here.policy(), here.policy()), journal=tmp_path / "journal")
    with pytest.raises(bs.IntegrityError):
        bs.open_file(me.file(), decryption=spec)


def test_an_older_keyring_is_refused_by_whoever_is_running(tmp_path: Path) -> None:
    here = world(tmp_path / "w")
    ring = here.ring
    old = ring.path.read_bytes()
    ring.destroy("pii")
    ring.path.write_bytes(old)
    with pytest.raises(bs.KeyAccessError):
        ring.list()
    # Who starts afterwards can't know: docs/threat-model.md.
    (pii,) = (key for key in bs.Keyring(ring.path).list() if key.name == "pii")
    assert pii.versions[0].key is not None


def test_an_older_journal_leaves_no_file_undone(tmp_path: Path) -> None:
    """A journal put back says *done* of files that have changed since: their marks differ, and they are done again."""
    here = world(tmp_path / "w")
    journal = tmp_path / "journal.jsonl"
    rotate(here.root, Rewrap(here.policy()), journal=journal)
    old = journal.read_bytes()
    here.ring.rotate("pii")
    rotate(here.root, Rewrap(here.policy()), journal=journal)
    journal.write_bytes(old)
    here.ring.rotate("pii")
    rotate(here.root, Rewrap(here.policy()), journal=journal)
    here.ring.destroy("pii", 1)
    here.ring.destroy("pii", 2)
    assert play(here, tmp_path)["read"] == RIGHT


# Honest limits


def test_limit_a_whole_older_file_opens_while_its_master_keys_live(tmp_path: Path) -> None:
    here = world(tmp_path / "w")
    me = OldCopy(here, tmp_path / "own")
    changed = rows("a").slice(0, 5)
    bs.write_table(changed, me.file(), encryption=here.policy(), bloom_filters=FILTERS)
    me.put_back()
    assert bs.read_table(me.file(), columns=list(COLUMNS), decryption=here.policy()).equals(rows("a"))
    assert bs.verify(me.file(), decryption=here.policy()).ok


def test_limit_older_footer_and_filters_open_after_attach_and_hide_nothing(tmp_path: Path) -> None:
    """`attach` touches no page, so the state before it can be put back: its filters hold the same values."""
    here = world(tmp_path / "w")
    me = OldCopy(here, tmp_path / "own")
    bs.attach_filters(me.file(), {"ssn": bs.FilterSpec(num_bytes=1024)}, decryption=here.policy())
    assert me.file().read_bytes() != me.old().read_bytes()
    me.put_back()
    assert set(play(here, tmp_path).values()) == {RIGHT}
