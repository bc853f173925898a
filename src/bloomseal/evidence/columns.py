"""The columns that a bundle speaks of, with what was seen: how files protect them, by which keys, what anybody can read
of them, and the requirements that the policy puts them under.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ..audit.facts.exposure import ALL_FILES, FILTER, HIDDEN, MARKS, exposures
from ..audit.facts.policies import Policies
from ..audit.facts.uses import FOOTER, Use, columns_of, looked_into
from ..audit.leaks import Pace, pace
from ..audit.report import Report
from ..audit.rules.findings import Finding
from ..core.cached import cached_property
from ..core.columns import covers
from ..core.errors import BloomsealError
from ..core.storage.ref import FileRef
from ..policy import TablePolicy
from .keys import KeyVersionFacts

_SAMPLES: Final = 3
_NO_LEAK: Final[dict[str, Any]] = {
    "seen_in": 0,
    "in_clear": {},
    "unseen": 0,
    "example": None,
    "values_in_filter": None,
    "candidates_per_second": None,
}
"""Of a column that no file has."""

Place = tuple[str | None, str]
"""Table and column."""


@dataclass
class Look:
    """An audit, and the keys of what it saw.

    Attributes:
        report, policies: of the audit.
        tables: those of the policy that files were seen of.
        uses, versions: of keys.
        unseen: all that nobody could look at, in words.
    """

    report: Report
    policies: Policies
    tables: Sequence[TablePolicy]
    uses: Sequence[Use]
    versions: Sequence[KeyVersionFacts]
    unseen: Sequence[str]

    def summary(self) -> dict[str, Any]:
        """How much was looked at, and how."""
        report = self.report
        return {
            "files": report.files,
            "column_chunks": report.inventory.num_rows - report.inventory["row_group"].null_count,
            "with_keys": report.with_keys,
            "deep": report.deep,
            "policy_sha256": self.policies.digest,
            "unseen": self.unseen,
            "findings": report.counts(),
        }

    def columns(self, leaks: Mapping[Place, dict[str, Any]]) -> list[dict[str, Any]]:
        """Every column that was seen, or that is under a requirement: how files protect it, by which keys, what was
        found, and what anybody can read (`leaks_of`). Those under a requirement come first.
        """
        required, found = self._required(), self._by_place()
        by_name = {policy.name: policy for policy in self.tables}
        keys: dict[Place, list[str]] = defaultdict(list)
        for one in self.versions:
            for place in {(use.table, use.column) for use in one.used}:
                keys[place].append(one.name)
        return [
            {
                "table": place[0],
                "column": place[1],
                "requirements": list(required.get(place, ())),
                "sensitivity": by_name[place[0]].sensitivity(place[1]).value if place[0] in by_name else None,
                "files": self._seen.get(place, {}),
                "keys": keys[place],
                "findings": dict(sorted(found.get(place, Counter()).items())),
                **leaks.get(place, _NO_LEAK),
            }
            for place in sorted({*self._seen, *required}, key=lambda one: (one not in required, one[0] or "", one[1]))
        ]

    def signatures(self) -> list[dict[str, Any]]:
        """Who signed how many files of each table with signers; those too who signed none."""
        told = self.report.signatures
        seen = {(one["table"], one["signer"]) for one in told}
        for policy in self.tables:
            for name, keys in ({} if policy.authors is None else policy.authors.public_keys).items():
                if (policy.name, name) not in seen:
                    facts = {"algorithms": [key.algorithm for key in keys], "keys": [key.fingerprint for key in keys]}
                    of = {"table": policy.name, "signature": "none seen", "signer": name}
                    told.append({**of, **facts, "post_quantum": False, "files": 0})
        return told

    def requirements(self) -> list[dict[str, Any]]:
        """What was seen of the columns under each requirement that the policy names. What it asks for is not judged."""
        under: dict[str, list[Place]] = defaultdict(list)
        for place, texts in self._required().items():
            for text in texts:
                under[text].append(place)
        return [self._requirement(text, places) for text, places in sorted(under.items())]

    def _requirement(self, text: str, places: Sequence[Place]) -> dict[str, Any]:
        wanted = {*places, *((table, FOOTER) for table, _ in places)}
        keys = [one for one in self.versions if any((use.table, use.column) in wanted for use in one.used)]
        nameless = {
            f"the master key of {use.table}.{use.column}"
            for use in self.uses
            if use.master_key is None and (use.table, use.column) in wanted
        }
        looked_into, files = self._files(places)
        return {
            "requirement": text,
            "columns": [f"{table}.{column}" for table, column in places],
            "files": files,
            "looked_into": looked_into,
            "keys": [one.name for one in keys],
            "findings": dict(sorted(Counter(one.rule.id for one in self._about(places)).items())),
            "key_findings": [f"{key.name}: {one['what']}" for key in keys for one in key.findings],
            "unseen": [
                *sorted(nameless),
                *(f"{table}.{name}: no file seen has it" for table, name in places if (table, name) not in self._seen),
            ],
        }

    def _required(self) -> dict[Place, tuple[str, ...]]:
        """Columns under some requirement; those too that no file has."""
        found: dict[Place, tuple[str, ...]] = {}
        for policy in self.tables:
            names = [column for table, column in self._seen if table == policy.name and policy.requirements(column)]
            missing = [
                name
                for name, entry in policy.columns.items()
                if entry.requirements and not any(covers(name, one) for one in names)
            ]
            found |= {(policy.name, name): policy.requirements(name) for name in sorted([*names, *missing])}
        return found

    @cached_property
    def _seen(self) -> dict[Place, dict[str, int]]:
        return {(one["table"], one["column"]): one["files"] for one in columns_of(self.report.inventory)}

    def _by_place(self) -> dict[Place, Counter[str]]:
        """Column → rule → number of findings that name it."""
        found: dict[Place, Counter[str]] = defaultdict(Counter)
        for one in self.report.findings:
            if one.column is not None:
                policy = None if one.file is None else self.policies.of(one.file)
                found[None if policy is None else policy.name, one.column][one.rule.id] += 1
        return found

    def _about(self, places: Sequence[Place]) -> list[Finding]:
        """Findings about these columns, and those that name no column or no table: of them nobody knows better."""
        found = []
        for one in self.report.findings:
            policy = None if one.file is None else self.policies.of(one.file)
            mine = [column for table, column in places if policy is None or table == policy.name]
            if mine and (one.column is None or any(_same(one.column, column) for column in mine)):
                found.append(one)
        return found

    def _files(self, places: Sequence[Place]) -> tuple[int, int]:
        """How many files of the tables were looked into, as far as these columns go, and how many there are."""
        tables = pa.array(sorted({table for table, _ in places if table is not None}), pa.string())
        rows = self.report.inventory
        rows = rows.filter(pc.is_in(rows["table"].cast(pa.string()), tables))
        columns = pa.array(sorted({column for _, column in places}), pa.string())
        hidden = pc.or_kleene(
            pc.equal(rows["filter"].cast(pa.string()), "not visible"),
            pc.equal(rows["protection"].cast(pa.string()), "unknown"),
        )
        here = pc.is_in(rows["column"].cast(pa.string()), columns)
        blind = pc.or_(pc.invert(looked_into(rows)), pc.and_(here, pc.fill_null(hidden, False)))
        count, unseen = (pc.count_distinct(one["file"].cast(pa.string())).as_py() for one in (rows, rows.filter(blind)))
        return count - unseen, count


def _same(one: str, other: str) -> bool:
    return covers(one, other) or covers(other, one)


def leaks_of(inventory: pa.Table, refs: Callable[[str], FileRef], keys: Any = None) -> dict[Place, dict[str, Any]]:
    """Table and column → in how many files it is, in how many of them what stands in clear, and how many nobody could
    look into. Where a filter does, an example: about how many values are in its file's filters, and for how many
    candidates a second they answer, both rounded to two digits.

    Args:
        refs: a file's path → where it is.
        keys: only to find filters in clear of which an encrypted footer tells.
    """
    names = inventory["file"].unify_dictionaries().combine_chunks().dictionary if inventory.num_rows else []
    told = {}
    for place, marks in exposures(inventory).items():
        some = sorted(names[int(one)].as_py() for one in marks.get(FILTER, ())[:_SAMPLES])
        example, paced = _paced(some, place[1], refs, keys)
        told[place] = {
            "seen_in": len(marks[ALL_FILES]),
            "in_clear": {mark: len(marks[mark]) for mark in sorted(marks.keys() & set(MARKS))},
            "unseen": len(marks.get(HIDDEN, ())),
            "example": example,
            "values_in_filter": None if paced is None else _rounded(paced.values),
            "candidates_per_second": None if paced is None else _rounded(paced.per_second),
        }
    return told


def _paced(
    files: Sequence[str], column: str, refs: Callable[[str], FileRef], keys: Any
) -> tuple[str | None, Pace | None]:
    for name in files:
        ref = refs(name)
        try:
            found = pace(ref.path, column, keys=keys, filesystem=ref.filesystem)
        except BloomsealError:
            continue
        if found is not None:
            return name, found
    return None, None


def _rounded(number: float) -> int:
    return int(float(f"{number:.2g}"))
