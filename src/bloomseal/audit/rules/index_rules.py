"""Rules about sealed indexes as wholes; each of their files is judged as a file of its table is."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from .findings import Finding
from .judged import Facts, found


def check_indexes(facts: Facts) -> Iterator[Finding]:
    """Indexes that are missing, and those that hold what should be gone."""
    for one in facts.indexes:
        if one.manifest is None:
            yield found(
                "BS405", "the policy wants an index", None, one.root, one.column, details={"policy": one.policy}
            )
            continue
        if one.problem is not None:
            yield found("BS206", f"the index can't be opened: {one.problem}", None, one.manifest, one.column)
        days = one.policy.indexes()[one.column].purge_days
        if days is None or not one.gone or one.since is None or facts.now - one.since <= timedelta(days=days):
            continue
        message = f"about {one.gone} files that are gone, in a run of {one.since:%Y-%m-%d}"
        yield found("BS404", message, None, one.manifest, one.column, details={"policy": one.policy})
