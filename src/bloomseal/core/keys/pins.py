"""Which master keys may wrap the key of each place of a file.

Key material names its master key, and whoever may replace files may name one of his own choice that the KMS lets us
use. Then everything authenticates, under the wrong key. With pins such a file is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..columns import nearest_entry
from ..errors import PolicyError
from .access import shown


class Pins:
    """The master keys that were agreed on.

    Args:
        footer: master keys that may wrap the footer key.
        columns: dotted path of a column, or of a group above several → master keys that may wrap its key.
        others: master keys for columns that `columns` does not cover; none by default.
    """

    def __init__(
        self, footer: Collection[str], columns: Mapping[str, Collection[str]], others: Collection[str] = ()
    ) -> None:
        self._footer = frozenset(footer)
        self._columns = {name: frozenset(keys) for name, keys in columns.items()}
        self._others = frozenset(others)

    def check(self, master_key: str, column: str | None) -> None:
        """Accept `master_key` for a column, or for the footer where that is None.

        Raises:
            PolicyError: another one was agreed on.
        """
        accepted = self._footer if column is None else nearest_entry(self._columns, column)
        accepted = self._others if accepted is None else accepted
        if master_key not in accepted:
            what = "the footer" if column is None else "the column"
            raise PolicyError(
                f"{what} is sealed under master key {shown(master_key)}, and the policy has {' or '.join(map(shown, sorted(accepted))) or 'none'}",
                column=column,
                hint="if the key was changed on purpose, name the old one among previous_keys",
            )
