"""Reading ORC files as tables are read: the same conditions, verdicts and counts as of Parquet."""
