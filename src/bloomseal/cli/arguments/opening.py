"""What a command expects of the files that it opens: their keys, a policy, and options that say more or less than
these.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from ...core.decryption import DecryptionSpec
from ...core.errors import UsageError
from ...core.storage.ref import FileRef
from ...policy import Policy, TablePolicy
from ..state import PATH, State
from .grouped import grouped
from .keys import KeyOptions, key_options

__all__ = ["OpeningOptions", "PolicyOptions", "opening_options", "policy_options", "trust_option", "use_index_option"]

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass
class PolicyOptions:
    """The options of `policy_options`, as given."""

    policy_file: str | None
    table: str | None
    table_root: str | None

    def load(self, keys: KeyOptions, paths: Sequence[str] = ()) -> TablePolicy | None:
        """The table's policy; None where none was named.

        Args:
            keys: a keyring or KMS named there takes the place of the policy's.
            paths: of the command line. One folder alone is the table's, where no --table-root says otherwise.

        Raises:
            UsageError: --policy without --table, or the other way round, or beside explicit keys. PolicyError.
        """
        if (self.policy_file is None) != (self.table is None):
            raise UsageError("--policy and --table go together")
        if self.policy_file is None or self.table is None:
            if self.table_root is not None:
                raise UsageError("--table-root is for AAD prefixes of a policy", hint="--policy FILE --table NAME")
            return None
        if keys.given is not None:
            raise UsageError("the policy says which keys; --key-file and --key-env go without --policy")
        tools = keys.tools() if keys.keyring or keys.kms else None
        root = self.table_root or (paths[0] if len(paths) == 1 and Path(paths[0]).is_dir() else None)
        found = Policy.load(self.policy_file, kms=None if tools is None else tools.kms).for_table(self.table, root=root)
        State.current().tools = found.keys.tools
        return found


@dataclass(frozen=True, repr=False)
class _Adjusted(TablePolicy):
    """A table's policy as a whole, and options of the command line that no policy has."""

    more: Mapping[str, Any] = field(default_factory=dict)

    def decryption_arguments(self, file: FileRef | str | os.PathLike[str]) -> dict[str, Any]:
        found = super().decryption_arguments(file)
        named = (*found["encrypted_columns"], *self.more.get("encrypted_columns", ()))
        return {**found, **self.more, "encrypted_columns": named}


@dataclass
class OpeningOptions:
    """The options of `opening_options`: keys or a policy, and what the caller expects of the files."""

    keys: KeyOptions
    policy: PolicyOptions
    aad_prefix: str | None
    encrypted_column: tuple[str, ...]
    partition_by: tuple[str, ...]
    allow_plaintext: bool
    allow_unverified_footer: bool
    int96_utc: bool
    allow_ctr: bool

    def decryption(self, paths: Sequence[str] = ()) -> DecryptionSpec | TablePolicy | None:
        """None where nothing was said about encryption at all: a plaintext file is then what it is.

        Args:
            paths: as for `PolicyOptions.load`.
        """
        if "-" in paths:
            raise UsageError("Parquet is read from its end, so not from standard input", hint="a file; ./- is one, too")
        if (policy := self.policy.load(self.keys, paths)) is not None:
            return self._adjusted(policy)
        keys = self.keys.reading()
        if keys is None and not self.aad_prefix and not self.encrypted_column:
            return None
        return DecryptionSpec(
            keys,
            aad_prefix=self.aad_prefix,
            encrypted_columns=self.encrypted_column,
            partition_by=self.partition_by,
            allow_plaintext=self.allow_plaintext,
            allow_unverified_footer=self.allow_unverified_footer,
            int96_utc=self.int96_utc,
            allow_ctr=self.allow_ctr,
        )

    def _adjusted(self, policy: TablePolicy) -> TablePolicy:
        changes: dict[str, Any] = {"allow_ctr": True} if self.allow_ctr else {}
        if self.aad_prefix is not None:
            # It is the prefix that the files have now; to a rotation, the policy's is the new one.
            changes["aad_prefix"] = self.aad_prefix.replace("{", "{{").replace("}", "}}")
        if self.partition_by:
            changes["partition_by"] = (*policy.partition_by, *self.partition_by)
        if changes:
            policy = replace(policy, **changes)
        flags = {
            name: True for name in ("allow_plaintext", "allow_unverified_footer", "int96_utc") if getattr(self, name)
        }
        more = flags | ({"encrypted_columns": self.encrypted_column} if self.encrypted_column else {})
        if not more:
            return policy
        said = {one.name: getattr(policy, one.name) for one in fields(policy) if one.init}
        return _Adjusted(**said, more=more)


_POLICY_OPTIONS: Final = (
    click.option(
        "--policy",
        "policy_file",
        type=PATH,
        metavar="FILE",
        help="Policy file that says which key protects what; needs --table.",
    ),
    click.option("--table", metavar="NAME", help="The table's name in the policy."),
    click.option(
        "--table-root",
        type=PATH,
        metavar="FOLDER",
        help="The table's folder, from which {path} in the policy's AAD prefix counts (default: the folder named).",
    ),
)

_OPENING_OPTIONS: Final = (
    click.option("--aad-prefix", metavar="TEXT", help="AAD prefix that the file was written with."),
    click.option(
        "--encrypted-column", multiple=True, metavar="COLUMN", help="Refuse the file if this column is in clear."
    ),
    click.option(
        "--partition-by",
        multiple=True,
        metavar="COLUMN",
        help="COLUMN stands in the names of folders, or in the table's log, and is in no file.",
    ),
    click.option("--allow-plaintext", is_flag=True, help="Accept a plaintext file although keys were given."),
    click.option(
        "--allow-unverified-footer",
        is_flag=True,
        help="Accept a plaintext footer without the key of its signature: row groups could be missing.",
    ),
    click.option(
        "--allow-ctr",
        is_flag=True,
        help="Open AES_GCM_CTR_V1 pages, which nothing authenticates: anybody could have altered them.",
    ),
    click.option("--int96-utc", is_flag=True, help="INT96 timestamps are canonical UTC instants."),
)


use_index_option: Final = click.option(
    "--use-index",
    type=click.Choice(["auto", "never", "require"]),
    default="auto",
    help="Of a table: ask its sealed indexes, don't, or refuse where they don't cover every file (default: auto).",
)


trust_option: Final = click.option(
    "--trust",
    type=click.Choice(["auto", "time", "identity"]),
    default="auto",
    help="By which an index knows a table's files again: their state or version, in stores also size and time, or each "
    "file's authenticated footer (default: auto).",
)


def policy_options(function: Function) -> Function:
    """Give a command ``policy``, a `PolicyOptions`."""
    return grouped(function, "policy", PolicyOptions, _POLICY_OPTIONS)


def opening_options(function: Function) -> Function:
    """Give a command ``opening``, an `OpeningOptions`."""
    return key_options(policy_options(grouped(function, "opening", OpeningOptions, _OPENING_OPTIONS)))
