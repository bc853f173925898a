"""Key material: parquet-java's own, Arrow's own, ours, and what is none."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow._parquet_encryption as pe_internal
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from bloomseal import KeyTools
from bloomseal.core.encryption import ModuleCipher, ModuleType, SecretKey
from bloomseal.core.errors import KeyAccessError
from bloomseal.core.keys.material import KeyMaterial, KeyMetadata
from bloomseal.core.storage.ref import FileRef
from support.stand_ins import MASTER_KEYS, InMemoryKms, PyArrowKms


def test_every_key_of_parquet_javas_external_file_unwraps(parquet_test_data: Path) -> None:
    store = parquet_test_data / "_KEY_MATERIAL_FOR_external_key_material_java.parquet.encrypted.json"
    materials = {name: KeyMaterial.from_json(text) for name, text in json.loads(store.read_bytes()).items()}
    assert set(materials) == {"footerKey", "columnKey0", "columnKey1"}
    keys = {name: opened(material) for name, material in materials.items()}
    assert {key.bits for key in keys.values()} == {128}
    # That they are the file's keys: the footer opens under the first one.
    data = (parquet_test_data / "external_key_material_java.parquet.encrypted").read_bytes()
    size = int.from_bytes(data[-8:-4], "little")
    tail = data[-8 - size : -8]
    unique = re.search(rb"\x28\x08(.{8})", tail, re.DOTALL)  # AesGcmV1.aad_file_unique, a binary of 8 bytes
    assert unique is not None
    start = _footer_start(tail)
    footer = ModuleCipher(keys["footerKey"]).open(tail[start:], ModuleType.FOOTER, unique[1] + b"\x00")
    assert b"org.example.record_name" in footer


def opened(material: KeyMaterial, tools: KeyTools | None = None) -> SecretKey:
    metadata = KeyMetadata(material=material).to_bytes()
    return (tools or KeyTools(InMemoryKms())).for_file(FileRef("t.parquet")).retrieve_key(metadata, None)


def _footer_start(tail: bytes) -> int:
    """Where the framed footer starts: the only place whose length prefix reaches exactly to the end."""
    fits = [at for at in range(len(tail) - 32) if at + 4 + int.from_bytes(tail[at : at + 4], "little") == len(tail)]
    assert len(fits) == 1
    return fits[0]


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("bits", [128, 192, 256])
def test_keys_that_pyarrow_wrapped_unwrap(tmp_path: Path, double: bool, bits: int) -> None:
    path = tmp_path / "t.parquet"
    config = pe.EncryptionConfiguration(
        footer_key="kf",
        column_keys={"kc1": ["a"]},
        double_wrapping=double,
        data_key_length_bits=bits,
        plaintext_footer=True,
    )
    factory = pe.CryptoFactory(PyArrowKms)
    table = pa.table({"a": [1, 2, 3], "b": [4, 5, 6]})
    with pq.ParquetWriter(
        path, table.schema, encryption_properties=factory.file_encryption_properties(pe.KmsConnectionConfig(), config)
    ) as writer:
        writer.write_table(table)
    found = [KeyMetadata.from_bytes(text) for text in re.findall(rb"\{[^{}]*PKMT1[^{}]*\}", path.read_bytes())]
    materials = {(m.material.is_footer_key, m.material.master_key): m.material for m in found if m.material}
    assert set(materials) == {(True, "kf"), (False, "kc1")}
    tools = KeyTools(PyArrowKms())
    for material in materials.values():
        assert material.double_wrapping is double
        assert opened(material, tools).bits == bits


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("bits", [128, 192, 256])
def test_arrows_own_parser_reads_our_material(double: bool, bits: int) -> None:
    tools = KeyTools(PyArrowKms(), double_wrapping=double, kek_bits=bits)
    keys = tools.for_file(FileRef("t.parquet"), writing=True)
    for column, master_key in ((None, "kf"), ("a", "kc1")):
        key, metadata = keys.new_key(master_key, column, bits)
        ours = KeyMetadata.from_bytes(metadata).material
        theirs = pe_internal.KeyMaterial.parse(metadata)
        assert ours is not None
        assert theirs.is_footer_key is (column is None)
        assert theirs.is_double_wrapped is double
        assert theirs.master_key_id == ours.master_key == master_key
        assert theirs.wrapped_dek == ours.wrapped_dek
        if double:
            assert (theirs.kek_id, theirs.wrapped_kek) == (ours.kek_id, ours.wrapped_kek)
        if column is None:
            assert (theirs.kms_instance_id, theirs.kms_instance_url) == ("DEFAULT", "DEFAULT")
        assert opened(ours) == key


def test_material_survives_a_round_trip() -> None:
    footer = KeyMaterial("arn:aws:kms:eu-west-1:1:key/ä", "d2Vk", True, "a2Vr", "d2Vr", "id", "https://kms.example")
    column = KeyMaterial("kc1", "d2Vk", False)
    for material in (footer, column):
        for internal in (True, False):
            assert KeyMaterial.from_json(material.to_json(internal=internal)) == material
        assert KeyMetadata.from_bytes(KeyMetadata(material=material).to_bytes()) == KeyMetadata(material=material)
    reference = KeyMetadata(reference="columnKey0")
    assert KeyMetadata.from_bytes(reference.to_bytes()) == reference
    assert "kmsInstanceURL" not in column.to_json(internal=True)
    assert "internalStorage" not in column.to_json(internal=False)


def test_long_key_metadata_is_not_remembered() -> None:
    short, long = (KeyMetadata(material=KeyMaterial("kf", "d2Vk" * n, False)) for n in (50, 5_000))
    assert KeyMetadata.from_bytes(short.to_bytes()) is KeyMetadata.from_bytes(short.to_bytes())
    assert KeyMetadata.from_bytes(long.to_bytes()) is not KeyMetadata.from_bytes(long.to_bytes())


GOOD = json.loads(KeyMaterial("kf", "d2Vk", True, "a2Vr", "d2Vr").to_json(internal=True))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"kf",
        b"\xff\xfe",
        b"[]",
        b"null",
        b"[" * 60_000,
        b'{"keyMaterialType":' + b"1" * 50_000 + b"}",
        b" " * 70_000,
        json.dumps({**GOOD, "keyMaterialType": "PKMT2"}).encode(),
        *(
            json.dumps({k: v for k, v in GOOD.items() if k != name}).encode()
            for name in GOOD
            if not name.startswith("kms")
        ),
        *(json.dumps({**GOOD, name: 5}).encode() for name in GOOD),
        json.dumps({"keyMaterialType": "PKMT1", "internalStorage": False}).encode(),
        json.dumps({"keyMaterialType": "PKMT1", "internalStorage": False, "keyReference": ["x"]}).encode(),
    ],
)
def test_what_is_no_key_metadata_is_refused(text: bytes) -> None:
    with pytest.raises(KeyAccessError) as caught:
        KeyMetadata.from_bytes(text)
    assert caught.value.__cause__ is None
    assert not caught.value.retryable


def test_master_keys_of_the_tests_are_the_published_ones() -> None:
    assert MASTER_KEYS["kf"] == b"0123456789012345"
