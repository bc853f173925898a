"""One file in: writer, filters attached, conversions between protections."""
