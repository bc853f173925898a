"""Who may write a table's files, and who signs those that are written here."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ...core.cached import cached_property
from ...core.errors import BloomsealError, Hint, KeyAccessError, PolicyError, UsageError
from ...core.parquet.footer import Peek, peek
from ...core.spelling import named_options
from ...core.storage.ref import FileRef, path_in_table
from ...core.storage.source import Source
from ...storage.atomic import identity_at
from ...storage.places import resolve_path
from ...storage.signatures import SignatureBeside
from ..kms.registry import client_for
from .envelope import Authorship, SignatureFault, Statement, envelope, judge
from .keys import FileSigner, KmsSigner, PublicKey, Signer

SIGNER_VARIABLE: Final = "BLOOMSEAL_SIGNER"


@named_options
@dataclass(frozen=True)
class Signers:
    """Who may write a table's files. Handing it over says: each file is signed by one of them.

    Args:
        keys: signer's name → his public key as a line (``bsv1…``), or several, all of which must sign.
        table: the table's name, which is part of what is signed.
        root: the table's folder, from which paths count; None: the one that is read as a table.
        signer: signs what is written here: ``KMS_URI#KEY``, a private key's PEM file, a key's name in `kms`, or a
            `bloomseal.keytools.signatures.keys.Signer`; of a signer with several keys a list.
            None: ``$BLOOMSEAL_SIGNER``.
        kms: where a key that is named alone is.

    Raises:
        PolicyError: no signers, or a line that is none.
    """

    keys: Mapping[str, str | Collection[str]]
    table: str
    root: str | os.PathLike[str] | None = None
    signer: Any = field(default=None, repr=False)
    kms: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.keys, Mapping):
            raise UsageError("signers are a mapping of names to lines", hint='{"collector": "bsv1…"}')
        if not self.keys:
            raise PolicyError(f"table {self.table}: no signers", hint="leave signers out, so that anybody may write")
        try:
            object.__setattr__(self, "keys", {name: _lines(given) for name, given in self.keys.items()})
            _ = self.public_keys
        except UsageError as error:
            raise PolicyError(f"table {self.table}: signers: {error.what}", hint=error.hint) from None

    @property
    def public_keys(self) -> dict[str, tuple[PublicKey, ...]]:
        """Signer's name → public keys."""
        return {name: tuple(map(PublicKey.from_line, lines)) for name, lines in self.keys.items()}

    def path(self, ref: FileRef) -> str:
        """A file's path below the table's folder.

        Raises:
            PolicyError: nobody said where the folder is, or the file is not in it.
        """
        root = None if self.root is None else resolve_path(self.root).path
        return path_in_table(ref, root, self.table, "a signature")

    def judge(self, seen: Peek, ref: FileRef) -> Authorship:
        """Who signed a file, by its tail.

        Raises:
            PolicyError: as `path`. UsageError: the signature can't be read.
        """
        data = SignatureBeside(ref, seen.tail.digest).read()
        return judge(data, Statement.of(seen, self.table, self.path(ref)), self.public_keys)

    def sign(self, statement: Statement) -> bytes:
        """The envelope of a statement, signed here.

        Raises:
            PolicyError, UsageError: as `own`.
            KeyAccessError: the KMS refuses, or makes a signature that does not verify.
        """
        name, signers = self.own
        keys = self.public_keys[name]
        made = envelope(
            statement.to_bytes(), [(key, _one_form(key, by)) for key, by in zip(keys, signers, strict=True)]
        )
        if judge(made, statement, {name: keys}).signer is None:
            raise KeyAccessError("the signature that was made does not verify", file=statement.path)
        return made

    @cached_property
    def own(self) -> tuple[str, tuple[Signer, ...]]:
        """The signer here: his name among the table's, and what signs with each of his keys.

        Raises:
            PolicyError: there is no key to sign with, or it is none of the table's.
            UsageError, KeyAccessError: it can't be had.
        """
        given = self.signer or os.environ.get(SIGNER_VARIABLE, "").split() or None
        if given is None:
            raise PolicyError(
                f"the files of table {self.table} are signed by {', '.join(self.keys)}, and there is no key to sign with",
                hint=Hint.SIGNER,
            )
        found = [as_signer(one, self._client) for one in (given if isinstance(given, list | tuple) else (given,))]
        made = {PublicKey(one.public_key()).line: one for one in found}
        for name, lines in self.keys.items():
            if set(lines) == made.keys():
                return name, tuple(made[line] for line in lines)
        raise PolicyError(
            f"the key to sign with belongs to none of the signers of table {self.table}",
            hint=f"{', '.join(sorted(self.keys))}; the policy would have to name {' and '.join(sorted(made))}",
        )

    def _client(self) -> Any:
        return client_for(self.kms) if isinstance(self.kms, str) else self.kms

    def __getstate__(self) -> dict[str, Any]:
        # Who reads elsewhere needs no secret, and gets none.
        return {"keys": self.keys, "table": self.table, "root": self.root, "signer": None, "kms": None}


def as_signer(given: Any, kms: Callable[[], Any]) -> Signer:
    """What signs, by what a caller gives for it, see `Signers`.

    Args:
        kms: makes the client in which a key that is named alone is looked up.

    Raises:
        UsageError, KeyAccessError, PolicyError: it can't be had.
    """
    if isinstance(given, os.PathLike) or (isinstance(given, str) and "#" not in given and os.path.isfile(given)):  # noqa: PTH113
        return FileSigner(given, passphrase=os.environ.get("BLOOMSEAL_SIGNING_PASSPHRASE"))
    if isinstance(given, str):
        return KmsSigner(given) if "#" in given else KmsSigner.at(kms(), given)
    if isinstance(given, Signer):
        return given
    raise UsageError(f"signer= takes a key's name or file, or a Signer, not {type(given).__name__}")


def _lines(given: str | Collection[str]) -> tuple[str, ...]:
    lines = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Collection) else ()
    if not lines or not all(isinstance(line, str) for line in lines):
        raise UsageError("a signer has one public key, or several, as lines", hint="bsv1…")
    return tuple(dict.fromkeys(lines))


class TailSigner:
    """Signs one new file, before it takes its place.

    Args:
        ref: the final place.

    Raises:
        PolicyError, UsageError, KeyAccessError: as `Signers.own` and `Signers.path`, or a name that is too long: before
            a byte is written.
    """

    def __init__(self, signers: Signers, ref: FileRef) -> None:
        self._signers, self._path, self.name = signers, signers.path(ref), signers.own[0]
        if not SignatureBeside(ref, "0" * 64).fits:
            raise UsageError(
                "a name too long for its signature's to be made of it", file=ref.path, hint="a shorter one"
            )

    def __call__(self, source: Source) -> tuple[str, bytes]:
        """The digest of the tail, and the envelope.

        Raises:
            KeyAccessError: as `Signers.sign`.
        """
        return self.seal(peek(source))

    def seal(self, seen: Peek) -> tuple[str, bytes]:
        """As `__call__`, of a file whose end was read."""
        return seen.tail.digest, self._signers.sign(Statement.of(seen, self._signers.table, self._path))


def need_signer(spec: Any) -> None:
    """Refuse before anything is done where files would have to be signed, and nobody here can.

    Args:
        spec: a specification, or a table's policy.

    Raises:
        PolicyError, UsageError, KeyAccessError: as `Signers.own`.
    """
    signers = spec.authors if hasattr(spec, "authors") else spec.signers
    if signers is not None:
        _ = signers.own


def _one_form(key: PublicKey, signer: Signer) -> Any:
    return lambda message: key.in_one_form(signer.sign(message))


def tail_signer(spec: Any, ref: FileRef) -> TailSigner | None:
    """What signs a new file under a specification; None where nobody has to.

    Args:
        spec: a `DecryptionSpec`, an `EncryptionSpec`, or None.
    """
    return None if spec is None or spec.signers is None else TailSigner(spec.signers, ref)


def need_signed(source: Source, seen: Peek, signers: Signers) -> None:
    """Refuse a file that none of a table's signers has signed, before any key is asked for.

    Raises:
        PolicyError: it is unsigned, or somebody else's. UsageError: the signature can't be read.
    """
    found = signers.judge(seen, source.ref)
    if found.fault is SignatureFault.UNSIGNED and source.fd is not None and identity_at(source.name) != source.identity:
        # Its signature went with it.
        raise BloomsealError("another file took its place while it was opened", file=source.name, hint="again")
    need_author(found, signers.table, source.name)


def need_author(found: Authorship, table: str, file: str | None = None) -> None:
    """Refuse a file that nobody of a table's signers is seen to have signed.

    Raises:
        PolicyError: as said.
    """
    if found.signer is None:
        raise PolicyError(
            f"{found.why}, and files of table {table} are read only if one of its signers has",
            file=file,
            hint="ask its writer; bloomseal sign, if you answer for what is in it",
        )
