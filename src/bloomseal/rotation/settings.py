"""What the jobs know of a file before they touch it: how it opens, how it is to be sealed, and what that asks of the
KMS.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Any, Final

from ..core.decryption import DecryptionSpec
from ..core.encryption import Algorithm
from ..core.errors import FormatError, Hint, IntegrityError, KeyAccessError, PolicyError, UnsupportedError, UsageError
from ..core.keys.explicit import ExplicitKeys
from ..core.keys.material import KeyMetadata
from ..core.parquet.footer import FooterKind, Peek, peek
from ..core.parquet.schema import Schema
from ..core.parquet.walk import Protection, Walk
from ..core.storage.ref import FileRef
from ..core.storage.source import Source
from ..format.opening import open_footer
from ..keytools.tools import KeyTools
from ..policy import TablePolicy
from ..specs import EncryptionSpec, KeyChoice, decryption_for, encryption_for
from ..storage.formats import Format, format_of
from ..storage.places import open_source
from ..write.key_metadata import key_metadata_in_use
from ..write.output_keys import sealed_leaves
from .keys import Target, key_tools

_REFUSED: Final = {
    ("rewrap", Format.ORC): (
        "a local key of an ORC file can't be wrapped anew, random bytes and the master key make it: rekey the file",
        "rekey, which makes new local keys",
    ),
    ("seal", Format.ORC): (
        "ORC files are encrypted by the engine that writes them",
        "write the data anew, with orc.encrypt",
    ),
    ("unseal", Format.ORC): ("an ORC file can't be decrypted as a whole", "read its rows, and write them anew"),
    ("erase", Format.ORC): (
        "ORC files are written by the engine that encrypts them, and rows of it match",
        "delete the rows with that engine, then destroy the old files",
    ),
    ("sign", Format.ORC): ("nothing ties an ORC file's rows to its tail, which is what is signed", "Parquet files"),
    ("repair", Format.PARQUET): ("only filters of ORC files are repaired", "attach --bloom-filter COLUMN, or rekey"),
}
"""What an operation is not for: why, and what to do instead."""

Decryption = DecryptionSpec | TablePolicy
Encryption = EncryptionSpec | TablePolicy


def reading(spec: EncryptionSpec) -> DecryptionSpec:
    """What opens a file sealed with `spec`."""
    keys = spec.keys
    if keys is None or not isinstance(spec.footer_key, str):
        keys = ExplicitKeys(
            None if isinstance(spec.footer_key, str) else spec.footer_key,
            {name: key for name, key in (spec.column_keys or {}).items() if not isinstance(key, str)},
        )
    ctr = spec.algorithm is Algorithm.AES_GCM_CTR_V1
    return DecryptionSpec(keys, aad_prefix=spec.aad_prefix, allow_ctr=ctr, access_log=spec.access_log)


def opened(source: Source, decryption: DecryptionSpec) -> Walk:
    """An encrypted file, its footer opened. Raises PolicyError for a plaintext one."""
    footer, keys = open_footer(source, decryption)
    if footer.crypto is None:
        raise PolicyError("a plaintext file where an encrypted one was expected", file=source.name, hint="seal")
    return Walk(source, footer, keys)


Choose = Callable[[bytes, str | None], KeyChoice]
"""A key's metadata and its column (None: the footer) → what is to seal it."""


def by_master_key(walk: Walk, tools: KeyTools, target: Target) -> Choose:
    """The same master keys, or those that `target` names.

    Raises:
        KeyAccessError: key metadata that names no master key (explicit keys), or external material that is missing.
            Whoever calls what is returned gets that.
    """

    def choose(key_metadata: bytes, column: str | None) -> str:
        name = master_key_of(walk, tools, key_metadata)
        return target(name, column) or name

    return choose


def like(walk: Walk, keys: Any, choose: Choose, changes: Mapping[str, Any]) -> EncryptionSpec:
    """What seals a file as it is sealed, but under the keys that are chosen, and with `changes`.

    A column under the footer key stays there where all columns without a key of their own are; else it gets a key of
    its own under the footer's master key, since a specification can't single it out.

    Args:
        keys: what new keys are asked of.
        changes: arguments of `EncryptionSpec` that take the place of what the file has.

    Raises:
        KeyAccessError: as `choose`.
        UnsupportedError: only the footer is encrypted.
    """
    crypto = walk.footer.crypto
    assert crypto is not None  # noqa: S101  # asked about encrypted files only
    footer_key = choose(crypto.footer_key_metadata, None)
    own: dict[str, KeyChoice] = {}
    under_footer, plain = [], []
    for chunk in walk.chunks(0) if walk.footer.row_groups else ():
        match chunk.protection:
            case Protection.COLUMN_KEY:
                own[chunk.leaf.name] = choose(chunk.key_metadata, chunk.leaf.name)
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
    return EncryptionSpec(**{**arguments, **changes})


def new_keys_of(walk: Walk, tools: KeyTools, external: bool | None = None) -> KeyTools:
    """Key tools that put new material where it is to be: beside the file, or in it; None: where the file's is."""
    assert walk.footer.crypto is not None  # noqa: S101
    if tools.pins is not None:
        return tools
    internal = not external
    if external is None:
        internal = KeyMetadata.from_bytes(walk.footer.crypto.footer_key_metadata).reference is None
    return tools if internal == tools.internal else tools.storing(internal=internal)


def master_key_of(walk: Walk, tools: KeyTools, key_metadata: bytes) -> str:
    """The master key that a key is under.

    Raises:
        KeyAccessError: key metadata that names none (explicit keys), or external material that is missing.
    """
    try:
        return tools.for_file(walk.source.ref).describe(key_metadata).master_key
    except KeyAccessError as error:
        error.hint = "say what to seal with: encryption=, or --footer-key and --column-key"
        raise


def opens_with(ref: FileRef, spec: EncryptionSpec) -> bool:
    """Whether the file is sealed with these explicit keys already."""
    if isinstance(spec.footer_key, str):
        return False
    with open_source(ref) as source:
        try:
            return open_footer(source, reading(spec))[0].verified
        except (IntegrityError, KeyAccessError, PolicyError):
            return False


def is_encrypted(source: Source, operation: str) -> bool:
    """By its end alone. Raises as `end_of`."""
    return end_of(source, operation).kind is not FooterKind.PLAINTEXT


def end_of(source: Source, operation: str) -> Peek:
    """A Parquet file's end.

    Raises:
        UnsupportedError: it is an ORC file, and what is to be done with it can't be.
        FormatError: it is neither.
    """
    try:
        return peek(source)
    except FormatError:
        format_for(source, operation)
        raise


def format_for(source: Source, operation: str) -> Format | None:
    """As `format_of`, by its last bytes. Raises UnsupportedError: what is to be done can't be done with such a file."""
    found = format_of(source)
    if found is not None and (refused := _REFUSED.get((operation, found))) is not None:
        raise UnsupportedError(refused[0], file=source.ref.path, hint=refused[1])
    return found


def refuse_half_sealed(source: Source, encryption: Encryption) -> None:
    """An encrypted file is sealed as it is to be only if no column stands in clear that should not; and if that can be
    seen.

    Raises:
        UsageError: columns stand in clear.
        KeyAccessError, IntegrityError, PolicyError: it does not open with the keys that it would have been sealed with.
    """
    ref = source.ref
    spec = encryption_for(encryption, ref)
    try:
        walk = opened(source, decryption_for(encryption, ref) if isinstance(encryption, TablePolicy) else reading(spec))
    except (KeyAccessError, IntegrityError, PolicyError) as error:
        error.what = f"encrypted already, but whether all columns are sealed can't be seen: {error.what}"
        error.hint = error.hint or "rekey, with the keys that open it"
        raise
    wanted = sealed_leaves(spec, walk.footer.schema)
    groups = range(len(walk.footer.row_groups))
    clear = [leaf.name for leaf in wanted if not all(walk.chunk(group, leaf.index).encrypted for group in groups)]
    if clear:
        raise UsageError(
            f"encrypted in part: {', '.join(clear)} in clear", file=ref.path, hint="rekey, which seals them too"
        )


def refuse_old_keys(walk: Walk, spec: EncryptionSpec) -> None:
    """Explicit new keys must be new: after a rekey the old ones are to open nothing."""
    given = [spec.footer_key, *(spec.column_keys or {}).values()]
    explicit = [key[0] if isinstance(key, tuple) else key for key in given if not isinstance(key, str)]
    if not explicit:
        return
    for column, key_metadata in key_metadata_in_use(walk):
        try:
            cipher = walk.keys.footer() if column is None else walk.keys.column(key_metadata, column)
        except KeyAccessError:
            continue  # the conversion itself will say so
        if cipher.key in explicit:
            raise UsageError("a new data key is the old one", file=walk.source.name, column=column)


def unwraps(walk: Walk, decryption: DecryptionSpec, opened: Collection[str]) -> dict[Hashable, int]:
    """What the KMS will be asked to open the file. A key under each other master key is opened to see that it can be.

    Args:
        opened: master keys under which one was.

    Raises:
        KeyAccessError: a key can't be had, so that the file can't be done.
    """
    tools, calls = tools_or_none(decryption.keys), dict[Hashable, int]()
    keys = None if tools is None else tools.for_file(walk.source.ref)
    for column, key_metadata in key_metadata_in_use(walk):
        material = None if keys is None else keys.material(key_metadata)
        if column is not None and (material is None or material.master_key not in opened):
            walk.keys.column(key_metadata, column)
        if material is not None:
            calls["unwrap", material.master_key, material.wrapped_kek or material.wrapped_dek] = 1
    return calls


def wraps(spec: EncryptionSpec, schema: Schema, path: str) -> dict[Hashable, int]:
    """What the KMS will be asked to seal a file of this schema: to wrap each key, and to give it back.

    Raises:
        KeyAccessError, PolicyError: a master key can't be used.
    """
    tools = tools_or_none(spec.keys)
    if tools is None:
        return {}
    wanted: list[tuple[str, str]] = [("", spec.footer_key)] if isinstance(spec.footer_key, str) else []
    for name, key in (spec.column_keys or {}).items():
        wanted += [(leaf.name, key) for leaf in schema.below(name) if isinstance(key, str)]
    tools.need_usable(key for _, key in wanted)
    # One KEK per master key serves many files; without KEKs every data key is a call of its own.
    return {("wrap", key) if tools.double_wrapping else ("wrap", key, path, column): 2 for column, key in wanted}


def tools_or_none(keys: Any) -> KeyTools | None:
    """The key tools behind `keys`, where there are any."""
    try:
        return None if keys is None else key_tools(keys)
    except UsageError:
        return None
