"""The table: many files as one."""
