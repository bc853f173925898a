"""How files are to be sealed: the options of every command that seals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from ...core.encryption import Algorithm, SecretKey
from ...core.errors import PolicyError, UsageError
from ...specs import EncryptionSpec
from .grouped import grouped
from .keys import KeyOptions

__all__ = ["SealingOptions", "sealing_options"]

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass
class SealingOptions:
    """The options of `sealing_options`, as given; `prefix` is apart from the AAD prefix that files are opened by."""

    footer_key: str | None
    column_key: tuple[str, ...]
    algorithm: str | None = None
    plaintext_footer: bool | None = None
    complete: bool = False
    prefix: str | None = None
    no_store_aad_prefix: bool = False
    key_bits: str | None = None

    @property
    def said(self) -> bool:
        """Was anything said?"""
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


def sealing_options(*, again: bool = False) -> Callable[[Function], Function]:
    """Give a command ``sealing``, a `SealingOptions`.

    Args:
        again: of files that are sealed already; without a key for the footer, what is not said stays as it is.
    """
    if again:
        algorithm, bits = f"as it is; with --footer-key: {Algorithm.AES_GCM_V1}", "as it is; with --footer-key: 128"
        prefix = "--new-aad-prefix"
        footer = click.option("--plaintext-footer/--encrypted-footer", default=None, help="Change the footer's mode.")
    else:
        algorithm, bits = str(Algorithm.AES_GCM_V1), "128"
        prefix = "--aad-prefix"
        footer = click.option("--plaintext-footer", is_flag=True, help="Leave the footer readable, and sign it.")
    options = (
        click.option("--footer-key", metavar="NAME", help="Master key of the footer, or id:KEY_ID of an explicit key."),
        click.option(
            "--column-key",
            multiple=True,
            metavar="COLUMN=NAME",
            help="Master key, or id:KEY_ID, of a column. Repeatable; none: uniform.",
        ),
        click.option(
            "--algorithm",
            type=click.Choice([str(one) for one in Algorithm]),
            help=f"AES_GCM_V1 or AES_GCM_CTR_V1 (default: {algorithm}).",
        ),
        footer,
        click.option("--complete", is_flag=True, help="Seal all other columns under the footer key."),
        click.option(
            prefix, "prefix", metavar="TEXT", help="Identity of the files, bound into every module; empty: none."
        ),
        click.option(
            "--no-store-aad-prefix",
            is_flag=True,
            help="Readers must supply the prefix: a file put in its place does not open.",
        ),
        click.option(
            "--key-bits",
            type=click.Choice(["128", "192", "256"]),
            help=f"Length of fresh data keys (default: {bits}).",
        ),
    )

    def decorate(function: Function) -> Function:
        return grouped(function, "sealing", SealingOptions, options)

    return decorate
