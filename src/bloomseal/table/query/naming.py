"""Files of a table with a log, whose columns may bear other names than the table's.

Whatever asks a file for a column by the table's name asks here first: rows, filters and indexes would otherwise be
those of another column, or of none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from ...errors import UnsupportedError

if TYPE_CHECKING:
    from ...read.file import SealedFile
    from ...storage.logs.snapshot import Naming

__all__ = ["need_names"]

_REWRITE = "rewrite_data_files in the engine that wrote the table"


def need_names(file: SealedFile, naming: Naming) -> None:
    """Refuse a file whose columns the table knows by other names.

    Iceberg matches them by their ids, in files without any by the table's name mapping; Delta, as Spark has it, by
    their names whatever the case.

    Raises:
        UnsupportedError: a column that was renamed, or dropped and added again; ids that nobody can tell.
    """
    schema = file.plan().empty.schema
    if not naming.ids:
        _need_case(file, schema, naming)
        return
    found = dict(_ids([*schema]))
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
            raise UnsupportedError(
                "a column that was renamed, or dropped and added again", file=file.path, column=path, hint=_REWRITE
            )


def _need_case(file: SealedFile, schema: pa.Schema, naming: Naming) -> None:
    held = {*schema.names}
    lacking = {name.casefold(): name for name in naming.names if name not in held}
    for name in held.difference(naming.names):
        if (meant := lacking.get(name.casefold())) is not None:
            raise UnsupportedError(
                f"the table's log calls this column {meant}", file=file.path, column=name, hint="rewrite the file"
            )


def _ids(fields: list[pa.Field], above: str = "") -> Iterator[tuple[str, int | None]]:
    for field in fields:
        yield from _id(field, above + field.name)


def _id(field: pa.Field, path: str) -> Iterator[tuple[str, int | None]]:
    number = (field.metadata or {}).get(b"PARQUET:field_id")
    yield path, None if number is None else int(number)
    types, kind = pa.types, field.type
    if types.is_struct(kind):
        yield from _ids([*kind], f"{path}.")
    elif types.is_map(kind):
        yield from _id(kind.key_field, f"{path}.key")
        yield from _id(kind.item_field, f"{path}.value")
    elif types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        yield from _id(kind.value_field, f"{path}.element")
