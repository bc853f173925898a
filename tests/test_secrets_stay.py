"""No public object gives a key away: by pickle, copy, repr, or as plain data."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.core.keys.pins import Pins
from bloomseal.core.storage.ref import FileRef
from bloomseal.rotation import Rekey, Rewrap, Seal, Unseal
from bloomseal.write.output_keys import OutputKeys
from support.watch import Secrets

FOOTER, NAME, PASSPHRASE = b"\x01footers data key"[:16], b"\x02key of the name\xfe"[:16], "passphrase-of-the-test"
DATA = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})


SECRETS = Secrets(FOOTER, NAME, PASSPHRASE)
_clean = SECRETS.clean


def _explicit() -> bs.ExplicitKeys:
    return bs.ExplicitKeys(FOOTER, {"name": (NAME, "kn")}, keys_by_id={"kf": FOOTER})


def _spec(**more: Any) -> bs.EncryptionSpec:
    return bs.EncryptionSpec(footer_key=(FOOTER, "kf"), column_keys={"name": (NAME, b"kn")}, **more)


def _plain_spec() -> bs.EncryptionSpec:
    return bs.EncryptionSpec(footer_key=FOOTER, column_keys={"name": bytearray(NAME)})  # type: ignore[dict-item]


def _decryption() -> bs.DecryptionSpec:
    return bs.DecryptionSpec(_explicit())


def _file(path: Path) -> bs.SealedFile:
    bs.write_table(DATA, path, encryption=_spec(), bloom_filters={"name": True})
    file = bs.open_file(path, decryption=_decryption())
    assert file.read().equals(DATA)
    return file


def _ring(path: Path) -> bs.Keyring:
    ring = bs.Keyring(path.with_name("ring.json"), passphrase=PASSPHRASE, create=True)
    for name in ("footer", "pii"):
        ring.create(name)
    return ring


def _output_keys(path: Path) -> OutputKeys:
    with _file(path) as file:
        return OutputKeys(_spec(), file._walk.footer.schema, FileRef(str(path)))


def _policy(path: Path) -> bs.Policy:
    table = {"footer_key": "footer", "columns": {"name": {"key": "pii"}}}
    return bs.Policy.from_dict({"version": 1, "tables": {"t": table}}, kms=_ring(path))


HOLDERS: dict[str, Callable[[Path], Any]] = {
    "EncryptionSpec of bytes": lambda _: _plain_spec(),
    "EncryptionSpec of pairs": lambda _: _spec(),
    "EncryptionSpec over a keyring": lambda path: bs.EncryptionSpec("footer", keys=_ring(path)),
    "ExplicitKeys": lambda _: _explicit(),
    "DecryptionSpec": lambda _: _decryption(),
    "DecryptionSpec over a keyring": lambda path: bs.DecryptionSpec(_ring(path)),
    "OutputKeys": _output_keys,
    "OutputKeys' footer": lambda path: _output_keys(path).footer,
    "SealedFile": _file,
    "ParquetFile's walk": lambda path: _file(path).walk,
    "VerifyReport": lambda path: _file(path).verify(),
    "Inspection": lambda path: (_file(path), bs.inspect(path))[1],
    "Keyring": _ring,
    "KeyTools": lambda path: bs.KeyTools(_ring(path)),
    "KeyTools with pins": lambda path: bs.KeyTools(_ring(path)).with_pins(Pins(["footer"], {})),
    "Policy": _policy,
    "TablePolicy": lambda path: _policy(path).for_table("t"),
    "Rekey": lambda _: Rekey(_decryption(), _spec()),
    "Rewrap": lambda path: Rewrap(bs.DecryptionSpec(_ring(path))),
    "Seal": lambda _: Seal(_spec()),
    "Unseal": lambda _: Unseal(_decryption(), in_place=True),
    "ConversionReport": lambda path: (
        _file(path), bs.rekey(path, decryption=_decryption(), encryption=bs.EncryptionSpec(footer_key=b"w" * 16))
    )[1],
}  # fmt: skip


@pytest.mark.parametrize("name", HOLDERS)
def test_nothing_gives_a_key_away(tmp_path: Path, name: str) -> None:
    holder = HOLDERS[name](tmp_path / "a.parquet")
    SECRETS.clean_object(holder, name)
    _shown(holder, name)
    for duplicate in (copy.copy, copy.deepcopy):
        try:
            made = duplicate(holder)
        except (TypeError, bs.KeyAccessError) as error:  # the copy of a keyring has no passphrase
            _clean(str(error), "the refusal")
            continue
        _shown(made, f"{duplicate.__name__} of {name}")
    if dataclasses.is_dataclass(holder) and not isinstance(holder, type):
        try:
            _clean(repr(dataclasses.asdict(holder)), "asdict")
        except (TypeError, bs.KeyAccessError) as error:
            _clean(str(error), "the refusal")


def _shown(holder: Any, where: str) -> None:
    # A keyring keeps its passphrase, to open the file again when it has changed.
    inside = "" if isinstance(holder, bs.Keyring) else repr(getattr(holder, "__dict__", ""))
    for text in (repr(holder), str(holder), f"{holder}", inside):
        _clean(text, where)


@pytest.mark.parametrize("make", [_plain_spec, _spec, _explicit, _decryption])
def test_what_holds_data_keys_refuses_to_be_pickled(make: Callable[[], Any]) -> None:
    with pytest.raises(TypeError, match="never pickled"):
        pickle.dumps(make())


def test_a_writer_is_neither_pickled_nor_copied(tmp_path: Path) -> None:
    """A copy would end the file of the original."""
    with bs.SealedWriter(tmp_path / "a.parquet", DATA.schema, encryption=_spec()) as writer:
        for action in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="neither copied nor pickled"):
                action(writer)
        _shown(writer, "writer")
        writer.write_table(DATA)
    assert bs.read_table(tmp_path / "a.parquet", decryption=_decryption()).equals(DATA)


def test_data_keys_are_told_by_their_fingerprint_and_stay_the_same_keys(tmp_path: Path) -> None:
    one, other = _plain_spec(), _plain_spec()
    assert one == other
    assert one.footer_key != bs.EncryptionSpec(footer_key=NAME).footer_key
    bs.write_table(DATA, tmp_path / "a.parquet", encryption=dataclasses.replace(one, complete=True))
    keys = bs.DecryptionSpec(bs.ExplicitKeys(FOOTER, {"name": NAME}))
    assert bs.read_table(tmp_path / "a.parquet", decryption=keys).equals(DATA)


@pytest.mark.parametrize(
    "wrong", [None, 5, ("name", b"kn"), (FOOTER,), (FOOTER, "a", "b"), (FOOTER, 5), [FOOTER], ((FOOTER, "a"), "b")]
)
def test_what_is_no_key_is_refused_without_showing_it(wrong: Any) -> None:
    for make in (lambda: bs.EncryptionSpec(footer_key=wrong), lambda: bs.EncryptionSpec(FOOTER, {"name": wrong})):
        with pytest.raises(bs.UsageError) as caught:
            make()
        _clean(str(caught.value), "the error")
