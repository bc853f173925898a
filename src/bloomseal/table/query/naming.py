"""Files of a table with a log, whose columns may bear other names than the table's.

Whatever asks a file for a column by the table's name asks here first: rows, filters and indexes would otherwise be
those of another column, or of none.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from ...core.errors import UnsupportedError

if TYPE_CHECKING:
    import pyarrow as pa

    from ...read.file import SealedFile
    from ...storage.logs.snapshot import Naming

_RENAMED = "a column that was renamed, or dropped and added again"
_REWRITE = "rewrite_data_files in the engine that wrote the table"


def need_names(file: SealedFile, naming: Naming) -> None:
    """Refuse a file whose columns the table knows by other names.

    Iceberg matches them by their ids, in files without any by the table's name mapping; Delta, as Spark has it, by
    their names whatever the case.

    Raises:
        UnsupportedError: a column that was renamed, or dropped and added again; ids that nobody can tell.
    """
    from ...storage.logs.snapshot import fields_in  # folders without a log need not load it

    if naming.doubted is not None:
        raise UnsupportedError(_RENAMED, file=file.path, column=naming.doubted, hint=_REWRITE)
    if not naming.ids:
        need_case(file, naming.names)
        return
    fields = dict(fields_in(file.plan().empty.schema))
    found = {path: _id(field) for path, field in fields.items()}
    if not any(number is not None for number in found.values()):
        if naming.mapped is None:
            raise UnsupportedError(
                "a file without field ids, in an Iceberg table without a name mapping", file=file.path,
                hint="set schema.name-mapping.default in the engine that wrote the table",
            )  # fmt: skip
        found = {path: naming.mapped.get(path) for path in found}
    names = {number: name for name, number in naming.ids.items()}
    for path, number in found.items():
        if (number is not None and names.get(number, path) != path) or naming.ids.get(path, number) != number:
            raise UnsupportedError(_RENAMED, file=file.path, column=path, hint=_REWRITE)


def _id(field: pa.Field) -> int | None:
    """Any text can stand there, where the file's own schema has no number."""
    told = (field.metadata or {}).get(b"PARQUET:field_id")
    return None if told is None else int(told) if told.isdigit() else -1


def need_case(file: SealedFile, names: Collection[str]) -> None:
    """Refuse a file that spells a column of the table in another case. Where names are told apart by case, as in
    Iceberg, it is another column, such as one that was dropped, or one of the table's own; for Spark both would be one.

    Args:
        names: the table's, as `Naming` has them.

    Raises:
        UnsupportedError: it does.
    """
    from ...storage.logs.snapshot import fields_in

    held = dict(fields_in(file.plan().empty.schema))
    lacking = {name.casefold(): name for name in names if name not in held}
    for name in held:
        if (meant := lacking.get(name.casefold())) is not None:
            raise UnsupportedError(
                f"the table's log calls this column {meant}", file=file.path, column=name, hint="rewrite the file"
            )
