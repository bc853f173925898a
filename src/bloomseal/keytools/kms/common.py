"""What the clients share: loading a vendor's library, and turning its exceptions into ours without carrying
them along.
"""

from __future__ import annotations

import base64
import ipaddress
import json
import re
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, ClassVar, Final, NoReturn, TypeVar
from urllib.parse import parse_qsl, urlsplit

from ...core.errors import BloomsealError, KeyAccessError, MissingDependencyError, UsageError
from ...core.keys.access import KmsAccessError, Problem, shown
from ...core.keys.material import parse_object
from ...core.keys.wrapping import unb64
from ..recipients.recipient import claimed_recipients

T = TypeVar("T")
_VAULT: Final = re.compile(r"vault:v([0-9]{1,9}):")
Diagnosis = tuple[Problem, str | None]
"""What a vendor's exception means, and a detail for the message: an error code or a type's name, never free text."""


class VendorKms:
    """A client of a KMS, which fails with our errors only, and stays in the process that made it: it holds credentials.

    Attributes:
        kms_name: how messages call it.
        names: what a master key can be called there; None: whatever the service takes.
    """

    kms_name: str = "the KMS"
    names: ClassVar[re.Pattern[str] | None] = None

    def _diagnose(self, error: Exception) -> Diagnosis:
        """What an exception of the vendor's means."""
        return Problem.INVALID, type(error).__name__

    def _problem(self, problem: Problem, master_key: str, detail: str | None = None) -> KmsAccessError:
        return KmsAccessError.because(problem, master_key, self.kms_name, detail=detail)

    def _not_ours(self, master_key: str) -> KmsAccessError:
        return self._problem(Problem.INVALID, master_key, "not a key that it wrapped")

    def _answered(self, call: Callable[[], T], master_key: str) -> T:
        """What `call` returns; its failure as ours.

        Raises:
            KmsAccessError: by `_diagnose`, or no key can have the name. The vendor's exception is not part of its
                chain: requests, with their tokens and plaintexts, often are part of it.
        """
        if self.names is not None and not self.names.fullmatch(master_key):
            raise self._problem(Problem.UNKNOWN, master_key, "not a name that a key can have")
        try:
            return call()
        except BloomsealError:
            raise
        except Exception as error:
            problem, detail = self._diagnose(error)
        raise self._problem(problem, master_key, detail)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a KMS client is never pickled; hand its URI over instead")


def vendor_library(module: str, extra: str) -> Any:
    """The vendor's library.

    Raises:
        MissingDependencyError: it isn't installed.
    """
    try:
        return import_module(module)
    except ImportError:
        pass
    raise MissingDependencyError(f"this KMS needs the library {module}", hint=f"pip install 'bloomseal[{extra}]'")


def is_here(url: str, *, allow_http: bool = False) -> bool:
    """Whether the KMS at `url` is on this very machine. Then no proxy belongs in between, whatever the environment
    says: it would see tokens and data keys, which need no TLS on the way to a loopback address.

    Raises:
        UsageError: neither http nor https; or plain HTTP to another machine, unless `allow_http`.
    """
    try:
        parts = urlsplit(url)
        scheme, host = parts.scheme, parts.hostname or ""
    except ValueError:
        scheme, host = "", ""
    # A backslash ends the host for urllib3, and not for urlsplit: the two would mean different machines.
    if scheme not in ("http", "https") or not host or "\\" in url or "@" in parts.netloc:
        raise UsageError("a KMS's address begins with https://, and names a host")
    try:
        here = ipaddress.ip_address(host).is_loopback
    except ValueError:
        here = host == "localhost"
    if scheme == "http" and not here and not allow_http:
        raise UsageError(
            "plain HTTP would send the token and the keys in clear", hint="https; allow_http=true if that is meant"
        )
    return here


def address_in(uri: str, what: str, hint: str, *options: str) -> tuple[str, dict[str, str]]:
    """The address ``https://HOST[:PORT]/PATH`` in a KMS URI, or ``http://`` where it says ``plain_http=true``; and what
    its query says.

    Raises:
        UsageError: no host, a user, or other options than these, ``plain_http`` and ``allow_http``.
    """
    parts = urlsplit(uri)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    if not parts.hostname or set(query) - {"allow_http", "plain_http", *options} or parts.username:
        raise UsageError(f"{shown(uri)} is no {what}", hint=hint)
    scheme = "http" if query.get("plain_http") == "true" else "https"
    return f"{scheme}://{parts.netloc}{parts.path.rstrip('/')}", query


def by_status(status: int) -> Problem:
    """The problem that an HTTP status stands for."""
    if status in (401, 403):
        return Problem.DENIED
    if status == 404:
        return Problem.UNKNOWN
    if status == 429:
        return Problem.THROTTLED
    return Problem.UNREACHABLE if status >= 500 or status == 408 else Problem.INVALID


def by_type(error: Exception, problems: Mapping[str, Problem]) -> Diagnosis | None:
    """The problem of the first of an exception's types that has one."""
    names = (base.__name__ for base in type(error).__mro__)
    return next(((problems[name], type(error).__name__) for name in names if name in problems), None)


def pack(version: str, wrapped: bytes, **more: str) -> str:
    """A wrapped key along with the version that wrapped it."""
    fields = {"masterKeyVersion": version, **more, "encryptedKey": base64.b64encode(wrapped).decode("ascii")}
    return json.dumps(fields, separators=(",", ":"))


def unpack(wrapped_key: str, master_key: str, kms: str) -> tuple[str, bytes, dict[str, Any]]:
    """Version, wrapped key, all fields.

    Raises:
        KmsAccessError: not of `pack`'s making.
    """
    try:
        fields = parse_object(wrapped_key, "wrapped key")
    except KeyAccessError:
        fields = {}
    version, wrapped = fields.get("masterKeyVersion"), unb64(fields.get("encryptedKey"))
    if not isinstance(version, str) or not wrapped:
        raise KmsAccessError.because(Problem.INVALID, master_key, kms, detail="not a key that it wrapped")
    return version, wrapped, fields


def claimed_version(wrapped_key: str) -> str | None:
    """The master key's version that a wrapped key names, as `pack` writes it, Vault, or parquet-java; its
    recipients; None where it names none. It is a claim: `DescribingKms.opened_by` knows.
    """
    if (match := _VAULT.match(wrapped_key)) is not None:
        found: Any = match[1]
    else:
        try:
            if (recipients := claimed_recipients(wrapped_key)) is not None:
                return recipients
            found = parse_object(wrapped_key, "wrapped key").get("masterKeyVersion")
        except KeyAccessError:
            return None
    # parquet-java's word for a KMS that does not count versions
    if not isinstance(found, str) or found == "NO_VERSION":
        return None
    return str(int(found)) if found.isascii() and found.isdigit() and len(found) < 10 else found
