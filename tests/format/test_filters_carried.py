"""Filters that can't be asked, or that prove nothing: carried, authenticated, reported; never in a rotation's way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.core.encryption import ModuleType
from bloomseal.core.parquet.walk import FilterBytes, Walk
from bloomseal.core.thrift import Struct
from bloomseal.format.opening import open_footer
from bloomseal.storage.places import open_source
from bloomseal.write import assemble, attach, writer

FOOTER, NAME, NEW = b"f" * 16, b"n" * 16, b"w" * 16
SPEC = bs.EncryptionSpec(footer_key=FOOTER, column_keys={"name": NAME})
KEYS = bs.DecryptionSpec(bs.ExplicitKeys(FOOTER, {"name": NAME}))
NEW_SPEC = bs.EncryptionSpec(footer_key=NEW, column_keys={"name": NEW})
NEW_KEYS = bs.DecryptionSpec(bs.ExplicitKeys(NEW, {"name": NEW}))
DATA = pa.table({"id": list(range(300)), "name": [f"n{n}" for n in range(300)]})


def _future(size: int, bitset: bytes) -> tuple[bytes, bytes]:
    """A filter as a later specification may have it: another hash, another compression, a field of its own."""
    header = Struct()
    header.set_i32(1, size)
    for union, member in ((2, 1), (3, 2), (4, 5)):
        inner = Struct()
        inner.set_struct(member, Struct())
        header.set_struct(union, inner)
    header.set_i64(9, 123456789)
    return header.to_bytes(), bitset


HEADER, BITSET = _future(1024, bytes(range(7, 100)))


@pytest.fixture
def future(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """While it is set, files are written with the future filter in column `name`."""
    modules = assemble.filter_modules

    def of_the_future(bloom_filter: Any, cipher: Any, aad: Any) -> list[Any]:
        parts = [(ModuleType.BLOOM_FILTER_HEADER, HEADER), (ModuleType.BLOOM_FILTER_BITSET, BITSET)]
        if getattr(bloom_filter, "num_bytes", None) != 4096:
            return modules(bloom_filter, cipher, aad)
        return [data if cipher is None else cipher.seal(data, kind, aad(kind)) for kind, data in parts]

    monkeypatch.setattr(assemble, "filter_modules", of_the_future)
    monkeypatch.setattr(writer, "check_filters", lambda *_: None)
    return monkeypatch


def _write(path: Path, future: pytest.MonkeyPatch, spec: bs.EncryptionSpec | None) -> None:
    bs.write_table(
        DATA,
        path,
        encryption=spec,
        bloom_filters={"name": bs.FilterSpec(num_bytes=4096), "id": True},
        row_group_size=100,
    )
    future.undo()


def _filters(path: Path, decryption: bs.DecryptionSpec | None, column: int) -> list[FilterBytes]:
    with open_source(path) as source:
        walk = Walk(source, *open_footer(source, decryption))
        found = [walk.stored_filter(walk.chunk(group, column)) for group in range(3)]
        assert all(found)
        return [one for one in found if one is not None]


def _is_carried(path: Path, decryption: bs.DecryptionSpec | None) -> None:
    for found in _filters(path, decryption, 1):
        assert (found.header, bytes(found.bitset)) == (HEADER, BITSET)
        assert found.sealed == (decryption is not None)
    with pytest.warns(bs.BloomsealWarning, match="not one that the specification knows"):
        assert bs.read_table(path, where=[("name", "==", "n150")], decryption=decryption).num_rows == 1
    assert bs.Verdict.ABSENT in {
        verdict for group in bs.probe(path, "id", [150], decryption=decryption) for verdict in group
    }


def test_a_future_filter_rides_through_every_conversion(tmp_path: Path, future: pytest.MonkeyPatch) -> None:
    """One such filter stopped rekey, seal, unseal, attach and verify."""
    plain, sealed = tmp_path / "plain.parquet", tmp_path / "sealed.parquet"
    _write(plain, future, None)
    _is_carried(plain, None)
    report = bs.seal_file(plain, sealed, encryption=SPEC)
    assert (report.filters_kept, report.dropped) == (6, [])
    _is_carried(sealed, KEYS)
    bs.rekey(sealed, decryption=KEYS, encryption=NEW_SPEC)
    _is_carried(sealed, NEW_KEYS)
    bs.unseal_file(sealed, plain, decryption=NEW_KEYS)
    _is_carried(plain, None)


def test_verify_authenticates_a_future_filter(tmp_path: Path, future: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.parquet"
    _write(path, future, SPEC)
    report = bs.verify(path, decryption=KEYS)
    assert report.ok
    assert report.authenticated["Bloom filter header"] == report.authenticated["Bloom filter bitset"] == 3
    assert sum("can't be asked" in note for note in report.notes) == 3
    first = _filters(path, KEYS, 1)[0]
    for position in (first.offset + 20, first.offset + first.length - 1):
        data = bytearray(path.read_bytes())
        data[position] ^= 1
        broken = tmp_path / "broken.parquet"
        broken.write_bytes(data)
        assert [type(error) for error in bs.verify(broken, decryption=KEYS).failures] == [bs.IntegrityError]
        with pytest.raises(bs.IntegrityError):
            bs.rekey(broken, decryption=KEYS, encryption=NEW_SPEC)


@pytest.mark.parametrize("spec", [None, SPEC])
def test_attach_replaces_a_future_filter_of_its_column_alone(
    tmp_path: Path, future: pytest.MonkeyPatch, spec: bs.EncryptionSpec | None
) -> None:
    path, keys = tmp_path / "a.parquet", None if spec is None else KEYS
    _write(path, future, spec)
    assert attach.filter_modules is assemble.filter_modules
    bs.attach_filters(path, {"id": bs.FilterSpec(fpp=0.001)}, decryption=keys)
    _is_carried(path, keys)
    report = bs.attach_filters(path, {"name": True}, decryption=keys)
    assert all(one["replaced"] for one in report.filters)
    assert bs.probe(path, "name", ["n150"], decryption=keys) == [
        [bs.Verdict.ABSENT],
        [bs.Verdict.MAYBE_PRESENT],
        [bs.Verdict.ABSENT],
    ]
    assert (BITSET in path.read_bytes()) is False


def test_a_padded_header_is_not_padded_in_clear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeros behind a sealed header are harmless. In clear they would shift the bitset: every answer *absent*."""
    path, plain = tmp_path / "a.parquet", tmp_path / "plain.parquet"
    made = assemble._header
    monkeypatch.setattr(assemble, "_header", lambda size: made(size) + bytes(12))
    bs.write_table(DATA, path, encryption=SPEC, bloom_filters={"name": True})
    monkeypatch.undo()
    bs.unseal_file(path, plain, decryption=KEYS)
    assert bs.probe(plain, "name", ["n150"]) == [[bs.Verdict.MAYBE_PRESENT]]


def _swapped(path: Path, column: int, make: Any) -> None:
    """Bytes of the attacker's own in the place of a sealed filter; no key is needed for it."""
    found = _filters(path, KEYS, column)[0]
    data = bytearray(path.read_bytes())
    put = make(found.length)
    assert len(put) == found.length
    data[found.offset : found.offset + found.length] = put
    path.write_bytes(data)


def _odd_size(length: int) -> bytes:
    header = assemble._header(length - 16)
    size = length - len(header)
    return assemble._header(size) + bytes(size)


def _long_header(length: int) -> bytes:
    """A bitset of a lawful size, behind a header with a field that fills the rest."""
    size = 1 << (length - 64).bit_length() - 1
    for fill in range(length):
        header = Struct.parse(assemble._header(size))
        header.set_binary(9, bytes(fill))
        if len(raw := header.to_bytes()) + size == length:
            return raw + bytes(size)
    raise AssertionError(length)


@pytest.mark.parametrize("make", [_odd_size, _long_header])
def test_a_clear_filter_in_a_sealed_ones_place_is_a_failure_and_reported(tmp_path: Path, make: Any) -> None:
    """Verify said ok, and rekey dropped it without a word."""
    path = tmp_path / "a.parquet"
    bs.write_table(DATA, path, encryption=SPEC, bloom_filters={"name": True}, row_group_size=100)
    _swapped(path, 1, make)
    with pytest.raises(bs.PolicyError, match="in clear"):
        bs.read_table(path, where=[("name", "==", "n7")], decryption=KEYS)
    report = bs.verify(path, decryption=KEYS)
    assert not report.ok
    assert [(type(error), error.row_group, error.column) for error in report.failures] == [
        (bs.IntegrityError, 0, "name")
    ]
    assert "no writer leaves one of this size" in str(report.failures[0])
    done = bs.rekey(path, decryption=KEYS, encryption=NEW_SPEC)
    assert done.filters_kept == 2
    assert done.dropped == [{"row_group": 0, "column": "name", "why": "in clear on an encrypted column"}]
    assert done.filters_dropped == 1
    assert bs.verify(path, decryption=NEW_KEYS).ok


def test_filters_replaced_on_the_way_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    bs.write_table(DATA, path, encryption=SPEC, bloom_filters={"name": True}, row_group_size=100)
    done = bs.rekey(path, decryption=KEYS, encryption=NEW_SPEC, bloom_filters={"name": True, "id": True})
    assert (done.filters_built, done.filters_replaced, done.filters_kept) == (6, 3, 0)
