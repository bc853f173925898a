"""Opening a file of either format: what it is, its end says, as Spark has it, and not its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from ..core.decryption import DecryptionSpec
from ..core.errors import Hint, IntegrityError, PolicyError
from ..core.storage.ref import FileRef
from ..specs import decryption_for, resolve_policy
from ..storage.formats import Format, format_at
from ..storage.places import FilePlace, open_source
from .file import SealedFile
from .parquet import ParquetFile

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

    from ..format.inspect import Inspection
    from ..policy import PolicyChoice, TablePolicy
    from ..specs import PolicyArguments


def open_file(
    path: FilePlace | FileRef,
    *,
    decryption: DecryptionSpec | PolicyChoice | None = None,
    filesystem: FileSystem | None = None,
    **policy: Unpack[PolicyArguments],
) -> SealedFile:
    """Open a Parquet or an ORC file: one read of its tail, of Parquet the footer opened or its signature verified.

    Args:
        path: local path, URI, or path on `filesystem`; a file object that can seek, or the file's bytes; or a place
            that was found in a table.
        filesystem: of pyarrow or fsspec.
        decryption: keys and expectations, or a policy; None for a plaintext file.
        policy: ``policy=`` and ``table=``, see `bloomseal.specs.PolicyArguments`.

    Returns:
        The file, which answers alike for both formats.

    Raises:
        FormatError, UnsupportedError: the file is broken, or of a kind that is not known.
        IntegrityError, KeyAccessError, PolicyError: its footer does not authenticate, has no key at hand, or is not as
            expected. An encrypted Iceberg table is expected: its files are opened by `open_table`.
        UsageError: no such file, or arguments that contradict one another.
    """
    opening = resolve_policy(DecryptionSpec, decryption, path, filesystem, **policy)
    source = open_source(path, filesystem)
    try:
        if opening is not None and opening.iceberg is not None:
            # Attack: in the place of the table's folder stands a file, under any key that the same KMS has.
            what, hint = (
                "a file, and an encrypted Iceberg table is expected",
                "open_table, which takes the table's folder",
            )
            raise PolicyError(what, file=source.name, hint=hint)
        if format_at(source) is Format.ORC:
            from .orc.file import OrcFile

            return OrcFile(source, opening)
        return ParquetFile(source, opening)
    except BaseException as error:
        source.close()
        if (
            isinstance(error, PolicyError | IntegrityError)
            and opening is not None
            and not isinstance(opening, DecryptionSpec)
        ):
            _advise(error, opening)
        raise


def _advise(error: PolicyError | IntegrityError, policy: TablePolicy) -> None:
    """What serves the holder of a policy."""
    if error.hint is Hint.PLAINTEXT:
        error.hint = Hint.SEAL
    elif error.hint is Hint.NO_AAD_PREFIX:
        error.hint = "bloomseal rekey --policy FILE --aad-prefix '' gives it the policy's"
    elif isinstance(error, IntegrityError) and error.hint is None and "{path}" in str(policy.aad_prefix):
        error.hint = Hint.TABLE_ROOT


def inspect_file(
    path: FilePlace | FileRef,
    *,
    decryption: DecryptionSpec | TablePolicy | None = None,
    filesystem: FileSystem | None = None,
) -> Inspection:
    """Look at a file: what anybody sees of it, and with `decryption` what its keys open of footer and metadata.

    Raises:
        FormatError: neither a Parquet nor an ORC file, or a broken footer.
    """
    with open_source(path, filesystem) as source:
        if format_at(source) is Format.ORC:
            from .orc.inspect import inspect_orc

            return inspect_orc(source)
        from ..format.inspect import inspect_parquet

        try:
            return inspect_parquet(source, decryption_for(decryption, source.ref))
        except PolicyError as error:
            # The policy has no prefix for a file of this place: anybody sees what is left.
            seen = inspect_parquet(source)
            seen.refused = error.what
            return seen
