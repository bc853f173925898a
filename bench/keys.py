"""The master keys of the benchmark, as every implementation gets them: published, worth nothing, and the same
for all.
"""

from __future__ import annotations

import base64
import os
from typing import Final

import pyarrow.parquet.encryption as pe
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import bloomseal as bs

__all__ = ["MASTER_KEYS", "BenchKms", "Keys"]

MASTER_KEYS: Final = {"footer": b"bench footer key", "pii": b"bench column key"}


class BenchKms(pe.KmsClient):
    """A KMS in memory: base64(nonce, ciphertext, tag) under the master key, its name as AAD. `calls` counts round
    trips.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        """The key under a master key."""
        self.calls += 1
        nonce = os.urandom(12)
        name = master_key_identifier.encode()
        return base64.b64encode(
            nonce + AESGCM(MASTER_KEYS[master_key_identifier]).encrypt(nonce, key_bytes, name)
        ).decode()

    def unwrap_key(self, wrapped_key: str | bytes, master_key_identifier: str) -> bytes:
        """The key that `wrap_key` wrapped."""
        self.calls += 1
        blob = base64.b64decode(wrapped_key)
        cipher = AESGCM(MASTER_KEYS[master_key_identifier])
        return cipher.decrypt(blob[:12], blob[12:], master_key_identifier.encode())


class Keys:
    """Ways to the same master keys: Bloomseal's key tools and pyarrow's, each with its cache of key encryption keys."""

    def __init__(self) -> None:
        self.kms = BenchKms()
        self.tools = bs.KeyTools(self.kms)
        self.decryption = bs.DecryptionSpec(self.tools)
        self._factory = pe.CryptoFactory(lambda _config: BenchKms())
        self._connection = pe.KmsConnectionConfig()

    def encryption(self, columns: tuple[str, ...] = ("ssn", "email"), **options: object) -> bs.EncryptionSpec:
        """Bloomseal's: these columns under the key for personal data, or uniform encryption where there are none."""
        column_keys = dict.fromkeys(columns, "pii") or None
        return bs.EncryptionSpec(footer_key="footer", column_keys=column_keys, keys=self.tools, **options)  # type: ignore[arg-type]

    def arrow_encryption(self, columns: tuple[str, ...] = ("ssn", "email")) -> pe.FileEncryptionProperties:
        """pyarrow's, the same."""
        keys = {"column_keys": {"pii": list(columns)}} if columns else {"uniform_encryption": True}
        configuration = pe.EncryptionConfiguration(footer_key="footer", **keys)
        return self._factory.file_encryption_properties(self._connection, configuration)

    def arrow_decryption(self) -> pe.FileDecryptionProperties:
        """pyarrow's, for one file."""
        return self._factory.file_decryption_properties(self._connection)

    def arrow_dataset_format(self) -> object:
        """pyarrow's file format for datasets of encrypted files."""
        import pyarrow.dataset as ds

        config = ds.ParquetDecryptionConfig(self._factory, self._connection, pe.DecryptionConfiguration())
        return ds.ParquetFileFormat(
            default_fragment_scan_options=ds.ParquetFragmentScanOptions(decryption_config=config)
        )
