"""Columns that are in no file, as predicates know columns."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from ...format.layout import FileMeta
from ...format.schema import Schema
from ...thrift import Struct

__all__ = ["leaves_of"]


def leaves_of(schema: pa.Schema) -> Schema:
    """An Arrow schema as the footer of a file with such columns would have it."""
    out = pa.BufferOutputStream()
    pq.write_metadata(schema, out)
    raw = out.getvalue().to_pybytes()
    size = int.from_bytes(raw[-8:-4], "little")
    return Schema(Struct.parse(raw[-8 - size : -8]).elements(FileMeta.SCHEMA))
