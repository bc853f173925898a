"""Keys for a command: from a keyring, a KMS, files or environment variables; never from an argument in clear.

What stands behind ``=`` in ``--key-file`` and ``--key-env`` is never repeated in a message: a key put there by mistake
would end up in a log.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final

import click

from ...core.cached import cached_property
from ...core.encryption import SecretKey
from ...core.errors import KeyAccessError, UsageError
from ...core.keys.explicit import ExplicitKeys
from ...core.storage.local import open_regular
from ...keytools.keyring.keyring import PASSPHRASE_VARIABLE, PATH_VARIABLE, Keyring
from ...keytools.tools import KeyTools
from ..command import PATH, CommandState
from .options import option

_FOOTER: Final = "footer"
_HEX: Final = re.compile(r"[0-9A-Fa-f]+")
_LONGEST_KEY_FILE: Final = 1024


@dataclass
class Given:
    """Data keys that the caller named one by one.

    Attributes:
        footer: the footer key.
        columns: dotted path → key.
        ids: key id (as in key metadata) → key.
    """

    footer: SecretKey | None = None
    columns: dict[str, SecretKey] = field(default_factory=dict)
    ids: dict[str | bytes, bytes | SecretKey] = field(default_factory=dict)

    def put(self, name: str, key: SecretKey) -> None:
        """`name` is ``footer``, a column's path, ``column:PATH`` or ``id:KEY ID``."""
        kind, colon, rest = name.partition(":")
        if name == _FOOTER:
            self.footer = key
        elif colon and kind == "id":
            self.ids[rest] = key
        else:
            self.columns[rest if colon and kind == "column" else name] = key


@dataclass
class KeyringOptions:
    """A keyring file."""

    SECTION: ClassVar = "Keys"
    keyring: str | None = option(
        "--keyring", type=PATH, metavar="PATH", help=f"Keyring file (default: ${PATH_VARIABLE})."
    )
    passphrase_file: str | None = option(
        "--passphrase-file",
        type=PATH,
        metavar="PATH",
        help=f"File with the keyring's passphrase (default: ${PASSPHRASE_VARIABLE}, or a prompt).",
    )

    @property
    def path(self) -> str:
        """Where it is."""
        if place := self.keyring or os.environ.get(PATH_VARIABLE):
            return place
        raise UsageError("no keyring was named", hint=f"--keyring PATH, or {PATH_VARIABLE}")

    def open(self) -> Keyring:
        """The keyring, its passphrase asked for on the terminal where nothing else gives it."""
        passphrase = read_passphrase(self.passphrase_file)
        asks = passphrase is None and not os.environ.get(PASSPHRASE_VARIABLE) and sys.stdin.isatty()
        if asks and _is_protected(self.path):
            passphrase = click.prompt("Passphrase of the keyring", hide_input=True, err=True)
        return Keyring(self.path, passphrase=passphrase)


@dataclass
class KeyOptions(KeyringOptions):
    """Where keys are, as the command line says it."""

    kms: str | None = option(
        "--kms", metavar="URI", help="KMS instead of a keyring file; credentials come from its own environment."
    )
    key_file: tuple[str, ...] = option(
        "--key-file",
        multiple=True,
        metavar="NAME=PATH",
        help="File with a data key in hex or base64. NAME: footer, a column, or id:KEY_ID. Repeatable.",
    )
    key_env: tuple[str, ...] = option(
        "--key-env",
        multiple=True,
        metavar="NAME=VARIABLE",
        help="As --key-file, from an environment variable. Repeatable.",
    )

    @cached_property
    def given(self) -> Given | None:
        """Explicit keys; None where there are none.

        Raises:
            UsageError, KeyAccessError: a key can't be had, or a keyring was named too.
        """
        if not self.key_file and not self.key_env:
            return None
        if self.keyring or self.kms:
            raise UsageError("explicit keys and a keyring or KMS exclude one another")
        given = Given()
        for item in self.key_file:
            name, path = _pair(item, "--key-file")
            given.put(name, parse_key(_read_key_file(path, name), name))
        for item in self.key_env:
            name, variable = _pair(item, "--key-env")
            if (text := os.environ.get(variable)) is None:
                raise UsageError(f"the environment variable given for {name} is not set")
            given.put(name, parse_key(text.encode(), name))
        return given

    def tools(self) -> KeyTools | None:
        """Key tools over the keyring or KMS; None where neither was named."""
        return self._tools

    @cached_property
    def _tools(self) -> KeyTools | None:
        if self.keyring and self.kms:
            raise UsageError("--keyring and --kms exclude one another")
        if not (self.kms or self.keyring or os.environ.get(PATH_VARIABLE)):
            return None
        made = KeyTools(self.kms or self.open())
        CommandState.current().tools = CommandState.current().tools or made
        return made

    def said(self) -> list[str] | None:
        """These options as another command line takes them, with full paths; None where none was given."""
        told: list[str] = []
        for flag, path in (("--keyring", self.keyring), ("--passphrase-file", self.passphrase_file)):
            told += [] if path is None else [flag, os.path.abspath(path)]  # noqa: PTH100
        told += [] if self.kms is None else ["--kms", self.kms]
        for item in self.key_file:
            name, path = _pair(item, "--key-file")
            told += ["--key-file", f"{name}={os.path.abspath(path)}"]  # noqa: PTH100
        for item in self.key_env:
            told += ["--key-env", item]
        return told or None

    def reading(self, *, policy: bool = False) -> ExplicitKeys | KeyTools | None:
        """The ``keys=`` of a reader; None where no keys were named.

        Args:
            policy: there is one, whose KMS counts before the keyring of the environment.
        """
        if policy and self.said() is None:
            return None
        if (given := self.given) is not None:
            return ExplicitKeys(given.footer, given.columns, given.ids)
        return self.tools()


def read_passphrase(path: str | None) -> str | None:
    """The file's first line.

    Raises:
        KeyAccessError: it can't be read, or is empty.
    """
    if path is None:
        return None
    try:
        text = Path(path).read_text(encoding="utf-8").partition("\n")[0].rstrip("\r")
    except (OSError, UnicodeDecodeError):
        text = ""
    if not text:
        raise KeyAccessError("the passphrase file can't be read, or is empty", file=path)
    return text


def parse_key(data: bytes, name: str) -> SecretKey:
    """A data key from hex or base64 text, or as it is behind ``text:``.

    Raises:
        KeyAccessError: not a key of 128, 192 or 256 bits. The message says for whom it was given, never what.
    """
    try:
        text = data.decode("ascii").strip()
    except UnicodeDecodeError:
        text = ""
    encoding, colon, rest = text.partition(":")
    value = b""
    try:
        if colon and encoding == "text":
            value = rest.encode()
        elif colon and encoding in ("hex", "base64"):
            value = bytes.fromhex(rest) if encoding == "hex" else base64.b64decode(rest, validate=True)
        elif _HEX.fullmatch(text) and len(text) in (32, 48, 64):
            value = bytes.fromhex(text)
        else:
            value = base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        value = b""
    if len(value) not in (16, 24, 32):
        raise KeyAccessError(
            f"what was given for {name} is no key of 128, 192 or 256 bits", hint="32, 48 or 64 hex digits, or base64"
        )
    return SecretKey(value)


def _pair(item: str, option: str) -> tuple[str, str]:
    name, equals, value = item.partition("=")
    # A key in base64, typed in the place of NAME=…, ends in `==`: no part of it is repeated.
    if not (name and equals and value.strip("=")):
        raise UsageError(f"{option} takes NAME=…", hint=f"{option} footer=…, {option} ssn=…, {option} id:kf=…")
    return name, value


def _read_key_file(path: str, name: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_LONGEST_KEY_FILE)
    except OSError as error:
        reason = error.strerror
    raise KeyAccessError(f"the key file given for {name} can't be read: {reason}")


def _is_protected(path: str) -> bool:
    try:
        with open(open_regular(path), "rb") as file:
            return json.load(file).get("protection") is not None
    except (OSError, ValueError, AttributeError):
        return False
