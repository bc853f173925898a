"""Rules about encrypted Iceberg tables as wholes; each of their data files is judged as any file is."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from ...core.parquet.footer import FooterKind
from ...storage.discovery.kinds import is_of_index
from ..facts.iceberg import TableFlaw
from .catalogue import RULES
from .findings import Finding, Severity
from .judged import Facts, found

_LIFETIME: Final = timedelta(days=730)
"""Of a KEK, after which Iceberg makes another one."""


def check_encrypted_tables(facts: Facts) -> Iterator[Finding]:
    """What is wrong with tables that say of themselves that they are encrypted."""
    ids = {rule.name: rule.id for rule in RULES.values()}
    flaws = [one for table in facts.places.encrypted for one in table.flaws]
    really = tuple(f"{table.folder.path.rstrip('/')}/" for table in facts.places.encrypted if not table.nominal)
    for file in facts.files:
        # Of an encrypted table no column lies open, and no footer; its sealed index is the policy's affair.
        of_table = file.path.startswith(really) and not is_of_index(file.path)
        if of_table and file.footer != FooterKind.ENCRYPTED:
            what = "a data file in clear, in a table that is encrypted"
            flaws.append(TableFlaw("clear-in-encrypted-table", file.path, what))
    worst: dict[str, Severity] = {}
    for one in flaws:
        worst[one.file] = max(worst.get(one.file, Severity.INFO), RULES[ids[one.rule]].severity)
    # What opening adds, unless something as bad is said of the file.
    opened = facts.places.opened
    flaws += [one for one in opened if worst.get(one.file, Severity.INFO) < RULES[ids[one.rule]].severity]
    yield from (found(ids[one.rule], one.what, None, one.file) for one in flaws)
    for table in facts.places.encrypted:
        for name, since in {kek.id: kek.made for kek in table.keks}.items():
            if since is not None and facts.now - since > _LIFETIME:
                message = f"KEK {name} was made on {since:%Y-%m-%d}"
                yield found(ids["old-table-kek"], message, None, table.folder.path)
