"""Who runs the KMS: sees each request, answers as he likes. Has no file, and so sees no data; a false answer makes none
of ours false.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

import bloomseal as bs
from bloomseal.audit import may_destroy
from bloomseal.keytools import KmsAccessError, Problem
from bloomseal.rotation import Rekey, Rewrap, rotate
from games.doors import READING, REFUSED, play
from games.world import FILTERS, TRUTH, World, rows, world


class Operator:
    """Holds the master keys and every request; `lie` answers in the place of an honest unwrapping."""

    def __init__(self, ring: bs.Keyring, lie: Callable[[bytes], object] | None = None) -> None:
        self._ring, self.lie = ring, lie
        self.seen: list[bytes] = []

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        self.seen += [bytes(key_bytes), master_key_identifier.encode()]
        return self._ring.wrap_key(key_bytes, master_key_identifier)

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        self.seen += [wrapped_key.encode(), master_key_identifier.encode()]
        honest = self._ring.unwrap_key(wrapped_key, master_key_identifier)
        return honest if self.lie is None else self.lie(honest)  # type: ignore[return-value]


def _refuse(_: bytes) -> object:
    raise KmsAccessError.because(Problem.DENIED, "footer")


def _down(_: bytes) -> object:
    raise ConnectionError("unreachable")


LIES: dict[str, Callable[[bytes], object]] = {
    "another key": lambda key: os.urandom(len(key)),
    "zeros": lambda key: bytes(len(key)),
    "a longer key": lambda key: key + key,
    "an empty key": lambda _: b"",
    "no bytes": lambda _: "0123456789012345",
    "nothing": lambda _: None,
    "refused": _refuse,
    "down": _down,
}


class LyingWorld(World):
    """The honest side's policy over a KMS that lies."""

    operator: Operator

    def policy(self, kms: object = None, root: Path | None = None, **settings: object) -> object:
        tools = bs.KeyTools(kms or self.operator, attempts=1)  # type: ignore[arg-type]
        return super().policy(tools, root, **settings)

    def copy(self, to: Path) -> LyingWorld:
        return lying(super().copy(to), self.operator)


def lying(here: World, operator: Operator) -> LyingWorld:
    made = LyingWorld(here.home, here.signed, here.internal, here.settings)
    made.operator = operator
    return made


@pytest.mark.parametrize("lie", LIES)
def test_false_answers_make_no_answer_of_ours_false(tmp_path: Path, lie: str) -> None:
    here = world(tmp_path / "w", signed=len(lie) % 2 == 0)
    before = {path: path.read_bytes() for path in here.root.rglob("*.parquet")}
    told = play(lying(here, Operator(here.ring, LIES[lie])), tmp_path, without=("audit",))
    assert {told[door] for door in READING if door in told} == {REFUSED}, told
    assert {path: path.read_bytes() for path in before} == before


class Turncoat(Operator):
    """Honest when it unwraps, and wraps zeros in the place of each key that it is sent."""

    lies_about: Collection[str] = ("footer", "pii", "health")

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        wrapped = bytes(len(key_bytes)) if master_key_identifier in self.lies_about else key_bytes
        return super().wrap_key(wrapped, master_key_identifier)


def test_wrappings_that_are_checked_lose_no_file(tmp_path: Path) -> None:
    """`Rewrap(check_keys=True)` has every new wrapping opened again before a file refers to it; also those of columns,
    which nobody needs to open the new footer.
    """
    here = world(tmp_path / "w")
    here.ring.rotate("pii")
    turncoat = Turncoat(here.ring)
    turncoat.lies_about = {"pii"}
    policy = here.policy(bs.KeyTools(turncoat, attempts=1, cache_lifetime=0))
    report = rotate(here.root, Rewrap(policy, check_keys=True), journal=tmp_path / "journal")
    assert not report.ok
    assert all(_opens(here, path) for path in here.root.rglob("*.parquet"))


def _opens(here: World, path: Path) -> bool:
    tenant = path.parent.name.removeprefix("tenant=")
    try:
        found = bs.read_table(path, columns=["ssn", "illness", "n"], decryption=here.policy())
    except bs.BloomsealError:
        return False
    return bool(found.equals(rows(tenant)))


def test_the_requests_hold_no_data_and_no_data_key(tmp_path: Path) -> None:
    """Of a write, a read and a rotation: names of master keys, and key encryption keys; data keys are wrapped under
    those here.
    """
    here = world(tmp_path / "w")
    operator = Operator(here.ring)
    policy = here.policy(operator)
    path = here.root / "tenant=a/part-0.parquet"
    bs.write_table(rows("a"), path, encryption=policy, bloom_filters=FILTERS)
    bs.probe(path, "ssn", TRUTH["ssn"], decryption=here.policy(operator))
    assert bs.read_table(path, columns=["ssn", "illness", "n"], decryption=here.policy(operator)).equals(rows("a"))
    bs.rekey(path, decryption=here.policy(operator), encryption=here.policy(operator))
    data_keys = set()
    with bs.open_file(path, decryption=here.policy()) as file:
        for column in range(3):
            cipher = file.walk.cipher(file.walk.chunk(0, column))
            assert cipher is not None
            data_keys.add(cipher.key.reveal())
    assert len(data_keys) == 3
    seen = b"\n".join(operator.seen)
    for secret in (*data_keys, *(value.encode() for name in ("ssn", "illness") for value in TRUTH[name].to_pylist())):
        assert secret not in seen
    assert str(path).encode() not in seen


def test_a_kms_that_does_not_answer_lets_no_master_key_be_destroyed(tmp_path: Path) -> None:
    here = world(tmp_path / "w")
    for lie in (None, _down, _refuse):
        answer = may_destroy("pii", "1", here.root, keys=bs.KeyTools(Operator(here.ring, lie), attempts=1)).answer
        assert answer in ("no", "unknown"), answer


# Honest limits


def test_limit_with_the_files_he_reads_everything(tmp_path: Path) -> None:
    here = world(tmp_path / "w")
    found = bs.read_table(here.root, columns=["ssn"], decryption=here.policy(Operator(here.ring)))
    assert found.equals(TRUTH.select(["ssn"]))


def test_a_file_that_is_sealed_anew_is_not_lost_by_wrong_wrappings(tmp_path: Path) -> None:
    """`rekey` and `seal` have each new wrapping opened again before the old file goes."""
    here = world(tmp_path / "w")
    turncoat = Turncoat(here.ring)
    turncoat.lies_about = {"pii"}
    policy = here.policy(bs.KeyTools(turncoat, attempts=1))
    report = rotate(here.root, Rekey(policy, policy), journal=tmp_path / "journal")
    assert not report.ok
    assert all(_opens(here, path) for path in here.root.rglob("*.parquet"))


def _write_table(here: World, policy: object) -> None:
    bs.write_table(rows("a"), here.root / "tenant=a/part-0.parquet", encryption=policy)  # type: ignore[arg-type]


def _write_elsewhere(here: World, policy: object) -> None:
    """Where files are uploaded, as to an object store."""
    path, storage = "tenant=a/part-0.parquet", SubTreeFileSystem(str(here.root), LocalFileSystem())
    policy = replace(policy, root=None, aad_prefix=f"people/{path}/")  # type: ignore[type-var]
    bs.write_table(rows("a"), path, encryption=policy, filesystem=storage)  # type: ignore[arg-type]


def _writer_begins_first(here: World, policy: object) -> None:
    """When it begins there is no file; when it ends there is."""
    path = here.root / "tenant=a/part-0.parquet"
    aside = path.rename(path.with_name("aside"))
    with bs.SealedWriter(path, rows("a").schema, encryption=policy) as writer:  # type: ignore[arg-type]
        writer.write_table(rows("a"))
        aside.rename(path)


def _write_dataset(here: World, policy: object) -> None:
    table = pa.concat_tables(rows(name).append_column("tenant", [[name] * 12]) for name in ("a", "b"))
    bs.write_dataset(table, here.root, encryption=policy, partition_by=["tenant"], mode="overwrite")  # type: ignore[arg-type]


@pytest.mark.parametrize("write", [_write_table, _write_elsewhere, _writer_begins_first, _write_dataset])
def test_what_replaces_files_is_not_lost_by_wrong_wrappings(
    tmp_path: Path, write: Callable[[World, object], None]
) -> None:
    here = world(tmp_path / "w")
    before = {path: path.read_bytes() for path in here.root.rglob("*.parquet")}
    with pytest.raises(bs.KeyAccessError, match="it wrapped another key"):
        write(here, here.policy(bs.KeyTools(Turncoat(here.ring), attempts=1)))
    assert {path: path.read_bytes() for path in here.root.rglob("*") if path.is_file()} == before
    # The same by an honest one.
    write(here, here.policy())
    assert bs.read_table(here.root, columns=["ssn"], decryption=here.policy()).num_rows == TRUTH.num_rows


def test_limit_what_he_wraps_wrongly_is_lost(tmp_path: Path) -> None:
    """He could destroy the master keys as well; and who writes what was nowhere before may have no right to unwrap.
    `check_keys` asks all the same.
    """
    here = world(tmp_path / "w")
    policy = here.policy(bs.KeyTools(Turncoat(here.ring), attempts=1))
    path = here.root / "tenant=a/part-1.parquet"
    bs.write_table(rows("a"), path, encryption=policy, bloom_filters=FILTERS)
    assert not _opens(here, path)
    path.unlink()
    with pytest.raises(bs.KeyAccessError, match="it wrapped another key"):
        bs.write_table(rows("a"), path, encryption=policy, bloom_filters=FILTERS, check_keys=True)
    assert not path.exists()


def test_limit_under_single_wrapping_he_sees_data_keys(tmp_path: Path) -> None:
    here = world(tmp_path / "w", double_wrapping=False)
    operator = Operator(here.ring)
    path = here.root / "tenant=a/part-0.parquet"
    bs.write_table(rows("a"), path, encryption=here.policy(operator))
    with bs.open_file(path, decryption=here.policy()) as file:
        cipher = file.walk.cipher(file.walk.chunk(0, 0))
        assert cipher is not None
        assert cipher.key.reveal() in operator.seen
