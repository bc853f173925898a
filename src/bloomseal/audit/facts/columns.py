"""Which columns the files of each table have, as far as the keys at hand show them."""

from __future__ import annotations

from collections.abc import Iterable

from ...policy import TablePolicy
from ...policy.check import SeenColumns
from ...policy.personal import by_name
from ...table.query.partitions import columns_of_folders
from .auditor import Auditor
from .files.file import FileFacts
from .places import Places


def columns_of_tables(
    auditor: Auditor, places: Places, files: Iterable[FileFacts]
) -> list[tuple[TablePolicy, SeenColumns]]:
    """The policies of the files that any table claims, each with the columns that were seen."""
    found: dict[str, tuple[TablePolicy, SeenColumns]] = {}
    for file in files:
        if (policy := auditor.policies.of(file.path)) is None:
            continue
        seen = found.setdefault(policy.name, (policy, SeenColumns()))[1]
        root = places.roots.get(file.path, "")
        relative = file.path.removeprefix(root.rstrip("/") + "/") if root else file.path.rpartition("/")[2]
        seen.folders.update(columns_of_folders(relative, file.path))
        if not file.leaves:
            seen.unseen += 1
            continue
        seen.files += 1
        for column, _ in file.leaves:
            seen.names.add(column)
            if (kind := by_name(column)) is not None:
                seen.personal[column] = f"its name: {kind.what}"
            elif column in file.patterns:
                seen.personal[column] = f"values like {file.patterns[column]}"
    for _, seen in found.values():
        seen.personal.update({name: f"its name: {kind.what}" for name in seen.folders if (kind := by_name(name))})
    return list(found.values())
