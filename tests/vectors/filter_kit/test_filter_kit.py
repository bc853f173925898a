"""The filter kit is what its maker makes, says what pyarrow reads, and our verify tells right from wrong in it."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import xxhash

import bloomseal as bs
from bloomseal.audit import audit
from bloomseal.cli.main import main
from bloomseal.core.sbbf import SplitBlockBloomFilter
from vectors.filter_kit.build_kit import build

KIT = Path(__file__).parents[1] / "filter-kit"
CHUNKS: dict[str, list[dict[str, Any]]] = defaultdict(list)
for entry in json.loads((KIT / "manifest.json").read_text(encoding="utf-8"))["chunks"]:
    CHUNKS[entry["file"]].append(entry)
SEALED = bs.EncryptionSpec(b"0123456789012345")


def test_it_is_made_again_byte_by_byte(tmp_path: Path) -> None:
    build(tmp_path)
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    kept = {path.name: path.read_bytes() for path in KIT.iterdir() if path.name != "README.md"}
    assert made == kept, "PYTHONPATH=src:tests python -m vectors.filter_kit.build_kit tests/vectors/filter-kit"


@pytest.mark.parametrize("name", sorted(CHUNKS))
def test_the_manifest_tells_the_truth(name: str) -> None:
    """What pyarrow reads are the manifest's values, and a wrong filter denies as many as it says, a right one none."""
    file = pq.ParquetFile(KIT / name)
    with bs.open_file(KIT / name) as opened:
        for entry in CHUNKS[name]:
            group, column = entry["row_group"], entry["column"]
            read = [value for value in file.read_row_group(group)[column].to_pylist() if value is not None]
            if entry["type"] in ("BYTE_ARRAY", "INT64") and isinstance(read[0], str | int):
                assert read == entry["values"]
            assert len(read) == len(entry["values"]) == len(entry["stored"])
            assert (entry["denied"] == 0) == entry["right"]
            stored = opened.walk.stored_filter(opened.walk.chunk(group, opened.columns.index(column)))
            assert stored is not None
            found = SplitBlockBloomFilter.from_bitset(stored.bitset)
            assert _denied(found, entry["stored"]) == entry["denied"]
            assert _denied(found, entry["others"]) == entry["denied_others"] > 0, "it is not full of ones"


def _denied(found: SplitBlockBloomFilter, values: list[str]) -> int:
    hashes = np.array([xxhash.xxh64_intdigest(bytes.fromhex(value)) for value in values], dtype=np.uint64)
    return int((~found.check_hashes(hashes)).sum())


@pytest.mark.parametrize("name", sorted(CHUNKS))
def test_wrong_ones_are_found_and_never_sealed(name: str, tmp_path: Path) -> None:
    wrong = {(entry["row_group"], entry["column"]) for entry in CHUNKS[name] if not entry["right"]}
    report = bs.verify(KIT / name, filters=True)
    assert {(failure.row_group, failure.column) for failure in report.failures} == wrong
    assert (report.filters_true, report.filters_unasked) == (len(CHUNKS[name]) - len(wrong), [])
    assert ("BS210" in {finding.rule.id for finding in audit(KIT / name, deep=True).findings}) == bool(wrong)
    out = tmp_path / name
    if wrong:
        with pytest.raises(bs.FormatError, match="denies"):
            bs.seal_file(KIT / name, out, encryption=SEALED)
        assert not out.exists()
    bs.seal_file(KIT / name, out, encryption=SEALED, rebuild_filters=True)
    sealed = bs.DecryptionSpec(bs.ExplicitKeys(b"0123456789012345"))
    assert bs.verify(out, decryption=sealed, filters=True).complete


def test_the_command_line_fails_on_the_wrong_ones(capsys: pytest.CaptureFixture[str]) -> None:
    files = {kind: [str(KIT / name) for name in CHUNKS if name.startswith(kind)] for kind in ("right", "wrong")}
    assert main(["verify", "--filters", *files["right"]]) == 0
    assert main(["verify", *files["wrong"]]) == 0, "nothing is broken but the filters"
    capsys.readouterr()
    for name in files["wrong"]:
        assert main(["verify", "--filters", name]) == 1
        assert "denies" in capsys.readouterr().out
