"""Bytes that nobody authenticated decide nothing: each attack is carried out as somebody without the key could, then
refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

import bloomseal as bs
from bloomseal.core.encryption import Algorithm, ModuleCipher, ModuleType, SecretKey, module_aad
from bloomseal.core.parquet.expectation import Expectation
from bloomseal.core.parquet.footer import FileCrypto, Footer, FooterKind, peek, seal_footer, sign_footer
from bloomseal.core.parquet.layout import MAGIC_ENCRYPTED, FileMeta
from bloomseal.core.storage.source import Source
from bloomseal.core.thrift import Struct
from bloomseal.read.parquet import ParquetFile
from support.footers import as_ctr, change_algorithm, change_clear_footer, change_footer, rename

FOOTER, PII = b"footer-key-bytes", b"personal-key-16b"
TABLE = pa.table({"ssn": ["123-45-6789", "987-65-4321"], "name": ["ann", "bob"], "n": pa.array([1, 2], pa.int64())})
FORGED = pa.table({"ssn": ["000-00-0000", "000-00-0001"], "name": ["eve", "eve"], "n": pa.array([7, 8], pa.int64())})

USES: dict[str, Callable[[ParquetFile], Any]] = {
    "probe": lambda file: file.probe("ssn", ["123-45-6789"]),
    "maybe_present": lambda file: file.maybe_present("ssn", ["123-45-6789"]),
    "survivors": lambda file: file.survivors("ssn", file.key_set("ssn", ["123-45-6789"])),
    "filter": lambda file: file.filter(0, "ssn"),
    "read": lambda file: file.read(),
    "read that column": lambda file: file.read(["ssn"]),
    "read by that column": lambda file: file.read(["n"], where=[("ssn", "==", "123-45-6789")]),
}


@pytest.fixture
def keyring(tmp_path: Path) -> bs.Keyring:
    ring = bs.Keyring(tmp_path / "ring.json", create=True)
    for name in ("footer", "pii"):
        ring.create(name)
    return ring


def policy(keyring: bs.Keyring, **settings: Any) -> Any:
    table = {"footer_key": "footer", "columns": {"ssn": {"key": "pii", "filter": True}}, **settings}
    return bs.Policy.from_dict({"version": 1, "tables": {"people": table}}, kms=keyring).for_table("people")


def opened(data: bytes, decryption: Any) -> ParquetFile:
    return ParquetFile(Source.memory(data), decryption)


# The algorithm


def relabelled(path: Path) -> bytes:
    """A GCM file of another writer, passed off as a CTR file, one value of one page changed; no key is used."""
    # Values that Snappy makes longer: Arrow then says is_compressed=false in the V2 page's header.
    values = [(i * 0x9E3779B97F4A7C15) >> 3 & 0x7FFFFFFFFFFFFFFF for i in range(64)]
    rows = pa.table([values], schema=pa.schema([pa.field("amount", pa.int64(), nullable=False)]))
    spec = {"footer_key": "kf", "uniform_encryption": True, "double_wrapping": False}
    factory = pe.CryptoFactory(lambda _: _PlainKms())
    properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), pe.EncryptionConfiguration(**spec))
    with pq.ParquetWriter(
        path, rows.schema, encryption_properties=properties, data_page_version="2.0", compression="snappy",
        use_dictionary=False, write_statistics=False,
    ) as writer:  # fmt: skip
        writer.write_table(rows)
    data = bytearray(change_algorithm(path.read_bytes(), as_ctr))
    # Framing is in clear: the first module is a page header, the second its page.
    start = 4 + 4 + int.from_bytes(data[4:8], "little")
    size = int.from_bytes(data[start : start + 4], "little")
    body = start + 4 + 12
    ciphertext = bytes(data[body : start + 4 + size - 16])
    changed = bytearray(ciphertext)
    changed[-8] ^= 1  # one chosen bit of a value
    data[body : start + 4 + size] = bytes(16) + bytes(changed)
    return bytes(data)


class _PlainKms(pe.KmsClient):
    """Wraps nothing: what matters is not the KMS here."""

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:  # noqa: ARG002
        return key_bytes.hex()

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:  # noqa: ARG002
        return bytes.fromhex(wrapped_key)


def test_a_gcm_file_is_not_read_as_ctr(tmp_path: Path) -> None:
    data = relabelled(tmp_path / "gcm.parquet")
    with pytest.raises(bs.PolicyError, match="AES_GCM_CTR_V1") as caught:
        opened(data, bs.DecryptionSpec(_PlainKms()))
    assert "allow_ctr" in (caught.value.hint or "")


def test_where_ctr_is_allowed_a_relabelled_page_has_the_wrong_length_and_verify_says_why(tmp_path: Path) -> None:
    file = opened(relabelled(tmp_path / "gcm.parquet"), bs.DecryptionSpec(_PlainKms(), allow_ctr=True))
    with pytest.raises(bs.FormatError, match="claims to hold"):
        file.read()
    with pytest.raises(bs.FormatError):
        file.read(where=[("amount", ">", 0)])
    assert not file.verify().ok
    untouched = change_algorithm((tmp_path / "gcm.parquet").read_bytes(), as_ctr)
    failures = opened(untouched, bs.DecryptionSpec(_PlainKms(), allow_ctr=True)).verify().failures
    assert any("altered" in failure.what for failure in failures)


def test_a_policy_of_gcm_refuses_ctr_everywhere(tmp_path: Path, keyring: bs.Keyring) -> None:
    path = tmp_path / "t.parquet"
    counter = policy(keyring, algorithm="AES_GCM_CTR_V1")
    bs.write_table(TABLE, path, encryption=counter, bloom_filters=counter.bloom_filters())
    assert bs.read_table(path, decryption=counter).equals(TABLE)
    strict, before = policy(keyring), path.read_bytes()
    for use in (
        lambda: bs.open_file(path, decryption=strict),
        lambda: bs.read_table(path, decryption=strict),
        lambda: bs.verify(path, decryption=strict),
        lambda: bs.attach_filters(path, {"n": True}, decryption=strict),
        lambda: bs.rekey(path, decryption=strict, encryption=strict),
        lambda: bs.unseal_file(path, tmp_path / "clear", decryption=strict),
        lambda: bs.rewrap(path, decryption=strict),
    ):
        with pytest.raises(bs.PolicyError, match="AES_GCM_CTR_V1"):
            use()
    assert path.read_bytes() == before
    bs.rekey(path, decryption=replace(strict, allow_ctr=True), encryption=strict)
    assert bs.read_table(path, decryption=strict).equals(TABLE)


# The key of a place


def forged_by_holder_of_footer_key(path: Path, keyring: bs.Keyring, **more: Any) -> None:
    """Whoever may use `footer` alone writes a file whose columns are all under it."""
    spec = bs.EncryptionSpec(footer_key="footer", keys=keyring, **more)
    bs.write_table(FORGED, path, encryption=spec, bloom_filters={"ssn": True})


@pytest.mark.parametrize("plaintext_footer", [False, True])
@pytest.mark.parametrize("use", USES)
def test_a_pinned_column_under_the_footer_key_is_refused(
    tmp_path: Path, keyring: bs.Keyring, use: str, plaintext_footer: bool
) -> None:
    path = tmp_path / "t.parquet"
    forged_by_holder_of_footer_key(path, keyring, plaintext_footer=plaintext_footer)
    with bs.open_file(path, decryption=policy(keyring)) as file, pytest.raises(bs.PolicyError, match="master key"):
        USES[use](file)


def test_a_pinned_column_under_the_footer_key_is_neither_verified_nor_sealed_again(
    tmp_path: Path, keyring: bs.Keyring
) -> None:
    path, strict = tmp_path / "t.parquet", policy(keyring)
    forged_by_holder_of_footer_key(path, keyring)
    before = path.read_bytes()
    assert not bs.verify(path, decryption=strict).ok
    for use in (
        lambda: bs.rekey(path, decryption=strict, encryption=strict),
        lambda: bs.attach_filters(path, {"ssn": True}, decryption=strict),
        lambda: bs.unseal_file(path, tmp_path / "clear", decryption=strict),
    ):
        with pytest.raises(bs.PolicyError):
            use()
    assert path.read_bytes() == before
    assert not (tmp_path / "clear").exists()


@pytest.mark.parametrize("settings", [{"complete": True}, {"columns": {"ssn": {"sensitivity": "restricted"}}}])
def test_complete_and_uniform_policies_refuse_plaintext_columns(
    tmp_path: Path, keyring: bs.Keyring, settings: dict[str, Any]
) -> None:
    path = tmp_path / "t.parquet"
    # All that a complete policy names is sealed; `name` is not, under a footer that verifies.
    columns = {"ssn": "pii"} if "complete" in settings else {"n": "pii"}
    bs.write_table(FORGED, path, encryption=bs.EncryptionSpec(footer_key="footer", column_keys=columns, keys=keyring))
    strict, before = policy(keyring, **settings), path.read_bytes()
    with bs.open_file(path, decryption=strict) as file:
        for read in (file.read, lambda: file.read(["name"]), lambda: file.probe("name", ["ann"])):
            with pytest.raises(bs.PolicyError, match="plaintext"):
                read()
    assert not bs.verify(path, decryption=strict).ok
    with pytest.raises(bs.PolicyError, match="plaintext"):
        bs.rekey(path, decryption=strict, encryption=strict)
    assert path.read_bytes() == before


def test_one_columns_key_forges_neither_footer_nor_other_columns(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    # The holder of ssn's key names its id wherever the file asks for a key.
    forger = bs.EncryptionSpec(footer_key=(PII, "pii"), column_keys={"ssn": (PII, "pii"), "name": (PII, "pii")})
    bs.write_table(FORGED, path, encryption=forger, bloom_filters={"name": True})
    mine = bs.ExplicitKeys(
        footer_key=(FOOTER, "kf"), column_keys={"ssn": (PII, "pii")}, keys_by_id={"other": b"another-key-16by"}
    )
    with pytest.raises(bs.KeyAccessError, match="another key"):
        bs.open_file(path, decryption=bs.DecryptionSpec(mine))
    honest = bs.EncryptionSpec(footer_key=(FOOTER, "kf"), column_keys={"ssn": (PII, "pii"), "name": (PII, "pii")})
    bs.write_table(FORGED, path, encryption=honest)
    with bs.open_file(path, decryption=bs.DecryptionSpec(mine)) as file:
        assert file.read(["ssn"]).num_rows == 2
        with pytest.raises(bs.KeyAccessError):
            file.read(["name"])


def test_a_column_with_an_explicit_key_is_not_accepted_under_the_footer_key(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    bs.write_table(FORGED, path, encryption=bs.EncryptionSpec(footer_key=FOOTER), bloom_filters={"ssn": True})
    spec = bs.DecryptionSpec(bs.ExplicitKeys(footer_key=FOOTER, column_keys={"ssn": PII}))
    for use in USES.values():
        with bs.open_file(path, decryption=spec) as file, pytest.raises(bs.PolicyError, match="footer key"):
            use(file)
    same = bs.DecryptionSpec(bs.ExplicitKeys(footer_key=FOOTER, column_keys={"ssn": FOOTER}))
    assert bs.read_table(path, decryption=same).equals(FORGED)


# The AAD prefix


def shifted(data: bytes, moved: bytes) -> bytes:
    """Bytes of an unstored prefix put in front of aad_file_unique: the AADs of all modules stay what they were."""

    def move(algorithm: Struct) -> None:
        inner = algorithm.struct(1)
        assert inner is not None
        inner.set_binary(2, moved + (inner.binary(2) or b""))
        algorithm.set_struct(1, inner)

    return change_algorithm(data, move)


def test_no_byte_moves_between_prefix_and_file_identity(tmp_path: Path, keyring: bs.Keyring) -> None:
    spec = bs.EncryptionSpec(
        footer_key="footer", keys=keyring, aad_prefix="people/part-1.parquet.bak", store_aad_prefix=False
    )
    bs.write_table(TABLE, tmp_path / "part-1.parquet.bak", encryption=spec)
    forged = shifted((tmp_path / "part-1.parquet.bak").read_bytes(), b".bak")
    with pytest.raises(bs.PolicyError, match="aad_file_unique of 12 bytes"):
        opened(forged, bs.DecryptionSpec(keyring, aad_prefix="people/part-1.parquet"))


PATH_POLICY = {"aad_prefix": "{table}/{path}/", "store_aad_prefix": False, "complete": True}


def test_a_file_of_one_tenant_does_not_open_in_the_place_of_anothers(tmp_path: Path, keyring: bs.Keyring) -> None:
    root = tmp_path / "people"
    table = policy(keyring, **PATH_POLICY).at(root)
    for tenant, rows in (("a", TABLE), ("b", FORGED)):
        (root / f"tenant={tenant}").mkdir(parents=True)
        bs.write_table(rows, root / f"tenant={tenant}/part-0.parquet", encryption=table)
    assert bs.read_table(root / "tenant=a/part-0.parquet", decryption=table).equals(TABLE)
    (root / "tenant=a/part-0.parquet").replace(root / "tenant=b/part-0.parquet")
    with pytest.raises(bs.IntegrityError):
        bs.open_file(root / "tenant=b/part-0.parquet", decryption=table)


def test_a_template_with_path_wants_to_know_the_tables_folder(tmp_path: Path, keyring: bs.Keyring) -> None:
    table = policy(keyring, **PATH_POLICY)
    with pytest.raises(bs.PolicyError, match="folder") as caught:
        bs.write_table(TABLE, tmp_path / "t.parquet", encryption=table)
    assert "root=" in (caught.value.hint or "")
    with pytest.raises(bs.PolicyError, match="not in the folder"):
        bs.write_table(TABLE, tmp_path / "t.parquet", encryption=table.at(tmp_path / "elsewhere"))
    assert not list(tmp_path.glob("*.parquet"))


def test_whoever_is_given_the_folder_knows_where_paths_begin(tmp_path: Path, keyring: bs.Keyring) -> None:
    from bloomseal.audit import audit
    from bloomseal.rotation import Rekey, Rewrap, Seal, rotate

    table, root = policy(keyring, **PATH_POLICY, partition_by=["tenant"]), tmp_path / "people"
    for tenant in "ab":
        (root / f"tenant={tenant}").mkdir(parents=True)
        bs.write_table(TABLE, root / f"tenant={tenant}/part-0.parquet")
    for job in (Seal(table), Rekey(table, table), Rekey(table), Rewrap(table)):
        assert rotate(root, job).ok
    assert bs.open_table(root, decryption=table).verify().ok
    bs.attach_filters(root, {"n": True}, decryption=table)
    assert bs.read_table(root, where=[("n", "==", 1)], decryption=table)["tenant"].to_pylist() == ["a", "b"]
    seen = audit(root, keys=table.keys, policy=table).inventory
    assert set(seen["footer_verified"].to_pylist()) == {True}
    (root / "tenant=a/part-0.parquet").replace(root / "tenant=b/part-0.parquet")
    with pytest.raises(bs.IntegrityError):
        bs.read_table(root, decryption=table)


@pytest.mark.parametrize(
    "template", ["{table}/{path}", "{table}{path}/", "{path}/{table}/", "{path}/{file}", "{path}{path}/"]
)
def test_a_template_that_two_files_could_share_is_refused(keyring: bs.Keyring, template: str) -> None:
    with pytest.raises(bs.PolicyError, match="slash"):
        policy(keyring, aad_prefix=template)


def test_files_of_an_older_template_open_until_rekey_has_moved_them(tmp_path: Path, keyring: bs.Keyring) -> None:
    path = tmp_path / "part-0.parquet"
    old = policy(keyring, aad_prefix="{table}/{file}", store_aad_prefix=False)
    bs.write_table(TABLE, path, encryption=old)
    new = policy(keyring, **PATH_POLICY, previous_aad_prefixes=["{table}/{file}"]).at(tmp_path)
    # A complete policy: `name` and `n` are in plaintext there.
    new = replace(new, complete=False)
    assert bs.read_table(path, decryption=new).equals(TABLE)
    bs.rekey(path, decryption=new, encryption=new)
    final = replace(new, previous_aad_prefixes=())
    assert bs.read_table(path, decryption=final).equals(TABLE)
    with pytest.raises(bs.IntegrityError):
        bs.read_table(path, decryption=old)


# A footer that nobody has verified


def test_renamed_columns_of_an_unverified_footer_answer_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    both = {"ssn": (PII, "pii"), "name": (PII, "pii")}
    spec = bs.EncryptionSpec(footer_key=(FOOTER, "kf"), column_keys=both, plaintext_footer=True)
    bs.write_table(TABLE, path, encryption=spec, bloom_filters={"ssn": True, "name": True})
    data = path.read_bytes()
    reader = bs.DecryptionSpec(bs.ExplicitKeys(keys_by_id={"pii": PII}), allow_unverified_footer=True)
    assert opened(data, reader).probe("ssn", ["123-45-6789"]) == [[bs.Verdict.MAYBE_PRESENT]]
    # The storage attacker renames the columns in the schema; nothing sealed is touched.
    renamed = change_clear_footer(data, rename({"ssn": "name", "name": "ssn"}))
    with pytest.raises(bs.FormatError, match="calls the column otherwise"):
        opened(renamed, reader).probe("ssn", ["123-45-6789"])
    assert not opened(renamed, reader).verify().ok


def test_a_type_that_nobody_has_authenticated_rules_nothing_out(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    spec = bs.EncryptionSpec(footer_key=(FOOTER, "kf"), column_keys={"n": (PII, "pii")}, plaintext_footer=True)
    bs.write_table(TABLE, path, encryption=spec, bloom_filters={"n": True})
    reader = bs.DecryptionSpec(bs.ExplicitKeys(keys_by_id={"pii": PII}), allow_unverified_footer=True)
    with bs.open_file(path, decryption=reader) as file:
        # n could be a decimal of scale 2: 99 is then stored as 9900, and the filter of 99 says nothing of it.
        assert file.probe("n", [99]) == [[bs.Verdict.NO_FILTER]]
        assert file.read(["n"], where=[("n", "==", 99)]).num_rows == 0
        assert (file.stats.pruned_by_filter, file.stats.pruned_by_statistics) == (0, 0)


class _ColumnKeys:
    """The keys of columns, and not that of the footer, of a file whose data keys `_PlainKms` has left as they are."""

    def retrieve_key(self, key_metadata: bytes, column: str | None) -> bytes:
        if column is None:
            raise bs.KeyAccessError("no footer key")
        return bytes.fromhex(json.loads(key_metadata)["wrappedDEK"])


def test_a_writer_that_nobody_has_authenticated_changes_no_page(tmp_path: Path) -> None:
    """A sealed header says that its page is not compressed. The footer's word for who wrote it must not say otherwise:
    the decoder would unpack what is no stream.
    """
    rows = pa.table({"amount": [(i * 0x9E3779B97F4A7C15) >> 3 & 0x7FFFFFFFFFFFFFFF for i in range(64)]})
    factory = pe.CryptoFactory(lambda _: _PlainKms())
    spec = pe.EncryptionConfiguration(
        footer_key="kf", column_keys={"kc": ["amount"]}, plaintext_footer=True, double_wrapping=False
    )
    properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), spec)
    path = tmp_path / "v2.parquet"
    with pq.ParquetWriter(
        path, rows.schema, encryption_properties=properties, data_page_version="2.0", compression="snappy",
        use_dictionary=False,
    ) as writer:  # fmt: skip
        writer.write_table(rows)
    reader = bs.DecryptionSpec(_ColumnKeys(), allow_unverified_footer=True)
    assert opened(path.read_bytes(), reader).read() == rows
    forged = change_clear_footer(path.read_bytes(), lambda footer: footer.set_binary(6, b"parquet-cpp version 1.5.0"))
    assert opened(forged, reader).read() == rows


# A page that passes for a footer


def test_a_page_passed_off_as_the_footer_is_refused_by_a_supplied_prefix(tmp_path: Path, keyring: bs.Keyring) -> None:
    """A data page's AAD ends in a zero byte, as the footer's does: with a longer file identity one is the other.

    Whoever gets bytes of his own into a page (a fixed-length column under the footer key) has then made a footer.
    """
    key = SecretKey(FOOTER)
    cipher, unique = ModuleCipher(key), b"uniqueid"
    page_aad = module_aad(b"people/" + unique, ModuleType.DATA_PAGE, 0, 0, 0)
    longer = (unique + page_aad[len(b"people/" + unique) :])[:-1]
    assert module_aad(b"people/" + longer, ModuleType.FOOTER) == page_aad
    path = tmp_path / "clear.parquet"
    bs.write_table(FORGED, path)
    clear = peek(Source.memory(path.read_bytes()))
    sealed = cipher.seal(clear.clear, ModuleType.DATA_PAGE, page_aad)
    crypto = FileCrypto(Algorithm.AES_GCM_V1, b"people/", longer, False, False, b"")
    head = Struct()
    head.set_struct(1, crypto.algorithm_struct())
    body = head.to_bytes() + bytes(sealed)
    forged = path.read_bytes()[: clear.offset] + body + len(body).to_bytes(4, "little") + MAGIC_ENCRYPTED
    keys = bs.ExplicitKeys(footer_key=FOOTER)
    with pytest.raises(bs.PolicyError, match="aad_file_unique"):
        opened(forged, bs.DecryptionSpec(keys, aad_prefix="people/"))


# The expectation itself


def test_every_choice_that_an_unauthenticated_footer_makes_has_its_check() -> None:
    expected = Expectation.of(bs.DecryptionSpec(None, aad_prefix="a", encrypted_columns=["ssn"]))
    unique = bytes(8)
    assert expected.prefix(None, True, unique) == (b"a",)
    assert expected.prefix(b"a", False, unique) == (b"a",)
    for stored, wanted, identity in (
        (None, False, unique),
        (b"b", False, unique),
        (b"b", True, unique),
        (None, True, b""),
        (None, True, bytes(9)),
        (b"a", False, bytes(7)),
    ):
        with pytest.raises(bs.PolicyError):
            expected.prefix(stored, wanted, identity)
    with pytest.raises(bs.PolicyError):
        expected.plaintext_file()
    with pytest.raises(bs.PolicyError):
        expected.algorithm(Algorithm.AES_GCM_CTR_V1)
    with pytest.raises(bs.PolicyError):
        expected.plaintext_column("ssn")
    with pytest.raises(bs.PolicyError):
        expected.plaintext_column("ssn.part")
    expected.plaintext_column("ssn2")
    with pytest.raises(bs.PolicyError):
        Expectation.of(bs.DecryptionSpec(None)).prefix(None, True, unique)


def test_the_footer_is_tried_under_every_prefix_that_is_expected(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    for signed in (False, True):
        spec = bs.EncryptionSpec(FOOTER, aad_prefix="old", store_aad_prefix=False, plaintext_footer=signed)
        bs.write_table(TABLE, path, encryption=spec)
        keys = bs.ExplicitKeys(footer_key=FOOTER)
        good = bs.DecryptionSpec(keys, aad_prefix="new", previous_aad_prefixes=["older", "old"])
        assert bs.read_table(path, decryption=good).equals(TABLE)
        with pytest.raises(bs.IntegrityError):
            bs.open_file(path, decryption=bs.DecryptionSpec(keys, aad_prefix="new", previous_aad_prefixes=["older"]))


def test_a_footer_seals_and_signs_back_to_what_peek_sees(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    bs.write_table(TABLE, path, encryption=bs.EncryptionSpec((FOOTER, "kf")))
    with bs.open_file(path, decryption=bs.DecryptionSpec(bs.ExplicitKeys(FOOTER))) as file:
        footer: Footer = file.walk.footer
    assert footer.crypto is not None
    cipher = ModuleCipher(SecretKey(FOOTER))
    for made, kind in ((seal_footer, FooterKind.ENCRYPTED), (sign_footer, FooterKind.SIGNED)):
        metadata = Struct.parse(footer.raw)
        metadata.set_struct(FileMeta.ALGORITHM, footer.crypto.algorithm_struct())
        seen = peek(Source.memory(b"PAR1" + made(metadata.to_bytes(), footer.crypto, cipher)))
        assert seen.kind is kind


# The names of columns


@pytest.mark.parametrize("plaintext_footer", [False, True])
@pytest.mark.parametrize("use", USES)
def test_the_footers_key_does_not_make_one_column_answer_for_another(
    tmp_path: Path, use: str, plaintext_footer: bool
) -> None:
    """Both columns under one key of their own; the footer key's holder exchanges their names, and can read neither."""
    path = tmp_path / "t.parquet"
    both = {"ssn": PII, "name": PII}
    spec = bs.EncryptionSpec(FOOTER, column_keys=both, plaintext_footer=plaintext_footer)
    bs.write_table(TABLE, path, encryption=spec, bloom_filters={"ssn": True, "name": True})
    names = rename({"ssn": "name", "name": "ssn"})
    forged = change_footer(path.read_bytes(), ModuleCipher(SecretKey(FOOTER)), names)
    file = opened(forged, bs.DecryptionSpec(bs.ExplicitKeys(FOOTER, both)))
    with pytest.raises(bs.FormatError, match="calls the column otherwise"):
        USES[use](file)
    assert not file.verify().ok


@pytest.mark.parametrize("name", ["SSN", "Ssn", "\uff53sn"])
@pytest.mark.parametrize("how", ["plaintext", "footer key"])
def test_a_column_that_looks_like_a_pinned_one_is_refused(
    tmp_path: Path, keyring: bs.Keyring, name: str, how: str
) -> None:
    """Spark finds columns whatever their case: `SSN`, which the policy does not name, would answer for `ssn`."""
    path = tmp_path / "t.parquet"
    forged = FORGED.rename_columns([name, "name", "n"])
    columns = {"n": "footer"} if how == "plaintext" else None
    bs.write_table(forged, path, encryption=bs.EncryptionSpec("footer", column_keys=columns, keys=keyring))
    with bs.open_file(path, decryption=policy(keyring, complete=how != "plaintext")) as file:
        for read in (lambda: file.read([name]), lambda: file.probe(name, ["x"]), lambda: file.filter(0, name)):
            with pytest.raises(bs.PolicyError, match="ssn"):
                read()
        assert not file.verify().ok
