"""parquet-java reads the rows that Bloomseal wrote, and its probes find every value in the filters that Bloomseal
sealed.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import bloomseal as bs
from support.interop_data import DATA, ROW_GROUP, ROWS, DataSet, key_places
from support.jvm import (
    JavaAccess,
    JavaCallError,
    JavaDecryption,
    JavaEncryption,
    java_describe,
    java_filters,
    java_probe,
    java_rows,
    java_surviving,
    java_write,
    key_tools,
    physical_bits,
)
from support.pairwise import matrix

pytestmark = pytest.mark.usefixtures("java")

PREFIX = b"warehouse/customers/part-7"
CODECS = ("none", "snappy", "gzip", "zstd", "lz4")


def answers_hold(path: Path, data: DataSet, access: JavaAccess) -> None:
    """Every value is found in its own row group, and each filter tells some of the other row group's values apart."""
    for leaf in data.leaves:
        first, second = data.stored(leaf, 0), data.stored(leaf, 1)
        answers = java_probe(path, leaf, [*first, *second], access)
        assert answers[0] is not None, f"{leaf}: no filter"
        assert answers[1] is not None, f"{leaf}: no filter"
        assert answers[0][: len(first)] == [True] * len(first), leaf
        assert answers[1][len(first) :] == [True] * len(second), leaf
        others = [found for found, value in zip(answers[0][len(first) :], second, strict=True) if value not in first]
        assert not others or not all(others), f"{leaf}: a filter that holds everything"


@matrix(
    footer=("encrypted", "plaintext"),
    algorithm=("AES_GCM_V1", "AES_GCM_CTR_V1"),
    mode=("uniform", "columns", "complete"),
    bits=(128, 192, 256),
    data=("arrow types", "nested"),
    dictionary=(False, True),
    aad=("none", "stored", "supplied"),
    layout=("row_group", "end"),
)
def test_rows_and_filters(tmp_path: Path, case: dict[str, Any]) -> None:
    path, data = tmp_path / "ours.parquet", DATA[case["data"]]
    footer_key, column_keys = key_places(data, case["mode"], case["bits"])
    bs.write_table(
        data.table,
        path,
        row_group_size=ROW_GROUP,
        encryption=bs.EncryptionSpec(
            footer_key=footer_key,
            column_keys=column_keys,
            algorithm=case["algorithm"],
            plaintext_footer=case["footer"] == "plaintext",
            complete=case["mode"] == "complete",
            aad_prefix=None if case["aad"] == "none" else PREFIX,
            store_aad_prefix=case["aad"] != "supplied",
        ),
        bloom_filters={leaf: bs.FilterSpec(fpp=0.001) for leaf in data.leaves},
        filter_layout=case["layout"],
        use_dictionary=case["dictionary"],
        data_page_size=256,
        write_page_index=True,
        compression=CODECS[sum(map(len, map(str, case.values()))) % len(CODECS)],
    )
    access = JavaDecryption(footer_key, column_keys, aad_prefix=PREFIX if case["aad"] == "supplied" else None)
    assert physical_bits(java_rows(path, access)) == physical_bits(data.rows)
    answers_hold(path, data, access)

    facts = java_describe(path, access)
    assert facts["encryption"] == f"{case['footer'].upper()}_FOOTER"
    assert [(group["ordinal"], group["rows"]) for group in facts["row_groups"]] == [
        (0, ROW_GROUP),
        (1, ROWS - ROW_GROUP),
    ]
    for group in facts["row_groups"]:
        own = {column["path"] for column in group["columns"] if column["own_metadata"]}
        assert own >= set(column_keys)
        assert all(column["filter_length"] > 0 for column in group["columns"])
        assert any(column["dictionary"] for column in group["columns"]) == case["dictionary"]
    if case["aad"] == "supplied":
        with pytest.raises(JavaCallError, match="AAD prefix"):
            java_rows(path, JavaDecryption(footer_key, column_keys))


def test_both_open_the_same_bits_and_java_prunes_by_them(tmp_path: Path) -> None:
    path, data = tmp_path / "ours.parquet", DATA["arrow types"]
    footer_key, column_keys = key_places(data, "complete", 128)
    bs.write_table(
        data.table,
        path,
        row_group_size=ROW_GROUP,
        encryption=bs.EncryptionSpec(footer_key, column_keys, complete=True),
        bloom_filters={leaf: bs.FilterSpec(fpp=0.0001) for leaf in data.leaves},
    )
    access = JavaDecryption(footer_key, column_keys)
    with bs.open_file(path, decryption=bs.DecryptionSpec(bs.ExplicitKeys(footer_key, column_keys))) as file:
        for leaf in data.leaves:
            for row_group, theirs in enumerate(java_filters(path, leaf, access)):
                ours = file.filter(row_group, leaf)
                assert ours is not None
                assert theirs is not None
                assert bytes(ours.bitset) == theirs.bitset
    for leaf in ("plain_int64", "string", "float64", "date"):
        for row_group in (0, 1):
            kept = [java_surviving(path, leaf, value, access) for value in data.stored(leaf, row_group)[:20]]
            assert all(row_group in groups for groups in kept)
            assert [row_group] in kept, f"{leaf}: nothing was pruned"


def test_without_a_column_s_key_java_reads_the_other_columns(tmp_path: Path) -> None:
    path, data = tmp_path / "ours.parquet", DATA["nested"]
    for plaintext_footer in (False, True):
        bs.write_table(
            data.table,
            path,
            encryption=bs.EncryptionSpec(
                b"F" * 16, {"person": b"P" * 16}, plaintext_footer=plaintext_footer, complete=True
            ),
            bloom_filters={"person.name": True, "id": True},
        )
        access = JavaDecryption(b"F" * 16)
        rest = [{name: row[name] for name in ("id", "tags", "scores")} for row in data.rows]
        assert java_rows(path, access, columns=["id", "tags", "scores"]) == rest
        assert java_probe(path, "id", [0, 119], access) == [[True, True]]
        with pytest.raises(JavaCallError, match="column-specific key"):
            java_rows(path, access)


def test_a_reader_without_keys_sees_only_what_a_plaintext_footer_leaves_in_clear(tmp_path: Path) -> None:
    path, data = tmp_path / "ours.parquet", DATA["nested"]
    bs.write_table(
        data.table,
        path,
        encryption=bs.EncryptionSpec(b"F" * 16, {"person": b"P" * 16}, plaintext_footer=True),
        bloom_filters={"person.name": True, "id": True},
    )
    rest = [{name: row[name] for name in ("id", "tags", "scores")} for row in data.rows]
    assert java_rows(path, columns=["id", "tags", "scores"]) == rest


@pytest.mark.parametrize("footer", ["encrypted", "plaintext", "none"])
@pytest.mark.parametrize("page_version", [1, 2])
def test_filters_attached_to_a_file_of_parquet_java(tmp_path: Path, footer: str, page_version: int) -> None:
    path, data = tmp_path / "theirs.parquet", DATA["types"]
    footer_key, column_keys = key_places(data, "complete", 128)
    encryption = JavaEncryption(footer_key, column_keys, plaintext_footer=footer == "plaintext", complete=True)
    java_write(
        path,
        data.schema,
        data.rows,
        encryption=None if footer == "none" else encryption,
        row_group_rows=ROW_GROUP,
        page_version=page_version,
    )
    keys = bs.DecryptionSpec(bs.ExplicitKeys(footer_key, column_keys))
    access = None if footer == "none" else JavaDecryption(footer_key, column_keys)
    assert java_probe(path, "string", ["x"], access) == [None, None]

    wanted = {leaf: bs.FilterSpec(fpp=0.001) for leaf in data.leaves}
    bs.attach_filters(path, wanted, decryption=None if footer == "none" else keys)
    assert physical_bits(java_rows(path, access)) == physical_bits(data.rows)
    answers_hold(path, data, access)


class _SharedKms:
    """`TestKmsClient.java` in Python."""

    def __init__(self, masters: dict[str, bytes]) -> None:
        self._masters = masters

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        nonce = os.urandom(12)
        sealed = AESGCM(self._masters[master_key_identifier]).encrypt(nonce, key_bytes, master_key_identifier.encode())
        return base64.b64encode(nonce + sealed).decode()

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        raw = base64.b64decode(wrapped_key)
        return AESGCM(self._masters[master_key_identifier]).decrypt(raw[:12], raw[12:], master_key_identifier.encode())


@pytest.mark.parametrize("bits", [128, 192, 256])
@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_key_material_that_bloomseal_wrapped(tmp_path: Path, bits: int, plaintext_footer: bool) -> None:
    """With a KMS client of the form that pyarrow and parquet-java share; parquet-java's own unwraps the same keys."""
    path, data = tmp_path / "ours.parquet", DATA["nested"]
    masters = {"footer master": b"M" * 16, "column master": b"N" * 32}
    bs.write_table(
        data.table,
        path,
        row_group_size=ROW_GROUP,
        encryption=bs.EncryptionSpec(
            "footer master",
            {"person": "column master"},
            keys=_SharedKms(masters),
            key_bits=bits,
            plaintext_footer=plaintext_footer,
            complete=True,
        ),
        bloom_filters=dict.fromkeys(data.leaves, True),
    )
    assert physical_bits(java_rows(path, key_tools(masters))) == physical_bits(data.rows)
    answers_hold(path, data, key_tools(masters))
    with pytest.raises(JavaCallError):
        java_rows(path, key_tools({**masters, "column master": b"X" * 32}))
