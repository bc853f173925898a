"""Reports: the same audit gives the same bytes, and each format is what it says it is."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bloomseal
from bloomseal.audit import audit
from bloomseal.audit.rendering.cbom import to_cbom
from bloomseal.audit.rendering.html import to_html
from bloomseal.audit.rendering.sarif import to_sarif
from bloomseal.audit.report import Report
from bloomseal.audit.rules.catalogue import RULES
from bloomseal.cli.main import main
from bloomseal.core.thrift import Struct
from bloomseal.policy import Policy
from support.lab import Lab, edit_meta, people
from support.sarif import check_sarif

HOSTILE = '<script>alert("x")</script>'


@pytest.fixture
def report(lab: Lab) -> Report:
    def spoil(meta: Struct) -> None:
        meta.set_struct(17, Struct())

    edit_meta(lab.signed("t/leaky.parquet", bloom_filters={"ssn": True, "city": True}), 1, spoil)
    lab.write("t/good.parquet", bloom_filters={"ssn": True})
    (lab.folder / "t" / f"{HOSTILE.replace('/', '_')}.parquet").write_bytes(b"no Parquet")
    return lab.keyed(lab.folder / "t").report()


@pytest.mark.parametrize("form", [Report.to_json, to_sarif, to_html, to_cbom])
def test_deterministic(lab: Lab, report: Report, form: Callable[[Report], str]) -> None:
    assert form(report) == form(lab.keyed(lab.folder / "t").report())


def test_json(report: Report) -> None:
    told = json.loads(report.to_json(inventory=True))
    assert told["counts"] == {"critical": 1, "error": 1, "warning": 0, "info": 1}
    assert {one["rule"] for one in told["findings"]} == {"BS201", "BS203", "BS106"}
    assert len(told["inventory"]) == report.inventory.num_rows


def _validator() -> Any:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((Path(__file__).parents[2] / "docs" / "audit-report.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())


def test_json_is_by_its_published_schema(
    lab: Lab, report: Report, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    check = _validator().validate
    for one in (report, lab.case(lab.folder / "t").report(), lab.keyed(lab.folder / "t", deep=True).report()):
        check(json.loads(one.to_json(inventory=True)))
    ring, old = ("--keyring", lab.keyring.path), tmp_path / "old.parquet"
    assert run("audit", lab.folder / "t", *ring, f"--report=parquet={old}") == 1
    lab.keyring.rotate("pii")
    capsys.readouterr()
    assert run("audit", lab.folder / "t", *ring, "--since", old, "--format", "json") == 1
    told = json.loads(capsys.readouterr().out)
    check(told)
    # It describes every field, and no report that lacks one passes.
    assert set(told) | {"inventory"} == set(_validator().schema["properties"])
    for name in set(told) - {"since"}:
        assert not _validator().is_valid({key: value for key, value in told.items() if key != name}), name
    for wrong in ({"ok": "yes"}, {"counts": {"bad": 1}}, {"findings": [{"rule": "BS101"}]}, {"format_version": 1}):
        assert not _validator().is_valid(told | wrong), wrong


def test_sarif(report: Report) -> None:
    log = json.loads(to_sarif(report))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == list(RULES)
    assert len(run["results"]) == len(report.findings)
    for result, finding in zip(run["results"], report.findings, strict=True):
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"] == finding.rule.id
        assert result["level"] in ("note", "warning", "error")
        assert result["message"]["text"]
        uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        assert re.fullmatch(r"[A-Za-z0-9._~:/%()=!*'-]+", uri), uri
    prints = [one["partialFingerprints"]["placeAndRule/v1"] for one in run["results"]]
    assert len(set(prints)) == len(prints)


def test_sarif_satisfies_its_own_validator(lab: Lab, report: Report) -> None:
    """With findings of every kind of place, with what was not seen, with a base, and empty."""
    (lab.folder / "empty").mkdir()
    empty = lab.case(lab.folder / "empty").report()
    assert empty.unseen
    for one in (report, lab.keyed(lab.folder / "t", deep=True).report(), lab.case(lab.folder / "t").report(), empty):
        for base in (None, lab.folder):
            check_sarif(to_sarif(one, base=base))
    good = json.loads(to_sarif(report))
    wrong: list[Callable[[dict[str, Any]], object]] = [
        lambda log: log.pop("version"),
        lambda log: log["runs"][0].pop("tool"),
        lambda log: log["runs"][0]["results"][0].pop("message"),
        lambda log: log["runs"][0]["results"][0].update(level="bad"),
        lambda log: log["runs"][0]["results"][0].update(ruleIndex="first"),
        lambda log: log["runs"][0]["results"][0].update(mended=True),
        lambda log: log["runs"][0]["invocations"][0].pop("executionSuccessful"),
        lambda log: log["runs"][0]["tool"]["driver"]["rules"][0].pop("id"),
    ]
    for spoil in wrong:
        log = json.loads(json.dumps(good))
        spoil(log)
        with pytest.raises(AssertionError):
            check_sarif(json.dumps(log))


def test_sarif_names_files_below_a_base(lab: Lab, report: Report) -> None:
    results = json.loads(to_sarif(report, base=lab.folder))["runs"][0]["results"]
    uris = {one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for one in results}
    assert "t/leaky.parquet" in uris


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, Any]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))


def test_html_needs_no_network_and_trusts_no_name(report: Report) -> None:
    page = to_html(report)
    tags = _Tags()
    tags.feed(page)
    assert {"figure", "table"} <= {tag for tag, _ in tags.seen}
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in tags.seen}
    assert not [attrs for _, attrs in tags.seen if {"src", "onload"} & attrs.keys()]
    links = {attrs["href"] for _, attrs in tags.seen if "href" in attrs}
    assert links == {f"#{one.rule.id}" for one in report.findings}
    assert links == {f"#{attrs['id']}" for _, attrs in tags.seen if "id" in attrs}
    assert "&lt;script&gt;" in page
    heads = re.findall("<h2>(.*?)</h2>", page)
    assert heads[:2] == ["Findings", "To mend it"]
    assert len(heads) == 9  # three charts; findings, commands, rules; what may be personal; what was looked at, and not
    assert page.count("<h3>") == len(links)


def test_html_says_what_made_it_and_of_what(lab: Lab) -> None:
    policy = lab.folder / "policy.toml"
    policy.write_text("version = 1\n[tables.t]\nfooter_key = 'footer'\n[tables.t.columns.ssn]\nkey = 'pii'\n")
    report = lab.keyed(lab.write("t/a.parquet"), policy=Policy.load(policy)).report()
    page = to_html(report)
    digest = hashlib.sha256(policy.read_bytes()).hexdigest()
    for text in (digest, f"bloomseal {bloomseal.__version__}", "2030-01-01 00:00:00 UTC", "@media print"):
        assert text in page
    assert json.loads(report.to_json())["policy_digest"] == digest


def test_names_forge_no_line_and_turn_nothing_round(report: Report) -> None:
    hostile = "ssn\nforged\u202egnp\u200b"
    first = replace(report.findings[0], column=hostile, file=f"/t/{hostile}", message=f"{hostile} lies open")
    inventory = report.inventory.set_column(
        report.inventory.schema.get_field_index("column"),
        "column",
        pa.array([None if one is None else hostile for one in report.inventory["column"].to_pylist()]),
    )
    forged = replace(report, findings=[first], inventory=inventory, unseen=[hostile])
    page = to_html(forged)
    assert not set("\u202e\u200b") & set(page)
    assert "ssn\nforged" not in page
    assert "ssn\\u000aforged\\u202egnp\\u200b" in page
    (run,) = json.loads(to_sarif(forged))["runs"]
    texts = [result["message"]["text"] for result in run["results"]]
    texts += [one["message"]["text"] for one in run["invocations"][0]["toolExecutionNotifications"]]
    assert len(texts) == 2
    assert all(text.isprintable() for text in texts)


def test_every_chart_shows_its_shares(report: Report) -> None:
    charts = re.findall(r"<figure>.*?</figure>", to_html(report), re.DOTALL)
    assert len(charts) == 3
    for chart in charts:
        ElementTree.fromstring(chart)  # noqa: S314  # our own
        shares = [int(one) for one in re.findall(r"(-?\d+)%", chart)]
        assert shares
        assert all(0 <= one <= 100 for one in shares)
    _, exposure, _ = charts
    assert "100 %" in exposure


def test_many_files_are_told_in_short(
    lab: Lab, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule, count, worst example; then one command for the table, which mends all of it."""
    monkeypatch.chdir(lab.folder)
    folder = lab.folder / "people"
    policy = lab.folder / "policy.toml"
    columns = "".join(f"[tables.people.columns.{name}]\nkey = 'pii'\n" for name in ("ssn", "name"))
    kms = f"kms = 'keyring:{lab.keyring.path}'\n"
    policy.write_text(f"version = 1\n{kms}[tables.people]\nfooter_key = 'footer'\nkey_bits = 256\n{columns}")
    for number in range(60):
        lab.write(f"people/{number:02d}.parquet", people(10))
    assert run("audit", folder, "--policy", policy, "--fail-on", "warning", "--format", "json") == 1
    found = json.loads(capsys.readouterr().out)["findings"]
    assert {one["rule"] for one in found} == {"BS311"}
    assert len(found) > 60
    (command,) = {one["fix"] for one in found}
    assert shlex.split(command)[:4] == ["bloomseal", "rekey", "--restart", str(folder)]
    assert run("audit", folder, "--policy", policy, "--fail-on", "warning") == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 30
    assert [line for line in lines if "BS311" in line and "people/00.parquet" in line]
    assert len([line for line in lines if "--from-any" in line]) == 1
    assert run("audit", folder, "--policy", policy, "--verbose") == 0
    assert "people/59.parquet" in capsys.readouterr().out
    assert to_html(audit(folder, policy=Policy.load(policy))).count("--from-any") == 1
    assert run(*shlex.split(command)[1:]) == 0
    assert run("audit", folder, "--policy", policy, "--fail-on", "info") == 0
    # A few files of several are named; the others are left alone.
    for number in (3, 7):
        lab.write(f"people/{number:02d}.parquet", people(10))
    (command,) = {one.fix for one in audit(folder, policy=Policy.load(policy)).findings}
    assert shlex.split(command)[3:5] == [str(folder / "03.parquet"), str(folder / "07.parquet")]
    assert run(*shlex.split(command)[1:]) == 0
    assert run("audit", folder, "--policy", policy, "--fail-on", "info") == 0


def test_each_report_says_what_was_not_seen(lab: Lab) -> None:
    lab.write("t/a.parquet")
    (lab.folder / "t" / "export.csv").write_text("ssn\n078\n")
    report = lab.case(lab.folder / "t", policy=lab.policy()).report()
    assert len(report.hidden) == 2
    for form in (Report.to_json, to_sarif, to_html, to_cbom):
        assert "export.csv" in form(report), form
    whole = lab.keyed(lab.write("u/a.parquet"), policy=lab.policy()).report()
    assert not whole.hidden
    assert "not_seen" not in to_cbom(whole)
    assert "their pages were not read" in to_html(whole)
    assert "their pages were not read" not in to_html(
        lab.keyed(lab.folder / "u", policy=lab.policy(), deep=True).report()
    )


def test_cbom_is_valid(report: Report) -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    text = to_cbom(report)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    refs = {one["bom-ref"] for one in json.loads(text)["components"]}
    assert {"algorithm:AES-128-GCM", "master-key:footer:1", "master-key:pii:1"} <= refs


def run(*arguments: object) -> int:
    return main([str(one) for one in arguments])


def test_command_line(lab: Lab, report: Report, capsys: pytest.CaptureFixture[str]) -> None:
    ring = lab.keyring.path
    names = {kind: lab.folder / f"report.{kind}" for kind in ("json", "parquet", "findings", "sarif", "html", "cbom")}
    options = [f"--report={kind}={path}" for kind, path in names.items()]
    assert run("audit", lab.folder / "t", "--keyring", ring, *options) == 1
    out = capsys.readouterr().out
    assert "BS201" in out
    assert "BS106" in out
    assert pq.read_table(names["parquet"]).num_rows == report.inventory.num_rows
    assert pq.read_table(names["findings"])["rule"].to_pylist() == [one.rule.id for one in report.findings]
    assert json.loads(names["json"].read_text())["files"] == 3
    assert json.loads(names["sarif"].read_text())["version"] == "2.1.0"
    assert names["html"].read_text().startswith("<!doctype html>")
    assert json.loads(names["cbom"].read_text())["bomFormat"] == "CycloneDX"


def test_fail_on(lab: Lab, report: Report, capsys: pytest.CaptureFixture[str]) -> None:
    leaky = lab.folder / "t" / "leaky.parquet"
    assert report.files == 3
    assert [run("audit", leaky, "--fail-on", level) for level in ("info", "warning", "error", "never")] == [1, 4, 4, 0]
    capsys.readouterr()
    assert run("audit", leaky, "--format", "json") == 4
    assert json.loads(capsys.readouterr().out)["counts"]["info"] == 1


def test_policy_since_and_may_destroy(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    path = lab.write("people/a.parquet")
    ring = ("--keyring", lab.keyring.path)
    policy = lab.folder / "policy.toml"
    policy.write_text(
        "version = 1\n[tables.people]\nfooter_key = 'footer'\n[tables.people.columns.ssn]\nkey = 'pii'\n"
        "[tables.people.columns.city]\nkey = 'pii'\nsensitivity = 'restricted'\n"
    )
    old = lab.folder / "old.parquet"
    assert run("audit", path, "--policy", policy, *ring, f"--report=parquet={old}") == 1
    assert "BS101" in capsys.readouterr().out
    lab.keyring.rotate("pii")
    assert run("audit", path, "--since", old, *ring, "--format", "json") == 4
    since = json.loads(capsys.readouterr().out)["since"]
    assert [Path(one).name for one in since["missed"]] == ["a.parquet"]
    assert run("audit", path, "--may-destroy", "pii:1", *ring) == 1
    assert capsys.readouterr().out.startswith("no: pii version 1")
    lab.keyring.rotate("other")
    assert run("audit", path, "--may-destroy", "other:1", "--after", 0, *ring) == 0
    out = capsys.readouterr().out
    assert out.startswith("yes: other version 1")
    assert "not looked at:\n    copies outside of these places" in out
    assert run("audit", path, "--may-destroy", "other:1", *ring) == 3
    assert "writers may hold a key under it" in capsys.readouterr().out
    assert run("audit", path, "--may-destroy", "other:1", "--after", 0, "--also", lab.folder / "gone", *ring) == 3
    assert f"in doubt:\n    {lab.folder / 'gone'}: " in capsys.readouterr().out
    assert run("audit", path, "--may-destroy", "pii:*", *ring) == 1
    assert run("audit", path, "--may-destroy", "pii:2") == 3
    assert "unknown" in capsys.readouterr().out
    for wrong in (("pii",), ("pii:77", *ring), ("piii:1", *ring), ("arn:aws:kms:eu:1:key/2",)):
        assert run("audit", path, "--may-destroy", *wrong) == 2
    assert run("audit", path, "--also", path) == 2


def test_demonstrate(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    path = lab.plain(bloom_filters={"ssn": True})
    asked = ("audit", path, "--demonstrate", "ssn", "--pattern", r"\d{3}-\d{2}-\d{4}", "--most", "20000")
    assert run(*asked, "--format", "json") in (0, 1)
    (told,) = json.loads(capsys.readouterr().out)
    assert (told["candidates"], told["possible_candidates"]) == (20_000, 10**9)
    listed = lab.folder / "candidates.txt"
    listed.write_text("000-00-0000\n001-01-0001\nnobody\n")
    assert run("audit", path, "--demonstrate", "ssn", "--candidates", listed) == 1
    out = capsys.readouterr().out
    assert "000-00-0000" not in out
    assert run("audit", path, "--demonstrate", "ssn") == 2
    sealed = lab.signed("sealed.parquet", bloom_filters={"ssn": True})
    none = ("--demonstrate", "ssn", "--candidates", listed)
    assert run("audit", sealed, *none) == 0  # nothing leaks
    assert run("audit", sealed, lab.folder / "gone.parquet", *none) == 2
    assert run("audit", sealed, "--demonstrate", "snn", "--candidates", listed) == 2


def test_missing_libraries_name_their_extra(lab: Lab, report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from bloomseal import MissingDependencyError

    for name in ("jinja2", "deltalake", "pyiceberg.table"):
        monkeypatch.setitem(sys.modules, name, None)
    (lab.folder / "delta" / "_delta_log").mkdir(parents=True)
    (lab.folder / "delta" / "_delta_log" / "0.json").write_text("{}")
    (lab.folder / "x.metadata.json").write_text("{}")
    for extra, call in {
        "report": lambda: to_html(report),
        "delta": lambda: lab.case(lab.folder / "delta").report(),
        "iceberg": lambda: lab.case(lab.folder / "x.metadata.json").report(),
    }.items():
        with pytest.raises(MissingDependencyError, match=rf"bloomseal\[{extra}\]"):
            call()


def test_json_in_pieces_is_the_same_text(lab: Lab, report: Report) -> None:
    (lab.folder / "empty").mkdir()
    for one in (report, audit(lab.folder / "empty")):
        assert one is not report or report.findings
        whole = json.dumps(one.to_dict(inventory=True), indent=2, ensure_ascii=False, default=lambda at: at.isoformat())
        assert one.to_json(inventory=True) == whole + "\n"
