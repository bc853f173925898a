"""The sealed index of a column: which row groups of a table can hold a value. See docs/sealed-index.md."""
