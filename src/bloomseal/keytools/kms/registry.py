"""KMS URIs → clients. Schemes come from Bloomseal, from installed packages (entry points), and from the caller."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, quote, urlsplit

from ...core.errors import BloomsealError, UsageError
from ...core.forked import in_child, new_recursive_lock
from ...core.keys.access import raised_by, shown
from ...core.keys.protocols import KmsClient
from ...core.text import articled

ClientFactory = Callable[[str], KmsClient]
"""A KMS URI → a client. Credentials come from the environment or the vendor's own chain, never from the URI."""

ENTRY_POINTS: Final = "bloomseal.kms"
"""The entry-point group: name = scheme, object = a `ClientFactory`."""

_BUILT_IN: Final = {
    "aws-kms": ".aws",
    "azure-kv": ".azure",
    "gcp-kms": ".gcp",
    "hadoop-kms": ".hadoop",
    "keyring": "..keyring.uri",
    "pkcs11": ".pkcs11",
    "recipients": "..recipients_kms",
    "vault": ".vault",
}
_SECRET_PARTS: Final = frozenset({"password", "passphrase", "token", "secret", "pin", "pin-value"})
_KEPT: Final = 64

_lock = new_recursive_lock()
_registered: dict[str, ClientFactory] = {}
_clients: OrderedDict[str, KmsClient] = OrderedDict()
in_child(_clients.clear)  # connections are the parent's


def register_kms(scheme: str, factory: ClientFactory) -> None:
    """Let URIs of `scheme` be served by `factory`, in this process; it wins over Bloomseal's own and over entry points.

    Raises:
        UsageError: no URI scheme (RFC 3986, section 3.1).
    """
    if not (scheme.isascii() and scheme[:1].isalpha() and all(c.isalnum() or c in "+-." for c in scheme)):
        raise UsageError(f"{shown(scheme)} is no URI scheme")
    with _lock:
        _registered[scheme.lower()] = factory
        _clients.clear()


def schemes() -> tuple[str, ...]:
    """The schemes that `client_for` knows, sorted."""
    return tuple(
        sorted({*_BUILT_IN, *_registered, *(point.name.lower() for point in entry_points(group=ENTRY_POINTS))})
    )


def client_for(uri: str) -> KmsClient:
    """The client for a KMS URI; the same one for the same URI, so that whoever caches by client caches by KMS.

    Raises:
        UsageError: an unknown scheme, an unusable URI, or one that holds a secret.
        MissingDependencyError: the scheme's library is not installed; the message has the ``pip install`` line.
        BloomsealError: whatever the client raises when it is made.
    """
    _refuse_secrets(uri)
    uri = absolute(uri)
    with _lock:
        if (client := _clients.get(uri)) is None:
            client = _clients[uri] = _made(uri)
            if len(_clients) > _KEPT:
                _clients.popitem(last=False)
        _clients.move_to_end(uri)
        return client


def absolute(uri: str, folder: str | None = None) -> str:
    """The URI of a relative keyring from the root: another working folder, or another variable, is another keyring.

    Args:
        folder: from which it counts; None: the working folder. It says nothing of ``keyring:`` alone.
    """
    scheme, _, rest = uri.partition(":")
    if scheme.lower() != "keyring" or "keyring" in _registered or rest.startswith("/") or any(c in rest for c in "?#"):
        return uri
    if not rest and folder is not None:
        return uri
    if not rest:
        rest = quote(os.environ.get("BLOOMSEAL_KEYRING", ""))
    if not rest or rest.startswith(("/", "~")):
        return f"keyring:{rest}"
    try:
        return f"keyring://{quote(folder or os.getcwd())}/{rest}"  # noqa: PTH109
    except OSError:
        raise UsageError("a relative keyring, and the working folder is gone", hint="keyring:///path") from None


def check_uri(uri: str) -> None:
    """Refuse a KMS URI that nothing here could serve, without going to the KMS, which may be out of reach from here.

    Raises:
        UsageError: an unknown scheme, or a secret in it.
    """
    _refuse_secrets(uri)
    _factory(uri)


def _made(uri: str) -> KmsClient:
    factory = _factory(uri)
    try:
        client = factory(uri)
        if isinstance(client, KmsClient):
            return client
        failed = f"what was made is {articled(type(client).__name__)}, without wrap_key and unwrap_key"
    except BloomsealError:
        raise
    except Exception as error:
        # A vendor's message may quote what it was configured with.
        failed = f"it failed with {raised_by(error)}"
    raise UsageError(f"the KMS client for {shown(uri)} could not be made: {failed}")


def _factory(uri: str) -> ClientFactory:
    scheme = uri.partition(":")[0].lower()
    if (factory := _registered.get(scheme)) is not None:
        return factory
    if (module := _BUILT_IN.get(scheme)) is not None:
        built_in: ClientFactory = import_module(module, __package__).from_uri
        return built_in
    for point in entry_points(group=ENTRY_POINTS):
        if point.name.lower() == scheme:
            found: ClientFactory = point.load()
            return found
    hint = f"known schemes: {', '.join(schemes())}"
    if ":" not in uri and (uri.endswith(".json") or os.path.sep in uri or Path(uri).is_file()):
        hint = f"keyring:{uri}, if that is a keyring file"
    raise UsageError(f"no KMS client for {shown(uri)}", hint=hint)


def _refuse_secrets(uri: str) -> None:
    """URIs stand in policies, logs and Spark plans; whatever is in them is published."""
    try:
        parts = urlsplit(uri)
        # PKCS #11 has attributes in its path too; there `token` is a label.
        inside = [part.partition("=")[0] for part in parts.path.split(";") if "=" in part]
        named = [name for name, _ in parse_qsl(parts.query)] + [name for name in inside if name != "token"]
        holds = parts.password is not None or any(name.lower() in _SECRET_PARTS for name in named)
    except ValueError:
        holds = None
    if holds is None:
        raise UsageError("a KMS URI that can't be parsed")
    if holds:
        raise UsageError("a KMS URI with a secret in it", hint="secrets come from the environment; see docs/kms.md")
