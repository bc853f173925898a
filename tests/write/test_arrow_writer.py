"""Files that pyarrow wrote with filters of its own, and files that it encrypted."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

import bloomseal as bs

ROWS = 500
TABLE = pa.table(
    {
        "i": pa.array([None if i % 50 == 7 else i for i in range(ROWS)], pa.int64()),
        "s": [f"s{i}" for i in range(ROWS)],
        "f": pa.array([i / 4 for i in range(ROWS)], pa.float32()),
        "l": pa.array([[i, i + ROWS] for i in range(ROWS)], pa.list_(pa.int32())),
    }
)
MASTER = {"footer": b"f" * 16, "pii": b"p" * 16}


class InMemoryKms(pe.KmsClient):
    """Wraps by exclusive or with the master key: enough for a client that never leaves this process."""

    def __init__(self, _: Any = None) -> None:
        super().__init__()

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        return base64.b64encode(bytes(a ^ b for a, b in zip(key_bytes, MASTER[master_key_identifier], strict=True)))

    def unwrap_key(self, wrapped_key: str | bytes, master_key_identifier: str) -> bytes:
        return bytes(a ^ b for a, b in zip(base64.b64decode(wrapped_key), MASTER[master_key_identifier], strict=True))


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_filters_of_pyarrow(tmp_path: Path, version: str) -> None:
    path = tmp_path / "arrow.parquet"
    columns = {"i": True, "s": {"ndv": 200, "fpp": 0.01}, "f": True, "l.list.element": True}
    pq.write_table(TABLE, path, bloom_filter_options=columns, row_group_size=150, data_page_version=version)
    with bs.open_file(path) as file:
        assert file.read().equals(TABLE)
        for group in range(file.num_row_groups):
            part = TABLE.slice(group * 150, 150)
            asked = {name: part[name].drop_null() for name in ("i", "s", "f")}
            asked["l.list.element"] = pa.chunked_array([part["l"].combine_chunks().flatten()])
            for name, values in asked.items():
                assert set(file.probe(name, values)[group]) == {bs.Verdict.MAYBE_PRESENT}, name
        assert file.probe("i", [10**9]) == [[bs.Verdict.ABSENT]] * 4
        assert file.read(where=[("s", "==", "s333")]).to_pylist()[0]["i"] == 333


@pytest.mark.parametrize("double", [True, False], ids=["double wrapping", "single wrapping"])
@pytest.mark.parametrize("plaintext_footer", [False, True], ids=["sealed footer", "signed footer"])
@pytest.mark.parametrize("algorithm", ["AES_GCM_V1", "AES_GCM_CTR_V1"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_files_that_pyarrow_encrypted(
    tmp_path: Path, version: str, algorithm: str, plaintext_footer: bool, double: bool
) -> None:
    path = tmp_path / "arrow.parquet"
    factory, connection = pe.CryptoFactory(InMemoryKms), pe.KmsConnectionConfig()
    properties = factory.file_encryption_properties(
        connection,
        pe.EncryptionConfiguration(
            footer_key="footer", column_keys={"pii": ["s", "i"]}, encryption_algorithm=algorithm,
            plaintext_footer=plaintext_footer, double_wrapping=double,
        ),
    )  # fmt: skip
    pq.write_table(
        TABLE,
        path,
        encryption_properties=properties,
        row_group_size=150,
        data_page_version=version,
        write_page_index=True,
    )
    decryption = bs.DecryptionSpec(InMemoryKms(), allow_ctr=algorithm == "AES_GCM_CTR_V1")
    with bs.open_file(path, decryption=decryption) as file:
        assert file.read().equals(TABLE)
        assert file.verify().ok
        assert file.read(where=[("s", "==", "s333")]).to_pylist()[0]["i"] == 333
    bs.attach_filters(path, {"s": True}, decryption=decryption)
    with bs.open_file(path, decryption=decryption) as file:
        assert file.verify().ok
        assert [group.count(bs.Verdict.ABSENT) for group in file.probe("s", ["nowhere"])].count(1) >= 3
    reading = factory.file_decryption_properties(connection)
    assert pq.read_table(path, decryption_properties=reading).equals(TABLE)
