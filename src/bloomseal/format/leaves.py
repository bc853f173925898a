"""An Arrow schema, as predicates know the columns of a file."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from ..core.errors import UnsupportedError
from ..core.parquet.layout import FileMeta
from ..core.parquet.schema import Schema
from ..core.text import safe_text
from ..core.thrift import Struct


def leaves_of(schema: pa.Schema) -> Schema:
    """An Arrow schema as the footer of a Parquet file with such columns would have it.

    Raises:
        UnsupportedError: no Parquet file has such columns; a table's log can say that one does.
    """
    out = pa.BufferOutputStream()
    try:
        pq.write_metadata(schema, out)
    except pa.ArrowException as error:
        kinds = ", ".join(sorted({str(kind) for kind in schema.types}))
        raise UnsupportedError(f"columns that no Parquet file has, among {safe_text(kinds)}") from error
    raw = out.getvalue().to_pybytes()
    size = int.from_bytes(raw[-8:-4], "little")
    return Schema(Struct.parse(raw[-8 - size : -8]).elements(FileMeta.SCHEMA))
