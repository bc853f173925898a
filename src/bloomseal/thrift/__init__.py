"""Compact-protocol Thrift: lossless structs to rewrite, slim views to read."""

from .compact import Cursor, Struct, WireType, element_spans, encode_binary, encode_list, with_integers

__all__ = ["Cursor", "Struct", "WireType", "element_spans", "encode_binary", "encode_list", "with_integers"]
