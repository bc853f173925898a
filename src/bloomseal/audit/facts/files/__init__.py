"""What one file says to an auditor, Parquet or ORC, with keys and without."""
