"""What a plan shows of an encrypted Iceberg table, whose files only the engine of its catalog changes."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import replace

from ..core.decryption import DecryptionSpec
from ..core.errors import KeyAccessError
from ..core.storage.ref import FileRef
from ..policy import TablePolicy
from ..specs import iceberg_unwrap
from ..storage.discovery.kinds import FileKind, FoundFile, PlaceProblem
from ..storage.logs.iceberg_encrypted import EncryptedIcebergLog, IcebergOpening
from ..storage.logs.iceberg_keys import IcebergKek
from .files import DataFile, sized
from .settings import tools_or_none


def files_of(folder: FileRef, decryption: DecryptionSpec | TablePolicy) -> Iterator[DataFile]:
    """The files of the current snapshot and of its metadata, none of which is to be changed.

    Raises:
        BloomsealError: the table does not open.
    """
    assert decryption.iceberg is not None  # noqa: S101 - whoever calls has asked
    log = EncryptedIcebergLog(folder, IcebergOpening(decryption.iceberg, iceberg_unwrap(decryption)))
    if log.kek is None:
        return
    under = f"the KEK {log.kek.id}, and that from {_master(log.kek, decryption)}"
    why = f"the engine of its catalog changes it; its key hangs from {under}"
    for path in {**log.stream_keys(), **log.keys()}:
        ref = FileRef(path, folder.filesystem, folder.path)
        found = sized(FoundFile(ref, posixpath.relpath(path, folder.path), FileKind.DATA))
        if found is not None:
            yield replace(found, unseen=PlaceProblem(path, why))


def _master(kek: IcebergKek, decryption: DecryptionSpec | TablePolicy) -> str:
    """The master key version that opens the KEK, in words."""
    assert decryption.iceberg is not None  # noqa: S101 - as above
    name, tools = decryption.iceberg.encryption_key, tools_or_none(decryption.keys)
    assert tools is not None  # noqa: S101 - it has opened the KEK
    try:
        told = tools.calls_for(None).opened_by(kek.wrapped, name)
    except KeyAccessError as error:
        return f"{name}, version unknown: {error.what}"
    return f"{told.key}, version {told.version}"
