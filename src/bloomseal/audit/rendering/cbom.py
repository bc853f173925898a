"""A cryptography bill of materials (CycloneDX 1.6): algorithms, master keys and tables. Never files: they are too many."""

from __future__ import annotations

import hashlib
import json
import uuid
from datetime import UTC, datetime
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Final

from ..._version import __version__
from ...storage.snapshot import library
from ..report import Report

__all__ = ["to_cbom"]

_NAMES: Final = {
    "model": ("Property",),
    "model.bom": ("Bom",),
    "model.component": ("Component", "ComponentType"),
    "model.crypto": (
        "AlgorithmProperties",
        "CryptoAssetType",
        "CryptoFunction",
        "CryptoMode",
        "CryptoPrimitive",
        "CryptoProperties",
        "RelatedCryptoMaterialProperties",
        "RelatedCryptoMaterialState",
        "RelatedCryptoMaterialType",
    ),
    "output": ("make_outputter",),
    "schema": ("OutputFormat", "SchemaVersion"),
}
_NAMESPACE: Final = uuid.UUID("5f0b6f3a-6a0f-5f2f-9c7e-0a3f5d1b7c21")


def to_cbom(report: Report) -> str:
    """The bill as JSON; the same inventory gives the same text (its moment is that of the youngest file).

    Raises:
        MissingDependencyError: `cyclonedx-python-lib` is not installed.
    """
    model = library("cyclonedx-python-lib", "report", _cyclonedx)
    bom = _bom(model, report)
    text: str = model.make_outputter(bom, model.OutputFormat.JSON, model.SchemaVersion.V1_6).output_as_string(indent=2)
    return json.dumps(json.loads(text), indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def _bom(m: Any, report: Report) -> Any:
    facts = _facts(report)
    algorithms = {
        name: m.Component(
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
        for (name, mode, bits), files in sorted(facts["algorithms"].items())
    }
    keys = [
        m.Component(
            name=key,
            version=version,
            type=m.ComponentType.CRYPTOGRAPHIC_ASSET,
            bom_ref=f"master-key:{key}:{version}",
            crypto_properties=m.CryptoProperties(
                asset_type=m.CryptoAssetType.RELATED_CRYPTO_MATERIAL,
                related_crypto_material_properties=m.RelatedCryptoMaterialProperties(
                    type=m.RelatedCryptoMaterialType.SECRET_KEY, id=f"{key}:{version}", state=_state(m, found["states"])
                ),
            ),
            properties=[
                m.Property(name="bloomseal:files", value=str(len(found["files"]))),
                m.Property(name="bloomseal:columns", value=", ".join(sorted(found["columns"])[:200])),
            ],
        )
        for (key, version), found in sorted(facts["keys"].items())
    ]
    tables = [
        m.Component(
            name=name,
            type=m.ComponentType.DATA,
            bom_ref=f"table:{name}",
            properties=[m.Property(name="bloomseal:files", value=str(len(files)))],
        )
        for name, files in sorted(facts["tables"].items())
    ]
    bom = m.Bom(components=[*algorithms.values(), *keys, *tables])
    bom.metadata.timestamp = facts["moment"]
    bom.metadata.tools.components.add(
        m.Component(name="bloomseal", version=__version__, type=m.ComponentType.APPLICATION)
    )
    identity = repr(sorted(facts["keys"])) + repr(sorted(facts["algorithms"])) + repr(sorted(facts["tables"]))
    bom.serial_number = uuid.uuid5(_NAMESPACE, hashlib.sha256(identity.encode()).hexdigest())
    return bom


def _facts(report: Report) -> dict[str, Any]:
    algorithms: dict[tuple[str, str, str], set[str]] = {}
    keys: dict[tuple[str, str], dict[str, set[str]]] = {}
    tables: dict[str, set[str]] = {}
    moment = datetime.fromtimestamp(0, UTC)

    def algorithm(row: dict[str, Any], bits: int | None) -> None:
        size = str(bits) if bits else "unknown"
        modes = ("gcm", "ctr") if row["algorithm"] == "AES_GCM_CTR_V1" else ("gcm",)
        for mode in modes:
            algorithms.setdefault((f"AES-{size}-{mode.upper()}", mode, size), set()).add(row["file"])

    def master(key: str | None, version: str | None, state: str | None, row: dict[str, Any], column: str) -> None:
        if key is not None:
            found = keys.setdefault((key, version or "unknown"), {"files": set(), "columns": set(), "states": set()})
            found["files"].add(row["file"])
            found["columns"].add(column)
            if state is not None:
                found["states"].add(state)

    names = [
        "file", "table", "file_modified", "algorithm", "column", "protection", "key_bits", "master_key", "key_version", "key_state",
        "footer_key_bits", "footer_master_key", "footer_key_version", "footer_key_state",
    ]  # fmt: skip
    for row in report.inventory.select(names).to_pylist():
        if row["table"] is not None:
            tables.setdefault(row["table"], set()).add(row["file"])
        if row["file_modified"] is not None:
            moment = max(moment, row["file_modified"].astimezone(UTC))
        if row["algorithm"] is None:
            continue
        algorithm(row, row["footer_key_bits"])
        master(row["footer_master_key"], row["footer_key_version"], row["footer_key_state"], row, "footer")
        if row["protection"] == "column key":
            algorithm(row, row["key_bits"])
            master(row["master_key"], row["key_version"], row["key_state"], row, row["column"])
    return {"algorithms": algorithms, "keys": keys, "tables": tables, "moment": moment}


def _state(m: Any, states: set[str]) -> Any:
    known = m.RelatedCryptoMaterialState
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
