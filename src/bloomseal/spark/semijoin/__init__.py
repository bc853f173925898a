"""Joins that ask a table's filters first, with keys that travel sealed."""
