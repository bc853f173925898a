"""Who wrote a file: a statement about its tail, signed, in a file of its own beside it.

The statement is never believed: whoever reads makes the one that he expects, of the tail that he parses and of where
*he* has the table, and compares bytes. The envelope is DSSE's (https://github.com/secure-systems-lab/dsse, version 1).
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

from ...core.errors import BloomsealError
from ...core.keys.material import parse_object
from ...core.limits import MAX_SIGNATURE_FILE_BYTES
from ...core.parquet.footer import Peek
from ...core.thrift import Struct
from .keys import PublicKey

PAYLOAD_TYPE: Final = "application/vnd.bloomseal.file+json"
_VERSION: Final = 1
_MOST_SIGNATURES: Final = 16
_FINGERPRINT: Final = re.compile("[0-9a-f]{64}")


class Statement(NamedTuple):
    """What is signed of a file.

    Attributes:
        table, path: which table's file it is, and where below the table's folder, with slashes.
        length: of the file, in bytes.
        tail_sha256: of all bytes from the FileCryptoMetaData, or the plaintext footer, to the end; hexadecimal.
        aad_file_unique, aad_prefix: as they stand in the tail, in hexadecimal; empty where they don't.
    """

    table: str
    path: str
    length: int
    tail_sha256: str
    aad_file_unique: str
    aad_prefix: str

    @classmethod
    def of(cls, seen: Peek, table: str, path: str) -> Statement:
        """That of a file with this end.

        Raises:
            UnsupportedError: an unknown algorithm.
        """
        inner, tail = Struct() if seen.algorithm is None else seen.inner()[1], seen.tail
        unique, prefix = inner.binary(2) or b"", inner.binary(1) or b""
        return cls(table, path, tail.offset + len(tail.data) + 8, tail.digest, unique.hex(), prefix.hex())

    def to_bytes(self) -> bytes:
        """Canonical JSON: sorted, no spaces, ASCII."""
        return _canonical({"version": _VERSION, **self._asdict()})


class SignatureFault(StrEnum):
    """Why nobody is believed to have written a file."""

    UNSIGNED = "unsigned"
    """There is no signature of this tail beside it."""
    UNKNOWN = "unknown signer"
    """A signature by none of the table's signers, or not by all keys of one."""
    WRONG = "wrong signature"
    """It does not verify, is of another file, or has another form."""
    UNSEEN = "not seen"
    """It could not be read, or nobody said where the table's folder is."""


class Authorship(NamedTuple):
    """Who signed a file, by his name among the table's signers; or why nobody is believed to have.

    Attributes:
        algorithms: of his keys, with commas.
        key_ids: his keys' fingerprints. Of an unknown signer those that the signature names, which is his word alone.
    """

    signer: str | None = None
    algorithms: str | None = None
    fault: SignatureFault | None = None
    why: str = ""
    key_ids: str | None = None

    @property
    def signature(self) -> str:
        """``signed``, or the fault."""
        return "signed" if self.fault is None else str(self.fault)


def judge(data: bytes | None, expected: Statement, signers: Mapping[str, Sequence[PublicKey]]) -> Authorship:
    """Who signed a file.

    Args:
        data: the envelope beside it; None where there is none.
        expected: made of the file's tail, and of where the caller has the table.
        signers: name → public keys, all of which must have signed.
    """
    if data is None:
        return Authorship(fault=SignatureFault.UNSIGNED, why="nobody signed the file")
    try:
        payload, given = _opened(data)
    except (BloomsealError, ValueError, KeyError, TypeError):
        return Authorship(fault=SignatureFault.WRONG, why="the signature beside the file is not of its form")
    message, wanted = pae(PAYLOAD_TYPE, payload), expected.to_bytes()
    known = False
    for name, keys in signers.items():
        signed = [key for key in keys if key.fingerprint in given]
        known = known or bool(signed)
        if len(signed) < len(keys) or not keys:
            continue
        if not all(key.verifies(given[key.fingerprint], message) for key in keys):
            return Authorship(fault=SignatureFault.WRONG, why=f"the signature of {name} does not verify")
        if payload != wanted:
            return Authorship(fault=SignatureFault.WRONG, why=f"what {name} signed is {_difference(payload, expected)}")
        algorithms, key_ids = (", ".join(getattr(key, fact) for key in keys) for fact in ("algorithm", "fingerprint"))
        return Authorship(name, algorithms, key_ids=key_ids)
    why = "not all keys of a signer have signed" if known else "none of the table's signers has signed the file"
    # Anybody can have written these. Whoever was dropped from the policy is known by his.
    named = ", ".join(sorted(one for one in given if _FINGERPRINT.fullmatch(one)))
    why += f" (the signature names the key {named})" if named else ""
    return Authorship(fault=SignatureFault.UNKNOWN, why=why, key_ids=named or None)


def envelope(payload: bytes, sign: Sequence[tuple[PublicKey, Callable[[bytes], bytes]]]) -> bytes:
    """A payload and its signatures.

    Args:
        sign: public keys, and what signs with their private ones, each signature in its one form.
    """
    message = pae(PAYLOAD_TYPE, payload)
    return _written(payload, {key.fingerprint: by(message) for key, by in sign})


def pae(payload_type: str, payload: bytes) -> bytes:
    """What is signed of a payload: DSSE's pre-authentication encoding."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def _opened(data: bytes) -> tuple[bytes, dict[str, bytes]]:
    """The payload, and the signatures by their keys' fingerprints. Raises for whatever has not the one form."""
    whole = parse_object(data, "a signature", MAX_SIGNATURE_FILE_BYTES)
    signatures = whole["signatures"]
    if whole["payloadType"] != PAYLOAD_TYPE or not 0 < len(signatures) <= _MOST_SIGNATURES:
        raise ValueError
    payload = base64.b64decode(whole["payload"], validate=True)
    given = {one["keyid"]: base64.b64decode(one["sig"], validate=True) for one in signatures}
    if data != _written(payload, given):
        # One form: no field more, none twice, no other spelling.
        raise ValueError
    return payload, given


def _written(payload: bytes, signatures: Mapping[str, bytes]) -> bytes:
    made = [{"keyid": keyid, "sig": base64.b64encode(sig).decode()} for keyid, sig in signatures.items()]
    return _canonical({"payload": base64.b64encode(payload).decode(), "payloadType": PAYLOAD_TYPE, "signatures": made})


def _difference(payload: bytes, expected: Statement) -> str:
    """In which respect an authentic statement is about something else."""
    try:
        said = json.loads(payload)
        other = [name for name, value in expected._asdict().items() if said.get(name) != value]
    except (ValueError, AttributeError):
        other = []
    for name, what in (("table", "a file of another table"), ("path", "a file of another place")):
        if name in other:
            return what
    return "another file"


def _canonical(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
