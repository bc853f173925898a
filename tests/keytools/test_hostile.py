"""Whatever stands in key metadata, stores, keyrings, wrapped keys and policies: an answer or an error of ours, never
another exception.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from bloomseal import Keyring, KeyTools
from bloomseal.core.encryption import SecretKey
from bloomseal.core.errors import BloomsealError, KeyAccessError, PolicyError
from bloomseal.core.keys.material import KeyMaterial, KeyMetadata
from bloomseal.core.storage.ref import FileRef
from bloomseal.keytools.keyring import keyfile
from bloomseal.keytools.kms.common import claimed_version, pack, unpack
from bloomseal.keytools.material.store import MaterialStore
from bloomseal.policy import Policy
from support.stand_ins import MASTER_KEYS, InMemoryKms

# json.loads makes lone surrogates out of escapes; UTF-8 has none.
TEXT = st.text(st.characters(exclude_categories=()), max_size=40)
SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | TEXT
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=8
)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
KEYS = st.sampled_from([16, 24, 32]).flatmap(lambda size: st.binary(min_size=size, max_size=size)).map(SecretKey)

MATERIAL = {
    "keyMaterialType": "PKMT1",
    "internalStorage": True,
    "isFooterKey": True,
    "kmsInstanceID": "DEFAULT",
    "kmsInstanceURL": "DEFAULT",
    "masterKeyID": "kf",
    "wrappedDEK": "A" * 60,
    "doubleWrapping": True,
    "keyEncryptionKeyID": "A" * 24,
    "wrappedKEK": "A" * 60,
}


def changed(fields: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """The fields with some of them replaced, and some dropped."""
    replaced = st.dictionaries(st.sampled_from(sorted(fields)), JSON, max_size=3)
    dropped = st.sets(st.sampled_from(sorted(fields)), max_size=2)
    return st.tuples(replaced, dropped).map(
        lambda both: {name: value for name, value in {**fields, **both[0]}.items() if name not in both[1]}
    )


@given(
    st.binary(max_size=200)
    | JSON.map(lambda value: json.dumps(value).encode())
    | changed(MATERIAL).map(lambda f: json.dumps(f).encode())
)
@example(json.dumps({**MATERIAL, "wrappedKEK": "\ud800"}).encode())
@example(json.dumps({**MATERIAL, "doubleWrapping": False, "wrappedDEK": "\ud800"}).encode())
@example(json.dumps({**MATERIAL, "masterKeyID": "\ud800"}).encode())
def test_key_metadata(metadata: bytes) -> None:
    tools = KeyTools(InMemoryKms())
    keys = tools.for_file(FileRef("/nonexistent/t.parquet"))
    for ask in (lambda: keys.retrieve_key(metadata, "c"), lambda: keys.describe(metadata)):
        try:
            ask()
        except KeyAccessError as error:
            str(error).encode()  # what is shown can be printed


@given(
    st.builds(
        KeyMaterial,
        master_key=NAMES,
        wrapped_dek=NAMES,
        is_footer_key=st.just(True),
        kek_id=NAMES,
        wrapped_kek=NAMES,
        kms_instance_id=NAMES,
        kms_instance_url=NAMES,
    )
    | st.builds(KeyMaterial, master_key=NAMES, wrapped_dek=NAMES, is_footer_key=st.just(False))
)
def test_material_there_and_back(material: KeyMaterial) -> None:
    assert KeyMetadata.from_bytes(KeyMetadata(material=material).to_bytes()).material == material
    assert KeyMaterial.from_json(material.to_json(internal=False)) == material


@given(JSON | changed({"footerKey": json.dumps(MATERIAL), "columnKey0": "{}"}))
@example({"footerKey": json.dumps({**MATERIAL, "wrappedKEK": "\ud800"})})
@example({"footerKey": "\ud800"})
def test_a_store(contents: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t.parquet")
        Path(MaterialStore(FileRef(str(path))).path).write_text(json.dumps(contents))
        metadata = KeyMetadata(reference="footerKey").to_bytes()
        try:
            KeyTools(InMemoryKms()).for_file(FileRef(str(path))).retrieve_key(metadata, None)
        except KeyAccessError as error:
            str(error).encode()


@given(st.sampled_from(sorted(MASTER_KEYS)), KEYS, st.integers(0, 2**16), st.integers(1, 255))
def test_no_flipped_bit_gives_another_key(name: str, key: SecretKey, at: int, flip: int) -> None:
    kms = InMemoryKms()
    for double in (True, False):
        tools = KeyTools(kms, double_wrapping=double)
        material = tools._fresh.material_for(key, name, tools.wrap, {})
        metadata = bytearray(KeyMetadata(material=material).to_bytes())
        metadata[at % len(metadata)] ^= flip
        tools.forget()
        with contextlib.suppress(KeyAccessError):
            assert tools.for_file(FileRef("t")).retrieve_key(bytes(metadata), "c") == key


_FOLDER = tempfile.TemporaryDirectory()
_RING = Keyring(Path(_FOLDER.name, "keys.json"), create=True)
_RING.create("pii")
_WRAPPED = json.loads(_RING.wrap_key(bytes(16), "pii"))


@given(TEXT | JSON.map(json.dumps) | changed(_WRAPPED).map(json.dumps), TEXT | st.just("pii"))
def test_wrapped_keys_of_a_keyring(wrapped: str, name: str) -> None:
    claimed_version(wrapped)
    for ask in (_RING.unwrap_key, _RING.opened_by):
        try:
            ask(wrapped, name)
        except KeyAccessError as error:
            str(error).encode()


_ENTRY = json.loads(keyfile.dump(_RING.list(), None))


@given(
    st.binary(max_size=100)
    | JSON.map(lambda value: json.dumps(value).encode())
    | changed(_ENTRY).map(lambda fields: json.dumps(fields).encode())
    | changed(_ENTRY["keys"]["pii"][0]).map(lambda one: json.dumps({**_ENTRY, "keys": {"pii": [one]}}).encode()),
    st.none() | st.just("passphrase"),
)
def test_keyring_files(text: bytes, passphrase: str | None) -> None:
    try:
        keys, _ = keyfile.load(text, passphrase)
    except KeyAccessError as error:
        str(error).encode()
    else:
        assert keyfile.load(keyfile.dump(keys.values(), None), None)[0] == keys


@given(NAMES, st.binary(min_size=1, max_size=64), st.dictionaries(NAMES, NAMES, max_size=2))
def test_what_clients_pack(version: str, wrapped: bytes, more: dict[str, str]) -> None:
    more = {
        name: value
        for name, value in more.items()
        if name not in ("masterKeyVersion", "encryptedKey", "version", "wrapped")
    }
    assert unpack(pack(version, wrapped, **more), "pii", "a KMS")[:2] == (version, wrapped)


_POLICY = {
    "version": 1,
    "kms": "keyring:",
    "allowed_kms_urls": [],
    "defaults": {
        "algorithm": "AES_GCM_V1",
        "key_bits": 128,
        "max_key_age_days": 3,
        "seal_limit": 9,
        "material": "internal",
    },
    "tables": {
        "t": {"footer_key": "f", "aad_prefix": "{table}/{file}", "columns": {"c": {"key": "k", "filter": {"fpp": 0.1}}}}
    },
}


@given(
    changed(_POLICY)
    | changed(_POLICY["defaults"]).map(lambda one: {**_POLICY, "defaults": one})  # type: ignore[arg-type]
    | changed(_POLICY["tables"]["t"]).map(lambda one: {**_POLICY, "tables": {"t": one}})  # type: ignore[index]
)
def test_policies(document: dict[str, Any]) -> None:
    try:
        policy = Policy.from_dict(document)
    except PolicyError as error:
        str(error).encode("utf-8", "backslashreplace")
        return
    for table in policy.tables.values():
        try:
            table.prefix("x.parquet")
            table.bloom_filters()
            table.keys  # noqa: B018  # made when asked for
        except BloomsealError:
            pass
