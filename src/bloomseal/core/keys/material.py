"""Key metadata and key material of the Parquet key tools (PKMT1), as parquet-java and Arrow write them.

`key_metadata` is JSON that either holds the material itself or refers to it by name in an external store. Material is
flat JSON: the data key wrapped under a master key, directly or through a key encryption key (double wrapping).
"""

from __future__ import annotations

import codecs
import functools
import json
from dataclasses import dataclass, field
from typing import Any, Final

from ..errors import KeyAccessError
from ..limits import MAX_KEY_METADATA_BYTES
from ..text import articled

_TYPE: Final = "PKMT1"
_JSON: Final = json.JSONDecoder()
_REMEMBERED: Final = 512
"""Of 256 files that a table keeps open, those of the footer and of a column."""
_SHORT: Final = 4096
"""Bytes of the longest key metadata that is remembered. Most are a few hundred."""
FOOTER_KEY_REFERENCE: Final = "footerKey"
COLUMN_KEY_REFERENCE: Final = "columnKey"
DEFAULT_INSTANCE: Final = "DEFAULT"
"""What the key tools write where no KMS instance was configured."""


@dataclass(frozen=True, slots=True)
class KeyMaterial:
    """One wrapped data key.

    Attributes:
        master_key: the master key's identifier.
        wrapped_dek: the data key, wrapped by the KMS, or under the KEK where `kek_id` is set.
        is_footer_key: the key that seals the footer; others are column keys.
        kek_id: base64 of the 16 bytes that bind the data key to its KEK; None under single wrapping.
        wrapped_kek: the KEK, wrapped by the KMS; None under single wrapping.
        kms_instance_id, kms_instance_url: which KMS wrapped it, by the writer's account. Footer keys only.
    """

    master_key: str
    wrapped_dek: str = field(repr=False)
    is_footer_key: bool
    kek_id: str | None = None
    wrapped_kek: str | None = field(default=None, repr=False)
    kms_instance_id: str | None = None
    kms_instance_url: str | None = None

    @property
    def double_wrapping(self) -> bool:
        return self.kek_id is not None

    def to_json(self, *, internal: bool) -> str:
        """The material as text; `internal` where it will stand in the file itself as key metadata."""
        fields: dict[str, Any] = {"keyMaterialType": _TYPE}
        if internal:
            fields["internalStorage"] = True
        fields["isFooterKey"] = self.is_footer_key
        if self.is_footer_key:
            fields["kmsInstanceID"] = self.kms_instance_id or DEFAULT_INSTANCE
            fields["kmsInstanceURL"] = self.kms_instance_url or DEFAULT_INSTANCE
        fields["masterKeyID"] = self.master_key
        fields["wrappedDEK"] = self.wrapped_dek
        fields["doubleWrapping"] = self.double_wrapping
        if self.double_wrapping:
            fields["keyEncryptionKeyID"] = self.kek_id
            fields["wrappedKEK"] = self.wrapped_kek
        return json.dumps(fields, separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> KeyMaterial:
        """Parse material.

        Raises:
            KeyAccessError: not PKMT1 material.
        """
        return cls._from_fields(material_fields(text))

    @classmethod
    def _from_fields(cls, fields: dict[str, Any]) -> KeyMaterial:
        is_footer_key = _get(fields, "isFooterKey", bool)
        double = _get(fields, "doubleWrapping", bool)
        return cls(
            master_key=_get(fields, "masterKeyID", str),
            wrapped_dek=_get(fields, "wrappedDEK", str),
            is_footer_key=is_footer_key,
            kek_id=_get(fields, "keyEncryptionKeyID", str) if double else None,
            wrapped_kek=_get(fields, "wrappedKEK", str) if double else None,
            kms_instance_id=_get(fields, "kmsInstanceID", str, None) if is_footer_key else None,
            kms_instance_url=_get(fields, "kmsInstanceURL", str, None) if is_footer_key else None,
        )


@dataclass(frozen=True, slots=True)
class KeyMetadata:
    """What a file holds for one key: the material, or its name in the external store. Exactly one is set."""

    material: KeyMaterial | None = None
    reference: str | None = None

    def to_bytes(self) -> bytes:
        """The bytes of the file's `key_metadata` field."""
        if self.material is not None:
            return self.material.to_json(internal=True).encode()
        fields = {"keyMaterialType": _TYPE, "internalStorage": False, "keyReference": self.reference}
        return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()

    @classmethod
    def from_bytes(cls, key_metadata: bytes) -> KeyMetadata:
        """Parse `key_metadata`.

        Raises:
            KeyAccessError: not PKMT1 key metadata (an opaque key id, for instance), or too long.
        """
        return (_metadata if len(key_metadata) <= _SHORT else _parsed)(bytes(key_metadata))


def material_fields(text: str | bytes) -> dict[str, Any]:
    """All fields of key material, those too that are not ours.

    Raises:
        KeyAccessError: not PKMT1 material.
    """
    return _pkmt1(text, "key material")


def _parsed(key_metadata: bytes) -> KeyMetadata:
    fields = _pkmt1(key_metadata, "key metadata")
    if _get(fields, "internalStorage", bool):
        return KeyMetadata(material=KeyMaterial._from_fields(fields))
    return KeyMetadata(reference=_get(fields, "keyReference", str))


# A file's key metadata is looked at by whoever opens it, checks it, describes it and wraps it anew.
_metadata = functools.lru_cache(_REMEMBERED)(_parsed)


_MISSING: Final = object()


def _get(fields: dict[str, Any], name: str, kind: type, default: object = _MISSING) -> Any:
    value = fields.get(name, default)
    if value is _MISSING:
        raise KeyAccessError(f"key material without {name}")
    if value is not default and not isinstance(value, kind):
        raise KeyAccessError(f"key material whose {name} is not {articled(kind.__name__)}")
    return value


def parse_object(text: str | bytes, what: str, limit: int = MAX_KEY_METADATA_BYTES) -> dict[str, Any]:
    """A JSON object out of untrusted text.

    Raises:
        KeyAccessError: longer than `limit`, not JSON, not an object, or with texts that are not Unicode.
    """
    if len(text) > limit:
        raise KeyAccessError(f"{what} of {len(text)} bytes; the limit is {limit}")
    try:
        # Editors put a mark before UTF-8. Escapes, and texts, can have lone surrogates, which UTF-8 has not, so that
        # whatever encodes a name or a wrapped key would fail.
        text = text.removeprefix(codecs.BOM_UTF8).decode() if isinstance(text, bytes) else text
        fields = _JSON.decode(text)
        if not text.isascii() or "\\u" in text:
            json.dumps(fields, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        # Raised out here, so that no exception chain quotes the text: it may be an opaque id that means something.
        raise KeyAccessError(f"{what} that is not a JSON object")
    return fields


def _pkmt1(text: str | bytes, what: str) -> dict[str, Any]:
    try:
        fields = parse_object(text, what)
    except KeyAccessError as error:
        error.hint = "the file was not written with key tools; give explicit keys by id or by column"
        raise
    if fields.get("keyMaterialType") != _TYPE:
        raise KeyAccessError(f"{what} of a type other than {_TYPE}", hint="give explicit keys by id or by column")
    return fields
