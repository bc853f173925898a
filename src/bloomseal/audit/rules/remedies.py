"""What mends the findings of a rule in a table: one command, which removes them as it stands, with the keys, the
policy's values and full paths. Where no command is sure to, advice for a person.
"""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import replace
from string import Formatter
from typing import Final, TypeVar

from ...core.columns import own_entry
from ...core.errors import BloomsealError
from ...core.storage.ref import FileRef
from ...policy import TablePolicy
from ...sbbf import FilterSpec
from ...storage.discovery.kinds import INDEX_FOLDER, is_of_index
from ...storage.formats import Format
from ...storage.logs.snapshot import location
from .catalogue import RESEAL
from .findings import Finding, Remedy
from .judged import Facts, KeyArguments

_MOST_FILES: Final = 20
"""More are not named on a command line: their folder is."""
_OF_COLUMN: Final = "{filters}"
"""In the commands that name a column, which not every file of a table may have."""
_OF_NAMES: Final = ("rewrap {files} {opening}", "rewrap {files} {moves}")
_FOR_INDEXES: Final = ("rewrap", "{enable}", "{drop}", "{build}", "{compact}")

_MISSING: Final = "Audit again with the keys, and with the policy's file: the command that mends it needs them."
_NO_COMMAND: Final = {
    Format.ORC: "No command rewrites ORC files so: write the data anew, with the engine that wrote it set right."
}
_INDEX: Final = "It is a file of a sealed index, which only its own verb replaces: bloomseal index rebuild."
_RETIRED: Final = "No run of the sealed index has it any more: bloomseal index update or compact removes it, an hour from when it was left."

_Group = tuple[str, Hashable]
"""A command's template, and what it is for."""
_Name = TypeVar("_Name", bound=Hashable)


def with_remedies(findings: Sequence[Finding], facts: Facts) -> list[Finding]:
    """The findings, each with what mends it: commands are those of its table, advice that of its rule there."""
    retired = {path for one in facts.indexes for path in one.retired}
    resealed = {one.file or "" for one in findings if _reseals(one, facts)}
    tables = Counter(facts.places.roots.get(path, "") for path in resealed)
    resealed |= {table for table, count in tables.items() if count > _MOST_FILES}
    keys = [_group_of(one, facts, resealed) for one in findings]
    rules = [(key, one.rule.id, one.details.get("advice")) for key, one in zip(keys, findings, strict=True)]
    commands = {key: _command(group, facts, key[0]) for key, group in _together(keys, findings).items()}
    remedies = {rule: _remedy(group, facts, commands[rule[0]]) for rule, group in _together(rules, findings).items()}
    gone = Remedy("", _RETIRED)
    return [
        replace(one, remedy=gone if one.file in retired else remedies[rule])
        for rule, one in zip(rules, findings, strict=True)
    ]


def _together(names: Sequence[_Name], findings: Sequence[Finding]) -> dict[_Name, list[Finding]]:
    groups: dict[_Name, list[Finding]] = {}
    for name, one in zip(names, findings, strict=True):
        groups.setdefault(name, []).append(one)
    return groups


def _reseals(finding: Finding, facts: Facts) -> bool:
    """Whether the finding's file is to be sealed as its policy, which is a file's, has it."""
    file = facts.by_path.get(finding.file or "")
    if file is None or file.file_format != Format.PARQUET or is_of_index(file.path):
        return False
    policy = facts.policies.of(file.path)
    return finding.mendable and finding.rule.fix == RESEAL and policy is not None and policy.origin is not None


def _group_of(finding: Finding, facts: Facts, resealed: Collection[str]) -> _Group:
    """Findings that one command is for: those of a table that it treats alike.

    Args:
        resealed: files that are sealed as the policy has them, and tables of which all are.
    """
    path = finding.file or ""
    file = facts.by_path.get(path)
    table = facts.places.roots.get(path) or path
    template = finding.rule.fix_for(Format.PARQUET if file is None else Format(file.file_format))
    if finding.mendable and not {path, table}.isdisjoint(resealed) and _is_covered(finding, facts, template):
        return RESEAL, table
    kind = None if file is None else (file.file_format, file.algorithm is None)
    column = finding.column if _OF_COLUMN in template else None
    of_index = is_of_index(path)
    sayable = finding.mendable and (not of_index or any(verb in template for verb in _FOR_INDEXES))
    return template if sayable else "", (table, kind, column, of_index)


def _is_covered(finding: Finding, facts: Facts, template: str) -> bool:
    """Whether the command that seals a file as the policy has it mends this as well."""
    if is_of_index(finding.file or ""):
        return False
    if _OF_COLUMN in template:
        policy = facts.policies.of(finding.file or "")
        entry = own_entry(policy.columns, finding.column) if policy is not None and finding.column else None
        return entry is not None and entry.filter is not None
    return template == RESEAL or any(one in template for one in _OF_NAMES)


def _command(findings: Sequence[Finding], facts: Facts, template: str) -> str:
    """The command for all of these; empty where it can't be said."""
    try:
        return _RemedyFindings(findings, facts).command(template) if template else ""
    except _UnsaidError:
        return ""


def _remedy(findings: Sequence[Finding], facts: Facts, command: str) -> Remedy:
    """The command, with the advice of the rule."""
    group, rule = _RemedyFindings(findings, facts), findings[0].rule
    if not command and rule.fix and is_of_index(findings[0].file or ""):
        return Remedy("", _INDEX)
    advice = str(findings[0].details.get("advice") or rule.advice.format_map(group.in_words()))
    if not command and not advice:
        advice = _MISSING if rule.fix_for(group.file_format) else _NO_COMMAND.get(group.file_format, _MISSING)
    return Remedy(command, advice)


class _UnsaidError(Exception):
    """No command line says it."""


class _RemedyFindings:
    """The findings of a remedy, and the values of a command's placeholders: a method each, of the same name."""

    def __init__(self, findings: Sequence[Finding], facts: Facts) -> None:
        first = findings[0].file
        named = (path for one in findings for path in one.details.get("files") or (one.file,) if path)
        self.paths = list(dict.fromkeys(named))
        self._findings, self._facts = findings, facts
        self._files = [facts.by_path[path] for path in self.paths if path in facts.by_path]
        self._root = facts.places.roots.get(first or "")
        self._given = findings[0].details.get("policy") or (facts.policies.of(first) if first else None)
        self.file_format = Format(self._files[0].file_format if self._files else Format.PARQUET)
        self._plain = bool(self._files) and all(file.algorithm is None for file in self._files)
        self._keys = facts.keys
        if self._keys.options is None and self._given is not None:
            self._keys = KeyArguments.of(self._given.kms)

    def command(self, template: str) -> str:
        """Raises _UnsaidError: a value can't be said."""
        names = [name for _, name, _, _ in Formatter().parse(template) if name]
        values = {name: getattr(self, name)() for name in names}
        return " ".join(template.format_map(values).split(" ")).strip()

    def in_words(self) -> dict[str, str]:
        """The place, in advice."""
        columns = list(dict.fromkeys(one.column for one in self._findings if one.column))
        more = f" and {len(self.paths) - 1} other files" if len(self.paths) > 1 else ""
        return {
            "file": f"{self.paths[0]}{more}" if self.paths else "the file",
            "column": ", ".join(columns) or "the column",
        }

    # Files

    def files(self) -> str:
        refs = self._refs()
        if len(refs) <= _MOST_FILES:
            return " ".join(map(self._quoted, refs))
        roots = {self._facts.places.roots.get(path) for path in self.paths}
        if self._root is None or len(roots) > 1:
            raise _UnsaidError
        return self._quoted(FileRef(self._root, refs[0].filesystem))

    def _refs(self) -> list[FileRef]:
        if len(self._files) == len(self.paths):
            return [file.ref for file in self._files]
        if self._facts.remote:
            raise _UnsaidError
        return [FileRef(path) for path in self.paths]

    def drop(self) -> str:
        return self._index("drop")

    def build(self) -> str:
        return self._index("build", *self._by_policy())

    def compact(self) -> str:
        return self._index("compact", *self._by_policy())

    def _index(self, verb: str, *options: str) -> str:
        """A verb for the sealed indexes that the files are of."""
        (ref, *_) = self._refs()
        table = self._quoted(FileRef(ref.path.partition(f"/{INDEX_FOLDER}/")[0], ref.filesystem))
        columns = dict.fromkeys(one.column or "" for one in self._findings)
        more = f" {shlex.join(options)}" if options else ""
        return " && ".join(f"bloomseal index {verb} {table} --column {shlex.quote(name)}{more}" for name in columns)

    @staticmethod
    def _quoted(ref: FileRef) -> str:
        """A full path, or the URI of a remote one."""
        if ref.filesystem is None:
            return shlex.quote(os.path.abspath(ref.path))  # noqa: PTH100
        try:
            return shlex.quote(location(ref))
        except BloomsealError:
            raise _UnsaidError from None

    # Keys

    def opening(self) -> str:
        """The options that open the files as they are."""
        return "--allow-plaintext" if self._plain else shlex.join(self._opening())

    def _opening(self) -> list[str]:
        supplied = any(file.aad_prefix == "supplied" for file in self._files)
        ctr = any("CTR" in (file.algorithm or "") for file in self._files)
        return (self._by_policy() if supplied else self._key_options()) + (["--allow-ctr"] if ctr else [])

    def _key_options(self) -> list[str]:
        if self._keys.options is None:
            raise _UnsaidError
        return list(self._keys.options)

    def moves(self) -> str:
        """From one master key to another. Not where the old one lawfully stands at another place of a file."""
        policy, moves = self._policy, dict[str, str]()
        lawful = {policy.master_key(name) for file in self._files for name, _ in file.leaves} | {policy.footer_key}
        for one in self._findings:
            old, wanted = one.details["old"], policy.master_key(one.column) if one.column else policy.footer_key
            if wanted is None or old in lawful or moves.setdefault(old, wanted) != wanted:
                raise _UnsaidError
        return " ".join(f"--from {shlex.quote(old)} --to {shlex.quote(wanted)}" for old, wanted in moves.items())

    def rotate(self) -> str:
        """Makes a new version of each master key whose current one a file is under."""
        due = (one.details for one in self._findings if one.details["current"] in (None, one.details["version"]))
        return "".join(f"{command} && " for command in self._keyring("rotate", (one["old"] for one in due)))

    def enable(self) -> str:
        return " && ".join(self._keyring("enable", (one.details["old"] for one in self._findings)))

    def _keyring(self, verb: str, keys: Iterable[str]) -> list[str]:
        named = sorted(set(keys))
        if named and self._keys.keyring is None:
            raise _UnsaidError
        return [shlex.join(["bloomseal", "keyring", verb, key, *self._key_options()]) for key in named]

    # The policy

    @property
    def _policy(self) -> TablePolicy:
        if self._given is None:
            raise _UnsaidError
        return self._given

    def _by_policy(self) -> list[str]:
        policy = self._policy
        if policy.origin is None:
            raise _UnsaidError
        options = ["--policy", os.path.abspath(policy.origin.path), "--table", policy.name]  # noqa: PTH100
        root = policy.root or self._root
        if root is not None and policy.aad_prefix is not None and "{path}" in policy.aad_prefix:
            options += ["--table-root", os.path.abspath(root)]  # noqa: PTH100
        return [*options, *(self._facts.keys.options or ())]

    def filters(self) -> str:
        """Each column's filter, with the policy's settings."""
        given = self._given.columns if self._given is not None else {}
        told = []
        for column in dict.fromkeys(one.column for one in self._findings):
            if column is None or any(column in file.unbelieved for file in self._files):
                raise _UnsaidError
            entry = own_entry(given, column)
            told.append(f"--bloom-filter {shlex.quote(_filter_text(column, entry.filter if entry else None))}")
        return " ".join(told)

    def rebuild(self) -> str:
        """Builds a filter anew without asking the old one."""
        return "attach" if self._plain else "rekey --restart"

    def verb(self) -> str:
        return "seal" if self._plain else "rekey --restart"

    def anew(self) -> str:
        """The options that make files what the policy says; without one, that seal them again as they are."""
        if self._given is not None and self._given.origin is not None:
            any_state = [] if self._plain else ["--from-any"]
            return shlex.join([*self._by_policy(), *any_state])
        if self._plain or any("policy" in one.rule.needs for one in self._findings):
            raise _UnsaidError
        return shlex.join(self._opening())


def _filter_text(column: str, spec: FilterSpec | None) -> str:
    """As ``--bloom-filter`` takes it. A column with a colon in its name needs a setting behind it."""
    spec = spec or FilterSpec()
    settings = [f"fpp={spec.fpp!r}"] if spec.fpp != FilterSpec().fpp or ":" in column else []
    settings += [f"{name}={value}" for name in ("ndv", "num_bytes") if (value := getattr(spec, name)) is not None]
    settings += [f"max_bytes={spec.max_bytes}"] if spec.max_bytes != FilterSpec().max_bytes else []
    settings += ["hide_size"] if spec.hide_size else []
    return ":".join([column, ",".join(settings)]) if settings else column
