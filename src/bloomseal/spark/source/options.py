"""The options of ``format("bloomseal")``. They are published in plans and in the UI, so none of them is a secret."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, get_args
from urllib.parse import unquote

from ...core.cached import cached_property
from ...core.decryption import DecryptionSpec
from ...core.errors import PolicyError, UsageError
from ...core.parquet.expectation import Expectation
from ...policy import Policy, TablePolicy, table_policy
from ...read.without_key import WithoutKey
from ...specs import iceberg_unwrap
from ..given import kms_uri, refuse_secrets
from ..listing import split_uri
from ..opening import table_of
from .files.piece import Piece, parts_of

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator
    from pyspark.sql.types import StructType

    from ...keytools.kms.counters import Counters
    from ...read.file import SealedFile
    from ...read.predicate.condition import Compare
    from ...storage.logs.snapshot import Snapshot
    from ...table.query.parts import TableParts
    from .files.tree import Tree
    from .search import KeySearch
    from .stats import Metrics


@dataclass(frozen=True)
class Defaults:
    """What `bloomseal.spark.enable` was given, for sessions whose options say nothing else. It holds no key.

    Attributes:
        kms: KMS URI.
        policy: of one table or several; the KMS that it names gives way to `kms`.
        metrics: what reads are counted with.
        zone: the session's time zone, in which folders name timestamps.
        parallelism: tasks that run at the same time.
        search: the keys of one frame, of which this is then the source; None: rows are not chosen by keys.
    """

    kms: str | None = None
    policy: Policy | None = None
    metrics: Accumulator[Metrics] | None = None
    zone: str | None = None
    parallelism: int | None = None
    search: KeySearch | None = None


@dataclass(frozen=True)
class SourceOptions:
    """One call's options, understood. Goes to the executors by pickle, and holds no key: they resolve their own.

    Attributes:
        paths: folders or files; URIs, or paths of the local file system.
        kms: KMS URI; None where only plaintext files can be meant.
        table: the table's policy, its `kms` a URI, its `root` the option of that name; None without a policy.
        aad_prefix: the prefix that all files were written with; the policy's where this is None.
        encrypted_columns: columns that must be encrypted, beside the policy's.
        allow_plaintext, allow_unverified_footer: as in `bloomseal.DecryptionSpec`.
        columns_without_key: as in `bloomseal.open_table`. What is dropped, the driver says, by its own keys.
        max_partition_bytes: how much one task reads.
        infer_partition_types: take types of partition columns from their values; False: they are texts.
        merge_schema: take the columns of all files, and not the first one's.
        timezone: in which folders name timestamps; the session's as it was in `enable` where this is None.
        read_id: the name under which the read is counted.
        conditions: hold for every row that is wanted, in every query over the frame; from `pushdown.to_text`.
        catch_filters: read nothing, but tell which filters Spark would push; for `bloomseal.spark.read`.
        use_index, trust: whether sealed indexes are asked, as in `bloomseal.open_table`.
        dry_run: ask the filters, but read no row; for `bloomseal.spark.explain`.
        partition_by: columns that are folders; the policy's word counts where there is one.
    """

    paths: tuple[str, ...]
    kms: str | None = None
    table: TablePolicy | None = None
    aad_prefix: str | None = None
    encrypted_columns: tuple[str, ...] = ()
    allow_plaintext: bool = False
    allow_unverified_footer: bool = False
    columns_without_key: str = "error"
    max_partition_bytes: int = 128 * 1024 * 1024
    infer_partition_types: bool = True
    merge_schema: bool = False
    timezone: str | None = None
    read_id: str = ""
    conditions: tuple[Compare, ...] = ()
    catch_filters: bool = False
    use_index: str = "auto"
    trust: str = "auto"
    dry_run: bool = False
    partition_by: tuple[str, ...] = ()

    @classmethod
    def parse(cls, options: Mapping[str, str], defaults: Defaults | None = None) -> SourceOptions:
        """Read what the user gave.

        Raises:
            UsageError: an option that looks like a secret, that is not known, or has no lawful value.
            PolicyError: the policy can't be used; or another KMS or policy than the session's.
        """
        defaults = defaults or Defaults()
        given = as_options(options)
        refuse_secrets(given)
        _refuse_another(given, defaults)
        if "provider" in given and "location" in given:
            # CREATE TABLE without columns. Of one with columns we are not asked, and later told nothing: see `_paths`.
            raise UsageError(
                "a catalog can't hold tables USING bloomseal: Spark would not tell us later where they are",
                hint="a temporary view USING bloomseal; or, in a classic session, USING parquet and bloomseal.spark.protect_table",
            )
        if unknown := sorted(given.keys() - _READERS.keys()):
            from difflib import get_close_matches

            near = get_close_matches(unknown[0], _READERS, n=1)
            raise UsageError(
                f"the data source has no option {unknown[0]}", hint=near[0] if near else ", ".join(_READERS)
            )
        read: dict[str, Any] = {name: _READERS[name](value, name) for name, value in given.items()}
        read["paths"] = _paths(read.pop("path", ""), read.pop("paths", None))
        kms = read.setdefault("kms", defaults.kms)
        table = _table(read.pop("policy", None), read.pop("table", None), read.pop("root", None), defaults, kms)
        if kms is None and table is not None:
            read["kms"] = table.kms
        return cls(**read, table=table)

    def kms_counters(self) -> Counters:
        """What this process has asked the KMS so far."""
        from ...keytools.kms.counters import Counters
        from ...keytools.sources import as_key_source
        from ...keytools.tools import KeyTools

        if self.kms is None:
            return Counters()
        given = self.decryption
        source = given.keys if isinstance(given, TablePolicy) else as_key_source(self.kms)
        return source.counters if isinstance(source, KeyTools) else Counters()

    @property
    def folder(self) -> str | None:
        """The table's, where that was said."""
        return None if self.table is None else self.table.root

    def parts(self, pieces: Sequence[Piece], log: Snapshot | None = None) -> TableParts:
        """Files as the parts of their table, see `parts_of`."""
        return parts_of(pieces, self.decryption, log, self.folder)

    def open(self, one: Piece, log: Snapshot | None = None) -> SealedFile:
        """Open one file where it was found.

        Raises:
            As `TableParts.open_named`.
        """
        return self.parts([one], log).open_named(0)

    def find_files(self, schema: StructType | None = None, zone: str | None = None) -> Tree:
        """The files of its paths, as `files.tree.find_files`.

        Args:
            schema: types of the partition columns, where they are given.
            zone: the session's time zone.

        Raises:
            PolicyError: the policy expects an encrypted Iceberg table, and there is none.
        """
        from .files.settled import settled
        from .files.tree import find_files

        keys = None if self.kms is None else DecryptionSpec(self.kms, partition_by=self.partition_by)
        expected = Expectation.of_table(self.table or keys)
        expected = replace(
            expected,
            encrypted_columns=expected.encrypted_columns | frozenset(self.encrypted_columns),
            complete=expected.complete and not self.allow_plaintext,
        )
        how: Any = {"zone": self.timezone or zone, "infer": self.infer_partition_types, "expected": expected}
        if (given := self.decryption) is not None and given.iceberg is not None:
            from ...storage.logs.iceberg_encrypted import IcebergOpening  # few tables need it

            how["iceberg"] = IcebergOpening(given.iceberg, iceberg_unwrap(given))
        return settled(map(split_uri, self.paths), lambda: find_files(self.paths, schema, **how))

    @cached_property
    def decryption(self) -> DecryptionSpec | TablePolicy | None:
        """How files are opened; None where nothing was said of keys or columns."""
        said: dict[str, Any] = {} if self.aad_prefix is None else {"aad_prefix": self.aad_prefix}
        if self.encrypted_columns:
            said["encrypted_columns"] = self.encrypted_columns
        if self.kms is None and self.table is None and not said:
            return None
        said |= {name: True for name in ("allow_plaintext", "allow_unverified_footer") if getattr(self, name)}
        if self.table is None:
            return DecryptionSpec(self.kms, **said)
        if self.allow_plaintext:
            said["complete"] = False  # whoever takes plaintext files takes their columns, but for those that are named
        return table_of(pickle.dumps(replace(self.table, reading=said) if said else self.table))

    def __getstate__(self) -> dict[str, Any]:
        # Each process has one of its own.
        return {name: value for name, value in self.__dict__.items() if name != "decryption"}

    def __repr__(self) -> str:
        return f"<SourceOptions {', '.join(self.paths)}>"


def as_options(options: Mapping[str, str]) -> dict[str, str]:
    """Options under the names that they have here; Spark tells small letters from large ones as little."""
    return {_SPARKS_NAMES.get(name.lower(), name.lower()): value for name, value in options.items()}


def _refuse_another(given: Mapping[str, str], defaults: Defaults) -> None:
    """A table of the catalog has options, too: whoever writes to it must not choose the KMS that gets our credentials
    and keys.
    """
    if given.get("kms") != defaults.kms:
        _refuse_library(given.get("kms", ""))
    said = {"kms": defaults.kms is not None and given.get("kms", defaults.kms) != defaults.kms}
    said["policy"] = defaults.policy is not None and "policy" in given
    for name in (name for name, another in said.items() if another):
        raise PolicyError(
            f"the option {name} stands against what the session was given",
            hint="it may be a catalog's; bloomseal.spark.enable changes the session's, bloomseal.spark.read takes policy=",
        )


def _refuse_library(kms: str) -> None:
    if "module-path" in unquote(kms).lower():
        # It would be loaded, and so run, by the driver and by all executors.
        raise PolicyError(
            "an option names a library, to be loaded beside the keys",
            hint="PKCS11_MODULE in the environment; or, in a classic session, bloomseal.spark.enable",
        )


def _optional_policy(path: str, kms: str | None) -> Policy:
    """A policy that an option names: it says keys and columns, and nothing is done for it beside that."""
    policy = Policy.load(path, kms=kms)
    for table in policy.tables.values():
        if table.access_log is not None:
            # A file of somebody's choice would get lines that he has a say in.
            raise PolicyError(
                "a policy that an option names has an access log",
                file=path,
                hint="a policy without access_log; or, in a classic session, bloomseal.spark.enable(spark, policy=...)",
            )
        if kms is None:
            _refuse_library(kms_uri(table))
    # Whoever names a policy to Spark does not choose who can read.
    return Policy(
        {name: replace(one, key_policies={}, kms=one.kms or "keyring:") for name, one in policy.tables.items()}
    )


def _table(
    named: str | None, table: str | None, root: str | None, defaults: Defaults, kms: str | None
) -> TablePolicy | None:
    policy = defaults.policy if named is None else _optional_policy(named, kms)
    if policy is None:
        if table is not None:
            raise UsageError("a table is named, but there is no policy", hint="the option policy, a policy file's path")
        return None
    chosen = table_policy(policy, table)
    if kms is not None:
        chosen = replace(chosen, kms=kms)
    kms_uri(chosen)
    return chosen if root is None else chosen.at(split_uri(root)[1])


def _paths(path: str, several: list[str] | None) -> tuple[str, ...]:
    if not path and several is None:
        raise UsageError(
            "no path; and of a table in a catalog Spark tells a data source in Python none",
            hint=".load(path); a temporary view USING bloomseal; or, in a classic session, USING parquet and protect_table",
        )
    return (*([path] if path else []), *(several or []))


def _text(value: str, name: str) -> str:  # noqa: ARG001
    return value


def _names(value: str, name: str) -> tuple[str, ...]:  # noqa: ARG001
    return tuple(filter(None, (one.strip() for one in value.split(","))))


def _one_of(*words: str) -> Callable[[str, str], str]:
    def read(value: str, name: str) -> str:
        if value.lower() not in words:
            raise UsageError(f"the option {name} is {' or '.join(words)}")
        return value.lower()

    return read


def _flag(value: str, name: str) -> bool:
    return _one_of("true", "false")(value, name) == "true"


def _positive(value: str, name: str) -> int:
    if not value.strip().isdecimal() or not int(value):
        raise UsageError(f"the option {name} is a whole number, at least 1")
    return int(value)


def _conditions(value: str, name: str) -> tuple[Compare, ...]:  # noqa: ARG001
    from .pushdown import from_text

    return from_text(value)


_SPARKS_NAMES: Final = {"mergeschema": "merge_schema"}
_READERS: Final[Mapping[str, Callable[[str, str], Any]]] = {
    **dict.fromkeys(("aad_prefix", "kms", "path", "policy", "read_id", "root", "table", "timezone"), _text),
    **dict.fromkeys(
        (
            "allow_plaintext", "allow_unverified_footer", "catch_filters", "dry_run", "infer_partition_types",
            "merge_schema",
        ),
        _flag,
    ),
    "columns_without_key": _one_of(*get_args(WithoutKey)),
    "conditions": _conditions,
    "encrypted_columns": _names,
    "max_partition_bytes": _positive,
    "partition_by": _names,
    "paths": lambda value, _: json.loads(value),
    "trust": _one_of("auto", "time", "identity"),
    "use_index": _one_of("auto", "never", "require"),
}  # fmt: skip
"""Option → what reads its value. Most are fields of `SourceOptions`."""
