"""A key source that accepts a file's keys only under the master keys that were agreed on.

Key material names its master key, and whoever may replace files may name one of his own choice that the KMS lets us
use. Then everything authenticates, under the wrong key. With pins such a file is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..columns import nearest_entry
from ..encryption import SecretKey
from ..errors import PolicyError
from ..storage.ref import FileRef
from .access import shown
from .tools import KeyTools, ToolsFileKeys

__all__ = ["PinnedFileKeys", "PinnedKeys"]


class PinnedKeys:
    """`KeyTools` held to agreed master keys.

    Args:
        tools: where the keys come from.
        footer: master keys that may wrap the footer key.
        columns: dotted path of a column, or of a group above several → master keys that may wrap its key.
        others: master keys for columns that `columns` does not cover; none by default.
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
        self._footer = frozenset(footer)
        self._columns = {name: frozenset(keys) for name, keys in columns.items()}
        self._others = frozenset(others)

    def for_file(self, ref: FileRef, *, writing: bool = False) -> PinnedFileKeys:
        """The keys of one file."""
        return PinnedFileKeys(self, self.tools.for_file(ref, writing=writing))

    def check(self, master_key: str, column: str | None) -> None:
        """Accept `master_key` for a column, or for the footer where that is None.

        Raises:
            PolicyError: another one was agreed on.
        """
        accepted = self._footer if column is None else self._for_column(column)
        if master_key not in accepted:
            what = "the footer" if column is None else "the column"
            raise PolicyError(
                f"{what} is sealed under master key {shown(master_key)}, and the policy has {' or '.join(map(shown, sorted(accepted))) or 'none'}",
                column=column,
                hint="if the key was changed on purpose, name the old one among previous_keys",
            )

    def _for_column(self, column: str) -> frozenset[str]:
        accepted = nearest_entry(self._columns, column)
        return self._others if accepted is None else accepted

    def __repr__(self) -> str:
        return f"<PinnedKeys over {self.tools!r}>"


class PinnedFileKeys:
    """The keys of one file, through `PinnedKeys`."""

    def __init__(self, pins: PinnedKeys, keys: ToolsFileKeys) -> None:
        self._pins = pins
        self._keys = keys
        self.describe = keys.describe
        self.confirm = keys.confirm
        self.beside = keys.beside
        self.store = keys.store
        self.commit = keys.commit
        self.discard = keys.discard

    def retrieve_key(self, key_metadata: bytes, column: str | None) -> SecretKey:
        """As `ToolsFileKeys.retrieve_key`.

        Raises:
            PolicyError: sealed under another master key than agreed on; the KMS is not asked then.
        """
        self._pins.check(self._keys.master_key_of(key_metadata), column)
        return self._keys.retrieve_key(key_metadata, column)

    def check_under_footer_key(self, key_metadata: bytes, column: str) -> None:
        """A column says that it is under the footer key, whose key metadata this is.

        Raises:
            PolicyError: the footer's master key is not one that was agreed on for the column. Whoever may use the
                footer key alone could else put values of his own in the place of a column that he can't read.
        """
        self._pins.check(self._keys.master_key_of(key_metadata), column)

    def new_key(self, master_key: str, column: str | None, bits: int) -> tuple[SecretKey, bytes]:
        """As `ToolsFileKeys.new_key`; what could not be read back is not written."""
        self._pins.check(master_key, column)
        return self._keys.new_key(master_key, column, bits)
