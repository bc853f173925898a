"""Every published vector: AGS1 streams, key metadata, and tables with the rows and refusals that they must give."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import bloomseal as bs
import bloomseal.polars as bp
from bloomseal.core.encryption import SecretKey
from bloomseal.core.storage.source import Source
from bloomseal.storage.logs.ags1 import Ags1Stream
from bloomseal.storage.logs.iceberg_keys import IcebergFileKey, IcebergTableKeys
from support.iceberg_vectors import expected

Spec = Callable[..., bs.DecryptionSpec]
BLOCK = 1 << 20
HEADER = b"AGS1" + BLOCK.to_bytes(4, "little")

EXPECTED = expected()
OTHER_FORMATS = ("avro16",)
READ = ("dv16", "eqdel16", "parts16", "people16", "small32", "hole_statistics_key")
UNPINNED = ("hole_rollback",)
UNKNOWN_LENGTH = ("hole_null_length", "hole_rust_like")
REFUSED = {
    "hole_clear_avro": (bs.PolicyError, "a data file in clear"),
    "hole_clear_bounds": (bs.PolicyError, "a manifest in clear"),
    "hole_clear_data_file": (bs.PolicyError, "a data file in clear"),
    "hole_foreign_master": (bs.PolicyError, "'master-evil', and 'master-main' is expected"),
    "hole_kek_no_timestamp": (bs.FormatError, "no timestamp"),
    "hole_manifest_replaced": (bs.FormatError, "not an AGS1 stream"),
    "hole_no_key_id": (bs.PolicyError, "no key-id"),
    "hole_null_length": (bs.PolicyError, "no length"),
    "hole_rest_clear": (bs.PolicyError, "no key-id"),
    "hole_rust_like": (bs.PolicyError, "no length"),
    "hole_swapped_manifests": (bs.IntegrityError, "does not authenticate"),
    "hole_vector_without_key": (bs.PolicyError, "deletes without a key"),
    "hole_truncated_list_zero": (bs.FormatError, "cut: 8 bytes of 4960"),
}


def test_every_table_is_in_a_test() -> None:
    assert {*OTHER_FORMATS, *READ, *UNPINNED, *REFUSED} == set(EXPECTED)


def rows_of(table: pa.Table) -> list[str]:
    plain = table.set_column(5, "born", table["born"].cast(pa.string()))
    plain = plain.set_column(4, "balance", table["balance"].cast(pa.float64()))
    return sorted(map(str, (list(row.values()) for row in plain.to_pylist())))


def wanted(name: str, rows: str = "rows") -> list[str]:
    return sorted(map(str, EXPECTED[name][rows]))


@pytest.mark.parametrize("name", READ)
def test_rows_of_a_table(vectors: Path, spec: Spec, name: str) -> None:
    master = EXPECTED[name]["master_key"]
    table = bs.open_table(vectors / "tables" / name, decryption=spec(master))
    assert rows_of(table.read()) == wanted(name)
    lazy = bp.scan(vectors / "tables" / name, decryption=spec(master))
    assert sorted(lazy.select("id").collect()["id"]) == sorted(row[0] for row in EXPECTED[name]["rows"])


@pytest.mark.parametrize("name", [name for name in READ if EXPECTED[name].get("snapshots")])
def test_each_snapshot(vectors: Path, spec: Spec, name: str) -> None:
    for version, ids in EXPECTED[name]["snapshots"].items():
        options = {"decryption": spec(EXPECTED[name]["master_key"]), "version": int(version)}
        assert sorted(bs.read_table(vectors / "tables" / name, **options)["id"].to_pylist()) == ids


@pytest.mark.parametrize("name", [name for name in READ if EXPECTED[name].get("probes")])
def test_sealed_filters_answer(vectors: Path, spec: Spec, name: str) -> None:
    place = vectors / "tables" / name
    table = bs.open_table(place, decryption=spec(EXPECTED[name]["master_key"]))
    for column, asked in EXPECTED[name]["probes"].items():
        answers = table.probe(column, [one["value"] for one in asked])
        maybe = [
            {path for path, groups in answers.items() if any(group[number] != "absent" for group in groups)}
            for number in range(len(asked))
        ]
        assert maybe == [{str(place / path) for path in one["maybe_in"]} for one in asked]
        for one in asked:
            found = table.read(["id"], [(column, "==", one["value"])]).num_rows
            assert bool(found) == bool(one["held_by"])


@pytest.mark.parametrize("name", [*REFUSED])
def test_a_hole_is_refused(vectors: Path, spec: Spec, name: str) -> None:
    kind, message = REFUSED[name]
    with pytest.raises(kind, match=message) as refused:
        bs.open_table(vectors / "tables" / name, decryption=spec())
    assert refused.value.file is not None


@pytest.mark.parametrize("name", OTHER_FORMATS)
def test_what_is_not_read_is_refused(vectors: Path, spec: Spec, name: str) -> None:
    with pytest.raises(bs.UnsupportedError, match="with data in AVRO"):
        bs.open_table(vectors / "tables" / name, decryption=spec())


@pytest.mark.parametrize("name", UNKNOWN_LENGTH)
def test_a_length_that_the_storage_tells(vectors: Path, spec: Spec, name: str) -> None:
    table = bs.open_table(vectors / "tables" / name, decryption=spec(allow_unknown_length=True))
    assert rows_of(table.read()) == wanted(name, "rows_if_trusted")


def test_a_rollback_is_seen_by_whoever_pins(vectors: Path, spec: Spec) -> None:
    place, pin = vectors / "tables" / "hole_rollback", EXPECTED["hole_rollback"]["pin"]
    assert bs.read_table(place, decryption=spec()).num_rows == 24
    with pytest.raises(bs.PolicyError, match="an older state"):
        bs.open_table(place, decryption=spec(min_sequence_number=pin["last_sequence_number"]))
    with pytest.raises(bs.PolicyError, match="metadata_hash"):
        bs.open_table(place, decryption=spec(metadata_hash=pin["metadata_sha256"]))
    with pytest.raises(bs.FormatError, match="no snapshot"):
        bs.open_table(place, decryption=spec(), version=pin["snapshot_id"])


def test_pins_that_fit(vectors: Path, spec: Spec) -> None:
    place = vectors / "tables" / "people16"
    newest = max((place / "metadata").glob("*.metadata.json"))
    pins = {"min_sequence_number": 3, "metadata_hash": hashlib.sha256(newest.read_bytes()).hexdigest()}
    assert bs.read_table(place, decryption=spec(**pins)).num_rows == 108


def test_one_call_to_the_kms(vectors: Path, keyring: bs.Keyring) -> None:
    tools = bs.KeyTools(keyring)
    decryption = bs.DecryptionSpec(tools, iceberg=bs.IcebergSpec("master-main"))
    for _ in range(2):
        assert bs.read_table(vectors / "tables" / "parts16", decryption=decryption).num_rows == 40
    assert (tools.counters.unwraps, tools.counters.hits) == (1, 1)


def test_streams(vectors: Path) -> None:
    for one in json.loads((vectors / "ags1.json").read_text())["streams"]:
        content = bytes(((i % 63001) * 31 + (i % 63001) // 251) % 251 for i in range(one["length"]))
        key, prefix = bytes.fromhex(one["key"]), bytes.fromhex(one["aad_prefix"])
        blocks = [
            bytes.fromhex(nonce)
            + AESGCM(key).encrypt(
                bytes.fromhex(nonce), content[i * BLOCK : (i + 1) * BLOCK], prefix + i.to_bytes(4, "little")
            )
            for i, nonce in enumerate(one["nonces"])
        ]
        whole = HEADER + b"".join(blocks)
        assert hashlib.sha256(whole).hexdigest() == one["file_sha256"]
        stream = Ags1Stream(Source.memory(whole), SecretKey(key), prefix, len(whole))
        assert (stream.size, stream.read(0, stream.size)) == (len(content), content)
        for start in (0, BLOCK - 1, BLOCK):
            length = max(min(3, len(content) - start), 0)
            if length:
                assert stream.read(start, length) == content[start : start + length]
        assert {wrong["change"] for wrong in one["wrong"]} <= set(CHANGES)
        for wrong in one["wrong"]:
            changed = CHANGES[wrong["change"]](whole, blocks)
            assert hashlib.sha256(changed).hexdigest() == wrong["sha256"]

            def read(data: bytes = changed, length: int = wrong["told_length"]) -> bytes:
                found = Ags1Stream(Source.memory(data), SecretKey(key), prefix, length)  # noqa: B023
                return found.read(0, found.size)

            if wrong["want"] == "whole":
                assert read() == content
            else:
                with pytest.raises((bs.FormatError, bs.IntegrityError)):
                    read()


CHANGES: dict[str, Callable[[bytes, list[bytes]], bytes]] = {
    "append 00": lambda whole, _: whole + bytes(1),
    "append 00, told": lambda whole, _: whole + bytes(40),
    "flip first byte of magic": lambda whole, _: bytes([whole[0] ^ 3]) + whole[1:],
    "block length 1048577": lambda whole, _: whole[:4] + (BLOCK + 1).to_bytes(4, "little") + whole[8:],
    "flip last byte": lambda whole, _: whole[:-1] + bytes([whole[-1] ^ 1]),
    "cut last byte": lambda whole, _: whole[:-1],
    "cut to the header": lambda whole, _: whole[:8],
    "cut behind the first block": lambda whole, blocks: whole[: 8 + len(blocks[0])],
    "exchange the first two blocks": lambda _, blocks: HEADER + b"".join([blocks[1], blocks[0], *blocks[2:]]),
    "first block twice": lambda _, blocks: HEADER + b"".join([blocks[0], blocks[0], *blocks[2:]]),
}


def test_key_metadata(vectors: Path) -> None:
    document = json.loads((vectors / "key_metadata.json").read_text())
    for good in document["good"]:
        found = IcebergFileKey.parse(bytes.fromhex(good["hex"]))
        assert (found.key.reveal().hex(), found.prefix.hex()) == (good["key"], good["aad_prefix"])
        assert found.length == good["length"]
        assert good["key"] not in repr(found)
    for wrong in document["wrong"]:
        with pytest.raises(bs.FormatError):
            IcebergFileKey.parse(bytes.fromhex(wrong["hex"]))


def test_what_another_implementation_wrote(vectors: Path) -> None:
    document = json.loads((vectors / "rust" / "TableMetadataV3ValidEncryption.json").read_text())
    (snapshot,) = (one for one in document["snapshots"] if "key-id" in one)
    master = SecretKey(bytes(range(16)))

    def unwrap(wrapped: bytes, name: str) -> SecretKey:
        assert name == "master-1"
        return SecretKey(AESGCM(master.reveal()).decrypt(wrapped[:12], wrapped[12:], None))

    _, key = IcebergTableKeys(document, bs.IcebergSpec("master-1"), unwrap).manifest_list(snapshot)
    assert key.length is None
    sealed = (vectors / "rust" / "manifest-list-v3-encrypted.avro").read_bytes()
    stream = Ags1Stream(Source.memory(sealed), key.key, key.prefix, len(sealed))
    assert (stream.size, stream.read(0, 4)) == (1532, b"Obj\x01")
