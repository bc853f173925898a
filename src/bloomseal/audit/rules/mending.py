"""The command that mends a finding, as it stands: with the keys, the policy's values and full paths. One command mends
the findings of a rule in all files of a table that need it alike. Where there is none that is sure to mend, the finding
has advice for a person instead, and no command.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from string import Formatter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ...core.columns import in_tables, own_entry
from ...core.encryption import Algorithm
from ...core.errors import BloomsealError
from ...core.storage.ref import FileRef
from ...policy import TablePolicy
from ...sbbf import FilterSpec
from ...storage.discovery.kinds import INDEX_FOLDER, is_of_index
from ...storage.logs.snapshot import location
from ..facts.files.file import FileFacts
from ..facts.leftovers import target_of
from .findings import Finding
from .means import Means

if TYPE_CHECKING:
    from .judged import Facts

__all__ = ["mended"]

_FILE: Final = "\0"
"""In a command, until it is known which files it is for."""
_ONE_FILE: Final = "bloomseal attach"

_MISSING: Final = "Audit again with the keys, and with the policy's file: the command that mends it needs them."
_ORC: Final = "No command rewrites ORC files so: write the data anew, with the engine that wrote it set right."
_MOST_FILES: Final = 50
_FOR_INDEXES: Final = ("bloomseal index", "bloomseal rewrap", "{rotate}bloomseal rewrap", "{enable}")
_INDEX: Final = "It is a file of a sealed index, which only its own verb replaces: bloomseal index rebuild."


def mended(findings: Sequence[Finding], facts: Facts) -> list[Finding]:
    """The findings, each with its command, or with advice where no command mends it."""
    made = [_mended(finding, facts) for finding in findings]
    together: dict[tuple[str, str | None], dict[str, None]] = {}
    for one in made:
        if _FILE in one.fix:
            together.setdefault(_table_of(one, facts), {})[one.file or ""] = None
    commands = {key: _for_files(key, list(files), facts) for key, files in together.items()}
    return [_put(one, commands[_table_of(one, facts)], facts) if _FILE in one.fix else one for one in made]


def _table_of(finding: Finding, facts: Facts) -> tuple[str, str | None]:
    """What is mended by one command."""
    return finding.fix, None if finding.fix.startswith(_ONE_FILE) else facts.places.roots.get(finding.file or "")


def _for_files(key: tuple[str, str | None], paths: list[str], facts: Facts) -> str | None:
    """The files of one command: their folder, where they are too many for a command line."""
    root = key[1]
    if root is not None and len(paths) > _MOST_FILES:
        return _quoted(_place(FileRef(root, facts.by_path[paths[0]].ref.filesystem)))
    return None if root is None else shlex.join(_place(facts.by_path[path].ref) or path for path in paths)


def _put(finding: Finding, files: str | None, facts: Facts) -> Finding:
    own = _quoted(_place(facts.by_path[finding.file or ""].ref))
    return replace(finding, fix=finding.fix.replace(_FILE, files or own or ""))


def _mended(finding: Finding, facts: Facts) -> Finding:
    rule = finding.rule
    command = ""
    if is_of_index(finding.file or "") and rule.fix and not rule.fix.startswith(_FOR_INDEXES):
        return replace(finding, fix="", advice=_INDEX)
    file = facts.by_path.get(finding.file or "")
    orc = file is not None and file.is_orc
    fix = rule.orc_fix if orc else rule.fix
    if fix and finding.mendable:
        values = _Values(finding, facts)
        parts = [name for _, name, _, _ in Formatter().parse(fix) if name]
        filled = {name: values.get(name) for name in parts}
        if None not in filled.values():
            command = " ".join(fix.format_map(filled).split(" ")).strip()
    names = {"file": finding.file or "the file", "column": finding.column or "the column"}
    advice = str(finding.details.get("advice") or rule.advice.format_map(names))
    if orc and not fix:
        advice = advice or _ORC
    return replace(finding, fix=command, advice=advice or ("" if command else _MISSING))


class _Values:
    """The values of a finding's placeholders, each made when it is asked for; None where it can't be said."""

    def __init__(self, finding: Finding, facts: Facts) -> None:
        self._finding = finding
        self._facts = facts
        self._details: Mapping[str, Any] = finding.details
        self._file: FileFacts | None = facts.by_path.get(finding.file or "")
        self._policy: TablePolicy | None = facts.policies.of(finding.file) if finding.file else None
        self._means = facts.means if facts.means.options is not None else _of_policy(self._policy)

    def get(self, name: str) -> str | None:
        value: str | None = getattr(self, f"_{name}_")()
        return value

    def _file_(self) -> str | None:
        place = _quoted(_place(self._ref()))
        return place if self._file is None or place is None else _FILE

    def _ref(self) -> FileRef | None:
        if self._file is not None:
            return self._file.ref
        return FileRef(self._finding.file) if self._finding.file and not self._facts.remote else None

    def _files_(self) -> str | None:
        """All files that the finding is about; their folder, where they are too many for a command line."""
        paths = self._details.get("files", (self._finding.file,))
        if len(paths) > _MOST_FILES:
            roots = {self._facts.places.roots.get(path) for path in paths}
            return self._place_() if len(roots) == 1 and None not in roots else None
        places = [_place(self._facts.by_path[path].ref) for path in paths]
        return None if None in places else shlex.join(place for place in places if place)

    def _place_(self) -> str | None:
        """The folder that led to the file, so that one command does for all files in it."""
        root = self._facts.places.roots.get(self._finding.file or "")
        ref = self._ref()
        return _quoted(_place(ref if root is None or ref is None else FileRef(root, ref.filesystem)))

    def _table_(self) -> str | None:
        """The folder of the table whose index the file is of."""
        path = (self._finding.file or "").partition(f"/{INDEX_FOLDER}/")[0]
        ref = self._ref()
        return None if ref is None else _quoted(_place(FileRef(path, ref.filesystem)))

    def _leftover_(self) -> str | None:
        path = self._finding.file or ""
        return _quoted(os.path.abspath(path)) if target_of(path) and not self._facts.remote else None  # noqa: PTH100

    def _column_(self) -> str | None:
        return _quoted(self._finding.column)

    def _opening_(self) -> str | None:
        if self._file is not None and self._file.algorithm is None:
            return "--allow-plaintext"
        options = self._opening()
        return None if options is None else shlex.join(options)

    def _opening(self) -> list[str] | None:
        """The options that open the file as it is."""
        options = self._keys()
        if self._file is None:
            return None
        if options is None:
            return None
        if self._file.is_orc or self._file.algorithm == "AES_GCM_CTR_V1":
            options += ["--allow-ctr"]
        if self._file.aad_prefix == "supplied":
            prefix = self._prefix()
            if prefix is None:
                return None
            options += ["--aad-prefix", prefix]
        return options

    def _keys(self) -> list[str] | None:
        return None if self._means.options is None else list(self._means.options)

    def _prefix(self) -> str | None:
        """The AAD prefix that the policy wants."""
        if self._policy is None or self._file is None:
            return None
        try:
            return self._policy.prefix(self._file.ref)
        except BloomsealError:
            return None

    def _prefix_(self) -> str | None:
        prefix = self._prefix()
        if prefix is None or self._policy is None:
            return None
        options = ["--new-aad-prefix", prefix]
        return shlex.join(options if self._policy.store_aad_prefix else [*options, "--no-store-aad-prefix"])

    def _filter_(self) -> str | None:
        """``COLUMN:fpp=…``, with the policy's settings."""
        column = self._finding.column
        if column is None:
            return None
        entry = own_entry(self._policy.columns, column) if self._policy else None
        spec = entry.filter if entry else None
        if self._file is not None and column in self._file.unbelieved:
            return None
        if spec is not None and self._details.get("num_bytes") and _fixed(spec, self._details["num_bytes"]):
            return None  # built as the policy has it, it would be as full again
        return _quoted(_filter_text(column, spec))

    def _rebuild_(self) -> str | None:
        """What builds a filter anew without asking the old one."""
        return None if self._file is None else "attach" if self._file.algorithm is None else "rekey --restart"

    def _old_(self) -> str | None:
        return _quoted(self._details.get("old"))

    def _key_(self) -> str | None:
        """The policy's master key for the place; None where the old one lawfully stands at another place of the
        file.
        """
        policy, old = self._policy, self._details.get("old")
        if policy is None or self._file is None:
            return None
        column = self._finding.column
        wanted = policy.master_key(column) if column else policy.footer_key
        lawful = {policy.footer_key, *(policy.master_key(name) for name, _ in self._file.leaves)}
        return _quoted(wanted) if old not in lawful else None

    def _bits_(self) -> str | None:
        return str(self._policy.key_bits) if self._policy else None

    def _rotate_(self) -> str | None:
        """Makes a new version of the master key, where the file is under the current one."""
        key, version, current = (self._details.get(name) for name in ("old", "version", "current"))
        if current is not None and current != version:
            return ""
        return self._keyring("rotate", key, " && ")

    def _enable_(self) -> str | None:
        return self._keyring("enable", self._details.get("old")) if self._details.get("state") == "disabled" else None

    def _keyring(self, verb: str, key: Any, more: str = "") -> str | None:
        if self._means.keyring is None or not key:
            return None
        return shlex.join(["bloomseal", "keyring", verb, str(key), *(self._means.options or ())]) + more

    def _verb_(self) -> str | None:
        return None if self._file is None else "seal" if self._file.algorithm is None else "rekey --restart"

    def _sealing_(self) -> str | None:
        """The options that seal the file as the policy has it, and leave no column open that is sealed now."""
        file, policy = self._file, self._policy
        if file is None or policy is None or not file.leaves:
            return None
        plain = file.algorithm is None
        if plain and policy.origin is not None:
            return self._by_policy(policy, file)
        options = self._keys() if plain else self._opening()
        columns = _column_keys(file, policy)
        if options is None or columns is None:
            return None
        options += ["--footer-key", policy.footer_key]
        for name, key in columns.items():
            options += ["--column-key", f"{name}={key}"]
        options += ["--complete"] if policy.complete else []
        options += ["--plaintext-footer"] if policy.plaintext_footer else []
        options += [] if plain or policy.plaintext_footer else ["--encrypted-footer"]
        options += ["--algorithm", policy.algorithm.value] if policy.algorithm is not Algorithm.AES_GCM_V1 else []
        options += ["--key-bits", str(policy.key_bits)] if policy.key_bits != 128 else []
        options += [] if policy.internal else ["--material", "external"]
        if policy.aad_prefix is not None:
            if (prefix := self._prefix()) is None:
                return None
            options += ["--aad-prefix" if plain else "--new-aad-prefix", prefix]
            options += [] if policy.store_aad_prefix else ["--no-store-aad-prefix"]
        present = {in_tables(name) for name, _ in file.leaves}
        for name, entry in policy.columns.items():
            if entry.filter is not None and in_tables(name) in present:
                options += ["--bloom-filter", _filter_text(name, entry.filter)]
        return shlex.join(options)

    def _by_policy(self, policy: TablePolicy, file: FileFacts) -> str | None:
        assert policy.origin is not None  # noqa: S101
        options = ["--policy", os.path.abspath(policy.origin.path), "--table", policy.name, *(self._keys() or ())]  # noqa: PTH100
        root = policy.root or self._facts.places.roots.get(file.path)
        if root is not None and policy.aad_prefix is not None and "{path}" in policy.aad_prefix:
            options += ["--table-root", os.path.abspath(root)]  # noqa: PTH100
        return shlex.join(options)


def _column_keys(file: FileFacts, policy: TablePolicy) -> dict[str, str] | None:
    """Column → master key, for the columns that get one of their own; None where it can't be said on a command line."""
    wanted: dict[str, str] = {}
    own = any(column.key is not None for column in policy.columns.values())
    now = {file.leaves[chunk.leaf][0]: chunk for chunk in file.chunks}
    for name, _ in file.leaves:
        key = policy.master_key(name)
        chunk = now.get(name)
        if key is None and chunk is not None and chunk.protection:
            key = file.keys[chunk.key].master_key
            if key is None:
                return None
        if key is None or (key == policy.footer_key and (policy.complete or not own)):
            continue
        if "=" in name:
            return None
        wanted[name] = key
    return wanted


def _of_policy(policy: TablePolicy | None) -> Means:
    return Means() if policy is None else Means.of(policy.kms)


def _fixed(spec: FilterSpec, num_bytes: int) -> bool:
    if spec.ndv is None and spec.num_bytes is None:
        return False
    return spec.build(np.zeros(0, np.uint64)).num_bytes <= num_bytes


def _filter_text(column: str, spec: FilterSpec | None) -> str:
    """As ``--bloom-filter`` takes it. A column with a colon in its name needs a setting behind it."""
    spec = spec or FilterSpec()
    settings = [f"fpp={spec.fpp!r}"] if spec.fpp != FilterSpec().fpp or ":" in column else []
    settings += [f"{name}={value}" for name in ("ndv", "num_bytes") if (value := getattr(spec, name)) is not None]
    settings += [f"max_bytes={spec.max_bytes}"] if spec.max_bytes != FilterSpec().max_bytes else []
    settings += ["hide_size"] if spec.hide_size else []
    return ":".join([column, ",".join(settings)]) if settings else column


def _place(ref: FileRef | None) -> str | None:
    """A full path, or the URI of a remote one."""
    if ref is None:
        return None
    if ref.filesystem is None:
        return os.path.abspath(ref.path)  # noqa: PTH100
    try:
        return location(ref)
    except BloomsealError:
        return None


def _quoted(text: Any) -> str | None:
    return None if text is None else shlex.quote(str(text))
