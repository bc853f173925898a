"""To mend it mends: the command of each rule's finding, run as it stands, removes the finding. Else there is advice,
and no command.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

import bloomseal as bs
from bloomseal import KeyTools
from bloomseal.audit import audit
from bloomseal.audit.rendering.sarif import to_sarif
from bloomseal.audit.rules.catalogue import RULES
from bloomseal.audit.rules.findings import Finding
from bloomseal.cli.main import main
from bloomseal.core.keys.protocols import FileRef
from bloomseal.core.parquet.expectation import Expectation
from bloomseal.core.parquet.footer import peek
from bloomseal.core.parquet.keys_at_hand import KeysAtHand
from bloomseal.keytools.kms import registry
from bloomseal.policy import ColumnPolicy, Policy, TablePolicy
from bloomseal.sbbf import FilterSpec
from bloomseal.storage.places import open_source
from bloomseal.write.assemble import sign_footer
from support.jvm import Jvm
from support.lab import Case, Lab, chunks, people, told
from support.rule_cases import JAVA, PAIRS
from support.sarif import check_sarif

PERSON = {
    "BS107",
    "BS111",
    "BS113",
    "BS119",
    "BS120",
    "BS201",
    "BS203",
    "BS204",
    "BS206",
    "BS207",
    "BS209",
    "BS211",
    "BS307",
    "BS312",
    "BS313",
    "BS315",
    "BS317",
    "BS318",
    "BS319",
    "BS320",
}
"""Rules whose case needs a person."""

CASES: dict[str, Callable[[Lab], Case]] = {}
"""Cases that can be mended, where the rule's own is spoilt beyond that, or needs a person."""


def case(rule: str) -> Callable[[Callable[[Lab], Case]], Callable[[Lab], Case]]:
    def keep(make: Callable[[Lab], Case]) -> Callable[[Lab], Case]:
        CASES[rule] = make
        return make

    return keep


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BLOOMSEAL_KEYRING", "BLOOMSEAL_KEYRING_PASSPHRASE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def _signed_again(lab: Lab, rule: str) -> Case:
    """The rule's case as a writer would have left it: what was edited is signed with the file's own key."""
    bad = PAIRS[rule](lab)[0]
    for path in bad.paths:
        _sign_again(lab, path)
    return bad


def _sign_again(lab: Lab, path: Path) -> None:
    with open_source(path) as source:
        seen = peek(source)
        (crypto, *_) = seen.crypto(Expectation())
        cipher = KeysAtHand(crypto, KeyTools(lab.keyring).for_file(FileRef(str(path)))).footer()
    end = sign_footer(seen.clear, crypto, cipher)
    path.write_bytes(path.read_bytes()[: seen.offset] + bytes(end))


for _rule in ("BS104", "BS106", "BS108", "BS109"):
    CASES[_rule] = lambda lab, rule=_rule: _signed_again(lab, rule)  # type: ignore[misc]


@case("BS105")
def arrow_with_our_keys(lab: Lab) -> Case:
    class Kms(pe.KmsClient):  # type: ignore[misc]
        def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
            return lab.keyring.wrap_key(key_bytes, master_key_identifier).encode()

        def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
            return lab.keyring.unwrap_key(wrapped_key.decode(), master_key_identifier)

    factory = pe.CryptoFactory(lambda _: Kms())
    config = pe.EncryptionConfiguration(
        footer_key="footer", column_keys={"pii": ["ssn", "name"]}, plaintext_footer=True
    )
    properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), config)
    path = lab.folder / "arrow.parquet"
    with pq.ParquetWriter(path, people().schema, encryption_properties=properties, write_page_index=True) as writer:
        writer.write_table(people())
    return lab.case(path)


@case("BS102")
def clear_copy(lab: Lab) -> Case:
    return PAIRS["BS102"](lab)[0]


@case("BS111")
def plaintext_file(lab: Lab) -> Case:
    policy = lab.policy(
        {"ssn": ColumnPolicy("pii", filter=FilterSpec(fpp=0.002))}, aad_prefix="{table}/{path}/", store_aad_prefix=False
    )
    lab.plain("people/x=1/b 'quoted'.parquet")
    return lab.case(lab.folder / "people", policy=policy)


@case("BS114")
def stray(lab: Lab) -> Case:
    path = lab.write("t/a.parquet")
    data, plain = path.read_bytes(), lab.plain("x.parquet", bloom_filters={"ssn": True})
    meta = next(one.meta for one in chunks(plain) if one.leaf.name == "ssn")
    clear = plain.read_bytes()[meta.bloom_filter_offset : meta.bloom_filter_offset + meta.bloom_filter_length]
    length = int.from_bytes(data[-8:-4], "little") + 8
    path.write_bytes(data[:-length] + clear + data[-length:])
    return lab.keyed(path, deep=True)


@case("BS306")
def one_nonce(lab: Lab) -> Case:
    from bloomseal.core.encryption import cipher

    kept = cipher.os.urandom
    cipher.os.urandom = lambda size: bytes(size) if size == cipher.NONCE_BYTES else kept(size)
    try:
        return lab.keyed(lab.signed("t/a.parquet"), deep=True)
    finally:
        cipher.os.urandom = kept


@case("BS301")
def aged(lab: Lab) -> Case:
    from bloomseal.keytools.keyring import keyfile

    class Earlier(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(tz) - timedelta(days=100)

    kept = keyfile.datetime
    keyfile.datetime = Earlier  # type: ignore[misc]
    try:
        old = Lab(lab.folder / "old") if (lab.folder / "old").mkdir() is None else lab
    finally:
        keyfile.datetime = kept  # type: ignore[misc]
    for name in ("a", "b"):
        old.signed(f"t/{name}.parquet")
    policy = old.policy(max_key_age=timedelta(days=90), plaintext_footer=True)
    return Case([old.folder / "t"], {"keys": KeyTools(old.keyring), "policy": policy, "now": datetime.now(UTC)})


@case("BS303")
def unexpected_key(lab: Lab) -> Case:
    path = lab.signed(encryption={"column_keys": {"ssn": "other", "name": "pii"}})
    return lab.case(path, policy=lab.policy(plaintext_footer=True))


@case("BS307")
def limit_over_files(lab: Lab) -> Case:
    key = KeyTools(lab.keyring).for_file(FileRef("x")).new_key("pii", "ssn", 128)
    paths = [lab.signed(f"t/{n}.parquet", encryption={"column_keys": {"ssn": key}}) for n in "abcd"]
    return lab.case(*paths, policy=lab.policy({"name": ColumnPolicy()}, seal_limit=40, plaintext_footer=True))


def _file(policy: TablePolicy, lab: Lab) -> TablePolicy:
    """The policy as read from a file."""
    lines = ["version = 1", f'kms = "keyring:{policy.kms.path}"', f"[tables.{policy.name}]"]

    def text(value: Any) -> str:
        return str(value).lower() if isinstance(value, bool) else json.dumps(value)

    simple = ("footer_key", "plaintext_footer", "complete", "key_bits", "store_aad_prefix", "seal_limit", "aad_prefix")
    lines += [f"{name} = {text(value)}" for name in simple if (value := getattr(policy, name)) is not None]
    if policy.max_key_age is not None:
        lines.append(f"max_key_age_days = {policy.max_key_age.days}")
    for name, column in policy.columns.items():
        lines.append(f"[tables.{policy.name}.columns.{name}]")
        lines += [f"key = {text(column.key)}"] if column.key else []
        lines += [
            f"previous_keys = {text(list(column.previous_keys))}",
            f"sensitivity = {text(str(column.sensitivity))}",
        ]
        if (spec := column.filter) is not None:
            given = {one: getattr(spec, one) for one in ("fpp", "ndv", "num_bytes", "hide_size")}
            inner = ", ".join(f"{one} = {text(value)}" for one, value in given.items() if value is not None)
            lines.append(f"filter = {{ {inner} }}")
        if column.index is not None:
            purge = column.index.purge_days
            lines.append(f"index = {{ {'' if purge is None else f'purge_days = {purge}'} }}")
    path = lab.folder / "the policy.toml"
    path.write_text("\n".join(lines) + "\n")
    return Policy.load(path).for_table(policy.name)


def _asked(lab: Lab, made: Case) -> Case:
    """The case as an audit with keys and the policy's file has it."""
    options = dict(made.options)
    if isinstance(options.get("policy"), TablePolicy):
        options["policy"] = _file(options["policy"], lab)
    return Case(made.paths, {"keys": KeyTools(lab.keyring), **options})


def _of(made: Case, rule: str) -> list[Finding]:
    return [one for one in made.report().findings if one.rule.id == rule]


def _run(command: str) -> int:
    words, code = [], 0
    for word in [*shlex.split(command), "&&"]:
        if word != "&&":
            words.append(word)
            continue
        if words[0] == "rm":
            for name in words[1:]:
                Path(name).unlink()
        else:
            assert words[0] == "bloomseal"
            code = code or main(words[1:])
        words = []
    return code


def _mends(lab: Lab, made: Case, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = _of(made, rule)
    assert found, told(made.report().findings)
    # From another folder than the audit's.
    (lab.folder / "elsewhere").mkdir(exist_ok=True)
    monkeypatch.chdir(lab.folder / "elsewhere")
    for command in dict.fromkeys(one.fix for one in found):
        assert command, (rule, [one.advice for one in found])
        assert _run(command) == 0, command
    after = made
    if "now" in made.options and rule == "BS301":
        after = Case(made.paths, {**made.options, "now": datetime.now(UTC)})
    assert not _of(after, rule), told(_of(after, rule))
    assert not [one for one in after.report().findings if one.rule.id in ("BS201", "BS203", "BS206", "BS209")]


@pytest.mark.parametrize("rule", sorted({*PAIRS} - PERSON | {*CASES}))
def test_its_command_removes_the_finding(lab: Lab, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(lab.folder)
    made = CASES[rule](lab) if rule in CASES else PAIRS[rule](lab)[0]
    _mends(lab, _asked(lab, made), rule, monkeypatch)


def test_levels_in_clear(lab: Lab, java: Jvm, monkeypatch: pytest.MonkeyPatch) -> None:
    """parquet-java wrote the file; the command line reaches the KMS of its harness by a URI. rekey keeps the layout of
    V2 pages, since parquet-java reads no other: so the rule has advice, which is taken here.
    """
    made = JAVA["BS110"](lab)[0]
    (path,), kms = made.paths, made.options["keys"]
    monkeypatch.setitem(registry._registered, "java-lab", lambda _: kms)
    made = Case(made.paths, {**made.options, "key_options": ["--kms", "java-lab:"]})
    (found,) = _of(made, "BS110")
    assert not found.fix
    assert str(path) in found.advice
    assert "V1 pages" in found.advice
    assert _run(f"bloomseal rekey --restart {shlex.quote(str(path))} --kms java-lab:") == 0
    assert _of(made, "BS110")
    keys = KeyTools(kms)
    rows = bs.read_table(path, decryption=bs.DecryptionSpec(keys))
    bs.write_table(rows, path, encryption=bs.EncryptionSpec("kf", keys=keys))
    assert not made.report().findings, told(made.report().findings)


@pytest.mark.parametrize("rule", sorted(PERSON))
def test_what_needs_a_person_has_no_command(lab: Lab, rule: str) -> None:
    made = PAIRS[rule](lab)[0]
    found = [one for one in _asked(lab, made).report().findings if one.rule.id == rule] or _of(made, rule)
    assert found
    assert not [one.fix for one in found if one.fix]
    assert all(one.advice and "{" not in one.advice for one in found)


@pytest.mark.parametrize("rule", sorted(PAIRS))
def test_no_placeholder_is_left(lab: Lab, rule: str) -> None:
    report = PAIRS[rule](lab)[0].report()
    texts = [one.mend for one in report.findings]
    check_sarif(to_sarif(report))
    (one,) = json.loads(to_sarif(report))["runs"]
    texts += [
        result["message"]["text"].rpartition("Mend it: ")[2] for result in one["results"] if result["properties"]["fix"]
    ]
    texts += [each["help"]["text"] for each in one["tool"]["driver"]["rules"]]
    for text in texts:
        assert text
        assert not re.search(r"[{}]|\b(FILE|COLUMN|TABLE|POLICY|KEY|OLD|BITS)\b", text), text


def test_every_rule_is_tried() -> None:
    """Those of encrypted Iceberg tables are tried in tests/iceberg: no command mends what another engine writes."""
    tried = {*PAIRS} - PERSON | {*CASES} | PERSON | {*JAVA}
    assert tried == {rule for rule in RULES if not rule.startswith("BS5")}


def test_the_policys_settings_and_name_are_in_it(lab: Lab) -> None:
    made = _asked(lab, CASES["BS111"](lab))
    (one,) = _of(made, "BS111")
    words = shlex.split(one.fix)
    assert words[:2] == ["bloomseal", "seal"]
    assert words[words.index("--policy") + 1] == str(lab.folder / "the policy.toml")
    assert words[words.index("--table") + 1] == "people"
    assert words[2] == str(lab.folder / "people" / "x=1" / "b 'quoted'.parquet")
    # The policy's fpp in a single filter's command.
    path = lab.write("people/x=1/c.parquet", encryption={"aad_prefix": "people/x=1/c.parquet/"})
    policy = replace(made.options["policy"], aad_prefix=None, store_aad_prefix=True)
    (missing,) = [one for one in audit(path, keys=lab.keyring, policy=policy).findings if one.rule.id == "BS403"]
    assert "--bloom-filter ssn:fpp=0.002" in missing.fix


@pytest.mark.parametrize("count", [2, 21])
def test_one_command_mends_what_differs_from_file_to_file(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Plaintext and sealed, under other keys and without a prefix: the policy says what each becomes."""
    small = people(2)
    for number in range(count):
        lab.signed(f"people/{number}.parquet", table=small, encryption={"column_keys": {"ssn": "other"}})
    lab.plain("people/x=1/plain.parquet", small)
    columns = {"ssn": ColumnPolicy("pii", filter=FilterSpec())}
    made = _asked(lab, lab.case(lab.folder / "people", policy=lab.policy(columns, aad_prefix="{table}/{path}/")))
    found = [one for one in made.report().findings if one.fix]
    assert {one.rule.id for one in found} >= {"BS101", "BS111", "BS303", "BS308", "BS403"}
    (command,) = {one.fix for one in found}
    assert len(command) < 1_000 or count == 2
    _mends(lab, made, "BS308", monkeypatch)
    assert not {one.rule.id for one in made.report().findings} & {"BS101", "BS111", "BS303", "BS403"}


def test_a_column_that_the_policy_leaves_open_stays_sealed(lab: Lab) -> None:
    path = lab.write("people/a.parquet", encryption={"column_keys": {"ssn": "pii", "name": "other"}})
    policy = _file(lab.policy({"ssn": ColumnPolicy("pii")}, aad_prefix="{table}/{file}"), lab)
    assert policy.origin is not None
    by_policy = ["--policy", policy.origin.path, "--table", "people", "--from-any"]
    assert main(["rekey", str(path), *by_policy]) == 0
    with bs.open_file(path, decryption=bs.DecryptionSpec(lab.keyring, aad_prefix="people/a.parquet")) as file:
        assert all(file.seals(leaf) for leaf in file.leaves.leaves if leaf.name in ("ssn", "name"))
    assert main(["rekey", str(path), "--keyring", str(lab.keyring.path), "--from-any"]) == 2
    assert main(["rekey", str(path), *by_policy, "--key-bits", "256"]) == 2


def test_a_column_that_only_some_files_have(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    for column in ("ssn", "name"):
        lab.signed(
            f"t/{column}.parquet", table=people().select([column]), bloom_filters={column: FilterSpec(num_bytes=32)},
            encryption={"column_keys": {column: "pii"}},
        )  # fmt: skip
    _mends(lab, lab.keyed(lab.folder / "t"), "BS401", monkeypatch)


def test_too_many_files_for_a_command_line_are_named_by_their_folder(lab: Lab) -> None:
    key = KeyTools(lab.keyring).for_file(FileRef("x")).new_key("pii", "ssn", 128)
    small = people(2).select(["ssn"])
    for number in range(21):
        lab.write(f"t/{number}.parquet", small, encryption={"column_keys": {"ssn": key}})
    (found,) = [one for one in lab.keyed(lab.folder / "t").report().findings if one.rule.id == "BS305"]
    assert shlex.split(found.fix)[3] == str(lab.folder / "t")
    assert _run(found.fix) == 0
    assert "BS305" not in lab.keyed(lab.folder / "t").ids()


def test_the_command_lines_own_options_are_in_it(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    path = lab.signed("t/a.parquet", bloom_filters={"ssn": FilterSpec(num_bytes=32)})
    assert main(["audit", str(path), "--keyring", str(lab.keyring.path), "--format", "json"]) == 4
    (one,) = json.loads(capsys.readouterr().out)["findings"]
    assert shlex.split(one["fix"]) == [
        "bloomseal", "attach", str(path), "--bloom-filter", "ssn", "--keyring", str(lab.keyring.path),
    ]  # fmt: skip
    assert main(["audit", str(path)]) == 4
