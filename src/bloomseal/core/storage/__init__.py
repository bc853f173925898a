"""The bytes of a file, read by position."""
