"""Keys that sign, what they sign of a file, and who may write a table's files."""
