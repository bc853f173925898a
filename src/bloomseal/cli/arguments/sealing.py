"""How files are to be sealed: the options of every command that seals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import click

from ...core.encryption import Algorithm, SecretKey
from ...core.errors import PolicyError, UsageError
from ...specs import EncryptionSpec
from .keys import KeyOptions
from .options import option, options

__all__ = ["ResealingOptions", "SealingOptions", "resealing_options", "sealing_options"]

_NAMED: Final = "Master key of the footer, or id:KEY_ID of an explicit key."
_PREFIX: Final = "Identity of the files, bound into every module; empty: none."


def _algorithm(default: str) -> Any:
    choices = click.Choice([str(one) for one in Algorithm])
    return option("--algorithm", type=choices, help=f"AES_GCM_V1 or AES_GCM_CTR_V1 (default: {default}).")


def _key_bits(default: str) -> Any:
    bits = click.Choice(["128", "192", "256"])
    return option("--key-bits", type=bits, help=f"Length of fresh data keys (default: {default}).")


@dataclass
class SealingOptions:
    """Keys and modes of files to write; `prefix` is apart from the AAD prefix that files are opened by."""

    footer_key: str | None = option("--footer-key", metavar="NAME", help=_NAMED)
    column_key: tuple[str, ...] = option(
        "--column-key",
        multiple=True,
        metavar="COLUMN=NAME",
        help="Master key, or id:KEY_ID, of a column. Repeatable; none: uniform.",
    )
    algorithm: str | None = _algorithm(str(Algorithm.AES_GCM_V1))
    plaintext_footer: bool | None = option(
        "--plaintext-footer", is_flag=True, help="Leave the footer readable, and sign it."
    )
    complete: bool = option("--complete", is_flag=True, help="Seal all other columns under the footer key.")
    prefix: str | None = option("--aad-prefix", metavar="TEXT", help=_PREFIX)
    no_store_aad_prefix: bool = option(
        "--no-store-aad-prefix",
        is_flag=True,
        help="Readers must supply the prefix: a file put in its place does not open.",
    )
    key_bits: str | None = _key_bits("128")

    @property
    def said(self) -> bool:
        """Whether anything was said."""
        return any(vars(self).values())

    def changes(self) -> dict[str, Any]:
        """What was said beside the keys, by the names of `EncryptionSpec`."""
        bits = None if self.key_bits is None else int(self.key_bits)
        modes = {"algorithm": self.algorithm, "key_bits": bits, "aad_prefix": self.prefix}
        found = {name: mode for name, mode in modes.items() if mode is not None}
        if self.no_store_aad_prefix or self.prefix:
            found["store_aad_prefix"] = not self.no_store_aad_prefix
        if self.plaintext_footer is not None:
            found["plaintext_footer"] = self.plaintext_footer
        return found

    def spec(self, keys: KeyOptions) -> EncryptionSpec:
        """What these options say, under these keys.

        Raises:
            PolicyError: no keys. UsageError: no key for the footer, or a malformed option.
        """
        given = keys.given
        tools = None if given is not None else keys.tools()
        if given is None and tools is None:
            raise PolicyError(
                "no keys were named, so nothing could be sealed",
                hint="--keyring PATH, --kms URI, --key-file or --key-env; or --plaintext if that is meant",
            )

        def choice(name: str, whose: str) -> str | tuple[bytes | SecretKey, str]:
            if given is None:
                return name
            key_id = name.removeprefix("id:")
            if key_id == name or key_id not in given.ids:
                raise UsageError(f"no explicit key of this id was given for {whose}", hint="--key-file id:KEY_ID=PATH")
            return given.ids[key_id], key_id

        column_keys: dict[str, Any] = dict(given.columns) if given is not None else {}
        for item in self.column_key:
            column, equals, name = item.rpartition("=")
            if not equals or not column or not name:
                raise UsageError("--column-key takes COLUMN=NAME", hint="--column-key ssn=pii")
            column_keys[column] = choice(name, column)
        footer_key: Any = None if given is None else given.footer
        if self.footer_key is not None:
            footer_key = choice(self.footer_key, "the footer")
        if footer_key is None:
            raise UsageError("no key for the footer", hint="--footer-key NAME, or --key-file footer=PATH")
        return EncryptionSpec(footer_key, column_keys or None, tools, complete=self.complete, **self.changes())


@dataclass
class ResealingOptions(SealingOptions):
    """As `SealingOptions`, of files that are sealed already; without a key for the footer, what is not said stays."""

    algorithm: str | None = _algorithm(f"as it is; with --footer-key: {Algorithm.AES_GCM_V1}")
    plaintext_footer: bool | None = option(
        "--plaintext-footer/--encrypted-footer", default=None, help="Change the footer's mode."
    )
    prefix: str | None = option("--new-aad-prefix", metavar="TEXT", help=_PREFIX)
    key_bits: str | None = _key_bits("as it is; with --footer-key: 128")


sealing_options = options(SealingOptions, "sealing")
"""Give a command ``sealing``, its `SealingOptions`."""
resealing_options = options(ResealingOptions, "sealing")
"""Give a command ``sealing``, its `ResealingOptions`."""
