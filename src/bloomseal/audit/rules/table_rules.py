"""Rules about encrypted Iceberg tables as wholes; each of their data files is judged as any file is."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from ..facts.iceberg import TableFlaw
from .catalogue import RULES
from .findings import Finding
from .judged import Facts, found

__all__ = ["check_encrypted_tables"]

_LIFETIME: Final = timedelta(days=730)
"""Of a KEK, after which Iceberg makes another one."""


def check_encrypted_tables(facts: Facts) -> Iterator[Finding]:
    """What is wrong with tables that say of themselves that they are encrypted."""
    ids = {rule.name: rule.id for rule in RULES.values()}
    flaws = [one for table in facts.places.encrypted for one in table.flaws]
    really = {table.folder.path.rstrip("/") for table in facts.places.encrypted if not table.nominal}
    for file in facts.files:
        if (facts.places.roots.get(file.path) or "").rstrip("/") in really and file.algorithm is None:
            what = "a data file in clear, in a table that is encrypted"
            flaws.append(TableFlaw("clear-in-encrypted-table", file.path, what))
    seen = {one.file for one in flaws}
    flaws += [one for one in facts.places.opened if one.file not in seen]
    yield from (found(ids[one.rule], one.what, None, one.file) for one in flaws)
    for table in facts.places.encrypted:
        for name, made in table.made.items():
            since = datetime.fromtimestamp(made / 1000, UTC)
            if facts.now - since > _LIFETIME:
                message = f"KEK {name} was made on {since:%Y-%m-%d}"
                yield found(ids["old-table-kek"], message, None, table.folder.path)
