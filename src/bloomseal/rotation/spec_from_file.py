"""How a file is encrypted, as an `EncryptionSpec`, so that it can be rekeyed without anything else being said."""

from __future__ import annotations

from typing import Any

from ..core.encryption import Algorithm
from ..core.errors import Hint, KeyAccessError, UnsupportedError
from ..core.parquet.walk import Protection, Walk
from ..keytools.tools import KeyTools, ToolsFileKeys
from ..specs import EncryptionSpec
from .keys import Target

__all__ = ["like"]


def like(walk: Walk, tools: KeyTools, keys: Any, target: Target, changes: dict[str, Any]) -> EncryptionSpec:
    """Fresh data keys under the same master keys, or those that `target` names; all else as it is, or as in `changes`.

    A column under the footer key stays there where all columns without a key of their own are; else it gets a key of
    its own under the footer's master key, since a specification can't single it out.

    Args:
        tools: the key tools behind `keys`.
        keys: what new keys are asked of.
        changes: arguments of `EncryptionSpec` that take the place of what the file has.

    Raises:
        KeyAccessError: key metadata that names no master key (explicit keys), or external material that is missing.
        UnsupportedError: only the footer is encrypted.
    """
    crypto = walk.footer.crypto
    assert crypto is not None  # noqa: S101  # asked about encrypted files only
    file_keys = tools.for_file(walk.source.ref)

    def master_key(key_metadata: bytes, column: str | None) -> str:
        name = _master_key(file_keys, key_metadata)
        return target(name, column) or name

    footer_key = master_key(crypto.footer_key_metadata, None)
    own: dict[str, str] = {}
    under_footer, plain = [], []
    for chunk in walk.chunks(0) if walk.footer.row_groups else ():
        match chunk.protection:
            case Protection.COLUMN_KEY:
                own[chunk.leaf.name] = master_key(chunk.key_metadata, chunk.leaf.name)
            case Protection.FOOTER_KEY:
                under_footer.append(chunk.leaf.name)
            case Protection.PLAINTEXT:
                plain.append(chunk.leaf.name)
    if plain:
        own.update(dict.fromkeys(under_footer, footer_key))
        if not own:
            raise UnsupportedError("only the footer is encrypted", file=walk.source.name, hint=Hint.ENCRYPTION)
    arguments: dict[str, Any] = {
        "footer_key": footer_key,
        "column_keys": own or None,
        "keys": keys,
        "algorithm": Algorithm(crypto.algorithm),
        "plaintext_footer": crypto.plaintext_footer,
        "complete": bool(own) and not plain,
        "aad_prefix": crypto.aad_prefix or None,
        "store_aad_prefix": crypto.prefix_stored or not crypto.aad_prefix,
        "key_bits": walk.keys.footer().key.bits,
    }
    return EncryptionSpec(**(arguments | changes))


def _master_key(keys: ToolsFileKeys, key_metadata: bytes) -> str:
    try:
        return keys.describe(key_metadata).master_key
    except KeyAccessError as error:
        error.hint = "say what to seal with: encryption=, or --footer-key and --column-key"
        raise
