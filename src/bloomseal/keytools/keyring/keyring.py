"""A local keyring: named master keys with numbered versions in one file. The KMS for one machine, and for trying things
out.

``keyring:///absolute/path`` (or ``keyring:relative/path``) names it; ``keyring:`` alone takes ``$BLOOMSEAL_KEYRING``.
Its passphrase, if it has one, comes from ``$BLOOMSEAL_KEYRING_PASSPHRASE``, or from the file that
``$BLOOMSEAL_KEYRING_PASSPHRASE_FILE`` names.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from ...core.errors import BloomsealError, Hint, KeyAccessError, UsageError
from ...core.forked import renewed_in_child
from ...core.keys.access import KmsAccessError, Problem, shown
from ...core.keys.wrapping import open_by_ctr
from ...core.storage.local import NO_NAME, can_name, identity, need_own, read_small
from ...storage.folder import Folder
from ...storage.replacement import Replacement
from ..kms_protocols import KeyState, MasterKeyFacts, MasterVersion
from ..recipients.hpke import KeyKind
from . import keyfile
from .copies import open_copy, write_copy
from .keyfile import KeyVersion, MasterKey, PassphraseKeys
from .pairs import Pairs
from .passphrase import PASSPHRASE_VARIABLE, passphrase_of_environment
from .wrapped import KMS, facts, find, open_unbound, symmetric, unwrap, witness, wrap

__all__ = ["PASSPHRASE_VARIABLE", "PATH_VARIABLE", "Keyring"]

PATH_VARIABLE: Final = "BLOOMSEAL_KEYRING"


class Keyring(Pairs):
    """Master keys in a local file; a KMS client with every optional capability.

    Args:
        path: the file, of mode 0600, or with a passphrase readable for others too. It is read again whenever it has
            changed.
        passphrase: seals the keys in the file (scrypt and AES-GCM). Default: the environment's
            ``BLOOMSEAL_KEYRING_PASSPHRASE``, or the file that ``BLOOMSEAL_KEYRING_PASSPHRASE_FILE`` names, so that it
            need not stand in code.
        create: make an empty keyring where there is none, protected by the passphrase if there is one.

    Raises:
        PolicyError: the file, or the passphrase's, can be written by others than its owner; or read, and no passphrase
            seals its keys.
        KeyAccessError: no such file, a wrong or missing passphrase, altered contents; a file without protection where a
            passphrase was given, or where this object has seen protection; an older file put back while it is in use.

    Threads and processes may share the file: changes are made under a file lock and replace it atomically. A pickled
    Keyring carries its path, and whether it is protected; whoever unpickles it reads the file and the passphrase's
    variable where they are.
    """

    kms_name = KMS
    answers_at_once = True

    def __init__(self, path: str | os.PathLike[str], *, passphrase: str | None = None, create: bool = False) -> None:
        self._prepare(path, passphrase, must_protect=passphrase is not None)
        if create and not os.path.exists(self._path):  # noqa: PTH110  # pathlib raises for long names
            with self._changing(missing_ok=True):
                pass
        self._load()

    def _prepare(self, path: str | os.PathLike[str], passphrase: str | None, *, must_protect: bool) -> None:
        if passphrase == "":
            raise UsageError("an empty passphrase protects nothing", hint="leave it out, or give one")
        if not isinstance(path, str | os.PathLike):
            raise UsageError(f"a keyring's path is a str or an os.PathLike, not {type(path).__name__}")
        if not can_name(path):
            raise UsageError(NO_NAME, file=os.fspath(path))
        self._path = Path(os.path.expanduser(path)).absolute()  # noqa: PTH111  # pathlib raises for unknown users
        self._passphrase = passphrase
        self._must_protect = must_protect
        self._seen: tuple[int, ...] | None = None
        self._keys: dict[str, MasterKey] = {}
        self._protection: PassphraseKeys | None = None
        self._renew()
        renewed_in_child(self)

    def _renew(self) -> None:
        self._lock = threading.RLock()
        self._seen = None

    @classmethod
    def from_environment(cls) -> Keyring:
        """The keyring at ``$BLOOMSEAL_KEYRING``.

        Raises:
            UsageError: the variable is not set.
        """
        path = os.environ.get(PATH_VARIABLE)
        if not path:
            raise UsageError(f"{PATH_VARIABLE} is not set", hint=f"{PATH_VARIABLE}=path/to/keyring.json")
        return cls(path)

    @property
    def path(self) -> Path:
        return self._path

    @property
    def protected(self) -> bool:
        """True where a passphrase seals the keys."""
        self._load()
        return self._protection is not None

    def change_passphrase(self, new: str | None) -> None:
        """Seal the keys in the file anew, under another passphrase. The one way to add or take away protection.

        Args:
            new: the passphrase from now on, which wins over the environment's; None leaves the keys in clear, guarded
                by the file's mode only.

        Raises:
            UsageError: an empty passphrase; or None, while the environment's variable still gives one.
            KeyAccessError: the file does not open as it is, or the passphrase is no text.

        Other objects and processes that hold the keyring open refuse it until they are given the new passphrase. Copies
        of the old file go on opening with the old one.
        """
        if new == "" or (new is None and passphrase_of_environment()):
            raise UsageError(
                f"an empty passphrase, or none although the environment gives one ({PASSPHRASE_VARIABLE})",
                hint=f"unset {PASSPHRASE_VARIABLE}, or give a new passphrase",
            )
        with self._changing():
            self._protection = None if new is None else PassphraseKeys(new)
        self._passphrase, self._must_protect = new, new is not None
        self._load()

    # Managing keys

    def list(self) -> tuple[MasterKey, ...]:
        """All master keys, destroyed ones too, by name."""
        return tuple(sorted(self._load().values(), key=lambda key: key.name))

    def create(
        self, name: str, *, bits: int = 256, exist_ok: bool = False, kind: KeyKind | str = KeyKind.AES
    ) -> MasterKey:
        """A new master key of 128, 192 or 256 bits; or a pair, see `recipient`.

        Args:
            exist_ok: where the name is taken, the key that is there, whatever its kind, size and state.
            kind: ``aes``; ``hpke`` (ML-KEM-768 and X25519) or ``x25519``, a pair; ``ed25519``, a pair that signs.

        Raises:
            UsageError: the name is taken, empty or longer than 200 characters; no such key size or kind; or asked of
                the class.
        """
        if not isinstance(self, Keyring):
            raise UsageError("create is asked of a keyring", hint='Keyring("keys.json", create=True).create("footer")')
        if not isinstance(name, str) or not name or len(name) > 200 or not name.isprintable():
            raise UsageError("a master key's name has 1 to 200 printable characters")
        if kind not in tuple(KeyKind):
            raise UsageError(f"no kind of key {kind!r}", hint=", ".join(KeyKind))
        fresh = KeyVersion.fresh(1, bits, KeyKind(kind))
        if exist_ok and (there := self._load().get(name)) is not None:
            return there
        with self._changing() as keys:
            if name in keys:
                if exist_ok:
                    return keys[name]  # another process was faster
                raise UsageError(f"master key {shown(name)} exists already", hint=Hint.KEY_EXISTS)
            keys[name] = MasterKey(name, (fresh,))
        return keys[name]

    def rotate(self, name: str, *, bits: int | None = None) -> MasterKey:
        """Add a version, which wraps from now on. Earlier versions go on unwrapping."""
        with self._changing() as keys:
            key = self._key(name, keys)
            if all(version.state is KeyState.DESTROYED for version in key.versions):
                raise KmsAccessError.because(Problem.DESTROYED, name, KMS)
            fresh = KeyVersion.fresh(key.current.version + 1, bits or key.current.bits, key.current.kind)
            keys[name] = replace(key, versions=(*key.versions, fresh))
        return keys[name]

    def disable(self, name: str, version: int | None = None) -> MasterKey:
        """Refuse the use of a version, or of all of them, until `enable`."""
        return self._set_state(name, version, KeyState.DISABLED)

    def enable(self, name: str, version: int | None = None) -> MasterKey:
        """Undo `disable`. A destroyed version stays destroyed."""
        return self._set_state(name, version, KeyState.ENABLED)

    def destroy(self, name: str, version: int | None = None) -> MasterKey:
        """Crypto-shred a version, or all of them: the bytes leave the file and a tombstone stays.

        What it wrapped is lost for good, except where a copy of the old file survives: backups, snapshots and
        journals of the file system are outside this program's reach.
        """
        return self._set_state(name, version, KeyState.DESTROYED)

    def export(
        self,
        names: Sequence[str],
        path: str | os.PathLike[str],
        *,
        passphrase: str | None,
        recipient: str | None = None,
    ) -> tuple[MasterKey, ...]:
        """Copy master keys into a new file, under a passphrase of its own or sealed to a recipient (`write_copy`)."""
        keys = [self._key(name, self._load()) for name in names]
        return write_copy(keys, path, passphrase, own=self._secret(), recipient=recipient)

    def add_copy(self, path: str | os.PathLike[str]) -> tuple[MasterKey, ...]:
        """Add the master keys of a file that `export` has sealed to a recipient whose key is here (`open_copy`)."""
        with self._changing() as keys:
            new = open_copy(path, keys.values())
            if taken := sorted(new.keys() & keys.keys()):
                raise UsageError(f"master key {shown(taken[0])} exists already", hint=Hint.KEY_EXISTS)
            keys.update(new)
        return tuple(new.values())

    # KMS client

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        """`key_bytes` under the current version.

        Raises:
            KmsAccessError: unknown, disabled or destroyed.
            KeyAccessError: the version's invocation limit is reached.
        """
        return wrap(self._key(master_key_identifier, self._load()), key_bytes)

    def wrap_own(self, key_bytes: bytes, master_key_identifier: str) -> str:
        """As `wrap_key`, and of a pair not by its public half: nobody but its holder can have done it."""
        return wrap(self._key(master_key_identifier, self._load()), key_bytes, own=True)

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        """What `wrap_key` was given.

        Raises:
            KmsAccessError: unknown, disabled or destroyed; or another master key's blob.
        """
        return unwrap(self._key(master_key_identifier, self._load()), wrapped_key)

    def unwrap_bytes(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
        """As `BytesKms`: ``nonce(12) ‖ ciphertext ‖ tag(16)`` under any enabled version, bound to nothing, as Iceberg's
        clients for key stores in memory and in files write it.
        """
        return open_unbound(self._key(master_key_identifier, self._load()), wrapped_key)[1]

    def rewrap_key(
        self, wrapped_key: str, master_key_identifier: str, new_master_key_identifier: str | None = None
    ) -> str:
        """The same key under the current version of `new_master_key_identifier` (default: the same master key)."""
        return self.wrap_key(
            self.unwrap_key(wrapped_key, master_key_identifier), new_master_key_identifier or master_key_identifier
        )

    def describe(self, master_key_identifier: str, wrapped_key: str | None = None) -> MasterKeyFacts:  # noqa: ARG002
        """All that the file tells. When a current version was disabled it does not say; not later than it was last
        changed.
        """
        keys = self._load()
        assert self._seen is not None  # noqa: S101  # set by what has just been loaded
        changed = datetime.fromtimestamp(self._seen[3] / 1e9, UTC)
        return facts(self._key(master_key_identifier, keys), changed)

    def opened_by(self, wrapped_key: str | bytes, master_key_identifier: str) -> MasterVersion:
        """The version whose key opens it, disabled ones too."""
        key = self._key(master_key_identifier, self._load())
        return MasterVersion(key.name, str(witness(key, wrapped_key)))

    def open_local_key(self, encrypted_key: bytes, master_key_identifier: str, version: int) -> bytes:
        """As `LocalKeyKms`. There versions begin at 0, here at 1."""
        found = find(self._key(master_key_identifier, self._load()), version + 1)
        return open_by_ctr(encrypted_key, symmetric(found, master_key_identifier))

    def newest_version(self, master_key_identifier: str) -> int:
        """As `LocalKeyKms`."""
        return self._key(master_key_identifier, self._load()).current.version - 1

    def change_marker(self) -> Hashable:
        """Differs once the file was replaced, so that a disabled or destroyed key stops working at once."""
        self._load()
        return self._seen

    # The file

    def _current(self, name: str) -> KeyVersion:
        return self._key(name, self._load()).current

    def _key(self, name: str, keys: dict[str, MasterKey]) -> MasterKey:
        if (key := keys.get(name)) is None:
            raise KmsAccessError.because(Problem.UNKNOWN, name, KMS)
        return key

    def _set_state(self, name: str, version: int | None, state: KeyState) -> MasterKey:
        with self._changing() as keys:
            key = self._key(name, keys)
            if (
                version is not None
                and find(key, version).state is KeyState.DESTROYED
                and state is not KeyState.DESTROYED
            ):
                raise KmsAccessError.because(Problem.DESTROYED, name, KMS, detail=f"version {version}")

            def change(one: KeyVersion) -> KeyVersion:
                if version not in (None, one.version) or one.state is KeyState.DESTROYED:
                    return one
                return one.tombstone() if state is KeyState.DESTROYED else replace(one, state=state)

            keys[name] = replace(key, versions=tuple(map(change, key.versions)))
        return keys[name]

    def _load(self) -> dict[str, MasterKey]:
        with self._lock:
            marks: list[os.stat_result] = []
            try:
                # Asked for with every key: as long as nothing has changed, it is not opened.
                known = self._seen is not None
                if known and self._mark(os.stat(self._path), sealed=self._protection is not None) == self._seen:  # noqa: PTH116
                    return self._keys
                text = read_small(self._path, keyfile.MAX_KEYRING_BYTES, marks.append)
            except OSError as error:
                reason = error.strerror or type(error).__name__
                missing = isinstance(error, FileNotFoundError)
                raise KeyAccessError(
                    f"the keyring {self._path} can't be read: {reason}",
                    hint=Hint.CREATE_KEYRING if missing else "check the path and its owner",
                ) from None
            try:
                keys, protection = keyfile.load(text, self._secret(), self._protection, must_protect=self._must_protect)
                seen = self._mark(marks[0], sealed=protection is not None)
                keyfile.check_succession(self._keys, keys)
            except BloomsealError as error:
                error.at(file=str(self._path))
                raise
            self._keys, self._protection, self._seen = keys, protection, seen
            self._must_protect = protection is not None
            return self._keys

    def _mark(self, status: os.stat_result, *, sealed: bool) -> tuple[int, ...]:
        """What differs once the file has changed. Raises PolicyError: others than its owner can use it."""
        need_own(status, "the keyring", self._path, sealed=sealed)
        return identity(status)

    @contextlib.contextmanager
    def _changing(self, *, missing_ok: bool = False) -> Iterator[dict[str, MasterKey]]:
        """The keys, to be changed in place; on leaving, the file is replaced by one that holds them."""
        with self._lock:
            try:
                # A link is followed first: replacing it would leave the old keys where it pointed.
                folder, name = Folder.of(self._path)
                with folder, folder.locked(name):
                    self._seen = None
                    fresh = missing_ok and folder.stat(name) is None
                    keys, seen = {} if fresh else dict(self._load()), self._seen
                    if fresh and (secret := self._secret()):
                        self._protection = PassphraseKeys(secret)
                    yield keys
                    if self._protection is not None and not self._protection.is_strong and (secret := self._secret()):
                        self._protection = PassphraseKeys(secret)
                    # What somebody has put there since has no say in who may read this one.
                    with Replacement(folder.below(""), name, private=fresh) as new:
                        with open(new.fd, "wb", closefd=False) as file:
                            file.write(keyfile.dump(keys.values(), self._protection))
                        new.commit(alone=True, replaces=() if fresh else seen)
                    # What comes next is compared with what was just written: an older file put back undoes nothing
                    # here.
                    self._keys, self._seen = keys, None
            except TimeoutError:
                raise KeyAccessError(
                    f"the keyring {self._path} is being changed by another process", retryable=True, hint="try again"
                ) from None
            except OSError as error:
                raise KeyAccessError(f"the keyring {self._path} can't be written: {error.strerror}") from None

    def _secret(self) -> str | None:
        return self._passphrase or passphrase_of_environment()

    def __repr__(self) -> str:
        return f"<Keyring {str(self._path)!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_unpickled, (str(self._path), self._must_protect))


def _unpickled(path: str, must_protect: bool) -> Keyring:
    ring = Keyring.__new__(Keyring)
    ring._prepare(path, None, must_protect=must_protect)
    ring._load()
    return ring
