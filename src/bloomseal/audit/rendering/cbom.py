"""A cryptography bill of materials (CycloneDX 1.6 or 1.7): algorithms, keys and tables. Never files: they are
too many.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from ..._version import __version__
from ...core.text import safe_text
from ...storage.logs.snapshot import library
from ..report import Report

__all__ = ["VERSIONS", "Life", "to_cbom"]

_NAMES: Final = {
    "model": ("Property",),
    "model.bom": ("Bom",),
    "model.bom_ref": ("BomRef",),
    "model.component": ("Component", "ComponentType"),
    "model.crypto": (
        "AlgorithmProperties",
        "CryptoAssetType",
        "CryptoFunction",
        "CryptoMode",
        "CryptoPrimitive",
        "CryptoProperties",
        "RelatedCryptoMaterialProperties",
        "RelatedCryptoMaterialSecuredBy",
        "RelatedCryptoMaterialState",
        "RelatedCryptoMaterialType",
    ),
    "output": ("make_outputter",),
    "schema": ("OutputFormat", "SchemaVersion"),
}
_NAMESPACE: Final = uuid.UUID("5f0b6f3a-6a0f-5f2f-9c7e-0a3f5d1b7c21")


VERSIONS: Final = ("1.6", "1.7")
Files = np.ndarray[Any, Any]
"""Numbers of files, each once."""


class Life(Protocol):
    """What somebody knows of a master key version beyond the files (`bloomseal.evidence`): its SP 800-57 state and
    dates in UTC, its length in bits, who owns it; None is not known.
    """

    @property
    def state(self) -> str: ...
    @property
    def created(self) -> datetime | None: ...
    @property
    def activation(self) -> datetime | None: ...
    @property
    def expiry(self) -> datetime | None: ...
    @property
    def recipient_usage_ends(self) -> datetime | None: ...
    @property
    def bits(self) -> int | None: ...
    @property
    def owner(self) -> str | None: ...
    @property
    def custodian(self) -> str | None: ...


def to_cbom(report: Report, *, version: str = "1.6", lives: Mapping[tuple[str, str | None], Life] | None = None) -> str:
    """The bill as JSON; the same inventory gives the same text (its moment is that of the youngest file).

    Tables depend on the data keys of their files, those on the key encryption keys and master key versions that wrap
    them, all of them on their algorithms. Keys of one kind under one master key version are one component.

    Args:
        version: of CycloneDX, one of `VERSIONS`.
        lives: master key and version → what is known of it; versions that no file is under are listed too.

    Raises:
        MissingDependencyError: `cyclonedx-python-lib` is not installed.
    """
    model = library("cyclonedx-python-lib", "report", _cyclonedx)
    schema = model.SchemaVersion[f"V{version.replace('.', '_')}"]
    bom = _Bill(model, report, lives or {}).bom()
    text: str = model.make_outputter(bom, model.OutputFormat.JSON, schema).output_as_string(indent=2)
    return json.dumps(json.loads(text), indent=2, ensure_ascii=False, sort_keys=True) + "\n"


_Name = tuple[str, str | None, str, int | None]
"""Data keys of one kind: master key, version, algorithm, bits."""


def _none() -> Files:
    return np.empty(0, np.int32)


@dataclass
class _Group:
    """Keys of one kind: what is counted of them."""

    files: Files = field(default_factory=_none)
    columns: set[str] = field(default_factory=set)
    states: set[str] = field(default_factory=set)
    keks: int = 0
    keys: int = 0


class _Bill:
    def __init__(self, model: Any, report: Report, lives: Mapping[tuple[str, str | None], Life]) -> None:
        self.m = model
        self.lives = lives
        self.unseen = [*report.unseen, *report.hidden]
        self.moment = datetime.fromtimestamp(0, UTC)
        self.algorithms: dict[tuple[str, str, str], Files] = {}
        self.masters: dict[tuple[str, str | None], _Group] = {name: _Group() for name in lives}
        self.data_keys: dict[_Name, _Group] = {}
        self.tables: dict[str, tuple[Files, set[_Name]]] = {}
        for life in lives.values():
            for one in _of_master(life.bits):
                self.algorithms.setdefault(one, _none())
        for row in _rows(report.inventory):
            self._take(row)

    def bom(self) -> Any:
        m = self.m
        made = {name: self._algorithm(*name, files) for name, files in sorted(self.algorithms.items())}
        masters = {name: self._master(name, group) for name, group in sorted(self.masters.items(), key=repr)}
        keks = {name: self._keks(name, group) for name, group in sorted(self.masters.items(), key=repr) if group.keks}
        keys = {name: self._data_keys(name, group) for name, group in sorted(self.data_keys.items(), key=repr)}
        tables = {name: self._table(name, files) for name, (files, _) in sorted(self.tables.items())}
        bom = m.Bom(components=[*made.values(), *masters.values(), *keks.values(), *keys.values(), *tables.values()])
        for name, component in keys.items():
            wrapping = keks.get(name[:2]) or masters[name[:2]]
            bom.register_dependency(component, [wrapping, *(made[one] for one in _modes(name[2], name[3]))])
        for short, component in keks.items():
            bom.register_dependency(component, [masters[short]])
        for short, component in masters.items():
            bits = self.lives[short].bits if short in self.lives else None
            bom.register_dependency(component, [made[one] for one in _of_master(bits) if one in made])
        for table, component in tables.items():
            bom.register_dependency(component, [keys[one] for one in sorted(self.tables[table][1], key=repr)])
        bom.metadata.timestamp = self.moment
        for text in self.unseen:  # there may be more keys than these
            bom.metadata.properties.add(m.Property(name="bloomseal:not_seen", value=safe_text(text)))
        bom.metadata.tools.components.add(
            m.Component(name="bloomseal", version=__version__, type=m.ComponentType.APPLICATION)
        )
        identity = "".join(repr(sorted(one, key=repr)) for one in (self.masters, self.algorithms, self.tables))
        bom.serial_number = uuid.uuid5(_NAMESPACE, hashlib.sha256(identity.encode()).hexdigest())
        return bom

    def _take(self, row: dict[str, Any]) -> None:
        files = row["file_distinct"]
        if row["file_modified_max"] is not None:
            self.moment = max(self.moment, row["file_modified_max"].astimezone(UTC))
        named: set[_Name] = set()
        if row["table"] is not None:
            before, named = self.tables.get(row["table"], (_none(), named))
            self.tables[row["table"]] = np.union1d(before, files), named
        if row["algorithm"] is None:
            return
        own = row["protection"] == "column key"
        keys = [] if row["algorithm"].startswith(_ORC) else [("footer_", "footer")]  # an ORC footer has none
        for prefix, column in (*keys, *((("", row["column"]),) if own else ())):
            bits, master, version = (row[f"{prefix}{name}"] for name in ("key_bits", "master_key", "key_version"))
            for one in _modes(row["algorithm"], bits):
                self.algorithms[one] = np.union1d(self.algorithms.get(one, _none()), files)
            if master is None:
                continue
            name = (master, version, row["algorithm"], bits)
            for group in (
                self.masters.setdefault((master, version), _Group()),
                self.data_keys.setdefault(name, _Group()),
            ):
                group.files = np.union1d(group.files, files)
                group.columns.add(column)
                group.states |= {row[f"{prefix}key_state"]} - {None}
                group.keks = max(group.keks, row[f"{prefix}kek_id_count_distinct"])
                group.keys = max(group.keys, row[f"{prefix}data_key_count_distinct"])
            named.add(name)

    def _algorithm(self, name: str, mode: str, bits: str, files: Files) -> Any:
        m = self.m
        return m.Component(
            name=name,
            type=m.ComponentType.CRYPTOGRAPHIC_ASSET,
            bom_ref=f"algorithm:{name}",
            crypto_properties=m.CryptoProperties(
                asset_type=m.CryptoAssetType.ALGORITHM,
                algorithm_properties=m.AlgorithmProperties(
                    primitive=m.CryptoPrimitive.AE if mode == "gcm" else m.CryptoPrimitive.BLOCK_CIPHER,
                    parameter_set_identifier=bits,
                    mode=m.CryptoMode(mode),
                    crypto_functions=[m.CryptoFunction.ENCRYPT, m.CryptoFunction.DECRYPT],
                ),
            ),
            properties=[m.Property(name="bloomseal:files", value=str(len(files)))],
        )

    def _master(self, name: tuple[str, str | None], group: _Group) -> Any:
        m, life = self.m, self.lives.get(name)
        properties = {"files": str(len(group.files)), "columns": ", ".join(sorted(group.columns)[:200])}
        if life is not None:
            properties |= {"owner": life.owner or "", "custodian": life.custodian or ""}
        more = {
            "size": life.bits,
            "creation_date": life.created,
            "activation_date": life.activation,
            "expiration_date": life.expiry or life.recipient_usage_ends,
        } if life is not None else {}  # fmt: skip
        return self._key(
            f"master-key:{name[0]}:{name[1] or 'unknown'}",
            name[0],
            name[1] or "unknown",
            _state(m, group.states, life),
            properties,
            algorithm=next((f"algorithm:{one[0]}" for one in _of_master(life.bits)), None)
            if life is not None
            else None,
            **more,
        )

    def _keks(self, name: tuple[str, str | None], group: _Group) -> Any:
        short = f"{name[0]}:{name[1] or 'unknown'}"
        return self._key(
            f"key-encryption-keys:{short}",
            f"key encryption keys under {name[0]}",
            name[1] or "unknown",
            None,
            {"files": str(len(group.files)), "keys-at-least": str(group.keks)},
        )

    def _data_keys(self, name: _Name, group: _Group) -> Any:
        master, version, algorithm, bits = name
        first = _modes(algorithm, bits)[0]
        return self._key(
            f"data-keys:{master}:{version or 'unknown'}:{algorithm}:{bits or 'unknown'}",
            f"data keys under {master}",
            version or "unknown",
            None,
            {
                "files": str(len(group.files)),
                "columns": ", ".join(sorted(group.columns)[:200]),
                "keys-at-least": str(group.keys),
            },
            algorithm=f"algorithm:{first[0]}",
            size=bits,
            secured_by=self.m.RelatedCryptoMaterialSecuredBy(mechanism="wrapped under a master key"),
        )

    def _key(
        self,
        ref: str,
        name: str,
        version: str,
        state: Any,
        properties: Mapping[str, str],
        *,
        algorithm: str | None = None,
        **more: Any,
    ) -> Any:
        m = self.m
        return m.Component(
            name=name,
            version=version,
            type=m.ComponentType.CRYPTOGRAPHIC_ASSET,
            bom_ref=ref,
            crypto_properties=m.CryptoProperties(
                asset_type=m.CryptoAssetType.RELATED_CRYPTO_MATERIAL,
                related_crypto_material_properties=m.RelatedCryptoMaterialProperties(
                    type=m.RelatedCryptoMaterialType.SECRET_KEY,
                    id=ref,
                    state=state,
                    algorithm_ref=None if algorithm is None else m.BomRef(algorithm),
                    **more,
                ),
            ),
            properties=[m.Property(name=f"bloomseal:{one}", value=value) for one, value in properties.items() if value],
        )

    def _table(self, name: str, files: Files) -> Any:
        m = self.m
        return m.Component(
            name=name,
            type=m.ComponentType.DATA,
            bom_ref=f"table:{name}",
            properties=[m.Property(name="bloomseal:files", value=str(len(files)))],
        )


_OF_ROWS: Final = (
    "table", "algorithm", "column", "protection", "key_bits", "master_key", "key_version", "key_state",
    "footer_key_bits", "footer_master_key", "footer_key_version", "footer_key_state",
)  # fmt: skip
_COUNTED: Final = ("data_key", "kek_id", "footer_data_key", "footer_kek_id")


def _rows(inventory: pa.Table) -> list[dict[str, Any]]:
    """The inventory, what is alike together: a million column chunks give some dozens of rows."""

    def numbers(name: str) -> Any:
        column = inventory[name]
        return pa.chunked_array([chunk.indices for chunk in column.unify_dictionaries().chunks], pa.int32())

    plain = pa.table(
        {
            **{
                name: inventory[name].cast(pa.string())
                if pa.types.is_dictionary(inventory[name].type)
                else inventory[name]
                for name in _OF_ROWS
            },
            **{name: numbers(name) for name in (*_COUNTED, "file")},
            "file_modified": inventory["file_modified"],
        }
    )
    counts = [(name, "count_distinct") for name in _COUNTED]
    grouped = plain.group_by(list(_OF_ROWS)).aggregate([("file", "distinct"), ("file_modified", "max"), *counts])
    rows: list[dict[str, Any]] = grouped.drop_columns("file_distinct").to_pylist()
    files = grouped["file_distinct"].combine_chunks()
    return [row | {"file_distinct": files[index].values.to_numpy()} for index, row in enumerate(rows)]


_ORC: Final = "AES_CTR"
"""Begins the names of ORC's algorithms."""


def _modes(algorithm: str, bits: int | None) -> list[tuple[str, str, str]]:
    size = str(bits) if bits else "unknown"
    modes = ("gcm", "ctr") if algorithm == "AES_GCM_CTR_V1" else ("gcm",)
    if algorithm.startswith(_ORC):
        modes = ("ctr",)
    return [(f"AES-{size}-{mode.upper()}", mode, size) for mode in modes]


def _of_master(bits: int | None) -> list[tuple[str, str, str]]:
    """The algorithm of a master key; only that of a keyring's is known here, whose lengths are told."""
    return _modes("AES_GCM_V1", bits) if bits else []


def _state(m: Any, states: set[str], life: Life | None) -> Any:
    known = m.RelatedCryptoMaterialState
    if life is not None:
        return known(life.state) if life.state in {one.value for one in known} else None
    if "destroyed" in states:
        return known.DESTROYED
    if states & {"disabled", "pending deletion"}:
        return known.SUSPENDED
    return known.ACTIVE if "enabled" in states else None


def _cyclonedx() -> Any:
    found = SimpleNamespace()
    for module, names in _NAMES.items():
        loaded = import_module(f"cyclonedx.{module}")
        for name in names:
            setattr(found, name, getattr(loaded, name))
    return found
