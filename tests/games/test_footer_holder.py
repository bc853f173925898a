"""Who may use the footer's master key alone, and writes to the storage: the table of contents is his, no other column's
values are.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bloomseal as bs
from bloomseal.audit import audit
from bloomseal.cli.main import main
from bloomseal.core.encryption import ModuleCipher
from bloomseal.core.parquet.footer import peek
from bloomseal.core.parquet.layout import Column, FileMeta, Group
from bloomseal.core.storage.source import Source
from bloomseal.core.thrift import Struct
from games.doors import READING, REFUSED, play
from games.world import COLUMNS, FILTERS, TRUTH, KeyHolder, Rights, World, forged_rows, rows, world
from support.footers import change_footer, change_groups, in_chunk, rename


def role(here: World, tmp_path: Path) -> KeyHolder:
    return KeyHolder(here.root, tmp_path / "own", Rights(here.ring, {"footer"}))


def resealed(me: KeyHolder, change: Callable[[Struct], object]) -> None:
    """The footer changed, and sealed or signed again."""
    data = me.file().read_bytes()
    cipher = ModuleCipher(me.key(peek(Source.memory(data)).key_metadata, None))
    me.file().write_bytes(change_footer(data, cipher, change, me.prefix().encode()))


def forged_under_the_footers_key(me: KeyHolder) -> None:
    spec = bs.EncryptionSpec("footer", keys=me.kms, aad_prefix=me.prefix(), store_aad_prefix=False)
    bs.write_table(forged_rows(), me.file(), encryption=spec, bloom_filters=FILTERS)


def forged_in_plaintext_columns(me: KeyHolder) -> None:
    spec = bs.EncryptionSpec(
        "footer", {"n": "footer"}, keys=me.kms, aad_prefix=me.prefix(), store_aad_prefix=False, plaintext_footer=True
    )
    bs.write_table(forged_rows(), me.file(), encryption=spec, bloom_filters=FILTERS)


def forged_look_alikes(me: KeyHolder) -> None:
    spec = bs.EncryptionSpec("footer", keys=me.kms, aad_prefix=me.prefix(), store_aad_prefix=False)
    table = forged_rows().rename_columns(["SSN", "Illness", "n"])
    bs.write_table(table, me.file(), encryption=spec, bloom_filters={"SSN": True})


def columns_change_names(me: KeyHolder) -> None:
    resealed(me, rename({"ssn": "illness", "illness": "ssn"}))


def _chunks(footer: Struct, group: int) -> list[bytes]:
    return Struct.parse(footer.elements(FileMeta.ROW_GROUPS)[group]).elements(Group.COLUMNS)


def row_groups_change_places(me: KeyHolder) -> None:
    resealed(me, change_groups(lambda groups: [groups[1], groups[0], *groups[2:]]))


def a_row_group_twice(me: KeyHolder) -> None:
    resealed(me, change_groups(lambda groups: [groups[0], *groups]))


def sealed_metadata_of_another_row_group(me: KeyHolder) -> None:
    def change(footer: Struct) -> None:
        sealed = Struct.parse(_chunks(footer, 1)[0]).binary(Column.SEALED_META)
        assert sealed
        in_chunk(0, 0, lambda chunk: chunk.set_binary(Column.SEALED_META, sealed))(footer)

    resealed(me, change)


def one_columns_chunk_in_anothers_place(me: KeyHolder) -> None:
    def change(footer: Struct) -> None:
        chunk = _chunks(footer, 0)[1]

        def groups(listed: list[bytes]) -> list[bytes]:
            group = Struct.parse(listed[0])
            group.set_list(Group.COLUMNS, [chunk, *group.elements(Group.COLUMNS)[1:]])
            return [group.to_bytes(), *listed[1:]]

        change_groups(groups)(footer)

    resealed(me, change)


def another_key_for_a_column(me: KeyHolder) -> None:
    """The column's key metadata says what the footer's does, so that his own key would open it."""
    footers = peek(Source.memory(me.file().read_bytes())).key_metadata

    def change(chunk: Struct) -> None:
        crypto = chunk.struct(Column.CRYPTO)
        assert crypto is not None
        inner = crypto.struct(2)
        assert inner is not None
        inner.set_binary(2, footers)
        crypto.set_struct(2, inner)
        chunk.set_struct(Column.CRYPTO, crypto)

    resealed(me, in_chunk(0, 0, change))


def page_indexes_of_another_row_group(me: KeyHolder) -> None:
    def change(footer: Struct) -> None:
        other = Struct.parse(_chunks(footer, 1)[0])

        def moved(chunk: Struct) -> None:
            for field in (Column.COLUMN_INDEX, Column.OFFSET_INDEX):
                chunk.set_i64(field, other.integer(field) or 0)
            for field in (Column.COLUMN_INDEX_LENGTH, Column.OFFSET_INDEX_LENGTH):
                chunk.set_i32(field, other.integer(field) or 0)

        in_chunk(0, 0, moved)(footer)

    resealed(me, change)


class _Both:
    """The footer's key by his right to it, the columns' keys by a keyring of his own."""

    def __init__(self, me: KeyHolder) -> None:
        self._own, self._true = me.own_keyring(), me.kms

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        kms = self._true if master_key_identifier == "footer" else self._own
        return kms.wrap_key(key_bytes, master_key_identifier)

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        kms = self._true if master_key_identifier == "footer" else self._own
        return kms.unwrap_key(wrapped_key, master_key_identifier)


def forged_under_a_key_of_his_own(me: KeyHolder, **options: Any) -> None:
    """The columns' key metadata names the right master keys; what it holds was wrapped by others of their names."""
    spec = bs.EncryptionSpec(
        "footer", {"ssn": "pii", "illness": "health"}, keys=bs.KeyTools(_Both(me), **options), aad_prefix=me.prefix(),
        store_aad_prefix=False, complete=True,
    )  # fmt: skip
    bs.write_table(forged_rows(), me.file(), encryption=spec, bloom_filters=FILTERS)


ATTACKS = [
    forged_under_a_key_of_his_own, forged_under_the_footers_key, forged_in_plaintext_columns, forged_look_alikes, columns_change_names,
    a_row_group_twice, sealed_metadata_of_another_row_group, one_columns_chunk_in_anothers_place,
    another_key_for_a_column, row_groups_change_places,
]  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_no_other_columns_values_are_forged(tmp_path: Path, attack: Callable[[KeyHolder], None]) -> None:
    here = world(tmp_path / "w", signed=len(attack.__name__) % 2 == 0)
    attack(role(here, tmp_path))
    told = play(here, tmp_path)
    assert {told[door] for door in READING} == {REFUSED}, told


@pytest.mark.parametrize("options", [{}, {"double_wrapping": False}, {"internal": False}])
def test_a_key_that_does_not_authenticate_is_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: dict[str, Any]
) -> None:
    """And no missing key, beside which everything else is well."""
    here = world(tmp_path / "w")
    me = role(here, tmp_path)
    forged_under_a_key_of_his_own(me, **options)
    report = bs.verify(me.file(), decryption=here.policy())
    assert not report.ok
    assert not report.inaccessible
    assert {one.column for one in report.failures} == {"ssn", "illness"}
    told = audit(here.root, policy=here.policy(), keys=here.policy().keys)
    assert {(one.rule.id, one.column) for one in told.findings if one.rule.id == "BS206"} == {
        ("BS206", "ssn"), ("BS206", "illness")
    }  # fmt: skip
    command = ["verify", str(me.file()), "--keyring", str(here.ring.path), "--aad-prefix", me.prefix()]
    assert main(command) == 1
    out = capsys.readouterr().out
    assert "failed:" in out
    assert "no key for" not in out
    # Who may not use the columns' keys knows as little as before: that is a missing key.
    report = bs.verify(me.file(), decryption=me.decryption())
    assert report.ok
    assert set(report.inaccessible) == {"ssn", "illness"}


def test_a_footer_key_that_does_not_authenticate_is_a_failure(tmp_path: Path) -> None:
    """Of a footer in plaintext, which can be read without it."""
    here = world(tmp_path / "w")
    me = role(here, tmp_path)
    ring = me.own_keyring()
    columns = {"ssn": "pii", "illness": "health"}
    spec = bs.EncryptionSpec("footer", columns, keys=bs.KeyTools(ring), plaintext_footer=True)
    bs.write_table(forged_rows(), me.file(), encryption=spec)
    reader = bs.DecryptionSpec(bs.KeyTools(here.ring), allow_unverified_footer=True)
    with bs.open_file(me.file(), decryption=reader) as file:
        report = file.verify()
    assert not report.footer_verified
    assert {one.column for one in report.failures} == {None, "ssn", "illness"}
    told = {one.rule.id for one in audit(me.file(), keys=bs.KeyTools(here.ring)).findings}
    assert {"BS203", "BS206"} <= told


def test_page_indexes_of_another_row_group_hide_nothing(tmp_path: Path) -> None:
    here = world(tmp_path / "w")
    page_indexes_of_another_row_group(role(here, tmp_path))
    told = play(here, tmp_path)
    assert told["verify"] == REFUSED


def test_other_columns_are_not_read(tmp_path: Path) -> None:
    for signed in (False, True):
        here = world(tmp_path / f"w{signed}", signed=signed)
        me = role(here, tmp_path)
        with bs.open_file(me.file(), decryption=me.decryption()) as file:
            assert file.read(["n"]).equals(rows("a").select(["n"]))
            for column in ("ssn", "illness"):
                for use in (
                    lambda column=column: file.read([column]),
                    lambda column=column: file.probe(column, TRUTH[column]),
                    lambda column=column: file.read(["n"], where=[(column, "==", TRUTH[column][0])]),
                ):
                    with pytest.raises(bs.KeyAccessError):
                        use()


# Honest limits


def test_limit_the_footers_holder_leaves_row_groups_out(tmp_path: Path) -> None:
    here = world(tmp_path / "w")
    me = role(here, tmp_path)

    def change(footer: Struct) -> None:
        change_groups(lambda groups: groups[:1])(footer)
        footer.set_i64(FileMeta.NUM_ROWS, 4)

    resealed(me, change)
    assert bs.read_table(me.file(), columns=list(COLUMNS), decryption=here.policy()).equals(rows("a").slice(0, 4))
    assert bs.verify(me.file(), decryption=here.policy()).ok


def test_limit_the_footers_holder_leaves_a_column_out(tmp_path: Path) -> None:
    """A file without `ssn`: a table reads nulls there, as it does of files that are older than the column. None is
    forged.
    """
    here = world(tmp_path / "w")
    me = role(here, tmp_path)
    spec = bs.EncryptionSpec("footer", keys=me.kms, aad_prefix=me.prefix(), store_aad_prefix=False)
    bs.write_table(forged_rows().select(["n"]), me.file(), encryption=spec)
    found = bs.read_table(here.root, columns=["ssn", "n"], decryption=here.policy())
    assert found["ssn"].to_pylist() == [None, *rows("b")["ssn"].to_pylist()]
    with pytest.raises(bs.UsageError):
        bs.read_table(me.file(), columns=["ssn"], decryption=here.policy())


def test_limit_the_footers_holder_writes_columns_under_the_footers_key(tmp_path: Path) -> None:
    """`n` has no key of its own: it is his as much as anybody's who may use the footer's."""
    here = world(tmp_path / "w")
    me = role(here, tmp_path)
    with bs.open_file(me.file(), decryption=me.decryption()) as file:
        walk = file.walk
        chunk = walk.chunk(0, 2)
        page = next(iter(walk.pages(chunk)))
        cipher = walk.cipher(chunk)
        assert cipher is not None
        body = bytearray(page.body())
        body[-32] = 200
        sealed = cipher.seal(bytes(body), page.kind, walk.aad(chunk, page.kind, page.ordinal))
        start = page.offset + page.length - len(page.stored)
        assert len(sealed) == len(page.stored)
    data = bytearray(me.file().read_bytes())
    data[start : start + len(sealed)] = sealed
    me.file().write_bytes(data)
    assert bs.read_table(me.file(), columns=["n"], decryption=here.policy())["n"][0].as_py() == 200
    assert bs.read_table(me.file(), columns=["ssn"], decryption=here.policy()).equals(rows("a").select(["ssn"]))


def test_no_probed_value_is_sealed_under_the_footers_key(tmp_path: Path) -> None:
    """A file without row groups, in which nothing tells the column's key. What a semi-join in Spark looks for travels
    sealed under that of another file's column, or not at all.
    """
    pytest.importorskip("pyspark")
    from bloomseal.spark.source.files.piece import Piece
    from bloomseal.spark.source.sealed_keyset import SealedKeys

    here = world(tmp_path / "w")
    me = role(here, tmp_path)
    spec = bs.EncryptionSpec("footer", keys=me.kms, aad_prefix=me.prefix(), store_aad_prefix=False)
    bs.write_table(forged_rows().slice(0, 0), me.file(), encryption=spec)
    for tenant, refused in (("a", True), ("b", False)):
        piece = Piece(None, str(me.file(tenant)), 0)
        with bs.open_file(me.file(tenant), decryption=here.policy()) as file:
            place = file.columns.index("ssn")
            kind = file.walk.footer.schema.leaves[place].type
            keys = file.key_set("ssn", [TRUTH["ssn"][0].as_py()])
            if refused:
                with pytest.raises(bs.KeyAccessError, match="without a row group"):
                    SealedKeys.of(keys, kind, file, place, piece)
            else:
                sealed = SealedKeys.of(keys, kind, file, place, piece)
    me.kms.asked.clear()
    with pytest.raises(bs.BloomsealError):
        sealed.open(_Opens(here.policy(me.kms)))
    assert "pii" in me.kms.asked
    assert len(sealed.open(_Opens(here.policy()))) == 1


class _Opens:
    """Opens files as Spark's tasks do, by a KMS that is an object."""

    def __init__(self, policy: Any) -> None:
        self._policy = policy

    def open(self, piece: Any) -> Any:
        return bs.open_file(piece.name, decryption=self._policy)
