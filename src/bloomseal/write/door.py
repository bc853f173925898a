"""Adding filters to a file of either format."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..core.storage.ref import FileRef
from ..storage.formats import Format, format_of, named_format
from ..storage.places import open_source
from . import attach
from .attach import AttachReport, Progress
from .writer import FilterRequest

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

    from ..core.decryption import DecryptionSpec
    from ..orc import OrcRewriteReport
    from ..policy import TablePolicy

__all__ = ["attach_filters"]


def attach_filters(
    path: str | os.PathLike[str] | FileRef,
    bloom_filters: FilterRequest,
    *,
    decryption: DecryptionSpec | TablePolicy | None = None,
    filesystem: FileSystem | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> AttachReport | OrcRewriteReport:
    """Add filters to a file, see `bloomseal.write.attach.attach_filters`, and of an ORC file
    `bloomseal.orc.attach_filters`.

    Raises:
        As those.
    """
    with open_source(path, filesystem) as source:
        orc = (format_of(source) or named_format(source.name)) is Format.ORC
    if orc:
        from ..orc.rewrite.verbs import attach_filters as attach_to_orc

        return attach_to_orc(
            path, bloom_filters, decryption=decryption, filesystem=filesystem, dry_run=dry_run, progress=progress
        )
    return attach.attach_filters(
        path, bloom_filters, decryption=decryption, filesystem=filesystem, dry_run=dry_run, progress=progress
    )
