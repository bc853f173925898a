"""The plan of a commit: which files come and which go, in the name of somebody who may wrap under the table's own key.

The plan lies in the table's folder, and whoever finds it carries it out with rights of his own. So that nobody but a
writer of the table gives orders there, the KMS has wrapped the SHA-256 of purpose, table, job and plan under the
table's footer key, as it wraps data keys. Whoever may unwrap that key alone knows many keys that it has wrapped, and
can have none of his choice wrapped. The next writer has it unwrapped, held to the footer keys of the policy. One line
of JSON says who and what, the rest is the plan::

    {"version":3,"master_key":"footer","wrapped":"…"}
    {"files":[["ATTEMPT/a=1/part-….parquet","a=1/part-….parquet"]],"replaced":["a=1/part-….parquet"]}
"""

from __future__ import annotations

import hashlib
import json
import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ....core.encryption import SecretKey
from ....core.errors import BloomsealError, FormatError, IntegrityError, KeyAccessError
from ....core.keys.access import shown
from ....core.keys.material import parse_object

if TYPE_CHECKING:
    from ....policy import TablePolicy

__all__ = ["MAX_PLAN_BYTES", "Plan"]

_VERSION: Final = 3
_PURPOSE: Final = "bloomseal plan of a commit"
MAX_PLAN_BYTES: Final = 1 << 30
"""A million files to come and a million to go, at 500 bytes each."""
_HINT: Final = "look at the folder, and remove it: a table's own writers leave no such plan"


@dataclass(frozen=True, slots=True)
class Plan:
    """What a commit does.

    Attributes:
        files: (path below the job's folder, path below the table) of each file that comes.
        replaced: paths below the table of those that go.
    """

    files: tuple[tuple[str, str], ...]
    replaced: tuple[str, ...]

    def sealed(self, table: TablePolicy, job: str) -> bytes:
        """The plan as it is stored.

        Args:
            job: the job's name, which the plan is bound to.

        Raises:
            KeyAccessError: the KMS would not wrap under the table's footer key; or, where files go, does not open what
                it has wrapped: nobody could end a commit that was cut off.
        """
        body = json.dumps({"files": self.files, "replaced": self.replaced}).encode()
        tools, digest = table.keys.tools, _digest(table, job, body)
        wrapped = tools.wrap(digest, table.footer_key)
        if self.replaced and tools.calls.unwrap(wrapped, table.footer_key) != digest:
            raise KeyAccessError(f"the KMS has wrapped something else under master key {shown(table.footer_key)}")
        head = {"version": _VERSION, "master_key": table.footer_key, "wrapped": wrapped}
        return json.dumps(head).encode() + b"\n" + body

    @classmethod
    def opened(cls, text: bytes, table: TablePolicy, job: str, path: str) -> Plan:
        """A stored plan, authenticated before it is understood.

        Args:
            path: where it lies, for errors.

        Raises:
            FormatError: it is none of ours.
            IntegrityError: it is no plan of a writer of this table, or another job's.
            KeyAccessError: its master key can't be used here.
            PolicyError: it is under another master key than the policy names.
        """
        if len(text) > MAX_PLAN_BYTES:
            raise FormatError("the plan of a commit is too long", file=path, hint=_HINT)
        head, _, body = text.partition(b"\n")
        master_key, wrapped = _head(head, path)
        tools = table.keys.tools
        try:
            table.keys.check(master_key, None)
            found = tools.unwrap(wrapped, master_key, tools.calls)
        except BloomsealError as error:
            raise error.at(file=path) from None
        if found != _digest(table, job, body):
            raise IntegrityError("the plan of a commit is not of a writer of this table", file=path, hint=_HINT)
        try:
            said = json.loads(body)
            files = tuple((str(staged), str(name)) for staged, name in said["files"])
            plan = cls(files, tuple(map(str, said["replaced"])))
        except (ValueError, TypeError, LookupError, RecursionError):
            raise FormatError("the plan of a commit can't be understood", file=path, hint=_HINT) from None
        if not all(map(_is_below, [*plan.replaced, *(name for pair in plan.files for name in pair)])):
            raise FormatError("the plan of a commit names a file outside its table", file=path, hint=_HINT)
        return plan


def _head(head: bytes, path: str) -> tuple[str, str]:
    try:
        said = parse_object(head, "the first line of a plan")
    except KeyAccessError:
        said = {}
    master_key, wrapped = said.get("master_key"), said.get("wrapped")
    if said.get("version") != _VERSION or not isinstance(master_key, str) or not isinstance(wrapped, str):
        raise FormatError("the plan of a commit is not one of ours", file=path, hint=_HINT)
    return master_key, wrapped


def _digest(table: TablePolicy, job: str, body: bytes) -> SecretKey:
    """What stands for the plan, in the form of a key: KMS clients wrap nothing else."""
    bound = json.dumps([_PURPOSE, table.name, job]).encode()
    return SecretKey(hashlib.sha256(bound + b"\n" + body).digest())


def _is_below(name: str) -> bool:
    return name == posixpath.normpath(name) and name.split("/")[0] not in ("", ".", "..") and "\x00" not in name
