"""The plan of a commit: which files come and which go, under the table's own keys.

The plan lies in the table's folder, and whoever finds it carries it out with rights of his own. So that nobody but a
writer of the table gives orders there, it is authenticated: HMAC-SHA-256 under a fresh key that the KMS has wrapped
under the table's footer key. The next writer unwraps that one, held to the footer keys of the policy. One line of JSON
says key and tag, the rest is the plan::

    {"version":2,"key":"…key metadata…","tag":"…"}
    {"files":[["ATTEMPT/a=1/part-….parquet","a=1/part-….parquet"]],"replaced":["a=1/part-….parquet"]}
"""

from __future__ import annotations

import hmac
import json
import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ....encryption import SecretKey
from ....errors import BloomsealError, FormatError, IntegrityError, KeyAccessError
from ....keytools.material.material import parse_object
from ....keytools.pinned import PinnedKeys
from ....storage.ref import FileRef

if TYPE_CHECKING:
    from ....keytools.pinned import PinnedFileKeys
    from ....policy import TablePolicy

__all__ = ["MAX_PLAN_BYTES", "Plan"]

_VERSION: Final = 2
_LABEL: Final = b"bloomseal plan of a commit"
_KEY_BITS: Final = 256
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
        keys = _keys(table)
        key, metadata = keys.new_key(table.footer_key, None, _KEY_BITS)
        if self.replaced:
            keys.confirm()
        body = json.dumps({"files": self.files, "replaced": self.replaced}).encode()
        head = {"version": _VERSION, "key": metadata.decode(), "tag": _tag(key, job, body).decode()}
        return json.dumps(head).encode() + b"\n" + body

    @classmethod
    def opened(cls, text: bytes, table: TablePolicy, job: str, path: str) -> Plan:
        """A stored plan, authenticated before it is understood.

        Args:
            path: where it lies, for errors.

        Raises:
            FormatError: it is none of ours.
            IntegrityError: it is no plan of a writer of this table, or another job's.
            KeyAccessError: its key can't be had here.
            PolicyError: its key is under another master key than the policy names.
        """
        if len(text) > MAX_PLAN_BYTES:
            raise FormatError("the plan of a commit is too long", file=path, hint=_HINT)
        head, _, body = text.partition(b"\n")
        metadata, tag = _head(head, path)
        try:
            key = _keys(table).retrieve_key(metadata, None)
        except BloomsealError as error:
            raise error.at(file=path) from None
        if not hmac.compare_digest(_tag(key, job, body), tag):
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


def _head(head: bytes, path: str) -> tuple[bytes, bytes]:
    try:
        said = parse_object(head, "the first line of a plan")
    except KeyAccessError:
        said = {}
    metadata, tag = said.get("key"), said.get("tag")
    if said.get("version") != _VERSION or not isinstance(metadata, str) or not isinstance(tag, str):
        raise FormatError("the plan of a commit is not one of ours", file=path, hint=_HINT)
    return metadata.encode(), tag.encode()


def _keys(table: TablePolicy) -> PinnedFileKeys:
    """The table's footer keys, which every writer of it can use. Material stays inside: beside the plan there would be
    no file.
    """
    tools = table.keys.tools.storing(internal=True)
    return PinnedKeys(tools, footer={table.footer_key, *table.previous_footer_keys}, columns={}).for_file(FileRef(""))


def _tag(key: SecretKey, job: str, body: bytes) -> bytes:
    # Not the unwrapped key itself: a footer's data key, put in its place, must not make or check tags.
    derived = HKDF(SHA256(), 32, None, _LABEL).derive(key.reveal())
    return hmac.digest(derived, job.encode() + b"\x00" + body, "sha256").hex().encode()


def _is_below(name: str) -> bool:
    return name == posixpath.normpath(name) and name.split("/")[0] not in ("", ".", "..") and "\x00" not in name
