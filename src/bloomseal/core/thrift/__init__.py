"""Compact-protocol Thrift: lossless structs to rewrite, slim views to read."""

from .compact import Struct, element_spans, encode_binary, encode_list, encode_varint, with_integers
from .cursor import Cursor, WireType

__all__ = [
    "Cursor",
    "Struct",
    "WireType",
    "element_spans",
    "encode_binary",
    "encode_list",
    "encode_varint",
    "with_integers",
]
