"""Recipients: public keys that new keys are sealed to, by writers who can't open what they write.

A recipient is one line of text: ``bsr1`` and base64url of kind, public key and checksum. What is sealed to recipients
is a text, too, which stands in key material where other KMS clients' wrapped keys do: ``bss1.`` and base64 of kind,
number, and for each recipient its id, encapsulated key and ciphertext.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ...core.errors import KeyAccessError, PolicyError
from ...core.keys.wrapping import unb64
from ..lines import as_line, from_line
from .hpke import KeyKind, agrees, seal_to

MAX_RECIPIENTS: Final = 16
_LINE: Final = "bsr1"
_COPY: Final = "copy the whole line that bloomseal keyring recipient prints"
_SEALED: Final = "bss1."
_KINDS: Final = {1: KeyKind.HPKE, 2: KeyKind.X25519}
_NUMBERS: Final = {kind: number for number, kind in _KINDS.items()}
_ID: Final = 8
_MAX_SEALED: Final = MAX_RECIPIENTS * 1300 * 4 // 3


@dataclass(frozen=True, slots=True)
class Recipient:
    """A public key that keys are sealed to.

    Attributes:
        kind: HPKE or X25519.
        public: the key as its kind encodes it.
    """

    kind: KeyKind
    public: bytes

    @classmethod
    def parse(cls, line: str) -> Recipient:
        """The recipient that a line names.

        Raises:
            KeyAccessError: no such line: another version or kind, altered, or cut off; or a key that nobody can have a
                private one for.
        """
        payload = from_line(_LINE, line.strip()) if isinstance(line, str) else None
        kind = _KINDS.get(payload[0]) if payload else None
        if payload and kind is not None and len(payload) == 1 + kind.public_length:
            if not agrees(payload):
                raise KeyAccessError("not a recipient: everybody could open what is sealed to this key", hint=_COPY)
            return cls(kind, payload[1:])
        raise KeyAccessError(
            f"not a recipient: a line of {_LINE}... that is altered, cut off or of another version",
            hint=_COPY,
        )

    @property
    def line(self) -> str:
        return as_line(_LINE, bytes([_NUMBERS[self.kind]]) + self.public)

    @property
    def id(self) -> str:
        """Says which key it is, in what is sealed to it, in audits and in messages."""
        digest = hashlib.sha256(b"bloomseal recipient id %d\x00" % _NUMBERS[self.kind] + self.public).digest()
        return digest[:_ID].hex()

    def __repr__(self) -> str:
        return f"<Recipient {self.id}, {self.kind.algorithm}>"


def recipients_of(lines: Iterable[str]) -> tuple[Recipient, ...]:
    """The recipients that several lines name.

    Raises:
        PolicyError: none or too many, one of them twice, or classical and post-quantum ones: what is sealed to both is
            as weak as the weaker.
        KeyAccessError: as `Recipient.parse`.
    """
    found = tuple(map(Recipient.parse, lines))
    if not 1 <= len(found) <= MAX_RECIPIENTS:
        raise PolicyError(f"{len(found)} recipients; a master key has 1 to {MAX_RECIPIENTS}")
    if len({one.id for one in found}) != len(found):
        raise PolicyError("a recipient is named twice")
    if len({one.kind for one in found}) != 1:
        raise PolicyError(
            "recipients of several kinds: what is sealed to all of them is as weak as X25519 alone",
            hint="keys of one kind: bloomseal keyring create --kind hpke",
        )
    return found


def seal_to_all(recipients: Sequence[Recipient], key: bytes, master_key: str) -> str:
    """`key` sealed to each recipient, for the use under this master key's name and no other.

    Raises:
        KeyAccessError: a public key that is none.
        UnsupportedError: no ML-KEM here.
    """
    kind = recipients[0].kind
    parts = [bytes([_NUMBERS[kind], len(recipients)])]
    for one in recipients:
        parts += [bytes.fromhex(one.id), seal_to(kind, one.public, key, binding(master_key))]
    return _SEALED + base64.b64encode(b"".join(parts)).decode("ascii")


def binding(master_key: str) -> bytes:
    """HPKE's info: what a key is sealed for. The name comes last, so that no two read alike."""
    return b"bloomseal key for recipients, version 1\x00" + master_key.encode()


def parse_sealed(text: str) -> tuple[KeyKind, dict[str, bytes]] | None:
    """The kind, and recipients' ids → what is sealed to each; None where the text is no such one.

    Raises:
        KeyAccessError: it is one, and broken.
    """
    if not isinstance(text, str) or not text.startswith(_SEALED):
        return None
    data = unb64(text.removeprefix(_SEALED)) if len(text) <= _MAX_SEALED else b""
    kind, number = (_KINDS.get(data[0]), data[1]) if len(data) > 2 else (None, 0)
    if kind is not None and 1 <= number <= MAX_RECIPIENTS and (len(data) - 2) % number == 0:
        size = (len(data) - 2) // number
        pieces = [data[at : at + size] for at in range(2, len(data), size)]
        found = {piece[:_ID].hex(): piece[_ID:] for piece in pieces}
        if len(found) == number and size - _ID - kind.overhead in (16, 24, 32):
            return kind, found
    raise KeyAccessError("a key sealed to recipients that is altered or cut off", unauthentic=True)


def version_name(recipients: Sequence[Recipient]) -> str:
    """What stands in the place of a version: kind and ids, in one order."""
    return _named(recipients[0].kind, (one.id for one in recipients))


def claimed_recipients(text: str) -> str | None:
    """As `version_name`, of whom a text is sealed to; None as `parse_sealed`. Raises KeyAccessError: broken."""
    parsed = parse_sealed(text)
    return None if parsed is None else _named(parsed[0], parsed[1])


def kind_of(version: str | None) -> KeyKind | None:
    """The kind of recipients that stand in the place of a version; None for a version."""
    word, colon, _ = (version or "").partition(":")
    return KeyKind(word) if colon and word in _NUMBERS else None


def _named(kind: KeyKind, ids: Iterable[str]) -> str:
    return f"{kind}:{'+'.join(sorted(ids))}"
