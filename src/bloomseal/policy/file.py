"""Reading the policy file: every entry must be understood, for a misspelt setting could be the one that encrypts."""

from __future__ import annotations

import hashlib
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..core.decryption import IcebergSpec
from ..core.encryption import Algorithm
from ..core.errors import BloomsealError, Hint, PolicyError, UsageError
from ..core.limits import MAX_POLICY_BYTES
from ..core.spelling import nearest
from ..core.storage.local import read_small
from ..core.storage.ref import FileRef
from ..storage.places import is_object, resolve_path
from .keys import KeyPolicy
from .places import keyring_beside, root_beside
from .table import ColumnPolicy, IndexPolicy, PolicyOrigin, Sensitivity, TablePolicy

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

    from ..sbbf import FilterSpec

_VERSION: Final = 1
_MAX_DAYS: Final = 36_500
_SETTINGS: Final = {
    "aad_prefix": str,
    "access_log": str,
    "algorithm": str,
    "allow_ctr": bool,
    "authentic_writers": bool,
    "complete": bool,
    "double_wrapping": bool,
    "kek_bits": int,
    "key_bits": int,
    "material": str,
    "plaintext_footer": bool,
    "seal_limit": int,
    "store_aad_prefix": bool,
}
_FILTER: Final = {"fpp": (float, int), "ndv": int, "num_bytes": int, "hide_size": bool, "max_bytes": int}
_INDEX: Final = {"false_places": (float, int), "pad": bool, "max_keys": int, "purge_days": int}


class Policy:
    """The policies of all tables.

    Args:
        tables: name → policy.
        origin: the file that they were read from.
    """

    def __init__(self, tables: Mapping[str, TablePolicy], origin: PolicyOrigin | None = None) -> None:
        self.tables = dict(tables)
        self.origin = origin

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, kms: Any = None) -> Policy:
        """Read a policy file.

        Args:
            path: TOML. A keyring and roots of tables that it names by relative paths are counted from its folder.
            kms: takes the place of the KMS that the file names.

        Raises:
            PolicyError: it can't be read, or says something that is not understood. Nothing is skipped: a misspelt
                setting could be the one that encrypts.
        """
        if not isinstance(path, str | os.PathLike):
            raise PolicyError(f"a policy's path is a str or an os.PathLike, not {type(path).__name__}")
        try:
            data = read_small(path, MAX_POLICY_BYTES)
            if len(data) > MAX_POLICY_BYTES:
                raise PolicyError(f"a policy of more than {MAX_POLICY_BYTES} bytes", file=os.fspath(path))
            document = tomllib.loads(data.decode())
        except OSError as error:
            raise PolicyError(f"the policy can't be read: {error.strerror}", file=os.fspath(path)) from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise PolicyError(f"the policy is not TOML: {error}", file=os.fspath(path)) from None
        origin = PolicyOrigin(os.fspath(path), hashlib.sha256(data).hexdigest())
        folder = str(Path(path).absolute().parent)  # links stay as they are
        try:
            if kms is None and isinstance(document.get("kms"), str):
                document["kms"] = keyring_beside(document["kms"], folder)
            made = {
                name: replace(table, root=root_beside(table.root, folder), origin=origin)
                for name, table in cls.from_dict(document, kms=kms).tables.items()
            }
            return cls(made, origin)
        except BloomsealError as error:
            raise error.at(file=os.fspath(path)) from error.__cause__

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], *, kms: Any = None) -> Policy:
        """A policy from plain data of the file's shape.

        Raises:
            PolicyError: as `load`.
        """
        top = _Reader(document, "the policy")
        if top.take("version", int, None) != _VERSION:
            raise PolicyError(f"the policy is not of version {_VERSION}", hint=f"version = {_VERSION}")
        named = top.take("kms", str, None)
        urls = top.strings("allowed_kms_urls")
        defaults = top.inner("defaults").settings()
        keys = top.inner("keys")
        key_policies = {name: _key(keys.inner(name)) for name in keys.names()}
        tables = top.inner("tables")
        top.done()
        more = {"kms": kms or named or "keyring:", "allowed_kms_urls": urls, "key_policies": key_policies}
        made = {name: _table(name, tables.inner(name), defaults, **more) for name in tables.names()}
        used = {key for table in made.values() for key in table.master_keys}
        for name in sorted(key_policies.keys() - used):
            raise PolicyError(
                f"keys.{name}: no table has a master key of this name", hint=f"one of {', '.join(nearest(name, used))}"
            )
        if (kms or named) is None:
            # Who writes for recipients only needs no KMS.
            made = {name: replace(one, kms=None) if one.needs_no_kms else one for name, one in made.items()}
        return cls(made)

    def for_table(
        self,
        name: str | None = None,
        *,
        root: str | os.PathLike[str] | None = None,
        place: Any = (),
        filesystem: FileSystem | None = None,
    ) -> TablePolicy:
        """One table's policy.

        Args:
            name: the table's. None: the only table; or, of several, that in whose root all of `place` lies.
            root: the table's folder, for AAD prefixes with ``{path}`` (`TablePolicy.at`); None: the policy's own word.
            place: what is read or written: a path, or several.
            filesystem: on which `place` lies.

        Raises:
            PolicyError: the policy says nothing of it.
            UsageError: no name, and several tables.
        """
        if name is None:
            name = self._name_for(place, filesystem)
        if (table := self.tables.get(name)) is None:
            raise PolicyError(
                f"the policy has no table {name!r}", hint=f"known: {', '.join(sorted(self.tables)) or 'none'}"
            )
        return table if (root := root or table.root) is None else table.at(root)

    def _name_for(self, place: Any, filesystem: FileSystem | None) -> str:
        if len(self.tables) == 1:
            return next(iter(self.tables))
        alone = isinstance(place, str | os.PathLike | FileRef)
        several: Iterable[Any] = (place,) if alone else () if is_object(place) else place
        found = {self._name_at(resolve_path(one, filesystem)) for one in several}
        if len(found) == 1 and (name := found.pop()) is not None:
            return name
        what = f"no table of the policy is named, and it has several: {', '.join(sorted(self.tables)) or 'none'}"
        raise UsageError(what, hint=Hint.TABLE)

    def _name_at(self, ref: FileRef) -> str | None:
        """The table in whose folder a place lies; of folders in one another the innermost counts."""
        remote = ref.filesystem is not None
        roots = {name: table.root for name, table in self.tables.items() if table.root is not None}
        found = [name for name, root in roots.items() if ("://" in root) is remote and self.for_table(name).holds(ref)]
        return max(found, key=lambda name: len(roots[name]), default=None)

    def __repr__(self) -> str:
        return f"<Policy: {', '.join(sorted(self.tables)) or 'no tables'}>"


PolicyChoice = Policy | TablePolicy | str | os.PathLike[str]
"""A table's policy, those of several tables, or the file that has them."""


def table_policy(
    policy: PolicyChoice, table: str | None = None, place: Any = (), filesystem: FileSystem | None = None
) -> TablePolicy:
    """The policy of one table, as `Policy.for_table` finds it.

    Raises:
        UsageError, PolicyError: as there; or another table than the one whose policy was given.
    """
    if not isinstance(policy, Policy | TablePolicy):
        policy = Policy.load(policy)
    if isinstance(policy, Policy):
        return policy.for_table(table, place=place, filesystem=filesystem)
    if table not in (None, policy.name):
        raise UsageError(f"the policy is that of table {policy.name}, and not of {table!r}", hint=Hint.TABLE)
    return policy


def _table(name: str, entry: _Reader, defaults: dict[str, Any], **more: Any) -> TablePolicy:
    columns = entry.inner("columns")
    arguments = {
        "footer_key": entry.take("footer_key", str),
        "previous_footer_keys": entry.strings("previous_footer_keys"),
        "previous_aad_prefixes": entry.strings("previous_aad_prefixes"),
        "root": entry.take("root", str, None),
        "partition_by": entry.strings("partition_by"),
        "iceberg": _iceberg(entry),
        "signers": _signers(entry),
        "columns": {column: _column(columns.inner(column)) for column in columns.names()},
        **defaults,
        **entry.settings(),
        **more,
    }
    entry.done()
    return TablePolicy(name=name, **arguments)


def _iceberg(entry: _Reader) -> IcebergSpec | None:
    if not isinstance(given := entry.take("iceberg", dict, None), dict):
        return None
    inner = _Reader(given, f"{entry.where}.iceberg")
    spec = IcebergSpec(
        inner.take("encryption_key", str),
        inner.take("min_sequence_number", int, None),
        allow_unknown_length=inner.take("allow_unknown_length", bool, False),
    )
    inner.done()
    return spec


def _signers(entry: _Reader) -> dict[str, tuple[str, ...]]:
    said, inner = "signers" in entry.names(), entry.inner("signers")
    if said and not inner.names():  # the last one was revoked: nobody may write then, not everybody
        raise PolicyError(f"{entry.where}: signers without any", hint="leave it out, so that anybody may write")
    return {name: inner.one_or_more(name) for name in inner.names()}


def _column(entry: _Reader) -> ColumnPolicy:
    sensitivity = entry.take("sensitivity", str, Sensitivity.INTERNAL.value)
    if sensitivity not in tuple(Sensitivity):
        raise PolicyError(f"{entry.where}: no sensitivity {sensitivity!r}", hint=", ".join(Sensitivity))
    column = ColumnPolicy(
        key=entry.take("key", str, None),
        sensitivity=Sensitivity(sensitivity),
        filter=_filter(entry),
        previous_keys=entry.strings("previous_keys"),
        requirements=entry.one_or_more("requirement"),
        index=_index(entry),
    )
    entry.done()
    return column


def _key(entry: _Reader) -> KeyPolicy:
    given = {
        "owner": entry.take("owner", str, None),
        "custodian": entry.take("custodian", str, None),
        "users": entry.strings("users"),
        "activation": entry.day("activation"),
        "originator_usage": entry.days("originator_usage_days"),
        "recipient_usage": entry.days("recipient_usage_days"),
        "expiry": entry.day("expiry"),
        "compromised": entry.strings("compromised"),
        "dual_control": entry.take("dual_control", bool, False),
        "recipients": entry.strings("recipients", some=True),
    }
    entry.done()
    try:
        return KeyPolicy(**given)
    except PolicyError as error:
        raise PolicyError(f"{entry.where}: {error.what}", hint=error.hint) from None


def _index(entry: _Reader) -> IndexPolicy | None:
    wanted = entry.take("index", (bool, dict), False)
    if not isinstance(wanted, dict):
        return IndexPolicy() if wanted else None
    inner = _Reader(wanted, f"{entry.where}.index")
    index = IndexPolicy(**inner.optional(_INDEX))
    inner.done()
    if not 0 < index.false_places < 1:
        raise PolicyError(f"{inner.where}: false_places lies between 0 and 1", hint="false_places = 0.001")
    if index.max_keys is not None and index.max_keys < 1:
        raise PolicyError(f"{inner.where}: max_keys is a number of values", hint="max_keys = 100000")
    return index


def _filter(entry: _Reader) -> FilterSpec | None:
    from ..sbbf import FilterSpec

    wanted = entry.take("filter", (bool, dict), False)
    if not isinstance(wanted, dict):
        return FilterSpec() if wanted else None
    inner = _Reader(wanted, f"{entry.where}.filter")
    given = inner.optional(_FILTER)
    inner.done()
    try:
        return FilterSpec(**given)
    except BloomsealError as error:
        raise PolicyError(f"{inner.where}: {error.what}", hint=error.hint) from None


class _Reader:
    """A TOML table whose every entry must be asked for."""

    def __init__(self, entries: object, where: str) -> None:
        if not isinstance(entries, Mapping):
            raise PolicyError(f"{where} is not a table")
        self._rest, self._given = dict(entries), frozenset(entries)
        self._known: list[str] = []
        self.where = where

    def names(self) -> tuple[str, ...]:
        return tuple(self._rest)

    def take(self, name: str, kind: type | tuple[type, ...], default: Any = ...) -> Any:
        self._known.append(name)
        value = self._rest.pop(name, default)
        if value is ...:
            raise PolicyError(f"{self.where} lacks {name}")
        kinds = kind if isinstance(kind, tuple) else (kind,)
        # To Python True is an int; to the author of a policy it isn't.
        if value is not default and (not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)):
            raise PolicyError(f"{self.where}: {name} is not {' or '.join(kind.__name__ for kind in kinds)}")
        if value == "":
            raise PolicyError(f"{self.where}: {name} is empty", hint="leave it out")
        return value

    def optional(self, kinds: Mapping[str, Any]) -> dict[str, Any]:
        """Of these entries, by name and kind, those that are there."""
        self._known += kinds
        return {name: self.take(name, kind) for name, kind in kinds.items() if name in self._rest}

    def strings(self, name: str, *, some: bool = False) -> tuple[str, ...]:
        values = self.take(name, list, [])
        if some and values == [] and name in self._given:
            raise PolicyError(f"{self.where}: {name} without any", hint="leave it out")
        if not all(isinstance(value, str) and value for value in values):
            raise PolicyError(f"{self.where}: {name} is not a list of texts")
        return tuple(values)

    def one_or_more(self, name: str) -> tuple[str, ...]:
        """A text, or a list of texts."""
        if isinstance(self._rest.get(name), str):
            return (self.take(name, str),)
        return self.strings(name)

    def day(self, name: str) -> date | None:
        value: date | None = self.take(name, date, None)
        if isinstance(value, datetime):
            raise PolicyError(f"{self.where}: {name} is a day, without a time", hint=f"{name} = 2026-01-31")
        return value

    def days(self, name: str) -> timedelta | None:
        days = self.take(name, int, None)
        if days is not None and not 1 <= days <= _MAX_DAYS:
            raise PolicyError(f"{self.where}: {name} lies between 1 and {_MAX_DAYS}")
        return None if days is None else timedelta(days=days)

    def inner(self, name: str) -> _Reader:
        self._known.append(name)
        where = name if self.where == "the policy" else f"{self.where}.{name}"
        return _Reader(self._rest.pop(name, {}), where)

    def settings(self) -> dict[str, Any]:
        """The settings that defaults and tables share, as `TablePolicy` names them."""
        age = self.days("max_key_age_days")
        given = self.optional(_SETTINGS)
        if "algorithm" in given:
            if given["algorithm"] not in tuple(Algorithm):
                raise PolicyError(f"{self.where}: no algorithm {given['algorithm']!r}", hint=" or ".join(Algorithm))
            given["algorithm"] = Algorithm(given["algorithm"])
        if "material" in given:
            if (material := given.pop("material")) not in ("internal", "external"):
                raise PolicyError(f"{self.where}: no material {material!r}", hint="internal or external")
            given["internal"] = material == "internal"
        if age is not None:
            given["max_key_age"] = age
        if self.where == "defaults":
            self.done()
        return given

    def done(self) -> None:
        if self._rest:
            unknown = sorted(self._rest, key=repr)
            raise PolicyError(
                f"{self.where}: {', '.join(map(repr, unknown))} is not understood",
                hint=f"one of {', '.join(nearest(unknown[0], self._known, most=len(self._known)))}",
            )
