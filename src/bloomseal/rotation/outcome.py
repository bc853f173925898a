"""What a rotation is going to do with each file, and what it did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from ..notebook import ShownInNotebooks


class Status(StrEnum):
    """How a file came out of a run: the verb's own word where all went well, see `Job.done`."""

    REWRAPPED = "rewrapped"
    REKEYED = "rekeyed"
    REPAIRED = "repaired"
    SEALED = "sealed"
    UNSEALED = "unsealed"
    ERASED = "erased"
    SIGNED = "signed"
    REMOVED = "removed"
    DUE = "to be erased"
    PARTLY = "done in part"
    NOTHING = "nothing to do"
    DONE_BEFORE = "done before"
    SINCE = "changed since the run"
    DEAD = "not in the table"
    CHANGED = "changed by someone else"
    FAILED = "failed"

    @property
    def settled(self) -> bool:
        """Nothing is left to do."""
        return self not in (Status.PARTLY, Status.SINCE, Status.CHANGED, Status.FAILED)


@dataclass
class FilePlan:
    """What is to be done with one file.

    Attributes:
        path: the file.
        action: the operation's name; ``none``; or ``fail`` where it can't be done.
        why: for ``none`` and ``fail``; of a ``repair``, which filters lie in clear.
        size: bytes now.
        bytes_to_write: through this process.
        bytes_to_copy: by the kernel, untouched.
        left: keys that can't be wrapped anew, each with `column` and `why`.
        unreferenced: key material beside the file to which its footer does not refer; it stays as it is.
        calls: what the KMS will be asked → how often, at most. Files that share a KEK have entries in common.
    """

    path: str
    action: str
    why: str | None = None
    size: int = 0
    bytes_to_write: int = 0
    bytes_to_copy: int = 0
    left: list[dict[str, Any]] = field(default_factory=list)
    unreferenced: list[str] = field(default_factory=list)
    calls: dict[Hashable, int] = field(default_factory=dict, repr=False)

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "calls"}


@dataclass
class RotationPlan:
    """A dry run's answer.

    Attributes:
        operation: ``rewrap``, ``rekey``, ``repair``, ``seal`` or ``unseal``.
        journal: where a run would keep its journal.
        files: one entry per file.
        bytes_to_write, bytes_to_copy: over all files.
        kms_calls: at most.
        seconds: a rough estimate, from the bytes and from the KMS's answers during planning.
    """

    operation: str
    journal: str
    files: list[FilePlan] = field(default_factory=list)
    bytes_to_write: int = 0
    bytes_to_copy: int = 0
    kms_calls: int = 0
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Nothing is foreseen that can't be done."""
        return not any(file.action == "fail" or file.left for file in self.files)

    def to_dict(self) -> dict[str, Any]:
        told = {name: value for name, value in self.__dict__.items() if name != "files"}
        return told | {"ok": self.ok, "files": [file.to_dict() for file in self.files]}


@dataclass
class FileOutcome:
    """What was done with one file.

    Attributes:
        path: the file.
        status: how it came out.
        why: what stood in the way, in words.
        output: the new file, where it is another one.
        old_size, new_size: bytes.
        bytes_written: through this process; the kernel's copies are not among them.
        keys: keys that were wrapped anew (`RewrappedKey` as plain data), or made anew (`ConversionReport.keys`).
        left: keys that were not, each with `column` and `why`.
        unreferenced: key material beside the file to which its footer does not refer; it was left as it is.
        filters_dropped: filters in clear on encrypted columns, which no conversion takes over.
        filters_replaced: filters that were built anew in an older one's place.
        dropped: the dropped ones, each with `row_group`, `column` and `why`.
        unchecked: filters that were sealed anew although nothing tells whether they hold their column's values;
            likewise.
        old_copies: what copies of the old file still tell, so that they are to be destroyed; None: nothing that this
            operation was to hide.
        rows: that were erased.
        signed_by: who signed the new file, in the place of whoever signed the old one; None where nobody has to.
        error: the error as plain data.
    """

    path: str
    status: Status
    why: str | None = None
    output: str | None = None
    old_size: int = 0
    new_size: int = 0
    bytes_written: int = 0
    keys: list[dict[str, Any]] = field(default_factory=list)
    left: list[dict[str, Any]] = field(default_factory=list)
    unreferenced: list[str] = field(default_factory=list)
    filters_dropped: int = 0
    filters_replaced: int = 0
    dropped: list[dict[str, Any]] = field(default_factory=list)
    unchecked: list[dict[str, Any]] = field(default_factory=list)
    old_copies: str | None = None
    rows: int = 0
    signed_by: str | None = None
    error: dict[str, Any] | None = None
    stamp: dict[str, Any] = field(default_factory=dict, repr=False)

    def to_dict(self) -> dict[str, Any]:
        told = asdict(self)
        del told["stamp"]
        return told


@dataclass
class RotationReport(ShownInNotebooks):
    """What a run did.

    Attributes:
        operation: ``rewrap``, ``rekey``, ``repair``, ``seal`` or ``unseal``.
        journal: where the journal is.
        resumed: an earlier run had begun.
        files: one entry per file.
        kms: what the KMS was asked (`keytools.kms.counters.Counters`).
        seconds: that it took.
    """

    operation: str
    journal: str
    resumed: bool = False
    files: list[FileOutcome] = field(default_factory=list)
    kms: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Every file is as it is to be."""
        return all(file.status.settled for file in self.files)

    @property
    def counts(self) -> dict[str, int]:
        """Status → number of files."""
        return dict(Counter(str(file.status) for file in self.files))

    @property
    def problems(self) -> list[FileOutcome]:
        """The files about which something is left to do or to know."""
        return [file for file in self.files if not file.status.settled or file.unreferenced]

    def to_dict(self) -> dict[str, Any]:
        return {
            "operation": self.operation,
            "journal": self.journal,
            "resumed": self.resumed,
            "ok": self.ok,
            "counts": self.counts,
            "bytes_written": sum(file.bytes_written for file in self.files),
            "kms": self.kms,
            "seconds": self.seconds,
            "files": [file.to_dict() for file in self.files],
        }
