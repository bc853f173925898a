"""The rows of a table's files that were deleted, by its deletion vectors, position deletes and equality deletes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...core.errors import BloomsealError, FormatError, UnsupportedError
from ...core.forked import new_lock
from ...core.limits import MAX_DELETE_RECORDS
from ...read.file import GATHERED
from ...storage.logs.ags1 import Ags1Stream
from ...storage.logs.deletion_vector import DeletionVector
from ...storage.logs.snapshot import DeleteFile, DeleteKind, fields_in
from .query import Query
from .schema import conform, fits

if TYPE_CHECKING:
    from ...read.file import SealedFile
    from ...read.parquet import ParquetFile
    from .parts import TableParts

__all__ = ["DeleteReader"]

I64 = npt.NDArray[np.int64]
_REWRITE = "rewrite_position_deletes or rewrite_data_files in the engine that wrote the table"


class DeleteReader:
    """Tells which rows of a table's file were deleted, as `TableParts.deletes`. Position and equality deletes are read
    once, when the first file is asked for that they are about.
    """

    def __init__(self) -> None:
        self._lock = new_lock()
        self._places: dict[str, dict[str, I64]] = {}
        self._values: dict[tuple[str, tuple[str, ...]], pa.Table] = {}
        self._records = 0

    def __call__(self, parts: TableParts, number: int, file: ParquetFile) -> DeletionVector:
        """The deleted rows of the file of that number.

        Raises:
            FormatError: a delete file that breaks the specification, or is not what its manifest says.
            UnsupportedError: too many deletes, or values that are not compared here.
            IntegrityError, KeyAccessError, PolicyError, UsageError: it can't be opened.
        """
        found = parts.files[number]
        vector = DeletionVector([group.num_rows for group in file.row_groups])
        compared: dict[tuple[str, ...], list[pa.Table]] = {}
        for one in found.deletes:
            try:
                if one.kind is DeleteKind.VECTOR:
                    vector.add_blob(_blob(parts, one), one.records)
                elif one.kind is DeleteKind.POSITIONS:
                    vector.add(self._positions(parts, one).get(found.name, np.empty(0, dtype=np.int64)))
                else:
                    compared.setdefault(one.columns, []).append(self._equality(parts, one))
            except BloomsealError as error:
                raise error.at(file=one.file.path) from error.__cause__
        for columns, values in compared.items():
            _delete_equal(vector, parts, number, file, list(columns), pa.concat_tables(values))
        return vector

    def _positions(self, parts: TableParts, one: DeleteFile) -> dict[str, I64]:
        """The rows that a file of position deletes names, by the name of their data file."""
        with self._lock:
            if (found := self._places.get(one.file.path)) is None:
                found = self._places[one.file.path] = self._read_positions(parts, one)
                self._records += one.records
            return found

    def _equality(self, parts: TableParts, one: DeleteFile) -> pa.Table:
        """The rows of a file of equality deletes, in the table's schema."""
        with self._lock:
            if (found := self._values.get(asked := (one.file.path, one.columns))) is None:
                found = self._values[asked] = self._read_values(parts, one)
                self._records += one.records
            return found

    def _read_positions(self, parts: TableParts, one: DeleteFile) -> dict[str, I64]:
        found: dict[str, list[I64]] = {}
        with parts.open_deletes(one) as file:
            self._need_records(file, one)
            plan = file.plan(["file_path", "pos"])
            name, place = (plan.empty.schema.field(column).type for column in ("file_path", "pos"))
            if not fits(name, pa.large_string()) or place != pa.int64():
                raise FormatError(f"position deletes of types {name} and {place}")
            for part in range(file.num_parts):
                for rows in file.pieces(plan, part):
                    if rows.column(0).null_count or rows.column(1).null_count:
                        raise FormatError("a position delete without a file or a position")
                    names = rows.column("file_path").combine_chunks().dictionary_encode()
                    codes, positions = names.indices.to_numpy(), rows.column("pos").to_numpy()
                    order = np.argsort(codes, kind="stable")
                    cuts = np.flatnonzero(np.diff(codes[order])) + 1
                    for mine in np.split(order, cuts) if len(order) else ():
                        name = names.dictionary[int(codes[mine[0]])].as_py()
                        found.setdefault(name, []).append(positions[mine])
        _need_same_names(parts, found)
        if one.data_file is not None and not found.keys() <= {one.data_file}:
            raise FormatError("position deletes of other data files than the manifest says")
        return {name: np.concatenate(positions) for name, positions in found.items()}

    def _read_values(self, parts: TableParts, one: DeleteFile) -> pa.Table:
        with parts.open_deletes(one) as file:
            self._need_records(file, one)
            parts.need_names(file)
            if lacking := [name for name in one.columns if not file.has(name)]:
                raise FormatError("equality deletes without a column that they compare", column=lacking[0])
            rows = _leaves(file.read(list(one.columns)), one.columns)
        schema = _compared(parts, one.columns)
        _need_types(rows.schema, schema)
        return conform(rows, schema, {}, one.file.path)

    def _need_records(self, file: SealedFile, one: DeleteFile) -> None:
        """Before the rows of a delete file are read.

        Raises:
            FormatError: they are not as many as the manifest says.
            UnsupportedError: with those that were read before, they are too many.
        """
        file.need_verified("read of deletes")
        if file.num_rows != one.records:
            raise FormatError(f"a delete file of {file.num_rows} rows, of which the manifest says {one.records}")
        if self._records + one.records > MAX_DELETE_RECORDS:
            raise UnsupportedError(f"more than {MAX_DELETE_RECORDS} rows of delete files", hint=_REWRITE)


def _blob(parts: TableParts, one: DeleteFile) -> bytes:
    """The bytes of a deletion vector."""
    with parts.open_vector(one) as source:
        if (key := parts.key_of(one.file.path, one.file.key)) is None:
            return bytes(source.read(one.offset, one.size))
        length = source.size if one.length is None else one.length
        return Ags1Stream(source, key.key, key.prefix, length).read(one.offset, one.size)


def _need_same_names(parts: TableParts, found: dict[str, Any]) -> None:
    """Refuse names of data files that the manifests spell in another way: their rows would not be deleted."""
    if parts.snapshot is None or (path_of := parts.snapshot.path_of) is None:
        return
    known = {one.name for one in parts.files if one.name}
    paths = set(map(path_of, known))
    for name in found:
        if name not in known and path_of(name) in paths:
            raise FormatError("position deletes that name a data file in another way than its manifest")


def _compared(parts: TableParts, columns: Sequence[str]) -> pa.Schema:
    """The schema in which values are compared: of leaves, by their dotted paths."""
    assert parts.snapshot is not None  # noqa: S101 - its log names the deletes
    known = dict(fields_in(parts.snapshot.compared or parts.snapshot.schema))
    fields = [pa.field(name, _stored(known[name].type)) for name in columns]
    for field in fields:
        above = [known[path].type for path in known if field.name.startswith(f"{path}.")]
        if pa.types.is_nested(field.type) or not all(map(pa.types.is_struct, above)):
            raise UnsupportedError(f"equality deletes by a column of {field.type}", column=field.name, hint=_REWRITE)
        if pa.types.is_floating(field.type):
            what = f"equality deletes by a column of {field.type}, which the specification of Iceberg forbids"
            raise UnsupportedError(what, column=field.name, hint=_REWRITE)
    return pa.schema(fields)


def _stored(kind: pa.DataType) -> pa.DataType:
    """What is compared of an extension type, such as UUID."""
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _leaves(rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Those of the columns that the rows have, by their dotted paths. In a struct that is null they are null."""
    found = {}
    for name in columns:
        top, *inner = name.split(".")
        if top in rows.column_names:
            leaf = pc.struct_field(rows.column(top), inner) if inner else rows.column(top)
            found[name] = leaf.cast(_stored(leaf.type))
    return pa.table(found) if found else rows


def _need_types(stored: pa.Schema, schema: pa.Schema) -> None:
    """Refuse a column whose values another type makes equal.

    Attack: whoever writes the metadata file says that texts are numbers, and ``07`` is deleted with ``7``.
    """
    for field in (one for one in stored if one.name in schema.names):
        kind = schema.field(field.name).type
        if field.type != kind and (pa.types.is_timestamp(kind) or not fits(field.type, kind)):
            raise UnsupportedError(f"deletes that compare {field.type} with {kind}", column=field.name)


def _delete_equal(
    vector: DeletionVector, parts: TableParts, number: int, file: ParquetFile, columns: list[str], values: pa.Table
) -> None:
    """Delete the rows that equal one of these; null equals null."""
    parts.need_names(file)
    query, schema = Query(parts, None, None), _compared(parts, columns)
    held = [*filter(file.has, columns)]
    plan = file.plan(held or file.leaves.top_level[:1])
    plan.deletes = None  # by their own numbers
    _need_types(_leaves(plan.empty, held).schema, schema)
    waiting: list[tuple[int, int, pa.Table]] = []
    count = 0

    def compare() -> None:
        equal = _among(pa.concat_tables([rows for _, _, rows in waiting]), values)
        for part, first, rows in waiting:
            vector.add(first + np.flatnonzero(equal[: rows.num_rows]), part)
            equal = equal[rows.num_rows :]
        waiting.clear()

    for part in range(file.num_parts):
        first = 0
        for rows in file.pieces(plan, part, GATHERED):
            waiting.append((part, first, query.in_schema(number, _leaves(rows, held), schema)))
            first += rows.num_rows
            count += rows.num_rows
            # Each time all values are hashed: for many, a file of many row groups would take hours.
            if count >= values.num_rows:
                compare()
                count = 0
    if waiting:
        compare()


def _among(rows: pa.Table, values: pa.Table) -> npt.NDArray[np.bool_]:
    """Which rows equal one of the others in all columns."""
    codes: I64 = np.zeros(values.num_rows + rows.num_rows, dtype=np.int64)
    for name in values.column_names:
        both = pa.chunked_array([*values.column(name).chunks, *rows.column(name).chunks], values.column(name).type)
        mine = both.combine_chunks().dictionary_encode(null_encoding="encode").indices.to_numpy().astype(np.int64)
        codes = np.unique(codes * (len(mine) + 1) + mine, return_inverse=True)[1]
    return np.isin(codes[values.num_rows :], codes[: values.num_rows])
