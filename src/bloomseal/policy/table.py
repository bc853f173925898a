"""The policy of one table, and the arguments that it gives to writers and readers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from ..core.cached import cached_property
from ..core.columns import meant_by, nearest_entry
from ..core.encryption import Algorithm
from ..core.errors import Hint, PolicyError
from ..core.limits import MAX_GCM_SEALS
from ..core.storage.ref import FileRef, below, path_in_table
from ..core.text import counted
from ..storage.places import resolve_path
from .keys import KeyPolicy
from .places import check_template

if TYPE_CHECKING:
    from ..core.decryption import IcebergSpec
    from ..keytools.signatures.signers import Signers
    from ..keytools.tools import KeyTools
    from ..sbbf import FilterSpec

_PATH: Final = "{path}"
_FILE: Final = "{file}"


class Sensitivity(StrEnum):
    """The harm if a column's values became known. CONFIDENTIAL and RESTRICTED columns must have a key."""

    PUBLIC = "public"
    INTERNAL = "internal"
    CONFIDENTIAL = "confidential"
    RESTRICTED = "restricted"


SENSITIVE: Final = (Sensitivity.CONFIDENTIAL, Sensitivity.RESTRICTED)


@dataclass(frozen=True)
class IndexPolicy:
    """The sealed index of a column, see docs/sealed-index.md.

    Attributes:
        false_places: row groups in which a value that is nowhere is expected, per value asked for and in the whole
            table.
        pad: fill up, so that sizes tell less.
        max_keys: the most values for which one query asks the index; None: any number.
        purge_days: days after which an audit wants what is about deleted files out of the index; None: never.
    """

    false_places: float = 0.001
    pad: bool = False
    max_keys: int | None = None
    purge_days: int | None = None


@dataclass(frozen=True)
class ColumnPolicy:
    """One column, or a group of columns.

    Attributes:
        key: the master key's name; None leaves the column under the table's rule for all others.
        sensitivity: for audits, and against mistakes in the policy.
        filter: the Bloom filter to write; None for none.
        previous_keys: master keys that older files may be sealed under.
        requirements: what the column comes under, such as ``PCI DSS 3.6``; for evidence.
        index: the sealed index to keep; None for none.
    """

    key: str | None = None
    sensitivity: Sensitivity = Sensitivity.INTERNAL
    filter: FilterSpec | None = None
    previous_keys: tuple[str, ...] = ()
    requirements: tuple[str, ...] = field(default=(), repr=False)
    index: IndexPolicy | None = None


@dataclass(frozen=True, slots=True)
class PolicyOrigin:
    """A policy file: where it was, and the SHA-256 of its bytes in hexadecimal."""

    path: str
    digest: str


@dataclass(frozen=True)
class TablePolicy:
    """One table. Its methods give the arguments of `bloomseal.EncryptionSpec` and `bloomseal.DecryptionSpec`.

    Attributes:
        name: the table's identity.
        kms: a KMS client, its URI, or `KeyTools` (whose own settings then count). None: files are written for
            `recipients` alone, and read only where the environment names a keyring.
        footer_key: master key of the footer, and of all columns if none has a key of its own (uniform encryption).
        columns: dotted path → column.
        previous_footer_keys: master keys that older files' footers may be sealed under.
        algorithm: ``AES_GCM_V1`` or ``AES_GCM_CTR_V1``.
        plaintext_footer: leave the footer readable, and signed.
        complete: seal columns without a key under the footer key.
        partition_by: columns whose values stand in the names of folders, or in the log of a Delta or Iceberg table, and
            so in clear. Where all columns are sealed, by `complete` or without keys of their own, no others may.
        key_bits, kek_bits: 128, 192 or 256.
        double_wrapping: wrap data keys under a KEK, and that by the KMS.
        internal: keep key material in the file.
        allow_ctr: open files under ``AES_GCM_CTR_V1`` although `algorithm` is another one: older files, until `rekey`.
        aad_prefix: template over ``{table}``, ``{path}`` (from the table's folder on, partition folders included) and
            ``{file}`` (the name alone), bound into every module; None for none.
        store_aad_prefix: keep the prefix in the file. If not, a file moved into another table or put in another one's
            place does not open.
        previous_aad_prefixes: templates that older files were written with; `rekey` moves them to `aad_prefix`.
        origin: the file that the policy was read from.
        root: the table's folder or its URI, which ``{path}`` starts from; None: the folder that is read as a table, see
            `at`.
        authentic_writers: refuse master keys under which anybody can wrap (`KeyTools`), unless files are signed.
        max_key_age: how old a master key's version may grow before an audit reports it.
        seal_limit: how often one key may seal; at most 2^32.
        allowed_kms_urls: addresses that files may name as their KMS.
        access_log: who is told which keys are opened and made (`bloomseal.keytools.access_log`); None: nobody.
        key_policies: master key → who answers for it and how long it is to be used.
        iceberg: what the table must be, if it is an encrypted Iceberg table; None: it is none.
        signers: signer's name → his public keys as lines; all of his must sign. Empty: files need not be signed.
        signer: what signs here, see `bloomseal.Signers`; no policy file has it.
        reading: arguments of `bloomseal.DecryptionSpec` that no policy file has, from whoever reads; of
            `encrypted_columns`, more of them.

    Raises:
        PolicyError: a setting that can't be, or a confidential column that would be in plaintext.
    """

    name: str
    kms: Any
    footer_key: str
    columns: Mapping[str, ColumnPolicy] = field(default_factory=dict)
    previous_footer_keys: tuple[str, ...] = ()
    algorithm: Algorithm = Algorithm.AES_GCM_V1
    allow_ctr: bool = False
    plaintext_footer: bool = False
    complete: bool = False
    partition_by: tuple[str, ...] = ()
    key_bits: int = 128
    kek_bits: int = 128
    double_wrapping: bool = True
    internal: bool = True
    aad_prefix: str | None = None
    store_aad_prefix: bool = True
    authentic_writers: bool = False
    max_key_age: timedelta | None = None
    seal_limit: int = MAX_GCM_SEALS
    allowed_kms_urls: tuple[str, ...] = ()
    previous_aad_prefixes: tuple[str, ...] = ()
    root: str | None = None
    origin: PolicyOrigin | None = field(default=None, repr=False, compare=False)
    access_log: Any = field(default=None, repr=False)
    key_policies: Mapping[str, KeyPolicy] = field(default_factory=dict, repr=False)
    iceberg: IcebergSpec | None = None
    signers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    signer: Any = field(default=None, repr=False)
    reading: Mapping[str, Any] = field(default_factory=dict, repr=False)
    _elsewhere: TablePolicy | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.key_bits not in (128, 192, 256) or self.kek_bits not in (128, 192, 256):
            raise PolicyError(f"table {self.name}: keys have 128, 192 or 256 bits")
        if not 1 <= self.seal_limit <= MAX_GCM_SEALS:
            raise PolicyError(f"table {self.name}: seal_limit lies between 1 and 2^32")
        for template in filter(None, (self.aad_prefix, *self.previous_aad_prefixes)):
            check_template(template, self.name)
        if self.aad_prefix is None and self.previous_aad_prefixes:
            raise PolicyError(f"table {self.name}: previous_aad_prefixes without an aad_prefix")
        if self.aad_prefix is None and not self.store_aad_prefix:
            raise PolicyError(f"table {self.name}: store_aad_prefix = false without an aad_prefix")
        for name in self.partition_by:
            if meant_by(name, frozenset(self.encrypted_columns)) is not None:
                raise PolicyError(f"table {self.name}: partition_by names a column that must be encrypted", column=name)
        _ = self.authors
        for name, column in self.columns.items():
            if column.index is not None and self.master_key(name) is None:
                raise PolicyError(
                    f"table {self.name}: the index of a plaintext column would be sealed under no key",
                    column=name,
                    hint="give it a key, or set complete = true",
                )
            if column.sensitivity in SENSITIVE and self.master_key(name) is None:
                raise PolicyError(
                    f"table {self.name}: a {column.sensitivity} column would be written in plaintext",
                    column=name,
                    hint="give it a key, or set complete = true",
                )

    @property
    def uniform(self) -> bool:
        """Everything is sealed under the footer key."""
        return all(column.key is None for column in self.columns.values())

    @property
    def master_keys(self) -> frozenset[str]:
        """All master keys that the policy names, those of older files too."""
        own = {column.key for column in self.columns.values() if column.key is not None}
        older = {key for column in self.columns.values() for key in column.previous_keys}
        return frozenset({self.footer_key, *self.previous_footer_keys, *own, *older})

    @property
    def recipients(self) -> dict[str, tuple[str, ...]]:
        """Master key → the lines of those whom new keys are wrapped to; master keys of a KMS are not there."""
        known = self.key_policies.items()
        return {name: one.recipients for name, one in known if one.recipients and name in self.master_keys}

    @property
    def needs_no_kms(self) -> bool:
        """Everything is written for recipients."""
        return {self.footer_key, *(one.key or self.footer_key for one in self.columns.values())} <= {*self.recipients}

    @property
    def encrypted_columns(self) -> tuple[str, ...]:
        """The columns, and groups, that must be encrypted by name: with a key of their own, or confidential."""
        return tuple(
            name for name, column in self.columns.items() if column.key is not None or column.sensitivity in SENSITIVE
        )

    def master_key(self, column: str) -> str | None:
        """The name of the master key that a column is to be sealed under; None where it is to be in plaintext."""
        if (key := self._entry(column).key) is not None:
            return key
        return self.footer_key if self.uniform or self.complete else None

    def requirements(self, column: str) -> tuple[str, ...]:
        """What the column, or the group it is in, comes under."""
        return self._entry(column).requirements

    def sensitivity(self, column: str) -> Sensitivity:
        """The column's, or that of the group it is in; INTERNAL where the policy says nothing."""
        return self._entry(column).sensitivity

    def _entry(self, column: str) -> ColumnPolicy:
        return nearest_entry(self.columns, column) or ColumnPolicy()

    def at(self, root: str | os.PathLike[str] | None) -> TablePolicy:
        """The same policy, keys and their cache included, for a table whose folder is `root`; None: is the one read."""
        path = None if root is None else resolve_path(root).path
        if path == self.root:
            return self
        here = replace(self, root=path)
        object.__setattr__(here, "_elsewhere", self)
        return here

    def holds(self, ref: FileRef) -> bool:
        """Whether a file or folder is the table's root, which was said, or lies in it."""
        return self.root is not None and below(self.root, ref) is not None

    def prefix(self, file: FileRef | str | os.PathLike[str]) -> str | None:
        """The AAD prefix of one file, by its final place.

        Raises:
            PolicyError: the template has ``{path}``, and where the table's folder is was not said, or the file is not
                in it.
        """
        return None if self.aad_prefix is None else self._filled(self.aad_prefix, file)

    def prefixes(self, file: FileRef | str | os.PathLike[str]) -> tuple[str, ...]:
        """The AAD prefix of one file, and after it those that it may have been written with before; as `prefix`."""
        templates = filter(None, (self.aad_prefix, *self.previous_aad_prefixes))
        return tuple(self._filled(template, file) for template in templates)

    def _filled(self, template: str, file: FileRef | str | os.PathLike[str]) -> str:
        ref = file if isinstance(file, FileRef) else FileRef(os.fspath(file))
        names = {"table": self.name, "file": PurePosixPath(ref.path).name}
        if not ref.named and (_PATH in template or _FILE in template):
            raise PolicyError(
                f"the AAD prefix of table {self.name} is made of the file's place, and a file object has none",
                file=ref.path,
                hint="a path, or DecryptionSpec(aad_prefix=...)",
            )
        if _PATH in template:
            names["path"] = path_in_table(ref, self.root, self.name, f"the AAD prefix {template!r}")
        return template.format_map(names)

    def encryption_arguments(self, file: FileRef | str | os.PathLike[str]) -> dict[str, Any]:
        """The arguments that a file of this table is written with: the keyword arguments of `bloomseal.EncryptionSpec`.

        Args:
            file: its final place.
        """
        return {
            "footer_key": self.footer_key,
            "column_keys": {name: column.key for name, column in self.columns.items() if column.key is not None},
            "keys": self.keys,
            "algorithm": self.algorithm,
            "plaintext_footer": self.plaintext_footer,
            "complete": self.complete,
            "aad_prefix": self.prefix(file),
            "store_aad_prefix": self.store_aad_prefix,
            "key_bits": self.key_bits,
            "access_log": self.access_log,
            "signers": self.authors,
        }

    def decryption_arguments(self, file: FileRef | str | os.PathLike[str]) -> dict[str, Any]:
        """The arguments that a file of this table is read with: keyword arguments of `bloomseal.DecryptionSpec`."""
        return {
            "keys": self.keys,
            "aad_prefix": self.prefix(file),
            "previous_aad_prefixes": self.prefixes(file)[1:],
            "complete": self.uniform or self.complete,
            "partition_by": self.partition_by,
            "allow_ctr": self.allow_ctr or self.algorithm is Algorithm.AES_GCM_CTR_V1,
            "access_log": self.access_log,
            "iceberg": self.iceberg,
            "signers": self.authors,
            **self.reading,
            "encrypted_columns": (*self.encrypted_columns, *self.reading.get("encrypted_columns", ())),
        }

    def bloom_filters(self) -> dict[str, FilterSpec]:
        """Dotted path → the filter to write."""
        return {name: column.filter for name, column in self.columns.items() if column.filter is not None}

    def indexes(self) -> dict[str, IndexPolicy]:
        """Dotted path → the sealed index to keep."""
        return {name: column.index for name, column in self.columns.items() if column.index is not None}

    @cached_property
    def authors(self) -> Signers | None:
        """Who may write the table's files; None: anybody who has keys."""
        if not self.signers:
            return None
        from ..keytools.signatures.signers import Signers  # few tables have some

        return Signers(self.signers, self.name, self.root, self.signer, getattr(self.kms, "kms", self.kms))

    @cached_property
    def keys(self) -> KeyTools:
        """The table's key source, held to the master keys that the policy names; shared by all its files.

        Raises:
            UsageError, MissingDependencyError, KeyAccessError: there is no way to the KMS.
        """
        if self._elsewhere is not None:
            return self._elsewhere.keys
        from ..core.keys.pins import Pins
        from ..keytools.recipients_kms import RecipientsKms
        from ..keytools.tools import KeyTools

        tools: Any = self.kms
        if recipients := self.recipients:
            if isinstance(tools, KeyTools):
                raise PolicyError(
                    f"table {self.name}: recipients, and key tools in the place of a KMS", hint="kms = ..."
                )
            tools = RecipientsKms(recipients, tools)
        if not isinstance(tools, KeyTools):
            tools = KeyTools(
                tools,
                double_wrapping=self.double_wrapping,
                internal=self.internal,
                kek_bits=self.kek_bits,
                authentic_writers=self.authentic_writers and not self.signers,
                seal_limit=self.seal_limit,
                allowed_urls=self.allowed_kms_urls,
            )
        elif self.authentic_writers and not (self.signers or tools.authentic_writers):
            raise PolicyError(
                f"table {self.name}: authentic_writers, and key tools that do not ask for them",
                hint=Hint.OWN_WRITERS,
            )
        footer = {self.footer_key, *self.previous_footer_keys}
        own = {
            name: {column.key, *column.previous_keys} for name, column in self.columns.items() if column.key is not None
        }
        made: KeyTools = tools.with_pins(Pins(footer, own, others=footer))
        return made

    def __repr__(self) -> str:
        return f"<TablePolicy {self.name!r}: {counted(len(self.columns), 'column')}>"

    def __getstate__(self) -> dict[str, Any]:
        # The key source holds keys, of which each process makes its own; and who reads elsewhere signs nothing.
        return {name: one for name, one in self.__dict__.items() if name not in ("keys", "authors")} | {"signer": None}
