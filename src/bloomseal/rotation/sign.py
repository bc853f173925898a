"""Signing files that are there: whoever does it has looked into them, and answers for them from then on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..core.decryption import unsigned
from ..core.errors import KeyAccessError, PolicyError
from ..core.parquet.walk import Walk
from ..core.storage.source import Source
from ..format.opening import open_footer
from ..format.verify import verify_walk
from ..keytools.signatures.signers import TailSigner, need_signer
from ..specs import decryption_for
from ..storage.atomic import storage_errors
from ..storage.places import open_source
from ..storage.signatures import SignatureBeside
from .files import DataFile
from .job import Job, Progress
from .outcome import FileOutcome, FilePlan, Status
from .settings import Decryption, end_of


@dataclass
class Sign(Job):
    """Sign files that none of the table's signers has signed, once every module of theirs has opened.

    Args:
        decryption: what opens the files, with signers; or the table's policy.

    Raises:
        PolicyError: the table has no signers.
    """

    decryption: Decryption
    operation: ClassVar[str] = "sign"
    done: ClassVar[Status] = Status.SIGNED
    keeps_identity: ClassVar[bool] = True

    def plan(self, file: DataFile) -> FilePlan:
        with open_source(file.ref) as source:
            if (signer := self._signer(source)) is not None:
                return FilePlan(file.name, "none", f"signed by {signer} already", file.size)
        return FilePlan(file.name, self.operation, None, file.size)

    def run(self, file: DataFile, progress: Progress | None = None, *, begun: bool = False) -> FileOutcome:  # noqa: ARG002
        ref = file.ref
        with open_source(ref) as source:
            if (signer := self._signer(source)) is not None:
                return FileOutcome(file.name, Status.NOTHING, why=f"signed by {signer} already", old_size=file.size)
            spec, seen = decryption_for(self.decryption, ref), end_of(source, self.operation)
            sign = TailSigner(spec.signers, ref)
            footer, keys = open_footer(source, unsigned(spec), seen=seen)
            report = verify_walk(Walk(source, footer, keys))
            if report.failures:
                raise report.failures[0].at(file=file.name)
            if report.inaccessible or not footer.verified:
                raise KeyAccessError(
                    f"not signed, since nobody looked into {', '.join(report.inaccessible) or 'its footer'}",
                    file=file.name,
                )
            # The end that was opened is the one that is signed.
            digest, made = sign.seal(seen)
            with storage_errors("write the signature", ref.path):
                SignatureBeside(ref, digest).write(made)
        return FileOutcome(file.name, self.done, signed_by=sign.name, old_size=file.size, new_size=file.size)

    def check_signer(self) -> None:
        need_signer(self.decryption)

    def _signer(self, source: Source) -> str | None:
        """Who has signed the file."""
        signers = decryption_for(self.decryption, source.ref).signers
        if signers is None:
            raise PolicyError("the table has no signers", hint='signers.NAME = "bsv1…" in the policy')
        found: str | None = signers.judge(end_of(source, self.operation), source.ref).signer
        return found
