"""AADs to the byte, framing, published files, seals counted, keys that show nothing."""

from __future__ import annotations

import copy
import gc
import hashlib
import os
import pickle
import signal
import threading
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

import bloomseal as bs
from bloomseal import FormatError, IntegrityError, KeyAccessError, UnsupportedError, UsageError
from bloomseal.core.encryption import (
    FRAME_BYTES,
    SIGNATURE_BYTES,
    Algorithm,
    ModuleCipher,
    ModuleType,
    SealCounter,
    SecretKey,
    file_aad,
    framed_length,
    module_aad,
    page_aads,
)
from bloomseal.core.limits import MAX_MODULE_BYTES

KEY = bytes(range(16))


@pytest.mark.parametrize(
    ("kind", "ordinals", "expected"),
    [
        (ModuleType.FOOTER, (), "00"),
        (ModuleType.COLUMN_META_DATA, (1, 2), "01 0100 0200"),
        (ModuleType.DATA_PAGE, (1, 2, 3), "02 0100 0200 0300"),
        (ModuleType.DICTIONARY_PAGE, (1, 2), "03 0100 0200"),
        (ModuleType.DATA_PAGE_HEADER, (256, 32767, 3), "04 0001 ff7f 0300"),
        (ModuleType.DICTIONARY_PAGE_HEADER, (1, 2), "05 0100 0200"),
        (ModuleType.COLUMN_INDEX, (1, 2), "06 0100 0200"),
        (ModuleType.OFFSET_INDEX, (1, 2), "07 0100 0200"),
        (ModuleType.BLOOM_FILTER_HEADER, (1, 2), "08 0100 0200"),
        (ModuleType.BLOOM_FILTER_BITSET, (1, 2), "09 0100 0200"),
        (ModuleType.COLUMN_META_DATA, (-1, 2), "01 ffff 0200"),
    ],
    ids=lambda value: value.label if isinstance(value, ModuleType) else None,
)
def test_aads_to_the_byte(kind: ModuleType, ordinals: tuple[int, ...], expected: str) -> None:
    """Parquet encryption, section 4.4.2: only data pages and their headers carry a page ordinal."""
    aad = file_aad(b"table", b"\x01\x02\x03\x04\x05\x06\x07\x08")
    assert module_aad(aad, kind, *ordinals) == b"table\x01\x02\x03\x04\x05\x06\x07\x08" + bytes.fromhex(expected)


@pytest.mark.parametrize("place", ["row_group", "column", "page"])
def test_ordinals_beyond_int16_do_not_exist(place: str) -> None:
    with pytest.raises(UnsupportedError, match="32768"):
        module_aad(b"", ModuleType.DATA_PAGE, **({"row_group": 0, "column": 0, "page": 0} | {place: 32768}))


def test_the_last_ordinals_exist() -> None:
    for kind in ModuleType:
        assert module_aad(b"", kind, 32767, 32767, 32767).endswith(b"" if kind is ModuleType.FOOTER else b"\xff\x7f")


def test_aads_of_many_pages_are_those_of_one() -> None:
    pages = [kind for kind in ModuleType if "page" in kind.label.lower()]
    assert len(pages) == 4
    made = page_aads(b"file", 3, 4)
    for kind in pages:
        for page in (0, 1, 258, 32767):
            assert made(kind, page) == module_aad(b"file", kind, 3, 4, page)
    for kind in (ModuleType.DATA_PAGE, ModuleType.DATA_PAGE_HEADER):
        with pytest.raises(UnsupportedError, match="32768") as caught:
            made(kind, 32768)
        assert caught.value.module == kind.label


def test_a_sealed_module_is_what_the_specification_draws() -> None:
    """Length, nonce, ciphertext and tag, opened here by nothing but AES-GCM."""
    sealed = bytes(ModuleCipher(SecretKey(KEY)).seal(b"plain", ModuleType.COLUMN_INDEX, b"aad"))
    assert int.from_bytes(sealed[:4], "little") == len(sealed) - 4 == 12 + 5 + 16
    assert AESGCM(KEY).decrypt(sealed[4:16], sealed[16:], b"aad") == b"plain"


@given(st.binary(max_size=200), st.sampled_from(Algorithm), st.sampled_from(ModuleType), st.sampled_from([16, 24, 32]))
def test_opening_undoes_sealing(plain: bytes, algorithm: Algorithm, kind: ModuleType, size: int) -> None:
    cipher = ModuleCipher(SecretKey(bytes(size)), algorithm)
    sealed = cipher.seal(plain, kind, b"aad")
    assert len(sealed) == len(plain) + cipher.overhead(kind)
    assert cipher.open(sealed, kind, b"aad") == plain
    if cipher.overhead(kind) == FRAME_BYTES:
        with pytest.raises(IntegrityError):
            cipher.open(sealed, kind, b"aae")


def test_no_nonce_comes_twice() -> None:
    cipher = ModuleCipher(SecretKey(KEY))
    assert len({bytes(cipher.seal(b"", ModuleType.FOOTER, b"")[4:16]) for _ in range(2000)}) == 2000


@pytest.mark.parametrize("framed", [b"", b"\x01", b"\x0b\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\x80"])
def test_lengths_that_no_module_has(framed: bytes) -> None:
    with pytest.raises(FormatError):
        framed_length(framed, ModuleType.FOOTER)


def test_the_shortest_and_the_longest_length() -> None:
    for length in (12, MAX_MODULE_BYTES):
        assert framed_length(length.to_bytes(4, "little"), ModuleType.FOOTER) == length + 4
    for length in (11, MAX_MODULE_BYTES + 1):
        with pytest.raises(FormatError):
            framed_length(length.to_bytes(4, "little"), ModuleType.FOOTER)
    assert framed_length(b"\xff" * 3 + (12).to_bytes(4, "little"), ModuleType.FOOTER, 3) == 16


@pytest.mark.parametrize("framed", [b"", b"\x0b\0\0\0", b"\x10\0\0\0" + bytes(15), b"\x10\0\0\0" + bytes(17)])
def test_a_frame_that_does_not_fit_names_its_module(framed: bytes) -> None:
    for algorithm in Algorithm:
        with pytest.raises(FormatError) as caught:
            ModuleCipher(SecretKey(KEY), algorithm).open(framed, ModuleType.DATA_PAGE, b"")
        assert caught.value.module == ModuleType.DATA_PAGE.label


@pytest.mark.parametrize("algorithm", Algorithm)
def test_opening_into_a_buffer_is_opening(algorithm: Algorithm) -> None:
    cipher = ModuleCipher(SecretKey(KEY), algorithm)
    assert cipher.algorithm is algorithm
    for kind in (ModuleType.DATA_PAGE, ModuleType.COLUMN_INDEX):
        for plain in (b"", b"plain"):
            sealed = cipher.seal(plain, kind, b"aad")
            out = bytearray(cipher.opened_size(sealed, kind))
            cipher.open_into(sealed, kind, b"aad", memoryview(out))
            assert out == plain
            if cipher.overhead(kind) == FRAME_BYTES:
                with pytest.raises(IntegrityError) as caught:
                    cipher.open_into(sealed, kind, b"aae", memoryview(out))
                assert caught.value.module == kind.label


@pytest.mark.parametrize("length", [12, 27])
def test_a_frame_without_room_for_its_tag(length: int) -> None:
    with pytest.raises(FormatError):
        ModuleCipher(SecretKey(KEY)).open(length.to_bytes(4, "little") + bytes(length), ModuleType.FOOTER, b"")


def test_a_signature_covers_every_byte() -> None:
    cipher = ModuleCipher(SecretKey(KEY))
    signature = cipher.sign(b"footer", b"aad")
    assert len(signature) == SIGNATURE_BYTES
    cipher.verify(b"footer", signature, b"aad")
    for footer, other, aad in (
        (b"footes", signature, b"aad"),
        (b"footer\0", signature, b"aad"),
        (b"footer", signature, b"aae"),
        (b"footer", bytes(28), b"aad"),
        (b"footer", signature[:-1], b"aad"),
    ):
        with pytest.raises(IntegrityError) as caught:
            cipher.verify(footer, other, aad)
        assert signature[12:].hex() not in str(caught.value)


def test_published_filters_open_with_their_published_keys(parquet_test_data: Path) -> None:
    """Files of parquet-java in apache/parquet-testing: 2,000 values i + 0.5 and i + 0.25, i from 0."""
    keys = bs.ExplicitKeys(
        keys_by_id={"kf": b"0123456789012345", "kc1": b"1234567890123450", "kc2": b"1234567890123451"}
    )
    path = parquet_test_data / "encrypt_columns_and_footer_bloom_filter.parquet.encrypted"
    if not path.is_file():
        path = next(parquet_test_data.rglob(path.name), path)
    with bs.open_file(path, decryption=bs.DecryptionSpec(keys)) as file:
        assert file.verify().ok
        for column, offset in (("double_field", 0.5), ("float_field", 0.25)):
            verdicts = file.probe(column, [i + offset for i in range(2000)])
            assert {answer for group in zip(*verdicts, strict=True) for answer in group} == {bs.Verdict.MAYBE_PRESENT}
            absent = file.probe(column, [i + 0.125 for i in range(2000)])[0].count(bs.Verdict.ABSENT)
            assert absent > 1800


def test_equal_keys_share_one_count() -> None:
    one, other = SecretKey(b"count" * 3 + b"1"), SecretKey(b"count" * 3 + b"1")
    first, second = ModuleCipher(one), ModuleCipher(other)
    before = SealCounter.of(one).count
    first.seal(b"", ModuleType.FOOTER, b"")
    second.seal(b"", ModuleType.DATA_PAGE, b"")
    second.sign(b"", b"")
    assert SealCounter.of(other).count == before + 3
    assert SealCounter.of(SecretKey(b"count" * 3 + b"2")).count == 0


def test_the_count_of_a_key_made_here_lives_as_long_as_a_cipher_of_it() -> None:
    key = SecretKey.generate()
    first, second = ModuleCipher(key), ModuleCipher(key)
    first.seal(b"", ModuleType.FOOTER, b"")
    SealCounter.of(key).lower_limit(1)
    del first
    gc.collect()
    with pytest.raises(KeyAccessError, match="limit is 1"):
        second.seal(b"", ModuleType.FOOTER, b"")


def test_keys_that_only_open_leave_nothing_behind() -> None:
    sealed = ModuleCipher(SecretKey(b"count" * 3 + b"3")).seal(b"x", ModuleType.FOOTER, b"")
    kept = len(SealCounter._kept)
    for number in range(10):
        with pytest.raises(IntegrityError):
            ModuleCipher(SecretKey(b"count" * 3 + b"%c" % (200 + number))).open(sealed, ModuleType.FOOTER, b"")
    assert len(SealCounter._kept) == kept


def test_the_limit_stops_sealing_and_can_only_be_lowered() -> None:
    key = SecretKey.generate()
    cipher, counter = ModuleCipher(key), SealCounter.of(key)
    assert counter.limit == 1 << 32
    counter.lower_limit(2)
    counter.lower_limit(100)
    cipher.seal(b"", ModuleType.FOOTER, b"")
    sealed = cipher.seal(b"x", ModuleType.FOOTER, b"")
    for act in (lambda: cipher.seal(b"", ModuleType.FOOTER, b""), lambda: cipher.sign(b"", b"")):
        with pytest.raises(KeyAccessError, match="limit is 2"):
            act()
    assert cipher.open(sealed, ModuleType.FOOTER, b"") == b"x"


def test_seals_are_counted_across_threads() -> None:
    key = SecretKey.generate()
    cipher = ModuleCipher(key)
    threads = [
        threading.Thread(target=lambda: [cipher.seal(b"", ModuleType.FOOTER, b"") for _ in range(500)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert SealCounter.of(key).count == 2000


def test_the_count_of_a_key_from_outside_outlives_the_key() -> None:
    value = os.urandom(16)
    ModuleCipher(SecretKey(value)).seal(b"", ModuleType.FOOTER, b"")
    gc.collect()
    assert SealCounter.of(SecretKey(value)).count == 1


def test_the_count_of_a_key_made_here_does_not() -> None:
    """A process that writes a million files would keep a million counts."""
    key, kept = SecretKey.generate(), len(SealCounter._kept)
    ModuleCipher(key).seal(b"", ModuleType.FOOTER, b"")
    gc.collect()
    assert SealCounter.of(key).count == 0
    assert len(SealCounter._kept) == kept


def test_a_counter_names_its_key() -> None:
    key = SecretKey.generate()
    counter = SealCounter.of(key)
    assert counter.fingerprint == key.fingerprint
    counter.lower_limit(0)
    with pytest.raises(KeyAccessError, match=key.fingerprint):
        counter.add()


def test_a_forked_child_waits_for_no_lock_of_its_parents_threads() -> None:
    key = SecretKey.generate()
    counter = SealCounter.of(key)
    with SealCounter._registry_lock, counter._lock:
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            try:
                ModuleCipher(key).seal(b"", ModuleType.FOOTER, b"")
                os._exit(0 if counter.count == 1 else 2)
            finally:
                os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_key_shows_only_its_fingerprint() -> None:
    key = SecretKey(b"sixteen-secret-b")
    shown = repr(key) + str(key) + f"{key}" + repr(ModuleCipher(key))
    assert "sixteen" not in shown
    assert b"sixteen-secret-b".hex() not in shown
    assert key.fingerprint in shown
    assert not hasattr(key, "__dict__")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_key_is_never_pickled(protocol: int) -> None:
    key = SecretKey(KEY)
    for holder in (key, [key], {"k": key}, bs.ExplicitKeys(footer_key=KEY), bs.DecryptionSpec(bs.ExplicitKeys(KEY))):
        with pytest.raises(TypeError, match="pickled"):
            pickle.dumps(holder, protocol)
    assert copy.copy(key) is key
    assert copy.deepcopy([key])[0] is key


def test_keys_compare_by_value_and_hash_alike() -> None:
    assert SecretKey(KEY) == SecretKey(bytearray(KEY))
    assert hash(SecretKey(KEY)) == hash(SecretKey(KEY))
    assert SecretKey(KEY) != SecretKey(bytes(16))
    assert SecretKey(KEY) != KEY
    assert SecretKey(bytes(16)) != SecretKey(bytes(24))
    assert len({hash(SecretKey(bytes([n] * 16))) for n in range(50)}) > 40


@pytest.mark.parametrize("length", [0, 1, 15, 17, 31, 33, 64])
def test_keys_of_no_aes_length(length: int) -> None:
    with pytest.raises(KeyAccessError, match=f"{length} bytes") as caught:
        SecretKey(b"\x5a" * length)
    assert "5a5a" not in str(caught.value)
    assert "ZZ" not in str(caught.value)


def test_a_fingerprint_is_no_other_digest_of_the_key() -> None:
    """Stored in access logs and reports: it stays the same from version to version."""
    labelled = hashlib.sha256(b"bloomseal key fingerprint\x00" + KEY).hexdigest()
    assert SecretKey(KEY).fingerprint == labelled[:16]


def test_who_made_a_key_is_known() -> None:
    assert SecretKey(KEY).generated is False
    assert SecretKey(KEY, generated=True).generated is True
    assert SecretKey.generate().generated is True


def test_generated_keys() -> None:
    assert [SecretKey.generate(bits).bits for bits in (128, 192, 256)] == [128, 192, 256]
    assert SecretKey.generate() != SecretKey.generate()
    with pytest.raises(UsageError):
        SecretKey.generate(127)
