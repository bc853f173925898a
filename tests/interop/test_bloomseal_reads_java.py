"""Bloomseal reads, verifies and probes what parquet-java wrote and sealed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import bloomseal as bs
from bloomseal import Verdict
from support.interop_data import DATA, ROW_GROUP, ROWS, DataSet, comparable, key_places
from support.jvm import JavaDecryption, JavaEncryption, java_filters, java_write
from support.pairwise import matrix

pytestmark = pytest.mark.usefixtures("java")

PREFIX = b"warehouse/customers/part-7"
CODECS = ("UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD", "LZ4_RAW")
TELLING = {Verdict.ABSENT, Verdict.MAYBE_PRESENT}


def probes_hold(file: bs.SealedFile, data: DataSet, leaf: str, *, has_filter: tuple[bool, bool]) -> None:
    """Values are never called absent from their own row group, and some are called absent from the other one."""
    values = [data.asked(leaf, 0), data.asked(leaf, 1)]
    for row_group in (0, 1):
        own = file.probe(leaf, values[row_group])[row_group]
        expected = Verdict.MAYBE_PRESENT if has_filter[row_group] else Verdict.NO_FILTER
        assert own == [expected] * len(values[row_group]), leaf
        others = [value for value in values[1 - row_group] if value not in values[row_group]]
        if has_filter[row_group] and others:
            verdicts = set(file.probe(leaf, others)[row_group])
            assert verdicts <= TELLING
            assert Verdict.ABSENT in verdicts, leaf


@matrix(
    footer=("encrypted", "plaintext"),
    algorithm=("AES_GCM_V1", "AES_GCM_CTR_V1"),
    mode=("uniform", "columns", "complete"),
    bits=(128, 192, 256),
    data=("types", "nested"),
    pages=(1, 2),
    dictionary=(False, True),
    aad=("none", "stored", "supplied"),
    keys=("by place", "by id"),
)
def test_rows_filters_and_modules(tmp_path: Path, case: dict[str, Any]) -> None:
    path, data = tmp_path / "theirs.parquet", DATA[case["data"]]
    footer_key, column_keys = key_places(data, case["mode"], case["bits"])
    java_write(
        path,
        data.schema,
        data.rows,
        encryption=JavaEncryption(
            footer_key,
            column_keys,
            footer_key_metadata=b"kf",
            column_key_metadata={leaf: b"k:" + leaf.encode() for leaf in column_keys},
            algorithm=case["algorithm"],
            plaintext_footer=case["footer"] == "plaintext",
            complete=case["mode"] == "complete",
            aad_prefix=None if case["aad"] == "none" else PREFIX,
            store_aad_prefix=case["aad"] != "supplied",
        ),
        filters={leaf: {"ndv": 200, "fpp": 0.001} for leaf in data.leaves},
        page_version=case["pages"],
        dictionary=case["dictionary"],
        page_rows=25,
        row_group_rows=ROW_GROUP,
        compression=CODECS[sum(map(len, map(str, case.values()))) % len(CODECS)],
    )
    if case["keys"] == "by id":
        ids: dict[str | bytes, bytes] = {
            b"kf": footer_key,
            **{b"k:" + leaf.encode(): key for leaf, key in column_keys.items()},
        }
        keys = bs.ExplicitKeys(keys_by_id=ids)
    else:
        keys = bs.ExplicitKeys(footer_key, column_keys)
    prefix = PREFIX if case["aad"] == "supplied" else None
    access = JavaDecryption(footer_key, column_keys, aad_prefix=prefix)
    with bs.open_file(
        path, decryption=bs.DecryptionSpec(keys, aad_prefix=prefix, int96_utc=True, allow_ctr=True)
    ) as file:
        assert [group.num_rows for group in file.row_groups] == [ROW_GROUP, ROWS - ROW_GROUP]
        assert comparable(file.read().to_pylist()) == comparable(list(data.python))

        for leaf in data.leaves:
            theirs = java_filters(path, leaf, access)
            probes_hold(file, data, leaf, has_filter=(theirs[0] is not None, theirs[1] is not None))
            for row_group, one in enumerate(theirs):
                ours = file.filter(row_group, leaf)
                assert (ours is None) == (one is None)
                assert ours is None or one is None or bytes(ours.bitset) == one.bitset
            if not case["dictionary"]:
                assert None not in theirs

        report = file.verify()
        assert report.ok, report.failures
        assert report.footer_verified
        assert not report.inaccessible
        if case["mode"] != "columns":
            sealed_levels = case["pages"] == 1 and case["algorithm"] == "AES_GCM_V1"
            assert bool(report.unauthenticated) != sealed_levels, report.unauthenticated


def test_lookups_open_only_the_row_groups_that_a_filter_of_parquet_java_leaves(tmp_path: Path) -> None:
    path, key = tmp_path / "theirs.parquet", b"0123456789abcdef"
    rows = [{"id": (i * 7919) % 1000, "name": f"name {(i * 7919) % 1000}"} for i in range(1000)]
    java_write(
        path,
        "message m { required int64 id; required binary name (STRING); }",
        rows,
        encryption=JavaEncryption(key),
        filters={"id": {"ndv": 100, "fpp": 0.0001}, "name": {"ndv": 100, "fpp": 0.0001}},
        row_group_rows=100,
    )
    with bs.open_file(path, decryption=bs.DecryptionSpec(bs.ExplicitKeys(key))) as file:
        decoded = 0
        for row in rows[::83]:
            found = file.read(where=[("name", "==", row["name"])])
            assert found.to_pylist() == [row]
            decoded += file.stats.decoded
        assert decoded < 2 * len(rows[::83])  # ten row groups each, without filters
        # Inside the range of every row group, so that only the filters can rule them out.
        assert file.read(where=[("name", "==", "name 500 and a half")]).num_rows == 0
        assert file.stats.pruned_by_filter >= 9


def test_published_files_open_verify_and_probe(parquet_test_data: Path) -> None:
    """The files of apache/parquet-testing and their published keys."""
    keys = bs.ExplicitKeys(
        keys_by_id={"kf": b"0123456789012345", "kc1": b"1234567890123450", "kc2": b"1234567890123451"}
    )
    decryption = bs.DecryptionSpec(keys, allow_ctr=True)
    names = [
        "encrypt_columns_and_footer_bloom_filter",
        "encrypt_columns_and_footer_ctr",
        "encrypt_columns_plaintext_footer",
        "uniform_encryption",
    ]
    for name in names:
        with bs.open_file(parquet_test_data / f"{name}.parquet.encrypted", decryption=decryption) as file:
            assert file.read(["double_field", "float_field"]).num_rows == file.num_rows > 0
            report = file.verify()
            assert report.ok, report.failures
    with bs.open_file(parquet_test_data / f"{names[0]}.parquet.encrypted", decryption=decryption) as file:
        (verdicts,) = file.probe("double_field", [i + 0.5 for i in range(2000)])
        assert set(verdicts) == {Verdict.MAYBE_PRESENT}
        (verdicts,) = file.probe("float_field", [i + 0.75 for i in range(2000)])
        assert verdicts.count(Verdict.ABSENT) > 1800
