"""A file without some of its rows. Those that are left are encoded anew, as the file has them: types, row groups,
codecs, encodings, statistics and indexes. So are row groups that keep all of theirs: a dictionary may name values that
only rows of other row groups have, as Arrow stores it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.errors import UnsupportedError, UsageError
from ..core.parquet.footer import Footer
from ..core.parquet.keys_at_hand import KeysAtHand
from ..core.parquet.layout import Column, FileMeta, Group, Meta
from ..core.parquet.schema import Leaf
from ..core.parquet.walk import Walk
from ..core.sbbf import PhysicalType
from ..core.storage.ref import FileRef
from ..core.storage.source import Scratch
from ..core.thrift import Struct, WireType, encode_binary
from ..format.decode import read_row_group
from ..format.hashes.chunk_hashes import chunk_hashes
from ..format.pages.inflate import codec_to_write
from ..sbbf import FilterSpec
from ..storage.places import open_source
from .assemble import AnyFilter, Assembler
from .convert import Conversion, ConversionReport
from .encode import Encoder

if TYPE_CHECKING:
    from ..core.decryption import DecryptionSpec
    from ..specs import EncryptionSpec

RowNumbers = Mapping[int, npt.NDArray[np.int64]]
"""Row group → numbers of some of its rows, ascending."""
_ARROW: Final = b"ARROW:schema"
_ENCODINGS: Final = {
    5: "DELTA_BINARY_PACKED",
    6: "DELTA_LENGTH_BYTE_ARRAY",
    7: "DELTA_BYTE_ARRAY",
    9: "BYTE_STREAM_SPLIT",
}
_SCALED: Final = ("decimal", "time", "timestamp")
"""Logical types by which a stored number is another value."""


def without_rows(
    ref: FileRef,
    target: FileRef,
    decryption: DecryptionSpec | None,
    encryption: EncryptionSpec | None,
    gone: RowNumbers,
    specs: Mapping[str, FilterSpec],
    accept: Callable[[Walk, Walk], None],
) -> ConversionReport:
    """Write a file anew without these rows; some of its rows must be left.

    Args:
        encryption: what seals the new file; None: nothing.
        specs: column → its filters' specification. Filters of other columns keep their size.
        accept: as for `convert`.

    Raises:
        UnsupportedError: as `need_same_types`. And as `convert`; in every case the file is as it was.
    """
    with open_source(ref) as source:
        return _Reduction(source, target, decryption, encryption, False).reduced(gone, specs, accept)


def need_same_types(walk: Walk) -> list[str]:
    """Refuse a file with a column that would not be stored as it is, if it were encoded anew.

    Returns:
        What pyarrow's writer calls the columns.

    Raises:
        UnsupportedError: there is one.
        UsageError: pyarrow can't encode these columns.
    """
    leaves = walk.footer.schema.leaves
    empty = read_row_group(walk, None, range(len(leaves)))
    made = Encoder(empty.schema, _by_types(leaves), walk.source.name).template.schema.leaves
    for old, new in zip(leaves, made, strict=False):
        if not _same(old, new):
            what = f"{old.type} can't be written anew as it is stored (pyarrow makes {new.type} of it)"
            raise UnsupportedError(what, file=walk.source.name, column=old.name, hint=_ELSEWHERE)
    if len(leaves) != len(made):
        what = f"{len(leaves)} columns, of which pyarrow would make {len(made)}"
        raise UnsupportedError(what, file=walk.source.name, hint=_ELSEWHERE)
    return [leaf.name for leaf in made]


_ELSEWHERE: Final = "the engine that wrote the table, with its own delete"


def _same(old: Leaf, new: Leaf) -> bool:
    one, other = old.type, new.type
    if (old.repetition, old.definition) != (new.repetition, new.definition):
        return False
    if (one.physical, one.type_length) != (other.physical, other.type_length):
        return False
    if one.kind not in _SCALED and other.kind not in _SCALED:
        return True
    facts = [(kind.kind, kind.logical and (kind.logical.unit, kind.logical.scale)) for kind in (one, other)]
    return facts[0] == facts[1]


def _by_types(leaves: Sequence[Leaf]) -> dict[str, Any]:
    """Options of pyarrow's writer by which columns are stored as these are."""
    whole = (PhysicalType.INT32, PhysicalType.INT64)
    return {
        "use_deprecated_int96_timestamps": any(leaf.type.physical is PhysicalType.INT96 for leaf in leaves),
        "store_decimal_as_integer": any(leaf.type.kind == "decimal" and leaf.type.physical in whole for leaf in leaves),
        "store_schema": False,
    }


class _Reduction(Conversion):
    """One file on its way to fewer rows."""

    def reduced(
        self, gone: RowNumbers, specs: Mapping[str, FilterSpec], accept: Callable[[Walk, Walk], None]
    ) -> ConversionReport:
        """Write the new file, and put it in its place."""
        self._gone, self._specs = gone, specs
        self._leaves = self._walk.footer.schema.leaves
        # What its writer stored of Arrow's types is for readers; values are decoded to the file's own, and back.
        footer = self._walk.footer.struct
        self._template = footer.copy()
        if pairs := footer.elements(FileMeta.KEY_VALUE):
            footer.set_list(FileMeta.KEY_VALUE, [raw for raw in pairs if Struct.parse(raw).binary(1) != _ARROW])
        self._names = need_same_types(self._walk)
        return self.run({}, None, accept)

    def _add(self, assembler: Assembler, group: int, specs: Any, stored: Scratch) -> None:  # noqa: ARG002
        rows = self._decoded(group)
        left = np.ones(rows.num_rows, dtype=np.bool_)
        if group in self._gone:
            left[self._gone[group]] = False
        if left.any():
            # Not pa.array, whose first call loads pandas where that is installed.
            bits = pa.py_buffer(np.packbits(left, bitorder="little"))
            made = self._encoded(group, rows.filter(pa.Array.from_buffers(pa.bool_(), len(left), [None, bits])))
            assembler.add_row_group(made, 0, self._filters(group, made))

    def _encoded(self, group: int, rows: pa.Table) -> Walk:
        """The rows that are left, as a row group with the file's own schema."""
        try:
            made = Encoder(rows.schema, self._options(group), self._walk.source.name).encode(rows)
        except UsageError:
            # pyarrow's message may hold somebody's value.
            what = "pyarrow can't encode the rows that are left"
            raise UnsupportedError(what, file=self._walk.source.name, row_group=group, hint=_ELSEWHERE) from None
        columns = []
        for leaf in self._leaves:
            column = Struct.parse(made.footer.chunk_raw(0, leaf.index))
            meta = Struct.parse(column.raw(Column.META) or b"\0")
            meta.set_list(Meta.PATH, [encode_binary(part.encode()) for part in leaf.path], WireType.BINARY)
            column.set_struct(Column.META, meta)
            columns.append(column.to_bytes())
        head = Struct.parse(self._walk.footer.row_groups[group])
        head.remove(Group.ORDINAL)
        head.set_list(Group.COLUMNS, columns)
        head.set_i64(Group.NUM_ROWS, rows.num_rows)
        footer = self._walk.footer.struct.copy()
        footer.remove(FileMeta.CREATED_BY, FileMeta.ALGORITHM, FileMeta.SIGNING_KEY)
        footer.set_list(FileMeta.ROW_GROUPS, [head.to_bytes()])
        footer.set_i64(FileMeta.NUM_ROWS, rows.num_rows)
        return Walk(made.source, Footer(footer.to_bytes(), 0, None, True), KeysAtHand(None, None))

    def _decoded(self, group: int) -> pa.Table:
        every = range(len(self._leaves))
        try:
            return read_row_group(self._walk, group, every)
        except UnsupportedError:
            # Moments of INT96 before 1677 or after 2262.
            return read_row_group(self._walk, group, every, int96_unit="us")

    def _options(self, group: int) -> dict[str, Any]:
        """Options of pyarrow's writer by which pages are made as the row group's are."""
        codecs: dict[str, str] = {}
        dictionaries, counted, encodings = [], [], {}
        for chunk, name in zip(self._walk.chunks(group), self._names, strict=True):
            meta = Struct.parse(self._walk.meta_raw(chunk))
            codecs[name] = codec_to_write(meta.integer(Meta.CODEC))
            used = {raw[0] >> 1 for raw in meta.elements(Meta.ENCODINGS, WireType.I32)}  # zigzag
            if used & {2, 8}:  # PLAIN_DICTIONARY, RLE_DICTIONARY
                dictionaries.append(name)
            elif known := [_ENCODINGS[one] for one in sorted(used & _ENCODINGS.keys())]:
                encodings[name] = known[0]
            if Meta.STATISTICS in meta:
                counted.append(name)
        indexed = Struct.parse(self._walk.footer.chunk_raw(group, 0)).integer(Column.OFFSET_INDEX) is not None
        return {
            **_by_types(self._leaves),
            "compression": codecs,
            "use_dictionary": dictionaries or False,
            "column_encoding": encodings or None,
            "write_statistics": counted or False,
            "write_page_index": indexed,
        }

    def _filters(self, group: int, made: Walk) -> dict[int, AnyFilter]:
        """Filters over the rows that are left, of the columns that had some."""
        found: dict[int, AnyFilter] = {}
        for chunk in self._walk.chunks(group):
            old, leaf = self._walk.stored_filter(chunk), chunk.leaf
            if old is not None and leaf.type.physical is not PhysicalType.BOOLEAN:
                size = len(old.bitset) if old.unknown is None else None
                spec = self._specs.get(leaf.name) or FilterSpec(num_bytes=size)
                found[leaf.index] = spec.build(chunk_hashes(made, 0, leaf))
                self._report.filters_built += 1
        return found
