"""The keyring file: JSON text ⇄ master keys. No locking and no disk here.

Without a passphrase the key bytes stand in the file as base64, and its mode (0600) is what protects them. With one, two
keys are derived by scrypt: each version's bytes are sealed with AES-GCM under the first, bound to the key's name and
version, and the whole set is authenticated with HMAC-SHA256 under the second, so that no entry can be exchanged,
dropped or re-enabled by whoever can write the file. Putting back an older file as a whole can't be noticed from inside
it; `check_succession` notices it from what a running process has seen.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from ...core.encryption import SecretKey
from ...core.errors import Hint, KeyAccessError, UnsupportedError, UsageError
from ...core.keys.access import shown
from ...core.keys.material import parse_object
from ...core.keys.wrapping import unb64
from ..kms_protocols import KeyState
from ..recipients.hpke import KeyKind, public_bytes
from ..recipients.recipient import Recipient

MAX_KEYRING_BYTES: Final = 16 * 1024 * 1024
_FORMAT: Final = "bloomseal keyring"
_SCRYPT_N: Final = 1 << 16
# A file that asks for more would be a memory bomb, one that asks for less a way to have weakly protected keys written.
_SCRYPT_N_ALLOWED: Final = frozenset(1 << bits for bits in range(14, 21))
_SCRYPT_R: Final = 8
_SALT_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class KeyVersion:
    """One version of a master key. `key` is None once it is destroyed: the tombstone stays, the bytes are gone. Of a
    pair it is the private key's seed, and its tombstone has the id of the public half, by which what was sealed to it
    is known: `former_id`.
    """

    version: int
    bits: int
    created: datetime
    state: KeyState
    key: SecretKey | None = field(compare=False)
    kind: KeyKind = KeyKind.AES
    former_id: str | None = None

    @classmethod
    def fresh(cls, number: int, bits: int, kind: KeyKind = KeyKind.AES) -> Self:
        """A new one. Raises UsageError: no such length."""
        if not kind.symmetric and bits != 256:
            raise UsageError(f"keys of kind {kind} have one length", hint="without bits")
        # Not marked as generated: it will come again from the file, and its seals must be counted across both objects.
        key = SecretKey(SecretKey.generate(bits).reveal())
        return cls(number, bits, datetime.now(UTC).replace(microsecond=0), KeyState.ENABLED, key, kind)

    @property
    def recipient(self) -> Recipient | None:
        """The public half, of a pair that keys are sealed to. Raises UnsupportedError: no ML-KEM here."""
        if self.key is None or self.kind in (KeyKind.AES, KeyKind.ED25519):
            return None
        return Recipient(self.kind, public_bytes(self.kind, self.key))

    @property
    def recipient_id(self) -> str | None:
        """The id of `recipient`, after destruction too. Raises UnsupportedError: as there."""
        return self.former_id if (found := self.recipient) is None else found.id

    def tombstone(self) -> Self:
        """What stays of it."""
        former_id = self.former_id
        with contextlib.suppress(UnsupportedError):
            former_id = self.recipient_id
        return replace(self, state=KeyState.DESTROYED, key=None, former_id=former_id)


@dataclass(frozen=True, slots=True)
class MasterKey:
    """A named master key; versions count from 1, the last one wraps."""

    name: str
    versions: tuple[KeyVersion, ...]

    @property
    def current(self) -> KeyVersion:
        return self.versions[-1]

    @property
    def created(self) -> datetime:
        return self.versions[0].created

    @property
    def rotated(self) -> datetime | None:
        return self.current.created if len(self.versions) > 1 else None

    @property
    def state(self) -> KeyState:
        """The current version's state: what a writer meets."""
        return self.current.state


class PassphraseKeys:
    """The two keys that a passphrase gives for one salt."""

    __slots__ = ("_gcm", "_mac", "n", "salt")

    def __init__(self, passphrase: str, salt: bytes | None = None, n: int = _SCRYPT_N) -> None:
        self.salt = os.urandom(_SALT_BYTES) if salt is None else salt
        self.n = n
        try:
            secret = passphrase.encode()
        except UnicodeEncodeError:
            secret = b""
        if not secret:
            # Raised out here: the other error holds the passphrase. Bytes in the environment that are not UTF-8 come
            # so.
            raise KeyAccessError("the keyring's passphrase is not text that UTF-8 can encode")
        derived = Scrypt(salt=self.salt, length=64, n=n, r=_SCRYPT_R, p=1).derive(secret)
        self._gcm = AESGCM(derived[:32])
        self._mac = derived[32:]

    @property
    def is_strong(self) -> bool:
        """Its cost is at least the one that fresh keyrings get."""
        return self.n >= _SCRYPT_N

    def matches(self, header: dict[str, Any]) -> bool:
        return header == self.header()

    def header(self) -> dict[str, Any]:
        return {"kdf": "scrypt", "n": self.n, "p": 1, "r": _SCRYPT_R, "salt": _b64(self.salt)}

    def seal(self, key: SecretKey, place: bytes) -> bytes:
        nonce = os.urandom(12)
        return nonce + self._gcm.encrypt(nonce, key.reveal(), place)

    def open(self, sealed: bytes, place: bytes) -> SecretKey:
        try:
            return SecretKey(self._gcm.decrypt(sealed[:12], sealed[12:], place))
        except (InvalidTag, ValueError):
            pass
        raise _altered()

    def authenticate(self, document: dict[str, Any]) -> str:
        text = json.dumps(document, sort_keys=True, separators=(",", ":"))
        return hmac.new(self._mac, text.encode(), hashlib.sha256).hexdigest()

    @classmethod
    def for_header(cls, header: object, passphrase: str, known: PassphraseKeys | None = None) -> PassphraseKeys:
        """The protection that a file's header describes; `known` is used again where it fits (scrypt is slow on
        purpose).

        Raises:
            KeyAccessError: parameters outside the allowed ones, or cheaper than those of `known`.
        """
        if not isinstance(header, dict):
            raise _broken("its protection is not an object")
        if known is not None and known.matches(header):
            return known
        n, salt = header.get("n"), unb64(header.get("salt"))
        if (
            header.get("kdf") != "scrypt"
            or header.get("r") != _SCRYPT_R
            or header.get("p") != 1
            or len(salt) != _SALT_BYTES
        ):
            raise _broken("unknown protection")
        if type(n) is not int or n not in _SCRYPT_N_ALLOWED:
            raise _broken("scrypt's cost is outside 2^14 to 2^20")
        if known is not None and n < known.n:
            raise _went_back("scrypt's cost is lower than before")
        return cls(passphrase, salt, n)


def dump(keys: Iterable[MasterKey], protection: PassphraseKeys | None) -> bytes:
    """The file's bytes."""

    def entry(name: str, version: KeyVersion) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "version": version.version,
            "bits": version.bits,
            "created": version.created.isoformat(timespec="seconds"),
            "state": version.state.value,
        }
        if not version.kind.symmetric:
            fields["kind"] = version.kind.value
        if version.former_id is not None:
            fields["recipient"] = version.former_id
        if version.key is not None:
            place = _place(name, version.version, version.kind)
            fields["key"] = _b64(version.key.reveal() if protection is None else protection.seal(version.key, place))
        return fields

    keys = tuple(keys)
    # A program that knows no pairs of keys would take the seed for an AES key: it is to refuse the file.
    paired = any(not version.kind.symmetric for key in keys for version in key.versions)
    document: dict[str, Any] = {
        "format": _FORMAT,
        "formatVersion": 2 if paired else 1,
        "protection": None if protection is None else protection.header(),
        "keys": {key.name: [entry(key.name, version) for version in key.versions] for key in keys},
    }
    if protection is not None:
        document["authentication"] = protection.authenticate(document)
    return json.dumps(document, indent=1).encode() + b"\n"


def load(
    text: bytes, passphrase: str | None, known: PassphraseKeys | None = None, *, must_protect: bool = False
) -> tuple[dict[str, MasterKey], PassphraseKeys | None]:
    """The file's master keys and its protection.

    Args:
        passphrase: None where none was given.
        known: the protection that the file had when it was read before.
        must_protect: the caller knows of a passphrase, whether or not it is at hand.

    Raises:
        KeyAccessError: not a keyring, no or a wrong passphrase, no protection where a passphrase was given or `known`,
            or altered contents.
    """
    document = parse_object(text, "keyring", MAX_KEYRING_BYTES)
    if document.get("format") != _FORMAT or document.get("formatVersion") not in (1, 2):
        raise _broken("not a keyring of format version 1 or 2")
    protection = None
    header = document.get("protection")
    # Whoever can write the file could put one without protection in its place: every later key would be stored in
    # clear.
    if header is None and (passphrase or known is not None or must_protect):
        raise KeyAccessError(
            "a passphrase is expected, and the keyring has no protection; another file may stand in its place",
            hint="if it never had one, open it without the passphrase and give it one: bloomseal keyring passphrase",
        )
    if header is not None:
        if not passphrase:
            raise KeyAccessError(
                "the keyring is protected by a passphrase",
                hint=Hint.OPEN_KEYRING,
            )
        protection = PassphraseKeys.for_header(header, passphrase, known)
        claimed = document.pop("authentication", None)
        if not isinstance(claimed, str) or not hmac.compare_digest(
            claimed.encode(), protection.authenticate(document).encode()
        ):
            raise _altered()
    entries = document.get("keys")
    if not isinstance(entries, dict):
        raise _broken("no keys")
    return {name: _master_key(name, versions, protection) for name, versions in entries.items()}, protection


def check_succession(before: Mapping[str, MasterKey], after: Mapping[str, MasterKey]) -> None:
    """Refuse a keyring that is older than one that this process has read from the same file.

    Keys and versions are only ever added, and what is destroyed stays so: anything else is an old copy put back.

    Raises:
        KeyAccessError: a key or a version is gone, or a destroyed version is back.
    """
    for name, old in before.items():
        new = after.get(name)
        if new is None or len(new.versions) < len(old.versions):
            raise _went_back(f"key {shown(name)} has lost versions")
        for was, now in zip(old.versions, new.versions, strict=False):
            if was.state is KeyState.DESTROYED and now.state is not KeyState.DESTROYED:
                raise _went_back(f"version {was.version} of key {shown(name)} was destroyed, and is back")


def _master_key(name: str, entries: object, protection: PassphraseKeys | None) -> MasterKey:
    if not isinstance(entries, list) or not entries:
        raise _broken(f"key {shown(name)} has no versions")
    versions = []
    for number, entry in enumerate(entries, 1):
        versions.append(parsed := _version(name, entry, protection))
        if parsed.version != number:
            raise _broken(f"the versions of key {shown(name)} do not count from 1")
    return MasterKey(name, tuple(versions))


def _version(name: str, entry: object, protection: PassphraseKeys | None) -> KeyVersion:
    if not isinstance(entry, dict):
        raise _broken(f"a version of key {shown(name)} is not an object")
    try:
        version, bits, state = int(entry["version"]), int(entry["bits"]), KeyState(entry["state"])
        created, kind = datetime.fromisoformat(entry["created"]).astimezone(UTC), KeyKind(entry.get("kind", "aes"))
    except (KeyError, ValueError, TypeError, OverflowError):
        raise _broken(f"a version of key {shown(name)} lacks its fields") from None
    if state is KeyState.DESTROYED:
        former_id = entry.get("recipient")
        return KeyVersion(version, bits, created, state, None, kind, former_id if isinstance(former_id, str) else None)
    stored = unb64(entry.get("key"))
    key = SecretKey(stored) if protection is None else protection.open(stored, _place(name, version, kind))
    if key.bits != bits:
        raise _broken(f"key {shown(name)} version {version} is not of {bits} bits")
    if not kind.symmetric and bits != 256:
        raise _broken(f"key {shown(name)} version {version} is no pair")
    return KeyVersion(version, bits, created, state, key, kind)


def _place(name: str, version: int, kind: KeyKind) -> bytes:
    return json.dumps(["keyring entry", name, version, *(() if kind.symmetric else (kind.value,))]).encode()


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _broken(what: str) -> KeyAccessError:
    return KeyAccessError(f"not a usable keyring: {what}")


def _went_back(what: str) -> KeyAccessError:
    return KeyAccessError(
        f"an older or weaker keyring was put in the place of the one in use: {what}",
        hint="if that was meant, start this program again",
    )


def _altered() -> KeyAccessError:
    return KeyAccessError(
        "the passphrase does not open the keyring, or the file was altered", hint="check the passphrase"
    )
