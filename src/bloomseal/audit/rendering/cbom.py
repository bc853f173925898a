"""A cryptography bill of materials (CycloneDX 1.6 or 1.7): algorithms, keys and tables. Never files: they are
too many.

It is written as JSON, since the objects of cyclonedx-python-lib for these few kinds of components took more lines;
tests validate it against that library's schemas.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow.compute as pc

from ..._version import __version__
from ...core.text import safe_text
from ...keytools.recipients.hpke import KeyKind
from ...keytools.recipients.recipient import kind_of
from ..facts.groups import groups
from ..facts.uses import FOOTER, KEK, Use, total, uses_of
from ..report import Report

_NAMESPACE: Final = uuid.UUID("5f0b6f3a-6a0f-5f2f-9c7e-0a3f5d1b7c21")
_STATES: Final = ("pre-activation", "active", "suspended", "deactivated", "compromised", "destroyed")
_ASSET: Final = "cryptographic-asset"
VERSIONS: Final = ("1.6", "1.7")
Lives = Mapping[tuple[str, str | None], Mapping[str, Any]]


def to_cbom(report: Report, *, version: str = "1.6", lives: Lives | None = None) -> str:
    """The bill as JSON; the same inventory gives the same text (its moment is that of the youngest file).

    Tables depend on the data keys of their files, those on the key encryption keys and master key versions that wrap
    them, all of them on their algorithms. Keys of one kind under one master key version are one component.

    Args:
        version: of CycloneDX, one of `VERSIONS`.
        lives: master key and version → what is known of it beyond the files, as the keys of ``evidence.json`` have it;
            versions that no file is under are listed too.
    """
    bom = {
        "$schema": f"http://cyclonedx.org/schema/bom-{version}.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": version,
        "version": 1,
        **_Bill(report, lives or {}).content(),
    }
    return json.dumps(bom, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


_Name = tuple[str, str | None, str, int | None]
"""Data keys of one kind: master key, version, algorithm, bits."""


class _Bill:
    def __init__(self, report: Report, lives: Lives) -> None:
        rows = report.inventory
        self.lives = lives
        self.unseen = [*report.unseen, *report.hidden]
        youngest = pc.max(rows["file_modified"]).as_py()
        self.moment = datetime.fromtimestamp(0, UTC) if youngest is None else youngest.astimezone(UTC)
        self.algorithms: dict[tuple[str, str, str], list[Use]] = {}
        self.masters: dict[tuple[str, str | None], list[Use]] = {name: [] for name in lives}
        self.data_keys: dict[_Name, list[Use]] = {}
        self.tables = {row["table"]: len(row["files"]) for row in groups(rows, ("table",)) if row["table"] is not None}
        self.keys_of: dict[str | None, set[_Name]] = {}
        self.signatures = report.signatures
        for life in lives.values():
            for one in _of_master(life["bits"]):
                self.algorithms.setdefault(one, [])
        for use in uses_of(rows):
            self._take(use)

    def content(self) -> dict[str, Any]:
        identity = "".join(
            repr(sorted(one, key=repr))
            for one in (self.masters, self.data_keys, self.algorithms, self.tables, self.signatures)
        )
        metadata: dict[str, Any] = {
            "timestamp": self.moment.isoformat(),
            "tools": {"components": [{"name": "bloomseal", "type": "application", "version": __version__}]},
        }
        if self.unseen:  # there may be more keys than these
            unseen = dict.fromkeys(map(safe_text, self.unseen))
            metadata["properties"] = [{"name": "bloomseal:not_seen", "value": text} for text in unseen]
        made = sorted(self._components(), key=lambda one: str(one[0]["bom-ref"]))
        return {
            "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, hashlib.sha256(identity.encode()).hexdigest())}",
            "metadata": metadata,
            "components": [component for component, _ in made],
            "dependencies": [
                {"ref": component["bom-ref"]} | ({"dependsOn": sorted(set(needs))} if needs else {})
                for component, needs in made
            ],
        }

    def _take(self, use: Use) -> None:
        algorithm = use.algorithm or ""
        if use.column == FOOTER and algorithm.startswith(_ORC):
            return  # an ORC footer has no key
        if use.column == KEK:
            self.masters.setdefault((str(use.master_key), use.version), []).append(use)
            return
        for one in _modes(algorithm, use.bits):
            self.algorithms.setdefault(one, []).append(use)
        if use.master_key is None:
            return
        name = (use.master_key, use.version, algorithm, use.bits)
        self.keys_of.setdefault(use.table, set()).add(name)
        self.masters.setdefault(name[:2], []).append(use)
        self.data_keys.setdefault(name, []).append(use)

    def _components(self) -> Iterator[tuple[dict[str, Any], list[str]]]:
        """Each component, and the others that it depends on."""
        for used, uses in self.algorithms.items():
            yield _algorithm(*used, total(uses)), []
        for kind in sorted({kind for name in self.masters if (kind := kind_of(name[1])) is not None}):
            yield _sealing(kind), []
        yield from self._signers()
        for name, uses in self.masters.items():
            yield self._master(name, uses)
            if keks := _most(uses, "keks"):
                counts = {"files": total(uses), "keys-at-least": keks}
                text = f"key encryption keys under {name[0]}"
                yield _key(_ref("key-encryption-keys", name), text, name[1], counts), [_ref("master-key", name)]
        for own, uses in self.data_keys.items():
            master, version, algorithm, bits = own
            modes = [f"algorithm:{one[0]}" for one in _modes(algorithm, bits)]
            wrapping = "key-encryption-keys" if _most(self.masters[own[:2]], "keks") else "master-key"
            more = {"algorithmRef": modes[0], "securedBy": {"mechanism": "wrapped under a master key"}, "size": bits}
            counts = _counts(uses) | {"keys-at-least": _most(uses, "data_keys")}
            yield (
                _key(_ref("data-keys", own), f"data keys under {master}", version, counts, more),
                [_ref(wrapping, own[:2]), *modes],
            )
        for table, count in self.tables.items():
            signatures, counts = [one for one in self.signatures if one["table"] == table], Counter(files=count)
            for one in signatures:
                counts[f"files {one['signature']}".replace(" ", "-")] += one["files"]
            by = [_ref("public-key", [key]) for one in signatures if one["signer"] is not None for key in one["keys"]]
            component = {"bom-ref": f"table:{table}", "name": table, "type": "data"} | _properties(counts)
            yield component, [*(_ref("data-keys", name) for name in self.keys_of.get(table, ())), *by]

    def _signers(self) -> Iterator[tuple[dict[str, Any], list[str]]]:
        """The public keys of those who signed files, and their algorithms."""
        keys: dict[str, tuple[str, Counter[str]]] = {}
        for one in self.signatures:
            for key, algorithm in zip(one["keys"], one["algorithms"], strict=False):  # an unknown signer's has none
                keys.setdefault(key, (algorithm, Counter()))[1][one["signer"]] += one["files"]
        for algorithm in {algorithm: None for algorithm, _ in keys.values()}:
            yield _asymmetric(algorithm, "signature", ["sign", "verify"], 0, {"post-quantum": False}), []
        for key, (algorithm, by) in keys.items():
            told = {"files-signed": by.total(), "signer": ", ".join(by)}
            needs = f"algorithm:{algorithm}"
            yield _key(_ref("public-key", [key]), ", ".join(by), None, told, {"algorithmRef": needs}), [needs]

    def _master(self, name: tuple[str, str | None], uses: Sequence[Use]) -> tuple[dict[str, Any], list[str]]:
        life = self.lives.get(name)
        needs = [f"algorithm:{one[0]}" for one in _of_master(life["bits"] if life is not None else None)]
        if (kind := kind_of(name[1])) is not None:
            needs = [f"algorithm:{kind.algorithm}"]
        more: dict[str, Any] = {"state": _state({use.state for use in uses}, life)}
        counts = _counts(uses)
        if life is not None:
            more |= {
                "algorithmRef": next(iter(needs), None),
                "size": life["bits"],
                "creationDate": _moment(life["created"]),
                "activationDate": _moment(life["activation"]),
                "expirationDate": _moment(life["expiry"] or life["recipient_usage_ends"]),
            }
            counts |= {name: life[name] for name in ("owner", "custodian")}
        return _key(_ref("master-key", name), name[0], name[1], counts, more), needs


def _ref(kind: str, name: Iterable[object]) -> str:
    return ":".join([kind, *(str(part or "unknown") for part in name)])


def _counts(uses: Sequence[Use]) -> dict[str, Any]:
    return {"files": total(uses), "columns": ", ".join(sorted({use.column for use in uses})[:200])}


def _most(uses: Sequence[Use], what: str) -> int:
    return max((getattr(use, what) for use in uses), default=0)


def _properties(values: Mapping[str, Any]) -> dict[str, Any]:
    told = {name: str(value) for name, value in sorted(values.items()) if value not in (None, "")}
    return {"properties": [{"name": f"bloomseal:{name}", "value": value} for name, value in told.items()]}


def _algorithm(name: str, mode: str, bits: str, files: int) -> dict[str, Any]:
    properties = {
        "primitive": "ae" if mode == "gcm" else "block-cipher",
        "parameterSetIdentifier": bits,
        "mode": mode,
        "cryptoFunctions": ["decrypt", "encrypt"],
    }
    crypto = {"assetType": "algorithm", "algorithmProperties": properties}
    component = {"bom-ref": f"algorithm:{name}", "name": name, "type": _ASSET, "cryptoProperties": crypto}
    return component | _properties({"files": files})


def _sealing(kind: KeyKind) -> dict[str, Any]:
    """The algorithm by which keys are sealed to recipients."""
    told = {"hpke": "HKDF-SHA256, AES-256-GCM", "post-quantum": kind.post_quantum}
    level = 3 if kind.post_quantum else 0
    return _asymmetric(kind.algorithm, "kem", ["encapsulate", "decapsulate"], level, told)


def _asymmetric(name: str, primitive: str, functions: list[str], level: int, told: Mapping[str, Any]) -> dict[str, Any]:
    properties = {
        "primitive": primitive,
        "parameterSetIdentifier": name,
        "cryptoFunctions": functions,
        "nistQuantumSecurityLevel": level,
    }
    crypto = {"assetType": "algorithm", "algorithmProperties": properties}
    component = {"bom-ref": f"algorithm:{name}", "name": name, "type": _ASSET, "cryptoProperties": crypto}
    return component | _properties(told)


def _key(
    ref: str, name: str, version: str | None, counts: Mapping[str, Any], more: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    public = ref.startswith("public-key:") or (kind_of(version) is not None and ref.startswith("master-key:"))
    kind = "public-key" if public else "secret-key"
    properties = {"type": kind, "id": ref, **{key: value for key, value in (more or {}).items() if value}}
    return {
        "bom-ref": ref,
        "name": name,
        "version": version or "unknown",
        "type": _ASSET,
        "cryptoProperties": {"assetType": "related-crypto-material", "relatedCryptoMaterialProperties": properties},
        **_properties(counts),
    }


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


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


def _state(states: set[str | None], life: Mapping[str, Any] | None) -> str | None:
    if life is not None:
        return life["state"] if life["state"] in _STATES else None
    if "destroyed" in states:
        return "destroyed"
    if states & {"disabled", "pending deletion"}:
        return "suspended"
    return "active" if "enabled" in states else None
