"""Files of arrow-rs with encrypted columns, whose filters it leaves in clear: found, not believed, and mended.
`make.py` made them.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

import bloomseal as bs
from bloomseal.audit import audit
from bloomseal.audit.leaks import demonstrate

DIGESTS = {
    "encrypted-footer": "cedde68b96062aa72450e12edd96f9d9191c1b494b17ce271a42a07db27403ce",
    "plaintext-footer": "8b158d2aa4cacbd4bc364ff872870b089c4dc24dd2bd126a345fdf4efde97ea5",
}
FOOTER_KEY, COLUMN_KEY = b"0123456789012345", b"1234567890123450"
PRESENT, ABSENT = "000007919", "no such"


def keys(*columns: str) -> bs.ExplicitKeys:
    return bs.ExplicitKeys(footer_key=FOOTER_KEY, column_keys=dict.fromkeys(columns, COLUMN_KEY))


@pytest.fixture(params=DIGESTS)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    stored = Path(__file__).with_name(f"{request.param}.parquet")
    assert hashlib.sha256(stored.read_bytes()).hexdigest() == DIGESTS[request.param]
    return Path(shutil.copy(stored, tmp_path))


def rules(path: Path, known: bs.ExplicitKeys | None, *, deep: bool = False) -> set[str]:
    return {finding.rule.id for finding in audit(path, keys=known, deep=deep).findings}


def test_all_modules_but_the_filter_open(path: Path) -> None:
    with bs.open_file(path, decryption=bs.DecryptionSpec(keys("ssn", "name"))) as file:
        assert file.read(["ssn", "visit", "name"]).num_rows == 200
        report = file.verify()
    assert not report.complete
    assert any("clear" in str(error) for error in [*report.failures, *report.notes])


def test_its_filter_is_not_believed(path: Path) -> None:
    with (
        bs.open_file(path, decryption=bs.DecryptionSpec(keys("ssn", "name"))) as file,
        pytest.raises(bs.PolicyError, match="stands in clear"),
    ):
        file.probe("ssn", [ABSENT])


def test_the_audit_finds_it(path: Path) -> None:
    assert "BS102" in rules(path, keys("ssn", "name"))
    # Its place is sealed with the column's metadata, so without that key only the file's bytes tell.
    for known in (None, keys()):
        assert not {"BS102", "BS114"} & rules(path, known)
        assert "BS114" in rules(path, known, deep=True)
    shown = demonstrate(path, "ssn", [PRESENT, ABSENT], keys=keys("ssn", "name"))
    assert (shown.candidates, shown.confirmed) == (2, 1)


def test_attach_mends_it(path: Path) -> None:
    decryption = bs.DecryptionSpec(keys("ssn", "name"))
    bs.attach_filters(path, {"ssn": bs.FilterSpec()}, decryption=decryption)
    assert not {"BS102", "BS114"} & rules(path, keys("ssn", "name"), deep=True)
    assert "BS114" not in rules(path, None, deep=True)
    assert bs.probe(path, "ssn", [PRESENT, ABSENT], decryption=decryption) == [["maybe present", "absent"]]
    assert bs.verify(path, decryption=decryption).ok
