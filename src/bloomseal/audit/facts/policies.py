"""Which policy a file is held against."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ...core.errors import UsageError
from ...core.storage.ref import FileRef
from ...keytools.tools import KeyTools
from ...policy import Policy, TablePolicy
from .files.file import FileFacts


class Policies:
    """Assigns files to tables, and so to policies.

    Args:
        policy: one table's policy, which then holds for all files; or a policy file's, where a file belongs to the
            table in whose root it lies, else to the one that the deepest part of its path is named after; or None.
        table: the table's name, where all files belong to one.
    """

    def __init__(self, policy: Policy | TablePolicy | None, table: str | None = None) -> None:
        self._given = policy is not None
        self.digest = policy.origin.digest if policy is not None and policy.origin is not None else None
        self._one = policy if isinstance(policy, TablePolicy) else None
        self._tables: dict[str, TablePolicy] = {}
        if isinstance(policy, Policy):
            self._tables = {name: policy.for_table(name) for name in policy.tables}
            if table is not None:
                self._one = policy.for_table(table)
        self._known: dict[tuple[str, str], TablePolicy | None] = {}

    def of(self, path: str) -> TablePolicy | None:
        """The policy of a file; None where there is none. A copy outside of the table's root is a table of its own."""
        folder, _, name = path.replace(os.sep, "/").rpartition("/")
        stem = name.split(".")[0]
        at = folder, stem if stem in self._tables else ""
        if at not in self._known:
            found = self._one or self._meant(*at)
            elsewhere = found is not None and found.root is not None and not found.holds(FileRef(folder or "."))
            self._known[at] = found.at(None) if found is not None and elsewhere else found
        return self._known[at]

    def _meant(self, folder: str, stem: str) -> TablePolicy | None:
        place, tables = FileRef(folder or "."), self._tables
        if rooted := [table for table in tables.values() if table.holds(place)]:
            return max(rooted, key=lambda table: len(table.root or ""))
        return next((tables[part] for part in (stem, *reversed(folder.split("/"))) if part in tables), None)

    def strangers(self, files: Sequence[FileFacts]) -> list[str]:
        """The files that no table claims, though there is a policy: nobody holds them against anything."""
        return [file.path for file in files if self.of(file.path) is None] if self._given else []

    def prefixes(self, ref: FileRef) -> tuple[bytes, ...]:
        """The AAD prefixes that the policy gives a file, or gave it once."""
        policy = self.of(ref.path)
        return () if policy is None else tuple(prefix.encode() for prefix in policy.prefixes(ref))

    @property
    def given(self) -> bool:
        """Whether there is a policy at all."""
        return self._given

    def keys(self) -> KeyTools | None:
        """Key tools over the KMS that the policy names; None without a policy.

        Raises:
            BloomsealError: there is no way to the KMS, or the tables have several.
        """
        tables = self.tables
        if not tables:
            return None
        if any(one.kms is not tables[0].kms and one.kms != tables[0].kms for one in tables):
            raise UsageError("the policy's tables have several KMSs", hint="name one table, or the keys")
        return tables[0].keys.with_pins(None)

    @property
    def dated(self) -> bool:
        """Whether any policy says for how long keys are used."""
        return any(policy.max_key_age is not None or policy.key_policies for policy in self.tables)

    @property
    def tables(self) -> list[TablePolicy]:
        """The policies of all tables that files may belong to."""
        return [self._one] if self._one is not None else list(self._tables.values())
