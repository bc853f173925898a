"""What a rewrite of an ORC file did."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...notebook import ShownInNotebooks


@dataclass
class OrcRewriteReport(ShownInNotebooks):
    """What `attach_filters`, `repair_filters` or `rekey` did to a file, or would do.

    Attributes:
        path: the file.
        dry_run: nothing was written.
        filters: one entry per column and stripe: column, stripe, row_groups, num_bytes (of each), encrypted.
        replaced: filter streams that others took the place of.
        clear_filters: filter streams that lay in clear on encrypted columns; they tell true values to whoever has a
            copy of the old file.
        left_out: of `repair_filters`, what none took the place of: column, stripe, why.
        masked_kept: of these, streams of which the part over masked values stays, for readers without a key.
        rekeyed: columns under new local keys.
        versions: master keys and their versions from now on, where they are other ones.
        keys: one entry for each of these columns: column, master_key and version before, new_master_key and
            new_version; versions as the KMS calls them (a keyring counts from 1, the files from 0).
        old_size, new_size: of the file, in bytes; of a dry run of `rekey` about so many.
    """

    path: str
    dry_run: bool
    filters: list[dict[str, Any]] = field(default_factory=list)
    replaced: int = 0
    clear_filters: int = 0
    left_out: list[dict[str, Any]] = field(default_factory=list)
    masked_kept: int = 0
    rekeyed: list[str] = field(default_factory=list)
    versions: dict[str, int] = field(default_factory=dict)
    keys: list[dict[str, Any]] = field(default_factory=list)
    old_size: int = 0
    new_size: int = 0

    @property
    def old_copies(self) -> str | None:
        """What copies of the old file still tell; None: nothing more than the new one."""
        if self.clear_filters:
            return "copies of the old file still tell true values by filters in clear: destroy them"
        if self.versions:
            return "copies of the old file still open under the old master key or version: destroy them"
        return None

    def add(self, column: str, stripe: int, row_groups: int, num_bytes: int, encrypted: bool) -> None:
        self.filters.append(
            {
                "column": column,
                "stripe": stripe,
                "row_groups": row_groups,
                "num_bytes": num_bytes,
                "encrypted": encrypted,
            }
        )

    def to_dict(self) -> dict[str, Any]:
        return {**self.__dict__, "old_copies": self.old_copies}
