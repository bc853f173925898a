"""What the caller said about a file holds, whatever is put in its place; and no error tells a secret."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.core.encryption import ModuleCipher, ModuleType, SecretKey, module_aad
from bloomseal.core.parquet.footer import seal_footer
from bloomseal.core.parquet.layout import Column, FileMeta, Group, Meta
from bloomseal.core.sbbf import SplitBlockBloomFilter
from bloomseal.core.storage.source import Source
from bloomseal.core.thrift import Struct
from bloomseal.read.parquet import ParquetFile
from bloomseal.write.assemble import filter_modules
from support.watch import Secrets

FOOTER, PII, OTHER = b"footer-key-bytes", b"personal-key-16b", b"another-key-16by"
TABLE = pa.table({"ssn": ["123-45-6789", "987-65-4321"], "name": ["ann", "bob"], "n": [1, 2]})
SECRETS = Secrets(FOOTER, PII, OTHER, b"123-45-6789", b"000-SECRET-PROBE")


def write(path: Path, **options: Any) -> Path:
    spec = {"column_keys": {"ssn": (PII, "pii"), "name": (OTHER, "other")}, **options}
    bs.write_table(
        TABLE,
        path,
        encryption=bs.EncryptionSpec(footer_key=(FOOTER, "kf"), **spec),
        bloom_filters={"ssn": True, "n": True},
    )
    return path


def keys(*ids: str) -> bs.ExplicitKeys:
    known = {"kf": FOOTER, "pii": PII, "other": OTHER}
    return bs.ExplicitKeys(keys_by_id={key_id: known[key_id] for key_id in ids or known})


ALL = bs.DecryptionSpec(keys())


def test_a_plaintext_file_where_an_encrypted_one_was_expected(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    bs.write_table(TABLE, path)
    with pytest.raises(bs.PolicyError, match="plaintext file"):
        bs.open_file(path, decryption=ALL)
    with bs.open_file(path, decryption=bs.DecryptionSpec(keys(), allow_plaintext=True)) as file:
        assert not file.footer_verified
        assert file.read().equals(TABLE)


_USES: dict[str, Callable[[ParquetFile], Any]] = {
    "probe": lambda f: f.probe("ssn", ["x"]),
    "filter": lambda f: f.filter(0, "ssn"),
    "read": lambda f: f.read(),
    "read that column": lambda f: f.read(["ssn"]),
    "read by that column": lambda f: f.read(["n"], where=[("ssn", "==", "x")]),
}


@pytest.mark.parametrize("use", _USES)
@pytest.mark.parametrize("how", ["encrypted_columns", "a key for it"])
@pytest.mark.parametrize("file", ["plaintext file", "plaintext column"])
def test_a_plaintext_column_where_an_encrypted_one_was_expected(tmp_path: Path, file: str, how: str, use: str) -> None:
    path = tmp_path / "t.parquet"
    spec = bs.EncryptionSpec(footer_key=(FOOTER, "kf"), column_keys={"name": (OTHER, "other")})
    bs.write_table(TABLE, path, encryption=None if file == "plaintext file" else spec, bloom_filters={"ssn": True})
    if how == "encrypted_columns":
        decryption = bs.DecryptionSpec(keys(), encrypted_columns=["ssn"], allow_plaintext=True)
    else:
        explicit = bs.ExplicitKeys(column_keys={"ssn": PII}, keys_by_id={"kf": FOOTER, "other": OTHER})
        decryption = bs.DecryptionSpec(explicit, allow_plaintext=True)
    with bs.open_file(path, decryption=decryption) as opened:
        with pytest.raises(bs.PolicyError, match="plaintext") as caught:
            _USES[use](opened)
        assert caught.value.column == "ssn"
        assert opened.read(["n"]).num_rows == 2


def clear_filter_on_a_sealed_column(path: Path, *, empty: bool) -> bytes:
    """As arrow-rs writes: the column is sealed, its filter is not. With `empty`, one that would exclude everything."""
    data = path.read_bytes()
    file = ParquetFile(Source.memory(data), ALL)
    walk, footer = file.walk, file.walk.footer
    crypto = footer.crypto
    assert crypto is not None
    bloom_filter = SplitBlockBloomFilter(32)
    if not empty:
        bloom_filter.insert_hash(12345)
    body = data[: footer.offset]
    modules = b"".join(map(bytes, filter_modules(bloom_filter, None, lambda _: b"")))
    meta = Struct.parse(walk.meta_raw(walk.chunk(0, 0)))
    meta.set_i64(Meta.BLOOM_OFFSET, len(body))
    meta.set_i32(Meta.BLOOM_LENGTH, len(modules))
    kind = ModuleType.COLUMN_META_DATA
    sealed = ModuleCipher(SecretKey(PII)).seal(meta.to_bytes(), kind, module_aad(crypto.file_aad, kind, 0, 0))
    group = Struct.parse(footer.row_groups[0])
    chunks = group.elements(Group.COLUMNS)
    chunk = Struct.parse(chunks[0])
    chunk.set_binary(Column.SEALED_META, sealed)
    group.set_list(Group.COLUMNS, [chunk.to_bytes(), *chunks[1:]])
    metadata = footer.struct.copy()
    metadata.set_list(FileMeta.ROW_GROUPS, [group.to_bytes()])
    return body + modules + seal_footer(metadata.to_bytes(), crypto, ModuleCipher(SecretKey(FOOTER)))


@pytest.mark.parametrize("empty", [False, True], ids=["other values", "all zero"])
def test_a_clear_filter_on_a_sealed_column_proves_nothing(tmp_path: Path, empty: bool) -> None:
    data = clear_filter_on_a_sealed_column(write(tmp_path / "t.parquet"), empty=empty)
    file = ParquetFile(Source.memory(data), ALL)
    with pytest.warns(bs.BloomsealWarning, match="stands in clear"):
        assert file.probe("ssn", ["123-45-6789"]) == [[bs.Verdict.NO_FILTER]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bs.BloomsealWarning)
        assert file.read(where=[("ssn", "==", "123-45-6789")]).num_rows == 1
    assert any("in clear" in note for note in file.verify().notes)
    strict = ParquetFile(Source.memory(data), bs.DecryptionSpec(keys(), encrypted_columns=["ssn"]))
    with pytest.raises(bs.PolicyError, match="stands in clear"):
        strict.probe("ssn", ["123-45-6789"])
    with pytest.raises(bs.PolicyError, match="stands in clear"):
        strict.read(where=[("ssn", "==", "123-45-6789")])


@pytest.mark.parametrize("footer", ["encrypted", "signed"])
@pytest.mark.parametrize(
    ("written", "stored", "given", "error"),
    [
        ("t/1", True, None, None),
        ("t/1", True, "t/1", None),
        ("t/1", True, "t/2", bs.PolicyError),
        ("t/1", False, "t/1", None),
        ("t/1", False, "t/2", bs.IntegrityError),
        ("t/1", False, None, bs.PolicyError),
        (None, True, "t/1", bs.PolicyError),
        (None, True, "", None),
    ],
)
def test_aad_prefixes(tmp_path: Path, footer: str, written: Any, stored: bool, given: Any, error: Any) -> None:
    path = write(
        tmp_path / "t.parquet", aad_prefix=written, store_aad_prefix=stored, plaintext_footer=footer == "signed"
    )
    decryption = bs.DecryptionSpec(keys(), aad_prefix=given)
    if error is None:
        assert bs.read_table(path, decryption=decryption).equals(TABLE)
        return
    with pytest.raises(error) as caught:
        bs.open_file(path, decryption=decryption)
    assert caught.value.file == str(path)


@pytest.mark.parametrize("footer", ["encrypted", "signed"])
def test_a_missing_column_key_leaves_the_other_columns(tmp_path: Path, footer: str) -> None:
    path = write(tmp_path / "t.parquet", plaintext_footer=footer == "signed")
    with bs.open_file(path, decryption=bs.DecryptionSpec(keys("kf", "other"))) as file:
        assert file.read(["name", "n"]).equals(TABLE.select(["name", "n"]))
        assert file.read(["n"], where=[("name", "==", "bob")]).to_pydict() == {"n": [2]}
        for use in _USES.values():
            with pytest.raises(bs.KeyAccessError) as caught:
                use(file)
            assert caught.value.column == "ssn"
            assert "ssn" in str(caught.value)
        report = file.verify()
        assert (report.ok, list(report.inaccessible), report.complete) == (True, ["ssn"], False)


@pytest.mark.parametrize("use", _USES)
def test_the_error_of_a_missing_key_names_the_file(tmp_path: Path, use: str) -> None:
    path = write(tmp_path / "t.parquet")
    with (
        bs.open_file(path, decryption=bs.DecryptionSpec(keys("kf"))) as file,
        pytest.raises(bs.KeyAccessError) as caught,
    ):
        _USES[use](file)
    assert caught.value.file == str(path)


def test_a_signed_footer_without_its_key_is_not_believed(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", plaintext_footer=True)
    with bs.open_file(path, decryption=bs.DecryptionSpec(keys("pii", "other"))) as file:
        assert not file.footer_verified
        for call in (lambda: file.probe("ssn", ["x"]), lambda: file.read(["n"])):
            with pytest.raises(bs.PolicyError, match="signature"):
                call()
    loose = bs.DecryptionSpec(keys("pii", "other"), allow_unverified_footer=True)
    assert bs.read_table(path, decryption=loose).equals(TABLE)


@pytest.mark.parametrize("footer", ["encrypted", "signed"])
def test_no_error_tells_a_secret(tmp_path: Path, footer: str) -> None:
    path = write(tmp_path / "t.parquet", plaintext_footer=footer == "signed")
    wrong = bs.ExplicitKeys(keys_by_id={"kf": FOOTER, "pii": OTHER, "other": PII})

    class Talkative:
        def retrieve_key(self, *_: object) -> bytes:
            raise RuntimeError(f"the key is {FOOTER!r} {PII.hex()}")

    calls: list[Callable[[], Any]] = [
        lambda: bs.read_table(path, decryption=bs.DecryptionSpec(wrong)),
        lambda: bs.probe(path, "ssn", ["000-SECRET-PROBE"], decryption=bs.DecryptionSpec(wrong)),
        lambda: bs.open_file(path, decryption=bs.DecryptionSpec(Talkative())).read(),
        lambda: bs.read_table(path, where=[("n", "==", "000-SECRET-PROBE")], decryption=ALL),
        lambda: bs.read_table(path, where=[("n", "<", b"000-SECRET-PROBE")], decryption=ALL),
        lambda: bs.read_table(path, where=[("ssn", "in", "000-SECRET-PROBE")], decryption=ALL),
        lambda: bs.read_table(path, where=[("ssn", "==", "000-SECRET-PROBE\udc00")], decryption=ALL),
        lambda: bs.probe(path, "n", ["000-SECRET-PROBE"], decryption=ALL),
        lambda: bs.probe(path, "ssn", [b"\xff000-SECRET-PROBE"], decryption=ALL),
        lambda: bs.ExplicitKeys(footer_key=FOOTER + b"x"),
        lambda: bs.ExplicitKeys(footer_key=FOOTER.decode()),  # type: ignore[arg-type]
        lambda: bs.EncryptionSpec(footer_key=FOOTER.decode()),
        lambda: bs.write_table(TABLE, path, encryption=bs.EncryptionSpec(footer_key=FOOTER, column_keys={"none": PII})),
        lambda: bs.write_table(TABLE, path, encryption=bs.EncryptionSpec(footer_key=FOOTER[:-1])),
    ]
    for call in calls:
        with pytest.raises(bs.BloomsealError) as caught:
            call()
        SECRETS.clean_error(caught.value, "a refusal")


def test_nothing_shows_its_secrets(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet")
    spec = bs.EncryptionSpec(footer_key=(FOOTER, "kf"), column_keys={"ssn": PII})
    with bs.open_file(path, decryption=ALL) as file:
        chunk = file.walk.chunk(0, 0)
        shown = [
            file,
            ALL,
            spec,
            keys(),
            file.walk.keys,
            file.walk.cipher(chunk),
            chunk,
            file.filter(0, "ssn"),
            file.verify(),
        ]
        text = "".join(repr(thing) + str(thing) for thing in shown)
    SECRETS.clean(text, "what is shown")
