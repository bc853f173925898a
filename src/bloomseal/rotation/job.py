"""What every depth of a rotation is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from dataclasses import fields
from typing import Any, ClassVar, Final

from ..core.decryption import DecryptionSpec
from ..core.encryption import SecretKey
from ..core.errors import UsageError
from ..core.parquet.walk import Walk
from ..core.storage.ref import FileRef
from ..keytools.signatures.signers import need_signer
from ..keytools.tools import KeyTools
from ..policy import TablePolicy
from ..specs import EncryptionSpec, resolve_policy
from .files import DataFile, mark_of
from .outcome import FileOutcome, FilePlan, Status
from .settings import tools_or_none, unwraps

Progress = Callable[[int, int], None]


class Job(ABC):
    """What is to be done with every file.

    Attributes:
        decryption, encryption: of those that have them: a specification; or a table's policy, the file or `Policy` of
            one table.
        operation: its name.
        done: the status of a file that it is done with.
        open_ended: a file that was changed after the run had finished is looked at again; its state tells what is due.
        keeps_identity: a file is the same one afterwards, by its ``aad_file_unique``.
        indexes: the files of sealed indexes are rotated too. Their manifest names them by their identity, which only a
            rewrap leaves as it is; `index compact --everything` gives an index fresh keys.
        signs: the new files of a table with signers are signed.
    """

    operation: ClassVar[str]
    done: ClassVar[Status]
    open_ended: ClassVar[bool] = True
    keeps_identity: ClassVar[bool] = False
    indexes: ClassVar[bool] = False
    signs: ClassVar[bool] = True
    _opened: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for name, kind in (("decryption", DecryptionSpec), ("encryption", EncryptionSpec)):
            if (given := getattr(self, name, None)) is not None:
                setattr(self, name, resolve_policy(kind, given))

    @abstractmethod
    def plan(self, file: DataFile) -> FilePlan:
        """What would be done, and what it costs. Writes nothing."""

    @abstractmethod
    def run(self, file: DataFile, progress: Progress | None = None, *, begun: bool = False) -> FileOutcome:
        """Do it. `begun`: an earlier run was interrupted at this file.

        Raises:
            BloomsealError: it can't be done; the file opens as before.
        """

    def facts(self) -> dict[str, Any]:
        """The settings, without secrets: what makes a job the same job."""
        return {one.name: _fact(getattr(self, one.name)) for one in fields(self) if not one.name.startswith("_")}  # type: ignore[arg-type]

    def target(self, file: DataFile) -> FileRef:
        """Where the new file goes."""
        return file.ref

    def check_free(self, file: DataFile) -> None:
        """Refuse to replace what is no old file of ours.

        Raises:
            UsageError: the new file is to go to another place than the old one's, and something is there.
        """
        target = self.target(file)
        if target != file.ref and mark_of(target) is not None:
            raise UsageError(
                "there is a file already where the new one is to go", file=target.path, hint="another output"
            )

    def still_good(self, stamp: Mapping[str, Any]) -> bool:  # noqa: ARG002
        """Whether a file that an earlier run left with this stamp is done."""
        return True

    def begin(self) -> None:
        """Before the first file: what is made and known from now on, is by the versions that master keys have now."""
        for tools in self.tools():
            tools.renew()

    def check_signer(self) -> None:
        """Refuse where the new files would have to be signed, and nobody here can.

        Raises:
            PolicyError, UsageError, KeyAccessError: as `Signers.own`.
        """
        given = getattr(self, "encryption", None) or getattr(self, "decryption", None)
        if given is not None and self.signs:
            need_signer(given)

    def after(self) -> None:  # noqa: B027
        """When all files are done: what is to be done once for all of them."""

    def _unwraps(self, walk: Walk, decryption: DecryptionSpec) -> dict[Hashable, int]:
        """As `unwraps`, of one file after the other."""
        calls = unwraps(walk, decryption, self._opened)
        self._opened |= {call[1] for call in calls if isinstance(call, tuple)}
        return calls

    def tools(self) -> list[KeyTools]:
        """The key tools in use."""
        given = (getattr(self, name, None) for name in ("decryption", "encryption"))
        held = (tools_or_none(one.keys) for one in given if one is not None)
        # Key tools over the same calls are the same, whatever they accept, and wherever they put new material.
        return list({id(tools.calls): tools for tools in held if tools is not None}.values())


_NO_FACTS: Final = ("keys", "kms", "origin", "access_log", "key_policies", "signers", "signer")
"""Fields that make no other job."""


def _fact(value: Any) -> Any:
    """A setting as plain data, keys by fingerprint."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case SecretKey():
            return value.fingerprint
        case bytes() | bytearray() | memoryview():
            # A data key, or an AAD prefix; the digest of the whole goes through another hash.
            return SecretKey(bytes(value)).fingerprint if len(value) in (16, 24, 32) else bytes(value).hex()
        case Mapping():
            return {str(name): _fact(one) for name, one in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_fact(one) for one in value]
        case EncryptionSpec() | TablePolicy():
            return {one.name: _fact(getattr(value, one.name)) for one in fields(value) if one.name not in _NO_FACTS}
        case DecryptionSpec():
            return {"aad_prefix": _fact(value.aad_prefix), "keys": type(value.keys).__name__}
        case _:
            return repr(value) if hasattr(type(value), "__dataclass_fields__") else type(value).__name__
