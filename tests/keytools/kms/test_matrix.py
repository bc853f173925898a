"""Key tools between pyarrow, parquet-java and Bloomseal: who reads whose files, with every kind of key material.

All three hold the same master keys, each in a KMS client of its own. Bloomseal's is a subclass of pyarrow's, unchanged.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

import bloomseal as bs
from support.jvm import Jvm, java_filters, java_probe, java_rotate, java_rows, java_write, key_tools
from support.stand_ins import MASTER_KEYS, PyArrowKms

ROWS = 50
TABLE = pa.table(
    {
        "id": pa.array(range(ROWS), pa.int64()),
        "ssn": [f"{i:09d}" for i in range(ROWS)],
        "note": [f"n{i % 7}" for i in range(ROWS)],
    },
    schema=pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("ssn", pa.string(), nullable=False),
            pa.field("note", pa.string(), nullable=False),
        ]
    ),
)
JAVA_SCHEMA = "message m { required int64 id; required binary ssn (STRING); required binary note (STRING); }"
JAVA_ROWS = [{name: v.encode() if isinstance(v, str) else v for name, v in row.items()} for row in TABLE.to_pylist()]
COLUMNS = {"kc1": ["ssn"], "kc2": ["note"]}

WRITERS = READERS = ("pyarrow", "java", "bloomseal")
MATERIAL = ("internal", "external")
WRAPPING = ("single", "double")
BITS = (128, 256)
FOOTER = ("encrypted", "plaintext")
CELLS = list(product(WRITERS, MATERIAL, WRAPPING, BITS, FOOTER))


def write(writer: str, path: Path, *, internal: bool, double: bool, bits: int, plaintext_footer: bool) -> None:
    if writer == "bloomseal":
        spec = bs.EncryptionSpec(
            footer_key="kf",
            column_keys={column: key for key, columns in COLUMNS.items() for column in columns},
            keys=bs.KeyTools(PyArrowKms(), internal=internal, double_wrapping=double, kek_bits=bits),
            key_bits=bits,
            plaintext_footer=plaintext_footer,
        )
        bs.write_table(TABLE, path, encryption=spec, bloom_filters={"ssn": True})
    elif writer == "pyarrow":
        config = pe.EncryptionConfiguration(
            footer_key="kf",
            column_keys=COLUMNS,
            internal_key_material=internal,
            double_wrapping=double,
            data_key_length_bits=bits,
            plaintext_footer=plaintext_footer,
        )
        properties = pe.CryptoFactory(PyArrowKms).file_encryption_properties(
            pe.KmsConnectionConfig(), config, path, pafs.LocalFileSystem()
        )
        with pq.ParquetWriter(path, TABLE.schema, encryption_properties=properties) as out:
            out.write_table(TABLE)
    else:
        properties = key_tools(
            MASTER_KEYS,
            footer_key="kf",
            column_keys=COLUMNS,
            internal_material=internal,
            double_wrapping=double,
            data_key_bits=bits,
            kek_bits=bits,
            plaintext_footer=plaintext_footer,
        )
        java_write(path, JAVA_SCHEMA, JAVA_ROWS, encryption=properties, filters=["ssn"])


def read(reader: str, path: Path, *, kms: str = "") -> list[dict[str, object]]:
    """The rows. `kms` is the KMS instance that the peers are configured with; without it they go by the key
    material.
    """
    if reader == "bloomseal":
        opened = bs.open_file(path, decryption=bs.DecryptionSpec(bs.KeyTools(PyArrowKms())))
        report = opened.verify()
        assert report.ok
        assert not report.inaccessible
        return opened.read().to_pylist()
    if reader == "pyarrow":
        properties = pe.CryptoFactory(PyArrowKms).file_decryption_properties(
            pe.KmsConnectionConfig(kms_instance_id=kms, kms_instance_url=kms),
            pe.DecryptionConfiguration(),
            path,
            pafs.LocalFileSystem(),
        )
        return pq.ParquetFile(path, decryption_properties=properties).read().to_pylist()
    properties = key_tools(MASTER_KEYS)
    if kms:
        properties |= {"parquet.encryption.kms.instance.id": kms, "parquet.encryption.kms.instance.url": kms}
    rows = java_rows(path, properties)
    return [{name: v.decode() if isinstance(v, bytes) else v for name, v in row.items()} for row in rows]


@pytest.mark.parametrize(("writer", "material", "wrapping", "bits", "footer"), CELLS)
def test_every_reader_opens_what_every_writer_wrote(
    java: Jvm, tmp_path: Path, writer: str, material: str, wrapping: str, bits: int, footer: str
) -> None:
    path = tmp_path / "t.parquet"
    write(
        writer,
        path,
        internal=material == "internal",
        double=wrapping == "double",
        bits=bits,
        plaintext_footer=footer == "plaintext",
    )
    sidecar = tmp_path / "_KEY_MATERIAL_FOR_t.parquet.json"
    assert sidecar.exists() is (material == "external")
    for reader in READERS:
        assert read(reader, path) == TABLE.to_pylist(), reader
    if writer != "pyarrow":  # pyarrow writes no Bloom filters into encrypted files
        wanted, absent = "000000007", "no such"
        java_access = key_tools(MASTER_KEYS)
        assert java_filters(path, "ssn", java_access)[0] is not None
        assert java_probe(path, "ssn", [wanted, absent], java_access) == [[True, False]]
        probed = bs.probe(path, "ssn", [wanted, absent], decryption=bs.DecryptionSpec(PyArrowKms()))
        assert list(probed[0]) == [bs.Verdict.MAYBE_PRESENT, bs.Verdict.ABSENT]


@pytest.mark.parametrize("wrapping", WRAPPING)
@pytest.mark.parametrize("rotator", ["pyarrow", "java"])
@pytest.mark.parametrize("overwritten", [False, True])
def test_other_tools_rotate_our_external_material(
    java: Jvm, tmp_path: Path, rotator: str, wrapping: str, overwritten: bool
) -> None:
    """Master keys rotated by the others' tools: the data file stays as it is, only the store beside it changes.

    They take the entry named "footerKey" for the only footer key. That of a file which was overwritten has another name
    (the plain one was its predecessor's), and so loses the KMS instance; their readers must then be configured with
    one.
    """
    path = tmp_path / "t.parquet"
    for _ in range(1 + overwritten):
        write("bloomseal", path, internal=False, double=wrapping == "double", bits=128, plaintext_footer=False)
    sidecar = tmp_path / "_KEY_MATERIAL_FOR_t.parquet.json"
    data, material = path.read_bytes(), sidecar.read_bytes()
    if rotator == "java":
        properties = key_tools(MASTER_KEYS, internal_material=False, double_wrapping=wrapping == "double")
        java_rotate(tmp_path, properties)
    else:
        factory = pe.CryptoFactory(PyArrowKms)
        factory.rotate_master_keys(
            pe.KmsConnectionConfig(), path, pafs.LocalFileSystem(), double_wrapping=wrapping == "double"
        )
    assert path.read_bytes() == data
    assert sidecar.read_bytes() != material
    for reader in READERS:
        assert read(reader, path, kms="DEFAULT" if overwritten else "") == TABLE.to_pylist(), reader


def test_a_file_that_was_overwritten_is_read_by_all(java: Jvm, tmp_path: Path) -> None:
    """The store then holds material of two files, under references that do not clash."""
    path = tmp_path / "t.parquet"
    for double in (True, False, True):
        write("bloomseal", path, internal=False, double=double, bits=256, plaintext_footer=False)
        for reader in READERS:
            assert read(reader, path) == TABLE.to_pylist(), reader
