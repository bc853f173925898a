"""An audit as a gate: what could not be looked at is never taken for clean."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bloomseal import ExplicitKeys, KeyTools
from bloomseal.audit import Severity, audit
from bloomseal.audit import inventory as audit_inventory
from bloomseal.audit.rendering.html import to_html
from bloomseal.audit.rendering.sarif import to_sarif
from bloomseal.audit.report import Report
from bloomseal.cli.main import main
from bloomseal.policy import Policy
from support.lab import Lab, chunks, flip


def run(*arguments: object) -> int:
    return main([str(one) for one in arguments])


class _Refusing:
    """A KMS that unwraps nothing, as the real ones refuse."""

    def __init__(self, why: type[Exception]) -> None:
        self._why = why

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:  # noqa: ARG002
        raise self._why

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:  # noqa: ARG002
        raise self._why


class _Dateless:
    """A KMS that unwraps, and tells nothing of its keys."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        return str(self._inner.wrap_key(key_bytes, master_key_identifier))

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        return bytes(self._inner.unwrap_key(wrapped_key, master_key_identifier))


def _told(report: Report) -> tuple[bool | None, bool, bool]:
    """What JSON, SARIF and the page say: is it in order?"""
    (one,) = json.loads(to_sarif(report))["runs"]
    first = to_html(report).split("</h1>")[1].split("</p>")[0]
    return (
        json.loads(report.to_json())["ok"],
        one["invocations"][0]["executionSuccessful"],
        ">ok: " in first,
    )


@pytest.mark.parametrize("why", [ConnectionError, TimeoutError, PermissionError, LookupError, RuntimeError])
def test_a_kms_that_refuses(lab: Lab, why: type[Exception]) -> None:
    report = audit(lab.write("t/a.parquet"), keys=KeyTools(_Refusing(why), attempts=1))
    assert report.unseen
    assert not report.ok
    assert _told(report) == (False, False, False)


def test_a_clean_table_is_told_so(lab: Lab) -> None:
    report = lab.keyed(lab.write("t/a.parquet"), policy=lab.policy()).report()
    assert not report.unseen
    assert not report.hidden
    assert report.ok
    assert _told(report) == (True, True, True)
    assert report.verdict == "ok: 1 file checked against the policy, with keys, pages not read; no findings"


def test_what_only_keys_show_is_hidden_not_unseen(lab: Lab) -> None:
    report = lab.case(lab.write("t/a.parquet"), policy=lab.policy()).report()
    assert report.ok
    assert report.hidden
    assert _told(report) == (True, True, True)
    assert "without keys" in report.verdict
    assert "1 thing not looked at" in report.verdict


def test_without_a_policy_nothing_was_judged(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    lab.plain("t/a.parquet", bloom_filters={"ssn": True})
    report = audit(lab.folder / "t")
    assert report.ok is None
    assert not report.findings
    assert _told(report) == (None, False, False)
    assert report.in_clear == {"column_chunks": 10, "filters": 2, "statistics": 8}
    assert report.personal == {"ssn": "its name", "name": "its name", "city": "its name"}
    assert run("audit", lab.folder / "t") == 4
    out = capsys.readouterr().out
    assert "not judged" in out
    assert "10 column chunks, 2 filters, 8 statistics" in out
    assert "ssn (by its name)" in out
    assert run("audit", lab.folder / "t", "--fail-on", "never") == 0
    assert run("audit", lab.folder / "t", "--allow-unseen") == 4


def test_columns_that_look_personal_by_their_values(lab: Lab) -> None:
    texts = {
        "a": ["amy@example.org", "zoe@example.org"], "b": ["001-01-0001", "999-99-9999"], "c": ["+49 30 1234567"] * 2,
        "d": ["x", "y"], "ordered_at": ["1", "2"],
    }  # fmt: skip
    lab.plain("t/a.parquet", table=pa.table(texts))
    assert set(audit(lab.folder / "t").personal) == {"a", "b", "c"}


def test_keys_that_were_given_and_open_only_a_part(lab: Lab) -> None:
    path = lab.signed(encryption={"footer_key": b"f" * 16, "column_keys": {"ssn": b"s" * 16}, "keys": None})
    report = audit(path, keys=ExplicitKeys(footer_key=b"f" * 16))
    assert not report.ok
    assert any("ssn" in text or "column" in text for text in report.unseen)


def test_ages_that_nobody_tells(lab: Lab) -> None:
    from datetime import timedelta

    policy = lab.policy(max_key_age=timedelta(days=90), plaintext_footer=True)
    report = lab.case(lab.signed(), policy=policy, keys=KeyTools(_Dateless(lab.keyring))).report()
    assert any("age of master key pii" in text for text in report.unseen)
    keyless = lab.case(lab.signed(), policy=policy).report()
    assert keyless.ok
    assert any("ages of master keys" in text for text in keyless.hidden)


def _nothing(lab: Lab) -> tuple[object, ...]:
    (lab.folder / "empty").mkdir()
    return (lab.folder / "empty",)


def _unlistable(lab: Lab) -> tuple[object, ...]:
    lab.signed("t/a.parquet")
    (lab.folder / "t" / "below").mkdir()
    return (lab.folder / "t",)


def _dangling(lab: Lab) -> tuple[object, ...]:
    lab.signed("t/a.parquet")
    (lab.folder / "t" / "b.parquet").symlink_to(lab.folder / "unmounted" / "b.parquet")
    return (lab.folder / "t",)


def _no_table(lab: Lab) -> tuple[object, ...]:
    policy = lab.folder / "policy.toml"
    policy.write_text("version = 1\n[tables.customers]\nfooter_key = 'footer'\n")
    lab.signed("custmers/a.parquet")
    return lab.folder / "custmers", "--policy", policy


def _another_keyring(lab: Lab) -> tuple[object, ...]:
    from bloomseal import Keyring

    Keyring(lab.folder / "other.json", create=True).create("pii")
    return lab.write("t/a.parquet"), "--keyring", lab.folder / "other.json"


@pytest.mark.parametrize("place", [_nothing, _unlistable, _dangling, _no_table, _another_keyring])
def test_exit_codes(
    lab: Lab,
    place: Callable[[Lab], tuple[object, ...]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = place(lab)
    scan = os.scandir

    def refusing(path: str) -> Any:
        if Path(path).name == "below":
            raise PermissionError(13, "Permission denied")
        return scan(path)

    monkeypatch.setattr(os, "scandir", refusing)
    assert run("audit", *asked, "--fail-on", "critical") == 3
    assert "could not look" in capsys.readouterr().out
    assert run("audit", *asked, "--fail-on", "critical", "--format", "json") == 3
    told = json.loads(capsys.readouterr().out)
    assert told["unseen"]
    assert not told["ok"]
    judged = "--policy" in asked
    assert run("audit", *asked, "--fail-on", "critical", "--allow-unseen") == (0 if judged else 4)
    assert run("audit", *asked, "--fail-on", "never") == 0
    assert run("audit", *asked, "--fail-on", "never", "--fail-on", "unseen") == 3
    assert run("audit", *asked, "--fail-on", "unseen", "--allow-unseen") == 2


def _policy_file(lab: Lab, kms: str, extra: str = "") -> Path:
    path = lab.folder / "policy.toml"
    path.write_text(
        f"version = 1\nkms = '{kms}'\n[tables.t]\nfooter_key = 'footer'\n{extra}"
        "[tables.t.columns.ssn]\nkey = 'pii'\n[tables.t.columns.name]\nkey = 'pii'\n"
    )
    return path


def test_fail_on_unseen_asks_for_keys(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    path = lab.write("t/a.parquet")
    policy = ("--policy", _policy_file(lab, f"keyring:{lab.keyring.path}"))
    assert run("audit", path, *policy, "--without-keys") == 0
    assert run("audit", path, *policy, "--without-keys", "--fail-on", "unseen") == 3
    assert run("audit", path, *policy, "--fail-on", "unseen") == 0
    assert run("audit", path, *policy, "--fail-on", "unseen", "--keyring", lab.keyring.path) == 0
    assert run("audit", path, *policy, "--without-keys", "--keyring", lab.keyring.path) == 2
    assert run("audit", path, *policy, "--without-keys", "--may-destroy", "pii:1") == 2
    assert run("audit", path, "--fail-on", "info", "--fail-on", "error") == 2
    capsys.readouterr()


def test_keys_are_from_the_kms_that_the_policy_names(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    """What only keys show, a filter that does not authenticate, is found without naming them twice."""
    path = lab.write("t/a.parquet", bloom_filters={"ssn": True})
    offset = next(
        chunk.meta.bloom_filter_offset
        for chunk in chunks(path, KeyTools(lab.keyring))
        if chunk.meta.bloom_filter_offset is not None
    )
    flip(path, offset + 60)
    policy = _policy_file(lab, f"keyring:{lab.keyring.path}")
    assert run("audit", path, "--policy", policy) == 1
    assert "BS202" in capsys.readouterr().out
    assert "BS202" in {one.rule.id for one in audit(path, policy=Policy.load(policy)).findings}
    assert not audit(path, policy=Policy.load(policy), with_keys=False).at_least(Severity.ERROR)
    assert not audit_inventory(path, policy=Policy.load(policy))["filter_authentic"].to_pylist()[1]


def test_a_kms_that_the_policy_names_and_nobody_reaches(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    path = lab.write("t/a.parquet")
    policy = _policy_file(lab, f"keyring:{lab.folder / 'nowhere.json'}")
    assert run("audit", path, "--policy", policy) == 3
    assert "could not look:\n    the keys of the policy's KMS" in capsys.readouterr().out
    report = audit(path, policy=Policy.load(policy))
    assert report.ok is False
    assert report.verdict == "not ok: no findings; 1 thing could not be looked at"


def test_may_destroy_asks_the_kms_that_the_policy_names(lab: Lab) -> None:
    path = lab.write("t/a.parquet")
    policy = _policy_file(lab, f"keyring:{lab.keyring.path}")
    assert run("audit", path, "--policy", policy, "--may-destroy", "pii:1") == 1
    nowhere = _policy_file(lab, f"keyring:{lab.folder / 'nowhere.json'}")
    assert run("audit", path, "--policy", nowhere, "--may-destroy", "pii:1") == 3


def test_evidence_takes_keys_from_the_policys_kms(lab: Lab) -> None:
    from bloomseal.evidence import make

    path = lab.write("t/a.parquet")
    found = make(path, lab.folder / "e.zip", policy=_policy_file(lab, f"keyring:{lab.keyring.path}"))
    assert found.told["looked_at"]["with_keys"]
    assert run("evidence", path, "--output", lab.folder / "f.zip", "--policy", lab.folder / "policy.toml") == 0


def test_a_finding_counts_more_than_what_was_not_seen(lab: Lab) -> None:
    (lab.folder / "t").mkdir()
    (lab.folder / "t" / "a.parquet").write_bytes(b"no Parquet")
    (lab.folder / "t" / "b.parquet").symlink_to(lab.folder / "unmounted")
    assert run("audit", lab.folder / "t") == 1


def test_files_that_no_table_claims(lab: Lab) -> None:
    lab.signed("lake/people/a.parquet")
    lab.signed("lake/peeple/a.parquet")
    report = audit(lab.folder / "lake", policy=Policy({"people": lab.policy(plaintext_footer=True)}))
    (text,) = [one for one in report.unseen if "no table of the policy" in one]
    assert "1 of 2" in text
    assert not report.at_least(Severity.ERROR)


KINDS = ("json", "parquet", "findings", "sarif", "html", "cbom")


@pytest.mark.parametrize("kind", KINDS)
def test_a_report_takes_no_other_files_place(lab: Lab, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    table = lab.signed("t/a.parquet").parent
    others = {
        "data.parquet": lab.plain("data.parquet").read_bytes(), "sealed.bin": (table / "a.parquet").read_bytes(),
        "notes.txt": b"not mine", "package.json": b'{"name": "x"}',
    }  # fmt: skip
    for name, data in others.items():
        (lab.folder / name).write_bytes(data)
        assert run("audit", table, f"--report={kind}={lab.folder / name}") == 2
        assert (lab.folder / name).read_bytes() == data
    assert run("audit", table, f"--report={kind}={table / 'a.parquet'}") == 2
    assert run("audit", table, f"--report={kind}={table}") == 2
    assert sorted(path.name for path in table.iterdir()) == ["a.parquet"]
    # Its own predecessor, an empty file and a pipe it may take.
    mine = lab.folder / f"mine.{'parquet' if kind in ('parquet', 'findings') else kind}"
    for _ in range(2):
        assert run("audit", table, f"--report={kind}={mine}") == 4
    capsys.readouterr()
    (lab.folder / "empty").touch()
    assert run("audit", table, f"--report={kind}={lab.folder / 'empty'}", f"--report={kind}=/dev/null") == 4
    assert (lab.folder / "empty").stat().st_size
    for other in {*KINDS} - {kind}:
        assert run("audit", table, f"--report={other}={mine}") == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_report_lies_nowhere_among_the_data(lab: Lab, kind: str) -> None:
    table = lab.signed("t/a.parquet").parent
    parquet = kind in ("parquet", "findings")
    assert run("audit", table, f"--report={kind}={table / 'report.parquet'}") == 2
    assert run("audit", table, f"--report={kind}={lab.folder / 'report.parquet'}") == (4 if parquet else 2)
    assert run("audit", table, f"--report={kind}={table / 'report.txt'}") == (2 if parquet else 4)
    assert run("audit", table, f"--report={kind}={table / 'x.txt'}", f"--report={kind}={table / 'x.txt'}") == 2


def test_where_no_report_can_be_written_is_told_before_the_look(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was told after it."""
    lab.write("t/a.parquet")
    monkeypatch.setattr("bloomseal.audit.facts.auditor.Auditor.look", lambda *_, **__: pytest.fail("it has looked"))
    out = lab.folder / "none" / "report.json"
    assert main(["audit", str(lab.folder / "t"), "--report", f"json={out}"]) == 2
    assert "the report can't be written: No such file" in capsys.readouterr().err
