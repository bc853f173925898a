"""Who may edit the policy file, and the table's folder: says what is sealed from now on, and by whom. Holds no key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import bloomseal as bs
from games.doors import READING, REFUSED, RIGHT, play
from games.world import COLUMNS, StorageWriter, World, forged_rows, rows, world

WEAKER: dict[str, dict[str, Any]] = {
    "no columns": {"columns": {}},
    "not complete": {"complete": False},
    "no columns, not complete": {"columns": {"n": {"key": "footer"}}, "complete": False},
    "keys exchanged": {"columns": {"ssn": {"key": "health"}, "illness": {"key": "pii"}}},
    "all under one key": {"columns": {"ssn": {"key": "footer"}, "illness": {"key": "footer"}}},
    "older keys allowed": {"previous_footer_keys": ["pii", "health"]},
    "pages without authentication": {"allow_ctr": True},
    "another prefix": {"aad_prefix": "{table}/{file}/"},
    "an older prefix": {"previous_aad_prefixes": ["{table}/{file}", "evil"]},
}


def weakened(here: World, name: str) -> World:
    return World(here.home, here.signed, here.internal, here.settings | WEAKER[name])


@pytest.mark.parametrize("name", WEAKER)
def test_no_policy_makes_answers_about_sealed_files_false(tmp_path: Path, name: str) -> None:
    """Honest files under his policy: right, or refused."""
    here = weakened(world(tmp_path / "w", signed=len(name) % 2 == 0), name)
    told = play(here, tmp_path, without=("attach", "rekey", "rewrap", "seal", "unseal"))
    assert {told[door] for door in READING} <= {RIGHT, REFUSED}, told


@pytest.mark.parametrize("name", WEAKER)
def test_no_policy_takes_plaintext_files_for_sealed_ones(tmp_path: Path, name: str) -> None:
    here = weakened(world(tmp_path / "w"), name)
    bs.write_table(forged_rows(), StorageWriter(here.root, tmp_path / "own").file())
    with pytest.raises(bs.PolicyError, match="plaintext file"):
        bs.read_table(here.root, decryption=here.policy())


@pytest.mark.parametrize(
    "line",
    [
        'kms = "os:system"', 'kms = "my_module.MyKms"', 'kms = "file:///attacker.py"', 'kms_client = "my_module.MyKms"',
        'kms = "vault://attacker.example/transit?token=s.x"', 'include = "/attacker.toml"',
    ],
)  # fmt: skip
def test_a_policy_names_no_class_and_holds_no_secret(tmp_path: Path, line: str) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(f'version = 1\n{line}\n[tables.people]\nfooter_key = "footer"\n')
    with pytest.raises(bs.BloomsealError):
        bs.write_table(rows("a"), tmp_path / "t.parquet", encryption=bs.Policy.load(path).for_table("people"))
    assert not (tmp_path / "t.parquet").exists()


# Honest limits


def test_limit_the_policys_writer_says_what_is_sealed_and_by_whom(tmp_path: Path) -> None:
    """Columns in clear, or all of it under master keys of his own, in new files; and then his rows are read, too."""
    here = world(tmp_path / "w")
    me = StorageWriter(here.root, tmp_path / "own")
    path = here.root / "tenant=c" / "part-0.parquet"
    path.parent.mkdir()
    bs.write_table(rows("a"), path, encryption=weakened(here, "no columns, not complete").policy())
    with bs.open_file(path, decryption=bs.DecryptionSpec(here.ring, aad_prefix=me.prefix("c"))) as file:
        assert not file.walk.chunk(0, 0).encrypted
    theirs = me.own_keyring()
    policy = here.policy(theirs)
    bs.write_table(rows("a"), path, encryption=policy)
    assert bs.read_table(path, columns=list(COLUMNS), decryption=policy).equals(rows("a"))
    bs.write_table(forged_rows(), path, encryption=policy)
    assert bs.read_table(path, columns=["n"], decryption=policy)["n"].to_pylist() == [666]
    # What was sealed before is not his to read.
    with pytest.raises(bs.BloomsealError):
        bs.read_table(me.file("a"), decryption=policy)
