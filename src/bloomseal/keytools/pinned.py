"""A key source that accepts a file's keys only under the master keys that were agreed on (`Pins`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..core.encryption import SecretKey
from ..core.keys.pins import Pins
from ..core.storage.ref import FileRef
from .tools import KeyTools, ToolsFileKeys

__all__ = ["PinnedFileKeys", "PinnedKeys"]


class PinnedKeys:
    """`KeyTools` held to agreed master keys.

    Args:
        tools: where the keys come from.
        footer, columns, others: as of `Pins`.
    """

    def __init__(
        self,
        tools: KeyTools,
        *,
        footer: Collection[str],
        columns: Mapping[str, Collection[str]],
        others: Collection[str] = (),
    ) -> None:
        self.tools = tools
        self._pins = Pins(footer, columns, others)

    def for_file(self, ref: FileRef, *, writing: bool = False) -> PinnedFileKeys:  # noqa: ARG002
        """The keys of one file."""
        return PinnedFileKeys(self.tools, ref, self._pins)

    def check(self, master_key: str, column: str | None) -> None:
        """As `Pins.check`."""
        self._pins.check(master_key, column)

    def __repr__(self) -> str:
        return f"<PinnedKeys over {self.tools!r}>"


class PinnedFileKeys(ToolsFileKeys):
    """The keys of one file, through `PinnedKeys`."""

    def __init__(self, tools: KeyTools, ref: FileRef, pins: Pins) -> None:
        super().__init__(tools, ref)
        self._pins = pins

    def retrieve_key(self, key_metadata: bytes, column: str | None) -> SecretKey:
        """As `ToolsFileKeys.retrieve_key`.

        Raises:
            PolicyError: sealed under another master key than agreed on; the KMS is not asked then.
        """
        self._pins.check(self.material(key_metadata).master_key, column)
        return super().retrieve_key(key_metadata, column)

    def check_under_footer_key(self, key_metadata: bytes, column: str) -> None:
        """A column says that it is under the footer key, whose key metadata this is.

        Raises:
            PolicyError: the footer's master key is not one that was agreed on for the column. Whoever may use the
                footer key alone could else put values of his own in the place of a column that he can't read.
        """
        self._pins.check(self.material(key_metadata).master_key, column)

    def new_key(self, master_key: str, column: str | None, bits: int) -> tuple[SecretKey, bytes]:
        """As `ToolsFileKeys.new_key`; what could not be read back is not written."""
        self._pins.check(master_key, column)
        return super().new_key(master_key, column, bits)
