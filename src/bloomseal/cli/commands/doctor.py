"""``bloomseal doctor``: is everything here that reading and writing takes? One screen."""

from __future__ import annotations

import platform
import re
from collections import defaultdict
from collections.abc import ItemsView, Iterable, Iterator
from dataclasses import replace
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final

import click

from ... import __version__
from ...core.errors import BloomsealError, UsageError
from ...core.text import counted
from ...keytools.keyring.keyring import Keyring
from ...keytools.tools import KeyTools
from ...policy import Policy, TablePolicy
from ..arguments.auditing import HeldAgainst
from ..arguments.keys import KeyOptions
from ..arguments.options import options
from ..checks import Check, CheckOutcome, column_checks, policy_checks, show_checks
from ..command import PATH, Command
from ..hints import hint_for
from ..render import progress

if TYPE_CHECKING:
    from ...audit.facts.indexes import IndexSeen
    from ...audit.report import Report
    from ...keytools.kms.calls import KmsCalls

_REQUIREMENT: Final = re.compile(r"([\w.-]+)\s*(?:>=\s*([\d.]+))?[^;]*(?:;.*extra\s*==\s*[\"']([\w-]+)[\"'])?")
_SECONDS: Final = 10.0
_SAMPLE: Final = 20
_SHOWN: Final = 3


@click.command(cls=Command, first=("--policy", "--table", "--keyring", "--sample", "--kms"))
@click.argument("path", type=PATH, required=False, metavar="[TABLE]")
@click.option(
    "--sample", type=click.IntRange(1), default=_SAMPLE, show_default=True, help="Files of TABLE to look at, at most."
)
@options(HeldAgainst, "against")
@options(KeyOptions, "keys")
def doctor(path: str | None, sample: int, against: HeldAgainst, keys: KeyOptions) -> int:
    """Check versions and extras, Java and Spark, the policy, each of its master keys, and a sample of TABLE's files.

    A throwaway key is wrapped and unwrapped under each master key of the policy. Nothing is written, and no network is
    used unless a KMS or a TABLE is there.

    Exit code: 0 if nothing is wrong, notes included; 1 if something is, or could not be found out; 2 on a wrong call.

    \b
    Examples:
      bloomseal doctor
      bloomseal doctor --policy policy.toml
      bloomseal doctor lake/customers --policy policy.toml --table customers --keyring keys.json
    """
    if against.table is not None and against.policy is None:
        raise UsageError("--table names a table of --policy", hint="--policy FILE --table NAME")
    with progress("Looking"):
        checks = [*_software_checks(), *_checks(path, sample, against, keys)]
    return show_checks(checks)


def _checks(path: str | None, sample: int, against: HeldAgainst, keys: KeyOptions) -> Iterator[Check]:
    policy: Policy | TablePolicy | None = None
    at_hand = None
    try:
        at_hand = keys.reading()
    except BloomsealError as error:
        yield Check.failed("keys", "keys given", error)
    tools = at_hand if isinstance(at_hand, KeyTools) else None
    if against.policy is not None:
        policy = yield from policy_checks(against.policy, against.table, tools)
    if policy is not None:
        tried = list(_kms_checks(policy, tools))
        yield from tried
        works = any(check.state is CheckOutcome.OK for check in tried)
        if tools is not None and not works:
            at_hand = None  # to ask again for every file takes long, and gives the same answer
        elif at_hand is None and works:
            # One KMS serves all tables of a policy.
            one = policy if isinstance(policy, TablePolicy) else next(iter(policy.tables.values()))
            at_hand = one.keys.with_pins(None)
    elif isinstance(at_hand, KeyTools):
        yield _without_policy(at_hand)
    if path is not None:
        yield from _table_checks(path, policy, at_hand, sample=sample)


def _without_policy(tools: KeyTools) -> Check:
    kms = tools.kms
    name = str(getattr(kms, "kms_name", type(kms).__name__))
    if isinstance(kms, Keyring):
        known = ", ".join(key.name for key in kms.list()) or "none"
        return Check("keys", name, CheckOutcome.OK, f"opens; master keys: {known}")
    return Check("keys", name, CheckOutcome.NOTE, "there; which master keys to try, a policy says", "--policy FILE")


def _software_checks() -> Iterator[Check]:
    """Versions, extras, and a Java for Spark. Loads none of the libraries."""
    here = f"{__version__}, Python {platform.python_version()}, {platform.system()}"
    yield Check("software", "bloomseal", CheckOutcome.OK, here)
    extras: dict[str, list[tuple[str, bool]]] = defaultdict(list)
    try:
        required = metadata.requires("bloomseal") or []
    except metadata.PackageNotFoundError:
        yield Check("software", "libraries", CheckOutcome.UNKNOWN, "bloomseal is not installed", "pip install .")
        required = []
    found = []
    for text in required:
        if (match := _REQUIREMENT.match(text)) is None:
            continue
        name, floor, extra = match.groups()
        version = _version(name)
        old = version is not None and floor is not None and _numbers(version) < _numbers(floor)
        if extra is not None:
            extras[extra].append((f"{name} {version}", version is not None and not old))
        elif version is None or old:
            said = f"{version or 'missing'}, {floor} is needed"
            yield Check("software", name, CheckOutcome.PROBLEM, said, f"pip install '{name}>={floor}'")
        elif name in ("pyarrow", "cryptography", "numpy"):
            found.append(f"{name} {version}")
    if found:
        yield Check("software", "libraries", CheckOutcome.OK, ", ".join(sorted(found)))
    there = [name for name, libraries in extras.items() if all(good for _, good in libraries)]
    if there:
        told = ", ".join(f"{name} ({', '.join(text for text, _ in extras[name])})" for name in there)
        yield Check("software", "extras", CheckOutcome.OK, told)
    if missing := [name for name in extras if name not in there]:
        pip = f"pip install 'bloomseal[{','.join(missing)}]'"
        yield Check("software", "extras not there", CheckOutcome.NOTE, ", ".join(missing), pip)
    yield _java()


def _kms_checks(policy: Policy | TablePolicy, tools: KeyTools | None) -> Iterator[Check]:
    """Wrap and unwrap a throwaway key under every master key that a policy names.

    Args:
        policy: of all tables, or of one.
        tools: take the place of the policy's KMS; None: go where it names.
    """
    from ...keytools.kms.calls import KmsCalls
    from ...policy import Policy

    seen: set[tuple[int, str]] = set()
    for named in policy.tables.values() if isinstance(policy, Policy) else [policy]:
        try:
            client = (tools or named.keys).kms
        except BloomsealError as error:
            yield Check.failed("keys", f"KMS of table {named.name}", error)
            continue
        calls = KmsCalls(client, timeout=_SECONDS, attempts=1, max_parallel=1)
        for master_key, current in _master_keys(named):
            if (id(client), master_key) not in seen:
                seen.add((id(client), master_key))
                yield _tried(calls, master_key, current)
        if named.authors is not None:
            try:
                said = f"signs here as {named.authors.own[0]}"
                yield Check("keys", f"signers of {named.name}", CheckOutcome.OK, said)
            except BloomsealError as error:
                yield Check("keys", f"signers of {named.name}", CheckOutcome.NOTE, error.what, hint_for(error))


def _table_checks(path: str, policy: Policy | TablePolicy | None, keys: Any, *, sample: int) -> Iterator[Check]:
    """The audit's findings in a sample of a table's files.

    Args:
        path: what `bloomseal.audit` takes.
        policy: to hold the files against.
        keys: to look with; None: what everybody sees.
        sample: files at most, evenly spread.
    """
    from ...audit.facts.auditor import Auditor
    from ...audit.facts.indexes import look_at_indexes
    from ...audit.report import judged

    try:
        auditor = Auditor(keys, policy, with_keys=keys is not None)
        places = auditor.find([path])
        total = len(places.files)
        if sample < total:
            chosen = [places.files[number * total // sample] for number in range(sample)]
            # The material of files that are not looked at would seem to belong to none.
            places = replace(places, files=chosen, sidecars=[])
        seen, _ = auditor.look(places)
        report = judged(auditor, places, seen)
    except BloomsealError as error:
        yield Check.failed("table", path, error)
        return
    state = CheckOutcome.OK if report.files else CheckOutcome.UNKNOWN
    looked = f"{report.files} of {total} looked at{'' if keys is not None else ', without keys'}"
    yield Check("table", "files", state, looked, None if total else "the folder of the table")
    if policy is None:
        clear = ", ".join(f"{count} {what.replace('_', ' ')}" for what, count in report.in_clear.items())
        said = f"none, so that nothing was judged; in clear: {clear}"
        yield Check("table", "policy", CheckOutcome.NOTE, said, "--policy FILE")
    elif report.files:
        yield from column_checks(auditor, places, seen, whole=sample >= total)
    yield from _findings(report, path)
    yield from _indexes(look_at_indexes(seen, places, auditor.policies, with_keys=keys is not None), path)
    # Without keys much is hidden by design; what could not be looked at is a doubt.
    told: list[tuple[CheckOutcome, str, str | None]] = [(CheckOutcome.UNKNOWN, text, None) for text in report.unseen]
    told += [(CheckOutcome.NOTE, text, "--keyring or --kms" if keys is None else None) for text in report.hidden]
    for state, text, hint in told[:_SHOWN]:
        yield Check("table", "not seen", state, text, hint)
    if len(told) > _SHOWN:
        worst = CheckOutcome.UNKNOWN if len(report.unseen) > _SHOWN else CheckOutcome.NOTE
        yield Check("table", "not seen", worst, f"and {len(told) - _SHOWN} more", "bloomseal audit has all")


def _indexes(seen: Iterable[IndexSeen], path: str) -> Iterator[Check]:
    for one in seen:
        if one.uncovered:
            said = f"{counted(one.uncovered, 'file')} not covered, so that look-ups open them"
            hint = f"bloomseal index update {path} --column {one.column}"
            yield Check("table", f"index of {one.column}", CheckOutcome.NOTE, said, hint)


def _findings(report: Report, path: str) -> Iterator[Check]:
    from ...audit import Severity

    said: set[str] = set()
    for found in report.by_rule():
        worst = found.worst
        if worst.severity >= Severity.WARNING:
            mend = "the same command" if worst.mend in said else worst.mend
            said.add(worst.mend)
            yield Check(
                "table",
                f"{worst.rule.id} {worst.rule.name}",
                CheckOutcome.PROBLEM if worst.severity >= Severity.ERROR else CheckOutcome.NOTE,
                f"{counted(found.files, 'file')}, such as {worst.file or path}: {worst.message}",
                mend,
            )


def _java() -> Check:
    from ...spark.runtime import java_home, java_version

    if (spark := _version("pyspark")) is None:
        return Check("software", "Spark", CheckOutcome.NOTE, "PySpark is not there", "pip install 'bloomseal[spark]'")
    if (home := java_home()) is None:
        pip = "pip install 'bloomseal[jvm]', or JAVA_HOME"
        return Check("software", "Spark", CheckOutcome.NOTE, f"PySpark {spark}, no Java of version 17 or later", pip)
    return Check("software", "Spark", CheckOutcome.OK, f"PySpark {spark}, Java {java_version(home)}")


def _master_keys(table: TablePolicy) -> ItemsView[str, bool]:
    """Name → whether new files are sealed under it."""
    columns = table.columns.values()
    older = [*table.previous_footer_keys, *(name for column in columns for name in column.previous_keys)]
    current = [table.footer_key, *(column.key for column in columns if column.key is not None)]
    return (dict.fromkeys(older, False) | dict.fromkeys(current, True)).items()


def _tried(calls: KmsCalls, master_key: str, current: bool) -> Check:
    from ...core.encryption import SecretKey
    from ...keytools import KmsAccessError, Problem

    throwaway, name = SecretKey.generate(128), f"{master_key} in {calls.name}"
    doing = "wrap"
    try:
        wrapped = calls.wrap(throwaway, master_key)
        if calls.writes_only:
            told = "wraps for recipients; nothing here opens it, and no sealed index covers what is written here"
            return Check("keys", name, CheckOutcome.OK, told, "index update, by a reader's job")
        doing = "unwrap"
        if calls.unwrap(wrapped, master_key).reveal() != throwaway.reveal():
            hint = "the log of the KMS: its key may have been replaced"
            return Check("keys", name, CheckOutcome.PROBLEM, "another key came back than was wrapped", hint)
    except BloomsealError as error:
        problem = error.problem if isinstance(error, KmsAccessError) else Problem.INVALID
        state = CheckOutcome.UNKNOWN if problem in (Problem.UNREACHABLE, Problem.THROTTLED) else CheckOutcome.PROBLEM
        if not current and doing == "wrap" and problem is Problem.DENIED:
            # Nothing new is sealed under it; whether it still opens old files takes one of them to tell.
            state = CheckOutcome.NOTE
        return Check("keys", name, state, f"{doing}: {problem}: {error.what}", hint_for(error))
    return Check("keys", name, CheckOutcome.OK, "wraps and unwraps" if current else "wraps and unwraps; a previous key")


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
