"""Filters of several columns take turns in the same memory: each answers for its own column."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.core import sbbf

KEY = b"f" * 16
DECRYPTION = bs.DecryptionSpec(bs.ExplicitKeys(footer_key=KEY))


@pytest.mark.parametrize("sealed", [True, False])
def test_disjunctions_over_columns_with_filters_of_their_own(tmp_path: Path, sealed: bool) -> None:
    rows = 400
    table = pa.table({"a": [f"a{n}" for n in range(rows)], "b": [f"b{n}" for n in range(rows)], "n": range(rows)})
    bs.write_table(
        table, tmp_path / "t", row_group_size=100, write_statistics=False,
        bloom_filters={"a": bs.FilterSpec(fpp=1e-6), "b": bs.FilterSpec(fpp=1e-6)},
        encryption=bs.EncryptionSpec(footer_key=KEY) if sealed else None,
    )  # fmt: skip
    with bs.open_file(tmp_path / "t", decryption=DECRYPTION if sealed else None) as file:
        both = [[("a", "==", "a5"), ("b", "==", "b5")], [("b", "==", "b205")], [("a", "==", "a305"), ("b", "==", "b1")]]
        assert file.read(["n"], both).column("n").to_pylist() == [5, 205]
        assert (file.stats.pruned_by_filter, file.stats.decoded) == (2, 2)
        assert file.read(["n"], [("b", "==", "b205"), ("a", "==", "a205")]).column("n").to_pylist() == [205]
        first, second = file.filter(0, "a"), file.filter(0, "b")
        assert first is not None
        assert second is not None
        kind = sbbf.ColumnType(sbbf.PhysicalType.BYTE_ARRAY)
        assert first.check(b"a5", kind)
        assert not first.check(b"b5", kind)
        assert second.check(b"b5", kind)


OTHER = b"g" * 16


@pytest.mark.parametrize("job", ["seal", "rekey", "unseal"])
def test_a_conversion_keeps_each_filter_of_each_row_group(tmp_path: Path, job: str) -> None:
    """No check of the new file would tell: it opens well, and says absent of what is there."""
    rows, names = 900, ("a", "b", "c")
    table = pa.table({name: [f"{name}{n}" for n in range(rows)] for name in names} | {"n": range(rows)})
    encryption = bs.EncryptionSpec(footer_key=KEY)
    # Filters of one size: bits of another's would go unnoticed.
    bs.write_table(
        table, tmp_path / "old", row_group_size=300, bloom_filters=dict.fromkeys(names, bs.FilterSpec(fpp=1e-6, ndv=300)),
        encryption=None if job == "seal" else encryption,
    )  # fmt: skip
    old = None if job == "seal" else DECRYPTION
    new = bs.DecryptionSpec(bs.ExplicitKeys(footer_key=OTHER)) if job == "rekey" else DECRYPTION
    match job:
        case "seal":
            bs.seal_file(tmp_path / "old", tmp_path / "new", encryption=encryption)
        case "rekey":
            bs.rekey(
                tmp_path / "old", tmp_path / "new",
                decryption=DECRYPTION, encryption=bs.EncryptionSpec(footer_key=OTHER),
            )  # fmt: skip
        case "unseal":
            bs.unseal_file(tmp_path / "old", tmp_path / "new", decryption=DECRYPTION)
    with (
        bs.open_file(tmp_path / "old", decryption=old) as before,
        bs.open_file(tmp_path / "new", decryption=None if job == "unseal" else new) as after,
    ):
        for name in names:
            kept = [after.filter(group, name) for group in range(3)]
            assert kept == [before.filter(group, name) for group in range(3)]
            maybe = after.maybe_present(name, table.column(name).combine_chunks())
            for group in range(3):
                assert maybe[group, group * 300 : (group + 1) * 300].all()
                assert maybe[group].mean() < 0.5


@pytest.mark.parametrize("first", ["zzz", "a5"])
def test_a_column_without_a_key_is_refused_whatever_the_others_prove(tmp_path: Path, first: str) -> None:
    """Else an empty answer would tell "absent" on some data, where it is an error on other."""
    table = pa.table({"a": [f"a{n}" for n in range(9)], "b": [f"b{n}" for n in range(9)]})
    encryption = bs.EncryptionSpec(footer_key=KEY, column_keys={"a": b"a" * 16, "b": b"b" * 16})
    bs.write_table(table, tmp_path / "t", encryption=encryption, bloom_filters={"a": True, "b": True})
    only_a = bs.DecryptionSpec(bs.ExplicitKeys(footer_key=KEY, column_keys={"a": b"a" * 16}))
    with bs.open_file(tmp_path / "t", decryption=only_a) as file, pytest.raises(bs.KeyAccessError):
        file.read(["a"], [("a", "==", first), ("b", "==", "b5")])


def test_a_filter_is_told_by_a_dict_too(tmp_path: Path) -> None:
    rows = pa.table({"a": list(range(1000))})
    bs.write_table(rows, tmp_path / "dict.parquet", bloom_filters={"a": {"fpp": 0.0001}})
    bs.write_table(rows, tmp_path / "spec.parquet", bloom_filters={"a": bs.FilterSpec(fpp=0.0001)})
    one, other = (bs.open_file(tmp_path / f"{name}.parquet").filter(0, "a") for name in ("dict", "spec"))
    assert one is not None
    assert other is not None
    assert one.bitset == other.bitset
    with pytest.raises(bs.UsageError, match=r"FilterSpec has no option 'fp'.*one of fpp") as caught:
        bs.write_table(rows, tmp_path / "x.parquet", bloom_filters={"a": {"fp": 0.1}})
    assert caught.value.column == "a"
    assert not (tmp_path / "x.parquet").exists()
