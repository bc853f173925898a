"""What nobody has authenticated does not become authentic by being written anew: rekey, unseal, seal, attach."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bloomseal as bs
from bloomseal.core.encryption import ModuleType
from bloomseal.core.thrift import Struct
from support.footers import as_ctr, change_algorithm, change_clear_footer, change_groups

FOOTER, PII, NEW, NEWER = b"footer-key-bytes", b"personal-key-16b", b"new-footer-key-b", b"new-personal-key"
TABLE = pa.table({"ssn": [f"{i:03d}-45-6789" for i in range(12)], "n": pa.array(range(12), pa.int64())})


def without_row_groups(data: bytes, keep: int) -> bytes:
    """A signed footer that names the first row groups only; its signature is left as it is."""
    return change_clear_footer(data, change_groups(lambda groups: groups[:keep]))


CONVERSIONS: dict[str, Callable[[Path, Path, Any], object]] = {
    "rekey": lambda path, out, spec: bs.rekey(
        path, out, decryption=spec, encryption=bs.EncryptionSpec(NEW, column_keys={"ssn": NEWER})
    ),
    "unseal": lambda path, out, spec: bs.unseal_file(path, out, decryption=spec),
}


@pytest.mark.parametrize("allowed", [False, True], ids=["", "allow_unverified_footer"])
@pytest.mark.parametrize("how", CONVERSIONS)
def test_a_footer_that_nobody_verified_is_not_sealed_anew(tmp_path: Path, how: str, allowed: bool) -> None:
    """Who holds the columns' keys and not the footer's must not vouch for the row groups that somebody has left
    over.
    """
    path, out = tmp_path / "t.parquet", tmp_path / "out.parquet"
    spec = bs.EncryptionSpec((FOOTER, "kf"), column_keys={"ssn": (PII, "pii")}, plaintext_footer=True)
    bs.write_table(TABLE, path, encryption=spec, row_group_size=4)
    path.write_bytes(without_row_groups(path.read_bytes(), 1))
    reader = bs.DecryptionSpec(bs.ExplicitKeys(column_keys={"ssn": PII}), allow_unverified_footer=allowed)
    with pytest.raises(bs.PolicyError, match="footer"):
        CONVERSIONS[how](path, out, reader)
    assert not out.exists()


# Levels in clear


def with_levels_in_clear(path: Path, spec: Any, *, nulls: int | None = None) -> list[tuple[int, int]]:
    """V2 pages in the layout of parquet-java: levels in clear before the sealed values. Where the levels are.

    Args:
        nulls: what the sealed headers say of nulls instead, of one digit.
    """
    data, places = bytearray(path.read_bytes()), []
    with bs.open_file(path, decryption=spec) as file:
        walk = file.walk
        chunk = walk.chunk(0, 0)
        cipher = walk.cipher(chunk)
        assert cipher is not None
        for page in walk.pages(chunk):
            if (v2 := page.v2) is None:
                continue
            body = bytes(page.body())
            levels = (v2.repetition_levels or 0) + (v2.definition_levels or 0)
            sealed = cipher.seal(body[levels:], page.kind, walk.aad(chunk, page.kind, page.ordinal))
            start = page.offset + page.length - len(page.stored)
            data[start : start + len(page.stored)] = body[:levels] + sealed
            places.append((start, levels))
            if nulls is not None:
                header = Struct.parse(page.header)
                inner = header.struct(8)
                assert inner is not None
                inner.set_i32(2, nulls)
                header.set_struct(8, inner)
                kind = ModuleType.DATA_PAGE_HEADER
                framed = cipher.seal(header.to_bytes(), kind, walk.aad(chunk, kind, page.ordinal))
                assert page.offset + len(framed) == start
                data[page.offset : start] = framed
    path.write_bytes(data)
    return places


@pytest.mark.parametrize("dictionary", [True, False])
def test_levels_in_clear_do_not_take_values_away(tmp_path: Path, dictionary: bool) -> None:
    """Storage calls all values null, waits for a filter to be built of them, and puts the levels back."""
    path, plain = tmp_path / "t.parquet", tmp_path / "plain.parquet"
    rows = pa.table({"ssn": [*TABLE["ssn"].to_pylist(), None]})
    pq.write_table(rows, plain, data_page_version="2.0", use_dictionary=dictionary, write_statistics=False)
    bs.seal_file(plain, path, encryption=bs.EncryptionSpec(FOOTER))
    spec = bs.DecryptionSpec(bs.ExplicitKeys(FOOTER))
    [(start, levels)] = with_levels_in_clear(path, spec)
    honest = path.read_bytes()
    assert bs.read_table(path, decryption=spec).equals(rows)
    bs.attach_filters(path, {"ssn": True}, decryption=spec)
    assert bs.probe(path, "ssn", TABLE["ssn"], decryption=spec) == [[bs.Verdict.MAYBE_PRESENT] * 12]

    forged = bytearray(honest)
    # One run of thirteen zeros: length in ULEB128 without its last bit, then the level (RLE hybrid).
    forged[start : start + levels] = (bytes([13 << 1, 0]) + bytes(levels))[:levels]
    path.write_bytes(forged)
    uses = {
        "read": lambda: bs.read_table(path, decryption=spec),
        "look up": lambda: bs.read_table(path, where=[("ssn", "==", "003-45-6789")], decryption=spec),
        "attach": lambda: bs.attach_filters(path, {"ssn": True}, decryption=spec),
        "rekey": lambda: bs.rekey(
            path, decryption=spec, encryption=bs.EncryptionSpec(NEW), bloom_filters={"ssn": True}
        ),
        "unseal": lambda: bs.unseal_file(path, tmp_path / "out.parquet", decryption=spec),
    }
    for use in uses.values():
        with pytest.raises(bs.IntegrityError, match="levels"):
            use()
        assert path.read_bytes() == forged
    assert not bs.verify(path, decryption=spec).ok


def test_no_filter_is_built_where_nothing_counts_the_nulls(tmp_path: Path) -> None:
    """parquet-java without statistics counts -1 nulls: then nothing tells how many values the sealed ones are."""
    path, plain = tmp_path / "t.parquet", tmp_path / "plain.parquet"
    pq.write_table(pa.table({"ssn": ["078-05-1120", None]}), plain, data_page_version="2.0")
    bs.seal_file(plain, path, encryption=bs.EncryptionSpec(FOOTER))
    spec = bs.DecryptionSpec(bs.ExplicitKeys(FOOTER))
    with_levels_in_clear(path, spec, nulls=-1)
    before = path.read_bytes()
    assert bs.read_table(path, decryption=spec).num_rows == 2
    with pytest.raises(bs.UnsupportedError, match="nulls"):
        bs.attach_filters(path, {"ssn": True}, decryption=spec)
    assert path.read_bytes() == before


# Pages that nothing authenticates


@pytest.mark.parametrize("compression", ["none", "snappy"])
@pytest.mark.parametrize("how", CONVERSIONS)
def test_a_file_that_was_relabelled_is_not_rewritten_into_garbage(tmp_path: Path, how: str, compression: Any) -> None:
    """Storage calls a GCM file CTR before a rekey that allows CTR: its pages would open to noise, and the old
    keys die.
    """
    path, out = tmp_path / "t.parquet", tmp_path / "out.parquet"
    bs.write_table(TABLE, path, encryption=bs.EncryptionSpec(FOOTER, column_keys={"ssn": PII}), compression=compression)
    path.write_bytes(change_algorithm(path.read_bytes(), as_ctr))
    spec = bs.DecryptionSpec(bs.ExplicitKeys(FOOTER, {"ssn": PII}), allow_ctr=True)
    with pytest.raises(bs.IntegrityError, match="altered"):
        CONVERSIONS[how](path, out, spec)
    assert not out.exists()


# Filters in clear


def with_a_filter_that_lacks_values(path: Path, spec: Any) -> None:
    """The filter of ssn in clear, all but one of its bits taken out; whoever writes to the storage can do that."""
    data = bytearray(path.read_bytes())
    with bs.open_file(path, decryption=spec) as file:
        found = file.walk.filter(file.walk.chunk(0, 0))
        assert found is not None
        end, size = found.offset + found.length, len(found.bitset)
    data[end - size : end] = bytes(size - 1) + b"\x01"
    path.write_bytes(data)


@pytest.mark.parametrize("how", ["seal", "rekey"])
def test_a_filter_that_was_in_clear_is_sealed_only_if_it_holds_its_columns_values(tmp_path: Path, how: str) -> None:
    """A sealed filter is believed: what was altered while it stood in clear would deny rows that are there."""
    path, out = tmp_path / "t.parquet", tmp_path / "out.parquet"
    new = bs.EncryptionSpec(NEW, column_keys={"ssn": NEWER})
    old = bs.EncryptionSpec(FOOTER, column_keys={"n": PII}) if how == "rekey" else None
    bs.write_table(TABLE, path, encryption=old, bloom_filters={"ssn": True, "n": True})
    key = bs.DecryptionSpec(bs.ExplicitKeys(FOOTER, {"n": PII}))
    reader = bs.DecryptionSpec(bs.ExplicitKeys(NEW, {"ssn": NEWER}))

    def convert(**options: Any) -> Any:
        if how == "seal":
            return bs.seal_file(path, out, encryption=new, **options)
        return bs.rekey(path, out, decryption=key, encryption=new, **options)

    assert (report := convert()).filters_kept == 2, report
    assert bs.probe(out, "ssn", TABLE["ssn"], decryption=reader) == [[bs.Verdict.MAYBE_PRESENT] * 12]
    with_a_filter_that_lacks_values(path, key if how == "rekey" else None)
    with pytest.raises(bs.FormatError, match="denies"):
        convert()
    report = convert(rebuild_filters=True)
    assert (report.filters_kept, report.filters_replaced) == (1, 1)
    assert bs.probe(out, "ssn", TABLE["ssn"], decryption=reader) == [[bs.Verdict.MAYBE_PRESENT] * 12]
    assert bs.read_table(out, where=[("ssn", "==", "003-45-6789")], decryption=reader).num_rows == 1
