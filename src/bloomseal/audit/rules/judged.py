"""What rules judge and what they make: the facts, the chunks that are alike, a finding."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from ...core.cached import cached_property
from ...keytools.keyring.keyring import Keyring
from ...keytools.tools import KeyTools
from ...policy import SENSITIVE, Sensitivity, TablePolicy
from ..facts.files.file import ChunkFacts, FileFacts
from ..facts.indexes import IndexSeen
from ..facts.keys import KeyFacts
from ..facts.leftovers import Leftover
from ..facts.places import Places
from ..facts.policies import Policies
from .catalogue import RULES
from .findings import Finding, Severity

if TYPE_CHECKING:
    from ..facts.files.deep import Nonces

_KEYRING: Final = "keyring:"


@dataclass(frozen=True)
class KeyArguments:
    """How a command line reaches the keys.

    Attributes:
        options: the options that name them; None where no command line leads to these keys.
        keyring: the keyring's path, where they come from one.
    """

    options: tuple[str, ...] | None = None
    keyring: str | None = None

    @classmethod
    def of(cls, keys: Any) -> KeyArguments:
        """As far as the keys themselves tell: a keyring's do, and a KMS that is named by its URI."""
        keys = keys.kms if isinstance(keys, KeyTools) else keys
        if isinstance(keys, str) and not keys.startswith(_KEYRING):
            return cls(("--kms", keys))
        path = keys.path if isinstance(keys, Keyring) else str(keys or "").removeprefix(_KEYRING)
        if not path or not isinstance(keys, Keyring | str) or "?" in str(path):
            return cls()
        return cls.said(["--keyring", os.path.abspath(path)])  # noqa: PTH100

    @classmethod
    def said(cls, options: Sequence[str]) -> KeyArguments:
        """As the options of a command line have it; none at all lead to no keys."""
        keyring = options[options.index("--keyring") + 1] if "--keyring" in options[:-1] else None
        return cls(tuple(options) or None, keyring)


@dataclass
class Facts:
    """What there is to judge.

    Attributes:
        files, places: what was looked at.
        policies: by file.
        with_keys: keys were at hand.
        nonces: what the nonce check saw; None without it.
        now: the moment that ages are counted to.
        beside: what lies beside the tables and is no part of them.
        keys: how a command line reaches them.
        indexes: the sealed indexes of the tables.
    """

    files: Sequence[FileFacts]
    places: Places
    policies: Policies
    with_keys: bool
    nonces: Nonces | None
    now: datetime
    beside: Sequence[Leftover] = ()
    keys: KeyArguments = field(default_factory=KeyArguments)
    indexes: Sequence[IndexSeen] = ()

    @cached_property
    def by_path(self) -> dict[str, FileFacts]:
        return {file.path: file for file in self.files}

    @cached_property
    def _in_order(self) -> list[FileFacts]:
        return sorted(self.files, key=lambda file: file.path)

    def below(self, folder: str) -> list[FileFacts]:
        """The file of this path, or those below this folder, and those elsewhere that the log of its table names."""
        prefix, files = f"{folder.rstrip('/')}/", self._in_order
        start = bisect_left(files, prefix, key=lambda file: file.path)
        end = bisect_left(files, prefix[:-1] + "0", key=lambda file: file.path)  # the sign behind the slash
        own = self.by_path.get(folder)
        return [*files[start:end], *([] if own is None else [own]), *self._elsewhere.get(folder, ())]

    @cached_property
    def _elsewhere(self) -> dict[str, list[FileFacts]]:
        found: dict[str, list[FileFacts]] = {}
        for file in self.files:
            root = file.ref.root
            if root is not None and not file.path.startswith(f"{root.rstrip('/')}/"):
                found.setdefault(root, []).append(file)
        return found

    @cached_property
    def remote(self) -> bool:
        """Whether the files lie on another file system than this machine's."""
        return any(file.ref.filesystem is not None for file in self.files) or any(
            one.ref.filesystem is not None for one in self.places.outside
        )


@dataclass(slots=True)
class Line:
    """The chunks of one column in one file that are alike.

    Attributes:
        file, policy: its file and that one's policy.
        column, type: dotted path and type.
        key: the key that seals them.
        chunks: the chunks; the first one stands for all.
    """

    file: FileFacts
    policy: TablePolicy | None
    column: str
    type: str
    key: KeyFacts
    chunks: list[ChunkFacts] = field(default_factory=list)

    @property
    def encrypted(self) -> bool:
        return self.chunks[0].protection != 0

    @property
    def sensitive(self) -> bool:
        """Whether the policy calls the column confidential or restricted."""
        return self.policy is not None and self.policy.sensitivity(self.column) in SENSITIVE

    @property
    def restricted(self) -> bool:
        return self.policy is not None and self.policy.sensitivity(self.column) is Sensitivity.RESTRICTED

    def finding(
        self,
        rule: str,
        message: str,
        severity: Severity | None = None,
        *,
        chunks: list[ChunkFacts] | None = None,
        mendable: bool = True,
    ) -> Finding:
        """A finding here."""
        groups = tuple(chunk.row_group for chunk in (self.chunks if chunks is None else chunks))
        made = found(rule, message, severity, self.file.path, self.column, groups)
        return made if mendable else made.unmendable()


def found(
    rule: str,
    message: str,
    severity: Severity | None = None,
    file: str | None = None,
    column: str | None = None,
    row_groups: tuple[int, ...] = (),
    details: Mapping[str, Any] | None = None,
) -> Finding:
    """A finding; its remedy is made when all are there (`remedies.with_remedies`)."""
    kept = RULES[rule]
    groups = tuple(sorted(row_groups))
    return Finding(kept, severity or kept.severity, message, file, column, groups, details or {})


def lines(file: FileFacts, policy: TablePolicy | None) -> Iterable[Line]:
    """A file's chunks, those that are alike together."""
    apart: dict[tuple[int, ...], Line] = {}
    for c in file.chunks:
        alike = (c.leaf, c.protection, c.key, c.exposed, c.filter, c.column_index, c.offset_index)
        line = apart.get(alike)
        if line is None:
            name, kind = file.leaves[c.leaf]
            line = apart[alike] = Line(file, policy, name, kind, file.keys[c.key])
        line.chunks.append(c)
    return apart.values()
