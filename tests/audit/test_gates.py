"""An audit as a gate: what could not be looked at is never taken for clean."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bloomseal import ExplicitKeys
from bloomseal.audit import Report, Severity, audit
from bloomseal.audit.rendering.html import to_html
from bloomseal.audit.rendering.sarif import to_sarif
from bloomseal.cli.main import main
from bloomseal.keytools import KeyTools
from bloomseal.policy import Policy
from support.lab import Lab


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


def _told(report: Report) -> tuple[bool, bool, bool]:
    """What JSON, SARIF and the page say: was everything looked at?"""
    (one,) = json.loads(to_sarif(report))["runs"]
    first = to_html(report).split("</h1>")[1].split("</p>")[0]
    return (
        json.loads(report.to_json())["ok"],
        one["invocations"][0]["executionSuccessful"],
        "Not everything" not in first,
    )


@pytest.mark.parametrize("why", [ConnectionError, TimeoutError, PermissionError, LookupError, RuntimeError])
def test_a_kms_that_refuses(lab: Lab, why: type[Exception]) -> None:
    report = audit(lab.write("t/a.parquet"), keys=KeyTools(_Refusing(why), attempts=1))
    assert report.unseen
    assert not report.ok
    assert _told(report) == (False, False, False)


def test_a_clean_table_is_told_so(lab: Lab) -> None:
    report = lab.keyed(lab.write("t/a.parquet")).report()
    assert not report.unseen
    assert not report.hidden
    assert report.ok
    assert _told(report) == (True, True, True)


def test_what_only_keys_show_is_hidden_not_unseen(lab: Lab) -> None:
    report = lab.case(lab.write("t/a.parquet")).report()
    assert report.ok
    assert report.hidden
    assert _told(report) == (True, True, True)


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
    assert run("audit", *asked, "--fail-on", "critical", "--allow-unseen") == 0
    assert run("audit", *asked, "--fail-on", "never") == 0
    assert run("audit", *asked, "--fail-on", "never", "--fail-on", "unseen") == 3
    assert run("audit", *asked, "--fail-on", "unseen", "--allow-unseen") == 2


def test_fail_on_unseen_asks_for_keys(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    path = lab.write("t/a.parquet")
    assert run("audit", path) == 0
    assert run("audit", path, "--fail-on", "unseen") == 3
    assert run("audit", path, "--fail-on", "unseen", "--keyring", lab.keyring.path) == 0
    assert run("audit", path, "--fail-on", "info", "--fail-on", "error") == 2
    capsys.readouterr()


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
        assert run("audit", table, f"--report={kind}={mine}") == 0
    capsys.readouterr()
    (lab.folder / "empty").touch()
    assert run("audit", table, f"--report={kind}={lab.folder / 'empty'}", f"--report={kind}=/dev/null") == 0
    assert (lab.folder / "empty").stat().st_size
    for other in {*KINDS} - {kind}:
        assert run("audit", table, f"--report={other}={mine}") == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_report_lies_nowhere_among_the_data(lab: Lab, kind: str) -> None:
    table = lab.signed("t/a.parquet").parent
    parquet = kind in ("parquet", "findings")
    assert run("audit", table, f"--report={kind}={table / 'report.parquet'}") == 2
    assert run("audit", table, f"--report={kind}={lab.folder / 'report.parquet'}") == (0 if parquet else 2)
    assert run("audit", table, f"--report={kind}={table / 'report.txt'}") == (2 if parquet else 0)
    assert run("audit", table, f"--report={kind}={table / 'x.txt'}", f"--report={kind}={table / 'x.txt'}") == 2
