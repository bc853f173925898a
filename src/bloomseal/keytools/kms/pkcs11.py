"""``pkcs11:token=LABEL?module-path=/path/to/library.so`` (RFC 7512): AES keys in a hardware token, or in SoftHSM.

Needs ``bloomseal[pkcs11]``. The PIN comes from ``pin-source=file:/path`` in the URI's query, or from
``$BLOOMSEAL_PKCS11_PIN``; the library from ``module-path`` or ``$PKCS11_MODULE``. ``serial`` and ``slot-id`` choose a
token too.

Master key NAME is the token's AES key with the label ``NAME`` (version 1), and its versions are those labelled
``NAME:v2``, ``NAME:v3``, …: the highest wraps. A key wraps and unwraps by AES-GCM (CKM_AES_GCM, attributes CKA_ENCRYPT
and CKA_DECRYPT) where the token offers it, bound to name and version; else by AES key wrap (CKM_AES_KEY_WRAP,
attributes CKA_WRAP and CKA_UNWRAP).
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import unquote

from ...core.errors import UsageError
from ...core.forked import renewed_in_child
from ...core.keys.access import KmsAccessError, Problem, shown
from ..kms_protocols import KeyState, MasterKeyFacts, MasterVersion, VersionFacts
from .common import Diagnosis, VendorKms, pack, unpack, vendor_library
from .signing import public_key_in, signature_in

PIN_VARIABLE: Final = "BLOOMSEAL_PKCS11_PIN"
MODULE_VARIABLE: Final = "PKCS11_MODULE"
_NONCE_BYTES: Final = 12
_GCM, _KEY_WRAP = "AES_GCM", "AES_KEY_WRAP"
_VERSIONED: Final = re.compile(r"(.*):v([1-9][0-9]{0,8})", re.DOTALL)
_PROBLEMS: Final = {
    "NoSuchKey": Problem.UNKNOWN,
    "AnotherUserAlreadyLoggedIn": Problem.DENIED,
    "PinExpired": Problem.DENIED,
    "PinIncorrect": Problem.DENIED,
    "PinInvalid": Problem.DENIED,
    "PinLenRange": Problem.DENIED,
    "PinLocked": Problem.DENIED,
    "UserNotLoggedIn": Problem.DENIED,
    "UserPinNotInitialized": Problem.DENIED,
    "DeviceError": Problem.UNREACHABLE,
    "DeviceRemoved": Problem.UNREACHABLE,
    "NoSuchToken": Problem.UNREACHABLE,
    "SessionClosed": Problem.UNREACHABLE,
    "SessionCount": Problem.UNREACHABLE,
    "SessionHandleInvalid": Problem.UNREACHABLE,
    "TokenNotPresent": Problem.UNREACHABLE,
}
_STUCK: Final = frozenset({"OperationActive", "OperationNotInitialized", "UserNotLoggedIn"})
"""After these the next call starts with a fresh session. Others leave it as it is: closing it logs out the whole
process.
"""

T = TypeVar("T")


class Pkcs11Kms(VendorKms):
    """One token. Its sessions bear one caller at a time, so calls take turns.

    Args:
        module: the token's library.
        token: its label; None if `serial` or `slot` says which one.
        serial, slot: its serial number, its slot's number.
        pin: the user's PIN, asked for at each login; the default is ``$BLOOMSEAL_PKCS11_PIN``.
    """

    kms_name = "the token"

    def __init__(
        self,
        module: str,
        token: str | None = None,
        *,
        serial: str | None = None,
        slot: int | None = None,
        pin: Callable[[], str | None] = lambda: os.environ.get(PIN_VARIABLE),
    ) -> None:
        self._pkcs11 = vendor_library("pkcs11", "pkcs11")
        self._module, self._token, self._serial, self._slot, self._pin = module, token, serial, slot, pin
        self._mechanisms: Any = frozenset()
        self._renew()
        renewed_in_child(self)

    def _renew(self) -> None:
        self._lock = threading.Lock()
        self._session: Any = None

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        """`key_bytes` under the highest version."""

        def wrap() -> str:
            version, key = self._versions(master_key_identifier)[-1]
            mechanism = self._usable(key, master_key_identifier, version, "encrypt")
            if mechanism == _GCM:
                nonce = os.urandom(_NONCE_BYTES)
                sealed = nonce + key.encrypt(key_bytes, **self._gcm(nonce, master_key_identifier, version))
            else:
                inner = self._session.create_object(self._template(key_bytes))
                try:
                    sealed = key.wrap_key(inner, mechanism=self._pkcs11.Mechanism.AES_KEY_WRAP)
                finally:
                    inner.destroy()
            return pack(str(version), sealed, mechanism=mechanism)

        return self._call(wrap, master_key_identifier)

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        """What `wrap_key` was given."""
        number, sealed, fields = unpack(wrapped_key, master_key_identifier, self.kms_name)

        def unwrap() -> bytes:
            versions = {str(version): (version, key) for version, key in self._versions(master_key_identifier)}
            if number not in versions:
                detail = f"it has no version {shown(number)}"
                raise self._problem(Problem.UNKNOWN, master_key_identifier, detail)
            version, key = versions[number]
            if fields.get("mechanism") == _GCM and len(sealed) > _NONCE_BYTES:
                self._usable(key, master_key_identifier, version, "decrypt", _GCM)
                return bytes(
                    key.decrypt(
                        sealed[_NONCE_BYTES:], **self._gcm(sealed[:_NONCE_BYTES], master_key_identifier, version)
                    )
                )
            self._usable(key, master_key_identifier, version, "decrypt", _KEY_WRAP)
            names = self._pkcs11.Attribute
            inner = key.unwrap_key(
                self._pkcs11.ObjectClass.SECRET_KEY,
                self._pkcs11.KeyType.AES,
                sealed,
                mechanism=self._pkcs11.Mechanism.AES_KEY_WRAP,
                template={names.SENSITIVE: False, names.EXTRACTABLE: True, names.TOKEN: False},
            )
            try:
                return bytes(inner[names.VALUE])
            finally:
                inner.destroy()

        return self._call(unwrap, master_key_identifier)

    def describe(self, master_key_identifier: str, wrapped_key: str | None = None) -> MasterKeyFacts:  # noqa: ARG002
        """The versions in the token, all of AES keys. One ends as the next one starts, by CKA_START_DATE, where that is
        set. The key is disabled where the highest version's attributes forbid to decrypt.

        ``NAME:v2`` is a name of version 2 of NAME, and of a key of its own at the same time: the token has one object.
        """

        def told() -> MasterKeyFacts:
            versions = self._versions(master_key_identifier)
            highest, key = versions[-1]
            starts = [self._start(one) for _, one in versions]
            wraps = self._may(key, master_key_identifier, highest, "encrypt")
            opens = self._may(key, master_key_identifier, highest, "decrypt")
            twin = _VERSIONED.fullmatch(master_key_identifier)
            return MasterKeyFacts(
                master_key_identifier,
                str(highest),
                KeyState.ENABLED if opens else KeyState.DISABLED,
                starts[0],
                starts[-1] if len(starts) > 1 else None,
                tuple(
                    VersionFacts(
                        str(number),
                        wraps and number == highest,
                        # A day has no hours: by its end the next version was in use.
                        end + timedelta(days=1) if end else None,
                        created=start,
                        same_as=MasterVersion(twin[1], twin[2]) if twin and number == 1 else None,
                    )
                    for (number, _), start, end in zip(versions, starts, (*starts[1:], None), strict=True)
                ),
                authenticates_writers=True,
            )

        return self._call(told, master_key_identifier)

    def opened_by(self, wrapped_key: str, master_key_identifier: str) -> MasterVersion:
        """The version that it names, once its key in the token has opened it."""
        self.unwrap_key(wrapped_key, master_key_identifier)
        number = unpack(wrapped_key, master_key_identifier, self.kms_name)[0]
        return self.describe(master_key_identifier).identify(number)

    def public_key(self, key: str) -> bytes:
        """Of the key pair with this label, as SubjectPublicKeyInfo."""
        return self._call(lambda: public_key_in(self._session, self._pkcs11, key, self.kms_name), key)

    def sign(self, message: bytes, key: str) -> bytes:
        """By the private key with this label (CKA_SIGN): CKM_EDDSA, or CKM_ECDSA."""
        return self._call(lambda: signature_in(self._session, self._pkcs11, message, key, self.kms_name), key)

    # All below run under the lock.

    def _versions(self, master_key: str) -> list[tuple[int, Any]]:
        names, found = self._pkcs11.Attribute, dict[int, Any]()
        for key in self._session.get_objects({names.CLASS: self._pkcs11.ObjectClass.SECRET_KEY}):
            label = str(key.label)
            match = _VERSIONED.fullmatch(label)
            number = 1 if label == master_key else int(match[2]) if match and match[1] == master_key else None
            if number in found:
                # Which of them wraps is chance, and so would be what opens again.
                raise KmsAccessError.because(
                    Problem.INVALID,
                    master_key,
                    self.kms_name,
                    detail=f"two keys of the token are labelled {shown(label)}",
                    hint="another label for one of them",
                )
            if number is not None:
                found[number] = key
        if not found:
            raise self._problem(Problem.UNKNOWN, master_key)
        return sorted(found.items())

    def _usable(self, key: Any, master_key: str, version: int, direction: str, only: str | None = None) -> str:
        """The mechanism to use, by what the token offers and the key's attributes allow."""
        names = self._pkcs11.Attribute
        gcm, wrap = (names.ENCRYPT, names.WRAP) if direction == "encrypt" else (names.DECRYPT, names.UNWRAP)
        for mechanism, right in ((_GCM, gcm), (_KEY_WRAP, wrap)):
            offered = self._pkcs11.Mechanism[mechanism] in self._mechanisms
            if offered and only in (None, mechanism) and self._has(key, right):
                return mechanism
        detail = f"the attributes of version {version} forbid to {direction}"
        raise self._problem(Problem.DISABLED, master_key, detail)

    def _may(self, key: Any, master_key: str, version: int, direction: str) -> bool:
        try:
            return bool(self._usable(key, master_key, version, direction))
        except KmsAccessError:
            return False

    def _has(self, key: Any, right: Any) -> bool:
        try:
            return bool(key[right])
        except self._pkcs11.PKCS11Error:
            return False

    def _start(self, key: Any) -> datetime | None:
        try:
            day = key[self._pkcs11.Attribute.START_DATE]
        except (self._pkcs11.PKCS11Error, ValueError, TypeError):
            return None
        return datetime.combine(day, time(), UTC) if day else None

    def _gcm(self, nonce: bytes, master_key: str, version: int) -> dict[str, Any]:
        aad = json.dumps(["token wrap", master_key, version]).encode()
        return {
            "mechanism": self._pkcs11.Mechanism.AES_GCM,
            "mechanism_param": vendor_library("pkcs11.mechanisms", "pkcs11").GCMParams(nonce, aad, 128),
        }

    def _template(self, key_bytes: bytes) -> dict[Any, Any]:
        names = self._pkcs11.Attribute
        return {
            names.CLASS: self._pkcs11.ObjectClass.SECRET_KEY,
            names.KEY_TYPE: self._pkcs11.KeyType.AES,
            names.TOKEN: False,
            names.EXTRACTABLE: True,
            names.VALUE: key_bytes,
        }

    def _call(self, call: Callable[[], T], master_key: str) -> T:
        def in_session() -> T:
            with self._lock:
                try:
                    if self._session is None:
                        self._log_in()
                    return call()
                except KmsAccessError:
                    raise
                except Exception as error:
                    if self._diagnose(error)[0] is Problem.UNREACHABLE or type(error).__name__ in _STUCK:
                        self._log_out()
                    raise

        return self._answered(in_session, master_key)

    def _log_in(self) -> None:
        library = self._pkcs11.lib(self._module)
        if self._slot is not None:
            token = next(
                (slot.get_token() for slot in library.get_slots(token_present=True) if slot.slot_id == self._slot), None
            )
            if token is None:
                raise self._pkcs11.NoSuchToken
        else:
            serial = self._serial.encode() if self._serial else None
            token = library.get_token(token_label=self._token, token_serial=serial)
        try:
            self._session = token.open(user_pin=self._pin())
        except self._pkcs11.UserAlreadyLoggedIn:
            # A login counts for the whole process: someone else in it has the token in use.
            self._session = token.open()
        self._mechanisms = frozenset(token.slot.get_mechanisms())

    def _log_out(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            try:
                session.close()
            except Exception:
                return

    def _diagnose(self, error: Exception) -> Diagnosis:
        name = type(error).__name__
        if name in ("PKCS11Error", "RuntimeError"):
            return Problem.UNREACHABLE, "its library can't be used"
        return _PROBLEMS.get(name, Problem.INVALID), name

    def __repr__(self) -> str:
        return f"<Pkcs11Kms token {self._token or self._serial or self._slot}>"


def from_uri(uri: str) -> Pkcs11Kms:
    """The client for a token.

    Raises:
        UsageError: no such URI, attributes that are not understood, or no library.
        MissingDependencyError: python-pkcs11 isn't installed.
    """
    path, _, query = uri.partition(":")[2].partition("?")
    chosen, asked = _attributes(path, ";"), _attributes(query, "&")
    if set(chosen) - {"token", "serial", "slot-id"} or set(asked) - {"module-path", "pin-source"} or not chosen:
        raise UsageError(
            f"{shown(uri)} is no usable PKCS #11 URI", hint="pkcs11:token=LABEL?module-path=/path/to/library.so"
        )
    module = asked.get("module-path") or os.environ.get(MODULE_VARIABLE)
    if not module:
        raise UsageError("the token's library is not named", hint=f"?module-path=..., or {MODULE_VARIABLE}")
    slot = chosen.get("slot-id")
    if slot is not None and not (slot.isascii() and slot.isdigit()):
        raise UsageError("slot-id is a number")
    more = {"pin": _pin_from(asked["pin-source"])} if "pin-source" in asked else {}
    return Pkcs11Kms(
        module, chosen.get("token"), serial=chosen.get("serial"), slot=None if slot is None else int(slot), **more
    )


def _attributes(text: str, separator: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in text.split(separator) if part)
    return {name: unquote(value) for name, _, value in pairs}


def _pin_from(source: str) -> Callable[[], str | None]:
    path = Path(source.removeprefix("file:").removeprefix("//"))

    def read() -> str | None:
        return path.read_text().rstrip("\r\n")

    return read
