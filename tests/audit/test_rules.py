"""Each rule has a file that triggers it and a near miss that doesn't; what is clean gives nothing at warning or
above.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bloomseal import ExplicitKeys, FilterSpec, KeyTools
from bloomseal.audit import Severity
from bloomseal.audit.rules.catalogue import RULES, rules_as_markdown
from bloomseal.policy import ColumnPolicy, Sensitivity
from support.jvm import Jvm, java_write, key_tools
from support.lab import Case, Lab, arrow_file, edit_footer, people, told
from support.rule_cases import JAVA, PAIRS


def test_every_rule_has_its_case() -> None:
    of_tables = {rule for rule in RULES if rule.startswith("BS5")}  # tests/iceberg/test_audit.py
    assert {*PAIRS, *JAVA} | of_tables == set(RULES)


def test_the_page_of_rules_is_current() -> None:
    page = Path(__file__).parents[2] / "docs" / "audit-rules.md"
    assert page.read_text(encoding="utf-8") == rules_as_markdown()


@pytest.mark.parametrize("rule", sorted(PAIRS))
def test_rule(lab: Lab, rule: str) -> None:
    bad, near = PAIRS[rule](lab)
    findings = [one for one in bad.report().findings if one.rule.id == rule]
    assert findings, told(bad.report().findings)
    assert all(one.mend and "{" not in one.mend for one in findings)
    assert rule not in near.ids(), told(near.report().findings)


@pytest.mark.parametrize("rule", sorted(JAVA))
def test_rule_on_files_of_java(lab: Lab, java: Jvm, rule: str) -> None:
    bad, near = JAVA[rule](lab)
    assert rule in bad.ids()
    assert rule not in near.ids()


def _nothing_worse_than_info(case: Case) -> None:
    report = case.report()
    assert not report.at_least(Severity.WARNING), told(report.findings)
    assert report.files


@pytest.mark.parametrize("keys", ["without", "with"])
@pytest.mark.parametrize(
    "mode", ["encrypted footer", "signed footer", "uniform", "complete", "external", "single", "plain"]
)
def test_clean_files_of_ours(lab: Lab, mode: str, keys: str) -> None:
    options = {
        "encrypted footer": {},
        "signed footer": {"plaintext_footer": True},
        "uniform": {"column_keys": None, "plaintext_footer": True},
        "complete": {"complete": True, "plaintext_footer": True, "algorithm": "AES_GCM_CTR_V1"},
        "external": {"keys": KeyTools(lab.keyring, internal=False), "plaintext_footer": True},
        "single": {"keys": KeyTools(lab.keyring, double_wrapping=False)},
        "plain": None,
    }[mode]
    filters = {"ssn": FilterSpec(), "id": True, "city": FilterSpec(num_bytes=64), "nothing": True}
    for name in ("table/a.parquet", "table/b.parquet"):
        if options is None:
            (lab.folder / "table").mkdir(exist_ok=True)
            lab.plain(name, bloom_filters=filters)
        else:
            lab.write(name, encryption=options, bloom_filters=filters, write_page_index=True)
    case = lab.case if keys == "without" else lab.keyed
    _nothing_worse_than_info(case(lab.folder / "table"))
    _nothing_worse_than_info(case(lab.folder / "table", deep=True))


def test_a_table_that_keeps_its_policy(lab: Lab) -> None:
    policy = lab.policy(
        {
            "ssn": ColumnPolicy("pii", Sensitivity.RESTRICTED, FilterSpec(ndv=1000, hide_size=True)),
            "city": ColumnPolicy(filter=FilterSpec()),
        },
        aad_prefix="{table}/{file}", store_aad_prefix=False,
    )  # fmt: skip
    for name in ("a.parquet", "b.parquet"):
        path = lab.folder / "people" / name
        arguments = policy.encryption_arguments(path)
        lab.write(f"people/{name}", encryption=arguments, bloom_filters=policy.bloom_filters())
    for deep in (False, True):
        report = lab.case(lab.folder / "people", policy=policy, keys=policy.keys, deep=deep).report()
        assert not report.findings, told(report.findings)
        assert not report.unseen


@pytest.mark.parametrize("footer", [True, False])
def test_clean_files_of_pyarrow(lab: Lab, footer: bool) -> None:
    (lab.folder / "table").mkdir()
    for name in ("a", "b"):
        arrow_file(lab.folder / "table" / f"{name}.parquet", plaintext_footer=footer)
    _nothing_worse_than_info(lab.case(lab.folder / "table", deep=True))


@pytest.mark.parametrize("version", [1, 2])
def test_clean_files_of_parquet_java(lab: Lab, java: Jvm, version: int) -> None:
    schema = "message m { required int64 id; optional binary ssn (STRING); optional boolean b; }"
    rows = [{"id": i, "ssn": f"{i:09d}", "b": i % 2 == 0} for i in range(300)]
    masters = {"kf": b"0123456789012345", "kc": b"1234567890123450"}
    modes = {
        "columns": {"footer_key": "kf", "column_keys": {"kc": ["ssn"]}},
        "signed": {"footer_key": "kf", "column_keys": {"kc": ["ssn"]}, "plaintext_footer": True},
        "complete": {"footer_key": "kf", "column_keys": {"kc": ["ssn"]}, "plaintext_footer": True, "complete": True},
        "uniform": {"uniform_key": "kf", "plaintext_footer": True, "internal_material": False},
    }
    for mode, settings in modes.items():
        folder = lab.folder / mode
        folder.mkdir()
        java_write(
            folder / "a.parquet", schema, rows, encryption=key_tools(masters, **settings), filters=["ssn", "id", "b"],
            page_version=version, row_group_rows=100,
        )  # fmt: skip
        _nothing_worse_than_info(lab.case(folder, deep=True))


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("keys", ["without", "with"])
def test_published_files(lab: Lab, parquet_test_data: Path, keys: str, deep: bool) -> None:
    by_id = {"kf": b"0123456789012345", "kc1": b"1234567890123450", "kc2": b"1234567890123451"}
    _nothing_worse_than_info(
        lab.case(parquet_test_data, deep=deep, keys=ExplicitKeys(keys_by_id=by_id) if keys == "with" else None)
    )


def test_the_policy_makes_more_of_what_a_writer_always_leaves_open(lab: Lab) -> None:
    path = arrow_file(lab.folder / "arrow.parquet", plaintext_footer=True)
    policy = lab.policy({"ssn": ColumnPolicy("pii", Sensitivity.CONFIDENTIAL)}, plaintext_footer=True)
    found = {
        one.column: one.severity for one in lab.case(path, policy=policy).report().findings if one.rule.id == "BS105"
    }
    assert found == {"ssn": Severity.ERROR, "name": Severity.INFO}


def test_severity_follows_the_column(lab: Lab) -> None:
    path = lab.plain("plain.parquet", table=people(), bloom_filters={"ssn": True})
    policy = lab.policy({"ssn": ColumnPolicy("pii", Sensitivity.RESTRICTED)})
    found = {(one.rule.id, one.column): one.severity for one in lab.case(path, policy=policy).report().findings}
    assert found["BS101", "ssn"] is Severity.CRITICAL
    assert found["BS103", "ssn"] is Severity.CRITICAL
    assert found["BS101", "name"] is Severity.ERROR
    assert found["BS111", None] is Severity.ERROR


def test_no_signature_at_all(lab: Lab) -> None:
    path = edit_footer(lab.signed(), lambda meta: meta.remove(8, 9))
    for case in (lab.case(path), lab.keyed(path)):
        found = {one.rule.id: one.severity for one in case.report().findings}
        assert found["BS204"] is Severity.ERROR


def test_one_key_for_two_columns_counts_both(lab: Lab) -> None:
    both = {
        "column_keys": {"ssn": (b"s" * 16, "one"), "name": (b"s" * 16, "two")},
        "footer_key": b"f" * 16,
        "keys": None,
    }
    path = lab.write(encryption=both)
    keys = ExplicitKeys(b"f" * 16, {"ssn": b"s" * 16, "name": b"s" * 16})
    # Two row groups, two columns; of each a page and its header, metadata and two indexes.
    for limit, expected in ((20, Severity.WARNING), (19, Severity.CRITICAL), (41, None)):
        found = lab.case(path, keys=keys, policy=lab.policy(seal_limit=limit)).report().findings
        assert next((one.severity for one in found if one.rule.id == "BS307"), None) is expected, limit
