"""A filter that lacks a value of its own column is wrong, whoever sealed it: it is found, and not made
authentic anew.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.core.errors import Hint
from bloomseal.core.sbbf import SplitBlockBloomFilter
from bloomseal.rotation import Rekey, Seal, rotate
from bloomseal.write import writer

FOOTER, PII, NEW, NEWER = b"footer-key-bytes", b"personal-key-16b", b"new-footer-key-b", b"new-personal-key"
SSNS = [f"{i:03d}-45-6789" for i in range(40)]
TABLE = pa.table({"ssn": SSNS, "n": pa.array(range(40), pa.int64())})
OLD = bs.DecryptionSpec(bs.ExplicitKeys(FOOTER, {"ssn": PII}))
READER = bs.DecryptionSpec(bs.ExplicitKeys(NEW, {"ssn": NEWER}))
AGAIN = bs.EncryptionSpec(NEW, column_keys={"ssn": NEWER})


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes files as a writer with a bug does: the filters of ssn lack the last values of each row group."""

    def write(path: Path, encryption: bs.EncryptionSpec | None) -> Path:
        real = bs.FilterSpec.build

        def build(self: bs.FilterSpec, hashes: Any) -> SplitBlockBloomFilter:
            return real(self, hashes[: max(len(hashes) - 5, 0)])

        with monkeypatch.context() as patched:
            patched.setattr(bs.FilterSpec, "build", build)
            patched.setattr(writer, "check_filters", lambda *_: None)
            bs.write_table(TABLE, path, encryption=encryption, bloom_filters={"ssn": True}, row_group_size=20)
        return path

    return write


@pytest.mark.parametrize("how", ["seal", "rekey"])
def test_a_wrong_filter_is_not_sealed_anew(tmp_path: Path, forgetful: Any, how: str) -> None:
    old = bs.EncryptionSpec(FOOTER, column_keys={"ssn": PII}) if how == "rekey" else None
    path, out = forgetful(tmp_path / "t.parquet", old), tmp_path / "out.parquet"

    def convert(**options: Any) -> Any:
        if how == "seal":
            return bs.seal_file(path, out, encryption=AGAIN, **options)
        return bs.rekey(path, out, decryption=OLD, encryption=AGAIN, **options)

    with pytest.raises(bs.FormatError, match="5 of the 20 values") as refused:
        convert()
    assert (refused.value.row_group, refused.value.column) == (0, "ssn")
    assert refused.value.hint is Hint.REBUILD_FILTERS
    assert not out.exists()
    report = convert(rebuild_filters=True)
    assert (report.filters_built, report.filters_replaced, report.filters_kept) == (2, 2, 0)
    assert all(
        answer is bs.Verdict.MAYBE_PRESENT
        for group, answers in enumerate(bs.probe(out, "ssn", SSNS, decryption=READER))
        for answer in answers[20 * group : 20 * group + 20]
    )
    assert bs.verify(out, decryption=READER, filters=True).ok


def test_verify_asks_each_filter_for_its_own_values(tmp_path: Path, forgetful: Any) -> None:
    path = forgetful(tmp_path / "t.parquet", bs.EncryptionSpec(FOOTER, column_keys={"ssn": PII}))
    assert bs.verify(path, decryption=OLD).ok, "every module is authentic"
    report = bs.verify(path, decryption=OLD, filters=True)
    assert not report.ok
    assert [(failure.row_group, failure.column) for failure in report.failures] == [(0, "ssn"), (1, "ssn")]


def test_jobs_over_many_files_refuse_it_too(tmp_path: Path, forgetful: Any) -> None:
    good, bad = tmp_path / "a.parquet", forgetful(tmp_path / "b.parquet", None)
    bs.write_table(TABLE, good, bloom_filters={"ssn": True})
    before = bad.read_bytes()
    report = rotate(tmp_path, Seal(AGAIN), journal=tmp_path / "j")
    assert [one.status for one in report.files] == ["sealed", "failed"]
    assert bad.read_bytes() == before
    report = rotate(tmp_path, Seal(AGAIN, rebuild_filters=True), journal=tmp_path / "k")
    assert report.ok
    assert bs.verify(tmp_path, decryption=READER, filters=True).ok
    assert Rekey(OLD, AGAIN).facts() != Rekey(OLD, AGAIN, rebuild_filters=True).facts(), "another job"
