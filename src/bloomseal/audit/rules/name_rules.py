"""Rules about values beside the data: in a table's log, and in the names of folders and files."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote

from ...core.columns import folded, in_tables, nearest_entry
from ...policy import SENSITIVE
from ...storage.logs.snapshot import PREDICATE
from .findings import Finding, Severity
from .judged import Facts, found

_KEY: Final = re.compile(r"([^=/]+)=")
_WORD: Final = re.compile(r"\w[\w.]*$")


def check_names(facts: Facts) -> Iterator[Finding]:
    """Sealed columns whose values a log or a name holds."""
    for table, held in sorted(facts.places.held.items()):
        yield from _check_log(_Sealed(facts, table), held)
    for root, paths in sorted(facts.places.named.items()):
        # Of a place that was given every part counts, of what lies in it the own name.
        keys = Counter(_keys(root))
        for path in paths:
            keys.update(_keys(posixpath.basename(path)))
        sealed = _Sealed(facts, root) if keys else None
        for key, count in sorted(keys.items()):
            if sealed is not None and (column := sealed.column(key)) is not None:
                names = "a name holds its value" if count == 1 else f"{count} names hold its values"
                yield sealed.finding("BS119", f"{names}: {column}=...", column)


def _check_log(sealed: _Sealed, held: dict[str, dict[str, set[str]]]) -> Iterator[Finding]:
    columns: dict[str, dict[str, list[str]]] = {}
    for file, names in sorted(held.items()):
        for column, told in names.items():
            for what in told:
                columns.setdefault(column, {}).setdefault(what, []).append(posixpath.basename(file))
    for column, places in sorted(columns.items()):
        # A word of a predicate is a column's name, or a value, which no message repeats.
        if sealed.holds(column) and (set(places) != {PREDICATE} or column in sealed.known):
            told_in = "; ".join(f"{what} in {_listed(files)}" for what, files in sorted(places.items()))
            yield sealed.finding("BS113", f"the table's metadata hold {told_in}", column)


class _Sealed:
    """The sealed columns of the files below a folder.

    Attributes:
        known: the columns that files and policy name.
    """

    def __init__(self, facts: Facts, folder: str) -> None:
        self._folder = folder
        files = facts.below(folder)
        self._policy = facts.policies.of(files[0].path if files else posixpath.join(folder, "_"))
        self._encrypted = {file.leaves[chunk.leaf][0] for file in files for chunk in file.chunks if chunk.protection}
        named = set(self._policy.columns) if self._policy is not None else set()
        self.known = {name for file in files for name, _ in file.leaves} | named
        self._by_key = {folded(in_tables(name)): name for name in sorted(self.known)}

    def holds(self, column: str) -> bool:
        """Whether the column is sealed, by a file or by the policy."""
        sealed = self._policy is not None and self._policy.master_key(column) is not None
        return column in self._encrypted or sealed

    def column(self, key: str) -> str | None:
        """The sealed column that a name means; None where it means none."""
        column = self._by_key.get(folded(in_tables(key)), key)
        return column if self.holds(column) else None

    def finding(self, rule: str, message: str, column: str) -> Finding:
        """Worst where the column has a key of its own, or is sensitive; else the policy seals whatever there is."""
        policy, severity = self._policy, None
        entry = nearest_entry(policy.columns, column) if policy is not None else None
        if policy is not None and policy.sensitivity(column) in SENSITIVE:
            severity = Severity.ERROR
        elif rule == "BS119" and column not in self._encrypted and (entry is None or entry.key is None):
            severity = Severity.INFO
        return found(rule, message, severity, self._folder, column)


def _keys(path: str) -> Iterator[str]:
    """What may be columns' names in front of ``=``: of ``part-ssn=1`` the whole, and the last word."""
    for part in path.split("/"):
        for match in _KEY.finditer(part):
            key = unquote(match[1])
            yield key
            if (word := _WORD.search(key)) is not None and word[0] != key:
                yield word[0]


def _listed(files: list[str]) -> str:
    return files[-1] if len(files) == 1 else f"{len(files)} files, {files[-1]} the last of them"
