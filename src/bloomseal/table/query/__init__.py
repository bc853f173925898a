"""A query over many files: which of them, under which schema, with which conditions."""
