"""The manifest: a digest of every member, and signatures over its own bytes. `verify` needs nothing but bundle and
public key.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Final

from ..._version import __version__
from ...core.errors import BloomsealError, IntegrityError, UsageError
from ...keytools.signatures.keys import PublicKey, Signer
from ...notebook import ShownInNotebooks
from ...storage.atomic import identity_at
from .archive import MANIFEST, SIGNATURES, Member, Stretch, digest_of, opened, write
from .signing import has_form

_FORMAT: Final = "bloomseal evidence manifest"
_VERSION: Final = 1
_SIGNATURE: Final = re.compile(re.escape(SIGNATURES) + r"([0-9a-f]{64})\.sig")
_MOST_SIGNATURES: Final = 16
_LONGEST_SIGNATURE: Final = 1024
_LONGEST_MANIFEST: Final = 4 << 20
"""4,096 members of 120 bytes of name, length and digest each are a quarter of it."""
_LONGEST_HELD: Final = 256 << 20


@dataclass
class Verification(ShownInNotebooks):
    """Whether a bundle is as its signers left it.

    Attributes:
        bundle: the file.
        ok: every given key has signed the manifest, at least as many keys as the bundle asks for, and all members are
            those of the manifest.
        problems: why not.
        made: the moment that the bundle was made, by its own account; None where nothing vouches for it.
        tool: the program that made it.
        signed_by: fingerprints of given keys whose signature holds.
        unchecked: fingerprints in the names of other signatures; nobody has checked those.
        signatures_required: how many keys have to sign.
        members: name → bytes; empty unless `ok`.
    """

    bundle: str
    ok: bool = False
    problems: list[str] = field(default_factory=list)
    made: str | None = None
    tool: str | None = None
    signed_by: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    signatures_required: int = 1
    members: dict[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def sealed(
    members: Mapping[str, Member], signers: Sequence[Signer] = (), *, made: datetime, required: int = 1
) -> dict[str, Member]:
    """The members with a manifest, and with a signature by each signer.

    Args:
        made: the moment that the bundle speaks of.
        required: how many different keys have to sign before `verify` says yes.

    Raises:
        IntegrityError: a signer's signature does not hold under its own public key.
    """
    manifest = {
        "format": _FORMAT,
        "format_version": _VERSION,
        "tool": f"bloomseal {__version__}",
        "made": made.isoformat(timespec="seconds"),
        "signatures_required": required,
        "members": {
            name: {"bytes": len(member), "sha256": digest_of(member)} for name, member in sorted(members.items())
        },
    }
    told = _json(manifest)
    whole: dict[str, Member] = {**members, MANIFEST: told}
    for signer in signers:
        whole |= _signature(told, PublicKey(signer.public_key()), signer.sign(told))
    return whole


def add_signature(path: str | os.PathLike[str], signer: Signer) -> Verification:
    """Sign a bundle that is there already: the second of two persons, for instance, who keeps an own key.

    Raises:
        FormatError, IntegrityError: not a bundle, or its members are not those of the manifest. It stays as it is.
        BloomsealError: somebody else has signed it meanwhile; that signature stays.
    """
    seen = identity_at(os.fspath(path))
    with opened(path) as members:
        told = _manifest(members)
        _read(told, members)
        public = signer.public_key()
        whole: dict[str, Member] = {**members, **_signature(told, PublicKey(public), signer.sign(told))}
        write(path, whole, overwrite=True, replaces=seen)
    return verify(path, [public])


def verify(
    path: str | os.PathLike[str],
    public_keys: Sequence[str | os.PathLike[str] | bytes] | str | os.PathLike[str] | bytes,
) -> Verification:
    """Check a bundle. Whatever is wrong with it is an answer (`ok` is False), not an exception.

    Args:
        path: the bundle.
        public_keys: PEM files, or PEM or DER as bytes. Each of them must have signed.

    Raises:
        UsageError, KeyAccessError: no public key, or a file that can't be read.
    """
    return checked(path, public_keys)[0]


def checked(
    path: str | os.PathLike[str],
    public_keys: Sequence[str | os.PathLike[str] | bytes] | str | os.PathLike[str] | bytes,
    wanted: str | None = None,
) -> tuple[Verification, bytes | None]:
    """As `verify`, with the member that is wanted; None where there is none, or the bundle is not as its signers left
    it. Only that one is held in memory.
    """
    given = [public_keys] if isinstance(public_keys, str | bytes | os.PathLike) else list(public_keys)
    keys = {key.fingerprint: key for key in map(PublicKey, given)}
    if not keys:
        raise UsageError(
            "nobody can tell who made a bundle without a public key", hint="that of whoever signed it, in PEM"
        )
    result = Verification(os.fspath(path))
    content = None
    try:
        with opened(path) as members:
            told = _manifest(members)
            _check_signatures(told, members, keys, result)
            manifest = _read(told, members)
            if wanted is not None and wanted in manifest["members"]:
                content = members[wanted].held(_LONGEST_HELD)
            sizes = {name: len(members[name]) for name in manifest["members"]}
    except UsageError:
        raise
    except BloomsealError as error:
        result.problems.append(error.what)
        return result, None
    required = manifest["signatures_required"]
    result.made, result.tool, result.signatures_required = manifest["made"], manifest["tool"], required
    if len(result.signed_by) < required:
        result.problems.append(
            f"{required} keys have to sign, and {len(result.signed_by)} of the given ones did: give all public keys"
        )
        return result, None
    result.ok, result.members = True, sizes
    return result, content


def _manifest(members: Mapping[str, Stretch]) -> bytes:
    """Its bytes, read once: what was signed is what is believed."""
    if MANIFEST not in members:
        raise IntegrityError("the bundle has no manifest")
    return members[MANIFEST].held(_LONGEST_MANIFEST)


def _check_signatures(
    told: bytes, members: Mapping[str, Stretch], keys: Mapping[str, PublicKey], result: Verification
) -> None:
    """Before anything that the manifest says is believed.

    Raises:
        IntegrityError: a given key has not signed it.
    """
    stretches = {match[1]: members[name] for name in members if (match := _SIGNATURE.fullmatch(name))}
    if len(stretches) > _MOST_SIGNATURES or any(len(one) > _LONGEST_SIGNATURE for one in stretches.values()):
        raise IntegrityError("the bundle's signatures are none that are made here")
    found = {name: one.held(_LONGEST_SIGNATURE) for name, one in stretches.items()}
    if not all(map(has_form, found.values())):
        raise IntegrityError("the bundle's signatures are none that are made here")
    for fingerprint, key in keys.items():
        if fingerprint not in found:
            raise IntegrityError(f"the key {fingerprint[:16]} has not signed the bundle")
        if not key.verifies(found[fingerprint], told):
            raise IntegrityError(f"the signature of the key {fingerprint[:16]} does not hold: the manifest was altered")
        result.signed_by.append(fingerprint)
    result.unchecked = sorted(found.keys() - keys.keys())


def _read(told: bytes, members: Mapping[str, Stretch]) -> dict[str, Any]:
    """The manifest, its members compared with it.

    Raises:
        IntegrityError: a member is missing, extra or altered; or no manifest.
    """
    try:
        manifest = json.loads(told)
        if manifest["format"] != _FORMAT or manifest["format_version"] != _VERSION:
            raise IntegrityError("a manifest of another version of Bloomseal")
        listed = {str(name): (one["bytes"], one["sha256"]) for name, one in manifest["members"].items()}
        required = manifest["signatures_required"]
        if not isinstance(required, int) or not 1 <= required <= _MOST_SIGNATURES:
            raise IntegrityError("the manifest asks for a number of signatures that can't be")
        manifest["made"], manifest["tool"] = str(manifest["made"]), str(manifest["tool"])
    except BloomsealError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise IntegrityError("the bundle has no manifest that could be read") from None
    present = {name: data for name, data in members.items() if name != MANIFEST and not _SIGNATURE.fullmatch(name)}
    for what, names in (
        ("missing", listed.keys() - present.keys()),
        ("not in the manifest", present.keys() - listed.keys()),
    ):
        if names:
            raise IntegrityError(f"{', '.join(sorted(names)[:5])}: {what}")
    for name, data in present.items():
        if listed[name] != (len(data), digest_of(data)):
            raise IntegrityError(f"{name}: altered")
    read: dict[str, Any] = manifest
    return read


def _signature(manifest: bytes, key: PublicKey, signature: bytes) -> dict[str, bytes]:
    try:
        signature = key.in_one_form(signature)
    except ValueError:
        signature = b""
    if not key.verifies(signature, manifest):
        raise IntegrityError("the signature does not hold under the signer's own public key")
    return {f"{SIGNATURES}{key.fingerprint}.sig": signature}


def _json(told: Any) -> bytes:
    return json.dumps(told, indent=2, ensure_ascii=False, sort_keys=True).encode(errors="backslashreplace") + b"\n"
