"""What a command expects of the files that it opens: their keys, a policy, and options that say more or less than
these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import click

from ...core.decryption import DecryptionSpec
from ...core.errors import UsageError
from ..command import PATH, CommandState
from .keys import KeyOptions
from .options import option, policy_option

if TYPE_CHECKING:
    from ...policy import TablePolicy
    from ...read.file import SealedFile
    from ...read.without_key import WithoutKey
    from ...table.sealed import SealedTable

WITHOUT_POLICY: Final = "without --policy, and without BLOOMSEAL_POLICY"


@dataclass
class PolicyOptions:
    """A table's policy, as the command line names it."""

    SECTION: ClassVar = "Policy"
    policy_file: str | None = policy_option("Policy file that says which key protects what")
    table: str | None = option(
        "--table",
        metavar="NAME",
        envvar="BLOOMSEAL_TABLE",
        help="The policy's table (default: $BLOOMSEAL_TABLE; else the only one, or the one whose root the files are in).",
    )
    table_root: str | None = option(
        "--table-root",
        type=PATH,
        metavar="FOLDER",
        help="The table's folder, from which {path} in the policy's AAD prefix counts (default: the policy's root, else the folder named).",
    )

    signer: tuple[str, ...] = option(
        "--signer",
        multiple=True,
        metavar="KEY",
        help="What signs the files of a table with signers: KMS_URI#NAME, a PEM file, or NAME in the policy's KMS; of a "
        "signer with several keys, each (default: $BLOOMSEAL_SIGNER).",
    )

    def load(self, keys: KeyOptions, paths: Sequence[str] = ()) -> TablePolicy | None:
        """The table's policy; None where none was named.

        Args:
            keys: a keyring or KMS named there takes the place of the policy's.
            paths: of the command line, by which the policy knows its table.

        Raises:
            UsageError: a table without a policy, a policy beside explicit keys. PolicyError.
        """
        if self.policy_file is None:
            if self.table is not None or self.table_root is not None or self.signer:
                what = "--table, --table-root and --signer are for a policy"
                raise UsageError(what, hint="--policy FILE, or BLOOMSEAL_POLICY")
            return None
        if keys.given is not None:
            raise UsageError("the policy says which keys; --key-file and --key-env go without", hint=WITHOUT_POLICY)
        tools = keys.tools() if keys.keyring or keys.kms else None
        from ...policy import Policy

        loaded = Policy.load(self.policy_file, kms=None if tools is None else tools.kms)
        found = loaded.for_table(self.table, root=self.table_root, place=paths)
        if self.signer:
            if not found.signers:
                raise UsageError(
                    f"table {found.name} has no signers", hint="without --signer, or a policy that has some"
                )
            found = replace(found, signer=self.signer)
        CommandState.current().tools = found.keys
        return found


@dataclass
class OpeningOptions:
    """Keys or a policy, and what the caller expects of the files."""

    SECTION: ClassVar = "Expectations of the files"
    keys: KeyOptions = field(default_factory=KeyOptions)
    policy: PolicyOptions = field(default_factory=PolicyOptions)
    aad_prefix: str | None = option("--aad-prefix", metavar="TEXT", help="AAD prefix that the file was written with.")
    encrypted_column: tuple[str, ...] = option(
        "--encrypted-column", multiple=True, metavar="COLUMN", help="Refuse the file if this column is in clear."
    )
    partition_by: tuple[str, ...] = option(
        "--partition-by",
        multiple=True,
        metavar="COLUMN",
        help="COLUMN stands in the names of folders, or in the table's log, and is in no file.",
    )
    allow_plaintext: bool = option(
        "--allow-plaintext", is_flag=True, help="Accept a plaintext file although keys were given."
    )
    allow_unverified_footer: bool = option(
        "--allow-unverified-footer",
        is_flag=True,
        help="Accept a plaintext footer without the key of its signature: row groups could be missing.",
    )
    allow_ctr: bool = option(
        "--allow-ctr",
        is_flag=True,
        help="Open AES_GCM_CTR_V1 pages, which nothing authenticates: anybody could have altered them.",
    )
    int96_utc: bool = option("--int96-utc", is_flag=True, help="INT96 timestamps are canonical UTC instants.")

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
            allow_ctr=self.allow_ctr,
            **self._flags(),
        )

    def _flags(self) -> dict[str, Any]:
        flags = ("allow_plaintext", "allow_unverified_footer", "int96_utc")
        return {name: True for name in flags if getattr(self, name)}

    def _adjusted(self, policy: TablePolicy) -> TablePolicy:
        changes: dict[str, Any] = {"allow_ctr": True} if self.allow_ctr else {}
        if self.aad_prefix is not None:
            # It is the prefix that the files have now; to a rotation, the policy's is the new one.
            changes["aad_prefix"] = self.aad_prefix.replace("{", "{{").replace("}", "}}")
        if self.partition_by:
            changes["partition_by"] = (*policy.partition_by, *self.partition_by)
        reading = self._flags()
        if self.encrypted_column:
            reading["encrypted_columns"] = self.encrypted_column
        return replace(policy, **changes, reading=reading) if changes or reading else policy


@dataclass
class TableOptions:
    """Which version of a table is asked, and by which of its indexes."""

    SECTION: ClassVar = "Tables"
    version: int | None = option(
        "--version", type=int, metavar="N", help="Of a Delta table its version, of an Iceberg table a snapshot's id."
    )
    use_index: Literal["auto", "never", "require"] = option(
        "--use-index",
        type=click.Choice(["auto", "never", "require"]),
        default="auto",
        help="Of a table: ask its sealed indexes, don't, or refuse where they don't cover every file (default: auto).",
    )
    trust: Literal["auto", "time", "identity"] = option(
        "--trust",
        type=click.Choice(["auto", "time", "identity"]),
        default="auto",
        help="By which an index knows a table's files again: their state or version, in stores also size and time, or "
        "each file's authenticated footer (default: auto).",
    )
    opening: OpeningOptions = field(default_factory=OpeningOptions)

    def one_file(self, paths: Sequence[str]) -> SealedFile | None:
        """The file that these are, opened; None where they are a table."""
        from ...read.open import open_file
        from ...storage.discovery.tables import is_one_file

        if self.version is not None or len(paths) != 1 or not is_one_file(paths[0]):
            return None
        return open_file(paths[0], decryption=self.opening.decryption(paths))

    def table(self, paths: Sequence[str], columns_without_key: WithoutKey = "error") -> SealedTable:
        """All files that these lead to, as one table."""
        from ...table.open import open_table

        decryption = self.opening.decryption(paths)
        return open_table(
            list(paths),
            decryption=decryption,
            version=self.version,
            use_index=self.use_index,
            trust=self.trust,
            columns_without_key=columns_without_key,
        )
