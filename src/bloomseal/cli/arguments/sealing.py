"""How files are to be sealed: the options of every command that seals or builds filters."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeVar

import click

from ...core.encryption import Algorithm, SecretKey
from ...core.errors import BloomsealError, PolicyError, UsageError
from ...core.spelling import nearest
from ...sbbf import FilterSpec
from ...specs import EncryptionSpec
from .keys import KeyOptions
from .options import option

Function = TypeVar("Function", bound=Callable[..., Any])
_FORM: Final = "COLUMN[:fpp=0.01,ndv=N,num_bytes=N,max_bytes=N,hide_size]"
# A column's name may hold a colon: settings are behind the last one, and each but hide_size has an equals sign.
_SETTINGS: Final = re.compile(r"(?:\w+=[^,:]*|hide_size)(?:,(?:\w+(?:=[^,:]*)?))*")
_NAMES: Final[dict[str, Callable[[str], Any]]] = {"fpp": float, "ndv": int, "num_bytes": int, "max_bytes": int}
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

    SECTION: ClassVar = "Encryption"
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

    def spec(self, keys: KeyOptions, otherwise: str = "") -> EncryptionSpec:
        """What these options say, under these keys.

        Args:
            keys: where they are.
            otherwise: what else to try where none are named.

        Raises:
            PolicyError: no keys. UsageError: no key for the footer, or a malformed option.
        """
        given = keys.given
        tools = None if given is not None else keys.tools()
        if given is None and tools is None:
            raise PolicyError(
                "no keys were named, so nothing could be sealed",
                hint=f"--keyring PATH, --kms URI, --key-file or --key-env{otherwise}",
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


def filter_option(function: Function) -> Function:
    """Give a command ``filters``, column → specification."""
    option = click.option(
        "--bloom-filter",
        "filters",
        multiple=True,
        callback=lambda _context, _option, texts: parse_filters(texts),
        metavar=_FORM,
        help="A filter for COLUMN: false positive probability; sized by distinct values per row group or in bytes, else built "
        "large and folded; hide_size makes all row groups' filters one size. Repeatable.",
    )
    return option(function)


def parse_filters(texts: Sequence[str]) -> dict[str, FilterSpec]:
    """Column → specification.

    Raises:
        UsageError: not of the form, or a combination that `FilterSpec` refuses.
    """
    specs = {}
    for text in texts:
        column, colon, settings = text.rpartition(":")
        if not colon or not _SETTINGS.fullmatch(settings):
            column, settings = text, ""
        arguments: dict[str, Any] = {}
        try:
            for setting in filter(None, settings.split(",")):
                name, equals, value = setting.partition("=")
                if name == "hide_size" and not equals:
                    arguments[name] = True
                elif name in _NAMES and equals:
                    arguments[name] = _NAMES[name](value)
                else:
                    known = nearest(name, [*_NAMES, "hide_size"])
                    raise UsageError(f"a filter has no setting {name!r}", hint=f"one of {', '.join(known)}: {_FORM}")
            specs[column] = FilterSpec(**arguments)
        except BloomsealError as error:
            raise error.at(column=column) from None
        except ValueError:
            raise UsageError("a filter's setting is no number", column=column, hint=_FORM) from None
    return specs
