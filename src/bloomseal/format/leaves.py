"""An Arrow schema, as predicates know the columns of a file."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from ..thrift import Struct
from .layout import FileMeta
from .schema import Schema

__all__ = ["leaves_of"]


def leaves_of(schema: pa.Schema) -> Schema:
    """An Arrow schema as the footer of a Parquet file with such columns would have it."""
    out = pa.BufferOutputStream()
    pq.write_metadata(schema, out)
    raw = out.getvalue().to_pybytes()
    size = int.from_bytes(raw[-8:-4], "little")
    return Schema(Struct.parse(raw[-8 - size : -8]).elements(FileMeta.SCHEMA))
